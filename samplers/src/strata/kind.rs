//! The kind of a call tree.

use crate::mix::mix;

/// Hashes the set of names and depths of a call tree's spans. How often a name occurs at a depth,
/// and below which span, does not count, so that loops of any length are of one kind. The hash is
/// the same in every process.
#[derive(Clone, Debug, Default)]
pub struct Kind(Vec<u64>);

impl Kind {
    /// Adds a span; the root's depth is 0. Names should have their ids folded
    /// ([`Template`](crate::Template)), or each tree is of its own kind.
    pub fn add(&mut self, name: &str, depth: usize) {
        self.0.push(mix(crate::table::hash(name.as_bytes()) ^ mix(depth as u64)));
    }

    /// The hash. Leaves no spans.
    pub fn take(&mut self) -> u64 {
        self.0.sort_unstable();
        self.0.dedup();
        self.0.drain(..).fold(0, |hash, one| mix(hash ^ one))
    }
}
