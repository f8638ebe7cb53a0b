//! Single traces that dominate a figure.
//!
//! A trace of 10 s among traces of 1 ms accounts for most of its functions' standard deviation. If
//! one run in a hundred misses it, the mean of dist/entropy may be ten times that of the other
//! runs. 24 replays that all kept the trace show nothing of this, neither in their mean nor in its
//! interval. But the chance that a run misses it is known, because a sampler states the probability
//! of each decision. So the heaviest traces are watched. If some of them dominate, each run stands
//! for all runs that differ from it in these traces only, weighted by their probabilities. (This is
//! a conditional mean. By the theorem of Rao and Blackwell it is no worse an estimate; here its
//! variance is a thousandth.)

mod chance;
mod mixture;

use astracer_samplers::{Bump, Config, Count};

use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::replay::Decided;
use crate::score::{FunctionTally, OtherFunctions, Reference, Tally, dist_over_entropy, entropy};
use crate::stop::Stop;
use crate::workload::{Calls, Workload};
use chance::{Chance, Nearby};
pub use mixture::Deciding;
pub(crate) use mixture::Mixture;

/// The number of watched traces: among the traces that a run may miss, those on which the distance
/// depends most.
const WATCHED: usize = 24;
/// If N runs all kept a trace, up to 3/N of all runs may miss it, with 95 % confidence (the rule of
/// three). With windows, a trace may be missed at a few phases only, which neither its own
/// decisions nor those around it show.
const RULE_OF_THREE: f64 = 3.0;
/// With fewer calls of its key around, a trace is not moved within a mixture, because it then
/// matters whether it comes before or after a single call.
const CALLS_MIN: u32 = 64;

/// The watched traces.
#[derive(Clone, Debug)]
pub(crate) struct Lone {
    /// For each arrival, its index in `traces`, or [`WATCHED`].
    places: Vec<u8>,
    traces: Vec<Trace>,
    /// For each key, the indices in `traces` of its own traces, in order of time.
    of_keys: Vec<Vec<usize>>,
    /// Whether the sampler counts in windows.
    is_windowed: bool,
    /// The functions that the watched traces call, in ascending order.
    functions: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Trace {
    arrival: usize,
    key: u32,
    /// The distance of the whole without this trace, ms.
    distance_ms: f64,
    spans: u64,
    /// The trace's calls, each with the index of its function in [`Lone::functions`].
    calls: Vec<(usize, Calls)>,
}

/// The result of a run with regard to the watched traces.
#[derive(Clone, Debug)]
pub(crate) struct WatchedRun {
    /// The watched traces that were kept, one bit each.
    kept: u32,
    /// For each watched trace, the chance that it would be kept if everything else stayed the same.
    chances: Vec<Chance>,
    /// For each watched trace, the approximate probability of missing it, even if there are too few
    /// calls around it for a good estimate.
    missed: Vec<f64>,
    jitter_ms: f64,
    /// Tallies of the functions that watched traces call, without the watched traces.
    functions: Vec<FunctionTally>,
    /// All other functions.
    rest: OtherFunctions,
}

/// Watches the decisions of a run.
#[derive(Debug)]
pub(crate) struct Watch<'l> {
    lone: &'l Lone,
    jitter_ms: f64,
    kept: u32,
    chances: Vec<Chance>,
    nearby: Vec<Nearby>,
    /// For each key, the index in [`Lone::of_keys`] of the first trace that later calls may still
    /// be near. Calls come in order of time, so it only advances.
    next: Vec<usize>,
    is_stratified: bool,
}

/// By how much a mean may be off because all runs kept a trace that other runs may miss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Hidden {
    /// By how much the mean distance may be too small, as a share of itself; infinite if the mean
    /// is 0.
    pub(crate) share: f64,
    /// The share of runs that may miss this trace.
    pub(crate) missed: f64,
    /// The distance of a run that misses only this trace, ms.
    pub(crate) missed_ms: f64,
}

