//! A sorted list whose copies share what they have in common.
//!
//! A bag is copied where a request forks, and changed on each branch. Both take time and memory by
//! the change, not by the bag: a list is cut into pieces, and only the piece that changes is
//! copied.

use std::sync::Arc;

/// Items of a new piece. A piece has at most twice as many.
const PIECE: usize = 128;

/// An item of a list, with its place.
pub(crate) trait Item: Clone {
    /// The place. No two items of a list have the same.
    type Key: Ord + Copy;

    fn key(&self) -> Self::Key;
}

/// A sorted list.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<T> {
    /// A short list, which is copied as a whole.
    few: Vec<T>,
    /// A long list: pieces, none of them empty. Then `few` is empty.
    many: Vec<Arc<Vec<T>>>,
    len: usize,
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Pieces { few: Vec::new(), many: Vec::new(), len: 0 }
    }
}

impl<T: Item> Pieces<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The items in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.few.iter().chain(self.many.iter().flat_map(|piece| piece.iter()))
    }

    /// The items from a key on, in order.
    pub(crate) fn from(&self, key: T::Key) -> impl Iterator<Item = &T> {
        let few = &self.few[self.few.partition_point(|item| item.key() < key)..];
        let at = self.piece_of(key);
        let (first, rest) = match self.many.get(at..).and_then(<[_]>::split_first) {
            Some((first, rest)) => (&first[first.partition_point(|item| item.key() < key)..], rest),
            None => (&[][..], &[][..]),
        };
        few.iter().chain(first).chain(rest.iter().flat_map(|piece| piece.iter()))
    }

    /// The slices of the list that another one does not share, in order.
    pub(crate) fn unshared<'a>(&'a self, other: &'a Pieces<T>) -> impl Iterator<Item = &'a [T]> {
        let is_own = |piece: &&Arc<Vec<T>>| !other.has(piece);
        std::iter::once(&*self.few).chain(self.many.iter().filter(is_own).map(|piece| &***piece))
    }

    /// The slices of the list that another one shares, in order.
    pub(crate) fn shared<'a>(&'a self, other: &'a Pieces<T>) -> impl Iterator<Item = &'a [T]> {
        self.many.iter().filter(|piece| other.has(piece)).map(|piece| &***piece)
    }

    fn has(&self, piece: &Arc<Vec<T>>) -> bool {
        let own = piece.first().and_then(|first| self.many.get(self.piece_of(first.key())));
        own.is_some_and(|own| Arc::ptr_eq(own, piece))
    }

    /// The number of the piece in which a key would be.
    fn piece_of(&self, key: T::Key) -> usize {
        let is_before = |piece: &Arc<Vec<T>>| piece.first().is_some_and(|first| first.key() <= key);
        self.many.partition_point(is_before).saturating_sub(1)
    }

    pub(crate) fn find(&self, key: T::Key) -> Option<&T> {
        let piece = match self.many.is_empty() {
            true => &self.few,
            false => &**self.many.get(self.piece_of(key))?,
        };
        piece.binary_search_by_key(&key, Item::key).ok().map(|at| &piece[at])
    }

    /// Changes an item, whose key must stay.
    pub(crate) fn change(&mut self, key: T::Key, change: impl FnOnce(&mut T)) {
        let of = self.piece_of(key);
        let piece = match self.many.get_mut(of) {
            Some(piece) => Arc::make_mut(piece),
            None => &mut self.few,
        };
        if let Ok(at) = piece.binary_search_by_key(&key, Item::key) {
            change(&mut piece[at]);
        }
    }

    /// Adds an item whose key is new.
    pub(crate) fn insert(&mut self, item: T) {
        self.len += 1;
        let key = item.key();
        let of = self.piece_of(key);
        let piece = match self.many.get_mut(of) {
            Some(piece) => Arc::make_mut(piece),
            None => &mut self.few,
        };
        // Most come in order.
        let at = match piece.last() {
            Some(last) if last.key() > key => piece.partition_point(|item| item.key() < key),
            _ => piece.len(),
        };
        piece.insert(at, item);
        if piece.len() < 2 * PIECE {
            return;
        }
        let upper = piece.split_off(PIECE);
        if self.many.is_empty() {
            self.many = vec![Arc::new(std::mem::take(&mut self.few)), Arc::new(upper)];
        } else {
            self.many.insert(of + 1, Arc::new(upper));
        }
    }

    pub(crate) fn remove(&mut self, key: T::Key) -> Option<T> {
        let of = self.piece_of(key);
        if self.many.is_empty() {
            let at = self.few.binary_search_by_key(&key, Item::key).ok()?;
            self.len -= 1;
            return Some(self.few.remove(at));
        }
        let at = self.many.get(of)?.binary_search_by_key(&key, Item::key).ok()?;
        self.len -= 1;
        let piece = Arc::make_mut(&mut self.many[of]);
        let removed = piece.remove(at);
        if piece.is_empty() {
            self.many.remove(of);
        }
        Some(removed)
    }

    pub(crate) fn last(&self) -> Option<&T> {
        self.few.last().or_else(|| self.many.last()?.last())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use astracer_testing::{SplitMix, size};

    use super::*;

    impl Item for (u64, u64) {
        type Key = u64;

        fn key(&self) -> u64 {
            self.0
        }
    }

    /// Copies and changes in any order, beside maps of the standard library.
    #[test]
    fn lists_are_those_of_a_map() {
        for seed in 0..size(300, 10_000) as u64 {
            let mut random = SplitMix::new(seed);
            let mut all = vec![(Pieces::<(u64, u64)>::default(), BTreeMap::new()); 4];
            let mut at = 0;
            for _ in 0..random.index(80) {
                let key = random.below(2000);
                match random.index(12) {
                    0 => all[random.index(4)] = all[at].clone(),
                    1..=3 => at = random.index(4),
                    4 | 5 => {
                        let (list, map) = &mut all[at];
                        assert_eq!(list.remove(key).map(|item| item.1), map.remove(&key), "{seed}");
                    }
                    kind => {
                        let (list, map) = &mut all[at];
                        let len = if kind < 8 { random.below(600) } else { 1 };
                        for key in key..key + len {
                            if map.insert(key, seed + len).is_none() {
                                list.insert((key, seed + len));
                            } else {
                                list.change(key, |item| item.1 = seed + len);
                            }
                        }
                    }
                }
            }
            let from = random.below(2000);
            for (list, map) in &all {
                let items: Vec<_> = map.iter().map(|(&key, &value)| (key, value)).collect();
                assert_eq!(list.iter().copied().collect::<Vec<_>>(), items, "{seed}");
                assert_eq!((list.len(), list.last()), (items.len(), items.last()), "{seed}");
                assert_eq!(list.find(from).map(|item| &item.1), map.get(&from), "{seed}");
                let behind: Vec<_> = map.range(from..).map(|(&key, &value)| (key, value)).collect();
                assert_eq!(list.from(from).copied().collect::<Vec<_>>(), behind, "{seed}");
                for (other, of_other) in &all {
                    let mut both: Vec<_> = list.shared(other).chain(list.unshared(other)).flatten().collect();
                    both.sort();
                    assert_eq!(both, items.iter().collect::<Vec<_>>(), "{seed}");
                    let is_theirs = |item: &(u64, u64)| of_other.get(&item.0) == Some(&item.1);
                    assert!(list.shared(other).flatten().all(is_theirs), "{seed}");
                }
            }
        }
    }
}
