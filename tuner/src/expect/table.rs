//! A workload's sums for each (key, count), for windows or half-lives of one length.
//!
//! Sums run from a bin to the last one of its key (suffix sums). A sum of p(bin) * value(bin) is
//! then a sum of (p(bin) - p(previous bin)) * suffix(bin), which can end at the first bin whose
//! probability is the minimum. So a candidate with a small lambda visits only a few bins of each
//! key.
//!
//! All keys share the same vectors, one after the other: a recording with 100,000 keys needs as
//! many entries, but not as many vectors.

use std::hint::black_box;
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

/// Sums over the traces of one key, in one bin and all later ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) bin: u32,
    /// The sums over traces of 1, c, d, q, cc, cd, cq, dd, dq, qq, where c is the number of calls
    /// of the function in a trace, and d and q are the sums of their deviations and squared
    /// deviations.
    pub(crate) moments: [f64; MOMENTS],
}

/// The size of traces: their number, spans, bytes and OTLP bytes.
pub(crate) type Size = [f64; 4];

/// The size of the key's traces in one bin and all later ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeCell {
    pub(crate) bin: u32,
    pub(crate) size: Size,
}

/// The number of the key's traces with one call tree or path kind, in one bin and all later ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeCell {
    pub(crate) bin: u32,
    pub(crate) traces: f64,
}

/// The call trees that more than one trace has. A call tree with a single trace needs no entry of
/// its own: it is found if the trace is kept.
#[derive(Debug)]
pub(super) struct SharedTrees {
    /// For each call tree, its number among those with several traces, or [`NONE`].
    numbers: Vec<u32>,
    len: usize,
}

impl SharedTrees {
    /// `None` if asked to stop.
    pub(super) fn new(workload: &Workload, pulse: &mut Pulse<'_>) -> Option<Self> {
        let mut traces = vec![0u32; workload.call_trees() as usize];
        for arrival in workload.arrivals() {
            traces[arrival.call_tree as usize] += 1;
            if pulse.stopped() {
                return None;
            }
        }
        let mut len = 0;
        let number = |traces: u32| {
            let number = if traces > 1 { len } else { NONE };
            len += u32::from(traces > 1);
            number
        };
        let numbers = traces.into_iter().map(number).collect();
        Some(Self { numbers, len: len as usize })
    }

    /// The number of call trees with several traces.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Calls of one function with durations in one bucket, in one bin and all later ones of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatencyBin {
    pub(crate) bin: u32,
    /// The sum over traces of the squared number of calls.
    pub(crate) squares: f64,
}

/// Cells grouped by id. The cells of a group are contiguous, and so are the groups of a key.
#[derive(Debug)]
struct Groups<C> {
    /// Each group's id and the index of its first cell.
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
            (self.groups[group].0 as usize, &self.cells[self.first(group)..self.first(group + 1)])
        })
    }

    /// The index of a group's first cell, or the end of all cells for an index past the last group.
    fn first(&self, group: usize) -> usize {
        self.groups.get(group).map_or(self.cells.len(), |&(_, first)| first as usize)
    }

    /// The number of cells in a range of groups.
    fn count(&self, groups: std::ops::Range<u32>) -> usize {
        self.first(groups.end as usize) - self.first(groups.start as usize)
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.groups) + size_of_val(&*self.cells)
    }
}

/// The indices of a key's first entries.
#[derive(Clone, Copy, Debug)]
struct Firsts {
    sizes: u32,
    functions: u32,
    trees: u32,
    lone_trees: u32,
    latencies: u32,
    paths: u32,
    pivots: u32,
}

/// The sums of all keys.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// One entry per key, and one for the end.
    keys: Vec<Firsts>,
    sizes: Vec<SizeCell>,
    functions: Groups<Cell>,
    /// Call trees with several traces.
    trees: Groups<TreeCell>,
    /// All other call trees together.
    lone_trees: Vec<TreeCell>,
    /// Empty unless latencies were requested.
    latencies: Groups<LatencyBin>,
    /// Empty unless paths were requested.
    paths: Groups<TreeCell>,
    /// Indices of pivots, each with its bin.
    pivots: Vec<(u32, u32)>,
}

/// The sums of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyTable<'t> {
    table: &'t Table,
    from: Firsts,
    to: Firsts,
}

