//! By how much the kept bytes grow if a single operation becomes far more frequent than recorded.

use std::f64::consts::LN_2;

use astracer_samplers::{Bump, Config, Count, PerKey, Probability, knee_factor, knee_factor_of};
use serde::Serialize;

use crate::workload::Workload;

/// The share of calls with names of their own for which costs are reported.
pub const UNIQUE: f64 = 1.0 / 3.0;

/// The growth that is reported: one key is called this many times as often.
pub(crate) const FACTOR: f64 = 100.0;
/// The growth that shares bound.
const FACTOR_BOUNDED: f64 = 200.0;
/// Keys have their shares if kept bytes would grow by more than this, divided by the growth of all
/// bytes. The aim is 2; bursts keep up to a third more than calls at a constant rate.
const TOO_MUCH: f64 = 1.5;

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
    /// Each key has the probability of calls at a constant rate. What a recorded share bounds falls
    /// by the knee's factor; a minimum without one applies to all further calls.
    pub(crate) fn worst(workload: &Workload, config: &Config, tfcr: f64) -> Option<Self> {
        let Config::Bump(bump) = config else { return None };
        let all = growths(workload, bump, tfcr, FACTOR);
        all.into_iter().max_by(|a, b| a.kept_bytes.total_cmp(&b.kept_bytes))
    }

    /// Whether some key grows too much in a sampler that keeps `tfcr` of the workload's bytes: if
    /// the key were [`FACTOR_BOUNDED`] times as frequent, kept bytes would grow more than all bytes
    /// by more than [`TOO_MUCH`].
    pub(crate) fn is_too_much(workload: &Workload, config: &Config, tfcr: f64) -> bool {
        let Config::Bump(bump) = config else { return false };
        let all = growths(workload, bump, tfcr, FACTOR_BOUNDED);
        all.iter().any(|growth| growth.kept_bytes > TOO_MUCH * growth.bytes)
    }
}

/// The kept bytes of a sampler that keeps `tfcr` of the workload's bytes, as a multiple, if every
/// key were called twice as often. Calls at a constant rate are assumed, as by [`Growth`]. `None`
/// for samplers other than bump and an equal share, and without traffic.
pub(crate) fn doubled(workload: &Workload, config: &Config, tfcr: f64) -> Option<f64> {
    let bump = match config {
        Config::Bump(bump) => bump,
        Config::Ratio(_) => return Some(2.0),
        _ => return None,
    };
    let (sums, calls, bytes, seconds) = sums(workload);
    let more = |(key, &(own_calls, own_bytes)): (&str, &(f64, f64))| {
        let (bump, share, rate) = (bump.of(key), own_calls / calls, own_calls / seconds);
        (2.0 * chance(bump, share, 2.0 * rate) - chance(bump, share, rate)) * own_bytes
    };
    let kept = tfcr * bytes;
    let more: f64 = workload.keys().names().zip(&sums).filter(|(_, sum)| sum.0 > 0.0).map(more).sum();
    (kept > 0.0).then(|| 1.0 + more / kept)
}

/// The calls and the bytes of each key, those of all, and the seconds that they took.
fn sums(workload: &Workload) -> (Vec<(f64, f64)>, f64, f64, f64) {
    let mut sums = vec![(0.0, 0.0); workload.keys().len()];
    for arrival in workload.arrivals() {
        let (calls, bytes) = &mut sums[arrival.key as usize];
        *calls += 1.0;
        *bytes += arrival.bytes as f64;
    }
    let (calls, bytes) = sums.iter().fold((0.0, 0.0), |all, sum| (all.0 + sum.0, all.1 + sum.1));
    (sums, calls, bytes, workload.length_ns().max(1) as f64 / 1e9)
}

/// The growth for each key that has calls, if it were called this many times as often.
fn growths(workload: &Workload, bump: &PerKey<Bump>, tfcr: f64, factor: f64) -> Vec<Growth> {
    let (sums, calls, bytes, seconds) = sums(workload);
    let kept = tfcr * bytes;
    let of = |(key, &(own_calls, own_bytes)): (&str, &(f64, f64))| {
        let more = more(bump.of(key), own_calls / calls, own_calls / seconds, factor);
        Growth {
            key: key.to_owned(),
            calls: factor,
            kept_bytes: 1.0 + more * own_bytes / kept,
            bytes: 1.0 + (factor - 1.0) * own_bytes / bytes,
        }
    };
    workload.keys().names().zip(&sums).filter(|(_, sum)| sum.0 > 0.0 && kept > 0.0).map(of).collect()
}

/// The bytes that are kept in addition, as a multiple of the key's recorded bytes.
fn more(bump: &Bump, share: f64, per_second: f64, factor: f64) -> f64 {
    let now = factor * share / (1.0 + (factor - 1.0) * share);
    factor * chance(bump, now, factor * per_second) - chance(bump, share, per_second)
}

