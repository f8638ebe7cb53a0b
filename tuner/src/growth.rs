//! By how much the kept bytes grow if a single operation becomes far more frequent than recorded.

use std::f64::consts::LN_2;

use astracer_samplers::{Bump, Config, Count, Probability, knee_factor, knee_factor_of};
use serde::Serialize;

use crate::workload::Workload;

/// The growth that is reported: one key is called this many times as often.
const FACTOR: f64 = 100.0;

/// The worst case if the calls of one key multiply and all others stay: the key for which the kept
/// bytes grow most.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Growth {
    /// The key.
    pub key: String,
    /// Its calls, as a multiple of those recorded.
    pub calls: f64,
    /// All kept bytes, as a multiple of those kept of the recording.
    pub kept_bytes: f64,
    /// The bytes of all traffic, as a multiple of the recording's.
    pub bytes: f64,
}

impl Growth {
    /// The worst case of a sampler that keeps `tfcr` of the workload's bytes. `None` for samplers
    /// other than bump, and without traffic.
    ///
    /// Each key has the probability of calls at a constant rate. A constant with a recorded share
    /// falls to the knee's factor; a minimum without one applies to all further calls.
    pub(crate) fn worst(workload: &Workload, config: &Config, tfcr: f64) -> Option<Self> {
        let Config::Bump(bump) = config else { return None };
        let mut sums = vec![(0.0, 0.0); workload.keys().len()];
        for arrival in workload.arrivals() {
            let (calls, bytes) = &mut sums[arrival.key as usize];
            *calls += 1.0;
            *bytes += arrival.bytes as f64;
        }
        let (calls, bytes) = sums.iter().fold((0.0, 0.0), |all, sum| (all.0 + sum.0, all.1 + sum.1));
        let kept = tfcr * bytes;
        let seconds = workload.arrivals().last()?.at_ns.max(1) as f64 / 1e9;
        let of = |(key, &(own_calls, own_bytes)): (&str, &(f64, f64))| Self {
            key: key.to_owned(),
            calls: FACTOR,
            kept_bytes: 1.0 + more(bump.of(key), own_calls / calls, own_calls / seconds) * own_bytes / kept,
            bytes: 1.0 + (FACTOR - 1.0) * own_bytes / bytes,
        };
        let all = workload.keys().names().zip(&sums).filter(|(_, sum)| sum.0 > 0.0 && kept > 0.0).map(of);
        all.max_by(|a, b| a.kept_bytes.total_cmp(&b.kept_bytes))
    }
}

/// The bytes that are kept in addition, as a multiple of the key's recorded bytes.
fn more(bump: &Bump, share: f64, per_second: f64) -> f64 {
    let now = FACTOR * share / (1.0 + (FACTOR - 1.0) * share);
    FACTOR * chance(bump, now, FACTOR * per_second) - chance(bump, share, per_second)
}

/// The probability of a call of a key that has this share of all calls, at a constant rate.
fn chance(bump: &Bump, share: f64, per_second: f64) -> f64 {
    let p = bump.minimum().get();
    let knee = |half_life: Option<f64>| match (bump.share(), half_life) {
        (Some(recorded), Some(half_life)) => p * knee_factor_of(recorded.get(), share, half_life),
        (Some(recorded), None) => p * knee_factor(recorded.get(), share),
        (None, _) => p,
    };
    let curve = bump.clone().with_minimum(Probability::ZERO);
    let f = |count: f64| curve.probability(count).get();
    match bump.count() {
        Count::Uncounted => knee(None),
        Count::Paced { half_life } => knee(Some(half_life as f64)).max(f(share * half_life as f64 / LN_2)),
        Count::Decaying { half_life } => p.max(f(per_second * half_life.as_secs_f64() / LN_2)),
        Count::Tumbling { window, .. } => {
            let calls = per_second * window.as_secs_f64();
            (0..STEPS).map(|step| p.max(f(calls * f64::from(step) / f64::from(STEPS)))).sum::<f64>()
                / f64::from(STEPS)
        }
        _ => p,
    }
}

/// Points at which the probabilities within a window are taken.
const STEPS: u32 = 1_000;

