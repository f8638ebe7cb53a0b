//! A record for each key: outcomes of all its roots, thresholds of slow ones, and whether it is
//! armed.
//!
//! Records are made one at a time, once, and stay, so that a number names one for as long as the
//! sampler lives; readers take no lock. Counts lie in shards, each behind a lock that one thread of
//! many takes at a time, for some ten nanoseconds.

use super::arming::ProvisionalMode;
use super::budget::Meters;
use super::exemplars::{Exemplar, Exemplars};
use super::histogram::Histogram;
use super::policy::Quantile;
use crate::nanos::Nanos;
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, OnceLock, Ordering};

/// A key's record, by number; 0 is that of all keys without their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyNumber(pub(super) u32);

impl KeyNumber {
    /// The record of all keys without one of their own.
    pub const OTHERS: KeyNumber = KeyNumber(0);

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The key of this number, which [`KeyNumber::get`] gave.
    pub fn new(number: u32) -> Self {
        KeyNumber(number)
    }
}

/// Bytes by which keys are told apart: those that begin alike have one record.
const KEY_MAX: usize = 256;
/// The places in which a key may stand: a flood of keys with like hashes costs no more.
const PROBES: usize = 32;
/// Places for each key that may have a record. Of half as many, runs of taken ones are longer than
/// a key may go.
const PLACES: usize = 4;
/// The time after which the durations by which quantiles are computed are exchanged for newer ones,
/// in ns: five minutes, the same for all shards, so that none has durations that others have given
/// up.
const GENERATION: u64 = 300_000_000_000;
/// The longest time for which a key is armed, in ns: an hour.
pub(super) const ARMED_MAX: u64 = 3_600_000_000_000;
/// The calls of a shard after which thresholds are computed again.
const REFRESH: u64 = 256;
/// The calls after which a shard's generation may be found to be over: few call some keys. While a
/// generation is young, thresholds are computed as often.
const LOOK: u64 = 16;

/// Counts of roots of a key, in one shard.
#[derive(Clone, Debug, Default)]
struct Tally {
    errors: u64,
    missed_errors: u64,
    missed_slow: u64,
    current: Histogram,
    /// The durations of the generation before; none in the first.
    previous: Option<Box<Histogram>>,
    /// All durations before those.
    settled: Option<Box<Histogram>>,
    /// That of `current`.
    generation: u64,
    exemplars: Exemplars,
}

/// The generation of a time.
fn generation(now: Nanos) -> u64 {
    now.get() / GENERATION
}

/// Whether a generation is over. One that lies ahead is from before the clock was set back; but the
/// next one may have begun for a thread that asked for the time a moment later.
fn is_over(known: u64, now: u64) -> bool {
    known != now && known != now + 1
}

impl Tally {
    /// Begins another generation if this one is over.
    #[cold]
    fn turn(&mut self, now: u64) {
        if !is_over(self.generation, now) {
            return;
        }
        let before = std::mem::replace(&mut self.generation, now);
        if before > now {
            return;
        }
        let ended = Some(std::mem::take(&mut self.current)).filter(|ended| ended.count() > 0).map(Box::new);
        // After a long rest, what lies further back is no part of the quantiles.
        let is_recent = before + 1 == now;
        let (recent, older) = if is_recent { (ended, None) } else { (None, ended) };
        for old in [self.previous.take(), older].into_iter().flatten() {
            self.settled.get_or_insert_default().merge(&old);
        }
        self.previous = recent;
    }
}

/// Outcomes of all roots of a key since the start.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KeyOutcomes {
    /// The key, of a long one the first 256 bytes, by which keys are told apart; `None` for all
    /// keys without a record.
    pub key: Option<String>,
    /// Roots that ended.
    pub calls: u64,
    /// Roots below which an error was seen.
    pub errors: u64,
    /// Errors seen in traces that were not recorded, or that were given up while they were open.
    pub missed_errors: u64,
    /// Slow roots, by a policy, of such traces.
    pub missed_slow: u64,
    /// Their durations.
    pub durations: Histogram,
    /// Kept traces among them: the latest of each power of two of the durations, at most 20, the
    /// shortest first.
    pub exemplars: Vec<Exemplar>,
}