/// The probability of a call of a key that has this share of all calls, at a constant rate.
fn chance(bump: &Bump, share: f64, per_second: f64) -> f64 {
    let p = bump.minimum().get();
    let knee = |half_life: f64| bump.share().map_or(1.0, |of| knee_factor_of(of.get(), share, half_life));
    let curve = bump.clone().with_minimum(Probability::ZERO);
    let f = |count: f64| curve.probability(count).get();
    match bump.count() {
        Count::Uncounted => p * bump.share().map_or(1.0, |of| knee_factor(of.get(), share)),
        Count::Paced { half_life } => {
            let half_life = half_life as f64;
            let (knee, count) = (knee(half_life), share * half_life / LN_2);
            (p * knee).max(f(count).min(knee * f(count * knee)))
        }
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
    use super::*;
    use crate::stop::Stop;
    use crate::testing::{kept_by_chance, recorded};
    use crate::traffic::grown;

    /// By hand: `lambda` of a share of 0.01 is 4 * 0.01 * 2,000 / ln 2 + 10 = 125.4. At 100 times
    /// the calls the key has 1 / 1.99 = 0.5025 of all calls, so x = 0.5025 * 2,000 / ln 2 = 1,450,
    /// and keeps 100 * 125.4 / 1,450 = 8.65 times as much.
    #[test]
    fn a_constant_grows_by_the_knee_and_a_minimum_by_all_calls() {
        let bounded = more(&bump("bump:lambda=0,min=0.5,count=none,share=0.01"), 0.01, 1.0, 100.0);
        assert!((bounded - 0.5 * 7.65).abs() < 0.01, "{bounded}");
        let of_minimum =
            more(&bump("bump:lambda=1,min=0.5,count=decaying,tau=2000calls,share=0.01"), 0.01, 1.0, 100.0);
        assert_eq!(of_minimum, bounded, "by the same half-life");
        assert_eq!(more(&bump("bump:lambda=0,min=0.5,count=none"), 0.01, 1.0, 100.0), 49.5);
        assert_eq!(more(&bump("bump:lambda=3,min=0.01,count=decaying,tau=1s"), 0.01, 100.0, 100.0), 0.99);
    }

    /// By hand: with 0.0001 of all calls, x = 0.29, and f is 1. At 100 times the calls the share is
    /// 0.01 / 1.0099, x = 28.57 and f = 1 - exp(-100 / 28.57^2) = 0.1153.
    #[test]
    fn the_curve_keeps_further_calls_of_rare_keys() {
        let of_curve = more(&bump("bump:lambda=10,min=0,count=decaying,tau=2000calls"), 0.0001, 1.0, 100.0);
        assert!((of_curve - 10.53).abs() < 0.01, "{of_curve}");
        // 0.2 and 20 calls in a half-life of a second: the same counts.
        let of_time = more(&bump("bump:lambda=10,min=0,count=decaying,tau=1s"), 0.5, 0.2, 100.0);
        assert!((of_time - (100.0 * 0.1132 - 1.0)).abs() < 0.01, "{of_time}");
        // Windows of 10 s: f is 1 for the 2 recorded calls, and of 200 calls it keeps 17.22, the
        // integral from 0 to 200, which is 10 sqrt(pi) less about 100 / 200.
        let of_window = more(&bump("bump:lambda=10,min=0,window=10s"), 0.5, 0.2, 100.0);
        assert!((of_window - 7.61).abs() < 0.1, "{of_window}");
    }

    /// Probabilities that do not count keep twice as much of twice the traffic, as an equal share
    /// does. By hand: with 2c calls instead of a large c, f falls to nearly a quarter, so the
    /// curve keeps half as much.
    #[test]
    fn twice_the_traffic_keeps_at_most_twice_as_much() {
        let workload = recorded("hdfs_client_ops");
        let times =
            |text: &str, tfcr: f64| doubled(&workload, &text.parse::<Config>().expect("a sampler"), tfcr);
        let constant = times("bump:lambda=0,min=0.1,count=none", 0.1).expect("bump");
        assert!((constant - 2.0).abs() < 1e-9, "{constant}");
        assert_eq!(times("ratio:0.1", 0.1), Some(2.0));
        assert_eq!(times("bucket:capacity=1,rate=1", 0.1), None);
        let curve = |text: &str| {
            let config = text.parse::<Config>().expect("a sampler");
            let Config::Bump(bump) = &config else { panic!("{text}") };
            let (sums, calls, bytes, seconds) = sums(&workload);
            let kept: f64 = workload
                .keys()
                .names()
                .zip(&sums)
                .map(|(key, sum)| chance(bump.of(key), sum.0 / calls, sum.0 / seconds) * sum.1)
                .sum();
            doubled(&workload, &config, kept / bytes).expect("bump")
        };
        let decaying = curve("bump:lambda=1,min=0,count=decaying,tau=1h");
        assert!((0.4..0.7).contains(&decaying), "{decaying}");
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
                (kept_by_chance(&workload, &bounded), kept_by_chance(&workload, &free));
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
                        let (_, kept_there, all_there) = kept_by_chance(&there, config);
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
            let (_, kept_here, all) = kept_by_chance(&workload, &config);
            let worst = Growth::worst(&workload, &config, kept_here / all).expect("bump");
            let key = workload.keys().names().position(|name| name == worst.key).expect("a key") as u32;
            let there = grown(&workload, key, 100, false, Stop::never()).expect("not stopped");
            let (_, kept_there, all_there) = kept_by_chance(&there, &config);
            assert!((all_there / all / worst.bytes - 1.0).abs() < 1e-9, "{worst:?}");
            let found = kept_there / kept_here;
            println!("{config}: {found} {worst:?}");
            assert!((found / worst.kept_bytes - 1.0).abs() < 0.15, "{config}: {found}, {worst:?}");
        }
    }
}
