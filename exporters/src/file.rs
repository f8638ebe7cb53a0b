//! Files of OTLP JSON lines, as the collector's file exporter writes them: what `astracer tune`
//! reads.
//!
//! A folder holds `traces-00000001.jsonl` and so on. The last one is being written; it gives way to
//! the next when it is large or old enough. A new process begins a new file, so what another left
//! behind is never written to.
//!
//! # What a crash leaves
//!
//! Each call writes its lines with one write to the operating system, before it returns: what was
//! sent survives the end of this process. What survives the end of the machine is a matter of
//! [`Fsync`]. The line that was being written may be torn; the model's reader reports it and keeps
//! what stands before. A write that fails is taken back by cutting the file to where it began, so
//! that no torn line stands between whole ones; if even that fails, a new file is begun.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use astracer_formats::otlp_json::write_request;
use astracer_model::Span;

use crate::clock::{Clock, SystemClock};
use crate::counts::{Counter, Delivery};
use crate::destination::{DeliveryReport, Destination};
use crate::error::{ErrorKind, ExportError};

mod folder;
mod open;

use folder::Folder;
use open::OpenFile;

/// A line has no more spans than this, so that no reader has to hold a giant.
const SPANS_PER_LINE_MAX: usize = 1 << 12;

/// Memory for a line that is kept for the next one.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// Compression of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// With gzip, named `.jsonl.gz`. Each call's lines are a member of their own, so that the file
    /// is whole after each call.
    #[cfg(feature = "gzip")]
    Gzip {
        /// From 1 (fast) to 9 (small); 6 is gzip's own choice.
        level: u32,
    },
    /// With zstd, named `.jsonl.zst`. Each call's lines are a block that can be read without those
    /// behind it.
    #[cfg(feature = "zstd")]
    Zstd {
        /// From 1 (fast) to 22 (small); 3 is zstd's own choice.
        level: i32,
    },
}

/// When files are written through to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fsync {
    /// Never: that is left to the operating system.
    Never,
    /// When a file is complete, and on [`flush`](Destination::flush) and shutdown: a crash of the
    /// machine may cost what was written to the last file.
    #[default]
    Closing,
    /// On each call: a crash of the machine costs nothing of what a call returned for. This is
    /// slow.
    Each,
}

/// Reaction to the limit on the size of all files together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFilesFull {
    /// Delete the oldest files.
    #[default]
    DeleteOldest,
    /// Keep what is there, and lose what comes as [`ErrorKind::Full`].
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
}

impl FilesBuilder {
    /// Sets the prefix of names; `traces` by default. Files of the folder with this prefix count
    /// towards the total, and are deleted when they are the oldest.
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.to_owned();
        self
    }

    /// Sets the bytes of a file, as stored; 100 MiB by default. A line that would make it larger
    /// goes to the next file. A compressed file may be larger by the lines of one call.
    pub fn with_rotate_bytes(mut self, bytes: u64) -> Self {
        self.settings.rotate_bytes = bytes;
        self
    }

    /// Sets the age of a file at which the next write goes to a new one; unlimited by default.
    pub fn with_rotate_age(mut self, age: Duration) -> Self {
        self.settings.rotate_age = Some(age);
        self
    }

    /// Limits the bytes of all files together, as stored; 1 GiB by default. They are never
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

    /// Sets when files are written through to the disk.
    pub fn with_fsync(mut self, fsync: Fsync) -> Self {
        self.settings.fsync = fsync;
        self
    }

    /// Sets the compression of files.
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.settings.compression = compression;
        self
    }

    /// Sets the clock by which files age.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Creates the folder if it is not there, and reads its content. The first write creates the
    /// first file.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created or read.
    pub fn open(self) -> Result<Files, ExportError> {
        let extension = match self.settings.compression {
            Compression::None => "jsonl",
            #[cfg(feature = "gzip")]
            Compression::Gzip { .. } => "jsonl.gz",
            #[cfg(feature = "zstd")]
            Compression::Zstd { .. } => "jsonl.zst",
        };
        let folder = Folder::open(self.folder, &self.prefix, extension)?;
        let state = State {
            folder,
            file: None,
            opened: SystemTime::UNIX_EPOCH,
            spans_written: 0,
            spans_removed: 0,
            buffer: Vec::new(),
            unfinished: None,
            ended: false,
        };
        Ok(Files {
            state: Mutex::new(state),
            settings: self.settings,
            clock: self.clock,
            counter: Counter::default(),
        })
    }
}

