//! All points of a recording with the edges between them, and their times on one clock.

use astracer_recording::Recording;
use astracer_recording::recording::SpanView;
use astracer_recording::stop::Pulse;

use crate::clocks::{self, Bounds, ClockEvidence, HostClock, Piece};
use crate::constraints;
use crate::edge::{Edge, EdgeKind, Found, Unmatched};
use crate::flow::{Flow, Graph};
use crate::intake::Collected;
use crate::pieces;
use crate::points::{NONE, Point, Points};
use crate::rules::{All, Options, TraceGraph};
use crate::shifts::{self, Shifts, SpanClock};
use crate::spot::Spot;
use crate::stretches::Stretches;
use astracer_model::event::EventKind;

/// The treatment of clocks, and of work in other processes.
#[derive(Clone, Debug, Default)]
pub struct Clocking {
    /// True to take all clocks as right.
    pub raw_times: bool,
    /// By how many nanoseconds the clocks of hosts run ahead, as far as the user states it.
    pub offsets: Vec<(String, i64)>,
    /// The rules of spans.
    pub rules: Options,
}

/// A node without a point of its own; see [`Causes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Junction {
    /// The corrected time, in nanoseconds since 1970.
    pub time: u64,
    /// The start of its span.
    pub start: u32,
}

/// Points, edges and clocks. Nodes up to the number of [`Points::rows`] are these points; the
/// further nodes are junctions.
///
/// A *junction* is a moment of a span without a point of its own: some children have returned, and
/// others begin. Edges lead over it, so that n children before m others take n + m edges instead of
/// n x m. Nobody sees junctions: no list, count, length of a chain or file includes them.
#[derive(Debug)]
#[non_exhaustive]
pub struct Causes {
    /// The events, with their threads, processes, hosts and files.
    pub events: Points,
    /// The constraints: each event `before` happened before `after`, for the reason `kind`. Ordered
    /// by kind, then by the later event.
    pub edges: Vec<Edge>,
    /// Events that lack their counterpart, with the reason.
    pub unmatched: Vec<Unmatched>,
    /// The junctions.
    pub junctions: Vec<Junction>,
    /// The clock of each host; empty if all clocks are taken as right.
    pub host_clocks: Vec<HostClock>,
    /// The recorded time of each point, less what its host's clock runs ahead.
    pub aligned_times: Vec<u64>,
    /// The corrections of spans' times.
    pub shifts: Shifts,
    /// Calls to another host whose span lies outside its caller's, although the caller waited.
    pub outside: u64,
}

impl Causes {
    /// Finds the edges between collected points, and estimates clocks from them. `None` if the
    /// pulse stopped the work.
    pub fn find(
        collected: Collected,
        clocking: &Clocking,
        pulse: &mut Pulse<'_>,
    ) -> Option<(Self, Recording)> {
        let Collected { recording, events, ties, stretches, .. } = collected;
        let Found { mut edges, unmatched } = constraints::find(&events, ties.edges);
        let host_clocks = match clocking.raw_times {
            true => Vec::new(),
            false => {
                let mut clocks = estimate(&recording, &events, &edges, &stretches, &clocking.offsets);
                unsteady(&events, &edges, &mut clocks);
                clocks
            }
        };
        let clock = |row: &Point| host_clocks.get(events.process(row).host as usize);
        let aligned_times = aligned(&events, &host_clocks);
        let shifts = Shifts::set(&recording, |span| clock(&events.rows[start(&events, span) as usize]));
        let spans = Spans { events: &events, of_events: of_events(&events) };
        let mut junctions = Vec::new();
        let outside = spans.edges(&recording, &shifts, clocking.rules, &mut edges, &mut junctions, pulse)?;
        let edges = sorted(edges);
        let causes =
            Self { events, edges, unmatched, junctions, host_clocks, aligned_times, shifts, outside };
        Some((causes, recording))
    }
}

impl Causes {
    /// The clocks that were compared with another.
    pub fn clocks(&self) -> Vec<SpanClock> {
        let names = self.events.hosts();
        let compared = names.iter().zip(&self.host_clocks).filter(|(_, clock)| clock.messages != (0, 0));
        let named = |(name, clock): (&String, &HostClock)| SpanClock {
            name: name.clone(),
            reference: names[clock.reference as usize].clone(),
            clock: clock.clone(),
        };
        compared.map(named).collect()
    }

    /// Visits all points along the causes, each with the bag of all that happened before it.
    /// Returns the number of cycles, each of which is opened at its earliest point; `None` if the
    /// pulse stopped the work.
    pub fn walk(&self, flow: &mut impl Flow<u32>, pulse: &mut Pulse<'_>) -> Option<u64> {
        let mut graph = Graph::default();
        for (at, &time) in (0u32..).zip(&self.aligned_times) {
            graph.node(at, time);
            graph.set_point(at, at);
        }
        for junction in &self.junctions {
            graph.node(junction.start, junction.time);
        }
        let causes = self.edges.iter().filter(|edge| edge.kind.is_cause());
        causes.for_each(|edge| graph.edge(edge.before, edge.after, edge.kind));
        graph.walk(flow, pulse)
    }
}

