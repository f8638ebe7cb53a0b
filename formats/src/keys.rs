//! Detects repeated keys in one object.

use std::collections::HashSet;

use rapidhash::fast::RandomState;
use smallvec::SmallVec;

/// The keys of one object. A 64-bit filter recognises most new keys at once. Only if the filter
/// matches are the keys compared one by one, which for the few keys of an object is faster than
/// hashing them.
#[derive(Default)]
pub(super) struct Keys<'k> {
    /// The filter: one bit for each filter value of an inserted key.
    looks: u64,
    few: SmallVec<[&'k str; 32]>,
    many: Option<HashSet<&'k str, RandomState>>,
}

impl<'k> Keys<'k> {
    /// Inserts a key; returns false if it was present.
    #[inline]
    pub(super) fn insert(&mut self, key: &'k str) -> bool {
        let look = 1 << look(key);
        let known = self.looks & look != 0 && self.contains(key);
        self.looks |= look;
        if !known {
            if self.few.len() < self.few.inline_size() {
                self.few.push(key);
            } else {
                self.many.get_or_insert_default().insert(key);
            }
        }
        !known
    }

    fn contains(&self, key: &str) -> bool {
        self.few.contains(&key) || self.many.as_ref().is_some_and(|many| many.contains(key))
    }

    /// Returns true before the first insertion.
    pub(super) fn is_empty(&self) -> bool {
        self.looks == 0
    }
}

/// A number below 64 that is equal for equal keys and rarely equal for others: the key's length and
/// two of its bytes, mixed by multiplication (2^64 divided by the golden ratio).
#[inline]
fn look(key: &str) -> u32 {
    let byte = |at: usize| u64::from(key.as_bytes().get(at).copied().unwrap_or(0));
    let mixed = key.len() as u64 | byte(key.len() / 2) << 8 | byte(key.len().wrapping_sub(1)) << 16;
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_new_once_be_they_few_or_many() {
        let names: Vec<_> = (0..200).map(|number| format!("key.{number}")).collect();
        let mut keys = Keys::default();
        assert!(keys.is_empty());
        for (index, name) in names.iter().enumerate() {
            assert!(keys.insert(name), "{name}");
            assert!(!keys.is_empty());
            assert!(names[..=index].iter().all(|known| !keys.insert(known)), "{name}");
        }
        assert!(keys.insert(""));
        assert!(!keys.insert(""));
    }
}