/// Writes spans to files of a folder.
#[derive(Debug)]
pub struct Files {
    state: Mutex<State>,
    settings: Settings,
    clock: Arc<dyn Clock>,
    counter: Counter,
}

#[derive(Debug)]
struct State {
    folder: Folder,
    file: Option<OpenFile>,
    /// When `file` was begun.
    opened: SystemTime,
    /// Spans in `file`.
    spans_written: u64,
    /// Spans in files that somebody removed while they were being written.
    spans_removed: u64,
    buffer: Vec<u8>,
    /// The failure to complete a file that gave way, of which nobody has been told.
    unfinished: Option<ExportError>,
    ended: bool,
}

impl Files {
    /// Files in this folder.
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
            },
            clock: Arc::new(SystemClock),
        }
    }

    /// The bytes of all files, as stored.
    pub fn total_bytes(&self) -> u64 {
        self.lock().total_bytes()
    }

    /// Returns the folder.
    pub fn folder(&self) -> PathBuf {
        self.lock().folder.path().to_owned()
    }

    /// Returns spans in files that somebody removed while they were being written.
    pub fn spans_removed(&self) -> u64 {
        let mut state = self.lock();
        state.forget_removed();
        state.spans_removed
    }

    /// Files that were deleted to make room.
    pub fn files_deleted(&self) -> u64 {
        self.lock().folder.deleted()
    }

    /// Appends whole lines of OTLP JSON that hold `spans` spans, all or none.
    ///
    /// # Errors
    ///
    /// If the lines are not in a file: nothing of them is then.
    pub fn write_lines(&self, lines: &[u8], spans: u64) -> Result<(), ExportError> {
        let now = self.clock.now();
        let mut state = self.lock();
        let written = state.append(lines, &self.settings, now);
        if written.is_ok() {
            state.spans_written += spans;
        }
        drop(state);
        match &written {
            Ok(()) => self.counter.deliver(&Delivery { accepted: spans, ..Delivery::default() }),
            Err(error) => self.counter.lose(error.kind(), spans),
        }
        written
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Destination for Files {
    fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
        let mut state = self.lock();
        let now = self.clock.now();
        let mut outcome = DeliveryReport::default();
        for spans in spans.chunks(SPANS_PER_LINE_MAX) {
            match state.write(spans, &self.settings, now) {
                Ok(()) => {
                    state.spans_written += spans.len() as u64;
                    self.counter.deliver(&Delivery::all(spans));
                    outcome.delivery.accepted += spans.len() as u64;
                }
                Err(error) => {
                    self.counter.lose(error.kind(), spans.len() as u64);
                    outcome.lose(error, spans.len() as u64);
                }
            }
        }
        outcome
    }

    fn counter(&self) -> Counter {
        self.counter.clone()
    }

    /// Writes the last file through to the disk. Reports, too, that one before it could not be
    /// completed.
    fn flush(&self) -> Result<(), ExportError> {
        let mut state = self.lock();
        let State { file, folder, .. } = &mut *state;
        let synced = match file {
            Some(file) if self.settings.fsync != Fsync::Never => file.sync().inspect(|()| folder.sync()),
            _ => Ok(()),
        };
        state.unfinished.take().map_or(Ok(()), Err).and(synced)
    }

    /// Completes the last file. The timeout is not looked at: a disk can't be hurried.
    fn shut_down(&self, _timeout: Duration) -> Result<(), ExportError> {
        let mut state = self.lock();
        state.ended = true;
        let closed = state.close(&self.settings);
        state.unfinished.take().map_or(Ok(()), Err).and(closed)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = self.lock().close(&self.settings);
    }
}

