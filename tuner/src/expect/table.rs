//! What is known of a workload when bump's windows have one length: sums for each (key, count).
//!
//! Sums run from a bin to the last of its key (suffix sums). A sum of p(bin) * value(bin) is then a sum of
//! (p(bin) - p(bin before)) * suffix(bin), and ends at the first bin whose probability is the minimum: a candidate
//! with a small lambda visits a few bins of each key only.

use std::num::NonZeroU64;

use super::index::{Bins, counts_before};
use super::pivots::Pivots;
use crate::workload::{Calls, Workload};

/// How many sums there are for each function and bin.
pub(crate) const MOMENTS: usize = 10;

/// Sums over the traces of one key in one bin and all later ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) bin: u32,
    /// With c the calls of the function in a trace, d and q the sums of their deviations and squared deviations: the
    /// sums over traces of 1, c, d, q, cc, cd, cq, dd, dq, qq.
    pub(crate) moments: [f64; MOMENTS],
}

/// Traces of one call tree in one bin and all later ones of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeCell {
    pub(crate) bin: u32,
    pub(crate) traces: f64,
}

/// Calls with durations in one bucket of a function, in one bin and all later ones of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatencyBin {
    pub(crate) bin: u32,
    /// Sum over traces of the squares of their numbers of calls.
    pub(crate) squares: f64,
}

/// The size of traces: how many, their spans, bytes and OTLP bytes.
pub(crate) type Size = [f64; 4];

/// One key's bins.
#[derive(Debug, Default)]
pub(crate) struct KeyTable {
    /// For each bin that the key reaches, the mean of 1/x^2; infinite for x = 0.
    pub(crate) inverse_squares: Vec<f64>,
    /// For each bin, the size of its traces and of all later ones.
    pub(crate) sizes: Vec<Size>,
    /// The functions in the key's traces, each with its first cell; ascending by function.
    pub(crate) functions: Vec<(u32, u32)>,
    pub(crate) cells: Vec<Cell>,
    /// The call trees of the key's traces, each with its first cell.
    pub(crate) trees: Vec<(u32, u32)>,
    pub(crate) tree_cells: Vec<TreeCell>,
    /// The latency cells of the key's calls, each with its first bin; none if they were not asked for.
    pub(crate) latencies: Vec<(u32, u32)>,
    pub(crate) latency_bins: Vec<LatencyBin>,
    /// Places of pivots that are this key's, each with its bin.
    pub(crate) pivots: Vec<(u32, u32)>,
}

/// All keys, for windows of one length.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) keys: Vec<KeyTable>,
}

impl Table {
    pub(crate) fn new(workload: &Workload, pivots: &Pivots, window_ns: NonZeroU64, latencies: bool) -> Self {
        let bins = Bins::new();
        let counts = counts_before(workload, window_ns);
        let mut of_key: Vec<Vec<u32>> = vec![Vec::new(); workload.keys().len()];
        for (index, arrival) in workload.arrivals().iter().enumerate() {
            of_key[arrival.key as usize].push(index as u32);
        }
        let mut builder = Builder::new(workload, pivots, latencies);
        let keys = of_key.iter().map(|arrivals| builder.key(&bins, arrivals, &counts)).collect();
        Self { keys }
    }

    /// Memory that it takes, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let of_key = |key: &KeyTable| {
            size_of_val(&*key.cells)
                + size_of_val(&*key.tree_cells)
                + size_of_val(&*key.sizes)
                + size_of_val(&*key.functions)
                + size_of_val(&*key.trees)
                + size_of_val(&*key.latencies)
                + size_of_val(&*key.latency_bins)
        };
        self.keys.iter().map(of_key).sum()
    }
}

/// Working memory for one key after the other.
struct Builder<'w> {
    workload: &'w Workload,
    pivots: &'w Pivots,
    /// By function: cells of the key at hand.
    cells: Vec<Vec<Cell>>,
    /// By call tree, the same.
    tree_cells: Vec<Vec<TreeCell>>,
    /// By latency cell, the same; `None` if they are not wanted.
    latency_bins: Option<Vec<Vec<LatencyBin>>>,
}

impl<'w> Builder<'w> {
    fn new(workload: &'w Workload, pivots: &'w Pivots, latencies: bool) -> Self {
        Self {
            workload,
            pivots,
            cells: vec![Vec::new(); workload.functions().len()],
            tree_cells: vec![Vec::new(); workload.call_trees() as usize],
            latency_bins: latencies.then(|| vec![Vec::new(); workload.latency_cells().len()]),
        }
    }

