//! Events of the SDK's own for the operator, with the target `astracer`: settings that were
//! ignored, exports that fail or wait, exports that succeed again, a server's texts, lost spans,
//! spans after the shutdown, and a key that does not tell roots apart.
//!
//! Those that repeat come at most once a minute, with counts, and only once a subscriber exists.
//! The events have no parent, so our layers record none of them. Whether somebody read an event is
//! known from its text: a layer that prints or forwards events formats it, and ours does not.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry::Context;
use tracing_core::dispatcher;
use tracing_core::subscriber::NoSubscriber;

use crate::steering::{KeyStats, Steering};
use astracer_spans::export::{Queue, SharedDestination};
use astracer_spans::panics::warn;
use astracer_spans::stats::{Counters, Losses, Stats};

const PAUSE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_secs(1);

pub(crate) struct Watched {
    /// Weak, so that the thread ends with the last layer and handle.
    pub(crate) steering: Weak<Steering>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) destination: Option<Arc<SharedDestination>>,
}

#[derive(Debug, Default)]
pub(crate) struct Reports {
    state: Mutex<State>,
    changed: Condvar,
    hint: OnceLock<String>,
    /// The service reads the variables of OpenTelemetry, so that one of them switches tracing off.
    reads_variables: bool,
    has_span_after_shutdown: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Warnings of the start that no subscriber has received.
    notices: Vec<String>,
    /// Lost spans that were reported, in an event that was read or in an error that was returned.
    reported: u64,
    /// Lost spans in the last event, read or not.
    lost: u64,
    /// Accepted spans when exports began to fail or wait; `None` while they succeed.
    failing_from: Option<u64>,
    /// The current outage was reported in an event that was read.
    is_outage_reported: bool,
    last_note: Option<String>,
    undelivered: Option<String>,
    /// When each kind was last due, or for hints looked for.
    at: [Option<Instant>; Kind::Notice as usize],
    /// A shutdown has begun: its error reports the spans that are lost from now on.
    is_ending: bool,
    is_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Failing,
    Lost,
    Well,
    Undelivered,
    Hint,
    /// A text of the server, which comes once.
    Text,
    /// Comes without a pause.
    Notice,
}

#[derive(Debug, PartialEq, Eq)]
struct Report(Kind, String);

/// The lost spans that a shutdown has to report. The cap on bytes refuses spans as configured,
/// and spans that end after the shutdown come too late for its error.
fn faults(lost: &Losses) -> u64 {
    lost.total().saturating_sub(lost.capped + lost.shut_down)
}

impl State {
    /// Whether an event of this kind may come now; then the next one has to wait.
    fn may(&mut self, kind: Kind, now: Instant) -> bool {
        let at = &mut self.at[kind as usize];
        let may = at.is_none_or(|at| now.saturating_duration_since(at) >= PAUSE);
        if may {
            *at = Some(now);
        }
        may
    }

    /// `switch` completes the report of an outage.
    fn due(&mut self, stats: &Stats, switch: &str, now: Instant) -> Vec<Report> {
        let mut due = Vec::new();
        let lost = stats.spans_lost.total().saturating_sub(stats.spans_lost.shut_down);
        if let Some(reason) = &stats.waiting
            && self.failing_from.is_none()
            && self.may(Kind::Failing, now)
        {
            self.failing_from = Some(stats.spans_exported);
            let text = format!("exports wait, with {}: {reason}{switch}", spans(stats.spans_waiting));
            due.push(Report(Kind::Failing, text));
        }
        let is_left_to_shutdown = self.is_ending && faults(&stats.spans_lost) > self.reported;
        if lost > self.lost && !is_left_to_shutdown && self.may(Kind::Lost, now) {
            (self.lost, self.failing_from) = (lost, Some(stats.spans_exported));
            let reason = stats.waiting.as_ref().or(stats.last_error.as_ref());
            let reason = reason.map(|error| format!("; {error}")).unwrap_or_default();
            due.push(Report(Kind::Lost, format!("spans since the start: {}{reason}", stats.spans_lost)));
        } else if stats.waiting.is_none()
            && lost == self.lost
            && self.failing_from.is_some_and(|from| stats.spans_exported > from)
            && self.may(Kind::Well, now)
        {
            (self.failing_from, self.is_outage_reported) = (None, false);
            let text = format!("exports succeed again; spans since the start: {}", stats.spans_lost);
            due.push(Report(Kind::Well, text));
        }
        due
    }

