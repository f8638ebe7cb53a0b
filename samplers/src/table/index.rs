//! From a key's hash to its record's id: buckets of eight entries, one cache line each.
//!
//! A key is in one of two buckets that its hash selects. Readers take no lock. Writers hold the
//! table's lock; they store an entry into an empty place or clear one, and never move an entry, so
//! a reader finds every key that is not being removed.

use crate::sync::{AtomicU64, Ordering};

const WAYS: usize = 8;
/// The load from which a bucket sends further keys to their second bucket. With an average of at
/// most two keys per bucket, one key in a million finds both of its buckets full.
const FIRST_MAX: usize = 6;
const TAG: u64 = 0xffff_ffff_0000_0000;

/// An entry of 0 is empty; others hold the upper half of the hash, and id + 1.
#[derive(Debug)]
#[repr(align(64))]
struct Bucket([AtomicU64; WAYS]);

#[derive(Debug)]
pub(super) struct Index {
    buckets: Box<[Bucket]>,
    mask: u64,
    /// The number of keys in their second bucket. While it is 0, readers look only in the first.
    spilled: AtomicU64,
}

impl Bucket {
    /// The place at which the search for this hash starts, and usually ends.
    fn home(hash: u64) -> usize {
        (hash >> 28) as usize % WAYS
    }

    /// The id in this place, if its tag matches the hash.
    #[inline]
    fn candidate(&self, place: usize, hash: u64) -> Option<u32> {
        // Acquire pairs with the Release store in `insert`: a reader that sees an entry also sees
        // the record written before it.
        let entry = self.0[place % WAYS].load(Ordering::Acquire);
        // An empty entry is never a candidate: its id would be 0 - 1.
        if (entry ^ hash) & TAG == 0 { (entry as u32).checked_sub(1) } else { None }
    }

    fn find(&self, hash: u64, is: &impl Fn(u32) -> bool) -> Option<u32> {
        let home = Self::home(hash);
        (home..home + WAYS).filter_map(|place| self.candidate(place, hash)).find(|&id| is(id))
    }

    fn len(&self) -> usize {
        self.0.iter().filter(|entry| entry.load(Ordering::Relaxed) != 0).count()
    }

    /// Stores an entry in the first empty place; returns false if there is none.
    fn insert(&self, hash: u64, entry: u64) -> bool {
        let home = Self::home(hash);
        let place = (0..WAYS)
            .map(|way| &self.0[(home + way) % WAYS])
            .find(|place| place.load(Ordering::Relaxed) == 0);
        match place {
            Some(place) => {
                // Release pairs with the Acquire in `candidate`: it publishes the record.
                place.store(entry, Ordering::Release);
                true
            }
            None => false,
        }
    }

    fn remove(&self, entry: u64) -> bool {
        match self.0.iter().find(|place| place.load(Ordering::Relaxed) == entry) {
            Some(place) => {
                place.store(0, Ordering::Release);
                true
            }
            None => false,
        }
    }
}

fn entry(hash: u64, id: u32) -> u64 {
    hash & TAG | u64::from(id + 1)
}

impl Index {
    pub(super) fn new(keys: u32) -> Self {
        let buckets = u64::from(keys / 2 + 1).next_power_of_two();
        Index {
            buckets: (0..buckets).map(|_| Bucket(std::array::from_fn(|_| AtomicU64::new(0)))).collect(),
            mask: buckets - 1,
            spilled: AtomicU64::new(0),
        }
    }

    fn first(&self, hash: u64) -> &Bucket {
        &self.buckets[(hash & self.mask) as usize]
    }

    fn second(&self, hash: u64) -> &Bucket {
        // Other bits of the same hash, mixed: sufficiently independent of the first choice and of
        // the tag.
        &self.buckets[(hash.rotate_right(32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & self.mask) as usize]
    }

    /// The id under this hash for which `is` returns true.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        // Fast path: nearly every key is in its home place.
        match self.first(hash).candidate(Bucket::home(hash), hash) {
            Some(id) if is(id) => Some(id),
            _ => self.find_anywhere(hash, &is),
        }
    }

    #[inline(never)]
    fn find_anywhere(&self, hash: u64, is: &impl Fn(u32) -> bool) -> Option<u32> {
        let found = self.first(hash).find(hash, is);
        if found.is_none() && self.spilled.load(Ordering::Acquire) != 0 {
            return self.second(hash).find(hash, is);
        }
        found
    }

