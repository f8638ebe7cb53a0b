//! Groups of log records: those of one request, one block, one job.

use std::fmt;
use std::sync::Arc;

use crate::intern::{Interner, Symbol};
use astracer_model::log::LogRecord;

/// The most groups that one record belongs to.
const GROUPS_MAX: usize = 64;

type GroupsOf = dyn Fn(&LogRecord<'_>, &str, &mut dyn FnMut(&str)) + Send + Sync;

/// Passes the names of a record's groups, by the record and its text as written, to the function
/// that is its last argument.
#[derive(Clone)]
pub struct GroupLogs(pub Arc<GroupsOf>);

impl fmt::Debug for GroupLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupLogs")
    }
}

/// The groups of all records of a recording.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) names: Interner,
    all: Vec<Symbol>,
    /// The groups of each record in `all`: their start and end.
    of: Vec<(u64, u64)>,
}

impl Groups {
    /// Adds the groups of the next record.
    pub(super) fn add(&mut self, groups_of: impl FnOnce(&mut dyn FnMut(&str))) {
        let start = self.all.len();
        groups_of(&mut |name| {
            let group = self.names.intern(name);
            if self.all.len() - start < GROUPS_MAX && !self.all[start..].contains(&group) {
                self.all.push(group);
            }
        });
        self.of.push((start as u64, self.all.len() as u64));
    }

    /// Puts the records in this order.
    pub(super) fn reorder(&mut self, order: &[u32]) {
        if !self.of.is_empty() {
            self.of = order.iter().map(|&index| self.of[index as usize]).collect();
        }
    }

    pub(super) fn of(&self, at: usize) -> &[Symbol] {
        let (start, end) = self.of.get(at).copied().unwrap_or_default();
        self.all.get(start as usize..end as usize).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_each_of_its_groups_once() {
        let mut groups = Groups::default();
        groups.add(|found| ["a", "b", "a"].into_iter().for_each(found));
        groups.add(|_| {});
        groups.add(|found| found("b"));
        groups.reorder(&[2, 0, 1]);
        let names = |at| groups.of(at).iter().map(|&group| groups.names.name(group)).collect::<Vec<_>>();
        assert_eq!([names(0), names(1), names(2)], [vec!["b"], vec!["a", "b"], vec![]]);
        assert!(groups.of(3).is_empty());
    }
}