impl Table {
    /// Builds a table for each length; `None` if asked to stop.
    ///
    /// All tables are built key by key, so that a key's traces are read from main memory once and
    /// from a cache afterwards.
    pub(super) fn of_lengths(
        (workload, by_key, trees): (&Workload, &ByKey, &SharedTrees),
        pivots: &Pivots,
        (counting, lengths_ns, phase): (Counting, &[NonZeroU64], f64),
        extras: Extras,
        stop: Stop<'_>,
    ) -> Option<Vec<Self>> {
        let bins = Bins::of(counting);
        let mut pulse = stop.pulse();
        let bins_of = |&length_ns: &NonZeroU64| {
            let counts = counts_before(workload, counting, length_ns, phase, &mut pulse)?;
            // There are at most some 350 bins.
            Some(counts.into_iter().map(|count| bins.bin(count) as u16).collect())
        };
        let bins_of: Vec<Vec<u16>> = lengths_ns.iter().map(bins_of).collect::<Option<_>>()?;
        let mut tables: Vec<Self> = lengths_ns.iter().map(|_| Self::default()).collect();
        let mut builder = Builder::new((workload, trees), pivots, extras);
        let mut sorting = Sorting::default();
        for arrivals in by_key.arrivals() {
            for (table, bin_of) in tables.iter_mut().zip(&bins_of) {
                let bin = |&index: &u32| (u32::from(bin_of[index as usize]), index);
                let sorted = sorting.sorted(arrivals.iter().map(bin), bins.len(), &mut pulse)?;
                builder.key(table, sorted, &mut pulse)?;
            }
        }
        tables.iter_mut().for_each(|table| table.keys.push(table.firsts()));
        Some(tables)
    }

    fn firsts(&self) -> Firsts {
        Firsts {
            sizes: self.sizes.len() as u32,
            functions: self.functions.groups.len() as u32,
            trees: self.trees.groups.len() as u32,
            lone_trees: self.lone_trees.len() as u32,
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

    /// The memory that the table takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.keys)
            + size_of_val(&*self.sizes)
            + self.functions.bytes()
            + self.trees.bytes()
            + size_of_val(&*self.lone_trees)
            + self.latencies.bytes()
            + self.paths.bytes()
            + size_of_val(&*self.pivots)
    }
}

impl<'t> KeyTable<'t> {
    /// An upper bound on the number of cells that a score visits.
    pub(crate) fn cells(self) -> usize {
        let table = self.table;
        self.sizes().len()
            + table.functions.count(self.from.functions..self.to.functions)
            + table.trees.count(self.from.trees..self.to.trees)
            + self.lone_trees().len()
            + table.latencies.count(self.from.latencies..self.to.latencies)
            + table.paths.count(self.from.paths..self.to.paths)
            + self.pivots().len()
    }

    /// The sizes of the key's traces, by bin.
    pub(crate) fn sizes(self) -> &'t [SizeCell] {
        &self.table.sizes[self.from.sizes as usize..self.to.sizes as usize]
    }

    /// The cells of each function.
    pub(crate) fn by_function(self) -> impl Iterator<Item = (usize, &'t [Cell])> {
        self.table.functions.slices(self.from.functions..self.to.functions)
    }

    /// The bins of each latency cell.
    pub(crate) fn by_latency(self) -> impl Iterator<Item = (usize, &'t [LatencyBin])> {
        self.table.latencies.slices(self.from.latencies..self.to.latencies)
    }

    /// Call trees with a single trace, by the bins of these traces.
    pub(crate) fn lone_trees(self) -> &'t [TreeCell] {
        &self.table.lone_trees[self.from.lone_trees as usize..self.to.lone_trees as usize]
    }

    /// The cells of each other call tree, with its number in [`SharedTrees`].
    pub(crate) fn by_tree(self) -> impl Iterator<Item = (usize, &'t [TreeCell])> {
        self.table.trees.slices(self.from.trees..self.to.trees)
    }

    /// The cells of each path kind.
    pub(crate) fn by_path(self) -> impl Iterator<Item = (usize, &'t [TreeCell])> {
        self.table.paths.slices(self.from.paths..self.to.paths)
    }

    /// The indices of the key's pivots, each with its bin.
    pub(crate) fn pivots(self) -> &'t [(u32, u32)] {
        &self.table.pivots[self.from.pivots as usize..self.to.pivots as usize]
    }
}

/// Working memory that sorts each key's arrivals by bin.
#[derive(Default)]
struct Sorting {
    binned: Vec<(u32, u32)>,
    sorted: Vec<(u32, u32)>,
    /// For each bin, the index of its next arrival.
    next: Vec<u32>,
}

