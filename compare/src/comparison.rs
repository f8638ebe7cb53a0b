//! The comparison of two classes, from instances to ranked variables.

use std::collections::BTreeMap;
use std::ops::Range;

use astracer_recording::stop::Pulse;
use serde::{Serialize, Serializer, ser::SerializeTuple as _};

use super::chance::{self, Chance};
use super::choice::ChosenBy;
use super::details::{Compared, Details};
use super::features::{Feature, Kind};
use super::instances::{Class, Head, Role, Source};
use super::mix::{Mix, mix};
use super::moments::{Moments, weight_at};
use super::network::{self, Network, networks};
use super::pairs::{self, Pair};
use super::placebos::Placebos;
use super::ranking::{LEVEL, Ranked, SURE, Score, is_significant, rank};
use super::runs::Runs;
use super::sample::{Sample, column_feature};
use super::typed::{Conditions, Part, Sums, welch};
use super::welch::{Test, Tested};
use super::{explained, placebos, student, tails};

/// Settings of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// The paper's test: all types of requests together, and the sum of |t| as the rank.
    pub paper: bool,
    /// The plural of an instance's name: "traces".
    pub noun: &'static str,
    /// The metric's name and unit: "duration of the root, ms".
    pub metric: String,
    /// True if the classes are parts of the same recordings, so that further runs cannot confirm.
    pub is_split: bool,
    /// The rule that chose the bad class.
    pub chosen_by: ChosenBy,
    /// The most variables that are looked at.
    pub variables_max: usize,
    /// The seed of the permuted labels.
    pub seed: u64,
    /// Settings of dependency networks; `None` makes none.
    pub networks: Option<network::Options>,
    /// If given, each instance also has the weight 2^floor(P / tail), at most 1,024.
    pub tail: Option<f64>,
    /// If given, the time of the bad class, nanoseconds since the epoch: placebos are made for it.
    pub window: Option<Range<u64>>,
    /// Whether the values behind the tests are looked at.
    pub details: bool,
}

impl Default for Options {
    /// Instances of a file, without networks, placebos and details.
    fn default() -> Self {
        Self {
            paper: false,
            noun: "instances",
            metric: "metric P".to_owned(),
            is_split: false,
            chosen_by: ChosenBy::default(),
            variables_max: 20_000,
            seed: 1,
            networks: None,
            tail: None,
            window: None,
            details: false,
        }
    }
}

/// The differences between good and bad instances.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// The plural of an instance's name: "traces".
    #[serde(rename = "of")]
    pub noun: &'static str,
    /// The number of good and bad instances.
    pub instances: [u64; 2],
    /// The median length of all runs, ms.
    pub median_length_ms: f64,
    /// The weights of instances.
    pub weights: Weights,
    /// The share that the heaviest instance of each class has of its class's weight.
    pub heaviest: [f64; 2],
    /// The step of the metric that doubles an instance's weight, if asked for.
    pub tail: Option<f64>,
    /// The metric in both classes.
    pub metric: MetricRow,
    /// The number of tested features.
    pub tested: usize,
    /// Those among them that are no presences. 0 if a class has too few instances of each type.
    pub tested_values: usize,
    /// Whether the classes are parts of the same recordings.
    pub is_split: bool,
    /// With the paper's test, the number of significant features. Else the number of ranked
    /// variables whose difference chance explains in at most 1 % of draws; without draws, all.
    pub significant: usize,
    /// The number of variables whose difference chance explains in 1 to 5 % of draws.
    pub unsure: usize,
    /// Whether labels were permuted, so that chances are known.
    pub has_chances: bool,
    /// The certainty of the result.
    pub verdict: Verdict,
    /// The number of ranked variables that several runs confirm.
    pub confirmed: usize,
    /// The variables that differ and that no other one explains, the strongest first.
    pub ranked: Vec<Row>,
    /// Pairs of attributes' values that differ more than each alone.
    pub pairs: Vec<Pair>,
    /// Stretches of good time in the place of the bad one; `None` if time does not tell bad traces.
    pub placebos: Option<Placebos>,
    /// The services of ranked variables, the strongest first.
    pub services: Vec<ServiceRow>,
    /// The types of requests and their shares.
    pub mix: Mix,
    /// The parts that were left out.
    pub left_out: LeftOut,
    /// Gaps below 0, which are kept: the child took longer than its parent.
    pub negative_gaps: u64,
    /// All tests.
    pub tests: Vec<TestRow>,
    /// Dependency networks, the best of each class and kind first.
    pub networks: Vec<Network>,
    /// The values behind the tests, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
}

