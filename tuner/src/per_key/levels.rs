//! The part of a key that each level of probability keeps, on one draw.
//!
//! A point of the search gives each key one of [`LEVELS`] probabilities. On a draw, each trace has a random number, and the
//! traces that a level keeps are those whose number is below it, beside those that the curve keeps anyway. A kept part is
//! therefore a sum of one row for each key: exactly the part that a replay of this draw would keep, at a cost that does not
//! grow with the number of traces.
//!
//! The tables are averaged over draws nowhere but in the shares of bytes and traces, which are linear in the probabilities:
//! there the mean is exact. Scores are not linear; each draw has a score of its own.

use crate::expect::{Expected, Extras};
use crate::latency::{LatencyCell, distance};
use crate::paths;
use crate::score::dist_over_entropy;
use crate::stop::Stop;
use crate::workload::{Arrival, PartSums, Workload};

/// Probabilities that a key can have.
pub(super) const LEVELS: usize = 40;
/// Sums for each function: calls, deviations, squared deviations, and calls by weight.
const SUMS: usize = 4;
/// The place of calls by weight among them.
const BY_WEIGHT: usize = 3;

/// A key with a probability of its own.
#[derive(Clone, Debug)]
pub(super) struct OwnKey {
    /// Its number in the workload.
    pub(super) key: usize,
    /// By level, ascending to 1.
    pub(super) probabilities: Vec<f64>,
    /// The functions of its traces.
    functions: Vec<u32>,
    /// The cells of its traces: see [`cells`].
    cells: Vec<u32>,
}

/// Own keys, and which of the workload's keys they are.
#[derive(Debug)]
pub(super) struct OwnKeys {
    pub(super) keys: Vec<OwnKey>,
    /// By key of the workload: its place in `keys`.
    places: Vec<Option<u32>>,
    extras: Extras,
    /// Whether the call trees found are counted; else a score has none.
    call_trees: bool,
}

/// A trace as the draw decides it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    /// Its random number: a probability above this keeps it.
    pub(super) uniform: f64,
    /// The probability that the curve gives it, whatever the key's own.
    pub(super) by_curve: f64,
}

/// The tables of one draw.
#[derive(Debug)]
pub(super) struct Levels {
    /// By key: where its rows begin.
    keys: Vec<KeyRows>,
    /// By key, level and function of the key.
    sums: Vec<[f64; SUMS]>,
    /// Calls, or traces, by weight: by key, level and cell.
    cells: Vec<f64>,
    /// Call trees with the least level that finds them, by key.
    trees: Vec<(u32, u8)>,
    /// Of the traces of all other keys.
    others: Others,
    whole: Whole,
    /// Shares of the sums below: bytes and traces kept in expectation, by key and level; and those of other keys.
    kept: Vec<[f64; 2]>,
    kept_others: [f64; 2],
}

#[derive(Clone, Copy, Debug)]
struct KeyRows {
    first_sum: usize,
    first_cell: usize,
    first_tree: usize,
    end_tree: usize,
    /// Where its levels' sizes begin.
    first_size: usize,
}

#[derive(Debug)]
struct Others {
    sums: Vec<[f64; SUMS]>,
    cells: Vec<f64>,
    trees: Vec<u32>,
    size: [f64; 4],
}

/// The draw's traces, all of them.
#[derive(Debug)]
struct Whole {
    /// Calls, mean and deviation of each function.
    functions: Vec<(f64, f64, f64)>,
    functions_all: f64,
    call_trees: usize,
    /// The numbers of call trees are below this.
    tree_numbers: usize,
    cells: Vec<LatencyCell>,
    /// Traces of each path kind.
    path_kinds: Vec<u32>,
    size: [f64; 4],
    /// By key and level, the traces, spans, bytes and OTLP bytes kept.
    sizes: Vec<[f64; 4]>,
}

/// Working memory for one point after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    sums: Vec<[f64; SUMS]>,
    cells: Vec<f64>,
    /// The number of the score that last found each tree.
    found: Vec<u32>,
    scores: u32,
    /// By function: the sum over draws of squared relative errors of counts by weight.
    pub(super) count_errors: Vec<f64>,
}

