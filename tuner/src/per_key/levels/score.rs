//! The score of a point, updated from point to point.
//!
//! A step of the search changes a few keys. In the sums of a draw, the old row of each changed key
//! is subtracted and its new one added, and only the functions of these rows are scored again. Sums
//! are exact, so a score does not depend on the points visited before.

use super::{LEVELS, Levels, OwnKey, OwnKeys, SUMS, plus};
use crate::expect::Expected;
use crate::latency::distance;
use crate::paths;
use crate::score::dist_over_entropy;

/// The sums of a function, or the traces, spans, bytes and OTLP bytes kept.
type Row = [f64; SUMS];

/// By key, level and draw: the size kept, followed by the sums by function of the key. All draws of
/// a level are contiguous, because a step of the search reads a few levels of every draw.
#[derive(Debug)]
pub(in crate::per_key) struct Rows {
    keys: Vec<Vec<Row>>,
    draws: usize,
}

impl Rows {
    /// Takes the rows out of the draws.
    pub(in crate::per_key) fn gather(levels: &mut [Levels], keys: &OwnKeys) -> Self {
        let draws = levels.len();
        let of_key = |(place, own): (usize, &OwnKey)| {
            let len = own.functions.len();
            let mut rows = vec![[0.0; SUMS]; LEVELS * draws * (1 + len)];
            for (draw, levels) in levels.iter_mut().enumerate() {
                let sums = std::mem::take(&mut levels.sums[place]);
                for level in 0..LEVELS {
                    let row = &mut rows[(level * draws + draw) * (1 + len)..][..1 + len];
                    row[0] = levels.whole.sizes[place * LEVELS + level];
                    row[1..].copy_from_slice(&sums[level * len..][..len]);
                }
            }
            rows
        };
        Self { keys: keys.keys.iter().enumerate().map(of_key).collect(), draws }
    }

    /// For each draw, the size kept and the sums.
    fn of(&self, place: usize, level: u8) -> impl Iterator<Item = (&Row, &[Row])> {
        let rows = &self.keys[place];
        let level_len = rows.len() / LEVELS;
        let level = &rows[usize::from(level) * level_len..][..level_len];
        level.chunks_exact(level_len / self.draws).filter_map(<[Row]>::split_first)
    }
}

/// Working memory, reused from one point to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    /// For each key, the level that the sums include; `None` before the first score.
    point: Vec<Option<u8>>,
    draws: Vec<DrawSums>,
    /// Own functions whose sums have changed since their terms were calculated, without duplicates.
    changed: Vec<u32>,
    is_changed: Vec<bool>,
    cells: Vec<f64>,
    /// For each call tree, the number of the last score that found it.
    found: Vec<u32>,
    scores: u32,
}

/// The sums of one draw at a point.
#[derive(Clone, Debug, Default)]
struct DrawSums {
    /// One row for each own function.
    sums: Vec<Row>,
    terms: Vec<Terms>,
    /// Squared relative errors of weighted counts.
    errors: Vec<f64>,
    /// The traces, spans, bytes and OTLP bytes kept.
    size: [f64; 4],
}

/// The contributions of functions to a score.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Terms {
    /// The squared distances of means and standard deviations, the calls, the sum of calls times
    /// their logarithm, and the functions found.
    values: [f64; 4],
}

impl Terms {
    /// The terms of one function, from the number, mean and standard deviation of all its calls and
    /// from its sums over the kept ones. Also returns the squared relative error of its weighted
    /// count, `None` if it has no calls.
    pub(super) fn of((all, mean, sd): (f64, f64, f64), sums: &[f64; SUMS]) -> (Self, Option<f64>) {
        let [count, deviation, squared, by_weight] = *sums;
        if all == 0.0 {
            return (Self::default(), None);
        }
        let relative = by_weight / all - 1.0;
        let values = if count > 0.0 {
            let offset = deviation / count;
            let kept_sd = (squared / count - offset * offset).max(0.0).sqrt();
            [offset * offset + (kept_sd - sd) * (kept_sd - sd), count, count * count.log2(), 1.0]
        } else {
            [mean * mean + sd * sd, 0.0, 0.0, 0.0]
        };
        (Self { values }, Some(relative * relative))
    }

    pub(super) fn add(&mut self, other: &Self) {
        plus(&mut self.values, &other.values);
    }
}

impl DrawSums {
    fn new(levels: &Levels, keys: &OwnKeys) -> Self {
        let functions = keys.functions.len();
        Self {
            sums: levels.others.sums.clone(),
            terms: vec![Terms::default(); functions],
            errors: vec![0.0; functions],
            size: levels.others.size,
        }
    }
}

