//! The system calls that a critical path waited in, where straces of its processes were recorded.

use astracer_causality::causes::Causes;
use astracer_causality::points::Row;
use astracer_model::event::EventKind;
use serde::Serialize;

use crate::traced::Traced;

/// A call that a thread waited in while its span was on the path.
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
    /// The time from the thread's call before, or from the beginning of the span's part of the
    /// path, to the return of this one.
    pub ns: u64,
    /// `file:line` of the call.
    pub place: String,
}

/// The calls in which the threads of a path's spans waited, longest first. Empty if no strace shows
/// these threads.
pub fn waits(traced: &Traced<'_>, causes: &Causes) -> Vec<Wait> {
    let (events, times) = (&causes.events, &causes.aligned_times);
    let is_call =
        |row: &Row| !matches!(row.kind, EventKind::SpanStart | EventKind::SpanEvent | EventKind::SpanEnd);
    // The calls of each thread by time.
    let mut calls: Vec<(u32, u64, u32)> = (0u32..)
        .zip(events.rows())
        .filter(|(_, row)| is_call(row))
        .map(|(at, row)| (row.thread, times[at as usize], at))
        .collect();
    calls.sort_unstable();
    let numbers = events.span_numbers();
    let mut found = Vec::new();
    for segment in traced.path.segments.iter() {
        let number = numbers.get(traced.index(segment.node) as usize).copied();
        let Some(span) = number.and_then(|number| events.spans().get(number as usize)) else { continue };
        let first = calls.partition_point(|&(thread, time, _)| (thread, time) < (span.thread, segment.start));
        let mut before = segment.start;
        let own = calls[first..].iter();
        for &(_, time, at) in
            own.take_while(|&&(thread, time, _)| thread == span.thread && time <= segment.end)
        {
            let row = &events.rows()[at as usize];
            let waits = matches!(row.kind, EventKind::Receive | EventKind::Accept | EventKind::Join);
            if waits && time > before {
                let channel = events.channels().get(row.channel as usize);
                let call = events.calls().name(row.call);
                found.push(Wait {
                    span: events.text(&events.rows()[span.start as usize]).to_owned(),
                    call: if call.is_empty() { row.kind.name().to_owned() } else { call.to_owned() },
                    channel: channel.map_or_else(String::new, ToString::to_string),
                    bytes: row.bytes,
                    ns: time - before,
                    place: events.place(row),
                });
            }
            before = time;
        }
    }
    found.sort_by(|one, other| other.ns.cmp(&one.ns).then_with(|| one.place.cmp(&other.place)));
    found
}