impl OwnKeys {
    /// `floors`: keys in order, each with its least probability.
    pub(super) fn new(
        workload: &Workload,
        floors: &[(usize, f64)],
        (extras, call_trees): (Extras, bool),
    ) -> Self {
        let mut places = vec![None; workload.keys().len()];
        floors.iter().zip(0..).for_each(|(&(key, _), place)| places[key] = Some(place));
        let mut keys: Vec<OwnKey> = floors
            .iter()
            .map(|&(key, floor)| OwnKey {
                key,
                probabilities: probabilities(floor),
                functions: Vec::new(),
                cells: Vec::new(),
            })
            .collect();
        for (index, arrival) in workload.arrivals().iter().enumerate() {
            let Some(place) = places[arrival.key as usize] else { continue };
            let own: &mut OwnKey = &mut keys[place as usize];
            own.functions.extend(workload.calls(index).iter().map(|calls| calls.function));
            own.cells.extend(cells(workload, index, extras).map(|(cell, _)| cell));
            // Sorted now and then, so that a key's lists stay about as long as they will be.
            for list in [&mut own.functions, &mut own.cells] {
                if list.len() > 4096 && list.len().is_power_of_two() {
                    list.sort_unstable();
                    list.dedup();
                }
            }
        }
        for own in &mut keys {
            for list in [&mut own.functions, &mut own.cells] {
                list.sort_unstable();
                list.dedup();
                list.shrink_to_fit();
            }
        }
        Self { keys, places, extras, call_trees }
    }

    /// Whether the key has a probability of its own.
    pub(super) fn is_own(&self, key: u32) -> bool {
        self.places[key as usize].is_some()
    }

    /// Numbers in the tables of one draw.
    pub(super) fn table_len(&self) -> usize {
        self.keys.iter().map(|own| LEVELS * (SUMS * own.functions.len() + own.cells.len())).sum()
    }
}

/// Returns the numbers that are counted by weight: calls by latency cell, and behind these cells the trace itself by path
/// kind; each if it is asked for.
fn cells(workload: &Workload, index: usize, extras: Extras) -> impl Iterator<Item = (u32, f64)> {
    let latencies = if extras.latencies { workload.latencies(index) } else { &[] };
    let kind = workload.latency_cells().len() as u32 + workload.arrivals()[index].path_kind;
    let calls = latencies.iter().map(|calls| (calls.cell, f64::from(calls.count)));
    calls.chain(extras.paths.then_some((kind, 1.0)))
}

/// From the floor to 1, evenly in the logarithm, each with four digits as it will be written.
fn probabilities(floor: f64) -> Vec<f64> {
    let step = |level: usize| floor.powf(1.0 - level as f64 / (LEVELS - 1) as f64);
    (0..LEVELS).map(|level| crate::space::round_to_4_digits(step(level)).min(1.0)).collect()
}

impl Levels {
    /// Sums up some arrivals, each with its time, in the order in which they are decided; `None` if asked to stop.
    pub(super) fn new(
        (workload, order): (&Workload, &[(u64, u32)]),
        keys: &OwnKeys,
        mut decide: impl FnMut(&Arrival) -> Decided,
        stop: Stop<'_>,
    ) -> Option<Self> {
        let mut pulse = stop.pulse();
        let sums = PartSums::new(workload, order, &mut pulse)?;
        let mut builder = Builder::new(workload, sums, keys);
        // A key's rows fit into a cache and all keys' do not: those of one key after the other are summed up.
        let mut own: Vec<Vec<(u32, Decided)>> = vec![Vec::new(); keys.keys.len()];
        for &(at_ns, index) in order {
            let mut arrival = workload.arrivals()[index as usize];
            arrival.at_ns = at_ns;
            let decided = decide(&arrival);
            builder.add_whole(&arrival);
            match keys.places[arrival.key as usize] {
                Some(place) => own[place as usize].push((index, decided)),
                None => builder.add_other(index as usize, &decided),
            }
            if pulse.stopped_after(1 + workload.calls(index as usize).len()) {
                return None;
            }
        }
        for (place, decided) in own.iter().enumerate() {
            for (index, decided) in decided {
                builder.add_own(place, *index as usize, decided);
                if pulse.stopped_after(1 + workload.calls(*index as usize).len()) {
                    return None;
                }
            }
        }
        Some(builder.finish())
    }

    /// The number of functions.
    pub(super) fn functions(&self) -> usize {
        self.whole.functions.len()
    }

    /// Bytes and traces in expectation: those of other keys, and of all that there are.
    pub(super) fn kept_others(&self) -> ([f64; 2], [f64; 2]) {
        (self.kept_others, [self.whole.size[2], self.whole.size[0]])
    }