impl Lone {
    /// Selects the traces to watch. `None` if asked to stop.
    pub(crate) fn new(workload: &Workload, sampler: &Candidate, stop: Stop<'_>) -> Option<Self> {
        let mut pulse = stop.pulse();
        let calls_of_key = workload.traces_by_key();
        let names: Vec<&str> = workload.keys().names().collect();
        let certain: Vec<bool> =
            names.iter().zip(&calls_of_key).map(|(name, &calls)| is_certain(sampler, name, calls)).collect();
        // Caps, and other projects' samplers, may drop a trace for reasons that the stated
        // probability does not include.
        let is_told = matches!(sampler, Candidate::Ours(_));
        let mut heaviest: Vec<(f64, usize)> = Vec::new();
        for (arrival, trace) in workload.arrivals().iter().enumerate() {
            if is_told && !certain[trace.key as usize] {
                heaviest.push((distance_without(workload, arrival), arrival));
            }
            if pulse.stopped_after(1 + workload.calls(arrival).len()) {
                return None;
            }
        }
        let by_weight = |a: &(f64, usize), b: &(f64, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if heaviest.len() > WATCHED {
            heaviest.select_nth_unstable_by(WATCHED - 1, by_weight);
            heaviest.truncate(WATCHED);
        }
        heaviest.sort_unstable_by(by_weight);
        let called = heaviest.iter().flat_map(|&(_, arrival)| workload.calls(arrival));
        let mut functions: Vec<usize> = called.map(|calls| calls.function as usize).collect();
        functions.sort_unstable();
        functions.dedup();
        let mut places = vec![WATCHED as u8; workload.arrivals().len()];
        let mut of_keys = vec![Vec::new(); names.len()];
        let trace = |(place, &(distance_ms, arrival)): (usize, &(f64, usize))| {
            let (key, spans) =
                (workload.arrivals()[arrival].key, u64::from(workload.arrivals()[arrival].spans));
            places[arrival] = place as u8;
            of_keys[key as usize].push(place);
            let place =
                |calls: &Calls| functions.partition_point(|&function| function < calls.function as usize);
            let calls = workload.calls(arrival).iter().map(|calls| (place(calls), *calls)).collect();
            Trace { arrival, key, distance_ms, spans, calls }
        };
        let traces = heaviest.iter().enumerate().map(trace).collect();
        for places in &mut of_keys {
            // Arrivals are numbered in order of time.
            places.sort_unstable_by_key(|&place: &usize| heaviest[place].1);
        }
        Some(Self { places, traces, of_keys, is_windowed: is_windowed(sampler), functions })
    }

    /// Whether an arrival is watched.
    pub(crate) fn has(&self, arrival: usize) -> bool {
        usize::from(self.places[arrival]) < WATCHED
    }

    /// Starts to watch a run on a draw.
    pub(crate) fn watch(&self, workload: &Workload, draw: &Draw) -> Watch<'_> {
        let recorded_ns = |trace: &Trace| workload.arrivals()[trace.arrival].at_ns;
        let nearby = |trace: &Trace| Nearby::new(recorded_ns(trace), draw.jitter_ms);
        Watch {
            lone: self,
            jitter_ms: draw.jitter_ms,
            kept: 0,
            chances: vec![Chance::Alone(0.0); self.traces.len()],
            nearby: if draw.jitter_ms > 0.0 { self.traces.iter().map(nearby).collect() } else { Vec::new() },
            next: if draw.jitter_ms > 0.0 { vec![0; self.of_keys.len()] } else { Vec::new() },
            is_stratified: draw.stratified,
        }
    }

    /// Returns how far off the mean distance of these runs may be: by the trace that may add most
    /// to it among those that all runs kept. Traces in the mixture are left out, because the
    /// mean includes them.
    pub(crate) fn hidden(&self, runs: &[&WatchedRun], mixture: Option<&Mixture>, mean_ms: f64) -> Hidden {
        let is_mixed = |place: &usize| mixture.is_some_and(|mixture| mixture.places.contains(place));
        let is_kept = |place: &usize| runs.iter().all(|run| run.kept >> place & 1 == 1);
        let all = runs.len().max(1) as f64;
        let hidden = |place: usize| {
            let missed = runs.iter().map(|run| run.missed[place]).sum::<f64>() / all;
            let missed = if self.is_windowed { missed.max(RULE_OF_THREE / all).min(1.0) } else { missed };
            let missed_ms = self.traces[place].distance_ms;
            let share = missed * (mean_ms.hypot(missed_ms) - mean_ms) / mean_ms;
            Hidden { share: if missed > 0.0 { share } else { 0.0 }, missed, missed_ms }
        };
        let unmissed = (0..self.traces.len()).filter(|place| !is_mixed(place) && is_kept(place));
        unmissed.map(hidden).max_by(|a, b| a.share.total_cmp(&b.share)).unwrap_or_default()
    }
}

