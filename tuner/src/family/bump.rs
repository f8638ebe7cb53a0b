//! Bump: a probability that falls with a key's count, in a window or decaying.

use std::num::NonZeroU64;

use rayon::prelude::*;

use super::{Family, most_calls};
use crate::draw::Draw;
use crate::expect::{Counting, Curve, Design, Expectation, Expected, Extras, KeyLaw, Scratch};
use crate::half_life::CALL_NS;
use crate::half_life::{Clock, HalfLife};
use crate::space::{Axis, DIMENSIONS_MAX, Parameters, Point};
use crate::stop::Stop;
use crate::workload::Workload;

/// The shortest and the longest half-life with a table, in calls of all keys.
const HALF_LIVES: (f64, f64) = (20.0, 50_000.0);
/// The shortest and the longest half-life in seconds, ns.
const HALF_LIVES_NS: (f64, f64) = (1e7, 6e10);
/// The shortest window with a table, ns.
const LENGTH_MIN_NS: f64 = 1e8;
/// The longest window with a table, ns.
const LENGTH_MAX_NS: f64 = 6e10;
/// The number of lengths per doubling. Windows have more, because their edges matter; the exact
/// half-life hardly does.
const TUMBLING_PER_DOUBLING: f64 = 4.0;
const DECAYING_PER_DOUBLING: f64 = 1.5;
/// All tables together take about this much at most. If they would take more, fewer lengths and
/// draws are used.
const TABLES_BYTES_MAX: usize = 160 << 20;
/// Sums are built for as many draws at a time as together have this many traces, at least for one.
const COPIED_MAX: usize = 1 << 20;
/// At least this many draws are used.
const DRAWS_MIN: usize = 2;
/// At least this many lengths are used, if there are that many.
const LENGTHS_MIN: usize = 3;
/// Draws are left out before the number of lengths falls below this.
const LENGTHS_WANTED: usize = 4;
/// The paper's exponent, used with windows.
const EXPONENT: f64 = 2.0;
/// The range of exponents of decaying counts.
const EXPONENTS: (f64, f64) = (0.4, 3.0);

/// Indices of a point's coordinates.
const LAMBDA: usize = 0;
const MIN: usize = 1;
const LENGTH: usize = 2;
/// The last coordinate, because windows do not have it.
const EXPONENT_PLACE: usize = 3;

/// The bounds and measures of a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The largest share of the bytes.
    pub(crate) size_max: f64,
    pub(crate) extras: Extras,
    /// Whether scores include the call trees found.
    pub(crate) call_trees: bool,
    /// Whether the random numbers of a key's traces are spread evenly.
    pub(crate) stratified: bool,
    /// The clock of half-lives.
    pub(crate) clock: Clock,
}

/// The search space of bump, with windows as in the paper or with decaying counts.
#[derive(Debug)]
pub(crate) struct BumpFamily {
    /// One expectation for each draw.
    expectations: Vec<Expectation>,
    counting: Counting,
    /// Windows, or half-lives by the clock.
    clock: Clock,
    lengths_ns: Vec<NonZeroU64>,
    lambda: Axis,
    min: Axis,
    exponent: Axis,
    /// Whether scores include the call trees found.
    call_trees: bool,
}

impl BumpFamily {
    /// Builds the sums of a workload on several draws; `None` if asked to stop.
    ///
    /// lambda goes from the value at which the second call of a window is kept once in 400 windows,
    /// to the most calls of any key. The minimum goes from one kept trace in the whole recording to
    /// `size_max`, above which the minimum alone would keep too much.
    pub(crate) fn new(
        workload: &Workload,
        counting: Counting,
        draws: &[Draw],
        lengths: Option<&[NonZeroU64]>,
        settings: Settings,
        stop: Stop<'_>,
    ) -> Option<Self> {
        Self::within(TABLES_BYTES_MAX, workload, counting, (draws, lengths), settings, stop)
    }