impl Sorting {
    /// Sorts arrivals by bin; arrivals in the same bin stay in order. `None` if asked to stop.
    fn sorted(
        &mut self,
        arrivals: impl Iterator<Item = (u32, u32)>,
        bins: usize,
        pulse: &mut Pulse<'_>,
    ) -> Option<&[(u32, u32)]> {
        self.binned.clear();
        self.binned.extend(arrivals);
        if self.binned.len() < bins {
            // With 100,000 keys, most have a call or two, and visiting every bin would take longer
            // than a plain sort.
            self.binned.sort_by_key(|&(bin, _)| bin);
            return Some(&self.binned);
        }
        self.next.clear();
        self.next.resize(bins + 1, 0);
        for &(bin, _) in &self.binned {
            self.next[bin as usize + 1] += 1;
        }
        for bin in 1..=bins {
            self.next[bin] += self.next[bin - 1];
        }
        self.sorted.clear();
        self.sorted.resize(self.binned.len(), (0, 0));
        for &arrival in &self.binned {
            let next = &mut self.next[arrival.0 as usize];
            self.sorted[*next as usize] = arrival;
            *next += 1;
            if pulse.stopped() {
                return None;
            }
        }
        Some(&self.sorted)
    }
}

/// Cells of the current key, by id. Only ids that the key has are visited, so a table's cost does
/// not grow with keys times ids. All cells share one vector, so 100,000 call trees do not need
/// 100,000 vectors.
struct Gathered<C> {
    /// In order of creation, each with the index of the next cell of the same id, or [`NONE`].
    cells: Vec<(C, u32)>,
    /// For each id, the indices of its first and last cell, or [`NONE`].
    ends: Vec<(u32, u32)>,
    touched: Vec<u32>,
}

const NONE: u32 = u32::MAX;
/// The number of traces prefetched together.
const FETCHED: usize = 16;

impl<C: Copy> Gathered<C> {
    fn new(ids: usize) -> Self {
        Self { cells: Vec::new(), ends: vec![(NONE, NONE); ids], touched: Vec::new() }
    }

    /// Calls `change` on an id's last cell. If there is none, or if `change` returns false, appends
    /// the cell from `new`.
    fn add(&mut self, id: u32, change: impl FnOnce(&mut C) -> bool, new: impl FnOnce() -> C) {
        let place = self.cells.len() as u32;
        let (first, last) = &mut self.ends[id as usize];
        if *last == NONE {
            (*first, *last) = (place, place);
            self.touched.push(id);
        } else {
            let (cell, next) = &mut self.cells[*last as usize];
            if change(cell) {
                return;
            }
            (*next, *last) = (place, place);
        }
        self.cells.push((new(), NONE));
    }

    /// Moves the cells to `groups`, ascending by id. `add` turns them into suffix sums: each cell
    /// gets the sum of all later ones added.
    fn finish(&mut self, groups: &mut Groups<C>, add: impl Fn(&mut C, &C)) {
        self.touched.sort_unstable();
        for &id in &self.touched {
            let first = groups.cells.len();
            let (mut place, _) = std::mem::replace(&mut self.ends[id as usize], (NONE, NONE));
            while let Some((cell, next)) = self.cells.get(place as usize) {
                groups.cells.push(*cell);
                place = *next;
            }
            let cells = &mut groups.cells[first..];
            for cell in (1..cells.len()).rev() {
                let (before, later) = cells.split_at_mut(cell);
                add(&mut before[cell - 1], &later[0]);
            }
            groups.groups.push((id, first as u32));
        }
        self.touched.clear();
        self.cells.clear();
    }
}

/// Working memory, reused from one key to the next.
struct Builder<'w> {
    workload: &'w Workload,
    pivots: &'w Pivots,
    shared_trees: &'w SharedTrees,
    functions: Gathered<Cell>,
    trees: Gathered<TreeCell>,
    /// `None` unless requested.
    latencies: Option<Gathered<LatencyBin>>,
    /// `None` unless requested.
    paths: Option<Gathered<TreeCell>>,
}

impl<'w> Builder<'w> {
    fn new(
        (workload, shared_trees): (&'w Workload, &'w SharedTrees),
        pivots: &'w Pivots,
        extras: Extras,
    ) -> Self {
        Self {
            workload,
            pivots,
            shared_trees,
            functions: Gathered::new(workload.functions().len()),
            trees: Gathered::new(shared_trees.len()),
            latencies: extras.latencies.then(|| Gathered::new(workload.latency_cells().len())),
            paths: extras.paths.then(|| Gathered::new(workload.path_kinds().len())),
        }
    }