/// The edges by kind, then by the later and the earlier node, each once. Integers by kind are
/// sorted in half the time that it takes to sort edges.
fn sorted(edges: Vec<Edge>) -> Vec<Edge> {
    let of_kind = |kind: EdgeKind| {
        let own = edges.iter().filter(|edge| edge.kind == kind);
        let mut own: Vec<u64> =
            own.map(|edge| u64::from(edge.after) << 32 | u64::from(edge.before)).collect();
        own.sort_unstable();
        own.dedup();
        own.shrink_to_fit();
        own
    };
    let of_kinds: Vec<_> = EdgeKind::ALL.iter().map(|&kind| (kind, of_kind(kind))).collect();
    drop(edges);
    let all = of_kinds.into_iter().flat_map(|(kind, own)| own.into_iter().map(move |key| (kind, key)));
    all.map(|(kind, key)| Edge { kind, before: key as u32, after: (key >> 32) as u32 }).collect()
}

/// The point at which a span starts.
fn start(events: &Points, span: SpanView<'_>) -> u32 {
    events.spans[events.span_of_index[span.index() as usize] as usize].start
}

/// Estimates the clocks of hosts from messages, and else from calls between spans.
fn estimate(
    recording: &Recording,
    events: &Points,
    edges: &[Edge],
    stretches: &Stretches,
    given: &[(String, i64)],
) -> Vec<HostClock> {
    let given = |host: &String| given.iter().find(|(name, _)| name == host).map(|own| own.1);
    let given: Vec<_> = events.hosts().iter().map(given).collect();
    let mut bounds = Bounds::default();
    let at = |event: u32| {
        let row = &events.rows()[event as usize];
        (events.clock(row), row.time)
    };
    // A log's time is cut: its event may be later by nearly one unit of the last digit.
    let latest = |event: u32| {
        let (clock, time) = at(event);
        (clock, time.saturating_add(events.rows()[event as usize].resolution))
    };
    let is_message = |edge: &&Edge| edge.kind != EdgeKind::Call;
    edges.iter().filter(is_message).for_each(|edge| bounds.message(at(edge.before), latest(edge.after)));
    for span in recording.traces().flat_map(|trace| trace.spans()) {
        shifts::call(span, |span| at(start(events, span)).0, &mut bounds);
    }
    let clock = |thread: u32| {
        let process = events.threads[thread as usize].process;
        events.clocks[events.processes[process as usize].host as usize]
    };
    stretches.bound(clock, &mut bounds);
    let clocks = clocks::estimate(events.hosts(), bounds, &given);
    // Hosts that share a clock share its estimate.
    let shared = (0..).zip(&events.clocks).map(|(host, &clock)| {
        let own = &clocks[clock as usize];
        if own.evidence == clocks::ClockEvidence::None || host == clock {
            &clocks[host as usize]
        } else {
            own
        }
    });
    shared.cloned().collect()
}

/// The time of each point, less what its host's clock runs ahead then.
fn aligned(events: &Points, clocks: &[HostClock]) -> Vec<u64> {
    let clock = |row: &Point| clocks.get(events.process(row).host as usize);
    let corrected = |row: &Point, ahead: i64| row.time.saturating_add_signed(ahead.saturating_neg());
    let constant = |row: &Point| corrected(row, clock(row).map_or(0, |clock| clock.ahead));
    let mut times: Vec<u64> = events.rows().iter().map(constant).collect();
    if clocks.iter().any(|clock| !clock.pieces.is_empty()) {
        // The piece and the time of each thread's last point.
        let mut last = vec![(0, 0); events.threads.len()];
        for (index, (time, row)) in (0..).zip(times.iter_mut().zip(events.rows())) {
            let Some(clock) = clock(row).filter(|clock| !clock.pieces.is_empty()) else { continue };
            if let Some(piece) = by_place(events, clock, index) {
                *time = corrected(row, clock.ahead_on(piece, row.time));
                continue;
            }
            // Points of spans are in no order of their thread.
            if row.is_of_span() {
                let piece = Piece::holding(&clock.pieces, row.time);
                *time = corrected(row, piece.map_or(clock.ahead, |piece| piece.ahead_at(row.time)));
                continue;
            }
            let (piece, before) = &mut last[row.thread as usize];
            (*piece, *before) = (clock.next_piece(*piece, *before, row.time), row.time);
            *time = corrected(row, clock.ahead_on(*piece, row.time));
        }
    }
    times
}