    /// Like [`new`](Self::new), but with this bound on the bytes of all tables.
    fn within(
        bytes_max: usize,
        workload: &Workload,
        counting: Counting,
        (draws, lengths): (&[Draw], Option<&[NonZeroU64]>),
        settings: Settings,
        stop: Stop<'_>,
    ) -> Option<Self> {
        let mut lengths_ns = match lengths {
            // The order and duplicates of the given lengths carry no meaning, but would influence
            // walks, which move through this list.
            Some(lengths) => {
                let mut lengths = lengths.to_vec();
                lengths.sort_unstable();
                lengths.dedup();
                lengths
            }
            None => match counting {
                Counting::Tumbling => windows_of(workload.length_ns()),
                Counting::Decaying => match settings.clock {
                    Clock::Calls => half_lives_of(workload.arrivals().len()),
                    Clock::Seconds => half_lives_s_of(workload.length_ns()),
                },
            },
        };
        let design = |draw: &Draw, lengths_ns: &[NonZeroU64]| Design {
            counting,
            lengths_ns: lengths_ns.to_vec(),
            phase: draw.phase,
            extras: settings.extras,
            stratified: settings.stratified,
        };
        let expectation = |draw: &Draw, lengths_ns: &[NonZeroU64]| {
            let design = design(draw, lengths_ns);
            let order = match counting {
                Counting::Tumbling if draw.jitter_ms == 0.0 => {
                    return Expectation::new(workload, &design, stop);
                }
                Counting::Tumbling => draw.arrivals(workload, stop)?,
                Counting::Decaying => draw.timed(settings.clock, workload, stop)?,
            };
            Expectation::new(&workload.arranged(&order, stop)?, &design, stop)
        };
        // The longest windows have the most bins, so their table is the largest.
        let longest = lengths_ns.last().copied().into_iter().collect::<Vec<_>>();
        let largest = expectation(draws.first()?, &longest)?.bytes().max(1);
        let affordable = bytes_max / largest;
        // Lengths that were given are all used, with at least two draws.
        let wanted = lengths.map_or(LENGTHS_WANTED, |_| lengths_ns.len().max(LENGTHS_WANTED));
        let draws = &draws[..draws.len().min((affordable / wanted).max(DRAWS_MIN))];
        if lengths.is_none() {
            let step = lengths_ns.len().div_ceil((affordable / draws.len()).max(LENGTHS_MIN));
            lengths_ns = lengths_ns.into_iter().rev().step_by(step).collect();
            lengths_ns.reverse();
        }
        // A draw takes another copy of the workload while its sums are built.
        let at_once = (COPIED_MAX / workload.arrivals().len().max(1)).max(1);
        let mut expectations = Vec::with_capacity(draws.len());
        for draws in draws.chunks(at_once) {
            let built = draws.par_iter().map(|draw| expectation(draw, &lengths_ns));
            expectations.extend(built.collect::<Option<Vec<_>>>()?);
        }
        let traces = workload.arrivals().len().max(1) as f64;
        Some(Self {
            expectations,
            counting,
            clock: settings.clock,
            lengths_ns,
            exponent: match counting {
                Counting::Tumbling => Axis::new(EXPONENT, EXPONENT),
                Counting::Decaying => Axis::new(EXPONENTS.0, EXPONENTS.1),
            },
            lambda: Axis::new(0.05, most_calls(workload).max(1.0)),
            min: Axis::new((1.0 / traces).min(settings.size_max), settings.size_max.min(1.0)),
            call_trees: settings.call_trees,
        })
    }

    fn length(&self, point: &Point) -> usize {
        let lengths = self.lengths_ns.len();
        ((point[LENGTH] * lengths as f64) as usize).min(lengths.saturating_sub(1))
    }

    fn curve(&self, point: &Point) -> Curve {
        Curve::new(self.counting, self.lambda.at(point[LAMBDA]), self.exponent.at(point[EXPONENT_PLACE]))
    }
}