    fn note(&mut self, note: Option<String>) -> Option<Report> {
        if note.is_none() || note == self.last_note {
            return None;
        }
        self.last_note.clone_from(&note);
        note.map(|note| Report(Kind::Text, note))
    }

    fn undelivered(&mut self, text: Option<String>, now: Instant) -> Option<Report> {
        if text == self.undelivered || !self.may(Kind::Undelivered, now) {
            return None;
        }
        self.undelivered.clone_from(&text);
        text.map(|text| Report(Kind::Undelivered, text))
    }
}

impl Reports {
    pub(crate) fn new(reads_variables: bool) -> Self {
        Reports { reads_variables, ..Reports::default() }
    }

    /// The advice for a destination that may be missing on purpose.
    pub(crate) fn switch(&self, is_absent: bool) -> &'static str {
        if is_absent && self.reads_variables { "; OTEL_SDK_DISABLED=true switches tracing off" } else { "" }
    }

    pub(crate) fn is_outage_reported(&self) -> bool {
        self.lock().is_outage_reported
    }

    /// Reports the server's last text, unless that was done.
    pub(crate) fn note(&self, note: Option<String>) {
        let report = if is_heard() { self.lock().note(note) } else { None };
        report.iter().for_each(|report| _ = report.emit());
    }

    /// Warns once that spans begin after the shutdown. The caller is inside a call of its
    /// subscriber, so another thread warns. The caller waits a moment for it: the process may end
    /// at once.
    #[cold]
    pub(crate) fn warn_of_span_after_shutdown(&self) {
        if self.has_span_after_shutdown.swap(true, Ordering::Relaxed) {
            return;
        }
        let (done, is_done) = mpsc::channel::<()>();
        let warn = move || {
            let _done = done;
            let _suppressed = Context::enter_telemetry_suppressed_scope();
            Report(Kind::Notice, AFTER_SHUTDOWN.to_owned()).emit();
        };
        if thread::Builder::new().name("astracer-report".to_owned()).spawn(warn).is_ok() {
            let _ = is_done.recv_timeout(Duration::from_millis(100));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, notices: impl IntoIterator<Item = String>) {
        self.lock().notices.extend(notices);
    }

    /// Emits the warnings of the start if this thread has a subscriber. Returns whether none is
    /// left.
    pub(crate) fn announce(&self) -> bool {
        if !is_heard() {
            return self.lock().notices.is_empty();
        }
        // Without the lock: the subscriber may call the handle.
        let notices = std::mem::take(&mut self.lock().notices);
        for notice in notices {
            Report(Kind::Notice, notice).emit();
        }
        true
    }

    /// Reports until the shutdown, or until the last layer and handle are gone.
    pub(crate) fn run(&self, watched: &Watched) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        loop {
            let woken = self.changed.wait_timeout_while(self.lock(), TICK, |state| !state.is_over);
            if woken.unwrap_or_else(PoisonError::into_inner).0.is_over {
                return;
            }
            let Some(steering) = watched.steering.upgrade() else { return };
            let is_announced = self.announce();
            match &watched.destination {
                Some(destination) => self.look(watched, destination, &steering),
                None if is_announced => return,
                None => {}
            }
        }
    }

    fn look(&self, watched: &Watched, destination: &SharedDestination, steering: &Steering) {
        let mut stats = watched.counters.read();
        (stats.waiting, stats.last_error) = (destination.waiting(), watched.queue.last_error());
        let now = Instant::now();
        let hint = self.look_at_keys(&stats, now, || steering.keys());
        if !is_heard() {
            return;
        }
        let undelivered = destination.ask(|destination| destination.undelivered());
        let switch = self.switch(destination.is_absent());
        let note = watched.queue.last_note();
        let mut state = self.lock();
        let due = state.due(&stats, switch, now);
        let undelivered = state.undelivered(undelivered, now);
        let note = state.note(note);
        drop(state);
        for report in due.into_iter().chain(undelivered).chain(note).chain(hint) {
            let is_read = report.emit();
            let mut state = self.lock();
            match report.0 {
                Kind::Failing => state.is_outage_reported |= is_read,
                Kind::Lost if is_read => state.reported = state.reported.max(faults(&stats.spans_lost)),
                _ => {}
            }
        }
    }

    fn look_at_keys(
        &self,
        stats: &Stats,
        now: Instant,
        keys: impl FnOnce() -> Vec<KeyStats>,
    ) -> Option<Report> {
        let has_roots = stats.roots_kept + stats.roots_dropped >= HINT_ROOTS;
        if self.hint.get().is_some() || !has_roots || !self.lock().may(Kind::Hint, now) {
            return None;
        }
        let hint = hint(&keys())?;
        self.hint.set(hint.clone()).ok().map(|()| Report(Kind::Hint, hint))
    }

    pub(crate) fn hint(&self) -> Option<String> {
        self.hint.get().cloned()
    }

    /// From now on, lost spans that the shutdown's error has to report come with it, and not in an
    /// event as well.
    pub(crate) fn begin_end(&self) {
        self.lock().is_ending = true;
    }

    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Notes that an error that reports `spans` of the losses so far is returned to the service.
    pub(crate) fn note_reported(&self, spans: u64, lost: &Losses) {
        let mut state = self.lock();
        state.reported = state.reported.saturating_add(spans).min(faults(lost)).max(state.reported);
    }

    /// The lost spans that were not reported so far. From now on they are.
    pub(crate) fn take_unreported(&self, lost: &Losses) -> u64 {
        let mut state = self.lock();
        let lost = faults(lost);
        let unreported = lost.saturating_sub(state.reported);
        state.reported = state.reported.max(lost);
        unreported
    }
}

