//! Dependency networks: which variables go with which, and with the metric.
//!
//! For each class and feature, a regression tree predicts each variable, and the metric P, from all
//! others (D. Heckerman et al., "Dependency Networks for Inference, Collaborative Filtering, and
//! Data Visualization", 2000). A variable on which a tree splits is a parent of the tree's target.
//! *Attention focusing* (DISTALYZER) then looks at the variables connected with P: each has a score
//! of its |t| times the weight of the edge that reached it, and the sum of all is the network's.

use std::collections::HashMap;

use astracer_recording::stop::Pulse;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use serde::Serialize;

use self::attention::Focus;
use super::features::{Feature, Kind};
use super::instances::{Class, Head, VariableId};
use super::ranking::is_significant;
use super::sample::{COUNT, Column, Sample, column, median};
use super::welch::Tested;

pub mod attention;
pub mod tree;

/// The name of the metric among variables.
pub const METRIC: &str = "#P";

/// Settings of networks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The smallest node that is split, as a share of the class.
    pub split_min: f64,
    /// The balance of the two parts of a score.
    pub focus: Focus,
    /// The most variables of a network: those with the largest |t|.
    pub variables_max: usize,
    /// The most instances of a class: those with the smallest hashes of their ids.
    pub instances_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { split_min: 1.0 / 3.0, focus: Focus::default(), variables_max: 300, instances_max: 20_000 }
    }
}

/// The network of one class and feature.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Network {
    /// 0 for good and 1 for bad.
    pub class: u8,
    /// The kind of its variables.
    pub kind: Kind,
    /// The feature.
    pub feature: Feature,
    /// The sum of the scores of its nodes.
    pub score: f64,
    /// The number of variables, with the metric.
    pub variables: usize,
    /// Variables that were left out because others have a larger |t|.
    pub variables_left_out: usize,
    /// Instances that were left out.
    pub instances_left_out: usize,
    /// (parent, child, weight), by name. The weight is the share of the class at the largest split
    /// of the child's tree on the parent.
    pub edges: Vec<(String, String, f64)>,
    /// Pairs of connected events of which the first precedes the second in all instances.
    pub arrows: Vec<(String, String)>,
    /// The variables connected with the metric, in the order in which they were reached.
    pub nodes: Vec<Node>,
}

/// A variable connected with the metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The variable from which it was reached.
    pub from: String,
    /// The weight of that edge.
    pub weight: f64,
    /// Its t; 0 if it is not significant.
    pub t: f64,
    /// Its part in the network's score.
    pub score: f64,
    /// The median of its first time, ms; `None` for states and for other features than times.
    pub time_ms: Option<f64>,
}

/// The networks of a sample, by class, kind and feature. `None` if `pulse` stopped the work.
pub fn networks(
    sample: &Sample,
    heads: &[Head],
    tests: &[Tested],
    options: &Options,
    pulse: &mut Pulse<'_>,
) -> Option<Vec<Network>> {
    let order = sample.variables.sorted();
    let significant: HashMap<Column, f64> = tests
        .iter()
        .map(|tested| {
            let is_significant = is_significant(&tested.test, tests.len());
            (tested.column, if is_significant { tested.test.t } else { 0.0 })
        })
        .collect();
    let all: HashMap<Column, f64> = tests.iter().map(|tested| (tested.column, tested.test.t.abs())).collect();
    let mut networks = Vec::new();
    for class in [Class::Good, Class::Bad] {
        let rows = chosen_rows(heads, class, options.instances_max);
        let of_class = heads.iter().filter(|head| head.class == class).count();
        for kind in [Kind::Event, Kind::State] {
            let variables: Vec<VariableId> =
                order.iter().copied().filter(|&variable| sample.variables.get(variable).0 == kind).collect();
            let work =
                Work { sample, heads, rows: &rows, variables: &variables, kind, significant: &significant };
            // The features of one kind at a time: each needs the columns of all its variables.
            let made: Vec<Network> = (0..kind.features().len())
                .into_par_iter()
                .filter(|&place| kind.features()[place] != Feature::Present)
                .map(|place| {
                    let mut network = work.network(place, class, &all, options);
                    network.instances_left_out = of_class - rows.len();
                    network
                })
                .collect();
            networks.extend(made);
            if pulse.stopped() {
                return None;
            }
        }
    }
    Some(networks)
}

/// The best network of each class and kind first, then all others by class, kind and feature.
pub fn ordered(networks: Vec<Network>) -> Vec<Network> {
    let key = |network: &Network| (network.class, network.kind);
    let best = |network: &Network| {
        let of = networks.iter().filter(|other| key(other) == key(network));
        let most = of.map(|other| other.score).fold(0.0, f64::max);
        let first = networks.iter().find(|other| key(other) == key(network) && other.score == most);
        first.is_some_and(|first| first.feature == network.feature)
    };
    let is_best: Vec<bool> = networks.iter().map(best).collect();
    let mut all: Vec<(bool, Network)> = is_best.into_iter().zip(networks).collect();
    all.sort_by_key(|(is_best, _)| !is_best);
    all.into_iter().map(|(_, network)| network).collect()
}

/// At most `most` instances of a class: those with the smallest hashes of their ids, so that
/// the choice depends on nothing else.
fn chosen_rows(heads: &[Head], class: Class, most: usize) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..heads.len()).filter(|&at| heads[at].class == class).collect();
    if rows.len() > most {
        let hash = |at: usize| rapidhash::v3::rapidhash_v3(heads[at].id.as_bytes());
        rows.sort_by_cached_key(|&at| (hash(at), at));
        rows.truncate(most);
        rows.sort_unstable();
    }
    rows
}