impl Family for BumpFamily {
    type Scratch = Scratch;

    fn dimensions(&self) -> usize {
        match self.counting {
            Counting::Tumbling if self.lengths_ns.len() == 1 => 2,
            Counting::Tumbling => 3,
            Counting::Decaying => 4,
        }
    }

    fn parameters(&self, point: &Point) -> Parameters {
        let (lambda, min) = (self.lambda.at(point[LAMBDA]), self.min.at(point[MIN]));
        let length_ns = self.lengths_ns[self.length(point)].get() as f64;
        match self.counting {
            Counting::Tumbling => Parameters::Bump { lambda, min, window_s: length_ns / 1e9 },
            Counting::Decaying => {
                let exponent = self.exponent.at(point[EXPONENT_PLACE]);
                let half_life = HalfLife::of_ns(self.clock, length_ns);
                Parameters::Decaying { lambda, min, half_life, exponent }
            }
        }
    }

    fn kept(&self, point: &Point, stop: Stop<'_>) -> Option<(f64, f64)> {
        let (length, curve, min) = (self.length(point), self.curve(point), self.min.at(point[MIN]));
        let mut sums = (0.0, 0.0);
        for expectation in &self.expectations {
            let (bytes, traces) = expectation.kept(length, |_| KeyLaw::Bump(&curve, min), stop)?;
            sums = (sums.0 + bytes, sums.1 + traces);
        }
        let draws = self.expectations.len() as f64;
        Some((sums.0 / draws, sums.1 / draws))
    }

    fn expected(&self, point: &Point, scratch: &mut Scratch, stop: Stop<'_>) -> Option<Vec<Expected>> {
        let (length, curve, min) = (self.length(point), self.curve(point), self.min.at(point[MIN]));
        let law = |_| KeyLaw::Bump(&curve, min);
        let score =
            |expectation: &Expectation| expectation.score(length, law, self.call_trees, scratch, stop);
        self.expectations.iter().map(score).collect()
    }

    fn extremes(&self, like: &Point) -> (Point, Point) {
        let with = |value: f64| {
            let mut point = *like;
            (point[LAMBDA], point[MIN]) = (value, value);
            point
        };
        (with(0.0), with(1.0))
    }

    fn corners(&self) -> Vec<Point> {
        let lengths = self.lengths_ns.len();
        // For counts above lambda, a larger exponent keeps less; below lambda it keeps more. So
        // either end may keep the least. Windows have only one exponent.
        let exponents: &[f64] = match self.counting {
            Counting::Tumbling => &[0.0],
            Counting::Decaying => &[1.0, 0.0],
        };
        let like = |length: usize, exponent: f64| {
            let mut point = [0.0; DIMENSIONS_MAX];
            point[LENGTH] = (length as f64 + 0.5) / lengths as f64;
            point[EXPONENT_PLACE] = exponent;
            point
        };
        let all =
            exponents.iter().flat_map(|&exponent| (0..lengths).map(move |length| like(length, exponent)));
        all.flat_map(|like| <[Point; 2]>::from(self.extremes(&like))).collect()
    }

    fn least(&self) -> (&'static str, &'static str) {
        match self.counting {
            Counting::Tumbling => (
                "bump keeps the first call of each key in each window, whatever its parameters",
                "Allow longer windows or a larger size, or a key with fewer values",
            ),
            Counting::Decaying => (
                "bump keeps the first call of each key, and each call long after the one before, whatever its parameters",
                "Allow a larger size, or a key with fewer values",
            ),
        }
    }

    fn cost(&self) -> u64 {
        self.expectations.iter().map(Expectation::cost).sum()
    }
}

