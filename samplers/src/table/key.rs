//! A key's bytes in atomics, so that a record can change keys while readers compare.
//!
//! A reader that compares while the bytes change sees a mixture, and at worst takes it for the key
//! that is leaving. The table keeps a record unused for a while before it changes keys, so even
//! that needs a thread that is suspended for as long.
//!
//! All accesses are relaxed: the index publishes the bytes together with the record.

use std::borrow::Cow;

use crate::sync::{AtomicU64, Ordering};

const WORDS: usize = 11;
/// The greatest length of a key that is stored in full.
const BYTES: usize = WORDS * 8;
/// The number of bytes stored of a longer key, beside a second hash of the whole key.
const PREFIX: usize = BYTES - 8;
/// The seed of the second hash: bits of the golden ratio, so that it differs from the first hash.
const SECOND_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug)]
pub(super) struct Key {
    length: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// Splits up to 88 bytes into little-endian words: the full ones, and a last one padded with zeros.
#[inline]
fn words(bytes: &[u8]) -> (&[[u8; 8]], Option<u64>) {
    let (full, rest) = bytes.as_chunks::<8>();
    let last = (!rest.is_empty()).then(|| match bytes.last_chunk::<8>() {
        // The last eight bytes, shifted past those that the previous word holds: one load, no loop
        // over bytes.
        Some(eight) => u64::from_le_bytes(*eight) >> (8 * (8 - rest.len())),
        None => rest.iter().rev().fold(0, |word, &byte| (word << 8) | u64::from(byte)),
    });
    (full, last)
}

fn second_hash(bytes: &[u8]) -> u64 {
    use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};
    const SECRETS: RapidSecrets = RapidSecrets::seed(SECOND_SEED);
    rapidhash_v3_inline::<true, false, false>(bytes, &SECRETS)
}

impl Key {
    pub(super) fn new() -> Self {
        Key { length: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// The number of 64-bit numbers that store a key.
    pub(super) const NUMBERS: usize = WORDS + 1;

    /// The key as it is stored: its length, then the words.
    pub(super) fn raw(&self) -> [u64; Self::NUMBERS] {
        std::array::from_fn(|at| match at.checked_sub(1) {
            None => self.length.load(Ordering::Relaxed),
            Some(word) => self.words[word].load(Ordering::Relaxed),
        })
    }

    /// Stores a key in the form that [`Key::raw`] returns. Other numbers result in a key that
    /// equals no text.
    pub(super) fn set_raw(&self, raw: [u64; Self::NUMBERS]) {
        self.length.store(raw[0], Ordering::Relaxed);
        for (place, word) in self.words.iter().zip(&raw[1..]) {
            place.store(*word, Ordering::Relaxed);
        }
    }

    pub(super) fn set(&self, key: &str) {
        let bytes = key.as_bytes();
        self.length.store(bytes.len() as u64, Ordering::Relaxed);
        let kept = if bytes.len() <= BYTES { bytes } else { &bytes[..PREFIX] };
        let (full, last) = words(kept);
        for (place, word) in self.words.iter().zip(full.iter().copied().map(u64::from_le_bytes).chain(last)) {
            place.store(word, Ordering::Relaxed);
        }
        if bytes.len() > BYTES {
            self.words[WORDS - 1].store(second_hash(bytes), Ordering::Relaxed);
        }
    }

    /// Returns true if the stored key is `key`, given that the first hashes are equal. Certain for
    /// keys of up to 88 bytes; for longer ones, the length, the first 80 bytes and 128 bits of
    /// hashes agree.
    #[inline]
    pub(super) fn is(&self, key: &str) -> bool {
        let bytes = key.as_bytes();
        if self.length.load(Ordering::Relaxed) != bytes.len() as u64 {
            return false;
        }
        if bytes.len() > BYTES {
            return self.is_long(bytes);
        }
        self.begins_with(bytes)
    }

    #[inline]
    fn begins_with(&self, bytes: &[u8]) -> bool {
        let (full, last) = words(bytes);
        let mut places = self.words.iter().map(|place| place.load(Ordering::Relaxed));
        full.iter().all(|word| places.next() == Some(u64::from_le_bytes(*word)))
            && last.is_none_or(|word| places.next() == Some(word))
    }

    #[cold]
    fn is_long(&self, bytes: &[u8]) -> bool {
        self.begins_with(&bytes[..PREFIX])
            && self.words[WORDS - 1].load(Ordering::Relaxed) == second_hash(bytes)
    }

    /// The key as text; for a long one its beginning, and an ellipsis.
    pub(super) fn text(&self) -> String {
        let length = usize::try_from(self.length.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let bytes: Vec<u8> =
            self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        if length <= BYTES {
            return String::from_utf8_lossy(&bytes[..length]).into_owned();
        }
        shortened(&bytes[..PREFIX])
    }
}

/// A key as it is shown in counts: in full up to 88 bytes, otherwise its first 80 bytes, without an
/// incomplete character, and an ellipsis. Longer keys with the same beginning are shown alike.
pub fn shown_key(key: &str) -> Cow<'_, str> {
    if key.len() <= BYTES { Cow::Borrowed(key) } else { Cow::Owned(shortened(&key.as_bytes()[..PREFIX])) }
}

fn shortened(prefix: &[u8]) -> String {
    // The cut may be within a character.
    let whole = prefix.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    format!("{whole}…")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(key: &str, text: &str) {
        let held = Key::new();
        held.set(key);
        assert!(held.is(key), "{key}");
        assert_eq!((&*held.text(), &*shown_key(key)), (text, text));
    }

    #[test]
    fn holds_keys_of_every_length() {
        for length in 0..=BYTES {
            let key: String = ('a'..='z').cycle().take(length).collect();
            check(&key, &key);
        }
        let long: String = ('a'..='z').cycle().take(BYTES + 1).collect();
        check(&long, &format!("{}…", &long[..PREFIX]));
        // 'é' is two bytes: the cut at 80 would split one if the key began one byte earlier.
        check(&format!("x{}", "é".repeat(60)), &format!("x{}…", "é".repeat(39)));
    }

    #[test]
    fn distinguishes_keys_in_each_byte() {
        for length in [1, 7, 8, 9, 20, 80, 81, 87, 88, 89, 200] {
            let key = "k".repeat(length);
            let held = Key::new();
            held.set(&key);
            for at in 0..length {
                let mut other = key.clone();
                other.replace_range(at..=at, "x");
                assert!(!held.is(&other), "{length} bytes, another at {at}");
            }
            assert!(!held.is(&key[1..]) && !held.is(&format!("{key}k")) && !held.is(&format!("{key}\0")));
        }
    }

    proptest! {
        #[test]
        fn is_only_the_key_that_was_set(first in ".{0,100}", second in ".{0,100}") {
            let held = Key::new();
            held.set(&first);
            held.set(&second);
            prop_assert!(held.is(&second));
            prop_assert_eq!(held.is(&first), first == second);
        }
    }
}
