//! A workload's sums for each (key, count), for windows (or a decay) of one length.
//!
//! Sums run from a bin to the last of its key (suffix sums). A sum of p(bin) * value(bin) is then a sum of
//! (p(bin) - p(bin before)) * suffix(bin), and ends at the first bin whose probability is the minimum: a candidate
//! with a small lambda visits a few bins of each key only.
//!
//! All keys lie one after the other in the same vectors: a recording with 100,000 keys takes as many entries, not as
//! many vectors.

use std::num::NonZeroU64;

use astracer_recording::stop::Pulse;

use super::Extras;
use super::by_key::ByKey;
use super::index::{Bins, Counting, counts_before};
use super::pivots::Pivots;
use crate::stop::Stop;
use crate::workload::{Calls, Workload};

/// The number of sums for each function and bin.
pub(crate) const MOMENTS: usize = 10;

/// Sums over the traces of one key in one bin and all later ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) bin: u32,
    /// With c the calls of the function in a trace, d and q the sums of their deviations and squared deviations: the
    /// sums over traces of 1, c, d, q, cc, cd, cq, dd, dq, qq.
    pub(crate) moments: [f64; MOMENTS],
}

/// The size of traces: how many, their spans, bytes and OTLP bytes.
pub(crate) type Size = [f64; 4];

/// The size of the traces in one bin and all later ones of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeCell {
    pub(crate) bin: u32,
    pub(crate) size: Size,
}

/// Traces of one call tree, or of one path kind, in one bin and all later ones of the key.
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

/// Cells in groups, one group for each of some ids: the cells of a group lie together, and so do a key's groups.
#[derive(Debug)]
struct Groups<C> {
    /// Each group's id and its first cell.
    groups: Vec<(u32, u32)>,
    cells: Vec<C>,
}

impl<C> Default for Groups<C> {
    fn default() -> Self {
        Self { groups: Vec::new(), cells: Vec::new() }
    }
}

impl<C> Groups<C> {
    fn slices(&self, groups: std::ops::Range<u32>) -> impl Iterator<Item = (usize, &[C])> {
        (groups.start as usize..groups.end as usize).map(|group| {
            let (id, first) = self.groups[group];
            let end = self.groups.get(group + 1).map_or(self.cells.len(), |next| next.1 as usize);
            (id as usize, &self.cells[first as usize..end])
        })
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.groups) + size_of_val(&*self.cells)
    }
}

/// Where a key's entries begin.
#[derive(Clone, Copy, Debug)]
struct Firsts {
    sizes: u32,
    functions: u32,
    trees: u32,
    latencies: u32,
    paths: u32,
    pivots: u32,
}

/// All keys.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// One entry a key, and one behind the last.
    keys: Vec<Firsts>,
    sizes: Vec<SizeCell>,
    functions: Groups<Cell>,
    trees: Groups<TreeCell>,
    /// Empty if latencies were not asked for.
    latencies: Groups<LatencyBin>,
    /// Empty if paths were not asked for.
    paths: Groups<TreeCell>,
    /// Places of pivots, each with its bin.
    pivots: Vec<(u32, u32)>,
}

/// One key of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyTable<'t> {
    table: &'t Table,
    from: Firsts,
    to: Firsts,
}

impl Table {
    /// `None` if asked to stop.
    pub(super) fn new(
        (workload, by_key): (&Workload, &ByKey),
        pivots: &Pivots,
        counts: (Counting, NonZeroU64, f64),
        extras: Extras,
        stop: Stop<'_>,
    ) -> Option<Self> {
        let (counting, length_ns, phase) = counts;
        let bins = Bins::of(counting);
        let mut pulse = stop.pulse();
        let counts = counts_before(workload, counting, length_ns, phase, &mut pulse)?;
        let mut builder = Builder::new(workload, pivots, extras);
        let mut binned = Vec::new();
        for arrivals in by_key.arrivals() {
            binned.clear();
            binned.extend(arrivals.iter().map(|&index| (bins.bin(counts[index as usize]) as u32, index)));
            if !pulse.sort_by_key(&mut binned, |&(bin, _)| bin) {
                return None;
            }
            builder.key(&binned, &mut pulse)?;
        }
        builder.table.keys.push(builder.table.firsts());
        Some(builder.table)
    }

