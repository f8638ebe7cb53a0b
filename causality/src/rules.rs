//! The happened-before order of a trace's points.
//!
//! X-Trace's reports state it by their edges. Otherwise it follows from spans:
//!
//! 1. A start is before the span's own events, in order, and before its end.
//! 2. A span's points up to a child's start are before that start, and the span's own start always
//!    is, whatever the clocks say. This holds for each of several parents, and for linked spans.
//! 3. The end of a child that ended within its parent is before what the parent does from then on.
//! 4. If a child in another process outlives its parent, at least its start is before the parent's
//!    end: a call cannot return before its server began.
//!
//! Rules 3 and 4 do not hold for links, for a consumer under a producer, or for a child that its
//! parent did not wait for (OpenTracing's FOLLOWS_FROM). At equal times, children that began
//! earlier end first; then come the span's own events, children without length in the order of the
//! input, and starts.

use std::cmp::Ordering;
use std::collections::HashMap;

use rapidhash::fast::RandomState;

use astracer_model::Format;
use astracer_model::ids::SpanId;
use astracer_model::span::SpanKind;
use astracer_recording::recording::{SpanView, TraceView};
use astracer_recording::stop::Pulse;

use crate::edge::EdgeKind;
use crate::flow::{Flow, Graph};
use crate::shifts::Shifts;
use crate::spot::{At, Spot};
use crate::timeline::{Arrival, Chain, Happening};

/// Marks "no node".
const NONE: u32 = u32::MAX;

/// The way in which causality is derived from spans.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// True if work in another process is before what its caller does after the return.
    /// Otherwise rule 4 does not hold, and rule 3 only within a process.
    pub remote_returns: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { remote_returns: true }
    }
}

/// The points of a span that are visited. Those of other spans only carry the order.
pub trait Asked {
    /// Whether any point of the span may be visited.
    fn span(&self, span: SpanView<'_>) -> bool;

    /// Whether this point of such a span is visited.
    fn point(&self, span: SpanView<'_>, spot: Spot) -> bool;
}

/// Asks for every point.
#[derive(Clone, Copy, Debug)]
pub struct All;

impl Asked for All {
    fn span(&self, _: SpanView<'_>) -> bool {
        true
    }

    fn point(&self, span: SpanView<'_>, spot: Spot) -> bool {
        spot != Spot::End || span.end().is_some()
    }
}

/// The graph of one trace's points after another. Keeps its memory between traces.
#[derive(Debug, Default)]
pub struct TraceGraph<'r> {
    options: Options,
    /// The spans that are visited or that connect these.
    spans: Vec<SpanView<'r>>,
    numbers: HashMap<u32, u32, RandomState>,
    /// The trace's spans by id, if some have several parents or links.
    by_id: Vec<(SpanId, SpanView<'r>)>,
    /// Parent, child, and whether the parent does not wait for the child.
    calls: Vec<(u32, u32, bool)>,
    happenings: Vec<(u64, Happening)>,
    begun_at: Vec<u32>,
    ends: Vec<u32>,
    arrivals: Vec<Arrival>,
    graph: Graph<At>,
    outside: u64,
}

impl<'r> TraceGraph<'r> {
    /// A graph by these rules.
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// The spans that [`At::span`] refers to, until the next trace.
    pub fn spans(&self) -> &[SpanView<'r>] {
        &self.spans
    }

    /// The number of calls to another host, in all traces that were read, whose span lies outside
    /// its caller's by corrected clocks, although the caller waited for it.
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// The nodes of the trace that was read: their corrected times, the places of their spans in
    /// [`Self::spans`], and their points; a junction has none.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (u64, u32, Option<Spot>)> + '_ {
        self.graph.nodes().map(|(time, span, point)| (time, span, point.map(|At { spot, .. }| spot)))
    }

    /// The edges between these nodes, with their reasons.
    pub fn edges(&self) -> &[(u32, u32, EdgeKind)] {
        self.graph.edges()
    }

    /// Parent and child of each call in the trace that was read, as places in [`Self::spans`].
    pub(crate) fn calls(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.calls.iter().map(|&(parent, child, _)| (parent, child))
    }

    /// Derives the order of a trace's points that are asked for. Returns false if there are none,
    /// or if the work was stopped.
    pub fn read(
        &mut self,
        trace: TraceView<'r>,
        shifts: &Shifts,
        asked: &impl Asked,
        pulse: &mut Pulse<'_>,
    ) -> bool {
        self.spans.clear();
        self.numbers.clear();
        self.by_id.clear();
        self.calls.clear();
        self.arrivals.clear();
        self.graph.clear();
        if pulse.stopped_after(trace.span_count()) || !trace.spans().any(|span| asked.span(span)) {
            return false;
        }
        if trace.root().format() == Some(Format::XTraceJson) {
            self.read_reports(trace, shifts, asked);
        } else {
            self.read_spans(trace, shifts, asked);
        }
        !pulse.stopped_after(self.spans.len())
    }

    /// Visits the points of the trace that was read. Returns the number of cycles in its order,
    /// each of which is opened at its earliest point; `None` if the work was stopped.
    pub fn walk(&mut self, flow: &mut impl Flow<At>, pulse: &mut Pulse<'_>) -> Option<u64> {
        self.graph.walk(flow, pulse)
    }

    fn read_reports(&mut self, trace: TraceView<'r>, shifts: &Shifts, asked: &impl Asked) {
        self.spans.extend(trace.spans());
        self.find_ids(trace);
        for (number, &span) in (0u32..).zip(&self.spans) {
            self.graph.node(number, shifts.start(span));
            if asked.span(span) && asked.point(span, Spot::Report) {
                self.graph.set_point(number, At { span: number, spot: Spot::Report });
            }
            self.numbers.insert(span.index(), number);
        }
        for (number, &span) in (0u32..).zip(&self.spans) {
            let (mut has_edge, mut is_lost) = (false, false);
            for id in span.parent_ids() {
                let parent = self.by_id(id).and_then(|parent| self.numbers.get(&parent.index()).copied());
                match parent.filter(|&parent| parent != number) {
                    Some(parent) => self.graph.edge(parent, number, EdgeKind::Report),
                    None => is_lost = true,
                }
                has_edge |= parent.is_some();
            }
            if is_lost && !has_edge {
                self.graph.set_lost(number);
            }
        }
    }

    fn find_ids(&mut self, trace: TraceView<'r>) {
        self.by_id.extend(trace.spans().map(|span| (span.id(), span)));
        self.by_id.sort_by_key(|&(id, span)| (id, span.start(), span.end(), span.file(), span.index()));
    }

    fn by_id(&self, id: SpanId) -> Option<SpanView<'r>> {
        let at = self.by_id.partition_point(|&(own, _)| own < id);
        self.by_id.get(at).filter(|&&(own, _)| own == id).map(|&(_, span)| span)
    }

