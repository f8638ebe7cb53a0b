//! A destination behind a spool on disk: spans that it cannot take now survive the process.
//!
//! ```text
//! send -- up, nothing waits --> destination
//!     \-- down, or durable --> spool -- drain thread --> destination
//!                                                   \--> dead letters, if they are refused for good
//! ```
//!
//! Spans are delivered at least once: a crash, or an answer that is lost, repeats a record. All
//! counts are in the destination's own [`Counter`], to which the spool adds what it loses itself:
//! `made = sent + rejected + lost + pending`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use astracer_formats::{Limits, otlp_proto};
use astracer_model::sink::Record as Place;
use astracer_model::{Format, Problem, Sink, Span};
use astracer_spool::{Counts as SpoolCounts, Disk, Folder, Record, Settings, Settlement, Spool};
use opentelemetry::Context;

use crate::clock::{Clock, SystemClock};
use crate::counts::Counter;
use crate::destination::{Attempt, DeliveryReport, Destination};
use crate::error::{ErrorKind, ExportError};

/// When spans go through the spool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpoolMode {
    /// When the destination does not take them at once: it is down, slow or refusing.
    #[default]
    Overflow,
    /// Always: spans are on disk when [`Destination::send`] returns.
    Durable,
}

/// Which spans go first while the spool is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DrainOrder {
    /// The oldest: new spans queue up behind them.
    #[default]
    OldFirst,
    /// The newest: new spans go straight to the destination while the spool drains beside them.
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
    settings: Settings,
    clock: Arc<dyn Clock>,
}

impl SpooledBuilder {
    /// Sets when spans go through the spool. On overflow by default.
    pub fn with_mode(mut self, mode: SpoolMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets which spans go first. The oldest by default.
    pub fn with_order(mut self, order: DrainOrder) -> Self {
        self.order = order;
        self
    }

    /// Limits the time of a request that goes straight to the destination; 1 s by default. A
    /// destination that is slower gets its spans from the spool, at its own pace, and the caller is
    /// not held up. It may then get a request twice.
    pub fn with_direct_timeout(mut self, timeout: Duration) -> Self {
        self.direct_timeout = timeout;
        self
    }

    /// Sets the limits of the spool.
    pub fn with_settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the clock by which records age.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the spool, and starts a thread that drains it to `destination`.
    ///
    /// # Errors
    ///
    /// If another process uses the folder, or it cannot be read or written.
    pub fn open(self, destination: impl Destination + 'static) -> Result<Spooled, ExportError> {
        let target = self.folder.display().to_string();
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock => {
                ExportError::new(ErrorKind::File, &*target, "another process uses this folder")
            }
            _ => ExportError::file(&*target, &error),
        };
        let disk = Folder::create(&self.folder).map_err(failed)?;
        let shared = Arc::new(Shared::open(disk, self, Box::new(destination)).map_err(failed)?);
        let run = {
            let shared = Arc::clone(&shared);
            move || {
                // A destination's own spans are no part of the service's traces.
                let _suppressed = Context::enter_telemetry_suppressed_scope();
                shared.run();
            }
        };
        std::thread::Builder::new().name("astracer-spool".to_owned()).spawn(run).map_err(failed)?;
        Ok(Spooled { shared })
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
            settings: Settings::default(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Returns the spans that wait in the spool.
    pub fn pending(&self) -> u64 {
        self.shared.lock().counts().pending
    }

    /// Returns the spool's own counts.
    pub fn spool_counts(&self) -> SpoolCounts {
        self.shared.lock().counts()
    }

    /// Appends an encoded request of `spans` spans to the spool. The formats are OTLP's, JSON (also
    /// in lines) and protobuf.
    ///
    /// # Errors
    ///
    /// If it is not in the spool: its spans are the caller's then, and not counted as lost.
    pub fn append(&self, format: Format, spans: u64, request: &[u8]) -> Result<(), ExportError> {
        self.shared.append(kind_of(format), spans, request)
    }

    /// Waits until the spool is empty; returns the spans that wait when `timeout` is over.
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

    /// Records are appended one after the other; only what passes the spool by waits for answers.
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

    fn diagnose(&self, error: ExportError) -> ExportError {
        self.shared.destination.diagnose(error)
    }

    /// Drains as much as the destination takes within `timeout`, and syncs the rest, which the next
    /// process sends. A pause that ends in time is waited for; a destination that takes nothing
    /// after it is not.
    fn shut_down(&self, timeout: Duration) -> Result<(), ExportError> {
        let begun = Instant::now();
        let shared = &self.shared;
        let mut state = shared.lock();
        state.is_closed = true;
        shared.changed.notify_all();
        // The number of the last pause, and what waited then: between two of them, a destination
        // that is there takes something.
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
        shared.changed.notify_all();
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
        // A request may be under way for as long as its timeout. The folder is not held for it: the
        // record is sent again.
        state.seen = state.counts();
        state.spool = None;
        self.shared.changed.notify_all();
    }
}

struct Shared {
    destination: Box<dyn Destination>,
    counter: Counter,
    state: Mutex<State>,
    /// The spool got a record, was drained, or is to end.
    changed: Condvar,
    mode: SpoolMode,
    order: DrainOrder,
    direct_timeout: Duration,
    clock: Arc<dyn Clock>,
    target: String,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("destination", &self.destination).finish_non_exhaustive()
    }
}

struct State {
    /// `None` after the drop of [`Spooled`], while a request is still under way: the folder is free
    /// then.
    spool: Option<Spool>,
    /// The spool's counts up to which its losses are in the counter.
    seen: SpoolCounts,
    /// No more spans are taken.
    is_closed: bool,
    /// The drain thread is to end.
    is_ended: bool,
    /// The drain thread waits until then for the destination to come back.
    paused_until: Option<Instant>,
    /// Such waits since the start.
    pauses: u64,
    /// Failed reads in a row.
    read_failures: u32,
}

impl State {
    fn counts(&self) -> SpoolCounts {
        self.spool.as_ref().map_or(self.seen, Spool::counts)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.spool.as_mut().map_or(Ok(()), Spool::sync)
    }

