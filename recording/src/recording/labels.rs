//! Stores the values of the attributes that an intake keeps. Spans with equal values share one set.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rapidhash::fast::RandomState;

use crate::intern::{Interner, Symbol};

/// Sets of values. Each set has an optional value per key.
#[derive(Debug, Default)]
pub(super) struct Labels {
    keys: Vec<String>,
    /// The index in `keys` of the first key that is read from the span only.
    first_own: usize,
    values: Interner,
    /// Set `n` is `sets[n * keys.len()..][..keys.len()]`.
    sets: Vec<Option<Symbol>>,
    table: HashTable<u32>,
    hasher: RandomState,
}

impl Labels {
    pub(super) fn new(keys: &[String], own: &[String]) -> Self {
        Self { keys: [keys, own].concat(), first_own: keys.len(), ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys read from the span or its resource, and the keys read from the span only.
    pub(super) fn keys(&self) -> (&[String], &[String]) {
        self.keys.split_at(self.first_own)
    }

    /// Returns the symbol of the set of these values. For each key, `write` appends the value to
    /// the text, or returns false if there is none. Its second argument is true if the key is read
    /// from the span only.
    pub(super) fn set(
        &mut self,
        text: &mut String,
        mut write: impl FnMut(&str, bool, &mut String) -> bool,
    ) -> Symbol {
        let start = self.sets.len();
        for (at, key) in self.keys.iter().enumerate() {
            text.clear();
            let value = write(key, at >= self.first_own, text).then(|| self.values.intern(text));
            self.sets.push(value);
        }
        self.set_from(start)
    }

    /// The symbol of the set that `sets` has from `start`, which is removed again if it is known.
    fn set_from(&mut self, start: usize) -> Symbol {
        let (known, new) = self.sets.split_at(start);
        let (width, hash) = (self.keys.len(), self.hasher.hash_one(new));
        let of = |set: u32| &known[set as usize * width..][..width];
        if let Some(&set) = self.table.find(hash, |&set| of(set) == new) {
            self.sets.truncate(start);
            return Symbol(set);
        }
        let set = (start / width.max(1)) as u32;
        self.table.insert_unique(hash, set, |&set| self.hasher.hash_one(of(set)));
        Symbol(set)
    }

    /// Returns the symbol of the set that has the values of `own`, and those of `other` for keys
    /// that `own` lacks.
    pub(super) fn merge(&mut self, own: Symbol, other: Symbol) -> Symbol {
        let width = self.keys.len();
        let start = self.sets.len();
        for at in 0..width {
            let value = |set: Symbol| self.sets[set.index() * width + at];
            self.sets.push(value(own).or(value(other)));
        }
        self.set_from(start)
    }

    /// The values of a set, as symbols of [`Self::texts`].
    pub(super) fn symbols(&self, set: Symbol) -> &[Option<Symbol>] {
        let width = self.keys.len();
        &self.sets[set.index() * width..][..width]
    }

    /// For each key, whether any set has a value.
    pub(super) fn found(&self) -> Vec<bool> {
        let width = self.keys.len();
        let mut found = vec![false; width];
        for set in self.sets.chunks_exact(width.max(1)) {
            for (found, value) in found.iter_mut().zip(set) {
                *found |= value.is_some();
            }
        }
        found
    }

    /// The values of all sets.
    pub(super) fn texts(&self) -> &Interner {
        &self.values
    }

    /// The value of each key in a set.
    pub(super) fn values(&self, set: Symbol) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.symbols(set).iter().map(|value| value.map(|value| self.values.name(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_are_shared_and_values_may_hold_anything() {
        let mut labels = Labels::new(&["a".to_owned()], &["b".to_owned()]);
        let mut text = String::new();
        let mut set = |values: [Option<&str>; 2]| {
            let mut values = values.into_iter();
            labels.set(&mut text, |_, _, text| match values.next().flatten() {
                Some(value) => {
                    text.push_str(value);
                    true
                }
                None => false,
            })
        };
        let sets = [[None, None], [Some(""), None], [Some("x b=y"), Some("-")], [None, Some("x b=y")]];
        let symbols = sets.map(&mut set);
        assert_eq!(symbols, [0, 1, 2, 3].map(Symbol));
        assert_eq!(sets.map(set), symbols);
        for (values, symbol) in sets.iter().zip(symbols) {
            assert_eq!(labels.values(symbol).collect::<Vec<_>>(), values);
        }
    }
}
