//! Differences that vanish given another one: a caller's time given its callee's, a span's given
//! its own time, a gap given another child, an event's presence given that of one that goes with
//! it.
//!
//! A time is adjusted by the slope of its values on those of the other variable, within types and
//! classes (the analysis of covariance of R. Fisher, 1932). If less than [`REST_MAX`] of its
//! difference remains, the other variable explains it. A caller contains its callee's time and
//! more, so the callee explains the caller and not the reverse. Where both explain each other, as a
//! gap and the caller's time may, the one that says where the time went comes first.
//!
//! Counts and presences that are the same in nearly every instance, or the opposite, say one
//! thing. The earlier one stands for the others.

use std::collections::HashMap;

use rapidhash::fast::RandomState;

use super::features::{Feature, Kind};
use super::ranking::Ranked;
use super::sample::{Column, Sample, column, column_feature};
use super::traces::OTHERS;
use super::typed::Part;

/// The first ranked variables that may explain or be explained.
const ROWS_MAX: usize = 60;
/// The instances of each class that are looked at.
const INSTANCES_MAX: usize = 2_500;
/// The least instances of each class with both values.
const VALUES_MIN: usize = 5;
/// The share of a difference that may remain.
const REST_MAX: f64 = 0.25;
/// The share of a variable's instances in which the other one must have a value.
const SHARED_MIN: f64 = 0.8;
/// The correlation of counts that say one thing.
const SAME_MIN: f64 = 0.99;

/// The place of a variable in an explanation: lower ones say more precisely where time went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Own,
    Gap,
    Whole,
    /// The time at which something happened.
    Moment,
    /// A count or a presence.
    Count,
    /// Another number, which explains nothing.
    Number,
}

impl Level {
    fn of(ranked: &Ranked) -> Self {
        match (ranked.kind, ranked.feature) {
            (Kind::Event, Feature::Count | Feature::Present) => Self::Count,
            (Kind::Event, feature) if feature.is_relative() => Self::Number,
            (Kind::Event, _) => Self::Moment,
            (Kind::State, _) if !ranked.variable.ends_with(" ms") => Self::Number,
            (Kind::State, _) if ranked.variable.ends_with(" own ms") => Self::Own,
            (Kind::State, _) if ranked.variable.starts_with("gap ") => Self::Gap,
            (Kind::State, _) => Self::Whole,
        }
    }
}

/// Groups ranked variables: for each group the places of its members in `ranked`, the one that
/// explains the others first. Groups are in the order of their first members.
pub(super) fn grouped(sample: &Sample, parts: &[Part], ranked: &[Ranked]) -> Vec<Vec<usize>> {
    let shown = ranked.len().min(ROWS_MAX);
    let values = Values::new(sample, parts, &ranked[..shown]);
    let explained_by: Vec<Vec<usize>> = (0..shown)
        .map(|row| (0..shown).filter(|&by| by != row && values.explains(by, row)).collect())
        .collect();
    let level = |row: usize| (Level::of(&ranked[row]), row);
    let parent = |row: usize| {
        let is_first = |&by: &usize| !explained_by[by].contains(&row) || level(by) < level(row);
        explained_by.get(row)?.iter().copied().filter(is_first).min_by_key(|&by| level(by))
    };
    let root = |row: usize| {
        let mut path = vec![row];
        while let Some(next) = parent(path[path.len() - 1]) {
            if path.contains(&next) {
                break;
            }
            path.push(next);
        }
        path[path.len() - 1]
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut of_root: HashMap<usize, usize, RandomState> = HashMap::default();
    for row in 0..ranked.len() {
        let root = root(row);
        let group = *of_root.entry(root).or_insert_with(|| {
            groups.push(vec![root]);
            groups.len() - 1
        });
        if row != root {
            groups[group].push(row);
        }
    }
    groups
}

/// The values of some columns in instances of both classes.
struct Values<'r> {
    ranked: &'r [Ranked],
    /// The type and class of each instance, as a number.
    cells: Vec<usize>,
    /// The number of types, each with two cells.
    types: usize,
    /// The values of each column, by instance.
    columns: HashMap<Column, Vec<f64>, RandomState>,
    sample: &'r Sample,
}

