//! The entries of a bag: the rows that events packed, with each event's place in the causal order.

use std::sync::Arc;

use crate::advice::{Keep, Shape};
use crate::group::{
    Group, Groups, Key, decode_count, decode_groups, decode_weight, encode_groups, encode_weight, group_size,
};
use crate::pieces::{Item, Pieces};
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
pub(crate) struct Versions(Pieces<Dot>);

/// The highest counter of a branch, by the branch.
impl Item for Dot {
    type Key = u64;

    fn key(&self) -> u64 {
        self.branch
    }
}

impl Versions {
    pub(crate) fn includes(&self, dot: Dot) -> bool {
        self.0.find(dot.branch).is_some_and(|known| known.counter >= dot.counter)
    }

    pub(crate) fn raise(&mut self, dot: Dot) {
        match self.0.find(dot.branch) {
            Some(known) if known.counter >= dot.counter => {}
            Some(_) => self.0.change(dot.branch, |known| known.counter = dot.counter),
            None => self.0.insert(dot),
        }
    }

    fn merge(&mut self, other: &Versions) {
        let mut smaller = other.clone();
        if smaller.0.len() > self.0.len() {
            std::mem::swap(&mut smaller, self);
        }
        for dot in smaller.0.unshared(&self.0.clone()).flatten() {
            self.raise(*dot);
        }
    }

    pub(crate) fn dots(&self) -> impl Iterator<Item = Dot> + '_ {
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
    /// With MostRecent, the entries that have this one in their past; fewer than the number kept.
    pub(crate) later: Vec<Dot>,
    pub(crate) content: Content,
    size: usize,
}

impl Item for Entry {
    type Key = (u64, u64);

    fn key(&self) -> (u64, u64) {
        (self.dot.branch, self.dot.counter)
    }
}

impl Entry {
    fn new(dot: Dot, later: Vec<Dot>, content: Content) -> Entry {
        let size = 4 + 3 * later.len() + content.size();
        Entry { dot, later, content, size }
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
    /// With MostRecent, every event that packed here, also those whose entries are dropped.
    pub(crate) seen: Versions,
    /// In the order of their dots.
    pub(crate) entries: Pieces<Entry>,
    /// The sums over all entries.
    sums: Room,
}

impl Part {
    pub(crate) fn new(keep: Keep) -> Part {
        let sums = Room { entries: 0, bytes: 0 };
        Part { keep, seen: Versions::default(), entries: Pieces::default(), sums }
    }

    /// The entries and bytes it takes.
    pub(crate) fn used(&self) -> Room {
        Room { entries: self.sums.entries, bytes: 4 + self.seen.size() + self.sums.bytes }
    }

    fn insert(&mut self, entry: Entry) {
        self.sums.entries += entry.content.entries();
        self.sums.bytes += entry.size;
        self.entries.insert(entry);
    }

    fn remove(&mut self, dot: Dot) -> Option<Entry> {
        let entry = self.entries.remove((dot.branch, dot.counter))?;
        self.sums.entries -= entry.content.entries();
        self.sums.bytes -= entry.size;
        Some(entry)
    }

    /// The running groups of a branch.
    fn of_branch(&self, branch: u64) -> Option<Dot> {
        self.entries.from((branch, 0)).next().map(|entry| entry.dot).filter(|dot| dot.branch == branch)
    }

    /// Adds the rows of an event. False if there was no room for all of them.
    pub(crate) fn pack(&mut self, dot: Dot, rows: Vec<Packed>, room: Room) -> bool {
        match self.keep {
            Keep::First(n) if self.entries.len() >= usize::from(n) => return true,
            Keep::All if rows.is_empty() => return true,
            Keep::Recent(n) => {
                // Every entry is in the past of this one.
                self.supersede(dot, n.into());
                self.seen.raise(dot);
            }
            _ => {}
        }
        let mut entry = Entry::new(dot, Vec::new(), Content::Rows(rows.into()));
        let mut complete = true;
        if entry.size > room.bytes || room.entries == 0 {
            if self.keep == Keep::All {
                return false;
            }
            // Without its rows the entry still keeps others from being chosen in its place.
            entry = Entry::new(dot, Vec::new(), Content::Rows(Arc::new([])));
            complete = false;
        }
        self.insert(entry);
        complete
    }

    /// Notes a later event at each entry, and drops those that have `n`.
    fn supersede(&mut self, dot: Dot, n: usize) {
        if n == 1 {
            (self.entries, self.sums) = (Pieces::default(), Room { entries: 0, bytes: 0 });
            return;
        }
        for own in self.entries.iter().map(|entry| entry.dot).collect::<Vec<_>>() {
            self.note_later(own, &[dot], n);
        }
    }

    /// Notes later events at an entry, and drops it if it has `n`.
    fn note_later(&mut self, of: Dot, later: &[Dot], n: usize) {
        let key = (of.branch, of.counter);
        let Some(entry) = self.entries.find(key) else { return };
        let new: Vec<Dot> = later.iter().filter(|dot| !entry.later.contains(dot)).copied().collect();
        if new.is_empty() {
            return;
        }
        if entry.later.len() + new.len() >= n {
            self.remove(of);
            return;
        }
        self.sums.bytes += 3 * new.len();
        self.entries.change(key, |entry| {
            entry.size += 3 * new.len();
            entry.later.extend(new);
        });
    }

