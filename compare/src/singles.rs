//! Single instances: two side by side, or one against others of its type.
//!
//! A single instance has no spread, so nothing is tested. Each variable has one value in it: the
//! number of times an event happened, the sum of durations, or the mean of other numbers.

use std::collections::HashMap;

use astracer_recording::stop::Pulse;
use rapidhash::fast::RandomState;
use serde::Serialize;

use super::features::Kind;
use super::instances::{Class, Observed, Source, VariableId, Variables};

/// With this share of the others on one side, a value is unusual.
const UNUSUAL: f64 = 0.975;
/// An event that at most this share of the others has, or lacks, is unusual.
const RARE: f64 = 0.05;
/// The fewest others by which a value may be unusual.
const OTHERS_MIN: usize = 20;

/// A variable's value in one instance.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Value {
    variable: VariableId,
    value: f64,
    /// The first time at which it happened, ms.
    first_ms: f64,
}

/// The meaning of a variable's single value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The number of times an event happened.
    Count,
    /// The sum of a time, ms.
    Total,
    /// The mean of another number.
    Mean,
}

impl Measure {
    fn of(kind: Kind, name: &str) -> Self {
        match kind {
            Kind::Event => Self::Count,
            Kind::State if name.ends_with(" ms") => Self::Total,
            Kind::State => Self::Mean,
        }
    }

    /// The measure as a word in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Total => "sum",
            Self::Mean => "mean",
        }
    }
}

/// The values of the instance at this place.
fn values(source: &impl Source, at: usize, variables: &mut Variables, observed: &mut Observed) -> Vec<Value> {
    observed.clear();
    source.observe(at, variables, observed);
    let mut sums: HashMap<VariableId, (f64, f64, f64), RandomState> = HashMap::default();
    let events = observed.events.iter().map(|&(variable, time)| (variable, time, 1.0));
    for (variable, time, value) in events.chain(observed.states.iter().copied()) {
        if time.is_finite() && value.is_finite() {
            let (n, sum, first) = sums.entry(variable).or_insert((0.0, 0.0, f64::INFINITY));
            (*n, *sum, *first) = (*n + 1.0, *sum + value, first.min(time));
        }
    }
    let value = |(variable, (n, sum, first_ms)): (VariableId, (f64, f64, f64))| {
        let (kind, name) = variables.get(variable);
        let value = if Measure::of(kind, name) == Measure::Mean { sum / n } else { sum };
        Value { variable, value, first_ms }
    };
    sums.into_iter().map(value).collect()
}

/// Two instances side by side.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Sides {
    /// The name of the good and of the bad instance.
    pub ids: [String; 2],
    /// The metric's name and unit.
    pub metric: String,
    /// The metric in both.
    pub values: [f64; 2],
    /// The variables whose values differ: events of one alone first, by time, then counts, then
    /// times, the largest difference first, then other numbers.
    pub rows: Vec<SideRow>,
}

/// A variable that differs between two instances.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SideRow {
    /// The variable's name.
    pub variable: String,
    /// The meaning of the values.
    pub measure: Measure,
    /// The good and the bad value; `None` if the instance lacks the number.
    pub values: [Option<f64>; 2],
    /// The first time at which it happened in either, ms.
    pub first_ms: f64,
}

