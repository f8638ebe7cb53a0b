//! Numbers that nobody outside the process can guess.

use std::hash::{BuildHasher as _, RandomState};

/// `RandomState` is seeded by the operating system: a secret without another dependency.
pub(crate) fn secret() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
