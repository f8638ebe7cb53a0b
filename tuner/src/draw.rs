//! The randomness that a deployment cannot control: the phase of its windows against the traffic,
//! the order of calls that arrive within some milliseconds, and random decisions.
//!
//! A recording has one phase and one order. Parameters tuned on these alone fit them, and their
//! figure is too optimistic by a factor of 1.5 to 2.2. So candidates are scored on several draws,
//! and reported figures come from other draws.

use astracer_samplers::{Nanos, RandomSource, paced};
use serde::Serialize;

use crate::half_life::{CALL_NS, Clock};
use crate::random::Random;
use crate::stop::Stop;
use crate::workload::Workload;

/// One draw.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Draw {
    /// The lead of a sampler's clock over the recording's, as a share of its window, 0 to 1.
    pub phase: f64,
    /// Standard deviation of the jitter added to arrival times, ms.
    pub jitter_ms: f64,
    /// The seed of the jitter and of the decisions.
    pub seed: u64,
    /// True if the random numbers of a key's traces are spread evenly (an additive recurrence),
    /// false if they are independent.
    pub stratified: bool,
    /// True if the random numbers are those of the trace ids, as in a service whose randomness is
    /// independent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub of_ids: bool,
}

/// Standard deviations of jitter, ms: none, enough to reorder calls within a few ms, and enough to
/// reorder calls within some dozens of ms. Each is used by a third of the draws.
const JITTERS_MS: [f64; 3] = [0.0, 5.0, 50.0];
/// The stream of a draw's seed that the jitter uses. The decisions use the seed itself.
const JITTER_STREAM: u64 = 1;
/// (sqrt(5) - 1) / 2.
const GOLDEN: f64 = 0.618_033_988_749_894_9;
/// This bit is set in the seeds of draws that a search sees, and clear in all others.
const SEEN: u64 = 1 << 62;

impl Draw {
    /// The recording as it is, with independent random numbers.
    pub fn recorded(seed: u64) -> Self {
        Self { phase: 0.0, jitter_ms: 0.0, seed, stratified: false, of_ids: false }
    }

    /// The same draw with the random numbers of the trace ids, or not.
    #[must_use]
    pub fn of_ids(self, of_ids: bool) -> Self {
        Self { of_ids, ..self }
    }

    /// The same draw with random numbers from this source.
    #[must_use]
    pub fn with_random(self, random: RandomSource) -> Self {
        Self { stratified: random == RandomSource::Stratified, ..self }
    }

    /// Draws for a search, with evenly spread phases and all jitters. A different `seed` changes
    /// all of them.
    pub(crate) fn seen(count: usize, seed: u64, random: RandomSource) -> Vec<Self> {
        Self::with_phases(count, seed | SEEN, |index| index as f64 / count as f64, random)
    }

    /// Draws that no search sees: they share no phase and no seed with those of a search. The
    /// phases are multiples of the golden ratio, so any number of draws has evenly spread phases,
    /// and a longer list begins with the shorter one.
    pub fn unseen(count: usize, seed: u64, random: RandomSource) -> Vec<Self> {
        let phase = |index: usize| (GOLDEN * (index as f64 + 0.37)).fract();
        Self::with_phases(count, seed & !SEEN, phase, random)
    }

    fn with_phases(count: usize, seed: u64, phase: impl Fn(usize) -> f64, random: RandomSource) -> Vec<Self> {
        let of = |index: usize| Self {
            phase: phase(index),
            jitter_ms: JITTERS_MS[index % JITTERS_MS.len()],
            seed: seed.wrapping_add(index as u64),
            stratified: random == RandomSource::Stratified,
            of_ids: false,
        };
        (0..count).map(of).collect()
    }

    /// The arrivals in the order of this draw, each with its time in ns and its index in the
    /// workload. Times that jitter would move below 0 are 0. `None` if asked to stop.
    pub(crate) fn arrivals(&self, workload: &Workload, stop: Stop<'_>) -> Option<Vec<(u64, u32)>> {
        let mut pulse = stop.pulse();
        let mut random = Random::new(self.seed, JITTER_STREAM);
        let mut order = Vec::with_capacity(workload.arrivals().len());
        for (arrival, index) in workload.arrivals().iter().zip(0..) {
            let jitter_ns = match self.jitter_ms {
                0.0 => 0,
                jitter_ms => (random.normal() * jitter_ms * 1e6) as i64,
            };
            order.push((arrival.at_ns.saturating_add_signed(jitter_ns), index));
            if pulse.stopped() {
                return None;
            }
        }
        let is_sorted = self.jitter_ms == 0.0 || pulse.sort_by_key(&mut order, |&(at_ns, _)| at_ns);
        is_sorted.then_some(order)
    }

