//! The evidence that two events without a path between them are concurrent.
//!
//! Without a path, either nothing led from one to the other, or whatever did was not recorded. Only
//! where the messages of both processes are here is the first certain. In a trace, a client's span
//! with a child in another process stands for its messages.

use std::collections::{HashMap, HashSet};

use astracer_causality::points::Points;
use astracer_model::event::EventKind;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::span::SpanKind;
use rapidhash::fast::RandomState;

use super::Order;

/// The processes whose messages were recorded, and the calls whose other side was not.
#[derive(Debug)]
pub struct Evidence {
    has_messages: Vec<bool>,
    /// Traces with the processes that made a call in them whose other side is missing.
    unanswered: HashSet<(TraceId, u32), RandomState>,
}

/// The evidence that two events lack. If it is empty, they are concurrent unless there is a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Processes without a recorded message. For two points of one trace, only those that made a
    /// call in it without a span of the callee.
    pub processes: Vec<u32>,
    /// True for two points of one trace.
    pub is_one_trace: bool,
    /// True for two points of one process, of which one has no known thread.
    pub is_one_process: bool,
    /// True if the processes are those whose threads are not known.
    pub is_unplaced: bool,
}

impl Missing {
    /// True if nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }
}

/// The times of two events by their hosts' corrected clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByClocks {
    /// By how many nanoseconds the first event is earlier; negative if it is later.
    pub earlier: i64,
    /// The largest error of the clocks; `None` if both events are of one clock.
    pub within: Option<u64>,
}

impl ByClocks {
    /// Compares two events; `None` if no bound of the error between their clocks is known.
    pub fn new(order: &Order, one: u32, other: u32) -> Option<Self> {
        let row = |event: u32| &order.events.rows()[event as usize];
        let time = |event: u32| order.aligned_times[event as usize] as i64;
        let earlier = time(other).saturating_sub(time(one));
        if order.events.clock(row(one)) == order.events.clock(row(other)) {
            return Some(Self { earlier, within: None });
        }
        let clock = |event: u32| order.host_clocks.get(order.events.process(row(event)).host as usize);
        let (first, second) = (clock(one)?, clock(other)?);
        if first.reference != second.reference {
            return None;
        }
        Some(Self { earlier, within: Some(first.within?.saturating_add(second.within?)) })
    }
}

impl Evidence {
    /// The evidence in these events.
    pub fn new(events: &Points) -> Self {
        let mut has_messages = vec![false; events.processes().len()];
        for row in events.rows() {
            let is_message = matches!(
                row.kind,
                EventKind::Connect | EventKind::Accept | EventKind::Send | EventKind::Receive
            );
            if is_message || events.has_vector_clock(row) {
                has_messages[events.thread(row).process as usize] = true;
            }
        }
        let process = |thread: u32| events.threads()[thread as usize].process;
        let calls = events.spans().iter().filter(|span| span.kind == SpanKind::Client);
        // Each client's span by its ids and process; true once a callee is found.
        let mut calls: HashMap<(TraceId, SpanId), Vec<(u32, bool)>, RandomState> =
            calls.fold(HashMap::default(), |mut calls, span| {
                let own: &mut Vec<_> = calls.entry((span.trace, span.id)).or_default();
                own.push((process(span.thread), false));
                calls
            });
        for span in events.spans() {
            let callee = process(span.thread);
            // Zipkin's server has the client's id.
            let shared = (span.kind == SpanKind::Server).then_some(span.id);
            for id in events.parents(span).iter().copied().chain(shared) {
                let own = calls.get_mut(&(span.trace, id)).into_iter().flatten();
                own.for_each(|(caller, is_answered)| *is_answered |= *caller != callee);
            }
        }
        let unanswered = calls.into_iter().flat_map(|((trace, _), own)| {
            own.into_iter().filter(|&(_, is_answered)| !is_answered).map(move |(process, _)| (trace, process))
        });
        Self { has_messages, unanswered: unanswered.collect() }
    }

    /// The evidence that two events lack.
    pub fn missing(&self, events: &Points, one: u32, other: u32) -> Missing {
        let of = |event: u32| {
            let row = &events.rows()[event as usize];
            let span = events.spans().get(row.span as usize).filter(|_| row.is_of_span());
            let trace = span.map(|span| span.trace).filter(|&trace| trace != TraceId::ZERO);
            (events.thread(row).process, trace)
        };
        let ((first, trace), (second, its)) = (of(one), of(other));
        let trace = trace.filter(|_| trace == its);
        if first == second && trace.is_some() {
            return Missing::default();
        }
        // Threads of one process need no message to tell each other something.
        let is_placed = |event: u32| events.is_in_program_order(&events.rows()[event as usize]);
        if first == second && !(is_placed(one) && is_placed(other)) {
            return Missing { processes: vec![first], is_one_process: true, ..Missing::default() };
        }
        let is_missing = |process: &u32| {
            !self.has_messages[*process as usize]
                && trace.is_none_or(|trace| self.unanswered.contains(&(trace, *process)))
        };
        let mut processes = vec![first, second];
        processes.dedup();
        processes.retain(is_missing);
        if !processes.is_empty() || trace.is_some() {
            return Missing { processes, is_one_trace: trace.is_some(), ..Missing::default() };
        }
        // The messages are here, but not those of the thread that wrote a record.
        let is_of_log = |&event: &u32| {
            let row = &events.rows()[event as usize];
            events.is_one_log(row, row)
        };
        let unplaced = [one, other].into_iter().filter(is_of_log);
        let mut processes: Vec<u32> = unplaced.map(|event| of(event).0).collect();
        processes.dedup();
        Missing { processes, is_unplaced: true, ..Missing::default() }
    }
}
