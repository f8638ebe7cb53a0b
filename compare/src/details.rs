//! The values behind a comparison: histograms, types, variables of one class, time, typical traces.

use serde::Serialize;

use self::drift::{Drift, Slice};
use self::histogram::Histogram;
use self::only::OnlyRow;
use self::typical::Typical;
use super::instances::Head;
use super::moments::{Moments, weight_at};
use super::sample::{Column, Sample};
use super::welch::Tested;

pub mod drift;
pub mod histogram;
pub mod only;
pub mod typical;

/// The ranked variables whose values are looked at.
pub const VARIABLES: usize = 20;

/// The values behind a comparison.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Details {
    /// The metric's values.
    pub metric: Histogram,
    /// The values of the first ranked variables.
    pub variables: Vec<VariableDetails>,
    /// The variables that only good, and only bad instances have.
    pub only: [Vec<OnlyRow>; 2],
    /// The metric over time; empty if times are unknown.
    pub timeline: Vec<Slice>,
    /// The later good instances against the earlier ones; `None` if times are unknown.
    pub drift: Option<Drift>,
    /// A good and a bad instance like most.
    pub typical: Option<Typical>,
}

/// The values of a ranked variable's strongest feature.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct VariableDetails {
    /// The values.
    pub histogram: Histogram,
    /// The types of requests that have the feature in both classes, those with the most bad
    /// instances first.
    pub types: Vec<OfType>,
    /// t of the later good instances against the earlier ones.
    pub drift_t: Option<f64>,
}

/// A feature in one type of requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OfType {
    /// The type's name.
    pub name: String,
    /// The number of values in the good and in the bad class.
    pub n: [u64; 2],
    /// The means.
    pub means: [f64; 2],
}

/// The instances of a comparison, with their features.
#[derive(Clone, Copy, Debug)]
pub struct Compared<'c> {
    /// The features.
    pub sample: &'c Sample,
    /// The instances.
    pub heads: &'c [Head],
    /// The names of their types.
    pub types: &'c [String],
    /// Their weights; `None` if each counts once.
    pub weights: Option<&'c [f64]>,
}

impl Compared<'_> {
    fn weight(&self, at: usize) -> f64 {
        weight_at(self.weights, at)
    }
}

impl Details {
    /// Looks at the values of the strongest features of ranked variables, given by their columns.
    pub fn new(compared: Compared<'_>, ranked: &[Column]) -> Self {
        let metric: Vec<f64> = compared.heads.iter().map(|head| head.metric).collect();
        let first = &ranked[..ranked.len().min(VARIABLES)];
        let columns = compared.sample.dense(0..compared.heads.len(), first);
        let (halves, drift) = drift::halves(&compared).unzip();
        let variable = |(values, &column): (&Vec<f64>, &Column)| VariableDetails {
            histogram: Histogram::new(&compared, values),
            types: of_types(&compared, values),
            drift_t: halves
                .as_ref()
                .and_then(|tests: &Vec<Tested>| tests.iter().find(|tested| tested.column == column))
                .map(|tested| tested.test.t),
        };
        Details {
            variables: columns.iter().zip(first).map(variable).collect(),
            only: only::rows(&compared),
            timeline: drift::timeline(&compared),
            drift,
            typical: typical::typical(&compared, &metric, &columns),
            metric: Histogram::new(&compared, &metric),
        }
    }
}

fn of_types(compared: &Compared<'_>, values: &[f64]) -> Vec<OfType> {
    let mut moments = vec![[Moments::default(); 2]; compared.types.len()];
    for (at, (head, &value)) in compared.heads.iter().zip(values).enumerate() {
        moments[head.stratum as usize][head.class.index()].add(value, compared.weight(at));
    }
    let mut rows: Vec<OfType> = compared
        .types
        .iter()
        .zip(&moments)
        .filter(|(_, both)| both.iter().all(|of| of.n() > 0))
        .map(|(name, both)| OfType {
            name: name.clone(),
            n: both.map(|of| of.n()),
            means: both.map(|of| of.mean()),
        })
        .collect();
    rows.sort_by(|a, b| b.n[1].cmp(&a.n[1]).then_with(|| a.name.cmp(&b.name)));
    rows
}

#[cfg(test)]
mod tests {
    use super::super::comparison::{Options, compare};
    use super::super::file::InstancesFile;
    use super::super::instances::{Class, Observed, Source, Variables};
    use super::*;
    use astracer_recording::stop::Pulse;

    /// Good instances, then bad ones.
    pub(super) fn heads(good: usize, bad: usize) -> Vec<Head> {
        let head = |class| Head {
            id: String::new(),
            class,
            run: 0,
            stratum: 0,
            weight: None,
            length_ms: 1.0,
            metric: 0.0,
            start_ns: 0,
        };
        [vec![head(Class::Good); good], vec![head(Class::Bad); bad]].concat()
    }

    struct Bare<'h>(&'h [Head]);

    impl Source for Bare<'_> {
        fn heads(&self) -> &[Head] {
            self.0
        }

        fn types(&self) -> &[String] {
            &[]
        }

        fn observe(&self, _: usize, _: &mut Variables, _: &mut Observed) {}
    }

    pub(super) fn no_features(heads: &[Head]) -> Sample {
        Sample::new(&Bare(heads), 10, true, &mut Pulse::never()).expect("not stopped")
    }

    /// Ten good and ten bad instances: `x` takes 1 to 10 ms in good ones and 100 ms more in bad
    /// ones, which alone have `retry`; two good ones have `cache`.
    #[test]
    fn the_values_behind_a_difference_are_told() {
        let mut text = String::new();
        for class in [0, 1] {
            for n in 1..=10 {
                let x = n + class * 100;
                let only = match (class, n) {
                    (1, _) => r#","retry":[1]"#,
                    (_, 1..3) => r#","cache":[2]"#,
                    _ => "",
                };
                text += &format!(
                    "{{\"id\":\"{class}-{n}\",\"cls\":{class},\"dur\":200,\"us\":{x},\"ev\":{{\"start\":[0]{only}}},\"st\":{{\"x ms\":[[1,{x}]]}}}}\n"
                );
            }
        }
        let mut file = InstancesFile::default();
        file.read(text.as_bytes(), 0).expect("instances");
        let options = Options { details: true, ..Options::default() };
        let comparison = compare(&file, &options, &mut Pulse::never()).expect("not stopped");
        let details = comparison.details.expect("details");
        let only = |rows: &[OnlyRow]| -> Vec<(String, u64)> {
            rows.iter().map(|row| (row.variable.clone(), row.instances)).collect()
        };
        assert_eq!(only(&details.only[0]), [("cache".to_owned(), 2)]);
        assert_eq!(only(&details.only[1]), [("retry".to_owned(), 10)]);
        let place = comparison.ranked.iter().position(|row| row.ranked.variable == "x ms").expect("ranked");
        let x = &details.variables[place];
        assert_eq!(x.types, [OfType { name: String::new(), n: [10, 10], means: [5.5, 105.5] }]);
        assert_eq!(x.histogram.missing, [0.0, 0.0]);
        // 5 and 6 are as near to 5.5; the first of them by id is chosen.
        let typical = details.typical.expect("typical instances");
        assert_eq!((typical.ids, typical.metrics), (["0-5".to_owned(), "1-5".to_owned()], [5.0, 105.0]));
        assert_eq!(typical.values[place], [Some(5.0), Some(105.0)]);
        assert!(details.timeline.is_empty() && details.drift.is_none(), "times are unknown");
    }
}
