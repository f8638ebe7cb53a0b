//! Pairs of attributes: a fault may need a version and a type of user, each of which alone is
//! harmless.

use serde::Serialize;

use super::instances::Role;
use super::moments::Moments;
use super::presence::{Instances, Presence};
use super::ranking::{LEVEL, Ranked};
use super::sample::{PRESENCE, Sample, column, column_feature};
use super::traces::OTHERS;
use super::typed::Part;

/// The first values of attributes that are paired.
const VALUES_MAX: usize = 8;
/// The multiple of the larger |t| of both that a pair must have.
const GAIN_MIN: f64 = 1.2;

/// Two values of attributes that are in one instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Pair {
    /// The names of both variables.
    pub variables: [String; 2],
    /// The share of good and of bad instances with both.
    pub means: [f64; 2],
    /// The statistic of their difference.
    pub t: f64,
    /// Its p-value.
    pub p: f64,
}

/// The pairs of values of different attributes, more frequent in bad instances, that are
/// significant by Bonferroni among the tests and pairs, and differ more than each alone. The
/// strongest is first.
pub(super) fn pairs<'r>(
    sample: &Sample,
    parts: &[Part],
    types: usize,
    ranked: impl Iterator<Item = &'r Ranked>,
    tested: usize,
) -> Vec<Pair> {
    let variables = &sample.variables;
    let is_value = |own: &&Ranked| {
        let (variable, _) = column_feature(variables, own.column);
        variables.role(variable) != Role::Other
            && own.test.means[1] > own.test.means[0]
            && !own.variable.ends_with(OTHERS)
    };
    let values: Vec<&Ranked> = ranked.filter(is_value).take(VALUES_MAX).collect();
    let columns: Vec<_> =
        values.iter().map(|own| column(column_feature(variables, own.column).0, PRESENCE)).collect();
    let dense = sample.dense(parts.iter().map(|part| part.at), &columns);
    let all = of_types(parts, types, |_| 0.0);
    let instances = Instances::new(all.into_iter());
    let tried = values.len() * values.len().saturating_sub(1) / 2;
    let mut pairs = Vec::new();
    for (one, first) in values.iter().enumerate() {
        for (other, second) in values.iter().enumerate().skip(one + 1) {
            if key(&first.variable) == key(&second.variable) {
                continue;
            }
            let mut presence = Presence::default();
            let both = |at: usize| f64::from(u8::from(dense[one][at] > 0.0 && dense[other][at] > 0.0));
            of_types(parts, types, both).iter().for_each(|[good, bad]| presence.add(good, bad));
            let Some(test) = presence.outcome(&instances).test() else { continue };
            let single = first.test.t.abs().max(second.test.t.abs());
            let is_better = test.means[1] > test.means[0] && test.t.abs() >= GAIN_MIN * single;
            if is_better && test.p < LEVEL / (tested + tried) as f64 {
                let variables = [first, second].map(|own| own.variable.clone());
                pairs.push(Pair { variables, means: test.means, t: test.t, p: test.p });
            }
        }
    }
    pairs.sort_by(|a, b| b.t.abs().total_cmp(&a.t.abs()).then_with(|| a.variables.cmp(&b.variables)));
    pairs
}

/// The key of `service key=value`, with the service.
fn key(variable: &str) -> &str {
    variable.split_once('=').map_or(variable, |(key, _)| key)
}

/// The sums of a value of each part, by type and group.
fn of_types(parts: &[Part], types: usize, value: impl Fn(usize) -> f64) -> Vec<[Moments; 2]> {
    let mut all = vec![[Moments::default(); 2]; types];
    for (at, part) in parts.iter().enumerate() {
        all[part.stratum as usize][part.group as usize].add(value(at), part.weight);
    }
    all
}
