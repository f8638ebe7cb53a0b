//! The traces that each level of probability keeps of a key, on one draw.
//!
//! A point of the search gives each key one of [`LEVELS`] probabilities. On a draw, each trace has
//! a random number. A level keeps the traces whose number is below its probability, in addition to
//! those that the curve keeps anyway. So a point keeps a sum of one row for each key. This is
//! exactly what a replay of this draw would keep, at a cost that does not grow with the number of
//! traces.
//!
//! Rows are rounded to a [`Grid`], which makes sums of rows exact. So a point can move to a
//! neighbour by adding and subtracting only the rows that change (see [`score`]).
//!
//! Tables are not averaged over draws, except for the shares of bytes and traces: these are linear
//! in the probabilities, so their mean is exact. Scores are not linear, so each draw has its own.

mod grid;
mod score;

use crate::expect::Extras;
use crate::latency::LatencyCell;
use crate::stop::Stop;
use crate::workload::{Arrival, PartSums, Workload};
use grid::Grid;
pub(super) use score::Rows;
pub(crate) use score::Scratch;
use score::Terms;

/// The number of probabilities that a key can have.
pub(super) const LEVELS: usize = 40;
/// The number of sums for each function: calls, deviations, squared deviations, and weighted calls.
const SUMS: usize = 4;
/// The index of weighted calls in these sums.
const BY_WEIGHT: usize = 3;

/// A key with its own probability.
#[derive(Clone, Debug)]
pub(super) struct OwnKey {
    /// The key's number in the workload.
    pub(super) key: usize,
    /// The probability of each level, ascending to 1.
    pub(super) probabilities: Vec<f64>,
    /// The functions of the key's traces, as indices into [`OwnKeys::functions`].
    functions: Vec<u32>,
    /// The cells of the key's traces: see [`cells`].
    cells: Vec<u32>,
}

/// The keys with their own probabilities, and lookups from the workload's keys and functions to
/// theirs.
#[derive(Debug)]
pub(super) struct OwnKeys {
    pub(super) keys: Vec<OwnKey>,
    /// For each key of the workload, its index in `keys`.
    places: Vec<Option<u32>>,
    /// The functions of the keys' traces, ascending.
    functions: Vec<u32>,
    /// For each function of the workload, its index in `functions`.
    function_places: Vec<Option<u32>>,
    extras: Extras,
    /// Whether call trees are counted; otherwise scores have 0.
    call_trees: bool,
}

/// The decision about a trace on a draw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    /// The trace's random number: a probability above this keeps it.
    pub(super) uniform: f64,
    /// The probability by the curve, whatever the key's own probability is.
    pub(super) by_curve: f64,
}

/// The tables of one draw.
#[derive(Debug)]
pub(super) struct Levels {
    /// The first rows of each key.
    keys: Vec<KeyRows>,
    /// For each key, the sums by level and by function of the key. [`Rows`] takes them out.
    sums: Vec<Vec<[f64; SUMS]>>,
    /// Weighted calls or traces, by key, level and cell.
    cells: Vec<f64>,
    /// For each key, its call trees with the lowest level that finds them.
    trees: Vec<(u32, u8)>,
    /// Sums over the traces of all other keys.
    others: Others,
    whole: Whole,
    /// Squared relative errors of weighted counts, for functions that no own key has, in order.
    /// `None` if the function has no calls on this draw.
    pub(super) other_errors: Vec<Option<f64>>,
    /// The expected bytes and traces kept, by key and level.
    kept: Vec<[f64; 2]>,
    kept_others: [f64; 2],
}

#[derive(Clone, Copy, Debug)]
struct KeyRows {
    first_cell: usize,
    first_tree: usize,
    end_tree: usize,
    /// The index of the size of the first level.
    first_size: usize,
}

#[derive(Debug)]
struct Others {
    /// Sums by function of the workload; by own function once all traces are added.
    sums: Vec<[f64; SUMS]>,
    /// The terms of functions that no own key has.
    terms: Terms,
    cells: Vec<f64>,
    trees: Vec<u32>,
    size: [f64; 4],
}

/// All traces of the draw.
#[derive(Debug)]
struct Whole {
    /// The calls, mean and standard deviation of each function.
    functions: Vec<(f64, f64, f64)>,
    functions_all: f64,
    call_trees: usize,
    /// Numbers of call trees are below this.
    tree_numbers: usize,
    cells: Vec<LatencyCell>,
    /// The number of traces of each path kind.
    path_kinds: Vec<u32>,
    size: [f64; 4],
    /// The traces, spans, bytes and OTLP bytes kept, by key and level.
    sizes: Vec<[f64; 4]>,
}