impl<'r> Values<'r> {
    fn new(sample: &'r Sample, parts: &[Part], ranked: &'r [Ranked]) -> Self {
        let chosen: Vec<&Part> = [0, 1].into_iter().flat_map(|group| spread(parts, group)).collect();
        let mut types: HashMap<u32, usize, RandomState> = HashMap::default();
        let mut cell = |part: &&Part| {
            let next = types.len();
            *types.entry(part.stratum).or_insert(next) * 2 + part.group as usize
        };
        let cells = chosen.iter().map(&mut cell).collect();
        let types = types.len();
        let mut columns: Vec<Column> = ranked.iter().map(|own| own.column).collect();
        let places: Vec<usize> = ranked.iter().filter_map(|own| state_place(sample, own)).collect();
        for own in ranked.iter().filter(|own| own.kind == Kind::State) {
            let (variable, _) = column_feature(&sample.variables, own.column);
            columns.extend(places.iter().map(|&place| column(variable, place)));
        }
        columns.sort_unstable();
        columns.dedup();
        let dense = sample.dense(chosen.iter().map(|part| part.at), &columns);
        Self { ranked, cells, types, columns: columns.into_iter().zip(dense).collect(), sample }
    }

    /// True if the difference of `row` vanishes given `by`.
    fn explains(&self, by: usize, row: usize) -> bool {
        let [by, row] = [by, row].map(|place| &self.ranked[place]);
        let values = &self.columns[&row.column];
        match (Level::of(by), Level::of(row)) {
            // The rest of an attribute's values says less than the value that differs.
            (Level::Count, Level::Count) => {
                !by.variable.ends_with(OTHERS) && self.is_same(&self.columns[&by.column], values)
            }
            (
                Level::Own | Level::Gap | Level::Whole,
                Level::Own | Level::Gap | Level::Whole | Level::Moment,
            ) => {
                let alike = state_place(self.sample, row).map(|place| {
                    let (variable, _) = column_feature(&self.sample.variables, by.column);
                    column(variable, place)
                });
                let mut columns = [Some(by.column), alike].into_iter().flatten();
                columns
                    .any(|column| self.columns.get(&column).is_some_and(|by| self.leaves_little(by, values)))
            }
            _ => false,
        }
    }

    /// True if these counts are the same but for a factor and a shift.
    fn is_same(&self, by: &[f64], row: &[f64]) -> bool {
        let n = row.len() as f64;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
        let (mean_by, mean_row) = (mean(by), mean(row));
        let (mut product, mut square_by, mut square_row) = (0.0, 0.0, 0.0);
        for (by, row) in by.iter().zip(row) {
            let (by, row) = (by - mean_by, row - mean_row);
            product += by * row;
            square_by += by * by;
            square_row += row * row;
        }
        product.abs() >= SAME_MIN * (square_by * square_row).sqrt() && square_by > 0.0 && square_row > 0.0
    }

    /// True if less than [`REST_MAX`] of the difference of `row` remains after `by`.
    fn leaves_little(&self, by: &[f64], row: &[f64]) -> bool {
        let mut sums = vec![Sums::default(); self.types * 2];
        let mut own = [0usize; 2];
        for ((&cell, &by), &row) in self.cells.iter().zip(by).zip(row) {
            if !row.is_nan() {
                own[cell % 2] += 1;
                if !by.is_nan() {
                    sums[cell].add(by, row);
                }
            }
        }
        let both = |class: usize| sums.iter().skip(class).step_by(2).map(|sums| sums.n).sum::<f64>();
        if (0..2).any(|class| both(class) < VALUES_MIN as f64 || both(class) < SHARED_MIN * own[class] as f64)
        {
            return false;
        }
        let (product, square) =
            sums.iter().fold((0.0, 0.0), |sum, own| (sum.0 + own.product(), sum.1 + own.square()));
        let slope = product / square;
        if !slope.is_finite() {
            return false;
        }
        // Differences within types, by the bad class's mix.
        let (mut of_by, mut of_row, mut bad_all) = (0.0, 0.0, 0.0);
        for pair in sums.chunks_exact(2) {
            let [good, bad] = pair else { continue };
            if good.n > 0.0 && bad.n > 0.0 {
                of_by += bad.n * (bad.by / bad.n - good.by / good.n);
                of_row += bad.n * (bad.row / bad.n - good.row / good.n);
                bad_all += bad.n;
            }
        }
        bad_all > 0.0 && of_row != 0.0 && (of_row - slope * of_by).abs() <= REST_MAX * of_row.abs()
    }
}

/// The place of a time's feature among those of states; `None` for other variables.
fn state_place(sample: &Sample, ranked: &Ranked) -> Option<usize> {
    let (_, feature) = column_feature(&sample.variables, ranked.column);
    let is_time = ranked.kind == Kind::State && ranked.variable.ends_with(" ms");
    is_time.then(|| ranked.kind.features().iter().position(|&own| own == feature)).flatten()
}

/// At most [`INSTANCES_MAX`] parts of a group, spread over all of them.
fn spread(parts: &[Part], group: u32) -> impl Iterator<Item = &Part> {
    let all = parts.iter().filter(move |part| part.group == group).count();
    let step = all.div_ceil(INSTANCES_MAX).max(1);
    parts.iter().filter(move |part| part.group == group).step_by(step)
}

