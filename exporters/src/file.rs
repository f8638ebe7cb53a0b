//! Files of OTLP JSON lines, in the format of the Collector's file exporter. `astracer tune` reads
//! them.
//!
//! A folder contains `traces-00000001.jsonl` and so on. Only the last file is written to. When it
//! is large or old enough, the next file is begun. A new process begins a new file, so it never
//! writes to the files of another process.
//!
//! # After a crash
//!
//! Each call writes its lines with one write to the operating system before it returns, so
//! everything that was sent survives the end of the process. [`Fsync`] determines what survives a
//! crash of the machine. The line that was being written may be torn; the reader reports it and
//! keeps everything before it. A write that fails is undone by truncating the file to its previous
//! length, so that no torn line is followed by whole ones. If the truncation fails too, a new file
//! is begun.
//!
//! # Outages of the disk
//!
//! A disk that is full or cannot be written is an outage like that of a server: a call waits and
//! tries again, for [`FilesBuilder::with_max_wait`]. If the limit of the process on the size of
//! files (`ulimit -f`) is reached, a new file is begun; the process must ignore SIGXFSZ, which
//! would end it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use astracer_formats::otlp_json::write_request;
use astracer_model::Span;

use crate::clock::{Clock, SystemClock};
use astracer_model::destination::{Attempt, DeliveryReport, Destination};
use astracer_model::destination::{Counter, Delivery};
use astracer_model::destination::{ErrorKind, ExportError};

mod folder;
mod open;
mod sets;
mod wait;

use folder::Folder;
use open::OpenFile;
use sets::{Own, Sets};
use wait::{PAUSE_MAX, Waits};

/// The maximum number of spans per line, so that no reader has to hold an enormous line.
const SPANS_PER_LINE_MAX: usize = 1 << 12;

/// The buffer capacity that is kept from line to line.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// The compression of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// gzip, with the extension `.jsonl.gz`. Each call's lines are a separate member, so the file
    /// is complete after each call.
    #[cfg(feature = "gzip")]
    Gzip {
        /// From 1 (fast) to 9 (small); gzip's default is 6.
        level: u32,
    },
    /// zstd, with the extension `.jsonl.zst`. Each call's lines are a block that can be read
    /// without the blocks after it.
    #[cfg(feature = "zstd")]
    Zstd {
        /// From 1 (fast) to 22 (small); zstd's default is 3.
        level: i32,
    },
}

/// When files are synced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fsync {
    /// Never; the operating system decides.
    Never,
    /// When a file is complete, and on [`flush`](Destination::flush) and shutdown. A crash of the
    /// machine may lose the content of the last file.
    #[default]
    Closing,
    /// On each call. A crash of the machine loses nothing for which a call has returned. This is
    /// slow.
    Each,
}

/// The reaction to the limit on the total size of all files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFilesFull {
    /// Delete the oldest files.
    #[default]
    DeleteOldest,
    /// Keep the files. New spans are lost as [`ErrorKind::Full`].
    Refuse,
}

/// Settings of [`Files`], from [`Files::builder`].
#[derive(Clone, Debug)]
pub struct FilesBuilder {
    folder: PathBuf,
    prefix: String,
    settings: Settings,
    clock: Arc<dyn Clock>,
}

#[derive(Clone, Debug)]
struct Settings {
    rotate_bytes: u64,
    rotate_age: Option<Duration>,
    total_bytes_max: u64,
    when_full: WhenFilesFull,
    fsync: Fsync,
    compression: Compression,
    max_wait: Duration,
}

impl FilesBuilder {
    /// Sets the prefix of file names; `traces` by default. All files with this prefix in the folder
    /// count towards the total size, and the oldest of them may be deleted.
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.to_owned();
        self
    }

    /// Sets the maximum size of a file in bytes, as stored; 100 MiB by default. A line that would
    /// exceed it goes to the next file. A compressed file may exceed it by the lines of one call.
    pub fn with_rotate_bytes(mut self, bytes: u64) -> Self {
        self.settings.rotate_bytes = bytes;
        self
    }

    /// Sets the age of a file at which the next write goes to a new one; unlimited by default.
    pub fn with_rotate_age(mut self, age: Duration) -> Self {
        self.settings.rotate_age = Some(age);
        self
    }

    /// Limits the total size of all files in bytes, as stored; 1 GiB by default. It is never
    /// exceeded.
    pub fn with_total_bytes_max(mut self, bytes: u64) -> Self {
        self.settings.total_bytes_max = bytes;
        self
    }

    /// Sets the reaction to that limit.
    pub fn with_when_full(mut self, when_full: WhenFilesFull) -> Self {
        self.settings.when_full = when_full;
        self
    }

    /// Sets when files are synced to the disk.
    pub fn with_fsync(mut self, fsync: Fsync) -> Self {
        self.settings.fsync = fsync;
        self
    }

    /// Sets the compression of files.
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.settings.compression = compression;
        self
    }

    /// Sets how long a call waits while the files cannot be written, such as on a full disk; 5
    /// minutes by default. Then its spans are lost as [`ErrorKind::File`].
    /// [`Files::write_lines`] does not wait.
    pub fn with_max_wait(mut self, time: Duration) -> Self {
        self.settings.max_wait = time;
        self
    }

    /// Sets the clock that determines the age of files.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Creates the folder if it does not exist, and lists its files. The first write creates the
    /// first file.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created or read.
    pub fn open(self) -> Result<Files, ExportError> {
        Files::open(self.folder, &self.prefix, self.settings, self.clock, Sets::default())
    }
}