    fn key(&mut self, bins: &Bins, arrivals: &[u32], counts: &[u32]) -> KeyTable {
        let mut table = KeyTable::default();
        let mut by_bin: Vec<(u32, u32)> =
            arrivals.iter().map(|&arrival| (bins.bin(counts[arrival as usize]) as u32, arrival)).collect();
        by_bin.sort_unstable();
        for same_bin in by_bin.chunk_by(|a, b| a.0 == b.0) {
            let bin = table.sizes.len() as u32;
            let mut size = [0.0; 4];
            let mut inverse_squares = 0.0;
            for &(_, index) in same_bin {
                let arrival = &self.workload.arrivals()[index as usize];
                let trace = [1.0, f64::from(arrival.spans), arrival.bytes as f64, arrival.otlp_bytes as f64];
                size.iter_mut().zip(trace).for_each(|(sum, value)| *sum += value);
                inverse_squares += f64::from(counts[index as usize]).powi(-2);
                for calls in self.workload.calls(index as usize) {
                    match self.pivots.place(index, calls.function) {
                        Some(place) => table.pivots.push((place, bin)),
                        None => add(&mut self.cells[calls.function as usize], bin, calls),
                    }
                }
                if let Some(cells) = &mut self.latency_bins {
                    for calls in self.workload.latencies(index as usize) {
                        let squares = f64::from(calls.count).powi(2);
                        let bins = &mut cells[calls.cell as usize];
                        match bins.last_mut() {
                            Some(last) if last.bin == bin => last.squares += squares,
                            _ => bins.push(LatencyBin { bin, squares }),
                        }
                    }
                }
                let tree = &mut self.tree_cells[arrival.call_tree as usize];
                match tree.last_mut() {
                    Some(cell) if cell.bin == bin => cell.traces += 1.0,
                    _ => tree.push(TreeCell { bin, traces: 1.0 }),
                }
            }
            table.inverse_squares.push(inverse_squares / same_bin.len() as f64);
            table.sizes.push(size);
        }
        for bin in (1..table.sizes.len()).rev() {
            let later = table.sizes[bin];
            table.sizes[bin - 1].iter_mut().zip(later).for_each(|(sum, value)| *sum += value);
        }
        for (function, cells) in self.cells.iter_mut().enumerate().filter(|(_, cells)| !cells.is_empty()) {
            for cell in (1..cells.len()).rev() {
                let later = cells[cell].moments;
                cells[cell - 1].moments.iter_mut().zip(later).for_each(|(sum, value)| *sum += value);
            }
            table.functions.push((function as u32, table.cells.len() as u32));
            table.cells.append(cells);
        }
        for (tree, cells) in self.tree_cells.iter_mut().enumerate().filter(|(_, cells)| !cells.is_empty()) {
            for cell in (1..cells.len()).rev() {
                cells[cell - 1].traces += cells[cell].traces;
            }
            table.trees.push((tree as u32, table.tree_cells.len() as u32));
            table.tree_cells.append(cells);
        }
        let latency_bins = self.latency_bins.iter_mut().flatten().enumerate();
        for (cell, bins) in latency_bins.filter(|(_, bins)| !bins.is_empty()) {
            for bin in (1..bins.len()).rev() {
                bins[bin - 1].squares += bins[bin].squares;
            }
            table.latencies.push((cell as u32, table.latency_bins.len() as u32));
            table.latency_bins.append(bins);
        }
        table
    }
}

fn add(cells: &mut Vec<Cell>, bin: u32, calls: &Calls) {
    let (c, d, q) = (f64::from(calls.count), calls.deviation, calls.deviation_squared);
    let moments = [1.0, c, d, q, c * c, c * d, c * q, d * d, d * q, q * q];
    match cells.last_mut() {
        Some(cell) if cell.bin == bin => {
            cell.moments.iter_mut().zip(moments).for_each(|(sum, value)| *sum += value);
        }
        _ => cells.push(Cell { bin, moments }),
    }
}

impl KeyTable {
    /// The cells of the functions, one slice each.
    pub(crate) fn by_function(&self) -> impl Iterator<Item = (usize, &[Cell])> {
        slices(&self.functions, &self.cells)
    }

    /// The bins of the latency cells, one slice each.
    pub(crate) fn by_latency(&self) -> impl Iterator<Item = (usize, &[LatencyBin])> {
        slices(&self.latencies, &self.latency_bins)
    }

    /// The cells of the call trees, one slice each.
    pub(crate) fn by_tree(&self) -> impl Iterator<Item = (usize, &[TreeCell])> {
        slices(&self.trees, &self.tree_cells)
    }
}

fn slices<'t, T>(firsts: &'t [(u32, u32)], cells: &'t [T]) -> impl Iterator<Item = (usize, &'t [T])> {
    let ends = firsts.iter().skip(1).map(|&(_, first)| first as usize).chain([cells.len()]);
    firsts.iter().zip(ends).map(|(&(id, first), end)| (id as usize, &cells[first as usize..end]))
}