const AFTER_SHUTDOWN: &str = "a span began after the shutdown and is not exported; if the shutdown came too early, \
                              bind the guard to a name: `let _guard = astracer::init()?` (`let _ =` drops it at once)";

/// A number of spans, in words.
pub(crate) fn spans(number: u64) -> String {
    format!("{number} {}", if number == 1 { "span" } else { "spans" })
}

const HINT_ROOTS: u64 = 1_000;

const GENERIC: [&str; 5] = ["request", "HTTP request", "http_request", "http-request", "grpc_request"];

/// Says so if most roots have one name of a middleware as their key.
pub(crate) fn hint(keys: &[KeyStats]) -> Option<String> {
    let all: u64 = keys.iter().map(|key| key.seen).sum();
    let common = keys.iter().max_by_key(|key| key.seen).filter(|key| key.seen >= HINT_ROOTS)?;
    let name = common.key.as_deref().filter(|name| GENERIC.contains(name))?;
    if common.seen * 10 < all * 9 {
        return None;
    }
    let share = match all - common.seen {
        0 => format!("all {}", grouped(all)),
        _ => format!("{} of {}", grouped(common.seen), grouped(all)),
    };
    Some(format!(
        "{share} roots have the key `{name}`; name spans by route (field otel.name) or set a key (with_key)"
    ))
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn is_heard() -> bool {
    !dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>())
}

struct Text<'a> {
    text: &'a str,
    is_read: AtomicBool,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.is_read.store(true, Ordering::Relaxed);
        f.write_str(self.text)
    }
}

