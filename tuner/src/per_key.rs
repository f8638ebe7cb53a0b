//! Annealing over a separate probability for each key.
//!
//! A key whose durations vary little, or whose functions also occur with other keys, needs few
//! traces. A key with rare slow calls needs all of them. No function of count and time can know
//! this, but a recording shows it. A point of the search has a probability for each key. The
//! objective is averaged over draws that leave out blocks of time in turn, so that probabilities
//! are not fitted to events that happened once. A floor on each key's expected number of kept
//! traces keeps weights usable.
//!
//! A key's probability may be combined with a curve: p = max(p_key, curve(count)), so that the
//! key's first calls after a pause are kept as well. Without a curve (lambda = 0), probabilities
//! are constant and nothing is counted.

mod combined;
mod levels;

use rayon::prelude::*;

use crate::anneal::{Schedule, anneal};
use crate::blocks::{self, LeftOut};
use crate::draw::Draw;
use crate::expect::{Expected, Extras};
use crate::half_life::HalfLife;
use crate::limits::{KeptSizes, Limits, Scale};
use crate::objective::{Target, count_factor};
use crate::problem::{Archive, Evaluated, Landscape};
use crate::random::Random;
use crate::records::Records;
use crate::replay::Numbers;
use crate::space::Parameters;
use crate::stop::Stop;
use crate::workload::{Arrival, PartSums, Workload};
pub(crate) use combined::{Combined, Found};
use levels::{Decided, LEVELS, Levels, OwnKeys, Rows, Scratch};

/// At most this many keys, those with the most bytes, get their own probabilities. All others have
/// the common parameters.
const KEYS_MAX: usize = 256;
/// All tables together take about this much at most; fewer keys get probabilities if they would
/// take more.
const TABLES_BYTES_MAX: usize = 256 << 20;
/// The floors tried, in traces; the largest one that is cheap enough is used.
const FLOORS: [f64; 6] = [40.0, 20.0, 10.0, 5.0, 3.0, 1.0];
/// Without a floor, a key's probability still keeps at least [`FLOOR_MIN`] traces in expectation,
/// or fewer if this would cost more than a floor may. Below [`FLOOR_LEAST`] traces, nothing can be
/// said about a key.
const FLOOR_MIN: f64 = 0.5;
const FLOOR_LEAST: f64 = 0.01;
/// Floors may use up this share of each limit.
const FLOOR_COST_MAX: f64 = 0.5;
/// A step changes at most this many keys.
const KEYS_MOVED: u32 = 3;
/// The cost of a function in a score, in units of a few ns: a square root and a logarithm.
const FUNCTION_COST: usize = 10;
/// Bisection steps to find the largest common probability within the limits.
const HALVINGS: u32 = 30;
/// A key with a larger share of the bytes is a loop. Its first calls matter, and a constant
/// probability treats them like all others.
const LOOP_SHARE: f64 = 0.8;

/// The tables and bounds of the search.
#[derive(Debug)]
pub(crate) struct PerKey<'t> {
    keys: OwnKeys,
    /// One table for each draw.
    levels: Vec<Levels>,
    rows: Rows,
    /// For each key and level, the kept shares of all bytes and traces, as means over the draws.
    kept: Vec<(f64, f64)>,
    kept_others: (f64, f64),
    count_errors: CountErrors,
    /// For each own key, the logarithm of Neyman's probability.
    weights: Vec<f64>,
    /// For each own key, the numbers of its traces and bytes, each as a share of all.
    shares: Vec<(f64, f64)>,
    /// For each own key, the number of its traces.
    traces: Vec<f64>,
    /// The curve that own keys have besides their probabilities.
    curve: DecayingCurve,
    limits: Limits,
    scale: Scale,
    target: &'t Target,
    stop: Stop<'t>,
    /// The floor on the expected number of kept traces of each key.
    pub(crate) min_kept: f64,
}

/// Bump's probability over a decaying count.
#[derive(Clone, Copy, Debug, PartialEq)]
struct DecayingCurve {
    lambda: f64,
    min: f64,
    half_life: HalfLife,
    exponent: f64,
}

