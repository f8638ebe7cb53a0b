//! The features of all instances.
//!
//! Rows are sparse: an instance has a few of all variables. Only counts and presences are there for
//! each variable, and 0 where it did not happen, so zeros are not stored.

use astracer_recording::stop::Pulse;

use super::features::{self, FEATURES_MAX, Feature, Kind};
use super::instances::{Observed, Source, VariableId, Variables};
use super::moments::is_usable;

/// The number of a feature of a variable: the variable's number times [`FEATURES_MAX`], plus the
/// feature's place in [`Kind::features`].
pub type Column = u32;

/// The column of a feature.
pub fn column(variable: VariableId, place: usize) -> Column {
    variable * FEATURES_MAX as u32 + place as u32
}

/// The variable and the feature of a column.
pub fn column_feature(variables: &Variables, column: Column) -> (VariableId, Feature) {
    let (variable, place) = (column / FEATURES_MAX as u32, column as usize % FEATURES_MAX);
    let (kind, _) = variables.get(variable);
    let features = kind.features();
    (variable, features[place.min(features.len() - 1)])
}

/// The features of every instance.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The variables.
    pub variables: Variables,
    /// The median length of all runs, ms.
    pub median_length: f64,
    /// The end of each instance's row in `words` and in `values`, and the instance's length.
    ends: Vec<(usize, usize, f64)>,
    /// A column, which has one of `values`, or [`SINGLE`] and a variable that was observed once,
    /// which has a time and, as a state, a value there. Most variables are observed once, and their
    /// features take ten times as much.
    words: Vec<u32>,
    values: Vec<f64>,
    /// Values that were no numbers below 1e70, beyond which sums overflow.
    pub not_finite: u64,
    /// Gaps below 0: the child took longer than its parent. They count like others.
    pub negative_gaps: u64,
    has_presence: bool,
    /// Which variables are gaps, as far as one was asked for.
    gaps: Vec<bool>,
}

/// Marks a variable that was observed once. No column is as large.
const SINGLE: u32 = 1 << 31;
/// The place of the count among an event's features.
pub const COUNT: usize = 6;
/// The place of the presence.
pub const PRESENCE: usize = 7;

impl Sample {
    /// Computes the features of all instances of a source, of at most `variables_max` variables.
    /// With `has_presence`, whether an event happened is a feature. `None` if `pulse` stopped the
    /// work.
    pub fn new(
        source: &impl Source,
        variables_max: usize,
        has_presence: bool,
        pulse: &mut Pulse<'_>,
    ) -> Option<Self> {
        let median_length = median(source.heads().iter().map(|head| head.length_ms).collect());
        let mut sample = Sample {
            variables: Variables::new(variables_max),
            median_length,
            ends: Vec::with_capacity(source.heads().len()),
            words: Vec::new(),
            values: Vec::new(),
            not_finite: 0,
            negative_gaps: 0,
            has_presence,
            gaps: Vec::new(),
        };
        let (mut observed, mut scratch) = (Observed::default(), Scratch::default());
        for (at, head) in source.heads().iter().enumerate() {
            observed.clear();
            source.observe(at, &mut sample.variables, &mut observed);
            sample.add(&mut observed, head.length_ms, &mut scratch);
            if pulse.stopped_after(1 + observed.events.len() + observed.states.len()) {
                return None;
            }
        }
        Some(sample)
    }

    fn add(&mut self, observed: &mut Observed, length: f64, scratch: &mut Scratch) {
        // Stable sorts: values of one variable at the same time stay in the order of the log.
        observed.events.sort_by_key(|&(variable, _)| variable);
        observed.states.sort_by_key(|&(variable, ..)| variable);
        for of_one in observed.events.chunk_by(|(a, _), (b, _)| a == b) {
            scratch.times.clear();
            scratch.times.extend(of_one.iter().map(|&(_, time)| time).filter(|&time| is_usable(time)));
            self.not_finite += (of_one.len() - scratch.times.len()) as u64;
            let variable = of_one[0].0;
            if let [time] = scratch.times[..] {
                self.words.push(SINGLE | variable);
                self.values.push(time);
                continue;
            }
            let values = features::event(&mut scratch.times, length);
            self.push(variable, Kind::Event, &values);
        }
        for of_one in observed.states.chunk_by(|(a, ..), (b, ..)| a == b) {
            scratch.points.clear();
            let points = of_one.iter().map(|&(_, time, value)| (time, value));
            scratch.points.extend(points.filter(|&(time, value)| is_usable(time) && is_usable(value)));
            self.not_finite += (of_one.len() - scratch.points.len()) as u64;
            if self.is_gap(of_one[0].0) {
                let negative = scratch.points.iter().filter(|(_, value)| *value < 0.0).count();
                self.negative_gaps += negative as u64;
            }
            let variable = of_one[0].0;
            if let [(time, value)] = scratch.points[..] {
                self.words.push(SINGLE | variable);
                self.values.extend([time, value]);
                continue;
            }
            let values = features::state(&mut scratch.points, length, self.median_length);
            self.push(variable, Kind::State, &values);
        }
        self.ends.push((self.words.len(), self.values.len(), length));
    }

