//! A destination behind a spool on disk. Spans that the destination does not accept at once are
//! kept on disk, so that they survive the process.
//!
//! ```text
//! send -- up, nothing waits --> destination
//!     \-- down, or durable --> spool -- drain thread --> destination
//!                                                   \--> dead letters, if permanently rejected
//! ```
//!
//! A rejected request goes to the dead letters from both ways. A destination that rejects some
//! spans of a request does not say which, so the whole request goes there, with their number in the
//! reason.
//!
//! Spans are delivered at least once: after a crash, or if a response is lost, a record is sent
//! again. All counts are in the destination's own [`Counter`], to which the spool adds its own
//! losses: `made = sent + rejected + lost + pending`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use astracer_formats::{Limits, otlp_json, otlp_proto};
use astracer_model::sink::Record as Place;
use astracer_model::text::escaped;
use astracer_model::{Format, Problem, Sink, Span};
use astracer_spool::{
    Counts as SpoolCounts, Damage, Disk, Folder, Record, Revived, Settings, Settlement, Spool,
};
use opentelemetry::Context;

use crate::clock::{Clock, SystemClock};
use astracer_model::destination::Counter;
use astracer_model::destination::{Attempt, DeliveryReport, Destination};
use astracer_model::destination::{ErrorKind, ExportError};

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

    /// Opens the spool, and starts a thread that drains it to `destination`.
    ///
    /// # Errors
    ///
    /// If another process uses the folder, or the folder cannot be read or written.
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
                // The destination's own spans are not part of the service's traces.
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
        self.shared.changed.notify_all();
        revived.map_err(|error| ExportError::file(&*self.shared.target, &error))
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
        let damage = state.spool.as_ref().map_or(&[][..], Spool::damage);
        undelivered(&self.shared.target, &state.counts(), damage)
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
        shared.changed.notify_all();
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
        // A request may be in progress for as long as its timeout. The folder is released without
        // waiting for it; the record is sent again by the next process.
        state.seen = state.counts();
        state.spool = None;
        self.shared.changed.notify_all();
    }
}

struct Shared {
    destination: Box<dyn Destination>,
    counter: Counter,
    state: Mutex<State>,
    /// Notified when the spool got a record, was drained, or is to end.
    changed: Condvar,
    mode: SpoolMode,
    order: DrainOrder,
    direct_timeout: Duration,
    max_refusal: Duration,
    clock: Arc<dyn Clock>,
    target: String,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("destination", &self.destination).finish_non_exhaustive()
    }
}

struct State {
    /// `None` if [`Spooled`] was dropped while a request is still in progress. This releases the
    /// folder.
    spool: Option<Spool>,
    /// The spool's counts when its losses were last added to the counter.
    seen: SpoolCounts,
    /// True if no more spans are accepted.
    is_closed: bool,
    /// True if the drain thread should end.
    is_ended: bool,
    /// The time until which the drain thread waits for the destination to recover.
    paused_until: Option<Instant>,
    /// The number of such waits since the start.
    pauses: u64,
    /// Consecutive failed reads.
    read_failures: u32,
    /// The time of the first of the doubtful failures that the drain thread got in a row.
    refused_since: Option<u64>,
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
    /// The destination cannot accept more for this long.
    Wait(Duration),
}