/// The certainty of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There are fewer than two good runs, so a change cannot be told from the difference between
    /// two runs.
    Unconfirmed,
    /// Some variable differs more between good and bad runs than between good runs.
    Confirmed,
    /// Good runs differ from each other about as much.
    WithinRuns,
}

/// The weights of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    /// Each counts once: everything was kept, or all with one probability.
    Equal,
    /// By the thresholds of their sampler.
    Thresholds,
    /// Each counts once, because the weights of some are unknown or 0. The result is about the
    /// traces that were kept.
    Unknown,
}

/// The metric P in both classes.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MetricRow {
    /// Its name and unit.
    pub name: String,
    /// The means of good and bad instances.
    pub means: [f64; 2],
    /// The mean of bad instances less that of good ones.
    pub difference: f64,
    /// Half of the 95 % interval of the difference; `None` if it cannot be estimated.
    pub error_95: Option<f64>,
    /// The test of the difference.
    pub test: Option<Test>,
    /// The share of each class outside its mean ± 3 standard deviations, by the weights of samples.
    pub heavy_tail: [f64; 2],
    /// True if such a share is above 1.1 %: means are then a poor summary.
    pub is_heavy: bool,
}

/// A ranked variable.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The variable, and the test of its strongest feature.
    #[serde(flatten)]
    pub ranked: Ranked,
    /// The mean of bad instances less that of good ones, within types unless with the paper's test.
    pub difference: f64,
    /// Half of the 95 % interval of the difference.
    pub error_95: f64,
    /// The share of permuted labels under which some feature differs as much.
    pub chance: Option<f64>,
    /// The least |t| against a good run by the largest between good runs; `None` without several
    /// good runs.
    pub null_ratio: Option<f64>,
    /// True if several runs confirm the difference.
    pub confirmed: bool,
    /// The largest |t| of the variable in a placebo.
    pub placebo_t: Option<f64>,
    /// True if it differs because of the rule that chose the bad class.
    pub by_choice: bool,
    /// Variables whose difference vanishes given this one, or that go with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub explains: Vec<Row>,
}

/// A service, by its strongest variable.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ServiceRow {
    /// The service's name.
    pub service: String,
    /// The number of its ranked variables.
    pub variables: u64,
    /// The largest |t| among them.
    pub t: f64,
    /// The least chance among them.
    pub chance: Option<f64>,
}

/// The parts that were left out, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Observations of variables beyond the limit.
    pub variables: u64,
    /// Values and times that are NaN, infinite or beyond 1e70.
    pub not_finite: u64,
}

/// A test as a row of JSON: kind, variable, feature, n, n, mean, mean, t, df, p, significant.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct TestRow {
    pub kind: Kind,
    pub variable: String,
    pub feature: Feature,
    pub test: Test,
    pub significant: bool,
}

impl Serialize for TestRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_tuple(11)?;
        row.serialize_element(&self.kind)?;
        row.serialize_element(&self.variable)?;
        row.serialize_element(&self.feature)?;
        self.test.n.iter().try_for_each(|n| row.serialize_element(n))?;
        self.test.means.iter().try_for_each(|mean| row.serialize_element(mean))?;
        row.serialize_element(&self.test.t)?;
        row.serialize_element(&self.test.df)?;
        row.serialize_element(&self.test.p)?;
        row.serialize_element(&self.significant)?;
        row.end()
    }
}