/// Puts the only good and the only bad instance side by side. `None` if there are more, or none.
pub fn sides(source: &impl Source, metric: &str, variables_max: usize) -> Option<Sides> {
    let heads = source.heads();
    let place = |class| heads.iter().position(|head| head.class == class);
    let (good, bad) = place(Class::Good).zip(place(Class::Bad)).filter(|_| heads.len() == 2)?;
    let (mut variables, mut observed) = (Variables::new(variables_max), Observed::default());
    let both = [good, bad].map(|at| values(source, at, &mut variables, &mut observed));
    let mut of: HashMap<VariableId, [Option<Value>; 2], RandomState> = HashMap::default();
    for (side, values) in both.into_iter().enumerate() {
        values.into_iter().for_each(|value| of.entry(value.variable).or_default()[side] = Some(value));
    }
    let row = |(variable, values): (VariableId, [Option<Value>; 2])| {
        let (kind, name) = variables.get(variable);
        let measure = Measure::of(kind, name);
        // An event that is not there happened 0 times.
        let missing = (measure == Measure::Count).then_some(0.0);
        let first = values.iter().flatten().map(|value| value.first_ms);
        let row = SideRow {
            variable: name.to_owned(),
            measure,
            values: values.map(|value| value.map(|value| value.value).or(missing)),
            first_ms: first.fold(f64::INFINITY, f64::min),
        };
        // The time of a span that one side lacks, and gaps, say no more than other rows.
        let is_repeated = measure != Measure::Count && row.values.contains(&None) || name.starts_with("gap ");
        (row.values[0] != row.values[1] && !is_repeated).then_some(row)
    };
    let mut rows: Vec<SideRow> = of.into_iter().filter_map(row).collect();
    rows.sort_by(|a, b| {
        let is_of_both = |row: &SideRow| row.measure != Measure::Count || !row.values.contains(&Some(0.0));
        let size = |row: &SideRow| match row.values.map(|value| value.unwrap_or(0.0)) {
            _ if !is_of_both(row) => -row.first_ms,
            [good, bad] if row.measure == Measure::Mean => (bad - good).abs() / good.abs().max(bad.abs()),
            [good, bad] => (bad - good).abs(),
        };
        (is_of_both(a), a.measure)
            .cmp(&(is_of_both(b), b.measure))
            .then_with(|| size(b).total_cmp(&size(a)))
            .then_with(|| a.variable.cmp(&b.variable))
    });
    Some(Sides {
        ids: [good, bad].map(|at| heads[at].id.clone()),
        metric: metric.to_owned(),
        values: [good, bad].map(|at| heads[at].metric),
        rows,
    })
}

/// One instance among the others of its type.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Explained {
    /// The instance's name.
    pub id: String,
    /// Its type; empty if all are of one.
    pub of_type: String,
    /// The number of others.
    pub others: u64,
    /// The metric's name and unit.
    pub metric: String,
    /// The metric of the instance, and the others' median.
    pub value: f64,
    /// The median of the others.
    pub median: f64,
    /// The share of others with less, half of those with as much; 0 to 1.
    pub percentile: f64,
    /// Its unusual variables: events that few others have or lack, then counts, then times, the one
    /// farthest from the median first, then other numbers.
    pub rows: Vec<ExplainedRow>,
}

/// An unusual variable of an instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ExplainedRow {
    /// The variable's name.
    pub variable: String,
    /// The meaning of the value.
    pub measure: Measure,
    /// Its value; `None` if the instance does not have it.
    pub value: Option<f64>,
    /// The median of the others that have it.
    pub median: f64,
    /// The share of others with less, half of those with as much; 0 to 1.
    pub percentile: f64,
    /// The share of others that have it, 0 to 1.
    pub present: f64,
}

/// Compares the instance at this place with the others of its type. `None` if `pulse` stopped the
/// work.
pub fn explain(
    source: &impl Source,
    at: usize,
    metric: &str,
    variables_max: usize,
    pulse: &mut Pulse<'_>,
) -> Option<Explained> {
    let heads = source.heads();
    let (mut variables, mut observed) = (Variables::new(variables_max), Observed::default());
    let own = values(source, at, &mut variables, &mut observed);
    let is_other = |&other: &usize| other != at && heads[other].stratum == heads[at].stratum;
    let others: Vec<usize> = (0..heads.len()).filter(is_other).collect();
    let mut of: Vec<Vec<f64>> = Vec::new();
    for &other in &others {
        for value in values(source, other, &mut variables, &mut observed) {
            let place = value.variable as usize;
            if of.len() <= place {
                of.resize(place + 1, Vec::new());
            }
            of[place].push(value.value);
        }
        if pulse.stopped_after(1 + observed.events.len() + observed.states.len()) {
            return None;
        }
    }
    of.resize(variables.len(), Vec::new());
    let mut own_values: Vec<Option<f64>> = vec![None; variables.len()];
    own.iter().for_each(|value| own_values[value.variable as usize] = Some(value.value));
    let all = others.len();
    let row = |(variable, mut others): (VariableId, Vec<f64>)| {
        let (kind, name) = variables.get(variable);
        let (measure, value) = (Measure::of(kind, name), own_values[variable as usize]);
        let present = others.len() as f64 / all.max(1) as f64;
        others.sort_unstable_by(f64::total_cmp);
        let median = others.get(others.len() / 2).copied().unwrap_or(f64::NAN);
        let percentile = value.map_or(0.0, |value| percentile(&others, value));
        let is_unusual = match (measure, value) {
            _ if all < OTHERS_MIN || name.starts_with("gap ") => false,
            (Measure::Count, None) => present >= 1.0 - RARE,
            (Measure::Count, Some(_)) if present <= RARE => true,
            (_, None) => false,
            (_, Some(value)) => {
                others.len() >= OTHERS_MIN
                    && value != median
                    && !(1.0 - UNUSUAL..UNUSUAL).contains(&percentile)
            }
        };
        let variable = name.to_owned();
        is_unusual.then_some(ExplainedRow { variable, measure, value, median, percentile, present })
    };
    let mut rows: Vec<ExplainedRow> = (0..).zip(of).filter_map(row).collect();
    rows.sort_by(|a, b| {
        let is_presence = |row: &ExplainedRow| row.value.is_none() || row.present <= RARE;
        let size = |row: &ExplainedRow| match row.value {
            _ if is_presence(row) => (row.present - 0.5).abs(),
            Some(value) if row.measure == Measure::Mean => (value - row.median).abs() / row.median.abs(),
            value => (value.unwrap_or(0.0) - row.median).abs(),
        };
        (!is_presence(a), a.measure)
            .cmp(&(!is_presence(b), b.measure))
            .then_with(|| size(b).total_cmp(&size(a)))
            .then_with(|| a.variable.cmp(&b.variable))
    });
    let mut metrics: Vec<f64> = others.iter().map(|&other| heads[other].metric).collect();
    metrics.sort_unstable_by(f64::total_cmp);
    Some(Explained {
        id: heads[at].id.clone(),
        of_type: source.types().get(heads[at].stratum as usize).cloned().unwrap_or_default(),
        others: all as u64,
        metric: metric.to_owned(),
        value: heads[at].metric,
        median: metrics.get(all / 2).copied().unwrap_or(f64::NAN),
        percentile: percentile(&metrics, heads[at].metric),
        rows,
    })
}