/// The wait after a failure of unknown duration.
const PAUSE: Duration = Duration::from_secs(1);
/// Used for pauses that end beyond the range of the clock.
const LONG: Duration = Duration::from_secs(365 * 86_400);
/// The number of failed reads after which a segment is skipped.
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
            refused_since: None,
        };
        Ok(Shared {
            counter: destination.counter(),
            destination,
            state: Mutex::new(state),
            changed: Condvar::new(),
            mode: builder.mode,
            order: builder.order,
            direct_timeout: builder.direct_timeout,
            max_refusal: builder.max_refusal,
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
        let (kind, now) = (kind_of(Format::OtlpProto), self.now_ns());
        if let Some((count, reason)) = rejection(&outcome, settled) {
            let mut body = Vec::new();
            otlp_proto::write_request(&mut body, spans.get(..settled).unwrap_or(spans));
            if let Some(spool) = &mut self.lock().spool {
                spool.append_dead(kind, now, count, &body, &reason);
            }
        }
        let rest = spans.get(settled..).unwrap_or_default();
        if rest.is_empty() {
            return outcome;
        }
        if outcome.lost.total() == 0 {
            // The error belongs to the spans that now go to the spool.
            outcome.error = None;
        }
        let mut body = Vec::new();
        otlp_proto::write_request(&mut body, rest);
        match self.append(kind, rest.len() as u64, &body) {
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
                // A record may have been appended since the step looked.
                Next::Idle => {
                    let idle = |state: &mut State| state.counts().pending == 0 && !state.is_ended;
                    drop(self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner));
                }
                Next::Wait(time) => {
                    // A pause that ends beyond the range of the clock is shortened to a year.
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

    /// Catches panics of the destination; the record stays in the spool.
    fn caught_step(&self) -> Next {
        catch_unwind(AssertUnwindSafe(|| self.step())).unwrap_or_else(|payload| {
            // The payload comes from the destination and may itself panic when it is dropped. The
            // payload of that second panic is leaked.
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
            // The next segment has its own attempts.
            state.read_failures = 0;
        }
        self.note_losses(&mut state);
        drop(state);
        let record = match peeked {
            Ok(Some(record)) => record,
            Ok(None) => return Next::Idle,
            Err(_) => return Next::Wait(PAUSE),
        };
        let spans = decode(record.kind, &record.payload);
        if spans.len() != record.spans as usize {
            let reason = format!("only {} of {} spans can be decoded", spans.len(), record.spans);
            self.counter.lose(ErrorKind::Damaged, u64::from(record.spans - record.settled));
            self.lock().settle(&record, Settlement::Rejected(&reason));
            return Next::Go;
        }
        let rest = &spans[record.settled as usize..];
        let attempt = self.destination.try_send(rest, Duration::MAX);
        let Attempt { outcome, settled, retry_in } = attempt;
        let settled = settled.min(rest.len());
        let left = (rest.len() - settled) as u32;
        let mut done = record.settled + settled as u32;
        let (mut rejected, mut reason) = rejection(&outcome, settled).unwrap_or_default();
        let mut state = self.lock();
        let doubtful = outcome.error.as_ref().filter(|error| left > 0 && settled == 0 && error.is_doubtful());
        state.refused_since = doubtful.map(|_| state.refused_since.unwrap_or(now));
        if let (Some(error), Some(since)) = (doubtful, state.refused_since)
            && u128::from(now.saturating_sub(since)) >= self.max_refusal.as_nanos()
        {
            self.counter.lose(error.kind(), u64::from(left));
            (done, rejected, reason) = (record.spans, left, error.to_string());
            // The next record gets its own time.
            state.refused_since = None;
        }
        let outcome = Settlement::PartlyRejected { settled: done, rejected, reason: &reason };
        state.settle(&record, outcome);
        self.note_losses(&mut state);
        match left > 0 {
            true => Next::Wait(if retry_in.is_zero() { PAUSE } else { retry_in }),
            false => Next::Go,
        }
    }
}

/// Returns how many of the settled spans of an attempt were rejected or lost, and the reason;
/// `None` if all were accepted. The error that ended the attempt did not lose any.
fn rejection(outcome: &DeliveryReport, settled: usize) -> Option<(u32, String)> {
    let DeliveryReport { delivery, error, .. } = outcome;
    let rejected = (settled as u64).saturating_sub(delivery.accepted);
    let lost = rejected.saturating_sub(delivery.rejected);
    let count = u32::try_from(rejected).ok().filter(|&count| count > 0)?;
    let reason = match error {
        Some(error) if lost > 0 => error.to_string(),
        _ if delivery.message.is_empty() => "the server gives no reason".to_owned(),
        _ => escaped(&delivery.message).into_owned(),
    };
    let all = count as usize == settled;
    Some((count, if all { reason } else { format!("{count} of {settled} spans, unknown which: {reason}") }))
}

/// Describes what a spool could not pass on.
fn undelivered(folder: &str, counts: &SpoolCounts, damage: &[Damage]) -> Option<String> {
    let lost = [
        (counts.expired, "too old"),
        (counts.damaged, "damaged"),
        (counts.dropped, "dropped to free space"),
        (counts.dead_letters_lost, "dead letters that could not be kept"),
    ];
    let lost = lost.iter().filter(|(spans, _)| *spans > 0);
    let mut parts: Vec<_> = lost.map(|(spans, why)| format!("{spans} spans lost ({why})")).collect();
    if counts.dead_letters > 0 {
        let how = "`astracer spool inspect` shows why, and `spool drain --dead` sends them again";
        parts.insert(0, format!("{} spans are dead letters ({how})", counts.dead_letters));
    }
    let places = damage.iter().filter(|damage| !damage.is_harmless()).count();
    if places > 0 {
        parts.push(format!("{places} damaged places in its files"));
    }
    (!parts.is_empty()).then(|| format!("the spool {}: {}", escaped(folder), parts.join(", ")))
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

fn decode(kind: u32, payload: &[u8]) -> Vec<Span<'static>> {
    let mut spans = Spans::default();
    let limits = Limits { record_bytes_max: payload.len(), ..Limits::default() };
    let (body, file) = (&mut &*payload, &"spool".into());
    match format_of(kind) {
        Format::OtlpJson => otlp_json::read(body, file, &limits, &mut spans),
        _ => otlp_proto::read(body, file, &limits, &mut spans),
    }
    spans.0
}

#[cfg(test)]
mod tests;