impl DecayingCurve {
    /// The common curve with lambda multiplied by `share`; `None` for samplers without a decaying
    /// count.
    fn of(common: &Parameters, share: f64) -> Option<Self> {
        let Parameters::Decaying { lambda, min, half_life, exponent } = *common else { return None };
        Some(Self { lambda: crate::space::round_to_4_digits(lambda * share), min, half_life, exponent })
    }

    fn probability(&self, count: f64) -> f64 {
        -(-(self.lambda / count).powf(self.exponent)).exp_m1()
    }

    /// A key's parameters with this minimum probability.
    fn with_least(&self, probability: f64) -> Parameters {
        let Self { lambda, half_life, exponent, .. } = *self;
        match lambda > 0.0 {
            true => Parameters::Decaying { lambda, min: probability, half_life, exponent },
            false => Parameters::Constant { probability },
        }
    }
}

/// The decayed number of a key's calls, and the time of the latest.
#[derive(Clone, Copy, Debug)]
struct Count {
    at_ns: u64,
    calls: f64,
}

impl Count {
    /// Counts a call. Returns the decayed count before it, or `None` for the first call.
    fn add(count: &mut Option<Self>, at_ns: u64, half_life_ns: f64) -> Option<f64> {
        let before = count.map(|count| {
            let half_lives = at_ns.saturating_sub(count.at_ns) as f64 / half_life_ns;
            count.calls * (-half_lives).exp2()
        });
        *count = Some(Self { at_ns, calls: before.unwrap_or(0.0) + 1.0 });
        before
    }
}

/// The number of traces and bytes of each key.
fn sizes(workload: &Workload) -> Vec<(f64, f64)> {
    let mut sizes = vec![(0.0, 0.0); workload.keys().len()];
    for arrival in workload.arrivals() {
        let (traces, bytes) = &mut sizes[arrival.key as usize];
        *traces += 1.0;
        *bytes += arrival.bytes as f64;
    }
    sizes
}

/// ln(p) of Neyman's allocation for each key, where p is the root of the key's share in SS^2
/// divided by its bytes. The share of a trace is the sum of squares of how much its absence changes
/// its functions' means and standard deviations.
fn neyman(workload: &Workload, sizes: &[(f64, f64)]) -> Vec<f64> {
    let mut shares = vec![0.0; sizes.len()];
    for (index, arrival) in workload.arrivals().iter().enumerate() {
        for calls in workload.calls(index) {
            let function = &workload.functions()[calls.function as usize];
            let (count, sd) = (function.count as f64, function.duration_ms.sd.max(f64::MIN_POSITIVE));
            let mean_moved = calls.deviation / count;
            let sd_moved = (calls.deviation_squared - f64::from(calls.count) * sd * sd) / (2.0 * sd * count);
            shares[arrival.key as usize] += mean_moved * mean_moved + sd_moved * sd_moved;
        }
    }
    // A key with a share of 0 gets its floor.
    let logarithm = |(share, (_, bytes)): (&f64, &(f64, f64))| (0.5 * (share / bytes).ln()).max(-1e3);
    shares.iter().zip(sizes).map(logarithm).collect()
}

/// The share of the bytes of the largest key, if this makes it a loop.
pub(crate) fn loop_share(workload: &Workload) -> Option<f64> {
    let sizes = sizes(workload);
    let all: f64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    let most = sizes.iter().map(|(_, bytes)| bytes).fold(0.0, |most: f64, &bytes| most.max(bytes));
    Some(most / all).filter(|&share| share > LOOP_SHARE)
}

/// The numbers of traces and bytes that floors may use up, if limits allow these shares of bytes
/// and traces.
fn affordable(sizes: &[(f64, f64)], (bytes_max, traces_max): (f64, f64)) -> (f64, f64) {
    let (traces, bytes) = sizes.iter().fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    (FLOOR_COST_MAX * traces_max * traces, FLOOR_COST_MAX * bytes_max * bytes)
}