struct Work<'w> {
    sample: &'w Sample,
    heads: &'w [Head],
    rows: &'w [usize],
    /// In the order of their names.
    variables: &'w [VariableId],
    kind: Kind,
    significant: &'w HashMap<Column, f64>,
}

impl Work<'_> {
    fn network(&self, place: usize, class: Class, all: &HashMap<Column, f64>, options: &Options) -> Network {
        let mut names = vec![METRIC];
        let mut columns = vec![filled(self.rows.iter().map(|&row| self.heads[row].metric).collect())];
        let mut numbers: Vec<Option<Column>> = vec![None];
        let mut candidates = self.present(place);
        let present = candidates.len();
        let t = |variable: VariableId| all.get(&column(variable, place)).copied().unwrap_or(0.0);
        // Stable sorts: equal |t| stay in the order of names.
        if present > 2 * options.variables_max {
            // Bounds the memory; constants and duplicates are found below.
            candidates.sort_by(|&a, &b| t(b).total_cmp(&t(a)));
            candidates.truncate(2 * options.variables_max);
            candidates.sort_by_key(|&variable| self.sample.variables.get(variable).1);
        }
        let not_looked_at = present - candidates.len();
        let mut known: Vec<(VariableId, Vec<f64>)> = Vec::new();
        let of_place: Vec<Column> = candidates.iter().map(|&variable| column(variable, place)).collect();
        let dense = self.sample.dense(self.rows.iter().copied(), &of_place);
        for (&variable, values) in candidates.iter().zip(dense) {
            let values = filled(values);
            let is_constant = values.iter().all(|value| *value == values[0]);
            if !is_constant && !known.iter().any(|(_, other)| *other == values) {
                known.push((variable, values));
            }
        }
        let usable = known.len();
        if usable > options.variables_max {
            known.sort_by(|(a, _), (b, _)| t(*b).total_cmp(&t(*a)));
            known.truncate(options.variables_max);
            known.sort_by_key(|(variable, _)| self.sample.variables.get(*variable).1);
        }
        let left_out = not_looked_at + usable - known.len();
        for (variable, values) in known {
            names.push(self.sample.variables.get(variable).1);
            numbers.push(Some(column(variable, place)));
            columns.push(values);
        }
        let edges = tree::edges(&columns, options.split_min);
        let t: Vec<f64> = numbers
            .iter()
            .map(|number| number.and_then(|number| self.significant.get(&number)).copied().unwrap_or(0.0))
            .collect();
        let most = self.most(place);
        let reached = attention::reach(&names, &edges, &t, most, options.focus);
        let mut arrows = Vec::new();
        if self.kind == Kind::Event && place < COUNT {
            for &(parent, child, _) in &edges {
                if parent == 0 || child == 0 {
                    continue;
                }
                let later = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a < b);
                if later(&columns[parent], &columns[child]) {
                    arrows.push((names[parent].to_owned(), names[child].to_owned()));
                } else if later(&columns[child], &columns[parent]) {
                    arrows.push((names[child].to_owned(), names[parent].to_owned()));
                }
            }
            arrows.sort();
            arrows.dedup();
        }
        let is_time = self.kind == Kind::Event && place < COUNT / 2;
        let nodes: Vec<Node> = reached
            .iter()
            .map(|node| Node {
                name: names[node.variable].to_owned(),
                from: names[node.from].to_owned(),
                weight: node.weight,
                t: t[node.variable],
                score: node.score,
                time_ms: is_time.then(|| median(columns[node.variable].clone())),
            })
            .collect();
        let mut edges: Vec<(String, String, f64)> = edges
            .into_iter()
            .map(|(parent, child, weight)| (names[parent].to_owned(), names[child].to_owned(), weight))
            .collect();
        edges.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        let feature = self.kind.features()[place];
        Network {
            class: class.index() as u8,
            kind: self.kind,
            feature,
            score: nodes.iter().map(|node| node.score).sum(),
            variables: columns.len(),
            variables_left_out: left_out,
            instances_left_out: 0,
            edges,
            arrows,
            nodes,
        }
    }

    /// True if a feature is a count, which is 0 where it is not stored.
    fn is_count(&self, place: usize) -> bool {
        self.kind == Kind::Event && place == COUNT
    }

    /// The variables that have a feature in at least half of the instances, in the order of their
    /// names.
    fn present(&self, place: usize) -> Vec<VariableId> {
        if self.is_count(place) {
            return self.variables.to_vec();
        }
        let mut counts = vec![0usize; self.sample.columns()];
        for &row in self.rows {
            self.sample.row(row).for_each(|(column, _)| counts[column as usize] += 1);
        }
        let count = |variable: VariableId| counts[column(variable, place) as usize];
        let is_present = |variable: &VariableId| {
            let count = count(*variable);
            count > 0 && count * 2 >= self.rows.len()
        };
        self.variables.iter().copied().filter(is_present).collect()
    }

    /// The largest |t| of a feature among all significant variables.
    fn most(&self, place: usize) -> f64 {
        let of = |&variable: &VariableId| self.significant.get(&column(variable, place)).map(|t| t.abs());
        self.variables.iter().filter_map(of).fold(0.0, f64::max)
    }
}

/// Replaces missing values by the mean of the others.
fn filled(mut values: Vec<f64>) -> Vec<f64> {
    let known = || values.iter().copied().filter(|value| value.is_finite());
    let count = known().count();
    if count < values.len() {
        let mean = if count == 0 { 0.0 } else { known().sum::<f64>() / count as f64 };
        values.iter_mut().filter(|value| !value.is_finite()).for_each(|value| *value = mean);
    }
    values
}