    fn read_spans(&mut self, trace: TraceView<'r>, shifts: &Shifts, asked: &impl Asked) {
        // A span with several parents connects these, even if no point of its own is visited.
        let connects = |span: SpanView<'_>| span.parent_ids().nth(1).is_some() || !span.links().is_empty();
        if trace.spans().any(connects) {
            self.find_ids(trace);
        }
        for span in trace.spans().filter(|&span| asked.span(span) || connects(span)) {
            self.number(span);
        }
        // Numbers grow while the parents of numbered spans get theirs.
        let mut at = 0;
        while let Some(&span) = self.spans.get(at) {
            self.find_parents(at as u32, span);
            at += 1;
        }
        for (number, &span) in (0u32..).zip(&self.spans) {
            self.graph.node(number, shifts.start(span));
            if span.parent().is_none() && span.parent_ids().next().is_some() {
                self.graph.set_lost(number);
            }
        }
        self.calls.sort_unstable();
        self.calls.dedup_by_key(|&mut (parent, child, _)| (parent, child));
        self.begun_at.clear();
        self.begun_at.resize(self.spans.len(), NONE);
        self.ends.clear();
        let mut first = 0;
        for number in 0..self.spans.len() as u32 {
            let calls = self.calls[first..].partition_point(|&(parent, ..)| parent <= number);
            self.happen(number, first..first + calls, shifts, asked);
            self.chain(number, shifts, asked);
            first += calls;
        }
        for arrival in &self.arrivals {
            let from = if arrival.by_start { arrival.child } else { self.ends[arrival.child as usize] };
            let kind = if arrival.by_start { EdgeKind::Began } else { EdgeKind::Return };
            self.graph.edge(from, arrival.to, kind);
        }
    }

    fn number(&mut self, span: SpanView<'r>) -> u32 {
        *self.numbers.entry(span.index()).or_insert_with(|| {
            self.spans.push(span);
            self.spans.len() as u32 - 1
        })
    }

    fn find_parents(&mut self, number: u32, span: SpanView<'r>) {
        let parent = span.parent();
        if let Some(parent) = parent {
            let is_waited_for = !span.follows();
            self.call(parent, number, is_waited_for);
        }
        if self.by_id.is_empty() {
            return;
        }
        // A single parent that is missing here was cut off a cycle.
        let others = span.parent_ids().nth(1).is_some().then(|| span.parent_ids()).into_iter().flatten();
        let known = parent.map(SpanView::id);
        for id in others.filter(|&id| Some(id) != known) {
            if let Some(parent) = self.by_id(id) {
                self.call(parent, number, true);
            }
        }
        for &id in span.links() {
            if let Some(linked) = self.by_id(id) {
                self.call(linked, number, false);
            }
        }
    }