/// The largest of [`FLOORS`] that uses up at most half of each limit; 0 if all use more.
fn default_floor(sizes: &[(f64, f64)], largest: (f64, f64)) -> f64 {
    let (traces_max, bytes_max) = affordable(sizes, largest);
    let fits = |floor: &f64| {
        let (mut all_traces, mut all_bytes) = (0.0, 0.0);
        for (traces, bytes) in sizes.iter().filter(|(traces, _)| *traces > 0.0) {
            all_traces += floor.min(*traces);
            all_bytes += bytes * (floor / traces).min(1.0);
        }
        all_traces <= traces_max && all_bytes <= bytes_max
    };
    FLOORS.into_iter().find(fits).unwrap_or(0.0)
}

/// The expected number of traces that is kept of each key even without a floor.
fn least_floor(sizes: &[(f64, f64)], largest: (f64, f64)) -> f64 {
    let (traces_max, bytes_max) = affordable(sizes, largest);
    let kept = || sizes.iter().filter(|(traces, _)| *traces > 0.0);
    let bytes_of_one: f64 = kept().map(|(traces, bytes)| bytes / traces).sum();
    (bytes_max / bytes_of_one).min(traces_max / kept().count() as f64).clamp(FLOOR_LEAST, FLOOR_MIN)
}

/// Whether keeping `floor` traces of each key exceeds the limits, if keys have this share of their
/// traces in the workload.
pub(crate) fn is_too_much(workload: &Workload, (floor, share): (f64, f64), limits: Limits) -> bool {
    let sizes = sizes(workload);
    let kept = sizes.iter().filter(|(traces, _)| *traces > 0.0).map(|(traces, bytes)| {
        let kept = (floor / (share * traces)).min(1.0);
        (kept * bytes, kept * traces)
    });
    let sum = |(a, b): (f64, f64), (c, d): (f64, f64)| (a + c, b + d);
    let (kept, all) = (kept.fold((0.0, 0.0), sum), sizes.iter().copied().fold((0.0, 0.0), sum));
    limits.excess(&Scale::new(workload).kept((kept.0 / all.1, kept.1 / all.0))) > 0.0
}

/// A workload without the blocks of time that a search sample leaves out.
#[derive(Debug)]
struct Sample<'w> {
    workload: &'w Workload,
    left_out: LeftOut,
    /// Sums over the sample's arrivals, which are the same for all draws.
    sums: PartSums,
}

impl<'w> Sample<'w> {
    /// `None` if asked to stop.
    fn new(workload: &'w Workload, left_out: LeftOut, stop: Stop<'_>) -> Option<Self> {
        let mut order = Draw::recorded(0).arrivals(workload, stop)?;
        retain(workload, left_out, &mut order);
        Some(Self { workload, left_out, sums: PartSums::new(workload, &order, &mut stop.pulse())? })
    }
}

/// Removes the blocks of time that a sample leaves out.
fn retain(workload: &Workload, left_out: LeftOut, order: &mut Vec<(u64, u32)>) {
    let block = blocks::of(workload, blocks::BLOCKS);
    order.retain(|&(_, index)| !left_out.has(block(index as usize)));
}

/// The tables of one draw of a sample; `None` if asked to stop. `own` is the curve of keys with
/// their own probabilities, and `others` that of all other keys.
fn tables(
    sample: &Sample<'_>,
    own_keys: &OwnKeys,
    (own, others): (&DecayingCurve, &DecayingCurve),
    draw: &Draw,
    stop: Stop<'_>,
) -> Option<Levels> {
    let workload = sample.workload;
    let mut order = draw.timed(own.half_life.clock(), workload, stop)?;
    retain(workload, sample.left_out, &mut order);
    let mut numbers = Numbers::new(workload, draw);
    let mut records = Records::new(workload);
    let mut counts: Vec<Option<Count>> = vec![None; records.len()];
    // Constant probabilities do not depend on counts, and if all keys have records, none is
    // evicted.
    let uncounted = own.lambda == 0.0 && records.has_all();
    let decide = |arrival: &Arrival| {
        let is_own = own_keys.is_own(arrival.key);
        let (curve, least) = if is_own { (own, 0.0) } else { (others, others.min) };
        if uncounted && is_own {
            return Decided { uniform: numbers.uniform(arrival.key), by_curve: 0.0 };
        }
        let idle_ns =
            |record: usize| counts[record].map_or(0, |count| arrival.at_ns.saturating_sub(count.at_ns));
        let found = records.find(arrival.key, arrival.at_ns, idle_ns);
        let count = &mut counts[found.record];
        if found.is_new {
            *count = None;
        }
        let count = Count::add(count, arrival.at_ns, curve.half_life.ns());
        let by_curve = match curve.lambda > 0.0 {
            true => count.map_or(1.0, |count| curve.probability(count).max(least)),
            false => 0.0,
        };
        Decided { uniform: numbers.uniform(arrival.key), by_curve }
    };
    Levels::new((workload, &order), &sample.sums, own_keys, decide, stop)
}