/// The piece of a clock that holds at a point, if the lines between which the clock was set are of
/// the point's file. Between these, the earlier piece holds up to the time of the later line.
fn by_place(events: &Points, clock: &HostClock, index: u32) -> Option<usize> {
    let file = |point: u32| events.rows[point as usize].file;
    let own = file(index);
    if !*events.is_ordered.get(own as usize)? || events.rows[index as usize].is_of_span() {
        return None;
    }
    let mut piece = 0;
    for (at, (before, after)) in
        clock.pieces.iter().enumerate().filter_map(|(at, piece)| Some((at, piece.after?)))
    {
        if file(before) != own || file(after) != own {
            return None;
        }
        let shown = |point: u32| i128::from(events.rows[point as usize].time);
        let corrected = |piece: usize, point: u32| {
            shown(point) - i128::from(clock.ahead_on(piece, events.rows[point as usize].time))
        };
        // Both pieces have errors, so that the time may lie a little outside.
        let outside = |piece: usize| {
            let time = corrected(piece, index);
            (corrected(at - 1, before) - time).max(time - corrected(at, after)).max(0)
        };
        let is_between = before < index && index < after;
        if index >= after || is_between && outside(at) < outside(at - 1) {
            piece = at;
        }
    }
    Some(piece)
}

/// Describes clocks whose messages contradict one offset, each by those that are described
/// already, and how far others are off if they drift.
fn unsteady(events: &Points, edges: &[Edge], clocks: &mut [HostClock]) {
    let is_unsteady = |clock: &HostClock| clock.evidence == ClockEvidence::Unsteady;
    let host = |event: u32| events.process(&events.rows[event as usize]).host as usize;
    let is_message = |edge: &&Edge| edge.kind != EdgeKind::Call && host(edge.before) != host(edge.after);
    let is_bounded =
        |clock: &HostClock| matches!(clock.evidence, ClockEvidence::Unsteady | ClockEvidence::BothWays);
    if !clocks.iter().any(is_bounded) {
        return;
    }
    let messages: Vec<&Edge> = edges.iter().filter(is_message).collect();
    let mut times = aligned(events, clocks);
    let mut counts = vec![0usize; clocks.len()];
    let unsteady = clocks.iter().filter(|clock| is_unsteady(clock)).count();
    for _ in 0..unsteady {
        // The host with the most messages from and to those whose clocks are known.
        counts.fill(0);
        for edge in &messages {
            for (own, other) in [(edge.before, edge.after), (edge.after, edge.before)] {
                let is_open = is_unsteady(&clocks[host(own)]) && !is_unsteady(&clocks[host(other)]);
                counts[host(own)] += usize::from(is_open);
            }
        }
        let Some(at) = (0..counts.len()).max_by_key(|&at| counts[at]).filter(|&at| counts[at] > 0) else {
            break;
        };
        let bounds = bounds_of(events, &messages, clocks, &times, at);
        pieces::describe(&mut clocks[at], bounds.clone());
        if is_unsteady(&clocks[at]) {
            pieces::settle(&mut clocks[at], &bounds);
        }
        if is_unsteady(&clocks[at]) {
            break;
        }
        // Its error was that of one offset for all.
        let reference = clocks[at].reference as usize;
        clocks[reference].within = clocks[reference].within.map(|_| 0);
        times = aligned(events, clocks);
    }
    for at in 0..clocks.len() {
        let clock = &clocks[at];
        if clock.evidence == ClockEvidence::BothWays && clock.pieces.is_empty() && clock.contradicted == 0 {
            let bounds = bounds_of(events, &messages, clocks, &times, at);
            clocks[at].drifting = pieces::drifting(&clocks[at], &bounds);
        }
    }
}