    fn firsts(&self) -> Firsts {
        Firsts {
            sizes: self.sizes.len() as u32,
            functions: self.functions.groups.len() as u32,
            trees: self.trees.groups.len() as u32,
            latencies: self.latencies.groups.len() as u32,
            paths: self.paths.groups.len() as u32,
            pivots: self.pivots.len() as u32,
        }
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len().saturating_sub(1)
    }

    pub(crate) fn key(&self, key: usize) -> KeyTable<'_> {
        KeyTable { table: self, from: self.keys[key], to: self.keys[key + 1] }
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.keys)
            + size_of_val(&*self.sizes)
            + self.functions.bytes()
            + self.trees.bytes()
            + self.latencies.bytes()
            + self.paths.bytes()
            + size_of_val(&*self.pivots)
    }
}

impl<'t> KeyTable<'t> {
    /// The number of cells that a score visits, at most.
    pub(crate) fn cells(self) -> usize {
        let range = |from: u32, to: u32| (to - from) as usize;
        range(self.from.functions, self.to.functions)
            + range(self.from.trees, self.to.trees)
            + range(self.from.latencies, self.to.latencies)
            + range(self.from.pivots, self.to.pivots)
    }

    /// The sizes of the key's bins.
    pub(crate) fn sizes(self) -> &'t [SizeCell] {
        &self.table.sizes[self.from.sizes as usize..self.to.sizes as usize]
    }

    /// The cells of the functions, one slice each.
    pub(crate) fn by_function(self) -> impl Iterator<Item = (usize, &'t [Cell])> {
        self.table.functions.slices(self.from.functions..self.to.functions)
    }

    /// The bins of the latency cells, one slice each.
    pub(crate) fn by_latency(self) -> impl Iterator<Item = (usize, &'t [LatencyBin])> {
        self.table.latencies.slices(self.from.latencies..self.to.latencies)
    }

    /// The cells of the call trees, one slice each.
    pub(crate) fn by_tree(self) -> impl Iterator<Item = (usize, &'t [TreeCell])> {
        self.table.trees.slices(self.from.trees..self.to.trees)
    }

    /// The cells of the path kinds, one slice each.
    pub(crate) fn by_path(self) -> impl Iterator<Item = (usize, &'t [TreeCell])> {
        self.table.paths.slices(self.from.paths..self.to.paths)
    }

    /// Places of pivots that are the key's, each with its bin.
    pub(crate) fn pivots(self) -> &'t [(u32, u32)] {
        &self.table.pivots[self.from.pivots as usize..self.to.pivots as usize]
    }
}

/// Cells of the key at hand by id. Only ids that the key has are visited, so that a table's cost does not grow with keys
/// times ids.
struct Gathered<C> {
    by_id: Vec<Vec<C>>,
    touched: Vec<u32>,
}

impl<C> Gathered<C> {
    fn new(ids: usize) -> Self {
        Self { by_id: (0..ids).map(|_| Vec::new()).collect(), touched: Vec::new() }
    }

    fn of(&mut self, id: u32) -> &mut Vec<C> {
        let cells = &mut self.by_id[id as usize];
        if cells.is_empty() {
            self.touched.push(id);
        }
        cells
    }

    /// Moves the cells to a table, ascending by id, each with the sum of all later ones added by `add`.
    fn finish(&mut self, groups: &mut Groups<C>, add: impl Fn(&mut C, &C)) {
        self.touched.sort_unstable();
        for &id in &self.touched {
            let cells = &mut self.by_id[id as usize];
            for cell in (1..cells.len()).rev() {
                let (before, later) = cells.split_at_mut(cell);
                add(&mut before[cell - 1], &later[0]);
            }
            groups.groups.push((id, groups.cells.len() as u32));
            groups.cells.append(cells);
        }
        self.touched.clear();
    }
}