/// The sums of two values in one type and class.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    n: f64,
    by: f64,
    row: f64,
    by_by: f64,
    by_row: f64,
    /// The first values, from which others are counted: sums of squares lose digits otherwise.
    first: (f64, f64),
}

impl Sums {
    fn add(&mut self, by: f64, row: f64) {
        if self.n == 0.0 {
            self.first = (by, row);
        }
        let (from_by, from_row) = (by - self.first.0, row - self.first.1);
        self.n += 1.0;
        self.by += by;
        self.row += row;
        self.by_by += from_by * from_by;
        self.by_row += from_by * from_row;
    }

    /// The sum of products of both values' distances from their means.
    fn product(&self) -> f64 {
        if self.n == 0.0 {
            return 0.0;
        }
        let (by, row) = (self.by - self.n * self.first.0, self.row - self.n * self.first.1);
        self.by_row - by * row / self.n
    }

    /// The sum of squares of the distances of `by` from its mean.
    fn square(&self) -> f64 {
        if self.n == 0.0 {
            return 0.0;
        }
        let by = self.by - self.n * self.first.0;
        self.by_by - by * by / self.n
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::super::comparison::{Comparison, Options, compare};
    use super::super::file::InstancesFile;
    use astracer_recording::stop::Pulse;

    fn compared(text: &str) -> Comparison {
        let mut file = InstancesFile::default();
        file.read(text.as_bytes(), 0).expect("instances");
        let options = Options::default();
        compare(&file, &options, &mut Pulse::never()).expect("a comparison")
    }

    /// Variables, and those that each explains.
    fn names(found: &Comparison) -> Vec<(&str, Vec<&str>)> {
        found
            .ranked
            .iter()
            .map(|row| {
                let below = row.explains.iter().map(|row| &*row.ranked.variable).collect();
                (&*row.ranked.variable, below)
            })
            .collect()
    }

    /// B takes 10 ms more in bad instances. A contains B and its own 5 ms, so its difference
    /// vanishes given B's; so does the gap from A to C, which is as long as B and A's own time.
    #[test]
    fn the_callee_comes_before_its_callers() {
        let text = (0..60u32).fold(String::new(), |mut text, number| {
            let (is_bad, wobble) = (number % 2, f64::from(number * 7 % 11));
            let own = 5.0 + f64::from(number * 5 % 7) / 7.0;
            let b = 20.0 + wobble + f64::from(10 * is_bad);
            let c = 4.0 + f64::from(number * 3 % 5) / 5.0;
            let a = own + b + c;
            let _ = writeln!(
                text,
                "{{\"cls\":{is_bad},\"dur\":100,\"us\":{a},\"st\":{{\"a ms\":[[9,{a}]],\"b own ms\":[[8,{b}]],\"gap a->c ms\":[[9,{}]],\"c ms\":[[7,{c}]]}}}}",
                a - c
            );
            text
        });
        assert_eq!(names(&compared(&text)), [("b own ms", vec!["gap a->c ms", "a ms"])]);
    }

    /// Two operations that slow down by themselves do not explain each other.
    #[test]
    fn independent_differences_stay_apart() {
        let text = (0..60u32).fold(String::new(), |mut text, number| {
            let is_bad = number % 2;
            let (a, b) = (f64::from(number * 7 % 11), f64::from(number * 5 % 13));
            let more = f64::from(20 * is_bad);
            let _ = writeln!(
                text,
                "{{\"cls\":{is_bad},\"dur\":100,\"st\":{{\"a ms\":[[9,{}]],\"b ms\":[[8,{}]]}}}}",
                a + more,
                b + more
            );
            text
        });
        let found = compared(&text);
        assert!(
            found.ranked.len() == 2 && found.ranked.iter().all(|row| row.explains.is_empty()),
            "{:?}",
            names(&found)
        );
    }

    /// A line that is written with another one goes with it; one that is written in half of these
    /// instances does not.
    #[test]
    fn events_of_the_same_instances_go_together() {
        let text = (0..60u32).fold(String::new(), |mut text, number| {
            let events = match (number % 2, number % 4) {
                (0, _) => "",
                (_, 1) => "\"x\":[1],\"y\":[2],\"z\":[3]",
                _ => "\"x\":[1],\"y\":[2]",
            };
            let _ = writeln!(text, "{{\"cls\":{},\"dur\":9,\"ev\":{{{events}}}}}", number % 2);
            text
        });
        assert_eq!(names(&compared(&text)), [("x", vec!["y"]), ("z", vec![])]);
    }
}