impl Report {
    fn emit(&self) -> bool {
        let Report(kind, text) = self;
        let text = Text { text, is_read: AtomicBool::new(false) };
        warn(|| match kind {
            Kind::Well | Kind::Hint | Kind::Text => {
                tracing::info!(target: "astracer", parent: None, "{text}")
            }
            _ => tracing::warn!(target: "astracer", parent: None, "{text}"),
        });
        text.is_read.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_a_spool_did_not_pass_on_is_reported_once_a_minute() {
        let (mut state, began) = (State::default(), Instant::now());
        let mut told = |text: Option<&str>, seconds| {
            state.undelivered(text.map(str::to_owned), began + Duration::from_secs(seconds)).is_some()
        };
        assert!(!told(None, 0) && told(Some("1"), 1) && !told(Some("1"), 90));
        assert!(told(Some("2"), 91) && !told(Some("3"), 92) && told(Some("3"), 151));
    }

    #[test]
    fn each_kind_comes_once_a_minute_and_ends_with_the_outage() {
        let (mut state, began) = (State::default(), Instant::now());
        let mut stats = Stats::default();
        let at = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(state.due(&stats, "", at(0)), []);
        (stats.waiting, stats.spans_waiting) = (Some("nothing listens".to_owned()), 7);
        let failing = || Report(Kind::Failing, "exports wait, with 7 spans: nothing listens".to_owned());
        assert_eq!(state.due(&stats, "", at(1)), [failing()]);
        assert_eq!(state.due(&stats, "", at(90)), []);
        stats.spans_lost.expired = 5;
        let lost = |text: &str| Report(Kind::Lost, format!("spans since the start: {text}"));
        assert_eq!(state.due(&stats, "", at(91)), [lost("5 lost (expired 5); nothing listens")]);
        stats.spans_lost.expired = 9;
        assert_eq!(state.due(&stats, "", at(92)), []);
        assert_eq!(state.due(&stats, "", at(151)), [lost("9 lost (expired 9); nothing listens")]);
        (stats.waiting, stats.spans_exported) = (None, 1);
        let text = "exports succeed again; spans since the start: 9 lost (expired 9)";
        let well = || Report(Kind::Well, text.to_owned());
        assert_eq!(state.due(&stats, "", at(152)), [well()]);
        assert_eq!(state.due(&stats, "", at(300)), []);
        // An outage within a minute after the last report is reported when the minute is over.
        stats.waiting = Some("nothing listens".to_owned());
        assert_eq!(state.due(&stats, "", at(301)), [failing()]);
        (stats.waiting, stats.spans_exported) = (None, 2);
        assert_eq!(state.due(&stats, "", at(302)), [well()]);
        stats.waiting = Some("nothing listens".to_owned());
        assert_eq!(state.due(&stats, "", at(303)), []);
        assert_eq!(state.due(&stats, "", at(361)), [failing()]);
        // The cap refuses as configured; the operator hears of it all the same.
        (stats.spans_lost.capped, stats.last_error) = (100, Some("used up".to_owned()));
        stats.waiting = None;
        assert_eq!(state.due(&stats, "", at(400)), [lost("109 lost (expired 9, capped 100); used up")]);
    }

    #[test]
    fn spans_lost_during_a_shutdown_are_left_to_its_error() {
        let (reports, now) = (Reports::default(), Instant::now());
        let mut stats = Stats::default();
        (stats.spans_lost.expired, stats.waiting) = (2, Some("nothing listens".to_owned()));
        reports.begin_end();
        let failing = Report(Kind::Failing, "exports wait, with 0 spans: nothing listens".to_owned());
        assert_eq!(reports.lock().due(&stats, "", now), [failing]);
        assert_eq!(reports.take_unreported(&stats.spans_lost), 2);
        // The error does not count spans that the cap refused.
        stats.spans_lost.capped = 1;
        let lost = "spans since the start: 3 lost (expired 2, capped 1); nothing listens";
        assert_eq!(reports.lock().due(&stats, "", now), [Report(Kind::Lost, lost.to_owned())]);
    }

    #[test]
    fn losses_are_unreported_until_an_error_has_them() {
        let reports = Reports::default();
        let of = |rejected, capped, shut_down| {
            let mut lost = Losses::default();
            (lost.rejected, lost.capped, lost.shut_down) = (rejected, capped, shut_down);
            lost
        };
        let lost = of(3, 7, 4);
        assert_eq!(reports.take_unreported(&lost), 3);
        assert_eq!(reports.take_unreported(&lost), 0);
        let more = of(6, 0, 0);
        reports.note_reported(2, &more);
        assert_eq!(reports.take_unreported(&more), 1);
        // An event and a flush's error may have reported the same spans.
        reports.note_reported(5, &more);
        assert_eq!(reports.take_unreported(&of(8, 0, 0)), 2);
    }

    #[test]
    fn one_generic_key_for_everything_is_worth_a_hint() {
        let key = |name: &str, seen| KeyStats { key: Some(name.to_owned()), seen, ..KeyStats::default() };
        let advice = "name spans by route (field otel.name) or set a key (with_key)";
        assert_eq!(
            hint(&[key("request", 4_000)]),
            Some(format!("all 4,000 roots have the key `request`; {advice}"))
        );
        assert_eq!(
            hint(&[key("job", 90), key("HTTP request", 1_234_567)]),
            Some(format!("1,234,567 of 1,234,657 roots have the key `HTTP request`; {advice}"))
        );
        // A job that has one kind of root names it itself; a service with routes has other keys.
        assert_eq!(hint(&[key("GET /", 4_000)]), None);
        assert_eq!(hint(&[key("request", 999)]), None);
        assert_eq!(hint(&[key("request", 1_000), key("GET /orders/*", 500)]), None);
        assert_eq!(hint(&[]), None);
    }
}