/// Compares the classes of a source. `None` if `pulse` stopped the work.
pub fn compare(source: &impl Source, options: &Options, pulse: &mut Pulse<'_>) -> Option<Comparison> {
    let heads = source.heads();
    let sample = Sample::new(source, options.variables_max, !options.paper, pulse)?;
    let (weights, values) = weights(heads);
    let values = values.filter(|_| !options.paper);
    let heavy_tail = tails::shares(heads, values.as_deref());
    let values = match options.tail {
        Some(step) => Some(tail_weights(heads, values, step)),
        None => values,
    };
    // The paper's test knows no types.
    let types = if options.paper { 1 } else { source.types().len() };
    let conditions = if options.paper { Conditions::PAPER } else { Conditions::TYPED };
    let part = |(at, head): (usize, &Head)| Part {
        at,
        stratum: if options.paper { 0 } else { head.stratum },
        group: head.class.index() as u32,
        weight: weight_at(values.as_deref(), at),
    };
    let parts: Vec<Part> = heads.iter().enumerate().map(part).collect();
    let tests = Sums::new(&sample, &parts, types, 2).tested(0, 1, &conditions);
    let score = if options.paper { Score::Sum } else { Score::Largest };
    let is_permuted = !options.paper && values.is_none() && heads.len() <= chance::INSTANCES_MAX;
    let chance = match is_permuted {
        true => Some(Chance::new(&sample, &parts, types, options.seed, pulse)?),
        false => None,
    };
    let metric = MetricRow::new(&options.metric, heads, values.as_deref(), heavy_tail);
    let separates = |own: &Ranked| chance.as_ref().is_some_and(|chance| chance.separates(own.column));
    // Versions and hosts that all of one class have and none of the other name the recordings,
    // and may say no more.
    let is_name = |own: &Ranked| {
        let (variable, _) = column_feature(&sample.variables, own.column);
        !options.is_split && sample.variables.role(variable) == Role::Resource && separates(own)
    };
    let is_last = |own: &Ranked| is_name(own) || options.chosen_by.is_empty_for(own);
    let ranked = rank(&tests, &sample.variables, score, chance.as_ref(), metric.differs(), is_last);
    let groups = match options.paper {
        true => (0..ranked.len()).map(|place| vec![place]).collect(),
        false => explained::grouped(&sample, &parts, &ranked),
    };
    let runs = match options.paper {
        true => None,
        false => Runs::new(&sample, heads, types, values.as_deref()),
    };
    let placebos = match &options.window {
        Some(window) => {
            let seed = is_permuted.then_some(options.seed);
            let settings = placebos::Settings { types, conditions: &conditions, score, seed };
            Some(Placebos::new(&sample, heads, &parts, window, &settings, pulse)?)
        }
        None => None,
    };
    let row = |ranked: Ranked| {
        let placebo_t = placebos.as_ref().and_then(|placebos| placebos.largest(ranked.column, &sample));
        let by_choice = options.chosen_by.decides(&ranked);
        Row { placebo_t, by_choice, ..Row::new(ranked, chance.as_ref(), runs.as_ref(), tests.len()) }
    };
    let mut single: Vec<Option<Row>> = ranked.into_iter().map(row).map(Some).collect();
    let mut taken = |place: usize| single[place].take();
    let group = |places: Vec<usize>| {
        let mut rows = places.into_iter().filter_map(&mut taken);
        rows.next().map(|first| Row { explains: rows.collect(), ..first })
    };
    let rows: Vec<Row> = groups.into_iter().filter_map(group).collect();
    let all_rows = || rows.iter().flat_map(Row::with_explained);
    let confirmed = all_rows().filter(|row| row.confirmed).count();
    let within =
        |level: f64| all_rows().filter(|row| row.chance.is_none_or(|chance| chance <= level)).count();
    let significant = match options.paper {
        true => tests.iter().filter(|tested| is_significant(&tested.test, tests.len())).count(),
        false => within(SURE),
    };
    let unsure = if options.paper { 0 } else { within(LEVEL) - significant };
    let pairs = match options.paper {
        true => Vec::new(),
        false => {
            let ranked = rows.iter().filter(|row| !row.by_choice).map(|row| &row.ranked);
            pairs::pairs(&sample, &parts, types, ranked, tests.len())
        }
    };
    let made = match &options.networks {
        Some(options) => network::ordered(networks(&sample, heads, &tests, options, pulse)?),
        None => Vec::new(),
    };
    let compared = Compared { sample: &sample, heads, types: source.types(), weights: values.as_deref() };
    let columns: Vec<_> = rows.iter().map(|row| row.ranked.column).collect();
    let details = options.details.then(|| Details::new(compared, &columns));
    let count = |class| heads.iter().filter(|head| head.class == class).count() as u64;
    Some(Comparison {
        noun: options.noun,
        instances: [count(Class::Good), count(Class::Bad)],
        median_length_ms: sample.median_length,
        weights,
        heaviest: heaviest(heads, values.as_deref()),
        tail: options.tail,
        metric,
        tested: tests.len(),
        tested_values: tests.iter().filter(|tested| !sample.is_presence(tested.column)).count(),
        is_split: options.is_split,
        significant,
        unsure,
        has_chances: chance.is_some(),
        verdict: match (&runs, confirmed) {
            (None, _) => Verdict::Unconfirmed,
            (Some(_), 0) => Verdict::WithinRuns,
            (Some(_), _) => Verdict::Confirmed,
        },
        confirmed,
        pairs,
        placebos,
        services: services(&rows),
        ranked: rows,
        mix: mix(heads, source.types(), values.as_deref()),
        left_out: LeftOut { variables: sample.variables.left_out(), not_finite: sample.not_finite },
        negative_gaps: sample.negative_gaps,
        tests: rows_of(&tests, &sample),
        networks: made,
        details,
    })
}

