//! The cap that a result gets if none is given: an upper bound on the bill, whatever comes.
//!
//! A sampler's size is that of the recorded traffic. A cap at a multiple of what it keeps there
//! decides nothing on that traffic, and bounds what traffic of another kind costs. New names have
//! an allowance of their own, because bump keeps the first call of each.

use std::collections::HashSet;

use astracer_samplers::{Allowance, Cap, Config, Count, RandomSource};
use serde::Serialize;

use super::{Tuning, UNBOUNDED};
use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::stop::Stop;
use crate::workload::Workload;

/// The cap's rates are this multiple of what is kept in the busiest minute.
const TIMES: f64 = 3.0;
/// New keys may take this share of what is kept, or as much as they took of the recording.
const NEW_SHARE: f64 = 0.25;
const NEW_TIMES: f64 = 1.25;
/// A burst is this multiple of the greatest lead that the recording has on a rate. An allowance
/// changes nothing until it is half used.
const BURST_TIMES: f64 = 2.5;
/// A burst is at least the rate of this many seconds, and this many traces.
const BURST_S: f64 = 60.0;
const BURST_MIN: f64 = 64.0;
const MINUTE_NS: u64 = 60_000_000_000;
/// One draw for each jitter.
const DRAWS: usize = 3;

/// The bounds on a result on traffic to come.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Bounds {
    /// The cap's rate of traces and bytes, as a multiple of what is kept in the busiest minute.
    pub times: f64,
    /// The most bytes that a process exports in a day, as OTLP.
    pub bytes_a_day: f64,
}

/// Amounts in order of time, in ns.
#[derive(Default)]
struct Amounts(Vec<(u64, f64)>);

impl Amounts {
    /// The most in a minute, per second; the mean of a shorter recording.
    fn busiest(&self, length_ns: u64) -> f64 {
        let seconds = length_ns.clamp(1_000_000_000, MINUTE_NS) as f64 / 1e9;
        let (mut sum, mut most, mut first) = (0.0, 0.0f64, 0);
        for &(at_ns, amount) in &self.0 {
            sum += amount;
            while self.0[first].0 + MINUTE_NS <= at_ns {
                sum -= self.0[first].1;
                first += 1;
            }
            most = most.max(sum);
        }
        most / seconds
    }

    /// The most by which the amounts are ahead of a rate per second.
    fn lead(&self, rate: f64) -> f64 {
        let (mut ahead, mut before, mut most) = (0.0, 0, 0.0f64);
        for &(at_ns, amount) in &self.0 {
            ahead = (ahead - rate * (at_ns - before) as f64 / 1e9).max(0.0) + amount;
            (before, most) = (at_ns, most.max(ahead));
        }
        most
    }
}

/// An allowance of at least this rate that changes nothing for these amounts.
fn allowance(amounts: &[Amounts], rate: f64, least: f64) -> Option<Allowance> {
    let rate = rounded_up(rate.max(1e-6));
    let lead = amounts.iter().map(|amounts| amounts.lead(rate)).fold(0.0, f64::max);
    Allowance::new(rate, rounded_up((BURST_TIMES * lead).max(BURST_S * rate).max(least))).ok()
}

/// The least number of three digits that is not smaller.
fn rounded_up(number: f64) -> f64 {
    let step = 10f64.powf(number.log10().floor() - 2.0);
    let rounded: f64 = format!("{:.2e}", (number / step).ceil() * step).parse().unwrap_or(number);
    rounded.max(number)
}

/// Amounts that a sampler keeps on one draw.
#[derive(Default)]
struct Kept {
    traces: Amounts,
    otlp_bytes: Amounts,
    /// First calls of keys without their own parameters.
    new: Amounts,
}

/// The keys with parameters of their own.
fn named(config: &Config) -> HashSet<&str> {
    match config {
        Config::Bump(bump) => bump.overrides().map(|(key, _)| key).collect(),
        _ => HashSet::new(),
    }
}

/// `None` if asked to stop.
fn kept(
    workload: &Workload,
    (candidate, named): (&Candidate, &HashSet<&str>),
    draw: &Draw,
    stop: Stop<'_>,
) -> Option<Kept> {
    let mut seen: Vec<bool> = workload.keys().names().map(|key| named.contains(key)).collect();
    let mut kept = Kept::default();
    let is_done = candidate.decide_each(workload, draw, stop, |decided| {
        let arrival = &workload.arrivals()[decided.arrival];
        if decided.keep {
            kept.traces.0.push((decided.at_ns, 1.0));
            kept.otlp_bytes.0.push((decided.at_ns, arrival.otlp_bytes as f64));
        }
        if !std::mem::replace(&mut seen[arrival.key as usize], true) {
            kept.new.0.push((decided.at_ns, 1.0));
        }
    });
    is_done.then_some(kept)
}

