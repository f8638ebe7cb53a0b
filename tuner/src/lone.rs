//! Single traces that decide about a figure, and whether replays could tell.
//!
//! A trace that lasts 10 s where others last 1 ms is most of its functions' deviation. If one run in a hundred misses it, the
//! mean of dist/entropy may be ten times that of the other runs, and 24 replays that all kept it show nothing of that:
//! neither in their mean nor in its interval. So such traces are watched.

use astracer_samplers::{Config, Count};

use crate::candidate::Candidate;
use crate::workload::Workload;

/// The traces watched: those that the distance depends on most.
const WATCHED: usize = 48;
/// Of N runs that all kept a trace, up to 3/N of all runs may miss it, with 95 % (the rule of three).
const RULE_OF_THREE: f64 = 3.0;

/// The traces watched, and how runs dealt with them.
#[derive(Clone, Debug)]
pub(crate) struct Lone {
    /// By arrival: its place in `traces`, or [`WATCHED`].
    places: Vec<u8>,
    traces: Vec<Trace>,
}

#[derive(Clone, Copy, Debug)]
struct Trace {
    /// Its absence alone brings the whole to this distance, ms.
    distance_ms: f64,
    /// Whether no run can miss it.
    is_certain: bool,
    missed: u64,
}

/// The watched traces that one run kept, one bit each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen(u64);

/// The part of a mean that runs may not show, for a trace that all of them kept and others need not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Hidden {
    /// By how much, as a share of itself, the mean distance may be too small; infinite for a mean of 0.
    pub(crate) share: f64,
    /// The distance of a run that misses this trace and nothing else, ms.
    pub(crate) missed_ms: f64,
}

impl Lone {
    pub(crate) fn new(workload: &Workload, sampler: &Candidate) -> Self {
        let mut heaviest: Vec<(f64, usize)> = (0..workload.arrivals().len())
            .map(|arrival| (distance_without(workload, arrival), arrival))
            .collect();
        heaviest.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        heaviest.truncate(WATCHED);
        let calls = workload.traces_by_key();
        let mut places = vec![WATCHED as u8; workload.arrivals().len()];
        let trace = |(place, &(distance_ms, arrival)): (usize, &(f64, usize))| {
            places[arrival] = place as u8;
            let key = workload.arrivals()[arrival].key;
            let name = workload.key(&workload.arrivals()[arrival]);
            Trace { distance_ms, is_certain: is_certain(sampler, name, calls[key as usize]), missed: 0 }
        };
        let traces = heaviest.iter().enumerate().map(trace).collect();
        Self { places, traces }
    }

    /// Notes that a run kept an arrival.
    pub(crate) fn see(&self, arrival: usize, seen: &mut Seen) {
        let place = self.places[arrival];
        if usize::from(place) < WATCHED {
            seen.0 |= 1 << place;
        }
    }

    /// Adds a run.
    pub(crate) fn add(&mut self, seen: Seen) {
        for (place, trace) in self.traces.iter_mut().enumerate() {
            trace.missed += u64::from(seen.0 >> place & 1 == 0);
        }
    }

    /// The part that the mean distance of these runs may lack, for the heaviest trace that all of them kept and others need not.
    pub(crate) fn hidden(&self, runs: usize, mean_ms: f64) -> Hidden {
        let unmissed = self.traces.iter().filter(|trace| trace.missed == 0 && !trace.is_certain);
        let missed_ms = unmissed.map(|trace| trace.distance_ms).fold(0.0, f64::max);
        let of_runs = (RULE_OF_THREE / runs as f64).min(1.0);
        if missed_ms > 0.0 {
            Hidden { share: of_runs * (mean_ms.hypot(missed_ms) - mean_ms) / mean_ms, missed_ms }
        } else {
            Hidden::default()
        }
    }
}

/// Whether a key's traces are kept in any run: a constant probability of 1, or bump on a key's only call.
fn is_certain(sampler: &Candidate, key: &str, calls: u32) -> bool {
    match sampler {
        Candidate::Ours(Config::Always) => true,
        Candidate::Ours(Config::Bump(bump)) => {
            let bump = bump.of(key);
            let is_counted = matches!(bump.count(), Count::Tumbling { .. } | Count::Decaying { .. });
            bump.minimum().get() == 1.0 || (is_counted && calls == 1)
        }
        Candidate::Ours(Config::TokenBucket(_)) => calls == 1,
        _ => false,
    }
}

/// The distance of all traces but one from all of them, ms.
fn distance_without(workload: &Workload, arrival: usize) -> f64 {
    let square = |calls: &crate::workload::Calls| {
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
    use super::*;
    use crate::score::{Reference, Tally};
    use crate::testing::{heavy_tailed, synthetic};

    /// As a tally of all the other traces has it.
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

    /// The slow one of 600 traces, by hand: without it its function has no deviation, and a mean that is D/N less.
    #[test]
    fn runs_that_all_kept_the_slow_trace_say_little() {
        let workload = heavy_tailed(600);
        let sampler = |text: &str| Candidate::from(text.parse::<Config>().expect("a sampler"));
        let mut lone = Lone::new(&workload, &sampler("ratio:0.9"));
        let mut seen = Seen::default();
        (0..600).for_each(|arrival| lone.see(arrival, &mut seen));
        (0..30).for_each(|_| lone.add(seen));
        let without = (10_000.0f64 / 600.0).hypot(10_000.0 * (1.0 / 600.0 - 1.0 / 360_000.0f64).sqrt());
        let expected = 0.1 * (5f64.hypot(without) - 5.0) / 5.0;
        let hidden = lone.hidden(30, 5.0);
        assert!((hidden.share / expected - 1.0).abs() < 1e-6, "{hidden:?}");
        assert!((hidden.missed_ms / without - 1.0).abs() < 1e-6, "{hidden:?}");
        // A run that misses it is one that tells.
        lone.add(Seen::default());
        assert!(lone.hidden(31, 5.0).share < 1e-3, "{:?}", lone.hidden(31, 5.0));
        // Nobody can miss it.
        let certain = sampler("bump:lambda=0,min=0.01,count=none;\"call\":min=1");
        let mut lone = Lone::new(&workload, &certain);
        (0..30).for_each(|_| lone.add(seen));
        assert_eq!(lone.hidden(30, 5.0), Hidden::default());
    }
}