impl Watch<'_> {
    /// Records a decision about an arrival of this key.
    pub(crate) fn decided(&mut self, decided: &Decided, key: u32) {
        let place = usize::from(self.lone.places[decided.arrival]);
        if place < WATCHED {
            self.kept |= u32::from(decided.keep) << place;
            self.chances[place] = Chance::of(decided, self.is_stratified);
        }
        if !self.nearby.is_empty() {
            let (places, next) = (&self.lone.of_keys[key as usize], &mut self.next[key as usize]);
            while places.get(*next).is_some_and(|&place| self.nearby[place].is_over(decided.at_ns)) {
                *next += 1;
            }
            for &place in &places[*next..] {
                if !self.nearby[place].add(decided.at_ns, || chance::probability(decided)) {
                    break;
                }
            }
        }
    }

    /// Ends the run. `tally` has all kept traces except the watched ones.
    pub(crate) fn finish(mut self, tally: &Tally<'_>) -> WatchedRun {
        let mut missed: Vec<f64> = self.chances.iter().map(|chance| 1.0 - chance.probability()).collect();
        for (place, nearby) in self.nearby.iter().enumerate() {
            let chance = nearby.chance();
            missed[place] = 1.0 - chance;
            if nearby.calls() >= CALLS_MIN {
                self.chances[place] = Chance::Alone(chance);
            }
        }
        WatchedRun {
            kept: self.kept,
            missed,
            chances: self.chances,
            jitter_ms: self.jitter_ms,
            functions: self.lone.functions.iter().map(|&function| tally.function(function)).collect(),
            rest: tally.rest(&self.lone.functions),
        }
    }
}

impl WatchedRun {
    /// The arrivals of the watched traces that were kept.
    pub(crate) fn kept<'l>(&self, lone: &'l Lone) -> impl Iterator<Item = usize> + use<'l> {
        let kept = self.kept;
        let is_kept = move |(place, _): &(usize, &Trace)| kept >> place & 1 == 1;
        lone.traces.iter().enumerate().filter(is_kept).map(|(_, trace)| trace.arrival)
    }

    /// The distance in ms, and dist/entropy, if exactly the watched traces in the bits of `kept`
    /// were kept.
    fn score(&self, lone: &Lone, (workload, reference): (&Workload, &Reference), kept: u32) -> (f64, f64) {
        let (mut functions, mut spans) = (self.functions.clone(), self.rest.spans);
        for (place, trace) in lone.traces.iter().enumerate() {
            if kept >> place & 1 == 1 {
                spans += trace.spans;
                trace.calls.iter().for_each(|(function, calls)| functions[*function].add(calls));
            }
        }
        let (mut square, mut n_log_n) = (self.rest.square, self.rest.n_log_n);
        for (function, tally) in lone.functions.iter().zip(&functions) {
            square += reference.square_of(workload, *function, tally);
            n_log_n += tally.n_log_n();
        }
        let ss_ms = square.sqrt();
        (ss_ms, dist_over_entropy(ss_ms, entropy(spans as f64, n_log_n)))
    }
}

/// Whether every run keeps all of a key's traces: the probability is always 1, or the key has a
/// single call and its first call is always kept.
fn is_certain(sampler: &Candidate, key: &str, calls: u32) -> bool {
    match sampler {
        Candidate::Ours(Config::Always) => true,
        Candidate::Ours(Config::Bump(bump)) => {
            let bump = bump.of(key);
            let is_counted = !matches!(bump.count(), Count::Uncounted);
            bump.minimum().get() == 1.0 || (is_counted && calls == 1)
        }
        Candidate::Ours(Config::TokenBucket(_)) => calls == 1,
        _ => false,
    }
}

fn is_windowed(sampler: &Candidate) -> bool {
    let of_bump = |bump: &Bump| matches!(bump.count(), Count::Tumbling { .. });
    matches!(sampler, Candidate::Ours(Config::Bump(bump)) if of_bump(bump.default()))
}