/// The bounds of a host's clock at each message from and to its reference; if these are too few, a
/// line has to fit the messages with all hosts whose clocks are known. `times` are corrected.
fn bounds_of(
    events: &Points,
    messages: &[&Edge],
    clocks: &[HostClock],
    times: &[u64],
    at: usize,
) -> Vec<pieces::Bound> {
    let host = |event: u32| events.process(&events.rows[event as usize]).host as usize;
    let reference = clocks[at].reference as usize;
    let bound = |edge: &&Edge| {
        let is_upper = host(edge.after) == at;
        let (point, other) = if is_upper { (edge.after, edge.before) } else { (edge.before, edge.after) };
        let clock = &clocks[host(other)];
        if host(point) != at || clock.evidence == ClockEvidence::Unsteady {
            return None;
        }
        let (row, there) = (&events.rows[point as usize], &events.rows[other as usize]);
        let order = times[other as usize];
        let latest = |row: &Point| i64::try_from(row.resolution).unwrap_or(i64::MAX);
        let ahead = i64::try_from(i128::from(row.time) - i128::from(order)).ok()?;
        // The other clock has an error, too.
        let error = clock.within.filter(|_| clock.evidence != ClockEvidence::Reference).unwrap_or(0);
        let error = i64::try_from(error).unwrap_or(i64::MAX);
        let ahead = if is_upper {
            ahead.saturating_add(latest(row)).saturating_add(error)
        } else {
            ahead.saturating_sub(latest(there)).saturating_sub(error)
        };
        Some((host(other), pieces::Bound { order, time: row.time, ahead, is_upper, point }))
    };
    let file = |point: u32| events.rows[point as usize].file;
    let of = |is_own: &dyn Fn(usize) -> bool| -> Vec<pieces::Bound> {
        let all = messages.iter().filter_map(bound);
        let mut own: Vec<_> = all.filter(|&(other, _)| is_own(other)).map(|(_, bound)| bound).collect();
        // The lines of one file are in order, whichever of both clocks was set.
        let is_one_file = own.windows(2).all(|pair| file(pair[0].point) == file(pair[1].point));
        let first = own.first().map(|bound| file(bound.point) as usize);
        if is_one_file && first.is_some_and(|file| events.is_ordered.get(file) == Some(&true)) {
            own.iter_mut().for_each(|bound| bound.order = bound.point.into());
        }
        own
    };
    let direct = of(&|other| other == reference);
    if pieces::are_enough(&direct) { direct } else { of(&|_| true) }
}

/// The points of events of spans: the span, the event's number among its span's, and the point.
fn of_events(events: &Points) -> Vec<(u32, u64, u32)> {
    let is_event = |(_, row): &(u32, &Point)| row.kind == EventKind::SpanEvent;
    let all = (0..).zip(&events.rows).filter(is_event);
    let mut found: Vec<_> =
        all.map(|(at, row)| (row.span, u64::from(events.event_number(row)), at)).collect();
    found.sort_unstable();
    found
}

struct Spans<'e> {
    events: &'e Points,
    of_events: Vec<(u32, u64, u32)>,
}

impl Spans<'_> {
    /// Adds the edges between the points of each trace. Returns the calls outside their callers.
    fn edges(
        &self,
        recording: &Recording,
        shifts: &Shifts,
        rules: Options,
        edges: &mut Vec<Edge>,
        junctions: &mut Vec<Junction>,
        pulse: &mut Pulse<'_>,
    ) -> Option<u64> {
        let mut graph = TraceGraph::new(rules);
        let points = self.events.len() as u32;
        let mut nodes = Vec::new();
        for trace in recording.traces() {
            if !graph.read(trace, shifts, &All, pulse) {
                return None;
            }
            let starts: Vec<u32> = graph.spans().iter().map(|&span| start(self.events, span)).collect();
            nodes.clear();
            for (time, span, spot) in graph.nodes() {
                nodes.push(match spot {
                    Some(spot) => self.point(graph.spans()[span as usize], spot),
                    None => {
                        junctions.push(Junction { time, start: starts[span as usize] });
                        points + junctions.len() as u32 - 1
                    }
                });
            }
            let mut push = |kind, before: u32, after: u32| {
                if before != after && before != NONE && after != NONE {
                    edges.push(Edge { kind, before, after });
                }
            };
            for &(from, to, kind) in graph.edges() {
                push(kind, nodes[from as usize], nodes[to as usize]);
            }
            // Edges by ids hold whatever clocks say, also beside a path through children.
            for (parent, child) in graph.calls() {
                push(EdgeKind::Call, starts[parent as usize], starts[child as usize]);
            }
            for &span in graph.spans() {
                let own = self.events.span_of_index[span.index() as usize];
                let first = self.of_events.partition_point(|&(span, ..)| span < own);
                let of_span = self.of_events[first..].iter().take_while(|&&(span, ..)| span == own);
                let mut timed: Vec<u32> = of_span.map(|&(.., at)| at).collect();
                timed.sort_by_key(|&at| self.events.rows[at as usize].time);
                let row = &self.events.spans[own as usize];
                let chain = [row.start].into_iter().chain(timed).chain([row.end]);
                let chain: Vec<u32> = chain.filter(|&at| at != NONE).collect();
                chain.windows(2).for_each(|pair| push(EdgeKind::Span, pair[0], pair[1]));
            }
        }
        Some(graph.outside())
    }

    /// The number of a span's point.
    fn point(&self, span: SpanView<'_>, spot: Spot) -> u32 {
        let own = self.events.span_of_index[span.index() as usize];
        let row = &self.events.spans[own as usize];
        match spot {
            Spot::Start | Spot::Report => row.start,
            Spot::End => row.end,
            Spot::Event(event) => {
                let key = (own, u64::from(event));
                let found = self.of_events.binary_search_by_key(&key, |&(span, number, _)| (span, number));
                found.map_or(NONE, |at| self.of_events[at].2)
            }
        }
    }
}