    fn call(&mut self, parent: SpanView<'r>, child: u32, is_waited_for: bool) {
        let parent = self.number(parent);
        if parent != child {
            // Sorted, the stronger relation comes first.
            self.calls.push((parent, child, !is_waited_for));
        }
    }

    /// Collects the happenings in a span by time.
    fn happen(&mut self, number: u32, calls: std::ops::Range<usize>, shifts: &Shifts, asked: &impl Asked) {
        self.happenings.clear();
        let span = self.spans[number as usize];
        let start = shifts.start(span);
        let end = shifts.end(span).map_or(u64::MAX, |end| end.max(start));
        for &(_, child, is_free) in &self.calls[calls] {
            let view = self.spans[child as usize];
            let own_start = shifts.start(view);
            let begin = own_start.max(start);
            let last = shifts.end(view).map(|end| end.max(own_start));
            let is_message = view.kind() == SpanKind::Consumer && span.kind() == SpanKind::Producer;
            let is_remote = is_remote(span, view);
            let is_bound = !is_free && !is_message && (self.options.remote_returns || !is_remote);
            let within = last.filter(|&last| is_bound && last <= end);
            let has_length = view.end() != Some(view.start());
            let begins = match within {
                // Within its parent, and not after its begin as the parent's clock shows it.
                Some(last) if has_length && last > begin => {
                    self.happenings.push((last, Happening::Return(child)));
                    Happening::Call(child)
                }
                Some(_) => Happening::Through(child, true),
                None if has_length => Happening::Call(child),
                None => Happening::Through(child, false),
            };
            let outlives = is_bound && is_remote && within.is_none() && span.end().is_some();
            // It cannot have run before its caller began.
            let is_early = is_bound && is_remote && own_start < start;
            self.outside += u64::from(outlives || is_early);
            if outlives {
                self.happenings.push((end, Happening::Begun(child)));
            }
            // The call cannot return before its server began, whatever the clocks say.
            self.happenings.push((if outlives { begin.min(end) } else { begin }, begins));
        }
        if asked.span(span) {
            for (event, view) in (0u32..).zip(span.events()) {
                if asked.point(span, Spot::Event(event)) {
                    let time = shifts.corrected(span, view.time.0);
                    self.happenings.push((time.clamp(start, end), Happening::Event(event)));
                }
            }
        }
        self.happenings.push((end, Happening::End));
        let spans = &self.spans;
        self.happenings.sort_unstable_by(|&(time, one), &(other_time, other)| {
            let by_input = || match (one, other) {
                (Happening::Through(one, _), Happening::Through(other, _)) => {
                    let place = |child: u32| {
                        let view = spans[child as usize];
                        (view.file(), view.index())
                    };
                    place(one).cmp(&place(other))
                }
                _ => Ordering::Equal,
            };
            (time, one.class()).cmp(&(other_time, other.class())).then_with(by_input).then(one.cmp(&other))
        });
    }

    /// Writes the happenings in a span into the graph.
    fn chain(&mut self, number: u32, shifts: &Shifts, asked: &impl Asked) {
        let span = self.spans[number as usize];
        let is_asked = asked.span(span);
        let mut chain = Chain::new(&mut self.graph, &mut self.arrivals, &mut self.begun_at, number);
        if is_asked && asked.point(span, Spot::Start) {
            chain.point(Spot::Start, shifts.start(span));
        }
        let mut end = number;
        for &(time, happening) in &self.happenings {
            match happening {
                Happening::Return(child) => chain.arrive(child, false, time),
                Happening::Event(event) => chain.point(Spot::Event(event), time),
                Happening::Through(child, returns) => {
                    chain.call(child);
                    if returns {
                        chain.arrive(child, false, time);
                    }
                }
                Happening::Call(child) => chain.call(child),
                Happening::Begun(child) => chain.arrive(child, true, time),
                Happening::End => {
                    if is_asked && span.end().is_some() && asked.point(span, Spot::End) {
                        chain.point(Spot::End, time);
                    }
                    end = chain.last();
                }
            }
        }
        drop(chain);
        self.ends.push(end);
    }
}

/// Whether two spans ran in different processes, as far as hosts and services show it.
pub fn is_remote(one: SpanView<'_>, other: SpanView<'_>) -> bool {
    let of = |span: SpanView<'_>| (span.origin().host, span.service_symbol());
    of(one) != of(other)
}
