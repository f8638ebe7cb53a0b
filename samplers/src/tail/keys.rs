//! A record for each key: outcomes of all its roots, thresholds for slow ones, and whether it is
//! armed.
//!
//! Records are created one at a time and never removed, so a number refers to the same record for
//! as long as the sampler lives; readers take no lock. Counts are split into shards, each behind a
//! lock that is held for some ten nanoseconds.

use std::collections::HashMap;

use super::SlowFrom;
use super::arming::ProvisionalMode;
use super::boost::Boost;
use super::exemplars::{Exemplar, Exemplars};
use super::histogram::Histogram;
use super::policy::Quantile;
use crate::cap::meters::Meters;
use crate::nanos::Nanos;
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, OnceLock, Ordering};

/// The number of a key's record; 0 is the record that all keys without their own share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyNumber(pub(super) u32);

impl KeyNumber {
    /// The record that all keys without their own share.
    pub const OTHERS: KeyNumber = KeyNumber(0);

    /// The number, which [`KeyNumber::new`] converts back.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The key number that [`KeyNumber::get`] returned.
    pub fn new(number: u32) -> Self {
        KeyNumber(number)
    }
}

/// The number of bytes by which keys are distinguished. Keys with the same beginning share a
/// record.
const KEY_MAX: usize = 256;
/// The number of places that a key's search visits at most, which also bounds the cost of a flood
/// of keys with similar hashes.
const PROBES: usize = 32;
/// The number of places per key. With half as many, runs of taken places could be longer than a
/// search.
const PLACES: usize = 4;
/// The length of a generation in ns: five minutes. Then the durations behind the quantiles are
/// exchanged for newer ones. Generations begin at the same time in all shards, so that no shard
/// uses durations that others have retired.
const GENERATION: u64 = 300_000_000_000;
/// Generations of a key with few calls are as long as it takes to have enough for its quantiles,
/// but at most this many times as long: an hour.
const LONGER: u64 = 12;
/// The longest time for which a key is armed, in ns: an hour.
pub(super) const ARMED_MAX: u64 = 3_600_000_000_000;
/// The number of a shard's calls after which thresholds are recomputed.
const REFRESH: u64 = 256;
/// The number of calls after which a shard checks whether its generation is over; small, because
/// some keys are called rarely. While a generation is young, thresholds are recomputed as often.
const LOOK: u64 = 16;

/// Counts of a key's roots in one shard.
#[derive(Clone, Debug, Default)]
struct Tally {
    errors: u64,
    missed_errors: u64,
    missed_slow: u64,
    current: Histogram,
    /// The durations of the previous generation, if there was one.
    previous: Option<Box<Histogram>>,
    /// The generation in which `previous` began, or `current` without it.
    since: u64,
    /// All durations from earlier generations.
    settled: Option<Box<Histogram>>,
    /// The generation of `current`.
    generation: u64,
    exemplars: Exemplars,
}

/// The generation at this time.
fn generation(now: Nanos) -> u64 {
    now.get() / GENERATION
}

/// Whether a generation is over. One in the future is from before the clock was set back, unless it
/// is only the next: another thread, which read its clock a moment later, may already have begun
/// it.
fn is_over(known: u64, now: u64) -> bool {
    known != now && known != now + 1
}

impl Tally {
    /// Begins another generation if the present one is over. `wanted` is the number of calls that
    /// prolongs it; 0 for keys with many calls.
    #[cold]
    fn turn(&mut self, now: u64, wanted: u64) {
        if !is_over(self.generation, now) {
            return;
        }
        let before = self.generation;
        let is_prolonged = before < now && now - before < LONGER;
        if is_prolonged && (1..wanted).contains(&self.current.count()) {
            return;
        }
        self.generation = now;
        if before > now {
            self.since = now;
            return;
        }
        let ended = Some(std::mem::take(&mut self.current)).filter(|ended| ended.count() > 0).map(Box::new);
        // After a long pause, earlier durations no longer count toward the quantiles. A prolonged
        // generation of rare calls may end late.
        let is_recent = now - before <= if wanted > 0 { 2 * LONGER } else { 1 };
        let (recent, older) = if is_recent { (ended, None) } else { (None, ended) };
        for old in [self.previous.take(), older].into_iter().flatten() {
            self.settled.get_or_insert_default().merge(&old);
        }
        self.since = if recent.is_some() { before } else { now };
        self.previous = recent;
    }

