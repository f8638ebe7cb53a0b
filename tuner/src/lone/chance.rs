//! The chance that a run keeps a trace, if everything else in the run stays the same.
//!
//! Without jitter, this is the probability of the decision. With jitter, the trace may come a
//! little earlier or later, before or after other calls of its key, and the decisions about these
//! show what it would meet there. So the chance is their mean over the times at which the trace may
//! come, weighted by the probabilities of these times. This holds if moving past a single call
//! makes no difference, that is, with many calls of the key around.

use astracer_samplers::{Randomness, Threshold};

use crate::replay::Decided;

/// Resolution in time: this many cells per standard deviation of the jitter, up to [`REACH`]
/// standard deviations away.
const CELLS_PER_SD: usize = 32;
const REACH: usize = 5;
const CELLS: usize = 2 * REACH * CELLS_PER_SD;
/// 2^56, the number of values of a randomness.
const RANGE: u64 = Randomness::MAX.get() + 1;

/// The chance of one trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Chance {
    /// Independent of other traces.
    Alone(f64),
    /// With stratified randomness, the numbers of a key's traces depend on each other: the first
    /// may have any value, and all others shift by the same amount.
    Turning(Randomness, Threshold),
}

impl Chance {
    /// The chance of this decision, without jitter.
    pub(super) fn of(decided: &Decided, is_stratified: bool) -> Self {
        match decided.by_chance {
            Some((randomness, threshold)) if is_stratified => Self::Turning(randomness, threshold),
            _ => Self::Alone(probability(decided)),
        }
    }

    pub(super) fn probability(&self) -> f64 {
        match self {
            Self::Alone(probability) => *probability,
            Self::Turning(_, threshold) => threshold.probability().get(),
        }
    }
}

pub(super) fn probability(decided: &Decided) -> f64 {
    match decided.by_chance {
        Some((_, threshold)) => threshold.probability().get(),
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

/// The possible outcomes for traces of one key with shifting numbers, as bits of the kept traces,
/// each with its probability.
pub(super) fn turned(traces: &[(u32, Randomness, Threshold)]) -> Vec<(u32, f64)> {
    // A trace's decision changes where its number passes 0 and where it passes the threshold.
    let passes = |&(_, randomness, threshold): &(u32, Randomness, Threshold)| {
        let to_zero = RANGE - randomness.get();
        [to_zero % RANGE, (to_zero + threshold.get()) % RANGE]
    };
    let mut turns: Vec<u64> = traces.iter().flat_map(passes).chain([0, RANGE]).collect();
    turns.sort_unstable();
    turns.dedup();
    let kept_at = |turn: u64| {
        let keeps = |(_, randomness, threshold): &&(u32, Randomness, Threshold)| {
            threshold.keeps(Randomness::from_low_bits(randomness.get() + turn))
        };
        traces.iter().filter(keeps).fold(0, |bits, (bit, ..)| bits | bit)
    };
    let mut combinations: Vec<(u32, f64)> =
        turns.windows(2).map(|turn| (kept_at(turn[0]), (turn[1] - turn[0]) as f64 / RANGE as f64)).collect();
    combinations.sort_unstable_by_key(|&(bits, _)| bits);
    combinations.dedup_by(|next, before| {
        let is_same = next.0 == before.0;
        if is_same {
            before.1 += next.1;
        }
        is_same
    });
    combinations
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: two traces of a key whose numbers are half a turn apart, each kept with probability
    /// 3/4. A quarter of the turns miss the first, another quarter the second, and none misses
    /// both.
    #[test]
    fn traces_of_a_key_turn_together() {
        let quarter = RANGE / 4;
        let threshold = Threshold::new(quarter).expect("below 2^56");
        let at = |randomness: u64| Randomness::from_low_bits(randomness);
        for begin in [0, 1, quarter, 3 * quarter + 5] {
            let combinations = turned(&[(1, at(begin), threshold), (2, at(begin + 2 * quarter), threshold)]);
            assert_eq!(combinations, [(1, 0.25), (2, 0.25), (3, 0.5)], "{begin}");
            // With the same number, they are kept or missed together.
            let same = turned(&[(1, at(begin), threshold), (2, at(begin), threshold)]);
            assert_eq!(same, [(0, 0.25), (3, 0.75)], "{begin}");
        }
        assert_eq!(turned(&[(4, at(7), Threshold::ALWAYS)]), [(4, 1.0)]);
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
