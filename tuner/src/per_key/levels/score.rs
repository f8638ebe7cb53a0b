//! The score of a point, moved from point to point.
//!
//! A step of the search changes a few keys. The sums of a draw move with it: a changed key's row is
//! taken away and another added, and only functions of these rows are looked at again. Sums are
//! exact, so a score is the same whatever the way was.

use super::{LEVELS, Levels, OwnKey, OwnKeys, SUMS, plus};
use crate::expect::Expected;
use crate::latency::distance;
use crate::paths;
use crate::score::dist_over_entropy;

/// Sums of a function, or the traces, spans, bytes and OTLP bytes kept.
type Row = [f64; SUMS];

/// By key, level, draw: the size kept, and behind it the sums by function of the key. All draws lie
/// together, for a step of the search reads a few levels of each.
#[derive(Debug)]
pub(in crate::per_key) struct Rows {
    keys: Vec<Vec<Row>>,
    draws: usize,
}

impl Rows {
    /// Takes them from the draws.
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

    /// For each draw the size kept, and the sums.
    fn of(&self, place: usize, level: u8) -> impl Iterator<Item = (&Row, &[Row])> {
        let rows = &self.keys[place];
        let level_len = rows.len() / LEVELS;
        let level = &rows[usize::from(level) * level_len..][..level_len];
        level.chunks_exact(level_len / self.draws).filter_map(<[Row]>::split_first)
    }
}

/// Working memory for one point after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    /// By key: the level that the sums are of; nothing before the first score.
    point: Vec<Option<u8>>,
    draws: Vec<DrawSums>,
    /// Own functions whose sums have changed since their terms were taken, each once.
    changed: Vec<u32>,
    is_changed: Vec<bool>,
    cells: Vec<f64>,
    /// The number of the score that last found each tree.
    found: Vec<u32>,
    scores: u32,
}

/// The sums of one draw at a point.
#[derive(Clone, Debug, Default)]
struct DrawSums {
    /// By own function.
    sums: Vec<Row>,
    terms: Vec<Terms>,
    /// Squared relative errors of counts by weight.
    errors: Vec<f64>,
    /// The traces, spans, bytes and OTLP bytes kept.
    size: [f64; 4],
}

/// The parts that functions have in a score.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Terms {
    /// Squared distances of means and deviations, calls, calls by their logarithm, and functions
    /// found.
    values: [f64; 4],
}

impl Terms {
    /// Of one function, from the calls, mean and deviation of all its calls and from sums over
    /// those kept; with the squared relative error of its count by weight, `None` if it has no
    /// calls.
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
    /// Moves to a point.
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

    /// Adds a key's rows, or takes them away.
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

    /// The score of the part that the point keeps on a draw.
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

    /// By own function: the sum over draws of squared relative errors of counts by weight.
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
            // One run: the spread over runs is that between draws.
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