    /// The calls in two generations at the mean rate of those that count toward quantiles.
    fn calls_in_two(&self, now: u64) -> u64 {
        let calls = self.current.count() + self.previous.as_ref().map_or(0, |previous| previous.count());
        2 * calls / (now.saturating_sub(self.since) + 1)
    }
}

/// Outcomes of all roots of a key since the start.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KeyOutcomes {
    /// The key, or the first 256 bytes of a longer one, by which keys are distinguished. `None` for
    /// all keys without a record.
    pub key: Option<String>,
    /// The number of roots that ended.
    pub calls: u64,
    /// The number of roots in whose trace an error was seen.
    pub errors: u64,
    /// The number of these whose traces were not recorded, or were evicted while they were open.
    pub missed_errors: u64,
    /// The number of roots of such traces that a policy calls slow.
    pub missed_slow: u64,
    /// The durations of all these roots.
    pub durations: Histogram,
    /// Exemplars: the latest kept trace of each power of two of the durations, at most 20, the
    /// shortest first.
    pub exemplars: Vec<Exemplar>,
}

/// The greatest size of a key's counts in one shard: three histograms, and a list of exemplars that
/// doubles as it grows.
const _: () = assert!(
    size_of::<Tally>() + 2 * size_of::<Histogram>() + 32 * size_of::<Exemplar>() <= 6 * 1_024,
    "the documentation of Limits::keys says 6 kB"
);

#[derive(Debug)]
pub(super) struct Record {
    /// `None` for the record of all keys without their own.
    key: Option<Box<str>>,
    shards: Box<[OnceLock<Box<Mutex<Tally>>>]>,
    /// The duration above which a root is slow, for each policy with a quantile; `u64::MAX` while
    /// it is unknown.
    slow_from: Box<[AtomicU64]>,
    /// The same while the key has too few calls.
    slow_at_first: Box<[u64]>,
    /// The generation in which these were computed.
    slow_of: AtomicU64,
    /// The number of calls that prolongs generations; 0 for keys with many calls.
    wanted: AtomicU64,
    /// The time until which dropped roots are recorded, in ns.
    armed_until: AtomicU64,
    /// The time at which the key's latest boost ends, in ns; 0 if there was none. Changed only when
    /// a boost begins, so every decision may read it.
    boosted_until: AtomicU64,
    /// The number of roots that have begun, counted up to the number of first roots that are
    /// recorded.
    begun: AtomicU64,
    /// The roots whose trace was kept late.
    kept_late: AtomicU64,
    /// Which dropped roots are recorded: an index into [`MODES`].
    mode: AtomicU64,
    /// The state of each policy's budget for this key.
    pub(super) meters: Box<[Meters]>,
}

const MODES: [ProvisionalMode; 3] = [ProvisionalMode::Never, ProvisionalMode::Armed, ProvisionalMode::Always];

