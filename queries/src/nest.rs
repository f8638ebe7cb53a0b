//! Rows by the span that encloses their points, for joins with what is below a span.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::advice::Relation;
use crate::entry::{Limits, Packed};
use crate::group::{Group, Groups, Key, group_size};
use crate::value::Value;

/// Groups in the levels of a bag, or four times those of its spans if these are more.
const LEVELS: usize = 1 << 20;

/// The rows of each bag that stages before have put in.
#[derive(Debug, Default)]
pub(crate) struct Nests(BTreeMap<u8, Packs>);

/// The rows of a bag, by the span around them.
#[derive(Debug, Default)]
struct Packs {
    rows: Vec<(u32, Packed)>,
    groups: Vec<(u32, Groups)>,
    /// Level `n` has the groups of each 2^(n+1) spans of `groups` in one.
    levels: Vec<Vec<Groups>>,
    is_sorted: bool,
    /// Rows and groups without room.
    dropped: u64,
    /// Rows and groups, and their bytes.
    entries: usize,
    bytes: usize,
}

impl Packs {
    /// Whether there is room for one more.
    fn has_room(&mut self, size: usize, limits: Limits) -> bool {
        let fits = self.entries < limits.entries && size <= limits.bytes.saturating_sub(self.bytes);
        if fits {
            self.entries += 1;
            self.bytes += size;
            self.is_sorted = false;
        }
        self.dropped += u64::from(!fits);
        fits
    }

    fn sort(&mut self) {
        if std::mem::replace(&mut self.is_sorted, true) {
            return;
        }
        self.rows.sort_by_key(|&(within, _)| within);
        self.groups.sort_by_key(|&(within, _)| within);
        let size = |groups: &Groups| groups.len();
        let leaves = self.groups.iter().map(|(_, groups)| size(groups)).sum::<usize>();
        let mut room = (4 * leaves).max(LEVELS);
        self.levels.clear();
        loop {
            let count = self.levels.last().map_or(self.groups.len(), Vec::len);
            let at = |place: usize| match self.levels.last() {
                Some(level) => &level[place],
                None => &self.groups[place].1,
            };
            let both = |place: usize| {
                let mut all = at(2 * place).clone();
                merge(&mut all, at(2 * place + 1));
                all
            };
            let level: Vec<Groups> = (0..count / 2).map(both).collect();
            let own = level.iter().map(size).sum::<usize>();
            // Groups that hardly meet take the memory of a level for each doubling.
            let Some(rest) = room.checked_sub(own).filter(|_| !level.is_empty()) else { return };
            room = rest;
            self.levels.push(level);
        }
    }

    /// The groups of a range of `groups`.
    fn merged(&self, mut range: Range<usize>) -> Groups {
        let mut all = Groups::new();
        while !range.is_empty() {
            // The largest block that begins here and lies within the range.
            let size = range.len().ilog2().min(range.start.trailing_zeros()).min(self.levels.len() as u32);
            match size.checked_sub(1).and_then(|level| self.levels[level as usize].get(range.start >> size)) {
                Some(block) => merge(&mut all, block),
                None => merge(&mut all, &self.groups[range.start].1),
            }
            range.start += 1 << size;
        }
        all
    }
}

fn merge(all: &mut Groups, more: &Groups) {
    for (key, group) in more {
        match all.get_mut(key) {
            Some(known) => known.merge(group),
            None => drop(all.insert(key.clone(), group.clone())),
        }
    }
}

impl Nests {
    /// Rows and groups without room.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.values().map(|packs| packs.dropped).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn pack(&mut self, bag: u8, within: u32, rows: Vec<Packed>, limits: Limits) {
        let packs = self.0.entry(bag).or_default();
        for row in rows {
            if packs.has_room(2 + row.values.iter().map(Value::size).sum::<usize>(), limits) {
                packs.rows.push((within, row));
            }
        }
    }

    pub(crate) fn pack_groups(&mut self, bag: u8, within: u32, rows: Vec<(Key, Group)>, limits: Limits) {
        let packs = self.0.entry(bag).or_default();
        for (key, group) in rows {
            // Siblings follow each other.
            if packs.groups.last().is_none_or(|(last, _)| *last != within) {
                packs.groups.push((within, Groups::new()));
            }
            let known = packs.groups.last_mut().and_then(|(_, groups)| groups.get_mut(&key));
            if let Some(known) = known {
                known.merge(&group);
                packs.is_sorted = false;
            } else if packs.has_room(group_size(&key, &group), limits)
                && let Some((_, groups)) = packs.groups.last_mut()
            {
                groups.insert(key, group);
            }
        }
    }

    /// The rows and the groups of a bag that are below these spans, or of their first one's
    /// children, and whether some are missing for want of room.
    pub(crate) fn unpack(
        &mut self,
        bag: u8,
        relation: Relation,
        spans: Range<u32>,
    ) -> (&[(u32, Packed)], Groups, bool) {
        let Some(packs) = self.0.get_mut(&bag) else { return (&[], Groups::new(), false) };
        packs.sort();
        let end = match relation {
            Relation::Child => spans.start.saturating_add(1).min(spans.end),
            _ => spans.end,
        };
        let rows = packs.rows.partition_point(|&(within, _)| within < spans.start)
            ..packs.rows.partition_point(|&(within, _)| within < end);
        let groups = packs.groups.partition_point(|&(within, _)| within < spans.start)
            ..packs.groups.partition_point(|&(within, _)| within < end);
        (&packs.rows[rows], packs.merged(groups), packs.dropped > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::Function;
    use crate::entry::Limits;

    /// Blocks of any size hold what single ones do.
    #[test]
    fn ranges_have_the_groups_of_their_spans() {
        let mut random = astracer_testing::SplitMix::new(7);
        for kinds in [1, 3, 1000] {
            let mut nests = Nests::default();
            let mut all = Vec::new();
            for _ in 0..300 {
                let (within, value) = (random.below(60) as u32, random.below(kinds) as i64);
                all.push((within, value));
                let mut states = vec![Function::Count.start()];
                states[0].add_row(1);
                let key = Key { weight: 0, values: vec![Value::from(value)] };
                nests.pack_groups(
                    1,
                    within,
                    vec![(key, Group { count: 1, weight: 1.0, states })],
                    Limits::RECORDING,
                );
            }
            for _ in 0..200 {
                let start = random.below(60) as u32;
                let end = start + random.below(61 - u64::from(start)) as u32;
                let mut expected: BTreeMap<Value, i128> = BTreeMap::new();
                for (_, value) in all.iter().filter(|(within, _)| (start..end).contains(within)) {
                    *expected.entry(Value::from(*value)).or_default() += 1;
                }
                let (_, found, missing) = nests.unpack(1, Relation::Below, start..end);
                let found: BTreeMap<Value, i128> =
                    found.into_iter().map(|(mut key, group)| (key.values.remove(0), group.count)).collect();
                assert_eq!((found, missing), (expected, false), "{kinds} {start}..{end}");
            }
        }
    }

    #[test]
    fn a_row_without_room_is_told() {
        let mut nests = Nests::default();
        let row = |value: i64| Packed { values: [Value::from(value)].into(), count: 1, weight: 1.0 };
        let limits = Limits { entries: 2, ..Limits::RECORDING };
        nests.pack(0, 4, vec![row(1), row(2)], limits);
        assert!(!nests.unpack(0, Relation::Below, 0..9).2);
        nests.pack(0, 4, vec![row(3)], limits);
        let (rows, _, missing) = nests.unpack(0, Relation::Below, 0..9);
        assert_eq!((rows.len(), missing), (2, true));
    }
}
