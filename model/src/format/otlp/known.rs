//! Resources and scopes by their bytes, so that each is made once and shared by all of its spans.

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::fast::RandomState;

/// So many are remembered, each of so many bytes at most.
const COUNT_MAX: usize = 256;
const BYTES_MAX: usize = 16 << 10;

/// Remembers what was made from which bytes.
pub(in crate::format) struct Known<T> {
    made: HashMap<Box<[u8]>, Arc<T>, RandomState>,
    key: Vec<u8>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { made: HashMap::default(), key: Vec::new() }
    }
}

impl<T> Known<T> {
    /// What was made from a schema URL and some bytes before, or is made of them now. Failures are not remembered.
    pub(in crate::format) fn get_or_make<E>(
        &mut self,
        schema_url: &str,
        bytes: &[u8],
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        self.key.clear();
        self.key.extend_from_slice(&schema_url.len().to_le_bytes());
        self.key.extend_from_slice(schema_url.as_bytes());
        self.key.extend_from_slice(bytes);
        if let Some(made) = self.made.get(&*self.key) {
            return Ok(Arc::clone(made));
        }
        let made = Arc::new(make()?);
        if self.key.len() <= BYTES_MAX {
            if self.made.len() >= COUNT_MAX {
                self.made.clear();
            }
            self.made.insert(self.key.as_slice().into(), Arc::clone(&made));
        }
        Ok(made)
    }
}
