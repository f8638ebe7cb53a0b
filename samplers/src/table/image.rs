//! A record table as bytes, for a warm start: the keys with their words. Counts of calls belong to
//! one process and are left out.
//!
//! ```text
//! "ASTRTABL"  version  stamp  now  4 numbers of the pace  length of config  config  number of keys
//! for each key: length, 11 words of text, hash, offset, word
//! rapidhash of all before
//! ```
//!
//! All numbers are 64 bits, little-endian. The caller chooses the stamp: the wall-clock time at
//! `now`, for example, tells the next process how much time has passed.

use std::fmt;

use super::key::Key;
use super::{State, Table};
use crate::nanos::Nanos;
use crate::policy::Policy;
use crate::sync::Ordering;

const MAGIC: &[u8; 8] = b"ASTRTABL";
const VERSION: u64 = 2;
/// The number of 64-bit numbers for each key.
const WORDS: usize = Key::NUMBERS + 3;

/// The bytes are not an image of this sampler's table. Nothing was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageError(&'static str);

impl ImageError {
    pub(crate) const NO_KEYS: ImageError = ImageError("the sampler does not decide by key");
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ImageError {}

/// The result of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The stamp that the caller gave when the image was made.
    pub stamp: u64,
    /// The sampler's time when the image was made; the restored words are relative to it.
    pub now: Nanos,
    /// The number of keys that were restored.
    pub keys: u32,
}

fn checksum(bytes: &[u8]) -> u64 {
    super::hash(bytes)
}

impl<L: Policy> Table<L> {
    /// The table as bytes. Calls in progress may or may not be included.
    pub(crate) fn image(&self, config: &str, now: Nanos, stamp: u64) -> Vec<u8> {
        let _locked = self.locked();
        let State { index, records, pace, .. } = &*self.state;
        let ids: Vec<u32> = index.ids().collect();
        let mut bytes = Vec::with_capacity(64 + config.len() + ids.len() * WORDS * 8);
        bytes.extend_from_slice(MAGIC);
        let mut put = |number: u64| bytes.extend_from_slice(&number.to_le_bytes());
        put(VERSION);
        put(stamp);
        put(now.get());
        pace.state().into_iter().for_each(&mut put);
        put(config.len() as u64);
        bytes.extend_from_slice(config.as_bytes());
        let mut put = |number: u64| bytes.extend_from_slice(&number.to_le_bytes());
        put(ids.len() as u64);
        for id in ids {
            let record = &records[id as usize];
            record.raw_key().into_iter().for_each(&mut put);
            put(record.hash());
            put(record.offset().get());
            put(record.word());
        }
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Restores the keys and words of an image, into a table that has seen no call. Keys beyond the
    /// table's limit are left out.
    pub(crate) fn restore(&self, config: &str, bytes: &[u8]) -> Result<Restored, ImageError> {
        let (body, sum) =
            bytes.split_last_chunk::<8>().ok_or(ImageError("the file is too short to be a snapshot"))?;
        if checksum(body) != u64::from_le_bytes(*sum) {
            return Err(ImageError("the file is damaged: its checksum does not match"));
        }
        let mut rest = Numbers(body.strip_prefix(MAGIC).ok_or(ImageError("the file is not a snapshot"))?);
        if rest.next()? != VERSION {
            return Err(ImageError("the snapshot was written by another version of this library"));
        }
        let (stamp, now) = (rest.next()?, Nanos::new(rest.next()?));
        let mut pace = [0; 4];
        for number in &mut pace {
            *number = rest.next()?;
        }
        let length = usize::try_from(rest.next()?).unwrap_or(usize::MAX);
        let text = rest.0.get(..length).ok_or(CUT)?;
        if text != config.as_bytes() {
            return Err(ImageError("the snapshot belongs to another sampler"));
        }
        rest.0 = &rest.0[length..];
        let keys = rest.next()?;
        if keys.checked_mul(WORDS as u64 * 8) != Some(rest.0.len() as u64) {
            return Err(CUT);
        }
        self.state.pace.restore(pace);
        let mut locked = self.locked();
        let mut taken = 0;
        for _ in 0..keys {
            let mut raw = [0; Key::NUMBERS];
            for number in &mut raw {
                *number = rest.next()?;
            }
            let (hash, offset, word) = (rest.next()?, Nanos::new(rest.next()?), rest.next()?);
            let Some(id) = locked.free_list.take_free() else { break };
            self.state.records[id as usize].open_raw(hash, raw, offset, word);
            if self.state.index.insert(hash, id) {
                taken += 1;
            } else {
                locked.free_list.give_back(id);
            }
        }
        for (key, slot) in locked.names.iter() {
            if let Some(id) = self.find(super::hash(key.as_bytes()), key) {
                self.state.records[id as usize].set_policy(slot);
            }
        }
        self.state.set_present(&mut locked, &self.policies);
        let next_try = if locked.free_list.has_free() { Nanos::ZERO } else { locked.free_list.next_sweep() };
        // Relaxed: only a hint, see `Table::unknown`.
        self.state.next_try.store(next_try.get(), Ordering::Relaxed);
        Ok(Restored { stamp, now, keys: taken })
    }
}

const CUT: ImageError = ImageError("the snapshot is truncated");

struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> Result<u64, ImageError> {
        let (number, rest) = self.0.split_first_chunk::<8>().ok_or(CUT)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }
}