    /// Adds rows to the running groups of a branch. False if there was no room for all of them.
    pub(crate) fn pack_groups(&mut self, dot: Dot, rows: Vec<(Key, Group)>, mut room: Room) -> bool {
        if rows.is_empty() {
            return true;
        }
        let content = match self.of_branch(dot.branch).and_then(|known| self.remove(known)) {
            Some(entry) => entry.content,
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
            self.insert(Entry::new(dot, Vec::new(), Content::Groups(groups)));
        }
        complete
    }

    /// Unites with the same bag of another branch.
    pub(crate) fn merge(&mut self, other: &Part) {
        if other.entries.len() + other.seen.0.len() > self.entries.len() + self.seen.0.len() {
            let smaller = std::mem::replace(self, other.clone());
            return self.merge(&smaller);
        }
        if let Keep::Recent(n) = self.keep {
            self.drop_seen(other);
            let before = self.entries.clone();
            for entry in other.entries.unshared(&before).flatten() {
                match before.find(entry.key()) {
                    Some(_) => self.note_later(entry.dot, &entry.later, n.into()),
                    // Seen and not here: superseded.
                    None if self.seen.includes(entry.dot) => {}
                    None => self.insert(entry.clone()),
                }
            }
            self.seen.merge(&other.seen);
            return;
        }
        let before = self.entries.clone();
        for entry in other.entries.unshared(&before).flatten() {
            let known = match entry.content {
                Content::Rows(_) => self.entries.find(entry.key()).map(|known| known.dot),
                Content::Groups(_) => self.of_branch(entry.dot.branch),
            };
            match known {
                // The later of two copies of a running aggregate has all of the earlier.
                Some(known) if known < entry.dot => {
                    self.remove(known);
                    self.insert(entry.clone());
                }
                Some(_) => {}
                None => self.insert(entry.clone()),
            }
        }
    }

    /// Drops the entries that another bag has seen and no longer has: it knows enough later ones.
    fn drop_seen(&mut self, other: &Part) {
        let mut dropped = Vec::new();
        let mut check = |entry: &Entry| {
            if other.seen.includes(entry.dot) && other.entries.find(entry.key()).is_none() {
                dropped.push(entry.dot);
            }
        };
        // Among dots that both have seen, only entries that both don't share may differ.
        for seen in other.seen.0.shared(&self.seen.0) {
            let (Some(first), Some(last)) = (seen.first(), seen.last()) else { continue };
            let own = self.entries.from((first.branch, 0));
            own.take_while(|entry| entry.dot.branch <= last.branch).for_each(&mut check);
        }
        for seen in other.seen.0.unshared(&self.seen.0).flatten() {
            let own = self.entries.from((seen.branch, 0));
            own.take_while(|entry| entry.dot.branch == seen.branch).for_each(&mut check);
        }
        dropped.into_iter().for_each(|dot| drop(self.remove(dot)));
    }

    /// Drops entries until `room` holds the rest. False if there were any to drop.
    pub(crate) fn shrink(&mut self, room: Room) -> bool {
        let fits = |used: Room| used.entries <= room.entries && used.bytes <= room.bytes;
        let complete = fits(self.used());
        while !fits(self.used()) {
            let Some(last) = self.entries.last().map(|entry| entry.dot) else { break };
            self.remove(last);
        }
        complete
    }

    pub(crate) fn encode(&self, branch: &impl Fn(u64) -> u64, out: &mut Writer) {
        let dots = |count: usize, dots: &mut dyn Iterator<Item = Dot>, out: &mut Writer| {
            out.number(count as u64);
            for dot in dots {
                out.number(branch(dot.branch));
                out.number(dot.counter);
            }
        };
        dots(self.seen.0.len(), &mut self.seen.dots(), out);
        out.number(self.entries.len() as u64);
        for entry in self.entries.iter() {
            out.number(branch(entry.dot.branch));
            out.number(entry.dot.counter);
            if matches!(self.keep, Keep::Recent(_)) {
                dots(entry.later.len(), &mut entry.later.iter().copied(), out);
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
        let mut part = Part::new(shape.keep);
        for _ in 0..from.count(branches.len() as u64)? {
            part.seen.raise(dot(from)?);
        }
        let mut before = None;
        for _ in 0..from.count(limit as u64)? {
            let own = dot(from)?;
            let later = match shape.keep {
                Keep::Recent(n) => {
                    let count = from.count(u64::from(n).saturating_sub(1))?;
                    (0..count).map(|_| dot(from)).collect::<Option<Vec<_>>>()?
                }
                _ => Vec::new(),
            };
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
            if before.is_some_and(|before| before >= own) {
                return None;
            }
            before = Some(own);
            part.insert(Entry::new(own, later, content));
        }
        Some(part)
    }
}