    /// Bytes and traces of a key in expectation, at a level.
    pub(super) fn kept(&self, place: usize, level: usize) -> [f64; 2] {
        self.kept[place * LEVELS + level]
    }

    /// The score of the part that these levels keep. Errors of counts are added to the scratch's.
    pub(super) fn score(&self, keys: &OwnKeys, point: &[u8], scratch: &mut Scratch) -> Expected {
        scratch.begin(self);
        let mut size = self.others.size;
        let mut trees = self.others.trees.len();
        self.others.trees.iter().for_each(|&tree| scratch.found[tree as usize] = scratch.scores);
        for ((own, rows), &level) in keys.keys.iter().zip(&self.keys).zip(point) {
            let level = usize::from(level);
            let kept = &self.whole.sizes[rows.first_size + level];
            size.iter_mut().zip(kept).for_each(|(sum, kept)| *sum += kept);
            let len = own.functions.len();
            let row = &self.sums[rows.first_sum + level * len..][..len];
            for (&function, values) in own.functions.iter().zip(row) {
                plus(&mut scratch.sums[function as usize], values);
            }
            let row = &self.cells[rows.first_cell + level * own.cells.len()..][..own.cells.len()];
            for (&cell, weight) in own.cells.iter().zip(row) {
                scratch.cells[cell as usize] += weight;
            }
            for &(tree, found_at) in &self.trees[rows.first_tree..rows.end_tree] {
                let last = &mut scratch.found[tree as usize];
                if usize::from(found_at) <= level && *last != scratch.scores {
                    *last = scratch.scores;
                    trees += 1;
                }
            }
        }
        self.of_sums(size, trees, keys.extras, scratch)
    }

    fn of_sums(&self, size: [f64; 4], trees: usize, extras: Extras, scratch: &mut Scratch) -> Expected {
        let (mut squares, mut spans, mut weighted, mut functions) = (0.0, 0.0, 0.0, 0.0);
        let rows = self.whole.functions.iter().zip(&scratch.sums).zip(&mut scratch.count_errors);
        for ((&(all, mean, sd), &[count, deviation, squared, by_weight]), error) in rows {
            if all == 0.0 {
                continue;
            }
            if count > 0.0 {
                let offset = deviation / count;
                let kept_sd = (squared / count - offset * offset).max(0.0).sqrt();
                squares += offset * offset + (kept_sd - sd) * (kept_sd - sd);
                spans += count;
                weighted += count * count.log2();
                functions += 1.0;
            } else {
                squares += mean * mean + sd * sd;
            }
            let relative = by_weight / all - 1.0;
            *error += relative * relative;
        }
        let ss_ms = squares.sqrt();
        let paths = extras.paths.then(|| {
            let weights = &scratch.cells[self.whole.cells.len()..];
            paths::score(&self.whole.path_kinds, self.whole.size[0], weights)
        });
        let entropy_bits = if spans > 0.0 { (spans.log2() - weighted / spans).max(0.0) } else { 0.0 };
        Expected {
            traces: size[0],
            spans: size[1],
            bytes: size[2],
            otlp_bytes: size[3],
            tfcr: if self.whole.size[2] > 0.0 { size[2] / self.whole.size[2] } else { 0.0 },
            functions,
            functions_all: self.whole.functions_all,
            call_trees: trees as f64,
            call_trees_all: self.whole.call_trees as f64,
            ss_ms,
            // One run: the spread over runs is that between draws.
            ss_sd_ms: 0.0,
            entropy_bits,
            dist_over_entropy: dist_over_entropy(ss_ms, entropy_bits),
            latency: extras.latencies.then(|| {
                let counts = self.whole.functions.iter().map(|&(count, ..)| count);
                distance(&self.whole.cells, counts, &scratch.cells)
            }),
            count_error: None,
            paths: paths.map(|paths| paths.paths as f64),
            paths_all: paths.map_or(0.0, |paths| paths.paths_all as f64),
            path_distance: paths.map(|paths| paths.path_distance),
        }
    }
}

impl Scratch {
    fn begin(&mut self, levels: &Levels) {
        self.sums.clone_from(&levels.others.sums);
        self.cells.clone_from(&levels.others.cells);
        if self.count_errors.len() < levels.whole.functions.len() {
            self.count_errors.resize(levels.whole.functions.len(), 0.0);
        }
        self.found.resize(self.found.len().max(levels.whole.tree_numbers), self.scores);
        self.scores += 1;
        if self.scores == u32::MAX {
            self.found.fill(0);
            self.scores = 1;
        }
    }
}