impl State {
    fn total_bytes(&self) -> u64 {
        self.folder.bytes() + self.file.as_ref().map_or(0, OpenFile::bytes)
    }

    /// Writes a line.
    fn write(&mut self, spans: &[Span<'_>], settings: &Settings, now: SystemTime) -> Result<(), ExportError> {
        let mut line = std::mem::take(&mut self.buffer);
        // A vector can always be written to.
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
                    // Lines under a name that is not on the disk would be lost with the machine.
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
        if written.is_err() && file.bytes() == 0 {
            // No empty file stays behind.
            self.file = None;
            self.folder.discard();
        } else if written.is_err() && !file.is_sound() {
            // Its content is good up to a torn end.
            let broken = self.file.take().map_or(0, |file| file.bytes_on_disk());
            self.folder.completed(broken);
        }
        written
    }

    /// Begins a new file if somebody has removed the one being written: its name is gone, and with
    /// it what it holds.
    fn forget_removed(&mut self) {
        if self.file.as_ref().is_some_and(|_| !self.folder.has_current()) {
            self.file = None;
            self.spans_removed += std::mem::take(&mut self.spans_written);
        }
    }

    /// True if the file is to give way before this many bytes.
    fn is_over(&mut self, bytes: u64, settings: &Settings, now: SystemTime) -> bool {
        let Some(file) = &self.file else { return false };
        let too_large = match settings.compression {
            Compression::None => file.bytes() + bytes > settings.rotate_bytes,
            #[cfg(feature = "gzip")]
            Compression::Gzip { .. } => file.bytes() >= settings.rotate_bytes,
            #[cfg(feature = "zstd")]
            Compression::Zstd { .. } => file.bytes() >= settings.rotate_bytes,
        };
        // A clock that was set back starts the age anew.
        let age = now.duration_since(self.opened).unwrap_or_else(|_| {
            self.opened = now;
            Duration::ZERO
        });
        file.bytes() > 0 && (too_large || settings.rotate_age.is_some_and(|limit| age >= limit))
    }

    /// Sees that there is room for this many bytes below the total.
    fn delete_oldest_for(&mut self, bytes: u64, settings: &Settings) -> Result<(), ExportError> {
        let full = |state: &Self| {
            let detail = format!(
                "{} of at most {} bytes are used, and {bytes} more are needed",
                state.total_bytes(),
                settings.total_bytes_max
            );
            ExportError::new(ErrorKind::Full, state.folder.target(), detail)
        };
        let fits = |state: &Self| state.total_bytes() + bytes <= settings.total_bytes_max;
        if fits(self) {
            return Ok(());
        }
        self.folder.look_again();
        if fits(self) {
            return Ok(());
        }
        if settings.when_full == WhenFilesFull::Refuse || bytes > settings.total_bytes_max {
            return Err(full(self));
        }
        while !fits(self) {
            if !self.folder.delete_oldest()? {
                // Only the file being written is left.
                self.give_way(settings);
            }
        }
        Ok(())
    }

    /// Completes the file before the next. That this fails is no reason to refuse the lines that
    /// come: the next flush tells.
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
mod tests {
    use super::open::tests::{Small, Unsynced};
    use super::*;

    /// Behind a torn line that could not be taken back, nothing may be written.
    #[test]
    fn a_file_that_broke_gives_way_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::builder(folder.path()).open().unwrap();
        let spans = [Span { span_id: astracer_model::SpanId(1), ..Span::default() }];
        let mut line = Vec::new();
        write_request(&mut line, &spans).unwrap();
        // Room for one line, and 10 bytes of the next.
        let disk = Small(Arc::default(), line.len() + 10, true);
        {
            let mut state = files.lock();
            state.folder.create().unwrap();
            let broken = OpenFile::on(Box::new(disk.clone()), "broken".into(), Compression::None);
            state.file = Some(broken.unwrap());
        }
        files.send(&spans).unwrap();
        assert_eq!(files.send(&spans).unwrap_err().kind(), ErrorKind::File);
        // The torn bytes are there, and count.
        let torn = line.len() as u64 + 10;
        assert_eq!((disk.0.lock().unwrap().len() as u64, files.total_bytes()), (torn, torn));
        files.send(&spans).unwrap();
        let second = std::fs::read(folder.path().join("traces-00000002.jsonl")).unwrap();
        assert_eq!((&second, files.total_bytes()), (&line, torn + line.len() as u64));
        let counts = files.counter.read();
        assert_eq!((counts.sent, counts.lost.of(ErrorKind::File)), (2, 1));
    }

    /// Lines that were refused are not in the file, or a sender that tries again has them twice.
    #[test]
    fn lines_that_could_not_be_synced_are_taken_back() {
        let kinds = [Compression::None, Compression::Gzip { level: 6 }, Compression::Zstd { level: 3 }];
        for (compression, ending) in kinds.into_iter().zip(["jsonl", "jsonl.gz", "jsonl.zst"]) {
            let folder = tempfile::tempdir().unwrap();
            let builder = Files::builder(folder.path()).with_fsync(Fsync::Each);
            let files = builder.with_compression(compression).open().unwrap();
            let disk = Unsynced::default();
            {
                let mut state = files.lock();
                state.folder.create().unwrap();
                let open = OpenFile::on(Box::new(disk.clone()), "unsynced".into(), compression);
                state.file = Some(open.unwrap());
            }
            files.write_lines(b"first\n", 1).unwrap();
            let before = disk.held();
            disk.fail();
            assert_eq!(files.write_lines(b"second\n", 1).unwrap_err().kind(), ErrorKind::File);
            assert_eq!((disk.held(), files.total_bytes()), (before.clone(), before.len() as u64));
            // Nothing more is trusted to that file.
            files.write_lines(b"third\n", 1).unwrap();
            assert_eq!(disk.held(), before);
            assert!(folder.path().join(format!("traces-00000002.{ending}")).exists());
        }
    }

    /// The next file takes them, and the error is not about them: whoever asks for durability is
    /// told.
    #[test]
    fn lines_are_not_refused_for_the_file_before_them() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::builder(folder.path()).with_rotate_bytes(10).open().unwrap();
        let disk = Unsynced::default();
        {
            let mut state = files.lock();
            state.folder.create().unwrap();
            let open = OpenFile::on(Box::new(disk.clone()), "unsynced".into(), Compression::None);
            state.file = Some(open.unwrap());
        }
        files.write_lines(b"first\n", 1).unwrap();
        disk.fail();
        files.write_lines(b"second\n", 1).unwrap();
        let second = std::fs::read(folder.path().join("traces-00000002.jsonl")).unwrap();
        assert_eq!((&*second, files.counter.read().sent), (&b"second\n"[..], 2));
        assert_eq!(files.flush().map_err(|error| error.kind()), Err(ErrorKind::File));
        assert_eq!(files.flush(), Ok(()));
        assert_eq!(files.shut_down(Duration::ZERO), Ok(()));
    }

    #[test]
    fn a_file_that_could_take_nothing_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::builder(folder.path()).open().unwrap();
        {
            let mut state = files.lock();
            state.folder.create().unwrap();
            let full =
                OpenFile::on(Box::new(Small(Arc::default(), 0, false)), "full".into(), Compression::None);
            state.file = Some(full.unwrap());
        }
        let spans = [Span { span_id: astracer_model::SpanId(1), ..Span::default() }];
        assert_eq!(files.send(&spans).unwrap_err().kind(), ErrorKind::File);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_somebody_removed_takes_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::builder(folder.path()).open().unwrap();
        let spans = [Span { span_id: astracer_model::SpanId(1), ..Span::default() }];
        files.send(&spans).unwrap();
        std::fs::remove_file(folder.path().join("traces-00000001.jsonl")).unwrap();
        files.send(&spans).unwrap();
        assert!(folder.path().join("traces-00000002.jsonl").exists());
        assert_eq!(files.spans_removed(), 1);
        // Without the folder, nothing is taken.
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert_eq!(files.send(&spans).unwrap_err().kind(), ErrorKind::File);
        assert_eq!(files.spans_removed(), 2);
    }
}
