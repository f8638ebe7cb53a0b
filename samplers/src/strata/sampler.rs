//! Decides about recorded traces whose root has ended.

use std::num::NonZeroU32;

use super::draw::{Draw, RecordedTrace};
use super::state::{PART_BITS, State};
use super::table::{Moment, Record};
use super::{Strata, Stratum};
use crate::cap::Cap;
use crate::cap::meters::{self, Meters};
use crate::mix::mix;
use crate::probability::Probability;
use crate::randomness::Randomness;
use crate::stratified;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::threshold::Threshold;

/// A key with fewer traces than this is new.
const NEW: f32 = 3.0;
/// The first traces of a stratum that are kept before lambda is known.
const FIRST: f32 = 3.0;
/// The number of traces before which lambda is not solved.
pub(super) const SOLVE_AFTER: u64 = 256;

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

/// Decides by stratum. Any number of threads may call it at once; it takes no lock and allocates
/// nothing when it decides.
#[derive(Debug)]
pub struct StrataSampler {
    pub(super) strata: Strata,
    /// The hashes of the keys with probabilities, in order.
    named: Box<[u64]>,
    pub(super) floor: f64,
    per_half_life: f32,
    cap: Cap,
    /// Half of the cap.
    half: Cap,
    /// The number of these parameters among all of the state.
    pub(super) number: u32,
    pub(super) state: Arc<State>,
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
        let size = self.strata.size.get();
        let (p, expected) = if lambda > 0.0 {
            let p = (lambda / f64::from(count)).max(self.floor * factor).min(1.0);
            (p, p)
        } else if count <= FIRST && traces >> PART_BITS < SOLVE_AFTER {
            // Later traces do not pay for those that are kept to learn about strata.
            (1.0, size)
        } else {
            (size, size)
        };
        self.state.unfitted.add(bytes, now);
        self.state.expected.add(bytes * expected.min(most) as f32, now);
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

    pub(super) fn moment(&self, traces: u64) -> Moment {
        Moment { at: (traces >> PART_BITS) as u32, per_half_life: self.per_half_life }
    }

    /// The probability below which the ceiling bounds no stratum: those below it keep less than the
    /// size in any case.
    pub(super) fn bounded(&self, factor: f64) -> f64 {
        self.strata.size.get() * factor.min(1.0)
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

fn hash(key: &str) -> u64 {
    crate::table::hash(key.as_bytes())
}

/// The place of a stratum among all.
fn place(key: u64, stratum: Stratum) -> u64 {
    let outcome = mix(stratum.number() as u64 + 1);
    mix(key ^ outcome ^ stratum.kind.map_or(0, |kind| mix(kind).rotate_left(1)))
}
