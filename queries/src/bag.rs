//! Bags: a query's tuples that travel with a request.
//!
//! An entry has a *dot*, its branch of the request and a counter. A MostRecent bag also knows all
//! dots that it has seen, and of each entry the fewer than n others that are later. Where flows
//! join, bags unite by dot: an entry that only one of them has, and the other has seen, was dropped
//! there because n others are later; later ones of an entry that both have are united. First never
//! takes an entry that has n in its past.
//! That is the causal definition exactly, also if an idle branch still carries an entry that a
//! later event has superseded.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::advice::Keep;
use crate::entry::{Dot, Limits, Packed, Part, Room};
use crate::group::{Group, Key};
use crate::plan::Plan;
use crate::wire::{Reader, Writer};

/// The version of a bag's bytes.
const VERSION: u8 = 1;
/// The bits of a branch's number.
pub(crate) const BRANCH_BITS: u32 = 48;

/// The tuples of a query at a place of a request's flow.
///
/// A bag is not `Clone`: two flows must not pack as the same branch. [`Bag::split`] makes the bag
/// of a flow that forks.
#[derive(Debug)]
pub struct Bag {
    /// The branch of the request; a copy has none before it packs.
    branch: Option<u64>,
    counter: u64,
    marked: bool,
    incomplete: bool,
    limits: Limits,
    parts: BTreeMap<u8, Arc<Part>>,
}

impl Bag {
    /// The bag of a request that begins here. A bag that lost its flow has no mark.
    pub fn begin(limits: Limits) -> Bag {
        Bag { marked: true, ..Bag::lost(limits) }
    }

    /// The bag of a point whose causes are unknown. A join that finds it is counted by tracepoint.
    pub fn lost(limits: Limits) -> Bag {
        Bag { branch: None, counter: 0, marked: false, incomplete: false, limits, parts: BTreeMap::new() }
    }

    /// The bag of a flow that forks from this one. Nothing is copied before one of them packs.
    pub fn split(&self) -> Bag {
        Bag {
            branch: None,
            counter: 0,
            marked: self.marked,
            incomplete: self.incomplete,
            limits: self.limits,
            parts: self.parts.clone(),
        }
    }

    /// Joins a flow that ends here.
    pub fn merge(&mut self, other: Bag) {
        self.marked |= other.marked;
        self.incomplete |= other.incomplete;
        if self.branch.is_none() {
            (self.branch, self.counter) = (other.branch, other.counter);
        }
        let mut changed = false;
        for (bag, part) in other.parts {
            match self.parts.get_mut(&bag) {
                None => {
                    self.parts.insert(bag, part);
                }
                Some(known) if Arc::ptr_eq(known, &part) => continue,
                Some(known) => Arc::make_mut(known).merge(&part),
            }
            changed = true;
        }
        if changed {
            self.shrink();
        }
    }

    /// Whether rows are missing because a bound was reached.
    pub fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Whether the request began under the query, so that no earlier tuple is unknown.
    pub fn is_marked(&self) -> bool {
        self.marked
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn part(&self, bag: u8) -> Option<&Part> {
        self.parts.get(&bag).map(|part| &**part)
    }

    fn room(&self) -> Room {
        let mut room = Room { entries: self.limits.entries, bytes: self.limits.bytes };
        for part in self.parts.values() {
            let used = part.used();
            room.entries = room.entries.saturating_sub(used.entries);
            room.bytes = room.bytes.saturating_sub(used.bytes);
        }
        room
    }

    fn shrink(&mut self) {
        let mut room = Room { entries: self.limits.entries, bytes: self.limits.bytes };
        for part in self.parts.values_mut() {
            let used = part.used();
            if used.entries > room.entries || used.bytes > room.bytes {
                Arc::make_mut(part).shrink(room);
                self.incomplete = true;
            }
            let used = part.used();
            room.entries = room.entries.saturating_sub(used.entries);
            room.bytes = room.bytes.saturating_sub(used.bytes);
        }
    }

    /// The identity of the next event that packs. `draw` gives a new branch's number.
    pub(crate) fn dot(&mut self, draw: impl FnOnce() -> u64) -> Dot {
        let branch = *self.branch.get_or_insert_with(draw);
        self.counter += 1;
        Dot { branch, counter: self.counter }
    }

    pub(crate) fn pack(&mut self, bag: u8, keep: Keep, dot: Dot, rows: Vec<Packed>) {
        let room = self.room();
        let part = self.parts.entry(bag).or_insert_with(|| Arc::new(Part::new(keep)));
        self.incomplete |= !Arc::make_mut(part).pack(dot, rows, room);
    }

    pub(crate) fn pack_groups(&mut self, bag: u8, keep: Keep, dot: Dot, rows: Vec<(Key, Group)>) {
        let room = self.room();
        let part = self.parts.entry(bag).or_insert_with(|| Arc::new(Part::new(keep)));
        self.incomplete |= !Arc::make_mut(part).pack_groups(dot, rows, room);
    }

    /// The bag as a message of up to `room` bytes, for a flow that goes on in another process. One
    /// that is larger becomes an empty bag that is not complete.
    pub fn encode(&self, room: usize) -> Vec<u8> {
        let mut branches = Vec::new();
        for part in self.parts.values() {
            branches.extend(part.seen.dots().map(|dot| dot.branch));
            for entry in part.entries.iter() {
                branches.push(entry.dot.branch);
                branches.extend(entry.later.iter().map(|dot| dot.branch));
            }
        }
        branches.sort_unstable();
        branches.dedup();
        let mut out = Writer::default();
        out.byte(VERSION);
        out.byte(u8::from(self.marked) | u8::from(self.incomplete) << 1);
        out.number(branches.len() as u64);
        let mut before = 0;
        for &branch in &branches {
            out.number(branch - before);
            before = branch;
        }
        out.number(self.parts.len() as u64);
        let index = |branch: u64| branches.binary_search(&branch).unwrap_or_default() as u64;
        for (&bag, part) in &self.parts {
            out.byte(bag);
            part.encode(&index, &mut out);
        }
        let bytes = out.into_bytes();
        if bytes.len() <= room {
            return bytes;
        }
        vec![VERSION, u8::from(self.marked) | 2, 0, 0]
    }

    /// The bytes of a bag without rows.
    pub(crate) const EMPTY_BYTES: usize = 4;

    /// A message without its rows, which it no longer claims to have.
    pub(crate) fn emptied(message: &[u8]) -> [u8; Self::EMPTY_BYTES] {
        let flags = message.get(1).map_or(0, |flags| flags & 1);
        [message.first().copied().unwrap_or(VERSION), flags | 2, 0, 0]
    }

    /// Reads a message of [`Bag::encode`] for the same plan.
    pub fn decode(bytes: &[u8], plan: &Plan, limits: Limits) -> Result<Bag, BagError> {
        match bytes.first() {
            Some(&VERSION) => {}
            Some(&version) => return Err(BagError::Version(version)),
            None => return Err(BagError::Malformed),
        }
        Bag::read(&mut Reader::new(&bytes[1..]), plan, limits).ok_or(BagError::Malformed)
    }

    fn read(from: &mut Reader<'_>, plan: &Plan, limits: Limits) -> Option<Bag> {
        let flags = from.byte().filter(|flags| *flags < 4)?;
        let mut bag = Bag::lost(limits);
        bag.marked = flags & 1 != 0;
        bag.incomplete = flags & 2 != 0;
        let mut branches = Vec::new();
        let mut before = 0_u64;
        for _ in 0..from.count(u64::MAX)? {
            before = before.checked_add(from.number()?).filter(|branch| branch >> BRANCH_BITS == 0)?;
            branches.push(before);
        }
        for _ in 0..from.count(u64::MAX)? {
            let index = from.byte()?;
            let part = Part::decode(plan.shapes.get(&index)?, &branches, from, limits.entries)?;
            if bag.parts.insert(index, Arc::new(part)).is_some() {
                return None;
            }
        }
        if !from.is_empty() {
            return None;
        }
        bag.shrink();
        Some(bag)
    }
}

/// A message that is not a bag of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BagError {
    /// It has another version.
    Version(u8),
    /// It breaks the format, or belongs to another plan.
    Malformed,
}

