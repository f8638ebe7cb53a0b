//! Resources and scopes that are made once for equal text, so that a million spans share a handful.

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::fast::RandomState;

/// Bytes of text that are remembered. When they are used up, everything is forgotten and made anew.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// Remembers what was made from which text.
#[derive(Debug)]
pub(super) struct Reuse<T> {
    made: HashMap<Box<str>, Arc<T>, RandomState>,
    text_bytes: usize,
    key: String,
}

impl<T> Default for Reuse<T> {
    fn default() -> Self {
        Self { made: HashMap::default(), text_bytes: 0, key: String::new() }
    }
}

impl<T> Reuse<T> {
    /// What was made from these texts before, or what `make` makes of them now.
    pub(super) fn get_or_make(&mut self, texts: &[&str], make: impl FnOnce() -> T) -> Arc<T> {
        match self.try_get_or_make(texts, || Ok::<T, std::convert::Infallible>(make())) {
            Ok(made) => made,
            Err(never) => match never {},
        }
    }

    /// The same for what may fail to be made.
    pub(super) fn try_get_or_make<E>(
        &mut self,
        texts: &[&str],
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        self.key.clear();
        for text in texts {
            // A length in front keeps ("ab", "c") and ("a", "bc") apart.
            self.key.extend(text.len().to_le_bytes().map(char::from));
            self.key.push_str(text);
        }
        if let Some(made) = self.made.get(self.key.as_str()) {
            return Ok(Arc::clone(made));
        }
        let made = Arc::new(make()?);
        if self.key.len() <= TEXT_BYTES_MAX {
            self.text_bytes += self.key.len();
            if self.text_bytes > TEXT_BYTES_MAX {
                self.made.clear();
                self.text_bytes = self.key.len();
            }
            self.made.insert(self.key.as_str().into(), Arc::clone(&made));
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
        let text = "x".repeat(TEXT_BYTES_MAX / 4);
        for number in 0..20 {
            reuse.get_or_make(&[&text, &number.to_string()], || number);
            assert!(reuse.text_bytes <= TEXT_BYTES_MAX);
            assert!(reuse.made.len() <= 4);
        }
        let larger = "x".repeat(TEXT_BYTES_MAX + 1);
        reuse.get_or_make(&[&larger], || 1);
        assert_eq!(*reuse.get_or_make(&[&larger], || 2), 2);
    }
}
