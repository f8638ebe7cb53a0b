//! A destination behind a spool on disk. Spans that the destination does not accept at once are
//! kept on disk, so that they survive the process.
//!
//! ```text
//! send -- up, nothing waits --> destination
//!     \-- down, or durable --> spool -- drain threads --> destination
//!                                                    \--> dead letters, if permanently rejected
//! ```
//!
//! Waiting records are joined into requests of up to 1 MiB, and several requests are in flight at a
//! time. So a distant server gets spans as fast as they come.
//!
//! A rejected request goes to the dead letters from both ways. A destination that rejects some
//! spans of a request does not say which, so the whole request goes there, with their number in the
//! reason.
//!
//! Spans are delivered at least once: after a crash, or if a response is lost, a record is sent
//! again. All counts are in the destination's own [`Counter`], to which the spool adds its own
//! losses: `made = sent + rejected + lost + pending`.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use astracer_model::destination::{Counter, DeliveryReport, Destination, ErrorKind, ExportError};
use astracer_model::text::escaped;
use astracer_model::{Format, Span};
use astracer_spool::{Counts as SpoolCounts, Damage, Folder, Ledger, Revived, Settings, Spool};
use opentelemetry::Context;

mod draining;
mod payload;
mod shared;

use self::payload::{decode, kind_of};
use self::shared::Shared;
use crate::clock::{Clock, SystemClock};

/// When spans go through the spool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpoolMode {
    /// When the destination does not accept them immediately because it is down, slow or rejecting.
    #[default]
    Overflow,
    /// Always. Spans are on disk when [`Destination::send`] returns.
    Durable,
}

/// Which spans are sent first while the spool is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DrainOrder {
    /// The oldest. New spans queue up behind them.
    #[default]
    OldFirst,
    /// The newest. New spans go directly to the destination while the spool is drained
    /// concurrently.
    NewFirst,
}

/// Settings of a [`Spooled`] destination, from [`Spooled::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SpooledBuilder {
    folder: PathBuf,
    mode: SpoolMode,
    order: DrainOrder,
    direct_timeout: Duration,
    max_refusal: Duration,
    settings: Settings,
    clock: Arc<dyn Clock>,
}

impl SpooledBuilder {
    /// Sets when spans go through the spool; [`SpoolMode::Overflow`] by default.
    pub fn with_mode(mut self, mode: SpoolMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets which spans are sent first; the oldest by default.
    pub fn with_order(mut self, order: DrainOrder) -> Self {
        self.order = order;
        self
    }

    /// Limits the time of a request that goes directly to the destination; 1 s by default. If the
    /// destination is slower, the spans go to the spool and the caller is not blocked any longer.
    /// The destination may then receive the request twice.
    pub fn with_direct_timeout(mut self, timeout: Duration) -> Self {
        self.direct_timeout = timeout;
        self
    }

    /// Sets how long a record is sent again to a destination that answers with a failure that may
    /// be permanent ([`ExportError::is_doubtful`]), such as 401 or 500; 5 minutes by default. Then
    /// it goes to the dead letters, so that one record that crashes the server does not block
    /// others.
    pub fn with_max_refusal(mut self, time: Duration) -> Self {
        self.max_refusal = time;
        self
    }

    /// Sets the limits of the spool.
    pub fn with_settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the clock that determines the age of records.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the spool, and starts a thread for each request that `destination` may have in flight
    /// ([`Destination::in_flight`]), which drain it.
    ///
    /// # Errors
    ///
    /// If another process uses the folder, or the folder cannot be read or written.
    pub fn open(self, destination: impl Destination + 'static) -> Result<Spooled, ExportError> {
        let target = self.folder.display().to_string();
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock => {
                // The usual advice is about folders that cannot be written, and full disks.
                ExportError::new(ErrorKind::File, &*target, "another process uses this folder")
                    .with_remedy("end that process, or choose another folder")
            }
            // The error names what is in the place of a file.
            std::io::ErrorKind::InvalidInput => {
                ExportError::file(&*target, &error).with_remedy("move it away")
            }
            _ => ExportError::file(&*target, &error),
        };
        let disk = Folder::create(&self.folder).map_err(failed)?;
        let shared = Arc::new(Shared::open(disk, self, Box::new(destination)).map_err(failed)?);
        // From here on, a failure ends the threads that have begun.
        let spooled = Spooled { shared: Arc::clone(&shared) };
        for _ in 0..shared.destination.in_flight().max(1) {
            let shared = Arc::clone(&shared);
            let run = move || {
                // The destination's own spans are not part of the service's traces.
                let _suppressed = Context::enter_telemetry_suppressed_scope();
                shared.run();
            };
            std::thread::Builder::new().name("astracer-spool".to_owned()).spawn(run).map_err(failed)?;
        }
        Ok(spooled)
    }
}

