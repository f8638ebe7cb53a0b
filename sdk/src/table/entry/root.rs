//! The parts of an entry by which the end of a local root is counted.

use astracer_samplers::tail::KeyNumber;

use super::Entry;
use crate::sync::Ordering;

impl Entry {
    /// Notes the key of a local root that is decided, whose end is to be counted; `None`: it is
    /// not.
    #[inline]
    pub(crate) fn set_root_key(&self, key: Option<KeyNumber>) {
        self.root_key.store(key.map_or(0, |key| key.get() + 1), Ordering::Relaxed);
        self.failed.store(false, Ordering::Relaxed);
    }

    /// The key of a decided local root whose end is to be counted.
    #[inline]
    pub(crate) fn root_key(&self) -> Option<KeyNumber> {
        self.root_key.load(Ordering::Relaxed).checked_sub(1).map(KeyNumber::new)
    }

    /// An error was seen below a dropped local root.
    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}