#[cfg(test)]
mod tests {
    use astracer_samplers::PerKey;

    use super::*;
    use crate::candidate::Candidate;
    use crate::draw::Draw;
    use crate::replay::Decided;
    use crate::stop::Stop;
    use crate::testing::recorded;
    use crate::traffic::grown;

    /// By hand: `lambda` of a share of 0.01 is 4 * 0.01 * 2,000 / ln 2 + 10 = 125.4. At 100 times
    /// the calls the key has 1 / 1.99 = 0.5025 of all calls, so x = 0.5025 * 2,000 / ln 2 = 1,450,
    /// and keeps 100 * 125.4 / 1,450 = 8.65 times as much.
    #[test]
    fn a_constant_grows_by_the_knee_and_a_minimum_by_all_calls() {
        let bounded = more(&bump("bump:lambda=0,min=0.5,count=none,share=0.01"), 0.01, 1.0);
        assert!((bounded - 0.5 * 7.65).abs() < 0.01, "{bounded}");
        let of_minimum =
            more(&bump("bump:lambda=1,min=0.5,count=decaying,tau=2000calls,share=0.01"), 0.01, 1.0);
        assert_eq!(of_minimum, bounded, "by the same half-life");
        assert_eq!(more(&bump("bump:lambda=0,min=0.5,count=none"), 0.01, 1.0), 49.5);
        assert_eq!(more(&bump("bump:lambda=3,min=0.01,count=decaying,tau=1s"), 0.01, 100.0), 0.99);
    }

    /// By hand: with 0.0001 of all calls, x = 0.29, and f is 1. At 100 times the calls the share is
    /// 0.01 / 1.0099, x = 28.57 and f = 1 - exp(-100 / 28.57^2) = 0.1153.
    #[test]
    fn the_curve_keeps_further_calls_of_rare_keys() {
        let of_curve = more(&bump("bump:lambda=10,min=0,count=decaying,tau=2000calls"), 0.0001, 1.0);
        assert!((of_curve - 10.53).abs() < 0.01, "{of_curve}");
        // 0.2 and 20 calls in a half-life of a second: the same counts.
        let of_time = more(&bump("bump:lambda=10,min=0,count=decaying,tau=1s"), 0.5, 0.2);
        assert!((of_time - (100.0 * 0.1132 - 1.0)).abs() < 0.01, "{of_time}");
        // Windows of 10 s: f is 1 for the 2 recorded calls, and of 200 calls it keeps 17.22, the
        // integral from 0 to 200, which is 10 sqrt(pi) less about 100 / 200.
        let of_window = more(&bump("bump:lambda=10,min=0,window=10s"), 0.5, 0.2);
        assert!((of_window - 7.61).abs() < 0.1, "{of_window}");
    }

    /// Constants that fall with the root of a key's bytes, as tuned ones do roughly, and keep a
    /// tenth of all bytes; with or without shares.
    fn constants(workload: &Workload, has_shares: bool) -> Config {
        let mut sums = vec![(0.0, 0.0); workload.keys().len()];
        for arrival in workload.arrivals() {
            let (calls, bytes) = &mut sums[arrival.key as usize];
            *calls += 1.0;
            *bytes += arrival.bytes as f64;
        }
        let all = sums.iter().fold((0.0, 0.0), |all, sum| (all.0 + sum.0, all.1 + sum.1));
        let p = |factor: f64, bytes: f64| (factor / bytes.sqrt()).min(1.0);
        let kept = |factor: f64| sums.iter().map(|sum| p(factor, sum.1) * sum.1).sum::<f64>();
        let halved = |(low, high): (f64, f64), _| {
            let middle = (low + high) / 2.0;
            if kept(middle) < 0.1 * all.1 { (middle, high) } else { (low, middle) }
        };
        let (factor, _) = (0..60).fold((0.0, 1e9), halved);
        let mut bump = PerKey::new(bump("bump:lambda=0,min=0.1,count=none"));
        for (name, (calls, bytes)) in workload.keys().names().zip(&sums) {
            let own = bump.default().clone().with_minimum(Probability::new(p(factor, *bytes)).unwrap());
            let share = Probability::new(calls / all.0).filter(|_| has_shares);
            bump = bump.with_override(name, own.with_share(share));
        }
        Config::Bump(bump)
    }