/// Windows on a geometric scale, in whole milliseconds, from 0.1 s to a minute or to the length of
/// the recording if that is shorter.
fn windows_of(recording_ns: u64) -> Vec<NonZeroU64> {
    let longest = (recording_ns as f64).clamp(LENGTH_MIN_NS, LENGTH_MAX_NS);
    let length = |step: u32| {
        let ns = LENGTH_MIN_NS * (f64::from(step) / TUMBLING_PER_DOUBLING).exp2();
        // Rounded to three digits, which from 0.1 s on are whole milliseconds.
        let digit = 10f64.powf(ns.log10().floor() - 2.0);
        (ns / digit).round() * digit
    };
    let lengths = (0..).map(length).take_while(|&ns| ns <= longest);
    lengths.filter_map(|ns| NonZeroU64::new(ns as u64)).collect()
}

/// Half-lives in seconds on a geometric scale, up to half of the recording.
fn half_lives_s_of(length_ns: u64) -> Vec<NonZeroU64> {
    let (least, most) = HALF_LIVES_NS;
    let most = (length_ns as f64 / 2.0).clamp(least, most);
    let steps = ((most / least).log2() * DECAYING_PER_DOUBLING) as i32;
    let lengths = (0..=steps).map(|step| least * (f64::from(step) / DECAYING_PER_DOUBLING).exp2());
    // Whole milliseconds, as they are written.
    lengths.filter_map(|ns| NonZeroU64::new((ns / 1e6).round() as u64 * 1_000_000)).collect()
}

