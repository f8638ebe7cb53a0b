//! Metrics beside traces or logs: processor time of a pod, packets of a host.
//!
//! A series becomes the state `entity name` of each instance: its values during the instance, or
//! else the last one before it. The values of instances at one time are the same, so they are not
//! independent, and chances of these states are too small. Placebos are not: stretches of good time
//! share their values, too.

use std::collections::BTreeMap;

use super::features::Kind;
use super::instances::{Head, Observed, Source, Variables};

/// A value counts until this multiple of the usual interval of its series.
const INTERVALS_MAX: u64 = 2;
/// The age up to which the only value of a series counts, in nanoseconds.
const AGE_ALONE_NS: u64 = 60_000_000_000;

/// The values of one series, by time.
#[derive(Clone, Debug, Default, PartialEq)]
struct Series {
    /// (nanoseconds since the epoch, value).
    points: Vec<(u64, f64)>,
    /// The age up to which a value counts, in nanoseconds.
    age_max: u64,
}

/// Time series of several entities.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    series: BTreeMap<String, Series>,
}

impl Metrics {
    /// Adds a value of a series at a time, nanoseconds since the epoch.
    pub fn add(&mut self, time_ns: u64, entity: &str, name: &str, value: f64) {
        let name = if entity.is_empty() { name.to_owned() } else { format!("{entity} {name}") };
        self.series.entry(name).or_default().points.push((time_ns, value));
    }

    /// Sorts all series, once every value is there.
    pub fn sort(&mut self) {
        for series in self.series.values_mut() {
            series.points.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.total_cmp(&b.1)));
            let mut intervals: Vec<u64> =
                series.points.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
            intervals.sort_unstable();
            let usual = intervals.get(intervals.len() / 2).copied();
            series.age_max = usual.map_or(AGE_ALONE_NS, |usual| INTERVALS_MAX.saturating_mul(usual));
        }
    }

    /// The number of series.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// True without series.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }
}

impl Series {
    /// The values during an instance, or else the last one before; times are ms since its start.
    fn during(&self, head: &Head) -> impl Iterator<Item = (f64, f64)> {
        let start = head.start_ns;
        let end = start.saturating_add((head.length_ms * 1e6) as u64);
        let first = self.points.partition_point(|&(time, _)| time < start);
        let behind = self.points.partition_point(|&(time, _)| time <= end);
        let before = first.checked_sub(1).map(|at| self.points[at]);
        let before = before.filter(|&(time, _)| first == behind && start - time <= self.age_max);
        let during =
            self.points[first..behind].iter().map(move |&(time, value)| ((time - start) as f64 / 1e6, value));
        before.map(|(_, value)| (0.0, value)).into_iter().chain(during)
    }
}

/// A source with the values of metrics as further states.
#[derive(Clone, Copy, Debug)]
pub struct WithMetrics<'s, S> {
    /// The instances.
    pub source: &'s S,
    /// The metrics, which may be none.
    pub metrics: &'s Metrics,
}

impl<S: Source> Source for WithMetrics<'_, S> {
    fn heads(&self) -> &[Head] {
        self.source.heads()
    }

    fn types(&self) -> &[String] {
        self.source.types()
    }

    fn observe(&self, at: usize, variables: &mut Variables, observed: &mut Observed) {
        self.source.observe(at, variables, observed);
        let head = &self.heads()[at];
        for (name, series) in &self.metrics.series {
            let mut values = series.during(head).peekable();
            if values.peek().is_some()
                && let Some(variable) = variables.number(Kind::State, name)
            {
                observed.states.extend(values.map(|(time, value)| (variable, time, value)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::InstancesFile;
    use super::super::instances::Class;
    use super::*;

    /// Values each 10 s: an instance of 5 s from second 12 on has that of second 10, and one of 10
    /// s those of seconds 20 and 30. Behind the last value at 40 s they count until 60 s.
    #[test]
    fn an_instance_has_the_values_of_its_time() {
        let mut metrics = Metrics::default();
        for tens in [3u64, 1, 4, 2] {
            metrics.add(tens * 10_000_000_000, "dn1", "cpu", tens as f64);
        }
        metrics.sort();
        let values = |start_s: u64, length_ms: f64| {
            let head = Head {
                id: String::new(),
                class: Class::Good,
                run: 0,
                stratum: 0,
                weight: None,
                length_ms,
                metric: 0.0,
                start_ns: start_s * 1_000_000_000,
            };
            metrics.series["dn1 cpu"].during(&head).collect::<Vec<_>>()
        };
        assert_eq!(values(12, 5_000.0), [(0.0, 1.0)]);
        assert_eq!(values(20, 10_000.0), [(0.0, 2.0), (10_000.0, 3.0)]);
        assert_eq!(values(60, 1.0), [(0.0, 4.0)]);
        assert!(values(61, 1.0).is_empty() && values(9, 500.0).is_empty());
        let mut file = InstancesFile::default();
        file.read(&br#"{"cls":0,"dur":1}"#[..], 0).expect("an instance");
        let (mut variables, mut observed) = (Variables::new(9), Observed::default());
        let source = WithMetrics { source: &file, metrics: &metrics };
        source.observe(0, &mut variables, &mut observed);
        assert!(observed.states.is_empty(), "its time is unknown");
    }
}
