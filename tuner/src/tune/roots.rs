//! Parameters of single keys with the names of their keys, bounded for traffic that changes.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::{RootParameters, config};
use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::growth::Growth;
use crate::half_life::HalfLife;
use crate::per_key;
use crate::replay::Decided;
use crate::space::Parameters;
use crate::stop::Stop;
use crate::workload::Workload;

/// The parameters found, each with its key's name and share of the workload's calls.
pub(super) fn named<'w>(
    workload: &'w Workload,
    found: &'w per_key::Found,
) -> impl Iterator<Item = RootParameters> + use<'w> {
    let names: Vec<&str> = workload.keys().names().collect();
    let (calls, all) = (workload.traces_by_key(), workload.arrivals().len() as f64);
    found.keys.iter().map(move |&(key, parameters)| RootParameters {
        key: names[key].to_owned(),
        parameters,
        share: f64::from(calls[key]) / all,
    })
}

/// Gives keys that were found on a part of a workload their shares of all its calls.
pub(super) fn share_of_all(workload: &Workload, roots: &mut [RootParameters]) {
    let calls: HashMap<&str, u32> = workload.keys().names().zip(workload.traces_by_key()).collect();
    let all = workload.arrivals().len() as f64;
    for root in roots {
        root.share = calls.get(root.key.as_str()).map_or(root.share, |&calls| f64::from(calls) / all);
    }
}

/// A minimum is needless if the curve alone keeps at least this share of the key's calls.
const NEEDLESS: f64 = 0.95;

/// Lowers the minima of keys to the common minimum where a key's curve keeps nearly all recorded
/// calls anyway. A curve bounds what is kept if the key becomes more frequent, also in a process
/// that has not seen any other key yet. `None` if asked to stop.
pub(super) fn with_needed_minima(
    workload: &Workload,
    common: &Parameters,
    roots: Vec<RootParameters>,
    stop: Stop<'_>,
) -> Option<Vec<RootParameters>> {
    let Parameters::Decaying { min: least, .. } = *common else { return Some(roots) };
    let lowered = |root: &RootParameters| {
        let parameters = match root.parameters {
            Parameters::Decaying { lambda, min, half_life, exponent } => {
                Parameters::Decaying { lambda, min: min.min(least), half_life, exponent }
            }
            other => other,
        };
        RootParameters { parameters, ..root.clone() }
    };
    let lowered: Vec<RootParameters> = roots.iter().map(lowered).collect();
    if lowered == roots {
        return Some(roots);
    }
    let mut kept = vec![0.0; workload.keys().len()];
    let add = |decided: Decided| {
        let chance = decided.weight().map_or(0.0, |weight| 1.0 / weight);
        kept[workload.arrivals()[decided.arrival].key as usize] += chance;
    };
    let candidate = Candidate::from(config(common, &lowered).ok()?);
    if !candidate.decide_each(workload, &Draw::recorded(1), stop, add) {
        return None;
    }
    let calls = workload.traces_by_key();
    let keys: HashMap<&str, usize> = workload.keys().names().zip(0..).collect();
    let is_needless = |root: &RootParameters| {
        let key = keys.get(root.key.as_str());
        key.is_some_and(|&key| kept[key] >= NEEDLESS * f64::from(calls[key]))
    };
    let chosen = roots.into_iter().zip(lowered);
    Some(chosen.map(|(root, lowered)| if is_needless(&lowered) { lowered } else { root }).collect())
}

/// At most this many keys with the common parameters have their shares: those with the most calls.
const BOUNDED_MAX: usize = 2_000;

