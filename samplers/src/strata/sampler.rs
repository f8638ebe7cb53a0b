//! Decides about recorded traces whose root has ended.

use std::num::NonZeroU32;

use super::table::{Decaying, Moment, Record, Table};
use super::{Strata, Stratum};
use crate::cap::Cap;
use crate::cap::meters::{self, Meters};
use crate::mix::mix;
use crate::nanos::Nanos;
use crate::probability::Probability;
use crate::randomness::Randomness;
use crate::stratified;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::threshold::Threshold;

/// A key with fewer traces than this is new.
const NEW: f32 = 3.0;
/// The share of the kept bytes that new keys may take together.
const NEW_SHARE: f64 = 0.25;
/// The first traces of a stratum that are kept before lambda is known.
const FIRST: f32 = 3.0;
/// The number of traces before which lambda is not solved, and between two solutions.
const SOLVE_AFTER: u64 = 256;
const SOLVE_EVERY: u64 = 128;
/// The least time between two solutions.
const SOLVE_INTERVAL: Nanos = Nanos::from_millis(100);
/// Lambda is corrected by at most this factor, up or down.
const CORRECTION_MAX: f64 = 2.0;
/// The share that the parameters keep is steered over this time, and over no less.
const STEERED_OVER: f64 = 3600.0;
/// The excess is left alone down to this part of what is wanted. Counts change between two
/// solutions, above all at the start, and a bound that hardly binds would follow them.
const STEERED_BELOW: f64 = 0.95;
/// At most this much time counts between two solutions, in seconds: what a pause hides is unknown.
const PAUSE_MAX: f64 = 300.0;
/// Traces are counted in 2^-8, since one stands for 1 / r.
const PART_BITS: u32 = 8;

/// A recorded trace whose root has ended.
#[derive(Clone, Copy, Debug)]
pub struct RecordedTrace<'a> {
    /// The root's key.
    pub key: &'a str,
    /// Its stratum.
    pub stratum: Stratum,
    /// The threshold with which it was recorded: [`Strata::recorded`].
    pub recorded: Threshold,
    /// Its bytes.
    pub bytes: u64,
    /// The current time.
    pub now: Nanos,
    /// Random bits, such as those of the trace id; the low 24 are used.
    pub random: u64,
}

/// The decision about one recorded trace, as one among those that are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// The threshold of the trace's stratum; `None` if the cap is used up.
    pub threshold: Option<Threshold>,
    /// Whether the stratum keeps the trace.
    pub keeps: bool,
    recorded: Threshold,
}

impl Draw {
    #[cfg(test)]
    pub(super) fn new(threshold: Option<Threshold>, keeps: bool, recorded: Threshold) -> Self {
        Draw { threshold, keeps, recorded }
    }