/// Writes spans to files of a folder.
#[derive(Debug)]
pub struct Files {
    sets: Sets,
    index: usize,
    settings: Settings,
    clock: Arc<dyn Clock>,
    counter: Counter,
    waits: Waits,
}

#[derive(Debug)]
struct State {
    folder: Folder,
    /// The bytes of the sets of files beside this one, under the same limit.
    bytes_beside: u64,
    file: Option<OpenFile>,
    /// The time at which `file` was begun.
    opened: SystemTime,
    /// The number of spans in `file`.
    spans_written: u64,
    /// The number of spans in files that somebody removed or shortened while they were being
    /// written.
    spans_removed: u64,
    buffer: Vec<u8>,
    /// The failure to complete an earlier file, which the next flush or shutdown reports.
    unfinished: Option<ExportError>,
    ended: bool,
}

impl Files {
    /// Returns a builder for files in this folder.
    pub fn builder(folder: impl AsRef<Path>) -> FilesBuilder {
        FilesBuilder {
            folder: folder.as_ref().to_owned(),
            prefix: "traces".to_owned(),
            settings: Settings {
                rotate_bytes: 100 << 20,
                rotate_age: None,
                total_bytes_max: 1 << 30,
                when_full: WhenFilesFull::default(),
                fsync: Fsync::default(),
                compression: Compression::default(),
                max_wait: Duration::from_secs(300),
            },
            clock: Arc::new(SystemClock),
        }
    }

    fn open(
        folder: PathBuf,
        prefix: &str,
        settings: Settings,
        clock: Arc<dyn Clock>,
        sets: Sets,
    ) -> Result<Self, ExportError> {
        let extension = match settings.compression {
            Compression::None => "jsonl",
            #[cfg(feature = "gzip")]
            Compression::Gzip { .. } => "jsonl.gz",
            #[cfg(feature = "zstd")]
            Compression::Zstd { .. } => "jsonl.zst",
        };
        let index = sets.add(State {
            folder: Folder::open(folder, prefix, extension)?,
            bytes_beside: 0,
            file: None,
            opened: SystemTime::UNIX_EPOCH,
            spans_written: 0,
            spans_removed: 0,
            buffer: Vec::new(),
            unfinished: None,
            ended: false,
        });
        Ok(Files { sets, index, settings, clock, counter: Counter::default(), waits: Waits::default() })
    }

    /// Opens another set of files in the same folder, with the same settings and another prefix.
    /// The limit on the total size is for both together; to free space, a set deletes only its own
    /// files.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read.
    pub fn beside(&self, prefix: &str) -> Result<Self, ExportError> {
        let (settings, clock) = (self.settings.clone(), Arc::clone(&self.clock));
        Self::open(self.folder(), prefix, settings, clock, self.sets.clone())
    }

    /// Returns the total size of all files in bytes, as stored.
    pub fn total_bytes(&self) -> u64 {
        self.lock().total_bytes()
    }

    /// Returns the folder.
    pub fn folder(&self) -> PathBuf {
        self.lock().folder.path().to_owned()
    }

    /// Returns the number of spans in files that somebody removed or shortened while they were
    /// being written, as logrotate's `copytruncate` does.
    pub fn spans_removed(&self) -> u64 {
        let mut state = self.lock();
        state.forget_removed();
        state.spans_removed
    }

    /// Returns the number of files that were deleted to free space.
    pub fn files_deleted(&self) -> u64 {
        self.lock().folder.deleted()
    }

    /// Appends whole lines of OTLP JSON that contain `spans` spans (or log records): all of them or
    /// none.
    ///
    /// # Errors
    ///
    /// If the lines could not be written. The file then contains none of them.
    pub fn write_lines(&self, lines: &[u8], spans: u64) -> Result<(), ExportError> {
        let now = self.clock.now();
        let mut state = self.lock();
        let written = state.write(|state| state.append(lines, &self.settings, now));
        if written.is_ok() {
            state.spans_written += spans;
        }
        drop(state);
        match &written {
            Ok(()) => self.counter.deliver(&Delivery::new(spans, 0)),
            Err(error) => self.counter.lose(error.kind(), spans),
        }
        written
    }