/// A cap at a multiple of what a sampler keeps.
struct Bounding {
    cap: Cap,
    bounds: Bounds,
    /// First calls of keys without their own parameters, by draw.
    new: Vec<Amounts>,
}

impl Bounding {
    /// `None` if asked to stop, or if nothing is kept.
    fn new(
        workload: &Workload,
        sampler: (&Candidate, &HashSet<&str>),
        draws: &[Draw],
        late_bytes: f64,
        stop: Stop<'_>,
    ) -> Option<Self> {
        let kept: Vec<Kept> =
            draws.iter().map(|draw| kept(workload, sampler, draw, stop)).collect::<Option<_>>()?;
        let (mut traces, mut otlp_bytes, mut new) = (Vec::new(), Vec::new(), Vec::new());
        for Kept { traces: of_draw, otlp_bytes: bytes, new: keys } in kept {
            traces.push(of_draw);
            otlp_bytes.push(bytes);
            new.push(keys);
        }
        let length_ns = workload.arrivals().last()?.at_ns;
        let busiest = |amounts: &[Amounts]| {
            amounts.iter().map(|amounts| amounts.busiest(length_ns)).fold(0.0, f64::max)
        };
        let of_traces = busiest(&traces);
        let of_traces = allowance(&traces, (TIMES * of_traces).max(RATE_MIN), BURST_MIN)?;
        let bytes = TIMES * (busiest(&otlp_bytes) + late_bytes);
        let largest = workload.arrivals().iter().map(|arrival| arrival.otlp_bytes).max()? as f64;
        let of_bytes = allowance(&otlp_bytes, bytes.max(RATE_MIN * largest), BURST_TIMES * largest)?;
        let cap = Cap::none().with_traces(of_traces).with_bytes(of_bytes);
        Some(Self { cap, bounds: Bounds { times: TIMES, bytes_a_day: of_bytes.worst_case(86_400.0) }, new })
    }
}

/// A cap for strata, which share out new keys' calls themselves. `None` if asked to stop, or if
/// nothing is kept.
pub(super) fn of_strata(
    workload: &Workload,
    candidate: &Candidate,
    (seed, random): (u64, RandomSource),
    stop: Stop<'_>,
) -> Option<(Cap, Bounds)> {
    let draws = Draw::unseen(DRAWS, seed, random);
    let bounding = Bounding::new(workload, (candidate, &HashSet::new()), &draws, 0.0, stop)?;
    Some((bounding.cap, bounding.bounds))
}

/// The least rate of a cap, in traces per second and in traces' bytes per second: a recording of
/// which a sampler kept nothing says nothing about traffic to come.
const RATE_MIN: f64 = 1.0;

impl Tuning {
    /// Gives the result a cap at a multiple of what it keeps of `workload`, with `late_bytes` OTLP
    /// bytes per second of late policies in addition. Leaves the result alone if asked to stop.
    pub fn bound(&mut self, workload: &Workload, late_bytes: f64, stop: Stop<'_>) {
        let Some((cap, bounds)) = self.bounding(workload, late_bytes, stop) else { return };
        (self.cap, self.bounds) = (cap, Some(bounds));
        self.warnings.retain(|warning| warning != UNBOUNDED);
    }

    fn bounding(&self, workload: &Workload, late_bytes: f64, stop: Stop<'_>) -> Option<(Cap, Bounds)> {
        let config = self.config().ok()?;
        let draws = Draw::unseen(DRAWS, self.seed, self.random);
        let sampler = (&Candidate::from(config.clone()), &named(&config));
        let Bounding { mut cap, bounds, new } = Bounding::new(workload, sampler, &draws, late_bytes, stop)?;
        let length_ns = workload.arrivals().last()?.at_ns;
        if keeps_first_calls(&config) {
            let seconds = workload.rate_seconds();
            let share = self.score.tfcr.min(self.score.traces / workload.arrivals().len() as f64);
            let of_size = NEW_SHARE * share * workload.arrivals().len() as f64 / seconds;
            // The keys with which a recording begins are not a rate.
            let later =
                |amounts: &Amounts| amounts.0.iter().filter(|(at_ns, _)| *at_ns > length_ns / 8).count();
            let recorded = new.iter().map(later).max()? as f64 / (0.875 * seconds);
            cap = cap.with_new_traces(allowance_of_new(&new, of_size.max(NEW_TIMES * recorded))?);
        }
        Some((cap, bounds))
    }

    /// All kept bytes as a multiple of those of the recording, if this share of its calls had names
    /// of their own. Such calls are as large as others. `None` for samplers that do not keep a new
    /// key's first call.
    pub fn with_unique_names(&self, workload: &Workload, share: f64) -> Option<f64> {
        if !self.config().is_ok_and(|config| keeps_first_calls(&config)) || self.score.tfcr == 0.0 {
            return None;
        }
        let new = share * workload.arrivals().len() as f64 / workload.rate_seconds();
        let kept = self.cap.own_share().new_traces.map_or(new, |allowance| new.min(allowance.rate()));
        Some(1.0 - share + share * (kept / new) / self.score.tfcr)
    }
}

