//! The shape of a call tree: a hash of the paths from the root to each span, made of span names.
//!
//! A path counts once however often it occurs, so that loops of different lengths have the same
//! shape. Times and order do not count. A span whose parent is missing starts a path of its own.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use opentelemetry::SpanId;

use crate::record::TraceView;

/// Deterministic, so that a shape has the same hash on all threads.
const HASHER: BuildHasherDefault<DefaultHasher> = BuildHasherDefault::new();

pub(super) fn of(trace: TraceView<'_>) -> u64 {
    let records = trace.records;
    let mut ids: Vec<(SpanId, usize)> =
        records.iter().enumerate().map(|(at, record)| (record.span_id, at)).collect();
    ids.sort_unstable_by_key(|(id, _)| id.to_bytes());
    let find = |id: SpanId| {
        let found = ids.binary_search_by_key(&id.to_bytes(), |(id, _)| id.to_bytes());
        found.ok().map(|place| ids[place].1)
    };
    let names: Vec<&str> = trace.spans().map(|span| span.name(trace.memory)).collect();
    let mut paths: Vec<Option<u64>> = vec![None; records.len()];
    let mut path = Vec::new();
    for start in 0..records.len() {
        // Walk up to the first span whose path is known, then down again, without recursion.
        let mut at = start;
        let mut above = loop {
            if let Some(path) = paths[at] {
                break path;
            }
            path.push(at);
            // A span is its own ancestor only if ids are duplicated; the bound on the length ends
            // that loop.
            match find(records[at].parent).filter(|_| path.len() <= records.len()) {
                Some(parent) => at = parent,
                None => break 0,
            }
        };
        while let Some(at) = path.pop() {
            above = HASHER.hash_one((above, names.get(at).copied().unwrap_or_default()));
            paths[at] = Some(above);
        }
    }
    let mut paths: Vec<u64> = paths.into_iter().flatten().collect();
    paths.sort_unstable();
    paths.dedup();
    HASHER.hash_one(paths)
}
