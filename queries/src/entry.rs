//! The entries of a bag: the rows that events packed, with each event's place in the causal order.

use std::sync::Arc;

use crate::advice::{Keep, Shape};
use crate::group::{
    Group, Groups, Key, decode_count, decode_groups, decode_weight, encode_groups, encode_weight, group_size,
};
use crate::value::Value;
use crate::wire::{Reader, Writer};

/// The bounds of a bag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries, with each group of a grouped pack as one.
    pub entries: usize,
    /// Bytes of the bag's message.
    pub bytes: usize,
    /// Rows that one visit of a point may join.
    pub rows: usize,
}

impl Limits {
    /// The bounds of a bag that travels with a live request.
    pub const LIVE: Limits = Limits { entries: 64, bytes: 2048, rows: 4096 };
    /// The bounds of a bag over a recording, which only guard memory.
    pub const RECORDING: Limits = Limits { entries: 1 << 20, bytes: 256 << 20, rows: 1 << 20 };
}

/// A version vector: for each branch the highest counter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions(Arc<Vec<(u64, u64)>>);

impl Versions {
    pub(crate) fn includes(&self, dot: Dot) -> bool {
        let found = self.0.binary_search_by_key(&dot.branch, |&(branch, _)| branch);
        found.is_ok_and(|index| self.0[index].1 >= dot.counter)
    }

    pub(crate) fn raise(&mut self, dot: Dot) {
        if self.includes(dot) {
            return;
        }
        let all = Arc::make_mut(&mut self.0);
        match all.binary_search_by_key(&dot.branch, |&(branch, _)| branch) {
            Ok(index) => all[index].1 = dot.counter,
            Err(index) => all.insert(index, (dot.branch, dot.counter)),
        }
    }

    fn merge(&mut self, other: &Versions) {
        if Arc::ptr_eq(&self.0, &other.0) {
            return;
        }
        if self.0.is_empty() {
            *self = other.clone();
            return;
        }
        for (branch, counter) in other.dots() {
            self.raise(Dot { branch, counter });
        }
    }

    pub(crate) fn dots(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    fn size(&self) -> usize {
        3 * self.0.len()
    }
}

/// The identity of an entry: its branch of the request and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dot {
    pub(crate) branch: u64,
    pub(crate) counter: u64,
}

/// A row of an entry, which stands for `count` equal ones.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    pub(crate) values: Box<[Value]>,
    pub(crate) count: i128,
    pub(crate) weight: f64,
}

/// The rows of an entry. An entry without rows, whose own join found nothing, still supersedes
/// others.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Rows(Arc<[Packed]>),
    Groups(Arc<Groups>),
}

impl Content {
    fn size(&self) -> usize {
        match self {
            Content::Rows(rows) => {
                rows.iter().map(|row| 2 + row.values.iter().map(Value::size).sum::<usize>()).sum()
            }
            Content::Groups(groups) => groups.iter().map(|(key, group)| group_size(key, group)).sum(),
        }
    }

    fn entries(&self) -> usize {
        match self {
            Content::Rows(_) => 1,
            Content::Groups(groups) => groups.len(),
        }
    }
}

/// An event that packed rows.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) dot: Dot,
    /// The events of the same bag before it. Only MostRecent needs them.
    pub(crate) past: Versions,
    pub(crate) content: Content,
    size: usize,
}

impl Entry {
    fn new(dot: Dot, past: Versions, content: Content) -> Entry {
        let size = 4 + past.size() + content.size();
        Entry { dot, past, content, size }
    }
}

/// The room that is left in a bag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

/// The entries between one PACK and its UNPACK.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) keep: Keep,
    /// Every event that packed here, also those whose entries are dropped.
    pub(crate) seen: Versions,
    /// In the order of their dots.
    pub(crate) entries: Vec<Entry>,
}

impl Part {
    pub(crate) fn new(keep: Keep) -> Part {
        Part { keep, seen: Versions::default(), entries: Vec::new() }
    }

    /// The entries and bytes it takes.
    pub(crate) fn used(&self) -> Room {
        let entries = self.entries.iter().map(|entry| entry.content.entries()).sum();
        Room {
            entries,
            bytes: 4 + self.seen.size() + self.entries.iter().map(|entry| entry.size).sum::<usize>(),
        }
    }

    fn insert(&mut self, entry: Entry) {
        let at = self.entries.partition_point(|known| known.dot < entry.dot);
        self.entries.insert(at, entry);
    }

    /// Adds the rows of an event. False if there was no room for all of them.
    pub(crate) fn pack(&mut self, dot: Dot, rows: Vec<Packed>, room: Room) -> bool {
        let past = match self.keep {
            Keep::First(n) if self.entries.len() >= usize::from(n) => return true,
            Keep::All if rows.is_empty() => return true,
            Keep::Recent(_) => self.seen.clone(),
            _ => Versions::default(),
        };
        let mut entry = Entry::new(dot, past, Content::Rows(rows.into()));
        let mut complete = true;
        if entry.size > room.bytes || room.entries == 0 {
            if self.keep == Keep::All {
                return false;
            }
            // Without its rows the entry still keeps others from being chosen in its place.
            entry = Entry::new(dot, entry.past, Content::Rows(Arc::new([])));
            complete = false;
        }
        self.insert(entry);
        if let Keep::Recent(n) = self.keep {
            self.seen.raise(dot);
            self.drop_superseded(n.into());
        }
        complete
    }

