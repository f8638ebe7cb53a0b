//! The chance that a run keeps a trace, if everything else in the run stays the same.
//!
//! Without jitter, this is the probability of the decision. With jitter, the trace may come a
//! little earlier or later, before or after other calls of its key, and the decisions about these
//! show what it would meet there. So the chance is their mean over the times at which the trace may
//! come, weighted by the probabilities of these times. This holds if moving past a single call
//! makes no difference, that is, with many calls of the key around.

use std::collections::BTreeMap;

use astracer_samplers::{Randomness, Threshold};

use crate::replay::Decided;

/// Resolution in time: this many cells per standard deviation of the jitter, up to [`REACH`]
/// standard deviations away.
const CELLS_PER_SD: usize = 32;
const REACH: usize = 5;
const CELLS: usize = 2 * REACH * CELLS_PER_SD;
/// The number of values of a randomness.
const RANGE: f64 = (Randomness::MAX.get() + 1) as f64;

/// The chance of one trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Chance {
    /// Independent of other traces.
    Alone(f64),
    /// With stratified randomness, the numbers of a key's traces depend on each other by their
    /// places among the key's traces: see [`joint`].
    Placed(u64, Threshold),
}

impl Chance {
    /// The chance of this decision, without jitter.
    pub(super) fn of(decided: &Decided, is_stratified: bool) -> Self {
        match decided.by_chance {
            Some(threshold) if is_stratified => Self::Placed(decided.place, threshold),
            _ => Self::Alone(probability(decided)),
        }
    }

    pub(super) fn probability(&self) -> f64 {
        match self {
            Self::Alone(probability) => *probability,
            Self::Placed(_, threshold) => threshold.probability().get(),
        }
    }
}

pub(super) fn probability(decided: &Decided) -> f64 {
    match decided.by_chance {
        Some(threshold) => threshold.probability().get(),
        None => f64::from(u8::from(decided.keep)),
    }
}

/// Decisions about a key's calls near the recorded time of one of its traces.
#[derive(Clone, Debug)]
pub(super) struct Nearby {
    begin_ns: f64,
    cells_per_ns: f64,
    cells: Vec<Cell>,
}

/// The decisions in one cell of time.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// The probability of the first decision.
    first: f64,
    sum: f64,
    calls: u32,
}

impl Nearby {
    pub(super) fn new(at_ns: u64, jitter_ms: f64) -> Self {
        let sd_ns = jitter_ms * 1e6;
        Self {
            begin_ns: at_ns as f64 - REACH as f64 * sd_ns,
            cells_per_ns: CELLS_PER_SD as f64 / sd_ns,
            cells: vec![Cell::default(); CELLS],
        }
    }

    /// Adds a call. Returns false if it comes before all cells, in which case it also does for
    /// traces that come later.
    pub(super) fn add(&mut self, at_ns: u64, probability: impl FnOnce() -> f64) -> bool {
        let place = (at_ns as f64 - self.begin_ns) * self.cells_per_ns;
        if place >= 0.0
            && let Some(cell) = self.cells.get_mut(place as usize)
        {
            let probability = probability();
            if cell.calls == 0 {
                cell.first = probability;
            }
            cell.sum += probability;
            cell.calls += 1;
        }
        place >= 0.0
    }

    /// Whether a call comes after all cells.
    pub(super) fn is_over(&self, at_ns: u64) -> bool {
        (at_ns as f64 - self.begin_ns) * self.cells_per_ns >= CELLS as f64
    }

    /// The number of calls in the cells, including the trace's own.
    pub(super) fn calls(&self) -> u32 {
        self.cells.iter().map(|cell| cell.calls).sum()
    }

    /// The chance of the trace. A cell without calls has the probability of the first call after
    /// it; cells after the last call have the probability of the last one.
    pub(super) fn chance(&self) -> f64 {
        let (mut chance, mut all, mut waiting) = (0.0, 0.0, 0.0);
        let mut last = 0.0;
        for (place, cell) in self.cells.iter().enumerate() {
            let deviations = (place as f64 + 0.5) / CELLS_PER_SD as f64 - REACH as f64;
            let density = (-0.5 * deviations * deviations).exp();
            all += density;
            if cell.calls > 0 {
                last = cell.sum / f64::from(cell.calls);
                chance += waiting * cell.first + density * last;
                waiting = 0.0;
            } else {
                waiting += density;
            }
        }
        (chance + waiting * last) / all
    }
}

/// One of a key's traces: its bit in an outcome, its place among the key's traces, and the
/// threshold that its number must reach.
pub(super) type Placed = (u32, u64, Threshold);

