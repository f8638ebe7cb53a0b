//! The call trees without a kept trace.

use std::collections::BTreeMap;

use astracer_model::TraceId;

use super::kept::KeptTraces;
use crate::workload::Workload;

/// At most this many functions of a tree are named.
const FUNCTIONS_NAMED: usize = 6;

/// A call tree without a kept trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MissedTree {
    pub(super) key: String,
    /// Traces of this tree in the whole workload.
    pub(super) traces: u64,
    pub(super) spans: u32,
    /// The id of one of these traces.
    pub(super) example: TraceId,
    /// The tree's calls as text: "read x3, send".
    pub(super) calls: String,
}

/// The missed trees, starting with the one that has the most traces.
pub(super) fn missed(workload: &Workload, kept: &KeptTraces) -> Vec<MissedTree> {
    let mut found = vec![false; workload.call_trees() as usize];
    for &(arrival, _) in &kept.traces {
        found[workload.arrivals()[arrival].call_tree as usize] = true;
    }
    // For each tree, its first arrival and the number of its traces.
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