/// The weights of all instances, the largest of which is 1. `None` if each counts once.
fn weights(heads: &[Head]) -> (Weights, Option<Vec<f64>>) {
    let is_known = |class| {
        let of = || heads.iter().filter(move |head| head.class == class);
        let positive = |head: &Head| head.weight.is_some_and(|weight| weight > 0.0 && weight.is_finite());
        of().all(|head| head.weight.is_none()) || of().all(positive)
    };
    if !is_known(Class::Good) || !is_known(Class::Bad) {
        return (Weights::Unknown, None);
    }
    let all: Vec<f64> = heads.iter().map(|head| head.weight.unwrap_or(1.0)).collect();
    let most = all.iter().copied().fold(0.0, f64::max);
    // Each class has its own mean, so only weights that differ within a class matter.
    let is_equal = |class| {
        let mut of = heads.iter().zip(&all).filter(|(head, _)| head.class == class).map(|(_, weight)| weight);
        of.next().is_none_or(|first| of.all(|weight| weight == first))
    };
    if is_equal(Class::Good) && is_equal(Class::Bad) {
        return (Weights::Equal, None);
    }
    (Weights::Thresholds, Some(all.into_iter().map(|weight| weight / most).collect()))
}

/// The share of the heaviest instance of each class.
fn heaviest(heads: &[Head], weights: Option<&[f64]>) -> [f64; 2] {
    let (mut most, mut all) = ([0.0f64; 2], [0.0; 2]);
    for (at, head) in heads.iter().enumerate() {
        let (class, weight) = (head.class.index(), weight_at(weights, at));
        most[class] = most[class].max(weight);
        all[class] += weight;
    }
    [0, 1].map(|class| if all[class] > 0.0 { most[class] / all[class] } else { 0.0 })
}

/// Weights that also count large metrics more, the largest of which is 1.
fn tail_weights(heads: &[Head], weights: Option<Vec<f64>>, step: f64) -> Vec<f64> {
    let weight =
        |(at, head): (usize, &Head)| weight_at(weights.as_deref(), at) * tails::weight(head.metric, step);
    let mut all: Vec<f64> = heads.iter().enumerate().map(weight).collect();
    let most = all.iter().copied().fold(0.0, f64::max);
    all.iter_mut().for_each(|weight| *weight /= most);
    all
}

