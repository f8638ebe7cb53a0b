//! Replays a workload through a sampler, in recorded time.

use astracer_baselines::{Baseline, Call};
use astracer_samplers::{Cap, Meter, Nanos, Randomness, Request, Sampler, Threshold, net};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::draw::Draw;
use crate::random::Random;
use crate::stop::Stop;
use crate::workload::Workload;

/// The decision about one arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    /// The index of the arrival.
    pub(crate) arrival: usize,
    /// The arrival's time on this draw, ns.
    pub(crate) at_ns: u64,
    pub(crate) keep: bool,
    /// The number of earlier arrivals of the key on this draw; 0 with independent randomness.
    pub(crate) place: u64,
    /// The threshold of the decision. `None` if it was not made by chance.
    pub(crate) by_chance: Option<Threshold>,
}

impl Decided {
    /// The number of traces that this one represents if it is kept. `None` if the decision was not
    /// made by chance.
    pub(crate) fn weight(&self) -> Option<f64> {
        self.by_chance.map(|threshold| threshold.adjusted_count())
    }
}

/// Decides each arrival in the order of a draw and calls `each` with the decision. `period` is the
/// window that the draw's phase is a share of. Returns false if asked to stop before the end.
///
/// The random numbers depend only on the draw. So all samplers are compared on the same numbers,
/// and a draw gives the same traces on every machine. A cap on bytes meters a trace when it begins,
/// whereas a service meters it on export.
pub(crate) fn replay(
    workload: &Workload,
    sampler: &Sampler,
    period: Nanos,
    draw: &Draw,
    stop: Stop<'_>,
    mut each: impl FnMut(Decided),
) -> bool {
    let mut numbers = Numbers::new(workload, draw);
    let ahead_ns = (period.get() as f64 * draw.phase) as u64;
    let bytes = ByteMeters::new(sampler.cap(), workload.keys().len());
    let Some(arrivals) = draw.arrivals(workload, stop) else { return false };
    for (place, (at_ns, index)) in arrivals.into_iter().enumerate() {
        if stop.is_asked_at(place) {
            return false;
        }
        let arrival = &workload.arrivals()[index as usize];
        let now = Nanos::new(at_ns.saturating_add(ahead_ns));
        let place_of_key = numbers.place(arrival.key);
        let randomness = numbers.of((workload, index as usize), draw);
        let decision = sampler.decide(&Request::new(workload.key(arrival), randomness, now));
        each(Decided {
            arrival: index as usize,
            at_ns,
            keep: decision.keep && bytes.admit(arrival.key, arrival.otlp_bytes, now),
            place: place_of_key,
            by_chance: decision.threshold,
        });
    }
    true
}

/// The cap on exported bytes, which a service applies before its exporter.
struct ByteMeters {
    cap: Cap,
    all: Meter,
    by_key: Vec<Meter>,
}

impl ByteMeters {
    fn new(cap: &Cap, keys: usize) -> Self {
        let cap = cap.own_share();
        let keys = if cap.key_bytes.is_some() { keys } else { 0 };
        Self { cap, all: Meter::default(), by_key: (0..keys).map(|_| Meter::default()).collect() }
    }

    fn admit(&self, key: u32, bytes: u64, now: Nanos) -> bool {
        let of_key = self.cap.key_bytes.zip(self.by_key.get(key as usize));
        of_key.is_none_or(|(allowance, meter)| meter.admit(&allowance, bytes, now))
            && self.cap.bytes.is_none_or(|allowance| self.all.admit(&allowance, bytes, now))
    }
}

/// Replays a baseline. Its periods begin with the first arrival, as in the originals, and its
/// random numbers are always independent.
pub(crate) fn replay_baseline(
    workload: &Workload,
    baseline: &mut dyn Baseline,
    draw: &Draw,
    stop: Stop<'_>,
    mut keep: impl FnMut(usize),
) -> bool {
    let mut numbers = Numbers::independent(draw.seed);
    let Some(arrivals) = draw.arrivals(workload, stop) else { return false };
    for (place, (at_ns, index)) in arrivals.into_iter().enumerate() {
        if stop.is_asked_at(place) {
            return false;
        }
        let key = workload.arrivals()[index as usize].key;
        if baseline.keeps(Call { key, at_ns, uniform: uniform(numbers.next(key)) }) {
            keep(index as usize);
        }
    }
    true
}

/// Random numbers for one trace after the other.
#[derive(Clone, Debug)]
pub(crate) enum Numbers {
    Independent(Xoshiro256PlusPlus),
    /// For each key, the start of its net and the number of numbers that it has given.
    Stratified(Vec<(u64, u64)>),
}