/// Adds one trace after the other. Numbers are differences from level to level until the end.
struct Builder<'a> {
    workload: &'a Workload,
    sums: PartSums,
    keys: &'a OwnKeys,
    levels: Levels,
    /// By number: whether a trace has this call tree.
    has_tree: Vec<bool>,
    /// For each own key and tree: the least level that finds it.
    trees: Vec<std::collections::BTreeMap<u32, u8>>,
    others: std::collections::BTreeSet<u32>,
    /// Bytes and traces by the first level that is above the curve: in expectation below it, and all of them.
    by_curve: Vec<[[f64; 2]; LEVELS + 1]>,
    by_level: Vec<[[f64; 2]; LEVELS + 1]>,
}

impl<'a> Builder<'a> {
    fn new(workload: &'a Workload, sums: PartSums, keys: &'a OwnKeys) -> Self {
        let (mut first_sum, mut first_cell) = (0, 0);
        let rows = keys.keys.iter().enumerate().map(|(place, own)| {
            let rows =
                KeyRows { first_sum, first_cell, first_tree: 0, end_tree: 0, first_size: place * LEVELS };
            first_sum += LEVELS * own.functions.len();
            first_cell += LEVELS * own.cells.len();
            rows
        });
        let rows = rows.collect();
        let functions: Vec<_> = sums
            .functions
            .iter()
            .map(|function| (function.count as f64, function.duration_ms.mean, function.duration_ms.sd))
            .collect();
        let path_kinds = if keys.extras.paths { sums.path_kinds.clone() } else { Vec::new() };
        let latency_cells = sums.latency_cells.clone();
        let cell_count = match keys.extras == Extras::default() {
            true => 0,
            false => latency_cells.len() + path_kinds.len(),
        };
        let levels = Levels {
            keys: rows,
            sums: vec![[0.0; SUMS]; first_sum],
            cells: vec![0.0; first_cell],
            trees: Vec::new(),
            others: Others {
                sums: vec![[0.0; SUMS]; functions.len()],
                cells: vec![0.0; cell_count],
                trees: Vec::new(),
                size: [0.0; 4],
            },
            kept: vec![[0.0; 2]; keys.keys.len() * LEVELS],
            kept_others: [0.0; 2],
            whole: Whole {
                functions_all: functions.iter().filter(|(count, ..)| *count > 0.0).count() as f64,
                functions,
                call_trees: 0,
                tree_numbers: workload.call_trees() as usize,
                cells: latency_cells,
                path_kinds,
                size: [0.0; 4],
                sizes: vec![[0.0; 4]; keys.keys.len() * LEVELS],
            },
        };
        let trees = vec![std::collections::BTreeMap::new(); keys.keys.len()];
        let sizes = vec![[[0.0; 2]; LEVELS + 1]; keys.keys.len()];
        let others = std::collections::BTreeSet::new();
        let has_tree = vec![false; workload.call_trees() as usize];
        Self {
            workload,
            sums,
            keys,
            levels,
            has_tree,
            trees,
            others,
            by_curve: sizes.clone(),
            by_level: sizes,
        }
    }

    fn add_whole(&mut self, arrival: &Arrival) {
        let whole = &mut self.levels.whole;
        plus(&mut whole.size, &size(arrival));
        let is_known = std::mem::replace(&mut self.has_tree[arrival.call_tree as usize], true);
        whole.call_trees += usize::from(!is_known);
    }

    fn add_other(&mut self, index: usize, decided: &Decided) {
        let arrival = &self.workload.arrivals()[index];
        let size = size(arrival);
        let others = &mut self.levels.others;
        plus(&mut self.levels.kept_others, &[size[2], size[0]].map(|value| value * decided.by_curve));
        if decided.uniform >= decided.by_curve {
            return;
        }
        plus(&mut others.size, &size);
        for calls in self.workload.calls(index) {
            let calls = self.sums.shifted(calls);
            let count = f64::from(calls.count);
            let values = [count, calls.deviation, calls.deviation_squared, count / decided.by_curve];
            plus(&mut others.sums[calls.function as usize], &values);
        }
        for (cell, count) in cells(self.workload, index, self.keys.extras) {
            others.cells[cell as usize] += count / decided.by_curve;
        }
        if self.keys.call_trees {
            self.others.insert(arrival.call_tree);
        }
    }

