//! The traces seen and kept of each key.

use super::kept::KeptTraces;
use crate::workload::Workload;

/// The row of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RootRow {
    pub(super) key: String,
    pub(super) seen: u64,
    pub(super) kept: u64,
    pub(super) bytes: u64,
    pub(super) bytes_kept: u64,
}

/// The keys, starting with the most frequent one.
pub(super) fn rows(workload: &Workload, kept: &KeptTraces) -> Vec<RootRow> {
    let names = workload.keys().names();
    let mut rows: Vec<RootRow> =
        names.map(|key| RootRow { key: key.to_owned(), seen: 0, kept: 0, bytes: 0, bytes_kept: 0 }).collect();
    for arrival in workload.arrivals() {
        let row = &mut rows[arrival.key as usize];
        row.seen += 1;
        row.bytes += arrival.bytes;
    }
    for &(arrival, _) in &kept.traces {
        let arrival = &workload.arrivals()[arrival];
        let row = &mut rows[arrival.key as usize];
        row.kept += 1;
        row.bytes_kept += arrival.bytes;
    }
    rows.retain(|row| row.seen > 0);
    rows.sort_by(|a, b| b.seen.cmp(&a.seen).then_with(|| a.key.cmp(&b.key)));
    rows
}