/// A destination behind a spool on disk.
#[derive(Debug)]
pub struct Spooled {
    shared: Arc<Shared>,
}

impl Spooled {
    /// Returns the default settings for a spool in this folder, which no other process may use.
    pub fn builder(folder: impl Into<PathBuf>) -> SpooledBuilder {
        SpooledBuilder {
            folder: folder.into(),
            mode: SpoolMode::default(),
            order: DrainOrder::default(),
            direct_timeout: Duration::from_secs(1),
            max_refusal: Duration::from_secs(300),
            settings: Settings::default(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Returns the number of spans that wait in the spool.
    pub fn pending(&self) -> u64 {
        self.shared.lock().counts().pending
    }

    /// Returns the damage that was found in the spool so far, and the files in its folder that are
    /// left alone.
    pub fn damage(&self) -> Vec<Damage> {
        self.shared.lock().spool.as_ref().map_or(Vec::new(), |spool| spool.damage().to_vec())
    }

    /// Queues dead letters again: all, or those whose reason contains a text. A letter of which the
    /// destination had accepted a part is sent as a whole, because the server did not say which
    /// spans it rejected. Letters that cannot be decoded stay.
    ///
    /// # Errors
    ///
    /// If the spool cannot be read or written. Some letters may then be queued and still be dead
    /// letters.
    pub fn revive(&self, reason: Option<&str>) -> Result<Revived, ExportError> {
        let mut state = self.shared.lock();
        let Some(spool) = &mut state.spool else { return Ok(Revived::default()) };
        let revived = spool.revive(|letter| {
            let is_meant = reason.is_none_or(|reason| letter.reason.contains(reason));
            let spans = if is_meant { decode(letter.kind, letter.payload).len() } else { 0 };
            u32::try_from(spans).ok().filter(|&spans| spans > 0)
        });
        drop(state);
        self.shared.notify();
        revived.map_err(|error| ExportError::file(&*self.shared.target, &error))
    }

    /// Returns every span that the spool acknowledged by its end, over all processes that used the
    /// folder.
    pub fn ledger(&self) -> Ledger {
        self.shared.lock().spool.as_ref().map_or(Ledger::default(), Spool::ledger)
    }

    /// Returns the age of the oldest waiting record; `None` if none has been read and waits.
    pub fn oldest(&self) -> Option<Duration> {
        let oldest = self.shared.lock().spool.as_ref().and_then(Spool::oldest_ns)?;
        Some(Duration::from_nanos(self.shared.now_ns().saturating_sub(oldest)))
    }

    /// Returns the spool's own counts.
    pub fn spool_counts(&self) -> SpoolCounts {
        self.shared.lock().counts()
    }

    /// Appends an encoded request of `spans` spans to the spool. The formats are OTLP in JSON (also
    /// in lines) and in protobuf.
    ///
    /// # Errors
    ///
    /// If the request could not be appended. Its spans are left to the caller and not counted as
    /// lost.
    pub fn append(&self, format: Format, spans: u64, request: &[u8]) -> Result<(), ExportError> {
        self.shared.append(kind_of(format), spans, request)
    }

    /// Waits until the spool is empty, at most for `timeout`. Returns the number of spans that
    /// still wait.
    pub fn drain(&self, timeout: Duration) -> u64 {
        let begun = Instant::now();
        let mut state = self.shared.lock();
        loop {
            let pending = state.counts().pending;
            let left = timeout.saturating_sub(begun.elapsed());
            if pending == 0 || left.is_zero() {
                return pending;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Destination for Spooled {
    fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
        self.shared.deliver(spans)
    }

    fn counter(&self) -> Counter {
        self.shared.counter.clone()
    }

    /// Records are appended one after the other. Only requests that bypass the spool wait for
    /// responses.
    fn in_flight(&self) -> usize {
        match self.shared.mode {
            SpoolMode::Durable => 1,
            SpoolMode::Overflow => self.shared.destination.in_flight(),
        }
    }

    /// Syncs the spool. [`Spooled::drain`] waits for the destination.
    fn flush(&self) -> Result<(), ExportError> {
        let synced = self.shared.lock().sync();
        synced.map_err(|error| ExportError::file(&*self.shared.target, &error))?;
        self.shared.destination.flush()
    }

    fn warnings(&self) -> Vec<String> {
        self.shared.destination.warnings()
    }

    fn undelivered(&self) -> Option<String> {
        let state = self.shared.lock();
        let spool = state.spool.as_ref()?;
        undelivered(&self.shared.target, &spool.ledger(), spool.damage())
    }

    fn diagnose(&self, error: ExportError) -> ExportError {
        self.shared.destination.diagnose(error)
    }

    /// Drains as much as the destination accepts within `timeout`, and syncs the rest, which the
    /// next process sends. If the drain thread is in a pause that ends within the timeout, this
    /// waits for its end, but gives up if the destination then accepts nothing.
    fn shut_down(&self, timeout: Duration) -> Result<(), ExportError> {
        let begun = Instant::now();
        let shared = &self.shared;
        let mut state = shared.lock();
        state.is_closed = true;
        shared.notify();
        // The number of the last pause, and the number of spans that waited then. If the
        // destination is up, it accepts something between two pauses.
        let mut last_pause = None;
        loop {
            let (pending, left) = (state.counts().pending, timeout.saturating_sub(begun.elapsed()));
            let is_fruitless =
                last_pause.is_some_and(|(number, waited)| number != state.pauses && waited == pending);
            let rest = state.paused_until.map(|end| end.saturating_duration_since(Instant::now()));
            if pending == 0 || left.is_zero() || is_fruitless || rest.is_some_and(|rest| rest > left) {
                break;
            }
            if state.paused_until.is_some() {
                last_pause = Some((state.pauses, pending));
            }
            state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_ended = true;
        shared.notify();
        let synced = state.sync();
        drop(state);
        let ended = shared.destination.shut_down(timeout.saturating_sub(begun.elapsed()));
        synced.map_err(|error| ExportError::file(&*shared.target, &error)).and(ended)
    }
}

impl Drop for Spooled {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        (state.is_closed, state.is_ended) = (true, true);
        // A request may be in progress for as long as its timeout. The folder is released without
        // waiting for it; the record is sent again by the next process.
        state.seen = state.counts();
        state.spool = None;
        self.shared.notify();
    }
}

/// Describes the spans that a spool could not pass on, in this process or an earlier one.
fn undelivered(folder: &str, ledger: &Ledger, damage: &[Damage]) -> Option<String> {
    let lost = [
        (ledger.expired, "too old"),
        (ledger.damaged, "damaged"),
        (ledger.thrown_away, "thrown away to free space"),
    ];
    let lost = lost.iter().filter(|(spans, _)| *spans > 0);
    let mut parts: Vec<_> = lost.map(|(spans, why)| format!("{spans} spans lost ({why})")).collect();
    if ledger.dead > 0 {
        let how = "`astracer spool inspect` shows why, and `spool drain --dead` sends them again";
        parts.insert(0, format!("{} spans are dead letters ({how})", ledger.dead));
    }
    let places = damage.iter().filter(|damage| !damage.is_harmless()).count();
    if places > 0 {
        parts.push(format!("{places} damaged places in its files"));
    }
    (!parts.is_empty()).then(|| format!("the spool {}: {}", escaped(folder), parts.join(", ")))
}

#[cfg(test)]
mod tests;
