//! Critical paths as lines of JSON, one for each trace, for other programs to check or draw.

use std::cell::RefCell;
use std::io::{self, Write};

use astracer_model::{SpanId, TraceId};
use astracer_recording::recording::Recording;
use astracer_recording::stop::Pulse;
use serde::{Serialize, Serializer};

use crate::path::Segment;
use crate::traced::{Shape, Traced};

/// One line, serialised straight from the path: its text would take several times the path's
/// memory.
#[derive(Serialize)]
struct Line<'a, 'p> {
    trace_id: String,
    /// The span id of the root; in an event graph, of the path's first event.
    root: Id,
    duration_ns: u64,
    segments: Segments<'a, 'p>,
    exclusive_ns: Exclusive<'a, 'p>,
}

/// The sources of a line's content. Its lists end early if the pulse stops the work.
#[derive(Clone, Copy)]
struct Source<'a, 'p> {
    recording: &'a Recording,
    traced: &'a Traced<'a>,
    pulse: &'a RefCell<&'a mut Pulse<'p>>,
}

impl Source<'_, '_> {
    fn id(&self, node: u32) -> SpanId {
        self.recording.span(self.traced.index(node)).id()
    }

    fn goes_on(&self) -> bool {
        !self.pulse.borrow_mut().stopped()
    }
}

struct Segments<'a, 'p>(Source<'a, 'p>);

#[derive(Serialize)]
struct SegmentLine {
    span_id: Id,
    start_ns: u64,
    end_ns: u64,
}

impl Serialize for Segments<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let segments = self.0.traced.path.segments.iter().take_while(|_| self.0.goes_on());
        serializer.collect_seq(segments.map(|Segment { node, start, end }| SegmentLine {
            span_id: Id(self.0.id(node)),
            start_ns: start,
            end_ns: end,
        }))
    }
}

/// Critical time by span, ordered by span id.
struct Exclusive<'a, 'p> {
    source: Source<'a, 'p>,
    /// The time of each node, in ns.
    times: Vec<u64>,
    /// The nodes on the path, ordered by their ids.
    nodes: Vec<u32>,
}

impl<'a, 'p> Exclusive<'a, 'p> {
    fn new(source: Source<'a, 'p>) -> Self {
        let path = source.traced.path;
        let mut times = vec![0u64; source.traced.node_count()];
        let mut on_path = vec![false; times.len()];
        // Neither sum exceeds the path's length, which fits in 64 bits.
        for segment in path.segments.iter().filter(|_| path.exclusive.is_empty()) {
            times[segment.node as usize] += segment.length();
            on_path[segment.node as usize] = true;
        }
        for amount in path.exclusive.iter() {
            times[amount.node as usize] += amount.ns;
            on_path[amount.node as usize] = true;
        }
        let mut nodes: Vec<u32> = (0..times.len() as u32).filter(|&node| on_path[node as usize]).collect();
        source.pulse.borrow_mut().sort_by_key(&mut nodes, |&node| source.id(node));
        Self { source, times, nodes }
    }
}

impl Serialize for Exclusive<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Spans may share an id, as the two sides of a call do in Zipkin.
        let same_id = self.nodes.chunk_by(|&a, &b| self.source.id(a) == self.source.id(b));
        let spans = same_id.take_while(|_| self.source.goes_on());
        serializer.collect_map(spans.map(|nodes| {
            let ns: u128 = nodes.iter().map(|&node| u128::from(self.times[node as usize])).sum();
            (Id(self.source.id(nodes[0])), ns)
        }))
    }
}

struct Id(SpanId);

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A trace id in hexadecimal: 16 digits if it fits in 64 bits, as recorders of 64-bit ids write it,
/// otherwise 32.
pub fn trace_id(id: TraceId) -> String {
    u64::try_from(id.0).map_or_else(|_| id.to_string(), |id| format!("{id:016x}"))
}

/// Writes the line of one trace. If the pulse stops the work, the line is incomplete.
///
/// # Errors
///
/// If the output cannot be written to.
pub fn write(
    out: &mut dyn Write,
    recording: &Recording,
    traced: &Traced<'_>,
    pulse: &mut Pulse<'_>,
) -> io::Result<()> {
    let root = match traced.shape {
        Shape::Tree(_) => 0,
        Shape::Events(_) => traced.path.segments.first().map_or(0, |first| first.node),
    };
    let pulse = RefCell::new(pulse);
    let source = Source { recording, traced, pulse: &pulse };
    let line = Line {
        trace_id: trace_id(traced.trace.id()),
        root: Id(source.id(root)),
        duration_ns: traced.path.length(),
        segments: Segments(source),
        exclusive_ns: Exclusive::new(source),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}