    fn lock(&self) -> Own<'_> {
        self.sets.lock(self.index)
    }

    /// Writes spans once, and counts them if that succeeds.
    fn write(&self, spans: &[Span<'_>]) -> Result<(), ExportError> {
        let mut state = self.lock();
        let now = self.clock.now();
        state.write(|state| state.write_spans(spans, &self.settings, now))?;
        state.spans_written += spans.len() as u64;
        drop(state);
        self.counter.deliver(&Delivery::all(spans));
        Ok(())
    }

    fn lose(&self, outcome: &mut DeliveryReport, error: ExportError, spans: usize) {
        self.counter.lose(error.kind(), spans as u64);
        outcome.lose(error, spans as u64);
    }
}

impl Destination for Files {
    fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
        let mut outcome = DeliveryReport::default();
        let mut wait = self.waits.begin(self.settings.max_wait);
        for spans in spans.chunks(SPANS_PER_LINE_MAX) {
            let mut written = self.write(spans);
            while let Err(error) = &written
                && error.kind() == ErrorKind::File
            {
                self.counter.set_waiting(Some(error.clone()));
                if !wait.pause() {
                    break;
                }
                written = self.write(spans);
            }
            match written {
                Ok(()) => outcome.delivery.accepted += spans.len() as u64,
                Err(error) => self.lose(&mut outcome, error, spans.len()),
            }
        }
        self.counter.set_waiting(None);
        outcome
    }

    fn try_send(&self, spans: &[Span<'_>], _timeout: Duration) -> Attempt {
        let mut attempt = Attempt::default();
        for spans in spans.chunks(SPANS_PER_LINE_MAX) {
            match self.write(spans) {
                Ok(()) => attempt.outcome.delivery.accepted += spans.len() as u64,
                Err(error) if error.kind() == ErrorKind::File => {
                    self.counter.set_waiting(Some(error.clone()));
                    attempt.outcome.error.get_or_insert(error);
                    attempt.retry_in = PAUSE_MAX;
                    return attempt;
                }
                Err(error) => self.lose(&mut attempt.outcome, error, spans.len()),
            }
            attempt.settled += spans.len();
        }
        self.counter.set_waiting(None);
        attempt
    }

    fn counter(&self) -> Counter {
        self.counter.clone()
    }

    /// Syncs the last file to the disk. Also reports an earlier file that could not be completed.
    fn flush(&self) -> Result<(), ExportError> {
        let mut state = self.lock();
        let State { file, folder, .. } = &mut *state;
        let synced = match file {
            Some(file) if self.settings.fsync != Fsync::Never => file.sync().inspect(|()| folder.sync()),
            _ => Ok(()),
        };
        state.unfinished.take().map_or(Ok(()), Err).and(synced)
    }

    /// Completes the last file. The timeout is ignored, because a disk write cannot be interrupted.
    fn shut_down(&self, _timeout: Duration) -> Result<(), ExportError> {
        self.waits.end();
        let mut state = self.lock();
        state.ended = true;
        let closed = state.close(&self.settings);
        state.unfinished.take().map_or(Ok(()), Err).and(closed)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // On drop an error cannot be reported to anyone.
        let _ = self.lock().close(&self.settings);
    }
}

impl State {
    fn total_bytes(&self) -> u64 {
        self.folder.bytes() + self.file.as_ref().map_or(0, OpenFile::bytes)
    }