/// The keys that `roots` does not name, with the common parameters and their shares, if one of them
/// would fill what is kept once it became far more frequent. `kept` is the share of the bytes that
/// is kept. Empty for samplers that shares do not bound.
///
/// All keys are named, not only those that grow: a share is one among the keys present that have
/// one.
pub(super) fn bounded(
    workload: &Workload,
    common: &Parameters,
    roots: &[RootParameters],
    kept: f64,
) -> Vec<RootParameters> {
    let is_too_much = |config| Growth::is_too_much(workload, &config, kept);
    // A share bounds no count in seconds, which has a bound per second of its own.
    let is_paced = matches!(common, Parameters::Decaying { half_life: HalfLife::Calls(_), .. });
    if !is_paced || !config(common, roots).is_ok_and(is_too_much) {
        return Vec::new();
    }
    let named: HashSet<&str> = roots.iter().map(|root| root.key.as_str()).collect();
    let all = workload.arrivals().len() as f64;
    let keys = workload.keys().names().zip(workload.traces_by_key());
    let mut keys: Vec<(&str, u32)> = keys.filter(|(key, calls)| *calls > 0 && !named.contains(key)).collect();
    keys.sort_by_key(|&(_, calls)| Reverse(calls));
    keys.truncate(BOUNDED_MAX);
    let bounded = |(key, calls): (&str, u32)| RootParameters {
        key: key.to_owned(),
        parameters: *common,
        share: f64::from(calls) / all,
    };
    keys.into_iter().map(bounded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{kept_by_chance, recorded};
    use crate::traffic::grown;

    const COMMON: Parameters = Parameters::Decaying {
        lambda: 98.82,
        min: 0.0047,
        half_life: HalfLife::Calls(320.0),
        exponent: 2.989,
    };

    /// By how much kept bytes grow, divided by the growth of all bytes: the worst key of those with
    /// 50 to 200 calls, 200 times as frequent, spread and in bursts.
    fn worst(workload: &Workload, roots: &[RootParameters]) -> f64 {
        let config = config(&COMMON, roots).expect("a sampler");
        let (_, here, all) = kept_by_chance(workload, &config);
        let keys = (0..).zip(workload.traces_by_key()).filter(|(_, calls)| (50..=200).contains(calls));
        let growth = keys.flat_map(|(key, _)| [(key, false), (key, true)]).map(|(key, in_bursts)| {
            let there = grown(workload, key, 200, in_bursts, Stop::never()).expect("not stopped");
            let (_, kept, all_there) = kept_by_chance(&there, &config);
            kept / here / (all_there / all)
        });
        growth.fold(0.0, f64::max)
    }

    /// The share of the recorded traffic whose decisions differ, in expectation.
    fn changed(workload: &Workload, [one, other]: [&[RootParameters]; 2]) -> f64 {
        let chances =
            [one, other].map(|roots| kept_by_chance(workload, &config(&COMMON, roots).expect("a sampler")).0);
        let differ = chances[0].iter().zip(&chances[1]).map(|(p, q)| (p - q).abs());
        differ.sum::<f64>() / chances[0].len() as f64
    }

    /// Parameters that `tune` found for a loop: 66 files, each written by a thousand calls.
    #[test]
    fn curves_beside_a_loop_are_bounded_and_recorded_traffic_is_decided_as_before() {
        let workload = recorded("dfsioe_write");
        let bounded = bounded(&workload, &COMMON, &[], 0.1);
        let calls = workload.traces_by_key();
        assert_eq!(bounded.len(), calls.iter().filter(|&&calls| calls > 0).count());
        assert!((bounded.iter().map(|root| root.share).sum::<f64>() - 1.0).abs() < 1e-9);
        let differ = changed(&workload, [&bounded, &[]]);
        let (with, without) = (worst(&workload, &bounded), worst(&workload, &[]));
        println!("{differ} changed, {with} with shares, {without} without");
        assert!(differ <= 0.001 && with <= 2.0 && without > 2.0, "{differ} {with} {without}");
        // A gentle curve needs no names.
        let gentle = Parameters::Decaying {
            lambda: 1.0,
            min: 0.1,
            half_life: HalfLife::Calls(320.0),
            exponent: 2.989,
        };
        assert_eq!(super::bounded(&workload, &gentle, &[], 0.1), []);
    }

    /// All keys but the loop's have the minimum 1, though the curve keeps their recorded calls.
    #[test]
    fn minima_that_a_curve_makes_needless_are_lowered() {
        let workload = recorded("dfsioe_write");
        let with_least = |root: &RootParameters| {
            let min = if root.share > 0.5 { 0.0216 } else { 1.0 };
            let parameters = Parameters::Decaying {
                lambda: 98.82,
                min,
                half_life: HalfLife::Calls(320.0),
                exponent: 2.989,
            };
            RootParameters { parameters, ..root.clone() }
        };
        let roots: Vec<_> = bounded(&workload, &COMMON, &[], 0.1).iter().map(with_least).collect();
        let found =
            with_needed_minima(&workload, &COMMON, roots.clone(), Stop::never()).expect("not stopped");
        let is_lowered = |root: &RootParameters| root.parameters == COMMON;
        for root in &found {
            let was = roots.iter().find(|was| was.key == root.key).expect("all keys");
            assert!(is_lowered(root) || root == was, "{root:?}");
            if root.key == "DFSOutputStream#close" || root.share > 0.5 {
                assert_eq!(is_lowered(root), root.share < 0.5, "{root:?}");
            }
        }
        let differ = changed(&workload, [&found, &roots]);
        let (with, without) = (worst(&workload, &found), worst(&workload, &roots));
        println!("{differ} changed, {with} lowered, {without} before");
        assert!(differ <= 0.001 && with <= 2.0 && without > 2.0, "{differ} {with} {without}");
    }
}