    /// Adds rows to the running groups of a branch. False if there was no room for all of them.
    pub(crate) fn pack_groups(&mut self, dot: Dot, rows: Vec<(Key, Group)>, mut room: Room) -> bool {
        if rows.is_empty() {
            return true;
        }
        let at = self.entries.iter().position(|entry| entry.dot.branch == dot.branch);
        let content = match at {
            Some(at) => self.entries.remove(at).content,
            None => Content::Groups(Arc::default()),
        };
        let mut complete = true;
        let Content::Groups(mut groups) = content else { return false };
        let all = Arc::make_mut(&mut groups);
        for (key, row) in rows {
            if let Some(group) = all.get_mut(&key) {
                group.merge(&row);
                continue;
            }
            let size = group_size(&key, &row);
            if size > room.bytes || room.entries == 0 {
                complete = false;
                continue;
            }
            room.bytes -= size;
            room.entries -= 1;
            all.insert(key, row);
        }
        if !groups.is_empty() {
            self.insert(Entry::new(dot, Versions::default(), Content::Groups(groups)));
        }
        complete
    }

    /// Unites with the same bag of another branch.
    pub(crate) fn merge(&mut self, other: &Part) {
        let mut added = false;
        for entry in &other.entries {
            let found = match entry.content {
                Content::Rows(_) => self.entries.binary_search_by_key(&entry.dot, |known| known.dot).ok(),
                Content::Groups(_) => {
                    self.entries.iter().position(|known| known.dot.branch == entry.dot.branch)
                }
            };
            match found {
                // The later of two copies of a running aggregate has all of the earlier.
                Some(index) if self.entries[index].dot < entry.dot => self.entries[index] = entry.clone(),
                Some(_) => {}
                None => {
                    added = true;
                    self.insert(entry.clone());
                }
            }
        }
        if let Keep::Recent(n) = self.keep {
            self.seen.merge(&other.seen);
            if added {
                self.drop_superseded(n.into());
            }
        }
    }

    /// Drops the entries that `n` others have in their past.
    fn drop_superseded(&mut self, n: usize) {
        if self.entries.len() <= n {
            return;
        }
        let superseded: Vec<bool> = self
            .entries
            .iter()
            .map(|entry| {
                self.entries.iter().filter(|other| other.past.includes(entry.dot)).nth(n - 1).is_some()
            })
            .collect();
        let mut index = 0;
        self.entries.retain(|_| {
            index += 1;
            !superseded[index - 1]
        });
    }

    /// Drops entries until `room` holds the rest. False if there were any to drop.
    pub(crate) fn shrink(&mut self, room: Room) -> bool {
        let mut used = self.used();
        let complete = used.entries <= room.entries && used.bytes <= room.bytes;
        while used.entries > room.entries || used.bytes > room.bytes {
            let Some(entry) = self.entries.pop() else { break };
            used.entries -= entry.content.entries();
            used.bytes -= entry.size;
        }
        complete
    }

    pub(crate) fn encode(&self, branch: &impl Fn(u64) -> u64, out: &mut Writer) {
        let versions = |versions: &Versions, out: &mut Writer| {
            out.number(versions.0.len() as u64);
            for (of, counter) in versions.dots() {
                out.number(branch(of));
                out.number(counter);
            }
        };
        versions(&self.seen, out);
        out.number(self.entries.len() as u64);
        for entry in &self.entries {
            out.number(branch(entry.dot.branch));
            out.number(entry.dot.counter);
            if matches!(self.keep, Keep::Recent(_)) {
                versions(&entry.past, out);
            }
            match &entry.content {
                Content::Rows(rows) => {
                    out.number(rows.len() as u64);
                    for row in rows.iter() {
                        encode_weight(row.weight, out);
                        out.signed(row.count);
                        row.values.iter().for_each(|value| out.value(value));
                    }
                }
                Content::Groups(groups) => encode_groups(groups, out),
            }
        }
    }

    pub(crate) fn decode(
        shape: &Shape,
        branches: &[u64],
        from: &mut Reader<'_>,
        limit: usize,
    ) -> Option<Part> {
        let dot = |from: &mut Reader<'_>| {
            let branch = *branches.get(usize::try_from(from.number()?).ok()?)?;
            Some(Dot { branch, counter: from.number()? })
        };
        let versions = |from: &mut Reader<'_>| {
            let mut versions = Versions::default();
            for _ in 0..from.count(branches.len() as u64)? {
                versions.raise(dot(from)?);
            }
            Some(versions)
        };
        let mut part = Part::new(shape.keep);
        part.seen = versions(from)?;
        for _ in 0..from.count(limit as u64)? {
            let dot = dot(from)?;
            let past =
                if matches!(shape.keep, Keep::Recent(_)) { versions(from)? } else { Versions::default() };
            let content = if shape.keep.is_grouped() {
                Content::Groups(Arc::new(decode_groups(shape, from, limit)?))
            } else {
                let mut rows = Vec::new();
                for _ in 0..from.count(limit as u64)? {
                    let (weight, count) = (decode_weight(from)?, decode_count(from)?);
                    let values = (0..shape.columns).map(|_| from.value()).collect::<Option<_>>()?;
                    rows.push(Packed { values, count, weight });
                }
                Content::Rows(rows.into())
            };
            // In order and without doubles, so that a search finds each one.
            if part.entries.last().is_some_and(|last| last.dot >= dot) {
                return None;
            }
            part.entries.push(Entry::new(dot, past, content));
        }
        Some(part)
    }
}
