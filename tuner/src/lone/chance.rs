//! The chance that a run keeps a trace, with all else as it is in the run.
//!
//! Without jitter that is the probability of the decision. With jitter the trace may come a little
//! earlier or later, before or behind other calls of its key, whose decisions say what it would
//! meet there: so the chance is their mean over the places where it may come, each by the
//! probability that it comes there. That is right where one call more or less before another is
//! nothing: with many calls of the key around.

use astracer_samplers::{Randomness, Threshold};

use crate::replay::Decided;

/// Times are told apart in this many cells for each standard deviation of the jitter, as far as
/// this many deviations away.
const CELLS_PER_SD: usize = 32;
const REACH: usize = 5;
const CELLS: usize = 2 * REACH * CELLS_PER_SD;
/// 2^56: as many values as randomness has.
const RANGE: u64 = Randomness::MAX.get() + 1;

/// The chance of one trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Chance {
    /// Whatever becomes of other traces.
    Alone(f64),
    /// With a number that other traces of the key hang on, since their numbers are spread evenly:
    /// the first of the key's numbers may be any, and all others turn with it.
    Turning(Randomness, Threshold),
}

impl Chance {
    /// Of the decision alone.
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

/// The decisions about a key's calls around the recorded time of one of its traces.
#[derive(Clone, Debug)]
pub(super) struct Nearby {
    begin_ns: f64,
    cells_per_ns: f64,
    cells: Vec<Cell>,
}

/// The decisions in one cell.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// The first one's probability.
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

    /// Adds a call. False if it comes before all cells: then it does so for traces that come later,
    /// too.
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

    /// Whether a call comes behind all cells.
    pub(super) fn is_over(&self, at_ns: u64) -> bool {
        (at_ns as f64 - self.begin_ns) * self.cells_per_ns >= CELLS as f64
    }

    /// The number of calls around, the trace's own one with them.
    pub(super) fn calls(&self) -> u32 {
        self.cells.iter().map(|cell| cell.calls).sum()
    }

    /// The chance of the trace. A cell without calls has the probability of the next call behind
    /// it, those behind the last one that of the last.
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

/// The ways in which traces of one key with turning numbers are kept, each with its probability:
/// their bits, of those kept.
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

    /// By hand: two traces of a key that are half a turn apart, each kept with three quarters. One
    /// or the other is missed, each in a quarter of the turns, and never both.
    #[test]
    fn traces_of_a_key_turn_together() {
        let quarter = RANGE / 4;
        let threshold = Threshold::new(quarter).expect("below 2^56");
        let at = |randomness: u64| Randomness::from_low_bits(randomness);
        for begin in [0, 1, quarter, 3 * quarter + 5] {
            let combinations = turned(&[(1, at(begin), threshold), (2, at(begin + 2 * quarter), threshold)]);
            assert_eq!(combinations, [(1, 0.25), (2, 0.25), (3, 0.5)], "{begin}");
            // Together if they have the same number.
            let same = turned(&[(1, at(begin), threshold), (2, at(begin), threshold)]);
            assert_eq!(same, [(0, 0.25), (3, 0.75)], "{begin}");
        }
        assert_eq!(turned(&[(4, at(7), Threshold::ALWAYS)]), [(4, 1.0)]);
    }

    /// A loop that begins at 3 s: calls before it are kept, those in it are dropped. A trace
    /// recorded one standard deviation before it comes after its beginning with 15.87 %.
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
        // The same if there are no calls before: the first of the loop is the next.
        let mut nearby = Nearby::new(2_950_000_000, 50.0);
        (0..2000).for_each(|call| {
            let at_ns = 3_000_000_000 + call * 500_000;
            nearby.add(at_ns, || if call == 0 { 1.0 } else { 0.0 });
        });
        let found = nearby.chance();
        assert!((found - 0.8413).abs() < 0.01, "{found}");
        // As the only one around it is kept by its own probability.
        let mut nearby = Nearby::new(2_950_000_000, 50.0);
        nearby.add(2_990_000_000, || 0.25);
        assert!(nearby.calls() == 1 && (nearby.chance() - 0.25).abs() < 1e-12);
    }
}
