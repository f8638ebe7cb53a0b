//! The fields of an entry by which a local root's outcome is counted.

use astracer_samplers::tail::KeyNumber;

use super::Entry;
use astracer_spans::sync::Ordering;
use astracer_spans::weight::Weighing;

impl Entry {
    /// Sets the key under which the outcome of a decided local root is counted; `None`: it is not
    /// counted. Relaxed: this happens before the decided phase is published, or before the span's
    /// id is known.
    #[inline]
    pub(crate) fn set_root_key(&self, key: Option<KeyNumber>, weighing: Weighing) {
        self.root_key.store(key.map_or(0, |key| key.get() + 1), Ordering::Relaxed);
        self.failed.store(false, Ordering::Relaxed);
        self.weighing.store(weighing as u8, Ordering::Relaxed);
    }

    pub(crate) fn weighing(&self) -> Weighing {
        match self.weighing.load(Ordering::Relaxed) {
            0 => Weighing::Never,
            1 => Weighing::IfCertain,
            _ => Weighing::Always,
        }
    }

    /// The key under which the outcome of a decided local root is counted.
    #[inline]
    pub(crate) fn root_key(&self) -> Option<KeyNumber> {
        self.root_key.load(Ordering::Relaxed).checked_sub(1).map(KeyNumber::new)
    }

    /// Notes an error below a dropped local root. Relaxed: the flag is read at the root's end,
    /// which is ordered after all holders by their handles.
    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}