/// Half of the 95 % interval of a test's difference.
fn error_95(test: &Test) -> f64 {
    let difference = test.means[0] - test.means[1];
    let error = if test.t == 0.0 { 0.0 } else { difference / test.t };
    student::quantile(0.05, test.df) * error.abs()
}

impl Row {
    fn new(ranked: Ranked, chance: Option<&Chance>, runs: Option<&Runs>, tested: usize) -> Self {
        let of_runs = runs.map(|runs| runs.of(ranked.column, tested));
        Row {
            difference: ranked.test.means[1] - ranked.test.means[0],
            error_95: error_95(&ranked.test),
            chance: chance.and_then(|chance| chance.of(ranked.column)),
            null_ratio: of_runs.and_then(|of| of.null_ratio),
            confirmed: of_runs.is_some_and(|of| of.is_confirmed),
            placebo_t: None,
            by_choice: false,
            explains: Vec::new(),
            ranked,
        }
    }

    /// The row itself, and those that it explains.
    pub fn with_explained(&self) -> impl Iterator<Item = &Row> {
        std::iter::once(self).chain(&self.explains)
    }
}

impl MetricRow {
    fn new(name: &str, heads: &[Head], weights: Option<&[f64]>, heavy_tail: [f64; 2]) -> Self {
        let mut of = [Moments::default(); 2];
        for (at, head) in heads.iter().enumerate() {
            of[head.class.index()].add(head.metric, weight_at(weights, at));
        }
        let [good, bad] = of;
        let test = welch(&good, &bad);
        MetricRow {
            name: name.to_owned(),
            means: [good.mean(), bad.mean()],
            difference: bad.mean() - good.mean(),
            error_95: test.as_ref().map(error_95),
            test,
            heavy_tail,
            is_heavy: heavy_tail.iter().any(|&share| share > tails::HEAVY),
        }
    }

    /// True if the metric itself differs.
    pub(crate) fn differs(&self) -> bool {
        self.test.is_some_and(|test| test.p < LEVEL)
    }
}

/// The service in a variable's name: its first word, or the one called in a gap.
pub fn service_of(variable: &str) -> &str {
    let of_gap = variable.strip_prefix("gap ").and_then(|gap| gap.split_once("->"));
    let name = of_gap.map_or(variable, |(_, called)| called);
    name.split(' ').next().unwrap_or(name)
}

fn services(rows: &[Row]) -> Vec<ServiceRow> {
    let mut services: BTreeMap<&str, ServiceRow> = BTreeMap::new();
    for row in rows.iter().flat_map(Row::with_explained) {
        let name = service_of(&row.ranked.variable);
        let own = services.entry(name).or_insert_with(|| ServiceRow {
            service: name.to_owned(),
            variables: 0,
            t: 0.0,
            chance: None,
        });
        own.variables += 1;
        own.t = own.t.max(row.ranked.test.t.abs());
        own.chance = [own.chance, row.chance].into_iter().flatten().reduce(f64::min);
    }
    let mut services: Vec<ServiceRow> = services.into_values().collect();
    services.sort_by(|a, b| b.t.total_cmp(&a.t).then_with(|| a.service.cmp(&b.service)));
    services
}

/// All tests, by kind, variable and feature.
fn rows_of(tests: &[Tested], sample: &Sample) -> Vec<TestRow> {
    let row = |tested: &Tested| {
        let (variable, feature) = column_feature(&sample.variables, tested.column);
        let (kind, name) = sample.variables.get(variable);
        let significant = is_significant(&tested.test, tests.len());
        TestRow { kind, variable: name.to_owned(), feature, test: tested.test, significant }
    };
    let mut rows: Vec<TestRow> = tests.iter().map(row).collect();
    rows.sort_by(|a, b| (a.kind, &a.variable, a.feature).cmp(&(b.kind, &b.variable, b.feature)));
    rows
}