    /// True if a variable is a gap, by its name.
    fn is_gap(&mut self, variable: VariableId) -> bool {
        for next in self.gaps.len()..self.variables.len() {
            self.gaps.push(self.variables.get(next as VariableId).1.starts_with("gap "));
        }
        self.gaps[variable as usize]
    }

    fn push(&mut self, variable: VariableId, kind: Kind, values: &features::Values) {
        for (place, &value) in values.iter().enumerate().take(kind.features().len()) {
            if self.is_kept(kind, place, value) {
                self.words.push(column(variable, place));
                self.values.push(value);
            }
        }
    }

    fn is_kept(&self, kind: Kind, place: usize, value: f64) -> bool {
        let is_presence = kind == Kind::Event && place == PRESENCE;
        is_usable(value) && (self.has_presence || !is_presence)
    }

    /// The features of an instance, without counts of 0. Those of one variable follow each other.
    pub fn row(&self, at: usize) -> impl Iterator<Item = (Column, f64)> {
        let (first, value, _) = at.checked_sub(1).map_or((0, 0, 0.0), |before| self.ends[before]);
        let (end, end_of_values, length) = self.ends[at];
        let mut values = self.values[value..end_of_values].iter().copied();
        self.words[first..end].iter().flat_map(move |&word| {
            let mut next = || values.next().unwrap_or(f64::NAN);
            let (variable, kind, of_one) = match word & SINGLE {
                0 => (word, None, [next(); FEATURES_MAX]),
                _ => {
                    let variable = word & !SINGLE;
                    let (kind, _) = self.variables.get(variable);
                    let of_one = match kind {
                        Kind::Event => features::single_event(next(), length),
                        Kind::State => features::single_state(next(), next(), length, self.median_length),
                    };
                    (variable, Some(kind), of_one)
                }
            };
            let places = kind.map_or(1, |kind| kind.features().len());
            (0..places).filter_map(move |place| match kind {
                None => Some((variable, of_one[0])),
                Some(kind) => {
                    let value = of_one[place];
                    self.is_kept(kind, place, value).then(|| (column(variable, place), value))
                }
            })
        })
    }

    /// The values of some columns in these instances; NaN where missing, and 0 for counts.
    pub fn dense(
        &self,
        instances: impl ExactSizeIterator<Item = usize>,
        columns: &[Column],
    ) -> Vec<Vec<f64>> {
        let mut places = vec![usize::MAX; self.columns()];
        columns.iter().enumerate().for_each(|(place, &column)| places[column as usize] = place);
        let missing = |&column: &Column| if self.is_count(column) { 0.0 } else { f64::NAN };
        let mut all: Vec<Vec<f64>> =
            columns.iter().map(|column| vec![missing(column); instances.len()]).collect();
        for (at, instance) in instances.enumerate() {
            for (column, value) in self.row(instance) {
                if let Some(own) = all.get_mut(places[column as usize]) {
                    own[at] = value;
                }
            }
        }
        all
    }

    /// The length of an instance, ms.
    pub fn length(&self, at: usize) -> f64 {
        self.ends[at].2
    }

    /// The number of instances.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True without instances.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The number of columns, including those that no variable's kind has.
    pub fn columns(&self) -> usize {
        self.variables.len() * FEATURES_MAX
    }

    /// True if a column is a count or a presence, which is 0 where it is not stored.
    pub fn is_count(&self, column: Column) -> bool {
        let place = column as usize % FEATURES_MAX;
        (place == COUNT || place == PRESENCE) && self.is_of_event(column)
    }

    /// True if a column is a presence: 0 or 1 for every instance.
    pub fn is_presence(&self, column: Column) -> bool {
        column as usize % FEATURES_MAX == PRESENCE && self.is_of_event(column)
    }

    fn is_of_event(&self, column: Column) -> bool {
        self.variables.get(column / FEATURES_MAX as u32).0 == Kind::Event
    }
}

#[derive(Debug, Default)]
struct Scratch {
    times: Vec<f64>,
    points: Vec<(f64, f64)>,
}

/// The median of these values; NaN without values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}