/// The stream of a draw's seed that provides the start of each key's net.
const KEYS_STREAM: u64 = 2;

impl Numbers {
    pub(crate) fn new(workload: &Workload, draw: &Draw) -> Self {
        if !draw.stratified {
            return Self::independent(draw.seed);
        }
        let mut random = Random::new(draw.seed, KEYS_STREAM);
        Self::Stratified((0..workload.keys().len()).map(|_| (random.bits(), 0)).collect())
    }

    fn independent(seed: u64) -> Self {
        Self::Independent(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// The next number of this key, in [0, 1). A probability of p keeps the trace if the number is
    /// below p.
    pub(crate) fn uniform(&mut self, key: u32) -> f64 {
        uniform(self.next(key))
    }

    /// The randomness of an arrival: that of its trace id if the draw says so, else the next number
    /// of its key.
    pub(crate) fn of(&mut self, (workload, arrival): (&Workload, usize), draw: &Draw) -> Randomness {
        match draw.of_ids {
            true => Randomness::from_low_bits(workload.trace_id(arrival).0 as u64),
            false => self.next(workload.arrivals()[arrival].key),
        }
    }

    fn next(&mut self, key: u32) -> Randomness {
        match self {
            Self::Independent(rng) => Randomness::from_low_bits(rng.next_u64()),
            Self::Stratified(nets) => {
                let (start, given) = &mut nets[key as usize];
                let number = net(*start, *given);
                *given += 1;
                Randomness::from_low_bits(number >> (u64::BITS - Randomness::BITS))
            }
        }
    }

    /// The number of numbers that this key has been given; 0 with independent randomness.
    fn place(&self, key: u32) -> u64 {
        match self {
            Self::Independent(_) => 0,
            Self::Stratified(nets) => nets[key as usize].1,
        }
    }
}

/// A number in [0, 1) that is below `p` if a threshold of probability `p` keeps the randomness.
/// High randomness is kept, so the number is inverted. Three bits are lost, because a double holds
/// 53.
fn uniform(randomness: Randomness) -> f64 {
    const LOST_BITS: u32 = Randomness::BITS - f64::MANTISSA_DIGITS;
    ((Randomness::MAX.get() - randomness.get()) >> LOST_BITS) as f64 / (1u64 << f64::MANTISSA_DIGITS) as f64
}

#[cfg(test)]
mod tests {
    use astracer_samplers::Probability;

    use super::*;
    use crate::testing::synthetic;

    #[test]
    fn draws_are_those_of_our_samplers() {
        assert_eq!(uniform(Randomness::MAX), 0.0);
        assert_eq!(uniform(Randomness::MIN), 1.0 - f64::EPSILON / 2.0);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        for p in [1.0, 0.5, 0.1, 0.001] {
            let threshold = Threshold::from_probability(Probability::new(p).expect("a probability"));
            for _ in 0..1000 {
                let randomness = Randomness::from_low_bits(rng.next_u64());
                assert_eq!(
                    uniform(randomness) < p,
                    threshold.keeps(randomness),
                    "{randomness:?} against {p}"
                );
            }
        }
    }

    /// The first n numbers are one aligned block for each bit that is 1 in n (6 in 1,000), and each
    /// block is off by less than 1. With independent numbers the difference would be about sqrt(n).
    #[test]
    fn stratified_numbers_are_spread_evenly_within_each_key() {
        let workload = synthetic(10, 1);
        for seed in 0..20 {
            let draw = Draw { stratified: true, ..Draw::recorded(seed) };
            let mut numbers = Numbers::new(&workload, &draw);
            for p in [0.5, 0.1, 0.03] {
                let mut numbers = numbers.clone();
                let kept = (0..1000).filter(|_| uniform(numbers.next(0)) < p).count() as f64;
                assert!((kept - 1000.0 * p).abs() < 6.0, "seed {seed}: {kept} of 1000 by {p}");
                assert_eq!((numbers.place(0), numbers.place(1)), (1000, 0));
            }
            // By hand: of the first two numbers one has the first bit and the other has not, and
            // all later bits are the same.
            let apart = (numbers.uniform(1) - numbers.uniform(1)).abs();
            assert_eq!(apart, 0.5);
            // Other keys start from other numbers.
            let mut again = Numbers::new(&workload, &draw);
            let first = again.next(0);
            assert_ne!(first, again.next(1));
            // Each key has its own sequence, whatever the other keys use.
            let second = again.next(0);
            let mut alone = Numbers::new(&workload, &draw);
            assert_eq!([alone.next(0), alone.next(0)], [first, second]);
        }
    }
}