impl fmt::Display for BagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BagError::Version(version) => {
                write!(f, "the bag has version {version}; this process reads version {VERSION}")
            }
            BagError::Malformed => f.write_str("the bytes are not a bag of this query"),
        }
    }
}

impl std::error::Error for BagError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Program, Rewrite, Value};

    /// The plan of a query with two bags, and a message that has one row in each. The first byte of
    /// each part is its bag; the fields before them take a byte each.
    fn message() -> (Plan, [u8; 4], Vec<Vec<u8>>) {
        let text = "From a In a Join b In b On b -> a Join c In c On c -> a Select b.v, c.v";
        let plan = Program::parse(text).unwrap().plan(Rewrite::ALL).unwrap();
        let parts = plan.shapes.iter().map(|(&index, shape)| {
            let mut bag = Bag::begin(Limits::LIVE);
            let dot = bag.dot(|| 5);
            let values = vec![Value::Int(1); shape.columns].into();
            bag.pack(index, shape.keep, dot, vec![Packed { values, count: 1, weight: 1.0 }]);
            let bytes = bag.encode(usize::MAX);
            assert_eq!(bytes[..5], [VERSION, 1, 1, 5, 1]);
            bytes[5..].to_vec()
        });
        let parts: Vec<Vec<u8>> = parts.collect();
        assert_eq!(parts.len(), 2);
        (plan, [VERSION, 1, 1, 5], parts)
    }

    fn decode(plan: &Plan, bytes: &[u8]) -> Result<usize, BagError> {
        Bag::decode(bytes, plan, Limits::LIVE).map(|bag| bag.parts.len())
    }

    #[test]
    fn a_message_has_each_part_once() {
        let (plan, head, parts) = message();
        let of = |chosen: &[usize]| {
            let mut bytes = head.to_vec();
            bytes.push(chosen.len() as u8);
            chosen.iter().for_each(|&index| bytes.extend(&parts[index]));
            decode(&plan, &bytes)
        };
        assert_eq!((of(&[]), of(&[1]), of(&[0, 1])), (Ok(0), Ok(1), Ok(2)));
        assert_eq!((of(&[0, 0]), of(&[0, 1, 0])), (Err(BagError::Malformed), Err(BagError::Malformed)));
    }

    #[test]
    fn a_message_that_breaks_the_format_is_refused() {
        let (plan, head, parts) = message();
        let whole = [&head[..], &[1], &parts[0]].concat();
        assert_eq!(decode(&plan, &whole), Ok(1));
        let with = |at: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            decode(&plan, &bytes)
        };
        assert_eq!(with(0, VERSION + 1), Err(BagError::Version(VERSION + 1)));
        assert_eq!(with(1, 4), Err(BagError::Malformed), "an unknown flag");
        assert_eq!(with(5, u8::MAX), Err(BagError::Malformed), "a bag that the plan does not have");
        for end in 0..whole.len() {
            assert_eq!(decode(&plan, &whole[..end]), Err(BagError::Malformed), "cut at {end}");
        }
        assert_eq!(decode(&plan, &[&whole[..], &[0]].concat()), Err(BagError::Malformed), "a byte more");
    }
}