impl Scratch {
    /// Moves the sums to a point.
    pub(in crate::per_key) fn move_to(
        &mut self,
        levels: &[Levels],
        rows: &Rows,
        keys: &OwnKeys,
        point: &[u8],
    ) {
        if self.draws.is_empty() {
            self.draws = levels.iter().map(|levels| DrawSums::new(levels, keys)).collect();
            self.point = vec![None; keys.keys.len()];
            self.changed = (0..keys.functions.len() as u32).collect();
            self.is_changed = vec![true; keys.functions.len()];
        }
        for (place, (own, &level)) in keys.keys.iter().zip(point).enumerate() {
            let Some(before) = Some(self.point[place].replace(level)).filter(|before| *before != Some(level))
            else {
                continue;
            };
            if let Some(before) = before {
                self.add(own, rows.of(place, before), minus);
            }
            self.add(own, rows.of(place, level), plus);
            for &function in &own.functions {
                if !std::mem::replace(&mut self.is_changed[function as usize], true) {
                    self.changed.push(function);
                }
            }
        }
        for (draw, levels) in self.draws.iter_mut().zip(levels) {
            for &function in &self.changed {
                let at = function as usize;
                let whole = levels.whole.functions[keys.functions[at] as usize];
                let (terms, error) = Terms::of(whole, &draw.sums[at]);
                (draw.terms[at], draw.errors[at]) = (terms, error.unwrap_or(0.0));
            }
        }
        self.changed.drain(..).for_each(|function| self.is_changed[function as usize] = false);
    }

    /// Applies `change`, which adds or subtracts, to a key's rows.
    fn add<'r>(
        &mut self,
        own: &OwnKey,
        rows: impl Iterator<Item = (&'r Row, &'r [Row])>,
        change: impl Fn(&mut Row, &Row),
    ) {
        for (draw, (size, sums)) in self.draws.iter_mut().zip(rows) {
            change(&mut draw.size, size);
            let functions = own.functions.iter().zip(sums);
            functions.for_each(|(&function, sums)| change(&mut draw.sums[function as usize], sums));
        }
    }

    /// The score of what the current point keeps on a draw.
    pub(in crate::per_key) fn score(
        &mut self,
        draw: usize,
        levels: &Levels,
        keys: &OwnKeys,
        point: &[u8],
    ) -> Expected {
        let trees = if keys.call_trees { self.trees(levels, point) } else { 0 };
        self.weigh_cells(levels, keys, point);
        self.of_sums(draw, trees, levels, keys)
    }

    /// For each own function, the sum over the draws of squared relative errors of its weighted
    /// count.
    pub(in crate::per_key) fn count_errors(&self) -> Vec<f64> {
        let mut sums = Vec::new();
        for draw in &self.draws {
            sums.resize(draw.errors.len(), 0.0);
            sums.iter_mut().zip(&draw.errors).for_each(|(sum, error)| *sum += error);
        }
        sums
    }

    /// The number of call trees found.
    fn trees(&mut self, levels: &Levels, point: &[u8]) -> usize {
        self.found.resize(self.found.len().max(levels.whole.tree_numbers), self.scores);
        self.scores += 1;
        if self.scores == u32::MAX {
            self.found.fill(0);
            self.scores = 1;
        }
        let mut trees = levels.others.trees.len();
        levels.others.trees.iter().for_each(|&tree| self.found[tree as usize] = self.scores);
        for (rows, &level) in levels.keys.iter().zip(point) {
            for &(tree, found_at) in &levels.trees[rows.first_tree..rows.end_tree] {
                let last = &mut self.found[tree as usize];
                if found_at <= level && *last != self.scores {
                    *last = self.scores;
                    trees += 1;
                }
            }
        }
        trees
    }

    fn weigh_cells(&mut self, levels: &Levels, keys: &OwnKeys, point: &[u8]) {
        self.cells.clone_from(&levels.others.cells);
        for ((own, rows), &level) in keys.keys.iter().zip(&levels.keys).zip(point) {
            let len = own.cells.len();
            let row = &levels.cells[rows.first_cell + usize::from(level) * len..][..len];
            for (&cell, weight) in own.cells.iter().zip(row) {
                self.cells[cell as usize] += weight;
            }
        }
    }

    fn of_sums(&self, draw: usize, trees: usize, levels: &Levels, keys: &OwnKeys) -> Expected {
        let whole = &levels.whole;
        let DrawSums { size, terms, .. } = &self.draws[draw];
        let mut sum = levels.others.terms;
        terms.iter().for_each(|terms| sum.add(terms));
        let [squares, spans, weighted, functions] = sum.values;
        let ss_ms = squares.sqrt();
        let paths = keys.extras.paths.then(|| {
            let weights = &self.cells[whole.cells.len()..];
            paths::score(&whole.path_kinds, whole.size[0], weights)
        });
        let entropy_bits = if spans > 0.0 { (spans.log2() - weighted / spans).max(0.0) } else { 0.0 };
        Expected {
            traces: size[0],
            spans: size[1],
            bytes: size[2],
            otlp_bytes: size[3],
            tfcr: if whole.size[2] > 0.0 { size[2] / whole.size[2] } else { 0.0 },
            functions,
            functions_all: whole.functions_all,
            call_trees: trees as f64,
            call_trees_all: whole.call_trees as f64,
            ss_ms,
            // This is a single run; the spread over runs is the spread between draws.
            ss_sd_ms: 0.0,
            entropy_bits,
            dist_over_entropy: dist_over_entropy(ss_ms, entropy_bits),
            latency: keys.extras.latencies.then(|| {
                let counts = whole.functions.iter().map(|&(count, ..)| count);
                distance(&whole.cells, counts, &self.cells)
            }),
            count_error: None,
            paths: paths.map(|paths| paths.paths as f64),
            paths_all: paths.map_or(0.0, |paths| paths.paths_all as f64),
            path_distance: paths.map(|paths| paths.path_distance),
        }
    }
}

fn minus(sums: &mut Row, values: &Row) {
    *sums = std::array::from_fn(|at| sums[at] - values[at]);
}