/// The share of sorted values below this one, and half of those equal to it.
fn percentile(sorted: &[f64], value: f64) -> f64 {
    let below = sorted.partition_point(|&other| other < value);
    let upto = sorted.partition_point(|&other| other <= value);
    (below + upto) as f64 / 2.0 / sorted.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::file::InstancesFile;
    use super::*;

    fn file(text: &str) -> InstancesFile {
        let mut file = InstancesFile::default();
        file.read(text.as_bytes(), 0).expect("instances");
        file
    }

    #[test]
    fn what_one_side_lacks_comes_first_then_counts_and_times() {
        let text = r#"{"cls":0,"dur":10,"ev":{"a":[1],"b":[2],"same":[3]},"st":{"x ms":[[1,5]],"y ms":[[2,1]],"n":[[1,7]]}}
{"cls":1,"dur":30,"ev":{"a":[1,2],"new":[4],"same":[5]},"st":{"x ms":[[1,9],[2,9]],"y ms":[[2,2]],"n":[[1,7]]}}"#;
        let found = sides(&file(text), "ms", 100).expect("two instances");
        let rows: Vec<_> = found.rows.iter().map(|row| (&*row.variable, row.values)).collect();
        let both = |good, bad| [Some(good), Some(bad)];
        assert_eq!(
            rows,
            [
                ("b", both(1.0, 0.0)),
                ("new", both(0.0, 1.0)),
                ("a", both(1.0, 2.0)),
                ("x ms", both(5.0, 18.0)),
                ("y ms", both(1.0, 2.0))
            ]
        );
        assert_eq!(found.values, [10.0, 30.0]);
        assert!(sides(&file(&format!("{text}\n{}", r#"{"cls":1,"dur":1}"#)), "ms", 100).is_none());
    }

    /// 39 others take 1 to 39 ms, so 38.5 ms is the value of one of 39 below which 38 lie.
    #[test]
    fn a_trace_has_the_percentiles_of_its_type() {
        let mut text: String =
            (1..40).map(|ms| format!("{{\"cls\":0,\"dur\":{ms},\"ev\":{{\"a\":[0],\"b\":[1]}},\"st\":{{\"x ms\":[[1,{ms}]]}}}}\n")).collect();
        text += r#"{"cls":0,"dur":38.5,"ev":{"a":[0],"lock":[1]},"st":{"x ms":[[1,38.5]]}}"#;
        let found = explain(&file(&text), 39, "ms", 100, &mut Pulse::never()).expect("an explanation");
        assert_eq!((found.others, found.value, found.median), (39, 38.5, 20.0));
        assert!((found.percentile - 38.0 / 39.0).abs() < 1e-12);
        let rows: Vec<_> = found.rows.iter().map(|row| (&*row.variable, row.value, row.present)).collect();
        assert_eq!(rows, [("b", None, 1.0), ("lock", Some(1.0), 0.0)]);
    }
}