    /// The threshold and randomness of a kept trace, as those of one decision about all traces,
    /// recorded or not. `also` is the threshold with which policies keep such traces by a
    /// randomness of their own, independent of the stratum's. So the trace is kept with
    ///
    /// > p = r (1 - (1 - q)(1 - q'))
    ///
    /// where r is the probability of being recorded, and q and q' are those of stratum and
    /// policies. `random` are random bits: the randomness is uniform above the threshold, so that
    /// later samplers can compare it too. `None` if neither threshold is known.
    pub fn of_all(&self, also: Option<Threshold>, random: u64) -> Option<(Threshold, Randomness)> {
        if self.threshold.is_none() && also.is_none() {
            return None;
        }
        let all = u128::from(Threshold::RANGE);
        let rejects = |threshold: Option<Threshold>| threshold.map_or(all, |it| u128::from(it.get()));
        let kept = all - rejects(self.threshold) * rejects(also) / all;
        let recorded = all - u128::from(self.recorded.get());
        let kept = ((kept * recorded / all) as u64).clamp(1, Threshold::RANGE);
        let below = u128::from(kept) * u128::from(Randomness::from_low_bits(random).get()) / all;
        let threshold = Threshold::RANGE - kept;
        Some((Threshold::new(threshold)?, Randomness::from_low_bits(threshold + below as u64)))
    }
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StrataCounts {
    /// Recorded traces that were decided.
    pub decided: u64,
    /// Those that their stratum kept.
    pub kept: u64,
    /// The bytes of those.
    pub kept_bytes: u64,
    /// Those dropped because the cap was used up, whatever their stratum.
    pub refused: u64,
    /// The strata with counts of their own at present.
    pub strata: usize,
}

/// Relaxed everywhere: counts for statistics, which publish no other memory.
#[derive(Debug, Default)]
struct Tallies {
    decided: AtomicU64,
    kept: AtomicU64,
    kept_bytes: AtomicU64,
    refused: AtomicU64,
}

/// A float that any thread may read and write; 0 by default.
#[derive(Debug, Default)]
struct Float(AtomicU64);

impl Float {
    fn new(value: f64) -> Self {
        Float(AtomicU64::new(value.to_bits()))
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

/// Decides by stratum. Any number of threads may call it at once; it takes no lock and allocates
/// nothing when it decides.
#[derive(Debug)]
pub struct StrataSampler {
    strata: Strata,
    /// The hashes of the keys with probabilities, in order.
    named: Box<[u64]>,
    floor: f64,
    per_half_life: f32,
    cap: Cap,
    /// Half of the cap.
    half: Cap,
    /// The number of these parameters among all of the state.
    number: u32,
    state: Arc<State>,
}

/// The state that continues when parameters change.
#[derive(Debug)]
struct State {
    secret: u64,
    /// The traces of all keys, recorded or not, in 2^-8.
    traces: AtomicU64,
    keys: Table,
    records: Table,
    /// For strata without a record, by octave and error.
    others: Box<[Record]>,
    /// For all new keys.
    new: Record,
    /// The bytes of strata without a probability in the parameters, and those that they should have
    /// kept by the ones they had.
    unfitted: Decaying,
    expected: Decaying,
    steered: Steered,
    /// No stratum keeps more of its traces than this number divided by its count.
    ceiling: Float,
    lambda: Float,
    correction: Float,
    /// The probability of new keys.
    new_p: Float,
    /// The factor on all probabilities below 1, toward a budget.
    factor: Float,
    solved: AtomicU64,
    solved_at: AtomicU64,
    meters: Meters,
    /// Meters of the half of the cap for strata of probability 1.
    whole: Meters,
    tallies: Tallies,
}

impl State {
    fn new(secret: u64) -> Self {
        State {
            secret,
            traces: AtomicU64::new(0),
            keys: Table::new(Strata::MAX),
            records: Table::new(Strata::MAX),
            others: (0..2 * Stratum::OCTAVES).map(|_| Record::default()).collect(),
            new: Record::default(),
            unfitted: Decaying::default(),
            expected: Decaying::default(),
            steered: Steered::default(),
            ceiling: Float::new(f64::INFINITY),
            lambda: Float::new(0.0),
            correction: Float::new(1.0),
            new_p: Float::new(1.0),
            factor: Float::new(1.0),
            solved: AtomicU64::new(0),
            solved_at: AtomicU64::new(0),
            meters: Meters::default(),
            whole: Meters::default(),
            tallies: Tallies::default(),
        }
    }
}

impl StrataSampler {
    /// A sampler for these strata, under this process's share of a cap on traces and bytes; a cap's
    /// allowances of keys do not apply. `secret` must be 64 unguessable bits, new for each process;
    /// in a replay, the seed.
    pub fn new(strata: Strata, cap: &Cap, secret: u64) -> Self {
        Self::with_state(strata, cap, 1, Arc::new(State::new(secret)))
    }

    /// A sampler for other strata or another cap that continues with the counts of this one. This
    /// one may be used until the other has taken its place.
    #[must_use]
    pub fn reconfigured(&self, strata: Strata, cap: &Cap) -> Self {
        let state = Arc::clone(&self.state);
        if self.strata.half_life == strata.half_life && self.strata.lambda == strata.lambda {
            return Self::with_state(strata, cap, self.number.wrapping_add(1).max(1), state);
        }
        // Counts of another half-life, and what was solved for them, mean something else.
        Self::new(strata, cap, mix(state.secret))
    }

    fn with_state(strata: Strata, cap: &Cap, number: u32, state: Arc<State>) -> Self {
        let own = cap.own_share();
        let mut cap = Cap::none();
        (cap.traces, cap.bytes) = (own.traces, own.bytes);
        let mut named: Box<[u64]> = strata.probabilities.keys().map(|key| hash(key)).collect();
        named.sort_unstable();
        if let Some(lambda) = strata.lambda {
            state.lambda.set(lambda);
        }
        let per_half_life = 1.0 / strata.half_life as f32;
        let half = cap.with_replicas(NonZeroU32::MIN.saturating_add(1)).own_share();
        let floor = strata.floor().get();
        StrataSampler { named, floor, per_half_life, cap, half, number, state, strata }
    }

    /// The settings.
    pub fn strata(&self) -> &Strata {
        &self.strata
    }

    /// Scales all probabilities below 1 and the share of the bytes that the others follow, toward a
    /// budget. A factor below 1 also bounds strata of probability 1 that have many traces.
    pub fn scale(&self, factor: f64) {
        self.state.factor.set(factor);
    }

    /// Decides about one trace, and counts it.
    pub fn draw(&self, trace: &RecordedTrace<'_>) -> Draw {
        let weight = trace.recorded.adjusted_count();
        let part = (weight * f64::from(1u32 << PART_BITS)) as u64;
        let traces = self.state.traces.fetch_add(part, Ordering::Relaxed);
        let now = self.moment(traces);
        let key = hash(trace.key);
        let bytes = (trace.bytes as f64 * weight) as f32;
        let most = trace.recorded.probability().get();
        let count = |record: &Record| {
            record.set_most(most as f32);
            record.bytes.add(bytes, now);
            record.count.add(weight as f32, now)
        };
        let is_new = self.named.binary_search(&key).is_err() && self.is_new(key, weight as f32, now);
        let (record, place, p) = if is_new {
            count(&self.state.new);
            (&self.state.new, 0, self.state.new_p.get())
        } else if let place = place(key, trace.stratum)
            && let Some(record) = self.state.records.record(place, now)
        {
            let fitted = self.fitted(record, trace);
            (record, place, self.probability(fitted, (count(record), bytes, most), (traces, now)))
        } else {
            let number = trace.stratum.number();
            let record = &self.state.others[number];
            let fitted = self.strata.probability(trace.key, trace.stratum);
            let fitted = fitted.map(Probability::get);
            let p = self.probability(fitted, (count(record), bytes, most), (traces, now));
            (record, number as u64 + 1, p)
        };
        let q = (p / most).min(1.0);
        let start = mix(self.state.secret ^ place);
        let randomness = stratified::value(start, record.next(), trace.random);
        let threshold = self.capped(q, trace);
        let keeps = threshold.is_some_and(|threshold| threshold.keeps(randomness));
        self.settle(Draw { threshold, keeps, recorded: trace.recorded }, q >= 1.0, trace)
    }

    /// Whether the key has had few traces, or none at all, as far as is known.
    fn is_new(&self, key: u64, weight: f32, now: Moment) -> bool {
        self.state.keys.record(key, now).is_none_or(|record| record.count.add(weight, now) < NEW)
    }

    /// The probability in the parameters, looked up once for each record.
    fn fitted(&self, record: &Record, trace: &RecordedTrace<'_>) -> Option<f64> {
        let known = record.fitted(self.number).unwrap_or_else(|| {
            let p = self.strata.probability(trace.key, trace.stratum).map(|p| p.get() as f32);
            record.set_fitted(self.number, p);
            p
        });
        known.map(f64::from)
    }

    fn probability(
        &self,
        fitted: Option<f64>,
        (count, bytes, most): (f32, f32, f64),
        (traces, now): (u64, Moment),
    ) -> f64 {
        let factor = self.state.factor.get();
        let lambda = self.state.lambda.get();
        if let Some(p) = fitted {
            let p = if p < 1.0 { (p * factor).min(1.0) } else { p };
            return p.min((self.state.ceiling.get() / f64::from(count)).max(self.bounded(factor)));
        }
        let p = if lambda > 0.0 {
            (lambda / f64::from(count)).max(self.floor * factor).min(1.0)
        } else if count <= FIRST && traces >> PART_BITS < SOLVE_AFTER {
            1.0
        } else {
            self.strata.size.get()
        };
        self.state.unfitted.add(bytes, now);
        self.state.expected.add(bytes * p.min(most) as f32, now);
        p
    }

    /// The threshold with which the cap allows a trace of this probability; `None` if it is used
    /// up. A cap that runs low divides probabilities below 1. Strata of probability 1 have half of
    /// the cap: within it they stay whole, whatever the others take, and beyond it they do not take
    /// what is left for the others.
    fn capped(&self, q: f64, trace: &RecordedTrace<'_>) -> Option<Threshold> {
        let of_all = |q| Probability::new(q).map(Threshold::from_probability);
        if self.cap.is_none() {
            return of_all(q);
        }
        let raised_by =
            |cap: &Cap, meters: &Meters| meters::threshold(cap, meters, meters, trace.bytes, trace.now);
        let mut raised = raised_by(&self.cap, &self.state.meters)?;
        if q >= 1.0 {
            raised = raised_by(&self.half, &self.state.whole)?;
        }
        of_all(q * (Threshold::RANGE - raised) as f64 / Threshold::RANGE as f64)
    }

    fn settle(&self, draw: Draw, is_whole: bool, trace: &RecordedTrace<'_>) -> Draw {
        let add = |tally: &AtomicU64, number| tally.fetch_add(number, Ordering::Relaxed);
        add(&self.state.tallies.decided, 1);
        let admits_by = |cap: &Cap, meters: &Meters| {
            meters::admit(cap, (meters, meters), trace.bytes, Randomness::MAX, trace.now)
        };
        let admits = || {
            self.cap.is_none()
                || (!is_whole || admits_by(&self.half, &self.state.whole))
                    && admits_by(&self.cap, &self.state.meters)
        };
        if draw.threshold.is_none() || draw.keeps && !admits() {
            add(&self.state.tallies.refused, 1);
            return Draw { threshold: None, keeps: false, ..draw };
        }
        if draw.keeps {
            add(&self.state.tallies.kept, 1);
            add(&self.state.tallies.kept_bytes, trace.bytes);
        }
        draw
    }

    fn moment(&self, traces: u64) -> Moment {
        Moment { at: (traces >> PART_BITS) as u32, per_half_life: self.per_half_life }
    }

    /// Adapts lambda, and the probability of new keys, to the traffic so far. Call it at any time,
    /// off the path of requests: it does nothing if too little has changed, and otherwise takes up
    /// to a millisecond.
    pub fn solve(&self, now: Nanos) {
        let traces = self.state.traces.load(Ordering::Relaxed);
        let (solved, solved_at) =
            (self.state.solved.load(Ordering::Relaxed), self.state.solved_at.load(Ordering::Relaxed));
        let parts = |number: u64| number << PART_BITS;
        let is_due = if solved == 0 {
            traces >= parts(SOLVE_AFTER)
        } else {
            traces.wrapping_sub(solved) >= parts(SOLVE_EVERY)
                && now.get().abs_diff(solved_at) >= SOLVE_INTERVAL.get()
        };
        // Only the caller that changes the number solves.
        if !is_due
            || self
                .state
                .solved
                .compare_exchange(solved, traces, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        self.state.solved_at.store(now.get(), Ordering::Relaxed);
        let moment = self.moment(traces);
        let seconds = if solved == 0 { 0.0 } else { now.get().abs_diff(solved_at) as f64 / 1e9 };
        let sums = Sums::new(self, moment);
        self.steer(&sums, traces.wrapping_sub(solved) as f64, seconds.min(PAUSE_MAX));
        let factor = self.state.factor.get();
        let share = (self.strata.size.get() * factor).min(1.0);
        let of = |sum: &Decaying| f64::from(sum.get(moment));
        let (new, unfitted) = (of(&self.state.new.bytes), of(&self.state.unfitted));
        let all = bytes(&sums.fitted) + unfitted + new;
        if new > 0.0 {
            self.state.new_p.set((NEW_SHARE * share * all / new).min(1.0));
        }
        // The others share the rest of what new keys take.
        let share = share * all - self.state.new_p.get() * new;
        let share = (share / (all - new).max(1.0)).clamp(0.0, 1.0);
        if self.strata.lambda.is_some() {
            return;
        }
        let kept = share * bytes(&sums.unfitted);
        let Some(lambda) = lambda(&sums.unfitted, kept, self.floor * factor) else { return };
        // A stratum's count has decayed since its last trace, so the sum above is not quite what is
        // kept. The rest is corrected by what was.
        let (wanted, expected) = (share * unfitted, of(&self.state.expected));
        let elapsed = (traces.wrapping_sub(solved) >> PART_BITS) as f64 / f64::from(self.strata.half_life);
        if solved > 0 && wanted > 0.0 && expected > 0.0 {
            let change = (wanted / expected).powf(elapsed.min(1.0));
            let correction = self.state.correction.get() * change;
            self.state.correction.set(correction.clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX));
        }
        self.state.lambda.set(lambda * self.state.correction.get());
    }

    /// The probability below which the ceiling bounds no stratum: those below it keep less than the
    /// size in any case.
    fn bounded(&self, factor: f64) -> f64 {
        self.strata.size.get() * factor.min(1.0)
    }

    /// Bounds strata whose probabilities come from the parameters, if over an hour these keep more
    /// than the size of their bytes, or if a budget lowers it. Requests that become slower than
    /// recorded move to strata with higher probabilities. Only strata with many traces reach the
    /// bound, as with lambda, so what is rare stays whole.
    fn steer(&self, sums: &Sums, traces: f64, seconds: f64) {
        let fitted = bytes(&sums.fitted);
        if fitted <= 0.0 {
            return;
        }
        let size = self.strata.size.get();
        let wanted = sums.wanted;
        let share = self.state.steered.share((wanted * traces, fitted * traces), seconds, size);
        let factor = self.state.factor.get();
        // An hour of slow requests is not paid for by the next one.
        let kept = factor.min(1.0) * (wanted * size / share).max(fitted * size).min(wanted);
        let ceiling = match kept < STEERED_BELOW * wanted {
            true => lambda(&sums.fitted, kept, self.bounded(factor)),
            false => None,
        };
        self.state.ceiling.set(ceiling.unwrap_or(f64::INFINITY));
    }

    /// The lambda of strata without a probability in the parameters; `None` before the first
    /// traces.
    pub fn lambda(&self) -> Option<f64> {
        Some(self.state.lambda.get()).filter(|lambda| *lambda > 0.0)
    }

    /// Counts since the start.
    pub fn counts(&self) -> StrataCounts {
        let read = |tally: &AtomicU64| tally.load(Ordering::Relaxed);
        StrataCounts {
            decided: read(&self.state.tallies.decided),
            kept: read(&self.state.tallies.kept),
            kept_bytes: read(&self.state.tallies.kept_bytes),
            refused: read(&self.state.tallies.refused),
            strata: self.state.records.records().filter(|record| record.is_taken()).count(),
        }
    }
}

/// The share of their bytes that strata keep by the parameters' probabilities, over an hour.
#[derive(Debug, Default)]
struct Steered {
    /// Sums that decay by the hour, and the time that they cover in seconds.
    wanted: Float,
    all: Float,
    seconds: Float,
}

impl Steered {
    /// The share with these bytes of the last seconds. The first hour begins with the size.
    fn share(&self, (wanted, all): (f64, f64), seconds: f64, size: f64) -> f64 {
        let rest = (-seconds / STEERED_OVER).exp();
        self.wanted.set(self.wanted.get() * rest + wanted);
        self.all.set(self.all.get() * rest + all);
        self.seconds.set(self.seconds.get() + seconds);
        let known = 1.0 - (-self.seconds.get() / STEERED_OVER).exp();
        size + known * (self.wanted.get() / self.all.get() - size)
    }
}

/// Counts of a stratum.
#[derive(Clone, Copy, Debug)]
struct Counted {
    count: f64,
    bytes: f64,
    /// The probability that it has at most: that of being recorded, or of the parameters.
    most: f64,
}

fn bytes(strata: &[Counted]) -> f64 {
    strata.iter().map(|of| of.bytes).sum()
}

/// The strata with traces of late, by whether the parameters give them a probability.
struct Sums {
    fitted: Vec<Counted>,
    unfitted: Vec<Counted>,
    /// The bytes that the parameters would keep of the former, without a budget.
    wanted: f64,
}

impl Sums {
    fn new(sampler: &StrataSampler, moment: Moment) -> Self {
        let mut sums = Sums { fitted: Vec::new(), unfitted: Vec::new(), wanted: 0.0 };
        let factor = sampler.state.factor.get();
        let counted = |record: &Record, p: f64| Counted {
            count: record.count.get(moment).into(),
            bytes: record.bytes.get(moment).into(),
            most: p.min(record.most().into()),
        };
        for record in sampler.state.records.records() {
            match record.fitted(sampler.number) {
                Some(Some(p)) => {
                    let p = f64::from(p);
                    let own = counted(record, p);
                    sums.wanted += own.bytes * own.most;
                    sums.fitted.push(counted(record, if p < 1.0 { p * factor } else { p }));
                }
                Some(None) => sums.unfitted.push(counted(record, 1.0)),
                None => {}
            }
        }
        // Traces without a record of their own are mostly of strata that are in no file.
        sums.unfitted.extend(sampler.state.others.iter().map(|record| counted(record, 1.0)));
        sums.fitted.retain(|of| of.count > 0.0);
        sums.unfitted.retain(|of| of.count > 0.0);
        sums
    }
}

/// The lambda with which strata of these counts keep this many bytes; `None` without strata.
fn lambda(strata: &[Counted], wanted: f64, floor: f64) -> Option<f64> {
    let most = strata.iter().map(|of| of.count).reduce(f64::max)?;
    let kept = |lambda: f64| -> f64 {
        strata.iter().map(|of| of.bytes * (lambda / of.count).max(floor).min(of.most)).sum()
    };
    // Halvings of the logarithm, to within a millionth of a millionth.
    let (mut low, mut high) = ((1e-6f64).ln(), most.max(1.0).ln());
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if kept(middle.exp()) > wanted { high = middle } else { low = middle }
    }
    Some(high.exp())
}

fn hash(key: &str) -> u64 {
    crate::table::hash(key.as_bytes())
}

/// The place of a stratum among all.
fn place(key: u64, stratum: Stratum) -> u64 {
    let outcome = mix(stratum.number() as u64 + 1);
    mix(key ^ outcome ^ stratum.kind.map_or(0, |kind| mix(kind).rotate_left(1)))
}