/// The possible outcomes for traces of one key with stratified randomness, as bits of the kept
/// traces, each with its probability.
///
/// Exact for an ideal scramble of the net (see [`astracer_samplers::net`]). There, bit b of a
/// number (0 is the first) is bit b of the trace's place (0 is the last), flipped by a coin for
/// each combination of the place's higher bits. So traces whose places agree in all bits from b on
/// have the same bits from b on in their numbers, and the coins of different combinations are
/// independent.
pub(super) fn joint(traces: &[Placed]) -> Vec<(u32, f64)> {
    let Some((split, _)) = split(traces) else { return Vec::new() };
    let mut outcomes = Outcomes::new();
    let pieces = Pieces::of(traces, split + 1);
    for (index, (begin, piece)) in pieces.0.iter().enumerate() {
        let end = pieces.0.get(index + 1).map_or(1.0, |next| next.0);
        piece.iter().for_each(|(bits, p)| *outcomes.entry(*bits).or_default() += p * (end - begin));
    }
    outcomes.into_iter().collect()
}

/// The highest bit in which the places differ, and the bits that differ; bit 0 if there is one
/// trace. `None` without traces.
fn split(traces: &[Placed]) -> Option<(u32, u64)> {
    let first = traces.first()?.1;
    let differing = traces.iter().fold(0, |bits, trace| bits | (trace.1 ^ first));
    Some((differing.checked_ilog2().unwrap_or(0), differing))
}

type Outcomes = BTreeMap<u32, f64>;

/// The outcomes for traces whose places agree in all bits from a level on, as a function of the
/// bits of their numbers from that level on: a number v from 0 to 1. It is constant in pieces; each
/// has its beginning.
struct Pieces(Vec<(f64, Outcomes)>);

impl Pieces {
    fn of(traces: &[Placed], level: u32) -> Self {
        match split(traces) {
            Some((split, differing)) if differing != 0 => {
                let (ones, zeros): (Vec<Placed>, Vec<Placed>) =
                    traces.iter().partition(|trace| trace.1 >> split & 1 == 1);
                let (ones, zeros) = (Self::of(&ones, split), Self::of(&zeros, split));
                let mut pieces = Self::average(&[&ones, &zeros], |v, flip| {
                    product(ones.at((flip + v) / 2.0), zeros.at((1.0 - flip + v) / 2.0))
                });
                for _ in split + 1..level {
                    pieces = Self::average(&[&pieces], |v, flip| pieces.at((flip + v) / 2.0).clone());
                }
                pieces
            }
            _ => Self::of_one(traces, level),
        }
    }

    /// The coins of the bits before `level` are this trace's own. (Two traces never have one
    /// place.)
    fn of_one(traces: &[Placed], level: u32) -> Self {
        let Some(&(bit, _, threshold)) = traces.first() else { return Self(vec![(0.0, Outcomes::new())]) };
        let values = f64::from(level).exp2();
        let reached = threshold.get() as f64 / RANGE * values;
        let surely = (values - 1.0 - reached.floor()) / values;
        let outcomes = |p: f64| Outcomes::from([(0, 1.0 - p), (bit, p)]);
        match reached.fract() {
            0.0 => Self(vec![(0.0, outcomes(surely + 1.0 / values))]),
            fract => Self(vec![(0.0, outcomes(surely)), (fract, outcomes(surely + 1.0 / values))]),
        }
    }

    fn at(&self, v: f64) -> &Outcomes {
        // The first piece begins at 0.
        let after = self.0.partition_point(|&(begin, _)| begin <= v);
        &self.0[after.saturating_sub(1)].1
    }

    /// The mean of two functions of v, one for each side of a coin, whose pieces begin where v / 2
    /// or (1 + v) / 2 is a beginning of one of `inner`.
    fn average(inner: &[&Pieces], of: impl Fn(f64, f64) -> Outcomes) -> Self {
        let begins = inner.iter().flat_map(|pieces| pieces.0.iter().map(|&(begin, _)| (2.0 * begin).fract()));
        let mut begins: Vec<f64> = begins.chain([0.0]).collect();
        begins.sort_by(f64::total_cmp);
        begins.dedup();
        let piece = |begin: f64| {
            let mut outcomes = Outcomes::new();
            for (bits, p) in of(begin, 0.0).into_iter().chain(of(begin, 1.0)) {
                *outcomes.entry(bits).or_default() += p / 2.0;
            }
            (begin, outcomes)
        };
        Self(begins.into_iter().map(piece).collect())
    }
}