/// Averages squared errors of weighted counts over the draws in which a function has calls.
#[derive(Debug)]
struct CountErrors {
    /// For each own function, the number of draws in which it has calls.
    draws: Vec<f64>,
    /// The sum over all other functions of their root mean square errors.
    others: f64,
    /// The number of functions that have calls in some draw.
    functions: f64,
}

impl CountErrors {
    /// Takes the squared errors that do not depend on the point out of `levels`.
    fn new(levels: &mut [Levels], keys: &OwnKeys) -> Self {
        let mut draws = Vec::new();
        // For each other function, the sum of squares and the number of draws.
        let mut others: Vec<(f64, f64)> = Vec::new();
        for levels in levels {
            let has_calls = levels.own_functions(keys).map(|&(calls, ..)| f64::from(u8::from(calls > 0.0)));
            draws.resize(keys.functions(), 0.0);
            draws.iter_mut().zip(has_calls).for_each(|(draws, one)| *draws += one);
            let errors = std::mem::take(&mut levels.other_errors);
            others.resize(errors.len(), (0.0, 0.0));
            for (sum, error) in others.iter_mut().zip(errors) {
                *sum = error.map_or(*sum, |error| (sum.0 + error, sum.1 + 1.0));
            }
        }
        others.retain(|&(_, draws)| draws > 0.0);
        Self {
            functions: (draws.iter().filter(|&&draws| draws > 0.0).count() + others.len()) as f64,
            draws,
            others: others.into_iter().map(|(sum, draws)| (sum / draws).sqrt()).sum(),
        }
    }

    /// The mean over functions of the root mean square error, given the sums of squares of own
    /// functions.
    fn mean(&self, squares: &[f64]) -> f64 {
        let own = squares.iter().zip(&self.draws).map(|(sum, draws)| (sum / draws.max(1.0)).sqrt());
        (own.sum::<f64>() + self.others) / self.functions.max(1.0)
    }
}

