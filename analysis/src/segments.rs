//! Critical paths as lines of JSON, one for each trace, for other programs to check or draw.

use std::collections::BTreeMap;
use std::io::{self, Write};

use astracer_model::{SpanId, TraceId};
use serde::Serialize;

use crate::traced::{Shape, Traced};

#[derive(Serialize)]
struct Line {
    trace_id: String,
    /// The root's span id; of an event graph that of the path's first event.
    root: String,
    duration_ns: u64,
    segments: Vec<SegmentLine>,
    /// Critical time by span.
    exclusive_ns: BTreeMap<String, u128>,
}

#[derive(Serialize)]
struct SegmentLine {
    span_id: String,
    start_ns: u64,
    end_ns: u64,
}

/// A trace id in hexadecimal digits: 16 if it fits in 64 bits, as recorders of such ids write them, else 32.
pub fn trace_id(id: TraceId) -> String {
    u64::try_from(id.0).map_or_else(|_| id.to_string(), |id| format!("{id:016x}"))
}

/// The ids of the spans that the nodes of a path refer to.
pub(crate) fn span_ids(traced: &Traced<'_>) -> Vec<SpanId> {
    let mut by_index: Vec<(u32, SpanId)> =
        traced.trace.spans().map(|span| (span.index(), span.id())).collect();
    by_index.sort_unstable_by_key(|&(index, _)| index);
    let id = |node: u32| {
        let found = by_index.binary_search_by_key(&traced.index(node), |&(index, _)| index);
        found.map_or(SpanId::ZERO, |at| by_index[at].1)
    };
    (0..traced.node_count() as u32).map(id).collect()
}

/// Writes one trace's line.
///
/// # Errors
///
/// If the output cannot be written to.
pub fn write(out: &mut dyn Write, traced: &Traced<'_>) -> io::Result<()> {
    let ids = span_ids(traced);
    let id = |node: u32| ids[node as usize].to_string();
    let mut exclusive_ns = BTreeMap::new();
    if traced.path.exclusive.is_empty() {
        for segment in &traced.path.segments {
            *exclusive_ns.entry(id(segment.node)).or_default() += u128::from(segment.length());
        }
    } else {
        for amount in &traced.path.exclusive {
            *exclusive_ns.entry(id(amount.node)).or_default() += u128::from(amount.ns);
        }
    }
    let root = match traced.shape {
        Shape::Tree(_) => 0,
        Shape::Events(_) => traced.path.segments.first().map_or(0, |first| first.node),
    };
    let line = Line {
        trace_id: trace_id(traced.trace.id()),
        root: id(root),
        duration_ns: traced.path.length(),
        segments: traced
            .path
            .segments
            .iter()
            .map(|segment| SegmentLine {
                span_id: id(segment.node),
                start_ns: segment.start,
                end_ns: segment.end,
            })
            .collect(),
        exclusive_ns,
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}
