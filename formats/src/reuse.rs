//! A cache of resources and scopes, keyed by their source text, so that a million spans share a few
//! allocations.

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::fast::RandomState;

/// The total size of the cached keys in bytes. The cache is cleared when it would exceed this size.
const BYTES_MAX: usize = 4 << 20;

/// Maps source text or bytes to the value made from them.
#[derive(Debug)]
pub(super) struct Reuse<T> {
    made: HashMap<Box<[u8]>, Arc<T>, RandomState>,
    bytes: usize,
    key: Vec<u8>,
    /// The value of the last lookup and its key. Most lookups repeat the previous one.
    last: Option<Arc<T>>,
    last_key: Vec<u8>,
}

impl<T> Default for Reuse<T> {
    fn default() -> Self {
        Self { made: HashMap::default(), bytes: 0, key: Vec::new(), last: None, last_key: Vec::new() }
    }
}

impl<T> Reuse<T> {
    /// Returns the value cached for these parts, or makes it.
    pub(super) fn get_or_make(&mut self, parts: &[impl AsRef<[u8]>], make: impl FnOnce() -> T) -> Arc<T> {
        match self.try_get_or_make(parts, || Ok::<T, std::convert::Infallible>(make())) {
            Ok(made) => made,
            Err(never) => match never {},
        }
    }

    /// Like [`get_or_make`](Self::get_or_make), but `make` can fail.
    pub(super) fn try_get_or_make<E>(
        &mut self,
        parts: &[impl AsRef<[u8]>],
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        self.key.clear();
        for part in parts.iter().map(AsRef::as_ref) {
            // The length prefix distinguishes ("ab", "c") from ("a", "bc").
            self.key.extend_from_slice(&part.len().to_le_bytes());
            self.key.extend_from_slice(part);
        }
        if let Some(last) = &self.last
            && self.last_key == self.key
        {
            return Ok(Arc::clone(last));
        }
        let made = self.look_up_or_make(make)?;
        if self.key.len() <= BYTES_MAX {
            self.last = Some(Arc::clone(&made));
            std::mem::swap(&mut self.last_key, &mut self.key);
        }
        Ok(made)
    }

    /// Looks `self.key` up in the table, or makes its value.
    fn look_up_or_make<E>(&mut self, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        if let Some(made) = self.made.get(self.key.as_slice()) {
            return Ok(Arc::clone(made));
        }
        let made = Arc::new(make()?);
        if self.key.len() <= BYTES_MAX {
            self.bytes += self.key.len();
            if self.bytes > BYTES_MAX {
                self.made.clear();
                self.bytes = self.key.len();
            }
            self.made.insert(self.key.as_slice().into(), Arc::clone(&made));
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_and_different_ones_do_not() {
        let mut reuse = Reuse::default();
        let first = reuse.get_or_make(&["ab", "c"], || 1);
        assert!(Arc::ptr_eq(&first, &reuse.get_or_make(&["ab", "c"], || 2)));
        assert_eq!(*reuse.get_or_make(&["a", "bc"], || 3), 3);
    }

    #[test]
    fn failures_are_not_remembered() {
        let mut reuse = Reuse::default();
        assert_eq!(reuse.try_get_or_make(&["x"], || Err("no")), Err("no"));
        assert_eq!(reuse.try_get_or_make(&["x"], || Ok::<_, &str>(5)), Ok(Arc::new(5)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut reuse = Reuse::default();
        let text = "x".repeat(BYTES_MAX / 4);
        for number in 0..20 {
            reuse.get_or_make(&[&text, &number.to_string()], || number);
            assert!(reuse.bytes <= BYTES_MAX);
            assert!(reuse.made.len() <= 4);
        }
        let larger = "x".repeat(BYTES_MAX + 1);
        reuse.get_or_make(&[&larger], || 1);
        assert_eq!(*reuse.get_or_make(&[&larger], || 2), 2);
    }
}