impl<'t> PerKey<'t> {
    /// Builds the tables of some draws; `None` if asked to stop, or if there are fewer than two
    /// keys to shift traces between. `curve_share` is lambda of the own keys' curve, as a share of
    /// lambda of the common parameters. Each draw comes with the blocks of time that it leaves out.
    pub(crate) fn new(
        workload: &Workload,
        (common, curve_share): (&Parameters, f64),
        (limits, target): (Limits, &'t Target),
        (min_kept, key_floor, extras): (Option<f64>, f64, Extras),
        draws: &[(Draw, LeftOut)],
        stop: Stop<'t>,
    ) -> Option<Self> {
        let others = DecayingCurve::of(common, 1.0)?;
        let curve = DecayingCurve::of(common, curve_share)?;
        let sizes = sizes(workload);
        let scale = Scale::new(workload);
        let largest = scale.largest(&limits);
        let min_kept = min_kept.unwrap_or_else(|| default_floor(&sizes, largest));
        let mut keys: Vec<usize> = (0..sizes.len()).filter(|&key| sizes[key].0 > 0.0).collect();
        if keys.len() < 2 {
            return None;
        }
        keys.sort_by(|&a, &b| sizes[b].1.total_cmp(&sizes[a].1).then(a.cmp(&b)));
        keys.truncate(KEYS_MAX);
        let least = least_floor(&sizes, largest);
        let all = sizes.iter().fold((0.0, 0.0), |all, of| (all.0 + of.0, all.1 + of.1));
        let even = key_floor * largest.0 * all.1 / keys.len() as f64;
        let own = |keys: &[usize]| {
            // The same bytes are a large part of a cheap key, which then outweighs the others in
            // the means of functions that they share. An equal share of it misses nothing odd.
            let even = |key: usize| (even / sizes[key].1).min(largest.0);
            let floor = |key: usize| (min_kept.max(least) / sizes[key].0).max(even(key)).min(1.0);
            let floor = |&key: &usize| (key, floor(key));
            let wanted = (extras, target.objective.needs_call_trees());
            OwnKeys::new(workload, &keys.iter().map(floor).collect::<Vec<_>>(), wanted)
        };
        let mut own_keys = own(&keys);
        while own_keys.table_len() * size_of::<f64>() * draws.len() > TABLES_BYTES_MAX && keys.len() > 2 {
            keys.truncate(keys.len() / 2);
            own_keys = own(&keys);
        }
        let curves = (&curve, &others);
        let mut left_out: Vec<LeftOut> = Vec::new();
        draws.iter().for_each(|(_, left)| {
            if !left_out.contains(left) {
                left_out.push(*left)
            }
        });
        let samples = left_out.par_iter().map(|&left_out| Sample::new(workload, left_out, stop));
        let samples: Vec<Sample<'_>> = samples.collect::<Option<_>>()?;
        let levels = |(draw, left_out): &(Draw, LeftOut)| {
            let sample = samples.iter().find(|sample| sample.left_out == *left_out)?;
            tables(sample, &own_keys, curves, draw, stop)
        };
        let mut levels: Vec<Levels> = draws.par_iter().map(levels).collect::<Option<_>>()?;
        let weights = neyman(workload, &sizes);
        let mut per_key = Self {
            weights: keys.iter().map(|&key| weights[key]).collect(),
            shares: keys.iter().map(|&key| (sizes[key].0 / all.0, sizes[key].1 / all.1)).collect(),
            traces: keys.iter().map(|&key| sizes[key].0).collect(),
            kept: Vec::new(),
            kept_others: (0.0, 0.0),
            rows: Rows::gather(&mut levels, &own_keys),
            count_errors: CountErrors::new(&mut levels, &own_keys),
            keys: own_keys,
            levels,
            curve,
            limits,
            scale,
            target,
            stop,
            min_kept,
        };
        per_key.sum_kept();
        Some(per_key)
    }

    /// The shares of bytes and traces that each level keeps. These means are exact, because they
    /// are linear in the probabilities.
    fn sum_kept(&mut self) {
        let mut all = [0.0; 2];
        let mut others = [0.0; 2];
        for levels in &self.levels {
            let (kept, of_all) = levels.kept_others();
            others = [others[0] + kept[0], others[1] + kept[1]];
            all = [all[0] + of_all[0], all[1] + of_all[1]];
        }
        let share = |kept: [f64; 2]| {
            let share = |place: usize| if all[place] > 0.0 { kept[place] / all[place] } else { 0.0 };
            (share(0), share(1))
        };
        self.kept_others = share(others);
        let places = 0..self.keys.keys.len() * LEVELS;
        self.kept = places
            .map(|place| {
                let kept = self.levels.iter().map(|levels| levels.kept(place / LEVELS, place % LEVELS));
                share(kept.fold([0.0; 2], |sum, kept| [sum[0] + kept[0], sum[1] + kept[1]]))
            })
            .collect();
    }

    /// The cost of a score, in units of a few ns.
    pub(crate) fn cost(&self) -> u64 {
        let row = self.keys.table_len() / LEVELS;
        let functions: usize = self.levels.iter().map(Levels::functions).sum();
        (row * self.levels.len() + FUNCTION_COST * functions) as u64
    }

    /// Searches from the largest common probability and from Neyman's allocation, in turn; `None`
    /// if neither is within the limits. Returns the best point, and the number of points scored.
    pub(crate) fn search(
        &self,
        (starts, schedule): (u64, Schedule),
        seed: u64,
        stop: Stop<'_>,
        done: &(dyn Fn() + Sync),
    ) -> Option<(Evaluated<Vec<u8>>, u64)> {
        let (even, weighted) = (self.start(false), self.start(true));
        let starts_at = [weighted.clone().or_else(|| even.clone())?, even.or(weighted)?];
        let walk = |stream: u64| {
            let start = starts_at[stream as usize % 2].clone();
            anneal(self, start, schedule, Random::new(seed, stream), stop, &|_| done())
        };
        let archives: Vec<Archive<Vec<u8>>> = (0..starts).into_par_iter().map(walk).collect();
        let evaluations = archives.iter().map(|archive| archive.evaluations).sum();
        let bests = archives.into_iter().filter_map(|archive| archive.best);
        Some((bests.min_by(|a, b| a.value.total_cmp(&b.value))?, evaluations))
    }

    /// The start of a walk: the same probability for all keys or, with `by_weight`, Neyman's
    /// allocation, which is proportional to the root of a key's share in SS^2 divided by its bytes.
    /// Either is scaled to be as large as the limits allow.
    fn start(&self, by_weight: bool) -> Option<Vec<u8>> {
        let scaled = |shift: f64| -> Vec<u8> {
            let level = |(own, weight): (&levels::OwnKey, &f64)| {
                let probability = (if by_weight { *weight } else { 0.0 } + shift).min(0.0).exp();
                own.probabilities.partition_point(|&p| p <= probability).saturating_sub(1) as u8
            };
            self.keys.keys.iter().zip(&self.weights).map(level).collect()
        };
        let least = self.weights.iter().fold(-20.0, |least: f64, &weight| least.min(-weight.abs()));
        let (mut low, mut high) = (least.max(-1e3), -least);
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if self.limits.excess(&self.kept(&scaled(middle))) > 0.0 { high = middle } else { low = middle }
        }
        Some(scaled(low)).filter(|point| self.allows(point))
    }