/// Whether the time until which a key is armed is so far in the future that it is from before the
/// clock was set back.
fn is_from_before(known: u64, until: Nanos) -> bool {
    known > until.get().saturating_add(ARMED_MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while the lock is held; if it did, counts would be off by one.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Record {
    fn new(key: Option<&str>, mode: ProvisionalMode, shape: &Shape) -> Self {
        let at_first = |quantile: &Quantile| {
            let own = key.and_then(|key| shape.slow_from.get(key)).into_iter().flatten();
            own.into_iter().find(|(of, _)| of == quantile).map_or(u64::MAX, |(_, from)| from.get())
        };
        let slow_at_first: Box<[u64]> = shape.quantiles.iter().map(at_first).collect();
        let record = Record {
            key: key.map(Box::from),
            shards: (0..shape.shards.next_power_of_two()).map(|_| OnceLock::new()).collect(),
            slow_from: slow_at_first.iter().map(|&from| AtomicU64::new(from)).collect(),
            slow_at_first,
            slow_of: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            armed_until: AtomicU64::new(0),
            boosted_until: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            kept_late: AtomicU64::new(0),
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

    /// Relaxed, as for the times and counts beside it: each is a value of its own, and publishes no
    /// other memory.
    pub(super) fn set_mode(&self, mode: ProvisionalMode) {
        let place = MODES.iter().position(|known| *known == mode).unwrap_or_default();
        self.mode.store(place as u64, Ordering::Relaxed);
    }

    pub(super) fn is_armed(&self, now: Nanos) -> bool {
        let until = self.armed_until.load(Ordering::Relaxed);
        now.get() < until && until - now.get() <= ARMED_MAX
    }

    /// Arms the key until `until` because something went wrong, unless it is already armed for
    /// longer.
    pub(super) fn arm(&self, until: Nanos) {
        let known = self.armed_until.load(Ordering::Relaxed);
        // Moves the time on in steps of a quarter of a second: a store for each error would make
        // threads contend. So a key may be armed up to that much shorter.
        let is_later = known.saturating_add(250_000_000) < until.get();
        if is_later || is_from_before(known, until) {
            self.armed_until.store(until.get(), Ordering::Relaxed);
        }
    }

    /// Arms the key until exactly `until`, on request, unless it is already armed for longer.
    pub(super) fn arm_by_hand(&self, until: Nanos) {
        let later = |known| (known < until.get() || is_from_before(known, until)).then_some(until.get());
        let _ = self.armed_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Whether a boost of the key is in progress. A time further ahead than a boost lasts is from
    /// before the clock was set back.
    #[inline]
    pub(super) fn is_boosted(&self, now: Nanos) -> bool {
        let until = self.boosted_until.load(Ordering::Relaxed);
        until != 0 && now.get() < until && until - now.get() <= Boost::LASTING_MAX.get()
    }

    /// Begins a boost unless one is in progress or the key still rests from the last one; returns
    /// whether it began. Of threads that try at once, one succeeds. Relaxed, as for the other
    /// times.
    pub(super) fn boost(&self, boost: &Boost, now: Nanos) -> bool {
        let known = self.boosted_until.load(Ordering::Relaxed);
        let until = now.get().saturating_add(boost.lasting.get());
        let is_from_before = known > until;
        if known != 0 && !is_from_before && now.get() < known.saturating_add(boost.rest.get()) {
            return false;
        }
        let begun = self.boosted_until.compare_exchange(known, until, Ordering::Relaxed, Ordering::Relaxed);
        begun.is_ok()
    }

    /// As [`Record::is_early`], without counting a root.
    pub(super) fn would_be_early(&self, first: u64) -> bool {
        self.begun.load(Ordering::Relaxed) < first
    }

    /// Whether this is one of the key's first roots. The load avoids writes once they are over.
    pub(super) fn is_early(&self, first: u64) -> bool {
        self.begun.load(Ordering::Relaxed) < first && self.begun.fetch_add(1, Ordering::Relaxed) < first
    }

    /// The duration above which a root is slow, by the policy with this quantile.
    pub(super) fn slow_from(&self, quantile: usize) -> Nanos {
        Nanos::new(self.slow_from.get(quantile).map_or(u64::MAX, |from| from.load(Ordering::Relaxed)))
    }

    #[inline]
    fn tally(&self, shard: usize) -> MutexGuard<'_, Tally> {
        // The number of shards is a power of two.
        let shard = &self.shards[shard & (self.shards.len() - 1)];
        lock(shard.get_or_init(|| Box::new(Mutex::new(Tally::default()))))
    }

    pub(super) fn note_kept(&self, shard: usize, exemplar: Exemplar, now: Nanos) {
        self.tally(shard).exemplars.note(exemplar, now);
    }

    /// Relaxed: read for statistics only.
    pub(super) fn note_kept_late(&self) {
        self.kept_late.fetch_add(1, Ordering::Relaxed);
    }

    /// Recomputes the durations above which roots are slow if they may be hours old. The Acquire
    /// load pairs with the Release store in `refresh`: a thread that sees the new generation sees
    /// its durations.
    pub(super) fn renew(&self, shape: &Shape, now: Nanos) {
        let now = generation(now);
        if !shape.quantiles.is_empty() && is_over(self.slow_of.load(Ordering::Acquire), now) {
            self.refresh(&shape.quantiles, now);
        }
    }

    /// Counts a root. Reads the clock for some calls only.
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
        if shape.quantiles.is_empty() {
            tally.turn(now, 0);
            return;
        }
        tally.turn(now, self.wanted.load(Ordering::Relaxed));
        drop(tally);
        self.refresh(&shape.quantiles, now);
    }

    /// Recomputes the durations above which roots are slow.
    #[cold]
    fn refresh(&self, quantiles: &[Quantile], now: u64) {
        let (mut recent, mut calls) = (Histogram::default(), 0);
        let wanted = self.wanted.load(Ordering::Relaxed);
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            let mut tally = lock(shard);
            // Threads of this shard may no longer be counting, so its generation is checked here.
            tally.turn(now, wanted);
            calls += tally.calls_in_two(now);
            recent.merge(&tally.current);
            if let Some(previous) = &tally.previous {
                recent.merge(previous);
            }
        }
        for ((from, quantile), &at_first) in self.slow_from.iter().zip(quantiles).zip(&self.slow_at_first) {
            let known = recent.quantile(quantile.get()).filter(|_| recent.count() >= quantile.calls_min());
            from.store(known.map_or(at_first, Nanos::get), Ordering::Relaxed);
        }
        // A key that is busy again forgets the older durations with its next generations.
        let enough = quantiles.iter().map(|quantile| quantile.calls_min()).max().unwrap_or(0);
        self.wanted.store(if calls < enough { enough } else { 0 }, Ordering::Relaxed);
        // Release pairs with the Acquire load in `renew`.
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

/// The sizes of a record's lists.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) shards: usize,
    pub(super) quantiles: Box<[Quantile]>,
    pub(super) rules: usize,
    /// By key, as records distinguish them: the durations of [`Record::slow_at_first`].
    pub(super) slow_from: HashMap<Box<str>, Vec<(Quantile, Nanos)>>,
}

impl Shape {
    /// The durations of the settings, by key.
    pub(super) fn slow_from(all: &[SlowFrom]) -> HashMap<Box<str>, Vec<(Quantile, Nanos)>> {
        let mut by_key: HashMap<Box<str>, Vec<_>> = HashMap::new();
        for SlowFrom { key, quantile, from } in all {
            by_key.entry(cut(key).into()).or_default().push((*quantile, *from));
        }
        by_key
    }
}

/// A key's hash and record, once the place is taken.
type RecordSlot = OnceLock<Box<(u64, Record)>>;

#[derive(Debug)]
pub(super) struct Keys {
    shape: Shape,
    others: Record,
    /// At least [`PLACES`] times as many as keys.
    slots: Box<[RecordSlot]>,
    keys_max: u64,
    /// The number of keys with a record, each counted after its place is set.
    taken: AtomicU64,
    /// Held while a record is created.
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
        // Named keys get a record regardless of the number of others.
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
        // Created at once, before other keys can take the places.
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

    /// The number of a key, which gets a record if it has none and the limit allows it.
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

    /// Creates the record at this place, unless another thread does. `None` if the place stays
    /// empty because the limit is reached.
    #[cold]
    fn make(&self, at: usize, hash: u64, key: &str) -> Option<&(u64, Record)> {
        if self.taken.load(Ordering::Acquire) < self.keys_max {
            let _making = lock(&self.making);
            if self.taken.load(Ordering::Relaxed) < self.keys_max && self.slots[at].get().is_none() {
                let own = self.mode_by_key.iter().find(|(known, _)| cut(known) == key);
                let mode = own.map_or(self.mode, |own| own.1);
                let _ = self.slots[at].set(Box::new((hash, Record::new(Some(key), mode, &self.shape))));
                // Release pairs with the Acquire load above: a thread that sees the limit reached
                // also sees every record.
                self.taken.fetch_add(1, Ordering::Release);
            }
        }
        self.slots[at].get().map(Box::as_ref)
    }

    /// All records; the one for keys without their own is last.
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

    /// The keys with traces that were kept late, and their numbers; `None` for keys without a
    /// record.
    pub(super) fn kept_late(&self) -> Vec<(Option<String>, u64)> {
        let of = |record: &Record| {
            let kept = record.kept_late.load(Ordering::Relaxed);
            (kept > 0).then(|| (record.key.as_deref().map(str::to_owned), kept))
        };
        self.records().filter_map(of).collect()
    }

    /// Outcomes by key, in the order of the keys' names. The last entry is for keys without a
    /// record, if there are any.
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
