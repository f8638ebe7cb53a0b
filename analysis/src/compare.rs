//! Differences between the critical time of two recordings.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::profile::{Profile, Row};

/// One function, service or path of calls in two recordings.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Its name; of a path of calls, the names from the root down.
    pub name: Vec<String>,
    /// Its critical time in the recording compared with, for each trace of all, ms.
    pub before_ms: f64,
    /// The same in this recording, ms.
    pub after_ms: f64,
    /// `after_ms` less `before_ms`.
    pub difference_ms: f64,
    /// Its part of all critical time in the recording compared with, 0 to 1.
    pub share_before: f64,
    /// The same in this recording.
    pub share_after: f64,
}

/// The differences of two profiles, the largest first. Times are means over all traces of a recording, by weight, so
/// they add up to the difference of the traces' mean lengths.
pub fn compare(before: &Profile, after: &Profile) -> Vec<Difference> {
    let mut rows: BTreeMap<&[String], (Option<&Row>, Option<&Row>)> = BTreeMap::new();
    before.rows.iter().for_each(|row| rows.entry(&row.name).or_default().0 = Some(row));
    after.rows.iter().for_each(|row| rows.entry(&row.name).or_default().1 = Some(row));
    let mean = |row: Option<&Row>, profile: &Profile| {
        row.filter(|_| profile.weight > 0.0).map_or(0.0, |row| row.total_ms / profile.weight)
    };
    let mut differences: Vec<Difference> = rows
        .into_iter()
        .map(|(name, (row_before, row_after))| {
            let (before_ms, after_ms) = (mean(row_before, before), mean(row_after, after));
            Difference {
                name: name.to_vec(),
                before_ms,
                after_ms,
                difference_ms: after_ms - before_ms,
                share_before: row_before.map_or(0.0, |row| row.share),
                share_after: row_after.map_or(0.0, |row| row.share),
            }
        })
        .collect();
    // A stable sort: equal differences stay in the order of their names.
    differences.sort_by(|a, b| b.difference_ms.abs().total_cmp(&a.difference_ms.abs()));
    differences
}
