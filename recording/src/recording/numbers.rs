//! New numbers for symbols.

use super::NONE;
use crate::intern::{Interner, Symbol};

/// New numbers of symbols, in the order in which they are seen.
pub(super) struct Numbers {
    pub(super) of: Vec<u32>,
    next: u32,
}

impl Numbers {
    pub(super) fn new(count: usize) -> Self {
        Self { of: vec![NONE; count], next: 0 }
    }

    pub(super) fn see(&mut self, symbol: Symbol) {
        let number = &mut self.of[symbol.index()];
        if *number == NONE {
            *number = self.next;
            self.next += 1;
        }
    }

    /// Numbers the symbols that no span has by their names. Returns true if any number is new.
    pub(super) fn is_changed(&mut self, names: &Interner) -> bool {
        let mut unseen: Vec<usize> = (0..self.of.len()).filter(|&symbol| self.of[symbol] == NONE).collect();
        unseen.sort_by_key(|&symbol| names.name(Symbol(symbol as u32)));
        for symbol in unseen {
            self.see(Symbol(symbol as u32));
        }
        !self.of.iter().copied().eq(0..self.of.len() as u32)
    }
}