/// Half-lives on a geometric scale, in whole calls, up to the number of traces.
fn half_lives_of(traces: usize) -> Vec<NonZeroU64> {
    let longest = (traces as f64).clamp(HALF_LIVES.0, HALF_LIVES.1);
    let calls = |step: u32| (HALF_LIVES.0 * (f64::from(step) / DECAYING_PER_DOUBLING).exp2()).round();
    let lengths = (0..).map(calls).take_while(|&calls| calls <= longest);
    lengths.filter_map(|calls| NonZeroU64::new((calls * CALL_NS) as u64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{many_names, synthetic};

    fn settings() -> Settings {
        Settings {
            size_max: 0.1,
            extras: Extras::default(),
            call_trees: true,
            stratified: true,
            clock: Clock::Calls,
        }
    }

    /// Windows at other phases keep other traces. The size held within the limits is the mean over
    /// all draws.
    #[test]
    fn a_size_is_the_mean_over_all_draws() {
        let (workload, stop) = (synthetic(600, 1), Stop::never());
        let draws = Draw::seen(6, 1, astracer_samplers::RandomSource::Stratified);
        let window = NonZeroU64::new(20_000_000_000).into_iter().collect::<Vec<_>>();
        let settings = settings();
        let family = BumpFamily::new(&workload, Counting::Tumbling, &draws, Some(&window), settings, stop);
        let family = family.expect("not stopped");
        let point = [0.3; DIMENSIONS_MAX];
        let scores = family.expected(&point, &mut Scratch::default(), stop).expect("not stopped");
        let mean = |of: fn(&Expected) -> f64| scores.iter().map(of).sum::<f64>() / scores.len() as f64;
        let (bytes, traces) = (mean(|score| score.tfcr), mean(|score| score.traces) / 600.0);
        assert!(scores.iter().all(|score| (score.tfcr / bytes - 1.0).abs() > 1e-6), "{scores:?}");
        let kept = family.kept(&point, stop).expect("not stopped");
        assert!((kept.0 / bytes - 1.0).abs() < 1e-12 && (kept.1 / traces - 1.0).abs() < 1e-12, "{kept:?}");
    }

    /// No end of any axis keeps less than the corner that keeps least, or more than the corner that
    /// keeps most.
    #[test]
    fn corners_keep_the_least_and_the_most() {
        let stop = Stop::never();
        let draws = Draw::seen(2, 1, astracer_samplers::RandomSource::Stratified);
        let settings = settings();
        // Each name is called every 20 ms, or every 20 s, by which time most half-lives are over.
        for (names, traces) in [(20, 20_000), (2000, 6000)] {
            let workload = many_names(names, traces, 3);
            let family = BumpFamily::new(&workload, Counting::Decaying, &draws, None, settings, stop);
            let family = family.expect("not stopped");
            let kept = |point: &Point| family.kept(point, stop).expect("not stopped").0;
            let corners: Vec<f64> = family.corners().iter().map(kept).collect();
            let least = corners.iter().copied().fold(f64::INFINITY, f64::min);
            let most = corners.iter().copied().fold(0.0, f64::max);
            for length in 0..family.lengths_ns.len() {
                for end in [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0], [1.0; 4]] {
                    let mut point = end;
                    point[LENGTH] = (length as f64 + 0.5) / family.lengths_ns.len() as f64;
                    let kept = kept(&point);
                    assert!((least..=most).contains(&kept), "{point:?}: {kept}, corners {least} to {most}");
                }
            }
        }
    }

    /// Tables stay within the bound on their bytes as far as two draws do, and do not depend on the
    /// order in which lengths are given.
    #[test]
    fn tables_of_given_lengths_are_within_their_bytes() {
        let (workload, stop) = (many_names(20, 20_000, 3), Stop::never());
        let draws = Draw::seen(8, 1, astracer_samplers::RandomSource::Stratified);
        let settings = settings();
        let family = |bytes_max: usize, millis: &[u64]| {
            let lengths = millis.iter().filter_map(|millis| NonZeroU64::new(millis * 1_000_000));
            let lengths: Vec<NonZeroU64> = lengths.collect();
            let given = (&draws[..], Some(&lengths[..]));
            BumpFamily::within(bytes_max, &workload, Counting::Tumbling, given, settings, stop)
                .expect("not stopped")
        };
        let sum = |family: &BumpFamily| family.expectations.iter().map(Expectation::bytes).sum::<usize>();
        let (short, long) = (sum(&family(0, &[100])) / 2, sum(&family(0, &[10_000])) / 2);
        assert!(long > 4 * short, "{long} {short}");
        let bytes_max = 20 * long;
        let [falling, rising] = [[10_000, 100], [100, 10_000]].map(|lengths| family(bytes_max, &lengths));
        assert_eq!(falling.expectations.len(), rising.expectations.len());
        assert_eq!(falling.lengths_ns, rising.lengths_ns);
        assert_eq!(family(bytes_max, &[100, 10_000, 100]).lengths_ns, rising.lengths_ns);
        // Draws move arrivals, so their tables may be slightly larger or smaller.
        let many: Vec<u64> = (0..10).map(|length| 10_000 - length).collect();
        assert!(sum(&family(bytes_max, &many)) <= bytes_max + bytes_max / 10);
    }

    #[test]
    fn windows_are_whole_milliseconds_on_a_geometric_scale() {
        let windows = windows_of(1_000_000_000_000);
        let seconds: Vec<f64> = windows.iter().map(|window| window.get() as f64 / 1e9).collect();
        assert_eq!(seconds[..6], [0.1, 0.119, 0.141, 0.168, 0.2, 0.238]);
        assert!(windows.iter().all(|window| window.get() % 1_000_000 == 0));
        assert!(seconds.last().is_some_and(|&last| last > 50.0 && last <= 60.0));
        assert_eq!(windows_of(0).len(), 1);
        assert_eq!(windows_of(1_000_000_000).last().map(|last| last.get() / 1_000_000), Some(951));
    }

    /// By hand: 20 * 2^(2/3) = 31.7 calls, 20 * 2^(4/3) = 50.4.
    #[test]
    fn half_lives_are_whole_calls_up_to_the_recording() {
        let calls = |traces| half_lives_of(traces).iter().map(|ns| ns.get() / 1_000_000).collect::<Vec<_>>();
        assert_eq!(calls(100), [20, 32, 50, 80]);
        assert_eq!(calls(1), [20]);
        assert!(calls(1_000_000).last().is_some_and(|&last| last > 30_000 && last <= 50_000));
    }
}