/// The allowance of new keys: a burst for those with which a process begins.
fn allowance_of_new(new: &[Amounts], rate: f64) -> Option<Allowance> {
    let rate = rounded_up(rate.max(1e-6));
    let lead = new.iter().map(|amounts| amounts.lead(rate)).fold(0.0, f64::max);
    Allowance::new(rate, rounded_up((BURST_TIMES * lead).max(BURST_MIN))).ok()
}

/// Whether a key without parameters of its own has its first call kept, whatever the parameters.
fn keeps_first_calls(config: &Config) -> bool {
    match config {
        Config::Bump(bump) => bump.default().count() != Count::Uncounted,
        Config::TokenBucket(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{recorded, synthetic};
    use crate::tune::{Options, tune};

    /// By hand: five at once, one each second and ten at 100 s are 10 in the busiest minute of a
    /// recording of 100 s, and 10 ahead of one per second, after the first five were used up.
    #[test]
    fn rates_and_leads_are_those_of_the_busiest_time() {
        let mut amounts = vec![(0, 5.0)];
        amounts.push((100_000_000_000, 10.0));
        let amounts = Amounts(amounts);
        assert_eq!((amounts.busiest(100_000_000_000), amounts.lead(1.0)), (10.0 / 60.0, 10.0));
        // 5 less 0.02 for each of 100 seconds, and 10.
        assert!((amounts.lead(0.02) - 13.0).abs() < 1e-9);
        // The mean of ten seconds.
        assert_eq!(Amounts(vec![(0, 5.0), (10_000_000_000, 15.0)]).busiest(10_000_000_000), 2.0);
        assert_eq!(rounded_up(1234.5), 1240.0);
        assert_eq!((rounded_up(0.25), rounded_up(100.0)), (0.25, 100.0));
    }

    /// The cap changes no decision about the recording, and its worst case is that of the cap.
    #[test]
    fn the_recording_is_decided_as_without_the_cap() {
        for (workload, per_key) in [(recorded("hdfs_client_ops"), true), (synthetic(3000, 2), false)] {
            let options = Options {
                iterations: 20,
                starts: 1,
                per_key_iterations: 50,
                replays: 0,
                per_key: if per_key { crate::tune::PerKeyUse::Always } else { crate::tune::PerKeyUse::Never },
                ..Options::default()
            };
            let mut tuning = tune(&workload, &options, Stop::never(), &|_| ());
            assert_eq!(tuning.config().expect("valid").to_string().contains(';'), per_key);
            let without = tuning.with_unique_names(&workload, 1.0 / 3.0).expect("bump");
            tuning.bound(&workload, 0.0, Stop::never());
            let bounds = tuning.bounds.clone().expect("bounded");
            let bytes = tuning.cap.bytes.expect("bytes");
            assert_eq!(bounds.bytes_a_day, bytes.burst() + 86_400.0 * bytes.rate());
            let config = tuning.config().expect("valid");
            let decisions = |candidate: Candidate, draw: &Draw| {
                let mut kept = Vec::new();
                let each = |arrival, weight: Option<f64>| kept.push((arrival, weight.map(f64::to_bits)));
                assert!(candidate.replay(&workload, draw, Stop::never(), each));
                kept
            };
            for draw in Draw::unseen(6, 99, tuning.random) {
                let alone = decisions(config.clone().into(), &draw);
                let capped = decisions(Candidate::capped(config.clone(), tuning.cap), &draw);
                assert!(!alone.is_empty() && alone == capped, "{}", tuning.cap);
            }
            // A tenth is kept, so a third of calls with names of their own add 3.3 to 2/3.
            assert!((without - (2.0 / 3.0 + 1.0 / 3.0 / tuning.score.tfcr)).abs() < 1e-9, "{without}");
            let with = tuning.with_unique_names(&workload, 1.0 / 3.0).expect("bump");
            assert!((0.66..=1.3).contains(&with), "{with}");
        }
    }

    #[test]
    fn an_equal_share_keeps_no_first_calls() {
        let mut tuning =
            tune(&synthetic(900, 1), &Options { replays: 0, ..Options::default() }, Stop::never(), &|_| ());
        assert_eq!(tuning.sampler_name(), "ratio");
        tuning.bound(&synthetic(900, 1), 0.0, Stop::never());
        assert!(tuning.cap.traces.is_some() && tuning.cap.new_traces.is_none(), "{}", tuning.cap);
        assert_eq!(tuning.with_unique_names(&synthetic(900, 1), 0.3), None);
    }
}