    fn settle(&mut self, record: &Record, outcome: Settlement<'_>) {
        if let Some(spool) = &mut self.spool {
            spool.settle(record, outcome);
        }
    }
}

/// The drain thread's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Go,
    /// There is nothing to send.
    Idle,
    /// The destination cannot take more for this long.
    Wait(Duration),
}

/// Wait after a failure that does not say how long it lasts.
const PAUSE: Duration = Duration::from_secs(1);
/// Stands for pauses that are longer than a clock can tell.
const LONG: Duration = Duration::from_secs(365 * 86_400);
/// Failed reads after which a segment is given up.
const READ_FAILURES_MAX: u32 = 3;

fn kind_of(format: Format) -> u32 {
    u32::from(format == Format::OtlpJson)
}

fn format_of(kind: u32) -> Format {
    if kind == 1 { Format::OtlpJson } else { Format::OtlpProto }
}

impl Shared {
    fn open(
        disk: impl Disk + 'static,
        builder: SpooledBuilder,
        destination: Box<dyn Destination>,
    ) -> std::io::Result<Self> {
        let (spool, _) = Spool::open(disk, builder.settings)?;
        let state = State {
            seen: spool.counts(),
            spool: Some(spool),
            is_closed: false,
            is_ended: false,
            paused_until: None,
            pauses: 0,
            read_failures: 0,
        };
        Ok(Shared {
            counter: destination.counter(),
            destination,
            state: Mutex::new(state),
            changed: Condvar::new(),
            mode: builder.mode,
            order: builder.order,
            direct_timeout: builder.direct_timeout,
            clock: builder.clock,
            target: builder.folder.display().to_string(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        let since = self.clock.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
        let (is_closed, pending) = {
            let state = self.lock();
            (state.is_closed, state.counts().pending)
        };
        if is_closed {
            self.counter.lose(ErrorKind::ShutDown, spans.len() as u64);
            let error = ExportError::new(ErrorKind::ShutDown, &*self.target, "");
            return DeliveryReport::lost(error, spans.len() as u64);
        }
        let is_direct =
            self.mode == SpoolMode::Overflow && (pending == 0 || self.order == DrainOrder::NewFirst);
        let attempt = match is_direct {
            true => self.destination.try_send(spans, self.direct_timeout),
            false => Attempt::default(),
        };
        let Attempt { mut outcome, settled, .. } = attempt;
        let rest = spans.get(settled..).unwrap_or_default();
        if rest.is_empty() {
            return outcome;
        }
        if outcome.lost.total() == 0 {
            // The error is that of the spans that now go to the spool.
            outcome.error = None;
        }
        let mut body = Vec::new();
        otlp_proto::write_request(&mut body, rest);
        match self.append(kind_of(Format::OtlpProto), rest.len() as u64, &body) {
            Ok(()) => outcome.delivery.accepted += rest.len() as u64,
            Err(error) => {
                self.counter.lose(error.kind(), rest.len() as u64);
                outcome.lose(error, rest.len() as u64);
            }
        }
        outcome
    }

    fn append(&self, kind: u32, spans: u64, request: &[u8]) -> Result<(), ExportError> {
        let now = self.now_ns();
        let mut state = self.lock();
        let count = u32::try_from(spans).unwrap_or(u32::MAX);
        let Some(spool) = &mut state.spool else {
            return Err(ExportError::new(ErrorKind::ShutDown, &*self.target, ""));
        };
        let appended = spool.append(kind, now, count, request);
        self.note_losses(&mut state);
        drop(state);
        match appended {
            Ok(()) => {
                self.changed.notify_all();
                Ok(())
            }
            Err(error) => {
                let kind = if error.is_full() { ErrorKind::Full } else { ErrorKind::File };
                Err(ExportError::new(kind, &*self.target, error.to_string()))
            }
        }
    }

    /// Adds the spool's own losses to the counter.
    fn note_losses(&self, state: &mut State) {
        let (now, seen) = (state.counts(), state.seen);
        self.counter.lose(ErrorKind::Expired, now.expired - seen.expired);
        self.counter.lose(ErrorKind::Damaged, now.damaged - seen.damaged);
        self.counter.lose(ErrorKind::Full, now.dropped - seen.dropped);
        state.seen = now;
    }

    fn run(&self) {
        loop {
            let next = self.caught_step();
            let mut state = self.lock();
            if state.is_ended {
                return;
            }
            self.changed.notify_all();
            match next {
                Next::Go => {}
                // A record may have come since the step looked.
                Next::Idle => {
                    let idle = |state: &mut State| state.counts().pending == 0 && !state.is_ended;
                    drop(self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner));
                }
                Next::Wait(time) => {
                    // A pause without an end that a clock can tell is one of a year.
                    let now = Instant::now();
                    let end = now.checked_add(time).unwrap_or(now + LONG);
                    (state.paused_until, state.pauses) = (Some(end), state.pauses + 1);
                    let waits = |state: &mut State| !state.is_ended;
                    let waited = self.changed.wait_timeout_while(state, time, waits);
                    waited.unwrap_or_else(PoisonError::into_inner).0.paused_until = None;
                }
            }
        }
    }

    /// A step in which the destination may panic: the record stays in the spool.
    fn caught_step(&self) -> Next {
        catch_unwind(AssertUnwindSafe(|| self.step())).unwrap_or_else(|payload| {
            // The payload is the destination's too, and may panic when it is dropped; what it
            // panics with then is not dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
            Next::Wait(PAUSE)
        })
    }

    /// Sends the oldest record.
    fn step(&self) -> Next {
        let now = self.now_ns();
        let mut state = self.lock();
        if state.is_ended {
            return Next::Idle;
        }
        let Some(spool) = &mut state.spool else { return Next::Idle };
        let peeked = spool.peek(now);
        state.read_failures = if peeked.is_ok() { 0 } else { state.read_failures + 1 };
        if state.read_failures >= READ_FAILURES_MAX
            && let Some(spool) = &mut state.spool
        {
            spool.skip_segment();
            // The next one has attempts of its own.
            state.read_failures = 0;
        }
        self.note_losses(&mut state);
        drop(state);
        let record = match peeked {
            Ok(Some(record)) => record,
            Ok(None) => return Next::Idle,
            Err(_) => return Next::Wait(PAUSE),
        };
        let spans = decode(&record);
        if spans.len() != record.spans as usize {
            let reason = format!("{} of {} spans can be decoded", spans.len(), record.spans);
            self.counter.lose(ErrorKind::Damaged, u64::from(record.spans - record.settled));
            self.lock().settle(&record, Settlement::Rejected(&reason));
            return Next::Go;
        }
        let rest = &spans[record.settled as usize..];
        let attempt = self.destination.try_send(rest, Duration::MAX);
        let Attempt { outcome: DeliveryReport { delivery, error, .. }, settled, retry_in } = attempt;
        let settled = settled.min(rest.len()) as u32;
        let (done, reason) = (record.settled + settled, error.map(|error| error.to_string()));
        let outcome = match &reason {
            Some(reason) => {
                // Those that the destination did not answer for: an error that ends the attempt has
                // none.
                let answered = u32::try_from(delivery.accepted + delivery.rejected).unwrap_or(u32::MAX);
                let rejected = settled.saturating_sub(answered);
                Settlement::PartlyRejected { settled: done, rejected, reason }
            }
            None => Settlement::Partly(done),
        };
        let mut state = self.lock();
        state.settle(&record, outcome);
        self.note_losses(&mut state);
        match done < record.spans {
            true => Next::Wait(if retry_in.is_zero() { PAUSE } else { retry_in }),
            false => Next::Go,
        }
    }
}

/// Spans of a record.
#[derive(Default)]
struct Spans(Vec<Span<'static>>);

impl Sink for Spans {
    fn span(&mut self, span: Span<'_>, _place: Place<'_>) {
        self.0.push(span.into_owned());
    }

    fn problem(&mut self, _problem: Problem) {}

    fn skipped(&mut self, _file: &Arc<str>, _reason: &str) {}
}

fn decode(record: &Record) -> Vec<Span<'static>> {
    let mut spans = Spans::default();
    let limits = Limits { record_bytes_max: record.payload.len(), ..Limits::default() };
    astracer_formats::read(
        format_of(record.kind),
        &mut &*record.payload,
        &"spool".into(),
        &limits,
        &mut spans,
    );
    spans.0
}

#[cfg(test)]
mod tests;