impl OwnKeys {
    /// `floors` has the keys in order, each with its minimum probability.
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
            // Sorting and deduplicating now and then keeps the lists near their final lengths.
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
        let mut function_places = vec![None; workload.functions().len()];
        keys.iter()
            .flat_map(|own| &own.functions)
            .for_each(|&function| function_places[function as usize] = Some(0));
        let mut functions = Vec::new();
        for (function, place) in (0..).zip(&mut function_places).filter(|(_, place)| place.is_some()) {
            *place = Some(functions.len() as u32);
            functions.push(function);
        }
        let place = |function: &mut u32| *function = function_places[*function as usize].unwrap_or_default();
        keys.iter_mut().flat_map(|own| &mut own.functions).for_each(place);
        Self { keys, places, functions, function_places, extras, call_trees }
    }

    /// The number of functions that own keys have.
    pub(super) fn functions(&self) -> usize {
        self.functions.len()
    }

    /// Whether the key has its own probability.
    pub(super) fn is_own(&self, key: u32) -> bool {
        self.places[key as usize].is_some()
    }

    /// The number of numbers in the tables of one draw.
    pub(super) fn table_len(&self) -> usize {
        self.keys.iter().map(|own| LEVELS * (SUMS * own.functions.len() + own.cells.len())).sum()
    }
}

/// The weighted quantities of a trace, as far as they are requested: its calls in each latency cell
/// and, numbered after these cells, 1 for its path kind.
fn cells(workload: &Workload, index: usize, extras: Extras) -> impl Iterator<Item = (u32, f64)> {
    let latencies = if extras.latencies { workload.latencies(index) } else { &[] };
    let kind = workload.latency_cells().len() as u32 + workload.arrivals()[index].path_kind;
    let calls = latencies.iter().map(|calls| (calls.cell, f64::from(calls.count)));
    calls.chain(extras.paths.then_some((kind, 1.0)))
}

/// Probabilities from the floor to 1, evenly spaced on a logarithmic scale, each rounded to the
/// four digits with which it will be written.
fn probabilities(floor: f64) -> Vec<f64> {
    let step = |level: usize| floor.powf(1.0 - level as f64 / (LEVELS - 1) as f64);
    (0..LEVELS).map(|level| crate::space::round_to_4_digits(step(level)).min(1.0)).collect()
}

impl Levels {
    /// Sums some arrivals, each with its time, in the order in which they are decided; `None` if
    /// asked to stop. `sums` must be over the same arrivals.
    pub(super) fn new(
        (workload, order): (&Workload, &[(u64, u32)]),
        sums: &PartSums,
        keys: &OwnKeys,
        mut decide: impl FnMut(&Arrival) -> Decided,
        stop: Stop<'_>,
    ) -> Option<Self> {
        let mut pulse = stop.pulse();
        let mut builder = Builder::new(workload, sums, keys);
        // The rows of one key fit into a cache, but those of all keys do not, so the sums are built
        // key by key.
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
            builder.begin(place);
            for (index, decided) in decided {
                builder.add_own(place, *index as usize, decided);
                if pulse.stopped_after(1 + workload.calls(*index as usize).len()) {
                    return None;
                }
            }
            builder.end(place);
        }
        Some(builder.finish())
    }

    /// Keeps the sums of own keys' functions. The sums of all other functions are reduced to their
    /// terms in a score.
    fn separate_functions(&mut self, keys: &OwnKeys) {
        let sums = std::mem::take(&mut self.others.sums);
        for ((sums, place), &whole) in sums.into_iter().zip(&keys.function_places).zip(&self.whole.functions)
        {
            match place {
                Some(_) => self.others.sums.push(sums),
                None => {
                    let (terms, square) = Terms::of(whole, &sums);
                    self.others.terms.add(&terms);
                    self.other_errors.push(square);
                }
            }
        }
    }

    /// Rounds each function's rows to its own grid, so that sums of rows are exact.
    fn round(&mut self, keys: &OwnKeys) {
        let mut bounds: Vec<[f64; SUMS]> = self.others.sums.iter().map(|sums| sums.map(f64::abs)).collect();
        for (sums, own) in self.sums.iter().zip(&keys.keys) {
            let mut most = vec![[0.0f64; SUMS]; own.functions.len()];
            for row in sums.chunks_exact(own.functions.len().max(1)) {
                for (most, sums) in most.iter_mut().zip(row) {
                    *most = std::array::from_fn(|at| most[at].max(sums[at].abs()));
                }
            }
            own.functions
                .iter()
                .zip(most)
                .for_each(|(&function, most)| plus(&mut bounds[function as usize], &most));
        }
        let grids: Vec<[Grid; SUMS]> = bounds.into_iter().map(|bounds| bounds.map(Grid::within)).collect();
        let round = |sums: &mut [f64; SUMS], grids: &[Grid; SUMS]| {
            *sums = std::array::from_fn(|at| grids[at].round(sums[at]));
        };
        self.others.sums.iter_mut().zip(&grids).for_each(|(sums, grids)| round(sums, grids));
        for (sums, own) in self.sums.iter_mut().zip(&keys.keys) {
            for row in sums.chunks_exact_mut(own.functions.len().max(1)) {
                let functions = own.functions.iter().zip(row);
                functions.for_each(|(&function, sums)| round(sums, &grids[function as usize]));
            }
        }
    }

    /// The number of functions.
    pub(super) fn functions(&self) -> usize {
        self.whole.functions.len()
    }

    /// The calls, mean and standard deviation of the own keys' functions.
    pub(super) fn own_functions(&self, keys: &OwnKeys) -> impl Iterator<Item = &(f64, f64, f64)> {
        keys.functions.iter().map(|&function| &self.whole.functions[function as usize])
    }

    /// The expected bytes and traces kept of other keys, and the bytes and traces of the whole.
    pub(super) fn kept_others(&self) -> ([f64; 2], [f64; 2]) {
        (self.kept_others, [self.whole.size[2], self.whole.size[0]])
    }

    /// The expected bytes and traces kept of a key at a level.
    pub(super) fn kept(&self, place: usize, level: usize) -> [f64; 2] {
        self.kept[place * LEVELS + level]
    }
}

