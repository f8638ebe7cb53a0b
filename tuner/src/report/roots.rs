//! The traces seen and kept of each key.

use std::collections::HashSet;

use super::kept::KeptTraces;
use crate::workload::Workload;

/// The row of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RootRow {
    pub(super) key: String,
    pub(super) seen: u64,
    pub(super) kept: u64,
    pub(super) bytes: u64,
    pub(super) bytes_kept: u64,
    /// Call trees that were seen, and those with a kept trace.
    pub(super) kinds: usize,
    pub(super) kinds_kept: usize,
}

/// The keys, starting with the most frequent one.
pub(super) fn rows(workload: &Workload, kept: &KeptTraces) -> Vec<RootRow> {
    let names = workload.keys().names();
    let row = |key: &str| RootRow { key: key.to_owned(), ..RootRow::default() };
    let mut rows: Vec<RootRow> = names.map(row).collect();
    // A call tree may be of several keys.
    let (mut seen, mut found) = (HashSet::new(), HashSet::new());
    for arrival in workload.arrivals() {
        let row = &mut rows[arrival.key as usize];
        row.seen += 1;
        row.bytes += arrival.bytes;
        row.kinds += usize::from(seen.insert((arrival.key, arrival.call_tree)));
    }
    for &(arrival, _) in &kept.traces {
        let arrival = &workload.arrivals()[arrival];
        let row = &mut rows[arrival.key as usize];
        row.kept += 1;
        row.bytes_kept += arrival.bytes;
        row.kinds_kept += usize::from(found.insert((arrival.key, arrival.call_tree)));
    }
    rows.retain(|row| row.seen > 0);
    rows.sort_by(|a, b| b.seen.cmp(&a.seen).then_with(|| a.key.cmp(&b.key)));
    rows
}