    fn add_own(&mut self, place: usize, index: usize, decided: &Decided) {
        let arrival = &self.workload.arrivals()[index];
        let size = size(arrival);
        let own = &self.keys.keys[place];
        let rows = self.levels.keys[place];
        let by_curve = decided.by_curve;
        // From here on the level is the probability; below, the curve is.
        let level_above = own.probabilities.partition_point(|&p| p < by_curve);
        let kept_by_curve = decided.uniform < by_curve;
        let kept_from = match kept_by_curve {
            true => 0,
            false => own.probabilities.partition_point(|&p| p <= decided.uniform),
        };
        plus(&mut self.by_curve[place][level_above], &[size[2] * by_curve, size[0] * by_curve]);
        plus(&mut self.by_level[place][level_above], &[size[2], size[0]]);
        if kept_from == LEVELS {
            return;
        }
        plus(&mut self.levels.whole.sizes[rows.first_size + kept_from], &size);
        // A weight by level: one by the curve's probability up to `level_above`, one by the level's from there on.
        let mut weights = [0.0; LEVELS];
        for (level, weight) in weights.iter_mut().enumerate().skip(kept_from) {
            *weight = if level < level_above { 1.0 / by_curve } else { 1.0 / own.probabilities[level] };
        }
        let len = own.functions.len();
        for calls in self.workload.calls(index) {
            let calls = self.sums.shifted(calls);
            let at = own.functions.binary_search(&calls.function).unwrap_or_default();
            let count = f64::from(calls.count);
            let rows = &mut self.levels.sums[rows.first_sum + at..];
            let values = [count, calls.deviation, calls.deviation_squared, 0.0];
            plus(&mut rows[kept_from * len], &values);
            for (level, weight) in weights.iter().enumerate().skip(kept_from) {
                rows[level * len][BY_WEIGHT] += count * weight;
            }
        }
        for (cell, count) in cells(self.workload, index, self.keys.extras) {
            let at = own.cells.binary_search(&cell).unwrap_or_default();
            let rows = &mut self.levels.cells[rows.first_cell + at..];
            for (level, weight) in weights.iter().enumerate().skip(kept_from) {
                rows[level * own.cells.len()] += count * weight;
            }
        }
        if !self.keys.call_trees {
            return;
        }
        let tree = self.trees[place].entry(arrival.call_tree).or_insert(u8::MAX);
        *tree = (*tree).min(kept_from as u8);
    }

    /// Differences become sums.
    fn finish(mut self) -> Levels {
        for ((rows, own), trees) in self.levels.keys.iter_mut().zip(&self.keys.keys).zip(&self.trees) {
            let len = own.functions.len();
            for place in rows.first_sum + len..rows.first_sum + LEVELS * len {
                let below = self.levels.sums[place - len];
                let sums = &mut self.levels.sums[place];
                sums.iter_mut().zip(below).take(BY_WEIGHT).for_each(|(sum, value)| *sum += value);
            }
            for level in 1..LEVELS {
                let before = self.levels.whole.sizes[rows.first_size + level - 1];
                plus(&mut self.levels.whole.sizes[rows.first_size + level], &before);
            }
            rows.first_tree = self.levels.trees.len();
            self.levels.trees.extend(trees.iter().map(|(&tree, &level)| (tree, level)));
            rows.end_tree = self.levels.trees.len();
        }
        for (place, own) in self.keys.keys.iter().enumerate() {
            // A level keeps a trace by its own probability, or by the curve's where that is above it.
            let mut by_level = [0.0; 2];
            let mut by_curve = self.by_curve[place].iter().fold([0.0; 2], |mut sum, size| {
                plus(&mut sum, size);
                sum
            });
            for (level, probability) in own.probabilities.iter().enumerate() {
                plus(&mut by_level, &self.by_level[place][level]);
                plus(&mut by_curve, &self.by_curve[place][level].map(|size| -size));
                let kept = [0, 1].map(|of| by_curve[of] + probability * by_level[of]);
                self.levels.kept[place * LEVELS + level] = kept;
            }
        }
        self.levels.others.trees = self.others.into_iter().collect();
        self.levels
    }
}

/// One trace, its spans, bytes and OTLP bytes.
fn size(arrival: &Arrival) -> [f64; 4] {
    [1.0, f64::from(arrival.spans), arrival.bytes as f64, arrival.otlp_bytes as f64]
}

fn plus<const N: usize>(sums: &mut [f64; N], values: &[f64; N]) {
    // A whole array at once: the compiler can't see that the two have no number in common.
    *sums = std::array::from_fn(|at| sums[at] + values[at]);
}