/// The distance of all traces without this arrival from all traces, ms.
fn distance_without(workload: &Workload, arrival: usize) -> f64 {
    let square = |calls: &Calls| {
        let function = &workload.functions()[calls.function as usize];
        let (all, sd) = (function.count as f64, function.duration_ms.sd);
        let left = all - f64::from(calls.count);
        if left <= 0.0 {
            return function.duration_ms.mean.powi(2) + sd * sd;
        }
        let offset = -calls.deviation / left;
        let left_sd = ((all * sd * sd - calls.deviation_squared) / left - offset * offset).max(0.0).sqrt();
        offset * offset + (left_sd - sd).powi(2)
    };
    workload.calls(arrival).iter().map(square).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use astracer_samplers::RandomSource;

    use super::*;
    use crate::held_out::Replays;
    use crate::statistics::Distribution;
    use crate::testing::{heavy_tailed, late_loop, synthetic};

    fn sampler(text: &str) -> Candidate {
        Candidate::from(text.parse::<Config>().expect("a sampler"))
    }

    /// Compares with a tally of all other traces.
    #[test]
    fn the_distance_without_a_trace_is_that_of_all_others() {
        let workload = synthetic(300, 2);
        let reference = Reference::new(&workload);
        for without in [0, 7, 150, 299] {
            let mut tally = Tally::new(&workload, &reference);
            (0..300).filter(|&arrival| arrival != without).for_each(|arrival| tally.keep(arrival));
            let (found, expected) = (distance_without(&workload, without), tally.score().ss_ms);
            assert!((found - expected).abs() <= 1e-6 * expected, "{without}: {found}, {expected}");
        }
    }

    /// Whatever watched traces are added to a run, its score equals that of a tally.
    #[test]
    fn a_run_with_other_traces_is_scored_as_a_replay() {
        let workload = synthetic(300, 2);
        let reference = Reference::new(&workload);
        let sampler = sampler("ratio:0.3");
        let lone = Lone::new(&workload, &sampler, Stop::never()).expect("not stopped");
        assert_eq!(lone.traces.len(), WATCHED);
        let draw = Draw::recorded(3);
        let (mut watch, mut tally) = (lone.watch(&workload, &draw), Tally::new(&workload, &reference));
        sampler.decide_each(&workload, &draw, Stop::never(), |decided| {
            watch.decided(&decided, workload.arrivals()[decided.arrival].key);
            if decided.keep && !lone.has(decided.arrival) {
                tally.keep(decided.arrival);
            }
        });
        let seen = watch.finish(&tally);
        assert!(seen.chances.iter().all(|&chance| chance == Chance::Alone(seen.chances[0].probability())));
        assert!((seen.chances[0].probability() - 0.3).abs() < 1e-4);
        for kept in [0, seen.kept, 0b1010_0110, (1 << WATCHED) - 1] {
            let mut tally = tally.clone();
            let traces = lone.traces.iter().enumerate().filter(|(place, _)| kept >> place & 1 == 1);
            traces.for_each(|(_, trace)| tally.keep(trace.arrival));
            let (score, found) = (tally.score(), seen.score(&lone, (&workload, &reference), kept));
            let close = |found: f64, expected: f64| (found - expected).abs() <= 1e-9 * expected;
            assert!(
                close(found.0, score.ss_ms) && close(found.1, score.dist_over_entropy),
                "{found:?}, {score:?}"
            );
        }
    }

    /// Skipping calls that are far away does not change a trace's chance: compares with all calls
    /// of its key.
    #[test]
    fn the_calls_around_a_trace_are_all_that_there_are() {
        let workload = synthetic(4000, 2);
        let sampler = sampler("bump:lambda=20,min=0.01,count=decaying,tau=1s");
        let lone = Lone::new(&workload, &sampler, Stop::never()).expect("not stopped");
        assert!(lone.of_keys.iter().any(|places| places.len() > 5 && !places.is_sorted()));
        let reference = Reference::new(&workload);
        for jitter_ms in [50.0, 5000.0] {
            let draw = Draw { jitter_ms, ..Draw::recorded(3) };
            let mut watch = lone.watch(&workload, &draw);
            let at_ns = |trace: &Trace| workload.arrivals()[trace.arrival].at_ns;
            let mut all: Vec<Nearby> =
                lone.traces.iter().map(|trace| Nearby::new(at_ns(trace), jitter_ms)).collect();
            sampler.decide_each(&workload, &draw, Stop::never(), |decided| {
                let key = workload.arrivals()[decided.arrival].key;
                watch.decided(&decided, key);
                for (nearby, _) in all.iter_mut().zip(&lone.traces).filter(|(_, trace)| trace.key == key) {
                    nearby.add(decided.at_ns, || chance::probability(&decided));
                }
            });
            let seen = watch.finish(&Tally::new(&workload, &reference));
            let expected: Vec<f64> = all.iter().map(|nearby| 1.0 - nearby.chance()).collect();
            assert_eq!(seen.missed, expected, "{jitter_ms} ms");
        }
    }

    /// The first call of a loop is the slow one, and jitter may move it behind others. 24 replays
    /// by chances give the mean of 1,500 plain ones, which is within 4 of its standard errors of
    /// the true mean.
    #[test]
    fn a_few_replays_by_chances_have_the_mean_of_many() {
        let workload = late_loop(1000);
        for (sampler, random) in [
            ("bump:lambda=20,min=0.01,count=decaying,tau=1s", RandomSource::Stratified),
            ("bump:lambda=20,min=0.01,count=decaying,tau=1s", RandomSource::Independent),
            ("bucket:capacity=50,rate=20", RandomSource::Independent),
        ] {
            let candidate = self::sampler(sampler);
            let replays = |count: usize, seed: u64, by_chances: bool| {
                let mut replays =
                    Replays::new(&workload, &candidate, by_chances, Stop::never()).expect("not stopped");
                replays.add(&Draw::unseen(count, seed, random), Stop::never(), &|| ());
                replays.replayed().expect("replays")
            };
            let Distribution { mean, sd, .. } = replays(1500, 7, false).dist_over_entropy;
            let few = replays(24, 1, true);
            let found = few.dist_over_entropy;
            let error = sd / 1500f64.sqrt();
            assert!(error < 0.06 * mean, "{sampler}: {error} of {mean}");
            assert!((found.mean - mean).abs() < 4.0 * error, "{sampler}: {found:?}, {mean} within {error}");
            assert!(found.mean_interval[1] - found.mean < 0.05 * found.mean, "{sampler}: {found:?}");
            let deciding = few.deciding.expect("one");
            assert!(deciding.traces == 1 && deciding.usual_mean < 0.2 * deciding.other_mean, "{deciding:?}");
            let all = deciding.usual * deciding.usual_mean + (1.0 - deciding.usual) * deciding.other_mean;
            assert!((all / found.mean - 1.0).abs() < 1e-9, "{deciding:?}");
            // The spread of single runs is that of plain replays.
            assert!((found.sd / sd - 1.0).abs() < 0.1, "{sampler}: {found:?}, {sd}");
        }
    }

    /// A slow trace that is kept with probability 0.999. The decision states this probability, so
    /// nothing else is hidden; with windows, the rule of three applies. By hand: without the trace
    /// its function has a standard deviation of 0, and a mean smaller by D/N.
    #[test]
    fn a_trace_that_no_run_missed_is_hidden_where_windows_have_edges() {
        let workload = heavy_tailed(600);
        let reference = Reference::new(&workload);
        let without = (10_000.0f64 / 600.0).hypot(10_000.0 * (1.0 / 600.0 - 1.0 / 360_000.0f64).sqrt());
        let hidden = |text: &str| {
            let candidate = sampler(text);
            let lone = Lone::new(&workload, &candidate, Stop::never()).expect("not stopped");
            let runs: Vec<WatchedRun> = (0..30)
                .map(|seed| {
                    let draw = Draw::recorded(seed);
                    let mut watch = lone.watch(&workload, &draw);
                    candidate.decide_each(&workload, &draw, Stop::never(), |decided| {
                        watch.decided(&Decided { keep: true, ..decided }, 0);
                    });
                    watch.finish(&Tally::new(&workload, &reference))
                })
                .collect();
            lone.hidden(&runs.iter().collect::<Vec<_>>(), None, 5.0)
        };
        for (text, missed) in [
            ("ratio:0.999", 0.001),
            ("bump:lambda=1,min=0.999,count=decaying,tau=10ms", 0.0),
            ("bump:lambda=1,min=0.9,window=10ms", 0.1),
            ("bump:lambda=0,min=0.01,count=none;\"call\":min=1", 0.0),
        ] {
            let found = hidden(text);
            let expected = missed * (5f64.hypot(without) - 5.0) / 5.0;
            assert!((found.share - expected).abs() <= 0.01 * expected, "{text}: {found:?}, {expected}");
            assert!(missed == 0.0 || (found.missed_ms / without - 1.0).abs() < 1e-6, "{text}: {found:?}");
        }
    }
}