    /// The arrivals by the time of a clock.
    pub(crate) fn timed(&self, clock: Clock, workload: &Workload, stop: Stop<'_>) -> Option<Vec<(u64, u32)>> {
        match clock {
            Clock::Calls => self.paced_arrivals(workload, stop),
            Clock::Seconds => self.arrivals(workload, stop),
        }
    }

    /// As [`Draw::arrivals`], with the pace of a sampler's table as the time: [`CALL_NS`] for each
    /// call of all keys.
    fn paced_arrivals(&self, workload: &Workload, stop: Stop<'_>) -> Option<Vec<(u64, u32)>> {
        let mut order = self.arrivals(workload, stop)?;
        let times: Vec<f64> = paced(order.iter().map(|&(at_ns, _)| Nanos::new(at_ns))).collect();
        order.iter_mut().zip(times).for_each(|((at_ns, _), time)| *at_ns = (time * CALL_NS) as u64);
        Some(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic;

    #[test]
    fn draws_of_a_search_and_others_have_nothing_in_common() {
        let random = RandomSource::Stratified;
        for seed in [0, 1, u64::MAX] {
            let (seen, unseen) = (Draw::seen(24, seed, random), Draw::unseen(24, seed, random));
            for other in &unseen {
                assert!(seen.iter().all(|draw| draw.seed != other.seed && draw.phase != other.phase));
                assert!((0.0..1.0).contains(&other.phase));
            }
            assert_eq!(seen.iter().filter(|draw| draw.jitter_ms == 5.0).count(), 8);
        }
    }

    /// The longest gap between n successive multiples of the golden ratio, modulo 1, is below (1 +
    /// 2 / sqrt(5)) / n.
    #[test]
    fn more_draws_begin_with_fewer_and_fill_their_gaps() {
        let random = RandomSource::Independent;
        let all = Draw::unseen(384, 5, random);
        for count in [3, 24, 96, 100, 384] {
            let fewer = Draw::unseen(count, 5, random);
            assert_eq!(fewer, all[..count]);
            let mut phases: Vec<f64> = fewer.iter().map(|draw| draw.phase).collect();
            phases.sort_by(f64::total_cmp);
            phases.push(phases[0] + 1.0);
            let longest = phases.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
            assert!(longest < 1.9 / count as f64, "{count}: {longest}");
        }
    }

    #[test]
    fn jitter_moves_arrivals_and_loses_none() {
        let workload = synthetic(2000, 1);
        let arrivals = |draw: Draw| draw.arrivals(&workload, Stop::never()).expect("not stopped");
        let plain = arrivals(Draw::recorded(1));
        assert!(plain.iter().zip(0..).all(|(&(_, index), place)| index == place));
        let moved = arrivals(Draw { jitter_ms: 5.0, ..Draw::recorded(3) });
        assert!(moved.is_sorted());
        let mut seen = vec![false; plain.len()];
        let mut squares = 0.0;
        for &(at_ns, index) in &moved {
            assert!(!std::mem::replace(&mut seen[index as usize], true));
            squares += (at_ns as f64 - plain[index as usize].0 as f64).powi(2);
        }
        let sd_ms = (squares / 2000.0).sqrt() / 1e6;
        // Four standard errors of a standard deviation estimated from 2000 numbers are 6 %.
        assert!((sd_ms / 5.0 - 1.0).abs() < 0.07, "{sd_ms}");
    }

    /// Common bump and constants of a real recording at a fifth, twice and ten times its speed: the
    /// same traces are kept, but for one in a thousand that a rounded time decides.
    #[test]
    fn the_same_traces_are_kept_at_any_speed() {
        use crate::candidate::Candidate;
        use crate::testing::recorded;
        use crate::traffic::at_speed;
        let workload = recorded("hdfs_client_ops");
        let config: astracer_samplers::Config =
            "bump:lambda=5,min=0.03,count=decaying,tau=400calls;\"client:stat\":min=0.05,count=none,share=0.2"
                .parse()
                .expect("a sampler");
        let kept = |workload: &Workload| {
            let mut kept = vec![false; workload.arrivals().len()];
            let draw = Draw { stratified: true, ..Draw::recorded(1) };
            let candidate = Candidate::from(config.clone());
            candidate.decide_each(workload, &draw, Stop::never(), |one| kept[one.arrival] = one.keep);
            kept
        };
        let recorded = kept(&workload);
        for speed in [0.2, 2.0, 10.0] {
            let there = kept(&at_speed(&workload, speed, Stop::never()).expect("not stopped"));
            let others = there.iter().zip(&recorded).filter(|(a, b)| a != b).count();
            assert!(others * 1000 <= recorded.len(), "speed {speed}: {others} others");
        }
    }
}
