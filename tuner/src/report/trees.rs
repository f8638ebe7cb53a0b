//! The call trees of which no trace was kept.

use std::collections::BTreeMap;

use astracer_model::TraceId;

use super::kept::KeptTraces;
use crate::workload::Workload;

/// The number of functions of a tree that are named.
const FUNCTIONS_NAMED: usize = 6;

/// A call tree that was missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MissedTree {
    pub(super) key: String,
    /// Traces of this tree in the whole.
    pub(super) traces: u64,
    pub(super) spans: u32,
    /// One of the traces.
    pub(super) example: TraceId,
    /// The tree's calls, for people: "read x3, send".
    pub(super) calls: String,
}

/// The missed ones, those with most traces first.
pub(super) fn missed(workload: &Workload, kept: &KeptTraces) -> Vec<MissedTree> {
    let mut found = vec![false; workload.call_trees() as usize];
    for &(arrival, _) in &kept.traces {
        found[workload.arrivals()[arrival].call_tree as usize] = true;
    }
    // By tree: its first arrival, and how many there are.
    let mut trees = BTreeMap::<u32, (usize, u64)>::new();
    for (index, arrival) in workload.arrivals().iter().enumerate() {
        if !found[arrival.call_tree as usize] {
            trees.entry(arrival.call_tree).or_insert((index, 0)).1 += 1;
        }
    }
    let row = |(first, traces): (usize, u64)| {
        let arrival = &workload.arrivals()[first];
        MissedTree {
            key: workload.key(arrival).to_owned(),
            traces,
            spans: arrival.spans,
            example: workload.trace_id(first),
            calls: calls(workload, first),
        }
    };
    let mut rows: Vec<MissedTree> = trees.into_values().map(row).collect();
    rows.sort_by(|a, b| b.traces.cmp(&a.traces).then_with(|| a.key.cmp(&b.key)).then(a.spans.cmp(&b.spans)));
    rows
}

fn calls(workload: &Workload, arrival: usize) -> String {
    let calls = workload.calls(arrival);
    let mut named: Vec<String> = calls
        .iter()
        .take(FUNCTIONS_NAMED)
        .map(|calls| {
            let name = &workload.functions()[calls.function as usize].name;
            if calls.count == 1 { name.to_string() } else { format!("{name} \u{d7}{}", calls.count) }
        })
        .collect();
    if calls.len() > FUNCTIONS_NAMED {
        named.push(format!("and {} more functions", calls.len() - FUNCTIONS_NAMED));
    }
    named.join(", ")
}