/// Working memory for one key after the other.
struct Builder<'w> {
    workload: &'w Workload,
    pivots: &'w Pivots,
    functions: Gathered<Cell>,
    trees: Gathered<TreeCell>,
    /// `None` if they are not wanted.
    latencies: Option<Gathered<LatencyBin>>,
    /// `None` if they are not wanted.
    paths: Option<Gathered<TreeCell>>,
    table: Table,
}

impl<'w> Builder<'w> {
    fn new(workload: &'w Workload, pivots: &'w Pivots, extras: Extras) -> Self {
        Self {
            workload,
            pivots,
            functions: Gathered::new(workload.functions().len()),
            trees: Gathered::new(workload.call_trees() as usize),
            latencies: extras.latencies.then(|| Gathered::new(workload.latency_cells().len())),
            paths: extras.paths.then(|| Gathered::new(workload.path_kinds().len())),
            table: Table::default(),
        }
    }

    /// Adds the next key, with its arrivals ascending by bin. `None` if asked to stop.
    fn key(&mut self, arrivals: &[(u32, u32)], pulse: &mut Pulse<'_>) -> Option<()> {
        self.table.keys.push(self.table.firsts());
        let first_size = self.table.sizes.len();
        for &(bin, index) in arrivals {
            if pulse.stopped_after(1 + self.workload.calls(index as usize).len()) {
                return None;
            }
            let arrival = &self.workload.arrivals()[index as usize];
            let size = [1.0, f64::from(arrival.spans), arrival.bytes as f64, arrival.otlp_bytes as f64];
            match self.table.sizes[first_size..].last_mut() {
                Some(last) if last.bin == bin => plus(&mut last.size, &size),
                _ => self.table.sizes.push(SizeCell { bin, size }),
            }
            for calls in self.workload.calls(index as usize) {
                match self.pivots.place(index, calls.function) {
                    Some(place) => self.table.pivots.push((place, bin)),
                    None => add(self.functions.of(calls.function), bin, calls),
                }
            }
            if let Some(latencies) = &mut self.latencies {
                for calls in self.workload.latencies(index as usize) {
                    let squares = f64::from(calls.count).powi(2);
                    let bins = latencies.of(calls.cell);
                    match bins.last_mut() {
                        Some(last) if last.bin == bin => last.squares += squares,
                        _ => bins.push(LatencyBin { bin, squares }),
                    }
                }
            }
            count(self.trees.of(arrival.call_tree), bin);
            if let Some(paths) = &mut self.paths {
                count(paths.of(arrival.path_kind), bin);
            }
        }
        let sizes = &mut self.table.sizes[first_size..];
        for cell in (1..sizes.len()).rev() {
            let later = sizes[cell].size;
            plus(&mut sizes[cell - 1].size, &later);
        }
        self.functions
            .finish(&mut self.table.functions, |cell, later| plus(&mut cell.moments, &later.moments));
        self.trees.finish(&mut self.table.trees, |cell, later| cell.traces += later.traces);
        if let Some(latencies) = &mut self.latencies {
            latencies.finish(&mut self.table.latencies, |cell, later| cell.squares += later.squares);
        }
        if let Some(paths) = &mut self.paths {
            paths.finish(&mut self.table.paths, |cell, later| cell.traces += later.traces);
        }
        Some(())
    }
}

fn plus<const N: usize>(sums: &mut [f64; N], values: &[f64; N]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

fn count(cells: &mut Vec<TreeCell>, bin: u32) {
    match cells.last_mut() {
        Some(cell) if cell.bin == bin => cell.traces += 1.0,
        _ => cells.push(TreeCell { bin, traces: 1.0 }),
    }
}

fn add(cells: &mut Vec<Cell>, bin: u32, calls: &Calls) {
    let (c, d, q) = (f64::from(calls.count), calls.deviation, calls.deviation_squared);
    let moments = [1.0, c, d, q, c * c, c * d, c * q, d * d, d * q, q * q];
    match cells.last_mut() {
        Some(cell) if cell.bin == bin => plus(&mut cell.moments, &moments),
        _ => cells.push(Cell { bin, moments }),
    }
}