    /// The probabilities of all arrivals, the bytes kept, and all bytes.
    fn kept(workload: &Workload, config: &Config) -> (Vec<f64>, f64, f64) {
        let (mut chances, mut kept, mut all) = (Vec::new(), 0.0, 0.0);
        let of = |decided: Decided| {
            let (bytes, p) =
                (workload.arrivals()[decided.arrival].bytes as f64, 1.0 / decided.weight().unwrap());
            chances.push(p);
            (kept, all) = (kept + bytes * p, all + bytes);
        };
        Candidate::from(config.clone()).decide_each(workload, &Draw::recorded(1), Stop::never(), of);
        (chances, kept, all)
    }

    fn bump(text: &str) -> Bump {
        match text.parse::<Config>() {
            Ok(Config::Bump(bump)) => bump.default().clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Each key with at most 5 % of the calls 200 times as frequent, spread and in bursts. The
    /// recorded traffic is decided as without shares, but for at most a thousandth.
    #[test]
    fn kept_bytes_grow_at_most_twice_as_much_as_the_traffic() {
        for name in ["hdfs_client_ops", "hdfs_raw_roots"] {
            let workload = recorded(name);
            let [bounded, free] = [true, false].map(|has_shares| constants(&workload, has_shares));
            let ((chances, kept_here, all), (plain, ..)) =
                (kept(&workload, &bounded), kept(&workload, &free));
            let changed = chances.iter().zip(&plain).filter(|(p, q)| (*p / *q - 1.0).abs() > 1e-6).count();
            assert!(changed as f64 <= 0.001 * plain.len() as f64, "{name}: {changed} of {}", plain.len());
            let (mut worst, mut worst_free) = ((0.0, 0), 0.0f64);
            for (key, calls) in (0..).zip(workload.traces_by_key()) {
                if calls == 0 || f64::from(calls) > 0.05 * plain.len() as f64 || calls > 200 {
                    continue;
                }
                for in_bursts in [false, true] {
                    let there = grown(&workload, key, 200, in_bursts, Stop::never()).expect("not stopped");
                    let growth = |config| {
                        let (_, kept_there, all_there) = kept(&there, config);
                        kept_there / kept_here / (all_there / all)
                    };
                    worst = if growth(&bounded) > worst.0 { (growth(&bounded), key) } else { worst };
                    worst_free = worst_free.max(growth(&free));
                }
            }
            assert!(worst.0 <= 2.0, "{name}: {worst:?}");
            assert!(worst_free > 2.5, "{name}: {worst_free} without shares");
        }
    }

    /// The printed worst case, replayed: the key's traces 100 times, spread over the time.
    #[test]
    fn the_worst_case_is_that_of_a_replay() {
        let workload = recorded("hdfs_client_ops");
        let mut configs = [true, false].map(|has_shares| constants(&workload, has_shares)).to_vec();
        let curves = [
            "bump:lambda=14,min=0.02,count=decaying,tau=2000calls",
            "bump:lambda=4,min=0,count=decaying,tau=500calls",
            "bump:lambda=5,min=0.02,count=decaying,tau=10s",
        ];
        configs.extend(curves.map(|text| text.parse().unwrap()));
        for config in configs {
            let (_, kept_here, all) = kept(&workload, &config);
            let worst = Growth::worst(&workload, &config, kept_here / all).expect("bump");
            let key = workload.keys().names().position(|name| name == worst.key).expect("a key") as u32;
            let there = grown(&workload, key, 100, false, Stop::never()).expect("not stopped");
            let (_, kept_there, all_there) = kept(&there, &config);
            assert!((all_there / all / worst.bytes - 1.0).abs() < 1e-9, "{worst:?}");
            let found = kept_there / kept_here;
            println!("{config}: {found} {worst:?}");
            assert!((found / worst.kept_bytes - 1.0).abs() < 0.15, "{config}: {found}, {worst:?}");
        }
    }
}
