//! Interned names: each distinct name is stored once and has a number.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rapidhash::fast::RandomState;

/// The number of a name in an [`Interner`]. Within one interner, equal symbols mean equal names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(pub u32);

impl Symbol {
    /// The symbol as an index into tables.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of names. Each has a [`Symbol`], numbered in order of first use.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    table: HashTable<u32>,
    names: Vec<Box<str>>,
    hasher: RandomState,
}

impl Interner {
    /// Returns the symbol of a name, and adds the name if it is new.
    ///
    /// # Panics
    ///
    /// After 2^32 different names.
    pub fn intern(&mut self, name: &str) -> Symbol {
        let hash = self.hasher.hash_one(name);
        if let Some(&found) = self.table.find(hash, |&index| &*self.names[index as usize] == name) {
            return Symbol(found);
        }
        let index = u32::try_from(self.names.len()).expect("fewer than 2^32 names");
        self.names.push(name.into());
        self.table.insert_unique(hash, index, |&index| self.hasher.hash_one(&*self.names[index as usize]));
        Symbol(index)
    }

    /// The symbol of a name; `None` if the name was never interned.
    pub fn find(&self, name: &str) -> Option<Symbol> {
        let hash = self.hasher.hash_one(name);
        self.table.find(hash, |&index| &*self.names[index as usize] == name).map(|&index| Symbol(index))
    }

    /// The name of a symbol of this interner.
    pub fn name(&self, symbol: Symbol) -> &str {
        &self.names[symbol.index()]
    }

    /// Gives each symbol `n` the number `numbers[n]`; all of them are different and below
    /// [`Self::len`].
    pub(crate) fn renumber(&mut self, numbers: &[u32]) {
        let mut names = vec![Box::default(); self.names.len()];
        for (name, &number) in self.names.drain(..).zip(numbers) {
            names[number as usize] = name;
        }
        self.names = names;
        self.table.iter_mut().for_each(|index| *index = numbers[*index as usize]);
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns true if there are no names.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All names, in the order of their symbols.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renumbered_names_are_found_and_new_ones_follow() {
        let mut interner = Interner::default();
        assert_eq!(["a", "b", "c"].map(|name| interner.intern(name).0), [0, 1, 2]);
        interner.renumber(&[2, 0, 1]);
        assert_eq!(interner.names().collect::<Vec<_>>(), ["b", "c", "a"]);
        assert_eq!(["a", "b", "c", "d"].map(|name| interner.intern(name).0), [2, 0, 1, 3]);
    }

    #[test]
    fn a_name_keeps_its_symbol_while_the_table_grows() {
        let mut interner = Interner::default();
        let symbols: Vec<_> = (0..1000).map(|n| interner.intern(&format!("name {n}"))).collect();
        for (n, &symbol) in symbols.iter().enumerate() {
            let name = format!("name {n}");
            assert_eq!(interner.intern(&name), symbol);
            assert_eq!(interner.find(&name), Some(symbol));
            assert_eq!(interner.name(symbol), name);
        }
        assert_eq!(interner.len(), 1000);
        assert_eq!(interner.find("other"), None);
    }
}