/// Bytes of a key's counts in one shard, at most: three histograms, and a list of exemplars that
/// doubles as it grows.
const _: () = assert!(
    size_of::<Tally>() + 2 * size_of::<Histogram>() + 32 * size_of::<Exemplar>() <= 6 * 1_024,
    "Limits::keys tells of 6 kB"
);

#[derive(Debug)]
pub(super) struct Record {
    /// `None` for all keys without a record.
    key: Option<Box<str>>,
    shards: Box<[OnceLock<Box<Mutex<Tally>>>]>,
    /// The duration from which a root is slow, for each policy with a quantile; the largest number
    /// while there is none.
    slow_from: Box<[AtomicU64]>,
    /// The generation in which these were computed.
    slow_of: AtomicU64,
    /// Dropped roots are recorded until then.
    armed_until: AtomicU64,
    /// Roots that began, up to the number that is recorded at first.
    begun: AtomicU64,
    /// Which dropped roots are recorded: a place in [`MODES`].
    mode: AtomicU64,
    /// The state of each policy's budget.
    pub(super) meters: Box<[Meters]>,
}

const MODES: [ProvisionalMode; 3] = [ProvisionalMode::Never, ProvisionalMode::Armed, ProvisionalMode::Always];

/// Whether a time until which a key is armed lies so far ahead of this one that it is from before
/// the clock was set back.
fn is_from_before(known: u64, until: Nanos) -> bool {
    known > until.get().saturating_add(ARMED_MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here panics; if it did, counts would be off by one.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Record {
    fn new(key: Option<&str>, mode: ProvisionalMode, shape: &Shape) -> Self {
        let record = Record {
            key: key.map(Box::from),
            shards: (0..shape.shards.next_power_of_two()).map(|_| OnceLock::new()).collect(),
            slow_from: shape.quantiles.iter().map(|_| AtomicU64::new(u64::MAX)).collect(),
            slow_of: AtomicU64::new(0),
            armed_until: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            mode: AtomicU64::new(0),
            meters: (0..shape.rules).map(|_| Meters::default()).collect(),
        };
        record.set_mode(mode);
        record
    }

    pub(super) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    #[inline]
    pub(super) fn mode(&self) -> ProvisionalMode {
        match self.mode.load(Ordering::Relaxed) {
            0 => ProvisionalMode::Never,
            1 => ProvisionalMode::Armed,
            _ => ProvisionalMode::Always,
        }
    }

    pub(super) fn set_mode(&self, mode: ProvisionalMode) {
        let place = MODES.iter().position(|known| *known == mode).unwrap_or_default();
        self.mode.store(place as u64, Ordering::Relaxed);
    }

    pub(super) fn is_armed(&self, now: Nanos) -> bool {
        let until = self.armed_until.load(Ordering::Relaxed);
        now.get() < until && until - now.get() <= ARMED_MAX
    }

    /// Arms the key until then for what went wrong, if it is not for longer.
    pub(super) fn arm(&self, until: Nanos) {
        let known = self.armed_until.load(Ordering::Relaxed);
        // A store for each error would have threads meet: the time moves on by quarters of a
        // second.
        let is_later = known.saturating_add(250_000_000) < until.get();
        if is_later || is_from_before(known, until) {
            self.armed_until.store(until.get(), Ordering::Relaxed);
        }
    }

    /// Arms the key until then for whoever asks for that, to the moment; if it is not for longer.
    pub(super) fn arm_by_hand(&self, until: Nanos) {
        let later = |known| (known < until.get() || is_from_before(known, until)).then_some(until.get());
        let _ = self.armed_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Whether it is one of the first roots.
    pub(super) fn is_early(&self, first: u64) -> bool {
        self.begun.load(Ordering::Relaxed) < first && self.begun.fetch_add(1, Ordering::Relaxed) < first
    }

    /// The duration from which a root is slow, by the policy with this quantile.
    pub(super) fn slow_from(&self, quantile: usize) -> Nanos {
        Nanos::new(self.slow_from.get(quantile).map_or(u64::MAX, |from| from.load(Ordering::Relaxed)))
    }

    #[inline]
    fn tally(&self, shard: usize) -> MutexGuard<'_, Tally> {
        // Their number is a power of two.
        let shard = &self.shards[shard & (self.shards.len() - 1)];
        lock(shard.get_or_init(|| Box::new(Mutex::new(Tally::default()))))
    }

    pub(super) fn note_kept(&self, shard: usize, exemplar: Exemplar, now: Nanos) {
        self.tally(shard).exemplars.note(exemplar, now);
    }

    /// Computes the durations from which roots are slow anew, if they may be those of hours ago.
    pub(super) fn renew(&self, shape: &Shape, now: Nanos) {
        let now = generation(now);
        if !shape.quantiles.is_empty() && is_over(self.slow_of.load(Ordering::Acquire), now) {
            self.refresh(&shape.quantiles, now);
        }
    }

    /// Counts a root. The time is asked for once in a while.
    #[inline]
    pub(super) fn count(
        &self,
        shard: usize,
        ended: &super::Ended,
        is_slow: bool,
        shape: &Shape,
        now: impl Fn() -> Nanos,
    ) {
        let mut tally = self.tally(shard);
        tally.current.record(ended.duration);
        if ended.is_error {
            tally.errors += 1;
            tally.missed_errors += u64::from(!ended.is_recorded);
        }
        tally.missed_slow += u64::from(is_slow && !ended.is_recorded);
        let calls = tally.current.count();
        let is_looked_at = calls.is_multiple_of(LOOK) || calls < LOOK && calls.is_power_of_two();
        if !is_looked_at {
            return;
        }
        let now = generation(now());
        let is_due = calls < REFRESH || calls.is_multiple_of(REFRESH);
        if !is_due && !is_over(tally.generation, now) {
            return;
        }
        tally.turn(now);
        drop(tally);
        if !shape.quantiles.is_empty() {
            self.refresh(&shape.quantiles, now);
        }
    }

    /// Computes the durations from which roots are slow.
    #[cold]
    fn refresh(&self, quantiles: &[Quantile], now: u64) {
        let mut recent = Histogram::default();
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            let mut tally = lock(shard);
            // Its own threads may count no more.
            tally.turn(now);
            recent.merge(&tally.current);
            if let Some(previous) = &tally.previous {
                recent.merge(previous);
            }
        }
        for (from, quantile) in self.slow_from.iter().zip(quantiles) {
            let known = recent.quantile(quantile.get()).filter(|_| recent.count() >= quantile.calls_min());
            from.store(known.map_or(u64::MAX, Nanos::get), Ordering::Relaxed);
        }
        self.slow_of.store(now, Ordering::Release);
    }

    fn outcomes(&self) -> KeyOutcomes {
        let mut outcomes =
            KeyOutcomes { key: self.key.as_deref().map(str::to_owned), ..KeyOutcomes::default() };
        let mut exemplars = Exemplars::default();
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            let tally = lock(shard).clone();
            exemplars.merge(&tally.exemplars);
            outcomes.errors += tally.errors;
            outcomes.missed_errors += tally.missed_errors;
            outcomes.missed_slow += tally.missed_slow;
            outcomes.durations.merge(&tally.current);
            for old in [tally.previous, tally.settled].into_iter().flatten() {
                outcomes.durations.merge(&old);
            }
        }
        outcomes.calls = outcomes.durations.count();
        outcomes.exemplars = exemplars.sorted();
        outcomes
    }
}