    /// Prefetches some traces, which are far apart in memory. The sums have to wait for each read,
    /// but these reads do not depend on each other: all of them together take little longer than
    /// one.
    fn fetch(&self, arrivals: &[(u32, u32)]) {
        let calls = |&(_, index): &(u32, u32)| self.workload.calls(index as usize);
        black_box(arrivals.iter().flat_map(calls).fold(0, |all, calls| all ^ calls.count));
    }

    /// Appends the next key to a table. `arrivals` must be sorted by bin. `None` if asked to stop.
    fn key(&mut self, table: &mut Table, arrivals: &[(u32, u32)], pulse: &mut Pulse<'_>) -> Option<()> {
        table.keys.push(table.firsts());
        let (first_size, first_lone) = (table.sizes.len(), table.lone_trees.len());
        let mut fetched = 0;
        for (place, &(bin, index)) in arrivals.iter().enumerate() {
            if place == fetched {
                fetched = (place + FETCHED).min(arrivals.len());
                self.fetch(&arrivals[place..fetched]);
            }
            if pulse.stopped_after(1 + self.workload.calls(index as usize).len()) {
                return None;
            }
            let arrival = &self.workload.arrivals()[index as usize];
            let size = [1.0, f64::from(arrival.spans), arrival.bytes as f64, arrival.otlp_bytes as f64];
            match table.sizes[first_size..].last_mut() {
                Some(last) if last.bin == bin => plus(&mut last.size, &size),
                _ => table.sizes.push(SizeCell { bin, size }),
            }
            let pivots = self.pivots.of_arrival(index);
            for calls in self.workload.calls(index as usize) {
                match pivots.place(calls.function) {
                    Some(place) => table.pivots.push((place, bin)),
                    None => add(&mut self.functions, bin, calls),
                }
            }
            if let Some(latencies) = &mut self.latencies {
                for calls in self.workload.latencies(index as usize) {
                    let squares = f64::from(calls.count).powi(2);
                    let add = |last: &mut LatencyBin| {
                        let is_same = last.bin == bin;
                        last.squares += if is_same { squares } else { 0.0 };
                        is_same
                    };
                    latencies.add(calls.cell, add, || LatencyBin { bin, squares });
                }
            }
            match self.shared_trees.numbers[arrival.call_tree as usize] {
                NONE => match table.lone_trees[first_lone..].last_mut() {
                    Some(last) if last.bin == bin => last.traces += 1.0,
                    _ => table.lone_trees.push(TreeCell { bin, traces: 1.0 }),
                },
                number => count(&mut self.trees, number, bin),
            }
            if let Some(paths) = &mut self.paths {
                count(paths, arrival.path_kind, bin);
            }
        }
        let sizes = &mut table.sizes[first_size..];
        for cell in (1..sizes.len()).rev() {
            let later = sizes[cell].size;
            plus(&mut sizes[cell - 1].size, &later);
        }
        let lone = &mut table.lone_trees[first_lone..];
        for cell in (1..lone.len()).rev() {
            lone[cell - 1].traces += lone[cell].traces;
        }
        self.functions.finish(&mut table.functions, |cell, later| plus(&mut cell.moments, &later.moments));
        self.trees.finish(&mut table.trees, |cell, later| cell.traces += later.traces);
        if let Some(latencies) = &mut self.latencies {
            latencies.finish(&mut table.latencies, |cell, later| cell.squares += later.squares);
        }
        if let Some(paths) = &mut self.paths {
            paths.finish(&mut table.paths, |cell, later| cell.traces += later.traces);
        }
        Some(())
    }
}

fn plus<const N: usize>(sums: &mut [f64; N], values: &[f64; N]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

fn count(gathered: &mut Gathered<TreeCell>, id: u32, bin: u32) {
    let add = |last: &mut TreeCell| {
        let is_same = last.bin == bin;
        last.traces += if is_same { 1.0 } else { 0.0 };
        is_same
    };
    gathered.add(id, add, || TreeCell { bin, traces: 1.0 });
}

fn add(gathered: &mut Gathered<Cell>, bin: u32, calls: &Calls) {
    let (c, d, q) = (f64::from(calls.count), calls.deviation, calls.deviation_squared);
    let moments = [1.0, c, d, q, c * c, c * d, c * q, d * d, d * q, q * q];
    let add = |last: &mut Cell| {
        let is_same = last.bin == bin;
        if is_same {
            plus(&mut last.moments, &moments);
        }
        is_same
    };
    gathered.add(calls.function, add, || Cell { bin, moments });
}

#[cfg(test)]
mod tests;