    /// Adds an entry; returns false if both buckets are full. For writers only.
    pub(super) fn insert(&self, hash: u64, id: u32) -> bool {
        let entry = entry(hash, id);
        let (first, second) = (self.first(hash), self.second(hash));
        if first.len() < FIRST_MAX || first.len() <= second.len() {
            return first.insert(hash, entry);
        }
        // Counted before the entry is stored: a thread for which this insertion has happened finds
        // a count above 0, and looks in the second bucket. A concurrent reader that misses the key
        // handles it as a new one: it looks again under the lock, or uses the overflow record of a
        // full table. The second bucket has a free place, because it holds fewer entries than the
        // first.
        self.spilled.fetch_add(1, Ordering::Release);
        second.insert(hash, entry)
    }

    /// Clears an entry. For writers only.
    pub(super) fn remove(&self, hash: u64, id: u32) {
        let entry = entry(hash, id);
        if !self.first(hash).remove(entry) && self.second(hash).remove(entry) {
            self.spilled.fetch_sub(1, Ordering::Release);
        }
    }

    /// The ids of all entries. For writers only.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.buckets
            .iter()
            .flat_map(|bucket| &bucket.0)
            .filter_map(|entry| (entry.load(Ordering::Relaxed) as u32).checked_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes that share both buckets, which are different ones.
    fn crowd(index: &Index, count: usize) -> Vec<u64> {
        let buckets = |hash: u64| {
            let at =
                |bucket: &Bucket| index.buckets.iter().position(|other| std::ptr::eq(other, bucket)).unwrap();
            (at(index.first(hash)), at(index.second(hash)))
        };
        let hashes = (0u64..).map(|i| crate::table::hash(&i.to_le_bytes()));
        hashes.filter(|&hash| buckets(hash) == (0, 1)).take(count).collect()
    }

    fn find(index: &Index, hash: u64, id: u32) -> Option<u32> {
        index.find(hash, |other| other == id)
    }

    #[test]
    fn two_full_buckets_take_sixteen_and_refuse_the_next() {
        let index = Index::new(8);
        let hashes = crowd(&index, 17);
        for (id, &hash) in hashes.iter().enumerate() {
            assert_eq!(index.insert(hash, id as u32), id < 16, "{id}");
            // Six in the first bucket, then each in the emptier one.
            let spilled = [0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 6, 7, 7, 8, 8][id];
            assert_eq!(index.spilled.load(Ordering::Relaxed), spilled, "{id}");
        }
        for (id, &hash) in hashes.iter().enumerate() {
            assert_eq!(find(&index, hash, id as u32), (id < 16).then_some(id as u32));
        }
        let mut ids: Vec<u32> = index.ids().collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..16).collect::<Vec<_>>());
        for (id, &hash) in hashes[..16].iter().enumerate() {
            index.remove(hash, id as u32);
            assert_eq!(find(&index, hash, id as u32), None);
        }
        assert_eq!((index.ids().count(), index.spilled.load(Ordering::Relaxed)), (0, 0));
        assert!(index.insert(hashes[16], 16));
        assert_eq!(find(&index, hashes[16], 16), Some(16));
    }

    #[test]
    fn only_its_own_hash_finds_an_id() {
        let index = Index::new(100);
        assert_eq!(index.find(0, |_| true), None, "an empty place matches no hash, not even 0");
        assert!(index.insert(5 << 32, 7));
        assert_eq!(index.find(5 << 32, |_| true), Some(7));
        assert_eq!(index.find(6 << 32, |_| true), None, "another tag");
        assert_eq!(index.find(5 << 32, |_| false), None);
        index.remove(5 << 32, 8);
        assert_eq!(index.find(5 << 32, |_| true), Some(7), "another id was removed");
    }

    /// One bucket for two keys on average: few enough that eight places suffice.
    #[test]
    fn has_a_bucket_for_two_keys() {
        for (keys, buckets) in [(0, 1), (1, 1), (2, 2), (3, 2), (10_000, 8_192)] {
            let index = Index::new(keys);
            assert_eq!((index.buckets.len(), index.mask), (buckets, buckets as u64 - 1), "{keys} keys");
        }
    }

    /// Ten thousand keys all get an entry, most of them in their first bucket.
    #[test]
    fn holds_all_keys_of_its_table() {
        let index = Index::new(10_000);
        for id in 0..10_000u32 {
            let hash = crate::table::hash(format!("GET /users/{id}").as_bytes());
            assert!(index.insert(hash, id));
            assert_eq!(find(&index, hash, id), Some(id));
        }
        // P(7 or more of a mean of 1.2) = 2e-4: a few of ten thousand.
        assert!(index.spilled.load(Ordering::Relaxed) < 40);
    }
}
