//! The system calls that a critical path waited in, where straces of its processes were recorded.

use std::collections::HashMap;

use astracer_causality::causes::Causes;
use astracer_causality::points::NONE;
use astracer_model::event::EventKind;
use rapidhash::fast::RandomState;
use serde::Serialize;

use crate::traced::Traced;

/// A call that a span waited in while it was on the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Wait {
    /// The span's name.
    pub span: String,
    /// The system call.
    pub call: String,
    /// The connection, for a message.
    pub channel: String,
    /// The bytes of a message.
    pub bytes: u64,
    /// The time to the return of this call from that of the request, or else of the thread's call
    /// before, but not from before the span's part of the path.
    pub ns: u64,
    /// `file:line` of the call.
    pub place: String,
}

/// The calls in which a path's spans waited, longest first: for the answer to a request that
/// carries the span's id, on its connection; else those of the thread that the span states. Empty
/// if no strace shows them.
pub fn waits(traced: &Traced<'_>, causes: &Causes) -> Vec<Wait> {
    let (points, times) = (&causes.events, &causes.aligned_times);
    let calls = Calls::new(causes);
    let numbers = points.span_numbers();
    let mut found = Vec::new();
    for segment in traced.path.segments.iter() {
        let number = numbers.get(traced.index(segment.node) as usize).copied().unwrap_or(NONE);
        let Some(span) = points.spans().get(number as usize) else { continue };
        let name = points.text(&points.rows()[span.start as usize]);
        let mut push = |at: u32, since: u64| {
            let row = &points.rows()[at as usize];
            let channel = points.channels().get(row.channel as usize);
            let call = points.calls().name(row.call);
            found.push(Wait {
                span: name.to_owned(),
                call: if call.is_empty() { row.kind.name().to_owned() } else { call.to_owned() },
                channel: channel.map_or_else(String::new, ToString::to_string),
                bytes: row.bytes,
                ns: times[at as usize] - since,
                place: points.place(row),
            });
        };
        let requests = calls.requests(number);
        for &(_, sent, answers) in requests {
            let since = times[sent as usize].max(segment.start);
            if let Some((_, at)) = between(&calls.receives, answers, since, segment.end).next() {
                push(at, since);
            }
        }
        // A thread of an asynchronous runtime waits for whatever comes first.
        if requests.is_empty() {
            let mut before = segment.start;
            for (time, at) in between(&calls.of_threads, span.thread, segment.start, segment.end) {
                let kind = points.rows()[at as usize].kind;
                if matches!(kind, EventKind::Receive | EventKind::Accept | EventKind::Join) && time > before {
                    push(at, before);
                }
                before = time;
            }
        }
    }
    found.sort_by(|one, other| other.ns.cmp(&one.ns).then_with(|| one.place.cmp(&other.place)));
    found
}

/// System calls by what is looked up, each list in order.
struct Calls {
    /// Thread, time and number of each call.
    of_threads: Vec<(u32, u64, u32)>,
    /// Connection, time and number of each receive.
    receives: Vec<(u32, u64, u32)>,
    /// Span, number of the call that sent its request, and the connection of the answer.
    requests: Vec<(u32, u32, u32)>,
}

impl Calls {
    fn new(causes: &Causes) -> Self {
        let (points, times) = (&causes.events, &causes.aligned_times);
        let numbers: HashMap<_, u32, RandomState> = points.channels().iter().zip(0..).collect();
        let answers: Vec<Option<u32>> =
            points.channels().iter().map(|channel| numbers.get(&channel.reversed()).copied()).collect();
        let mut calls = Self { of_threads: Vec::new(), receives: Vec::new(), requests: Vec::new() };
        for (at, row) in (0..).zip(points.rows()).filter(|(_, row)| !row.is_of_span()) {
            let time = times[at as usize];
            calls.of_threads.push((row.thread, time, at));
            if row.kind == EventKind::Receive && row.channel != NONE {
                calls.receives.push((row.channel, time, at));
            }
            let answers = answers.get(row.channel as usize).copied().flatten();
            if row.kind == EventKind::Send && row.span != NONE {
                calls.requests.extend(answers.map(|answers| (row.span, at, answers)));
            }
        }
        calls.of_threads.sort_unstable();
        calls.receives.sort_unstable();
        calls.requests.sort_unstable();
        calls
    }

    fn requests(&self, span: u32) -> &[(u32, u32, u32)] {
        let from = self.requests.partition_point(|&(own, ..)| own < span);
        let len = self.requests[from..].iter().take_while(|&&(own, ..)| own == span).count();
        &self.requests[from..from + len]
    }
}

/// Times and numbers of the calls with this key, from one time to another.
fn between(calls: &[(u32, u64, u32)], key: u32, from: u64, to: u64) -> impl Iterator<Item = (u64, u32)> + '_ {
    let first = calls.partition_point(|&(own, time, _)| (own, time) < (key, from));
    let own = calls[first..].iter().take_while(move |&&(own, time, _)| own == key && time <= to);
    own.map(|&(_, time, at)| (time, at))
}
