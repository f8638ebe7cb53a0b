//! Time: the metric in the course of the recording, and whether good instances change with time.
//!
//! If the later good instances differ from the earlier ones as the bad ones do, then the bad class
//! may only be later.

use std::collections::HashMap;

use serde::Serialize;

use super::super::instances::{Class, Head};
use super::super::moments::Moments;
use super::super::ranking::is_significant;
use super::super::typed::{Conditions, Part, Sums, welch};
use super::super::welch::Test;
use super::super::welch::Tested;
use super::Compared;

/// The stretches of time into which all instances are cut.
const SLICES: usize = 30;

/// The metric in a stretch of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Slice {
    /// The start of its first instance, nanoseconds since the epoch.
    pub from_ns: u64,
    /// The number of good and of bad instances that start in it.
    pub n: [u64; 2],
    /// The medians of their metric.
    pub medians: [Option<f64>; 2],
}

/// The later half of each good run against its earlier half.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Drift {
    /// The number of tested features.
    pub tested: usize,
    /// The number of significant ones.
    pub significant: usize,
    /// The metric.
    pub metric: Option<Test>,
}

/// The metric over time. Empty if times are unknown. Slices have equally many instances, so that
/// pauses between recordings take no room.
pub(super) fn timeline(compared: &Compared<'_>) -> Vec<Slice> {
    let known = |&at: &usize| compared.heads[at].start_ns > 0 && compared.heads[at].metric.is_finite();
    let mut order: Vec<usize> = (0..compared.heads.len()).filter(known).collect();
    order.sort_by_key(|&at| (compared.heads[at].start_ns, at));
    let slice = |members: &[usize]| {
        let mut values: [Vec<(f64, f64)>; 2] = Default::default();
        for &at in members {
            let head = &compared.heads[at];
            values[head.class.index()].push((head.metric, compared.weight(at)));
        }
        Slice {
            from_ns: members.first().map_or(0, |&at| compared.heads[at].start_ns),
            n: [values[0].len() as u64, values[1].len() as u64],
            medians: values.map(weighted_median),
        }
    };
    order.chunks(order.len().div_ceil(SLICES).max(1)).map(slice).collect()
}

/// The median of (value, weight) pairs: the least value with half of the weight up to it.
fn weighted_median(mut values: Vec<(f64, f64)>) -> Option<f64> {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let reaches = |(_, weight): &&(f64, f64)| {
        sum += weight;
        sum >= half
    };
    values.iter().find(reaches).or(values.last()).map(|&(value, _)| value)
}

/// The tests of all features of good instances, the later half of each run against its earlier
/// half, and their summary. `None` if times are unknown or all alike.
pub(super) fn halves(compared: &Compared<'_>) -> Option<(Vec<Tested>, Drift)> {
    let middles = middles(compared.heads);
    let part = |(at, head): (usize, &Head)| {
        let group = half(&middles, head)?.index() as u32;
        Some(Part { at, stratum: head.stratum, group, weight: compared.weight(at) })
    };
    let parts: Vec<Part> = compared.heads.iter().enumerate().filter_map(part).collect();
    let has = |group: u32| parts.iter().any(|part| part.group == group);
    if !has(0) || !has(1) {
        return None;
    }
    let sums = Sums::new(compared.sample, &parts, compared.types.len(), 2);
    let tests = sums.tested(0, 1, &Conditions::TYPED);
    let mut metric = [Moments::default(); 2];
    parts
        .iter()
        .for_each(|part| metric[part.group as usize].add(compared.heads[part.at].metric, part.weight));
    let drift = Drift {
        tested: tests.len(),
        significant: tests.iter().filter(|tested| is_significant(&tested.test, tests.len())).count(),
        metric: welch(&metric[0], &metric[1]),
    };
    Some((tests, drift))
}

/// The median start of each good run.
fn middles(heads: &[Head]) -> HashMap<u32, u64> {
    let mut starts: HashMap<u32, Vec<u64>> = HashMap::new();
    for head in heads.iter().filter(|head| head.class == Class::Good && head.start_ns > 0) {
        starts.entry(head.run).or_default().push(head.start_ns);
    }
    let middle = |mut starts: Vec<u64>| {
        starts.sort_unstable();
        starts[starts.len() / 2]
    };
    starts.into_iter().map(|(run, starts)| (run, middle(starts))).collect()
}

fn half(middles: &HashMap<u32, u64>, head: &Head) -> Option<Class> {
    if head.class == Class::Bad || head.start_ns == 0 {
        return None;
    }
    let is_later = head.start_ns >= *middles.get(&head.run)?;
    Some(if is_later { Class::Bad } else { Class::Good })
}