fn product(one: &Outcomes, other: &Outcomes) -> Outcomes {
    let pairs = one.iter().flat_map(|(bits, p)| other.iter().map(move |(more, q)| (bits | more, p * q)));
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use astracer_samplers::{Probability, net};

    use super::*;
    use crate::random::Random;

    fn placed(places: &[(u64, f64)]) -> Vec<Placed> {
        let of = |(index, &(place, p)): (usize, &(u64, f64))| {
            (1 << index, place, Threshold::from_probability(Probability::new(p).expect("a probability")))
        };
        places.iter().enumerate().map(of).collect()
    }

    /// By hand: the numbers of a key's first two traces differ in their first bit alone. With
    /// probability 3/4 each, a quarter of the starts misses the first trace (a number below 1/4),
    /// another quarter the second, and none misses both. The first and the third differ in their
    /// second bit, and a number below 1/4 needs a 0 there, so none misses both either. Their first
    /// bits are independent.
    #[test]
    fn neighbouring_traces_are_not_missed_together() {
        assert_eq!(joint(&placed(&[(0, 0.75), (1, 0.75)])), [(0, 0.0), (1, 0.25), (2, 0.25), (3, 0.5)]);
        assert_eq!(joint(&placed(&[(0, 0.75), (2, 0.75)]))[0], (0, 0.0));
        assert_eq!(joint(&placed(&[(5, 0.5), (7, 0.5)])), [(0, 0.25), (1, 0.25), (2, 0.25), (3, 0.25)]);
        assert_eq!(joint(&placed(&[(7, 1.0)])), [(0, 0.0), (1, 1.0)]);
        assert_eq!(joint(&placed(&[(9, 0.25)])), [(0, 0.75), (1, 0.25)]);
        assert_eq!(joint(&[]), []);
    }

    /// The net itself, over 40,000 starts: within four standard errors of each outcome's
    /// probability.
    #[test]
    fn outcomes_come_as_often_as_they_are_likely() {
        for places in [
            vec![(0, 0.9), (1, 0.9), (3, 0.7)],
            vec![(5, 0.2), (6, 0.3), (8, 0.6), (12, 0.5)],
            vec![(100, 0.05), (101, 0.1), (1_000, 0.5), (1_003, 0.8)],
            vec![(4_096, 0.99), (70_000, 0.4), (70_001, 0.3)],
        ] {
            let (traces, mut counts) = (placed(&places), [0u32; 16]);
            let mut random = Random::new(9, 1);
            for _ in 0..40_000 {
                let start = random.bits();
                let keeps = |&&(_, place, threshold): &&Placed| {
                    threshold.keeps(Randomness::from_low_bits(net(start, place) >> 8))
                };
                counts[traces.iter().filter(keeps).map(|trace| trace.0 as usize).sum::<usize>()] += 1;
            }
            let outcomes = joint(&traces);
            assert!((outcomes.iter().map(|outcome| outcome.1).sum::<f64>() - 1.0).abs() < 1e-12);
            for (bits, p) in outcomes {
                let found = f64::from(counts[bits as usize]);
                let error = (40_000.0 * p * (1.0 - p)).sqrt() + 1e-3;
                assert!((found - 40_000.0 * p).abs() <= 4.0 * error, "{places:?} {bits}: {found}, {p}");
            }
        }
    }

    /// A loop begins at 3 s; calls before it are kept, and calls in it are dropped. A trace
    /// recorded one standard deviation before the loop comes after its beginning with probability
    /// 15.87 %.
    #[test]
    fn a_trace_meets_what_is_decided_where_it_may_come() {
        let decided = |nearby: &mut Nearby, of: &dyn Fn(f64) -> f64| {
            for call in 0..4000 {
                let at_s = 2.0 + f64::from(call) / 2000.0;
                nearby.add((at_s * 1e9) as u64, || of(at_s));
            }
        };
        let mut nearby = Nearby::new(2_950_000_000, 50.0);
        decided(&mut nearby, &|at_s| if at_s < 3.0 { 1.0 } else { 0.0 });
        let found = nearby.chance();
        assert!((found - 0.8413).abs() < 0.002, "{found}");
        // The same without calls before the loop: the first call of the loop is then the next one.
        let mut nearby = Nearby::new(2_950_000_000, 50.0);
        (0..2000).for_each(|call| {
            let at_ns = 3_000_000_000 + call * 500_000;
            nearby.add(at_ns, || if call == 0 { 1.0 } else { 0.0 });
        });
        let found = nearby.chance();
        assert!((found - 0.8413).abs() < 0.01, "{found}");
        // A call that is alone is kept with its own probability.
        let mut nearby = Nearby::new(2_950_000_000, 50.0);
        nearby.add(2_990_000_000, || 0.25);
        assert!(nearby.calls() == 1 && (nearby.chance() - 0.25).abs() < 1e-12);
    }
}