/// Adds traces one by one. Until the end, numbers are differences from level to level.
struct Builder<'a> {
    workload: &'a Workload,
    sums: &'a PartSums,
    keys: &'a OwnKeys,
    levels: Levels,
    /// For each call tree, whether a trace has it.
    has_tree: Vec<bool>,
    /// For each own key, its call trees with the lowest level that finds them.
    trees: Vec<std::collections::BTreeMap<u32, u8>>,
    others: std::collections::BTreeSet<u32>,
    /// Bytes and traces by the first level above the curve's probability: expected by the curve
    /// (`by_curve`), and all of them (`by_level`).
    by_curve: Vec<[[f64; 2]; LEVELS + 1]>,
    by_level: Vec<[[f64; 2]; LEVELS + 1]>,
    /// For each own function, its index among the functions of the current key.
    function_at: Vec<usize>,
    /// Weights of what the curve keeps of the current key, laid out like its rows and cells, at the
    /// last level below the curve's probability. Empty if the curve keeps nothing.
    sums_by_curve: Vec<f64>,
    cells_by_curve: Vec<f64>,
}

impl<'a> Builder<'a> {
    fn new(workload: &'a Workload, sums: &'a PartSums, keys: &'a OwnKeys) -> Self {
        let mut first_cell = 0;
        let rows = keys.keys.iter().enumerate().map(|(place, own)| {
            let rows = KeyRows { first_cell, first_tree: 0, end_tree: 0, first_size: place * LEVELS };
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
            sums: keys.keys.iter().map(|_| Vec::new()).collect(),
            cells: vec![0.0; first_cell],
            trees: Vec::new(),
            others: Others {
                sums: vec![[0.0; SUMS]; functions.len()],
                terms: Terms::default(),
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
            other_errors: Vec::new(),
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
            function_at: vec![0; keys.functions.len()],
            sums_by_curve: Vec::new(),
            cells_by_curve: Vec::new(),
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

    /// Starts with a key.
    fn begin(&mut self, place: usize) {
        let own = &self.keys.keys[place];
        own.functions.iter().enumerate().for_each(|(at, &function)| self.function_at[function as usize] = at);
        self.levels.sums[place] = vec![[0.0; SUMS]; LEVELS * own.functions.len()];
        self.sums_by_curve.clear();
        self.cells_by_curve.clear();
    }

    fn add_own(&mut self, place: usize, index: usize, decided: &Decided) {
        let arrival = &self.workload.arrivals()[index];
        let size = size(arrival);
        let own = &self.keys.keys[place];
        let rows = self.levels.keys[place];
        let by_curve = decided.by_curve;
        // From this level on, the level's probability applies; below it, the curve's.
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
        // Below `level_above` a trace's weight is the reciprocal of the curve's probability, and
        // from there on that of the level's.
        let weighted_from = kept_from.max(level_above);
        let by_curve = Some(by_curve.recip()).filter(|_| kept_from < level_above);
        if by_curve.is_some() && self.sums_by_curve.is_empty() {
            self.sums_by_curve.resize(LEVELS * own.functions.len(), 0.0);
            self.cells_by_curve.resize(LEVELS * own.cells.len(), 0.0);
        }
        let (len, sums) = (own.functions.len(), &mut self.levels.sums[place]);
        for calls in self.workload.calls(index) {
            let calls = self.sums.shifted(calls);
            let function = self.keys.function_places[calls.function as usize].unwrap_or_default();
            let at = self.function_at[function as usize];
            let count = f64::from(calls.count);
            let values = [count, calls.deviation, calls.deviation_squared, 0.0];
            plus(&mut sums[at + kept_from * len], &values);
            if weighted_from < LEVELS {
                sums[at + weighted_from * len][BY_WEIGHT] += count;
            }
            if let Some(weight) = by_curve {
                self.sums_by_curve[at + (level_above - 1) * len] += count * weight;
            }
        }
        let len = own.cells.len();
        for (cell, count) in cells(self.workload, index, self.keys.extras) {
            let at = own.cells.binary_search(&cell).unwrap_or_default();
            if weighted_from < LEVELS {
                self.levels.cells[rows.first_cell + at + weighted_from * len] += count;
            }
            if let Some(weight) = by_curve {
                self.cells_by_curve[at + (level_above - 1) * len] += count * weight;
            }
        }
        if !self.keys.call_trees {
            return;
        }
        let tree = self.trees[place].entry(arrival.call_tree).or_insert(u8::MAX);
        *tree = (*tree).min(kept_from as u8);
    }

    /// Turns the differences of the key's numbers into sums.
    fn end(&mut self, place: usize) {
        let own = &self.keys.keys[place];
        let (len, sums) = (own.functions.len(), &mut self.levels.sums[place]);
        for place in len..LEVELS * len {
            let below = sums[place - len];
            plus(&mut sums[place], &below);
        }
        let mut by_weight: Vec<f64> = sums.iter().map(|sums| sums[BY_WEIGHT]).collect();
        weigh(&mut by_weight, &mut self.sums_by_curve, &own.probabilities);
        sums.iter_mut().zip(by_weight).for_each(|(sums, by_weight)| sums[BY_WEIGHT] = by_weight);
        let len = own.cells.len();
        let cells = &mut self.levels.cells[self.levels.keys[place].first_cell..][..LEVELS * len];
        for place in len..LEVELS * len {
            cells[place] += cells[place - len];
        }
        weigh(cells, &mut self.cells_by_curve, &own.probabilities);
    }

    /// Turns the differences of sizes into sums.
    fn finish(mut self) -> Levels {
        for (rows, trees) in self.levels.keys.iter_mut().zip(&self.trees) {
            for level in 1..LEVELS {
                let before = self.levels.whole.sizes[rows.first_size + level - 1];
                plus(&mut self.levels.whole.sizes[rows.first_size + level], &before);
            }
            rows.first_tree = self.levels.trees.len();
            self.levels.trees.extend(trees.iter().map(|(&tree, &level)| (tree, level)));
            rows.end_tree = self.levels.trees.len();
        }
        for (place, own) in self.keys.keys.iter().enumerate() {
            // A level keeps a trace with the larger of its own probability and the curve's.
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
        self.levels.separate_functions(self.keys);
        self.levels.round(self.keys);
        self.levels
    }
}

/// Turns a key's kept numbers, by level, into weights: those kept by the level's probability, plus
/// those kept by the curve. The latter are given at the last level below the curve's probability;
/// `by_curve` is empty without a curve.
fn weigh(kept: &mut [f64], by_curve: &mut [f64], probabilities: &[f64]) {
    let len = kept.len() / LEVELS;
    kept.iter_mut().enumerate().for_each(|(place, kept)| *kept /= probabilities[place / len]);
    for place in (len..by_curve.len()).rev() {
        by_curve[place - len] += by_curve[place];
    }
    kept.iter_mut().zip(by_curve).for_each(|(kept, by_curve)| *kept += *by_curve);
}

/// One trace: 1, its spans, bytes and OTLP bytes.
fn size(arrival: &Arrival) -> [f64; 4] {
    [1.0, f64::from(arrival.spans), arrival.bytes as f64, arrival.otlp_bytes as f64]
}

fn plus<const N: usize>(sums: &mut [f64; N], values: &[f64; N]) {
    // The whole array is assigned at once, because the compiler cannot see that the two do not
    // overlap.
    *sums = std::array::from_fn(|at| sums[at] + values[at]);
}
