//! The clocks of a recording's spans, estimated from calls between hosts.

use astracer_model::span::SpanKind;
use astracer_recording::Recording;
use astracer_recording::recording::SpanView;
use astracer_recording::stop::Pulse;

use crate::clocks::{self, Bounds, HostClock, Piece};

/// By how much the clock of each span runs ahead.
///
/// Spans of an unknown host share a clock with those of the same service only: the service is not a
/// machine, but nothing says that two services run on one.
#[derive(Clone, Debug, Default)]
pub struct Shifts {
    /// By clock, and behind these by service. Empty if no clock is off.
    ahead: Vec<i64>,
    /// The lines of clocks that drift or were set, in the order of `ahead`; empty without any.
    pieces: Vec<Vec<Piece>>,
    /// The number of clocks.
    clocks: usize,
}

impl Shifts {
    /// All clocks are right.
    pub fn none() -> Self {
        Self::default()
    }

    /// Nanoseconds by which the clock of a span runs ahead at a time that it shows.
    pub fn of(&self, span: SpanView<'_>, time: u64) -> i64 {
        if self.ahead.is_empty() {
            return 0;
        }
        let at = number(span, self.clocks);
        let piece = self.pieces.get(at).and_then(|pieces| Piece::holding(pieces, time));
        piece.map_or(self.ahead[at], |piece| piece.ahead_at(time))
    }

    /// The start of a span by the corrected clock.
    pub fn start(&self, span: SpanView<'_>) -> u64 {
        self.corrected(span, span.start().0)
    }

    /// The end of a span by the corrected clock; `None` if it has none.
    pub fn end(&self, span: SpanView<'_>) -> Option<u64> {
        span.end().map(|end| self.corrected(span, end.0))
    }

    /// A time that the clock of a span wrote.
    pub fn corrected(&self, span: SpanView<'_>, time: u64) -> u64 {
        time.saturating_add_signed(self.of(span, time).saturating_neg())
    }

    /// The shifts by the clock of each span; `None` for one that is right.
    pub(crate) fn set<'c, 'r>(
        recording: &'r Recording,
        clock: impl Fn(SpanView<'r>) -> Option<&'c HostClock>,
    ) -> Self {
        let clocks = recording.hosts().len();
        let len = clocks + recording.services().len();
        let mut shifts = Self { ahead: vec![0; len], pieces: Vec::new(), clocks };
        for span in recording.traces().flat_map(|trace| trace.spans()) {
            let Some(clock) = clock(span) else { continue };
            let at = number(span, clocks);
            shifts.ahead[at] = clock.ahead;
            if !clock.pieces.is_empty() {
                shifts.pieces.resize(len, Vec::new());
                shifts.pieces[at].clone_from(&clock.pieces);
            }
        }
        shifts.normal()
    }

    fn normal(mut self) -> Self {
        if self.ahead.iter().all(|&ahead| ahead == 0) && self.pieces.is_empty() {
            self.ahead.clear();
        }
        self
    }
}

fn number(span: SpanView<'_>, clocks: usize) -> usize {
    let clock = span.origin().clock.index();
    if clock == 0 { clocks + span.service_symbol().index() } else { clock }
}

/// One clock of a recording's spans, as reports name it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanClock {
    /// The host or machine; `unknown (service)` if it is unknown.
    pub name: String,
    /// The name of the clock that it is compared to.
    pub reference: String,
    /// The estimate.
    pub clock: HostClock,
}

/// The clocks of a recording's spans.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Estimate {
    /// The corrections that fit best, for what happened before what.
    pub shifts: Shifts,
    /// The corrections of clocks that cannot be right, for lengths: a correction within its error
    /// would move time between a call and its network for no reason.
    pub proven: Shifts,
    /// The clocks that are compared to another.
    pub clocks: Vec<SpanClock>,
}

/// Estimates the clocks of a recording's spans. The recording must have been read with
/// [`Keep::origins`](astracer_recording::recording::Keep::origins). `None` if the pulse stopped the
/// work.
pub fn estimate(recording: &Recording, pulse: &mut Pulse<'_>) -> Option<Estimate> {
    let clocks = recording.hosts().len();
    if clocks <= 2 && recording.services().len() < 2 {
        return Some(Estimate::default());
    }
    let mut bounds = Bounds::default();
    for trace in recording.traces() {
        for span in trace.spans() {
            call(span, |span| number(span, clocks) as u32, &mut bounds);
        }
        if pulse.stopped_after(trace.span_count()) {
            return None;
        }
    }
    let hosts = recording.hosts().names().map(str::to_owned);
    let names: Vec<String> = hosts.chain(recording.services().names().map(unknown)).collect();
    let found = clocks::estimate(&names, bounds, &[]);
    let ahead = found.iter().map(|clock| clock.ahead).collect();
    let is_off = |clock: &HostClock| clock.ahead.unsigned_abs() > clock.within.unwrap_or(0);
    let proven = found.iter().map(|clock| if is_off(clock) { clock.ahead } else { 0 }).collect();
    let named = |(at, clock): (usize, HostClock)| SpanClock {
        name: names[at].clone(),
        reference: names[clock.reference as usize].clone(),
        clock,
    };
    let compared = found.into_iter().enumerate().filter(|(_, clock)| clock.messages != (0, 0));
    Some(Estimate {
        shifts: Shifts { ahead, pieces: Vec::new(), clocks }.normal(),
        proven: Shifts { ahead: proven, pieces: Vec::new(), clocks }.normal(),
        clocks: compared.map(named).collect(),
    })
}

/// The name of the host of spans that state only their service.
pub(crate) fn unknown(service: &str) -> String {
    if service.is_empty() { "unknown".to_owned() } else { format!("unknown ({service})") }
}

/// True for a name that [`unknown`] made.
pub(crate) fn is_unknown(host: &str) -> bool {
    host == "unknown" || host.starts_with("unknown (")
}

/// The bounds that a span gives if its parent is on another host and waited for it.
pub(crate) fn call<'r>(span: SpanView<'r>, host: impl Fn(SpanView<'r>) -> u32, bounds: &mut Bounds) {
    let Some(parent) = span.parent().filter(|_| !span.follows()) else { return };
    let (one, other) = (host(parent), host(span));
    if one == other || parent.kind() == SpanKind::Producer || span.kind() == SpanKind::Consumer {
        return;
    }
    let (Some(to), Some(end)) = (parent.end(), span.end()) else { return };
    let is_stated = parent.kind() == SpanKind::Client && span.kind() == SpanKind::Server;
    let caller = (one, parent.start().0, to.0);
    bounds.call(caller, (other, span.start().0, end.0), is_stated);
}