    fn kept(&self, point: &[u8]) -> KeptSizes {
        let (mut bytes, mut traces) = self.kept_others;
        for (kept, &level) in self.kept.chunks_exact(LEVELS).zip(point) {
            let kept = kept[usize::from(level)];
            (bytes, traces) = (bytes + kept.0, traces + kept.1);
        }
        self.scale.kept((bytes, traces))
    }
}

impl Landscape for PerKey<'_> {
    type Point = Vec<u8>;
    type Scratch = Scratch;

    fn allows(&self, point: &Vec<u8>) -> bool {
        self.limits.hold(&self.kept(point))
    }

    fn step(&self, from: &Vec<u8>, scale: f64, random: &mut Random) -> Vec<u8> {
        let last = (LEVELS - 1) as f64;
        let mut point = from.clone();
        for _ in 0..1 + random.below(KEYS_MOVED) {
            let moved = random.below(point.len() as u32) as usize;
            let by = scale * last * random.cauchy();
            // At least one level.
            let by = by.signum() * by.abs().ceil();
            point[moved] = (f64::from(point[moved]) + by).clamp(0.0, last) as u8;
        }
        point
    }

    fn evaluate(&self, point: &Vec<u8>, scratch: &mut Scratch) -> Option<Evaluated<Vec<u8>>> {
        scratch.move_to(&self.levels, &self.rows, &self.keys, point);
        let of = |(draw, levels): (usize, &Levels)| {
            (!self.stop.is_asked()).then(|| scratch.score(draw, levels, &self.keys, point))
        };
        let mut scores = self.levels.iter().enumerate().map(of).collect::<Option<Vec<Expected>>>()?;
        let error = self.count_errors.mean(&scratch.count_errors());
        scores.iter_mut().for_each(|score| score.count_error = Some(error));
        let objective = self.target.value(&scores);
        Some(Evaluated {
            point: point.clone(),
            expected: Expected::mean(&scores),
            objective,
            value: objective * count_factor(error),
        })
    }
}

#[cfg(test)]
mod tests;