    /// Writes a line.
    fn write_spans(
        &mut self,
        spans: &[Span<'_>],
        settings: &Settings,
        now: SystemTime,
    ) -> Result<(), ExportError> {
        let mut line = std::mem::take(&mut self.buffer);
        // Writing to a vector cannot fail.
        let _: io::Result<()> = write_request(&mut line, spans);
        let written = self.append(&line, settings, now);
        line.clear();
        line.shrink_to(BUFFER_BYTES_KEPT);
        self.buffer = line;
        written
    }

    /// Writes whole lines.
    fn append(&mut self, lines: &[u8], settings: &Settings, now: SystemTime) -> Result<(), ExportError> {
        if self.ended {
            return Err(ExportError::new(ErrorKind::ShutDown, self.folder.target(), ""));
        }
        let bytes = match settings.compression {
            Compression::None => lines.len() as u64,
            #[cfg(feature = "gzip")]
            Compression::Gzip { .. } => open::gzip_bound(lines.len() as u64),
            #[cfg(feature = "zstd")]
            Compression::Zstd { .. } => open::zstd_bound(lines.len() as u64),
        };
        self.forget_removed();
        if self.is_over(bytes, settings, now) {
            self.give_way(settings);
        }
        self.delete_oldest_for(bytes, settings)?;
        let State { folder, file, opened, .. } = self;
        let file = match file {
            Some(file) => file,
            None => {
                *opened = now;
                let created = OpenFile::create(folder, settings.compression)?;
                if settings.fsync == Fsync::Each {
                    // Sync the folder too: if a crash lost the file's name, its lines would be lost
                    // with it.
                    folder.sync();
                }
                file.insert(created)
            }
        };
        let before = file.bytes();
        let written = file.write(lines).and_then(|()| match settings.fsync {
            Fsync::Each => file.sync_or_take_back(before),
            _ => Ok(()),
        });
        let is_at_limit = written.is_err() && file.is_at_limit();
        if written.is_err() && file.bytes() == 0 {
            // Leave no empty file behind.
            self.file = None;
            self.folder.discard();
        } else if written.is_err() && !file.is_sound() {
            // The content is valid up to its torn end.
            let broken = self.file.take().map_or(0, |file| file.bytes_on_disk());
            self.folder.completed(broken);
        }
        // The next file has room. One that has none for these lines alone is not tried twice.
        if is_at_limit && before > 0 {
            self.give_way(settings);
            return self.append(lines, settings, now);
        }
        written
    }

    /// Begins a new file if the current one has been renamed, removed or made shorter. Unless it
    /// was renamed, its content is gone, or in a copy at an unknown place.
    fn forget_removed(&mut self) {
        let Some(file) = &self.file else { return };
        if !self.folder.has_current() {
            let renamed = self.file.take_if(|file| file.is_whole());
            if let Some(file) = renamed {
                self.spans_written = 0;
                // Completes compressed content.
                self.unfinished = self.unfinished.take().or(file.close(false).1.err());
                return;
            }
            self.file = None;
        } else if let Some(left) = file.shrunk_to() {
            self.file = None;
            self.folder.completed(left);
        } else {
            return;
        }
        self.spans_removed += std::mem::take(&mut self.spans_written);
    }

    /// Forgets files that somebody has removed.
    fn look_again(&mut self) {
        self.forget_removed();
        self.folder.look_again();
    }

    /// True if a new file must be begun before this many bytes are written.
    fn is_over(&mut self, bytes: u64, settings: &Settings, now: SystemTime) -> bool {
        let Some(file) = &self.file else { return false };
        let too_large = match settings.compression {
            Compression::None => file.bytes() + bytes > settings.rotate_bytes,
            #[cfg(feature = "gzip")]
            Compression::Gzip { .. } => file.bytes() >= settings.rotate_bytes,
            #[cfg(feature = "zstd")]
            Compression::Zstd { .. } => file.bytes() >= settings.rotate_bytes,
        };
        // If the clock was set back, the age starts again at zero.
        let age = now.duration_since(self.opened).unwrap_or_else(|_| {
            self.opened = now;
            Duration::ZERO
        });
        file.bytes() > 0 && (too_large || settings.rotate_age.is_some_and(|limit| age >= limit))
    }

    /// Frees space for this many bytes within the limit on the total size.
    fn delete_oldest_for(&mut self, bytes: u64, settings: &Settings) -> Result<(), ExportError> {
        let full = |state: &Self| {
            let (used, max) = (state.total_bytes() + state.bytes_beside, settings.total_bytes_max);
            let detail = format!("{used} of {max} bytes are used; {bytes} more are needed");
            ExportError::new(ErrorKind::Full, state.folder.target(), detail)
        };
        let fits =
            |state: &Self| state.total_bytes() + state.bytes_beside + bytes <= settings.total_bytes_max;
        if fits(self) {
            return Ok(());
        }
        self.look_again();
        if fits(self) {
            return Ok(());
        }
        if settings.when_full == WhenFilesFull::Refuse || bytes > settings.total_bytes_max {
            return Err(full(self));
        }
        while !fits(self) {
            if !self.folder.delete_oldest()? {
                // Only the current file is left, or only files beside this set.
                if self.file.is_none() {
                    return Err(full(self));
                }
                self.give_way(settings);
            }
        }
        Ok(())
    }

    /// Completes the current file, so that the next write begins a new one. If this fails, the new
    /// lines are still accepted, and the next flush reports the failure.
    fn give_way(&mut self, settings: &Settings) {
        if let Err(error) = self.close(settings) {
            self.unfinished.get_or_insert(error);
        }
    }

    /// Completes the file that is being written.
    fn close(&mut self, settings: &Settings) -> Result<(), ExportError> {
        self.forget_removed();
        self.spans_written = 0;
        let Some(file) = self.file.take() else { return Ok(()) };
        let (bytes, closed) = file.close(settings.fsync != Fsync::Never);
        self.folder.completed(bytes);
        if settings.fsync != Fsync::Never {
            self.folder.sync();
        }
        closed
    }
}

#[cfg(test)]
mod tests;