/// The lengths of a record's lists.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) shards: usize,
    pub(super) quantiles: Box<[Quantile]>,
    pub(super) rules: usize,
}

/// A key's record, once the place is taken.
type RecordSlot = OnceLock<Box<(u64, Record)>>;

#[derive(Debug)]
pub(super) struct Keys {
    shape: Shape,
    others: Record,
    /// [`PLACES`] times as many as there may be keys, at least.
    slots: Box<[RecordSlot]>,
    keys_max: u64,
    /// Keys with a record, each counted once it is in its place.
    taken: AtomicU64,
    /// Held while a record is made.
    making: Mutex<()>,
    mode: ProvisionalMode,
    mode_by_key: Arc<[(String, ProvisionalMode)]>,
}

impl Keys {
    pub(super) fn new(
        keys_max: usize,
        shape: Shape,
        mode: ProvisionalMode,
        by_key: &[(String, ProvisionalMode)],
    ) -> Self {
        // Those that are named have a record however many others there are.
        let keys_max = keys_max.saturating_add(by_key.len()).min(1 << 20);
        let keys = Keys {
            others: Record::new(None, mode, &shape),
            shape,
            slots: (0..(PLACES * keys_max).next_power_of_two()).map(|_| OnceLock::new()).collect(),
            keys_max: keys_max as u64,
            taken: AtomicU64::new(0),
            making: Mutex::new(()),
            mode,
            mode_by_key: by_key.into(),
        };
        // At once: later there may be no room for them.
        by_key.iter().for_each(|(key, _)| _ = keys.number(key));
        keys
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    #[inline]
    pub(super) fn record(&self, key: KeyNumber) -> &Record {
        let place = (key.0 as usize).checked_sub(1).and_then(|place| self.slots.get(place)?.get());
        place.map_or(&self.others, |place| &place.1)
    }

    /// The number of a key, which gets a record if it has none and there is room.
    #[inline]
    pub(super) fn number(&self, key: &str) -> KeyNumber {
        let key = cut(key);
        let hash = hash_of(key);
        let mask = self.slots.len() - 1;
        for probe in 0..PROBES {
            let at = (hash as usize).wrapping_add(probe) & mask;
            let found = match self.slots[at].get() {
                Some(found) => found,
                None => match self.make(at, hash, key) {
                    Some(made) => made,
                    None => return KeyNumber::OTHERS,
                },
            };
            if found.0 == hash && found.1.key.as_deref() == Some(key) {
                return KeyNumber(at as u32 + 1);
            }
        }
        KeyNumber::OTHERS
    }

    /// Makes the record at this place, unless another thread does. `None` if there are as many keys
    /// as may be.
    #[cold]
    fn make(&self, at: usize, hash: u64, key: &str) -> Option<&(u64, Record)> {
        if self.taken.load(Ordering::Acquire) < self.keys_max {
            let _making = lock(&self.making);
            if self.taken.load(Ordering::Relaxed) < self.keys_max && self.slots[at].get().is_none() {
                let own = self.mode_by_key.iter().find(|(known, _)| cut(known) == key);
                let mode = own.map_or(self.mode, |own| own.1);
                let _ = self.slots[at].set(Box::new((hash, Record::new(Some(key), mode, &self.shape))));
                // After that: whoever sees that there are as many as may be sees each of them.
                self.taken.fetch_add(1, Ordering::Release);
            }
        }
        self.slots[at].get().map(Box::as_ref)
    }

    /// All records, that of keys without one last.
    fn records(&self) -> impl Iterator<Item = &Record> {
        self.slots.iter().filter_map(OnceLock::get).map(|place| &place.1).chain([&self.others])
    }

    pub(super) fn each(&self, f: impl FnMut(&Record)) {
        self.records().for_each(f);
    }

    /// The record of a key that has one.
    pub(super) fn find(&self, key: &str) -> Option<&Record> {
        self.records().find(|record| record.key.as_deref() == Some(cut(key)))
    }

    /// Outcomes by key, in the order of the keys' names; those of keys without a record last, if
    /// there are any.
    pub(super) fn outcomes(&self) -> Vec<KeyOutcomes> {
        let mut all: Vec<_> = self.records().map(Record::outcomes).collect();
        all.retain(|outcomes| outcomes.calls > 0);
        all.sort_by(|a, b| (a.key.is_none(), &a.key).cmp(&(b.key.is_none(), &b.key)));
        all
    }
}

/// The key, or the beginning of a long one.
#[inline]
fn cut(key: &str) -> &str {
    if key.len() <= KEY_MAX { key } else { beginning(key) }
}

#[cold]
fn beginning(key: &str) -> &str {
    let end = (0..=KEY_MAX).rev().find(|&end| key.is_char_boundary(end)).unwrap_or(0);
    &key[..end]
}

#[inline]
fn hash_of(key: &str) -> u64 {
    use rapidhash::v3::{DEFAULT_RAPID_SECRETS, rapidhash_v3_nano_inline};
    rapidhash_v3_nano_inline::<true, false>(key.as_bytes(), &DEFAULT_RAPID_SECRETS)
}
