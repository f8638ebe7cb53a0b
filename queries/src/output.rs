//! The answer of a query: groups with their aggregates, in bounded memory.

use std::collections::BTreeMap;

use crate::aggregate::{Function, Given, State};
use crate::bag::{BRANCH_BITS, Bag};
use crate::bounded::{Absorb, Bounded};
use crate::entry::Limits;
use crate::nest::Nests;
use crate::plan::Plan;
use crate::point::Point;
use crate::spread::{Estimate, Spread};
use crate::value::Value;
use crate::why::{Traces, Why};

/// The tracepoints whose lost flows are counted by name.
const LOST: usize = 1000;

/// The bounds of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// Groups, or different rows. The smallest keys stay; the others become one row `(other)`, or
    /// are counted.
    pub groups: usize,
    /// Rows that are listed, with equal ones.
    pub rows: usize,
    /// Bytes of the columns of a group; a larger group is a part of `(other)`.
    pub key_bytes: usize,
}

impl Default for OutputLimits {
    fn default() -> Self {
        OutputLimits { groups: 10_000, rows: 100_000, key_bytes: 4096 }
    }
}

/// Options of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputOptions {
    /// Each trace counts as often as [`Point::weight`](crate::Point::weight) says.
    pub weights: bool,
    /// Each row names traces with its matches.
    pub traces: bool,
    /// The bounds of the bags.
    pub bags: Limits,
    /// The bounds of the answer.
    pub limits: OutputLimits,
    /// The seed of random branch numbers, for requests that cross processes. Without it branches
    /// are counted, which suffices for a request that one caller walks through.
    pub seed: Option<u64>,
}

impl Default for OutputOptions {
    fn default() -> Self {
        let (bags, limits) = (Limits::RECORDING, OutputLimits::default());
        OutputOptions { weights: false, traces: false, bags, limits, seed: None }
    }
}

/// The answer so far. Threads collect one each and merge them; the order makes no difference.
#[derive(Debug)]
pub struct Output {
    options: OutputOptions,
    columns: Vec<String>,
    positions: Vec<usize>,
    functions: Vec<Function>,
    keys: usize,
    listing: bool,
    table: Bounded<Total>,
    /// With weights: the rows of the current trace.
    trace: Bounded<Trace>,
    counts: Counts,
    branches: u64,
    /// The number of the trace of the current point, and whether its weight is known.
    of_trace: (u32, bool),
    /// The stage of the plan that runs, and what stages before have put below spans.
    pub(crate) stage: usize,
    pub(crate) nests: Nests,
    pub(crate) stack: Vec<Value>,
    key: Vec<Value>,
}

/// Events that an answer mentions.
#[derive(Clone, Debug, Default)]
struct Counts {
    emitted: i128,
    incomplete: i128,
    impossible: u64,
    flat: u64,
    dropped: u64,
    traces: u64,
    lost: BTreeMap<String, u64>,
}

impl Output {
    /// An empty answer.
    pub fn new(plan: &Plan, options: OutputOptions) -> Output {
        Output {
            options,
            columns: plan.columns.clone(),
            positions: plan.positions.clone(),
            functions: plan.functions.clone(),
            keys: plan.keys,
            listing: plan.listing,
            table: Bounded::default(),
            trace: Bounded::default(),
            counts: Counts::default(),
            branches: options.seed.unwrap_or(0),
            of_trace: (0, true),
            stage: 0,
            nests: Nests::default(),
            stack: Vec::new(),
            key: Vec::new(),
        }
    }

    /// The bag of a request that begins here.
    pub fn begin(&self) -> Bag {
        Bag::begin(self.options.bags)
    }

    /// The bag of a point whose causes are missing.
    pub fn lost(&self) -> Bag {
        Bag::lost(self.options.bags)
    }

    pub(crate) fn weighs(&self) -> bool {
        self.options.weights
    }

    /// The weight of a point, whose rows belong to its trace.
    pub(crate) fn weigh<P: Point + ?Sized>(&mut self, point: &P) -> f64 {
        self.of_trace = (point.trace_number(), point.is_weight_known());
        point.weight()
    }

    pub(crate) fn names_traces(&self) -> bool {
        self.options.traces
    }

    pub(crate) fn impossible(&mut self) -> &mut u64 {
        &mut self.counts.impossible
    }

    /// The number of a new branch.
    pub(crate) fn branch(&mut self) -> u64 {
        if self.options.seed.is_none() {
            self.branches += 1;
            return self.branches & ((1 << BRANCH_BITS) - 1);
        }
        // SplitMix64: Steele, Lea and Flood, OOPSLA 2014.
        self.branches = self.branches.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.branches ^ (self.branches >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) >> (64 - BRANCH_BITS)
    }

    pub(crate) fn lose(&mut self, tracepoint: &str) {
        if let Some(count) = self.counts.lost.get_mut(tracepoint) {
            *count += 1;
        } else if self.counts.lost.len() < LOST {
            self.counts.lost.insert(tracepoint.to_owned(), 1);
        } else {
            *self.counts.lost.entry("(other)".to_owned()).or_default() += 1;
        }
    }

    /// Adds a row, `count` times.
    pub(crate) fn emit<'a>(
        &mut self,
        key: impl Iterator<Item = &'a Value>,
        given: impl Iterator<Item = Given<'a>> + Clone,
        count: i128,
        weight: f64,
        incomplete: bool,
        trace: Option<&Value>,
    ) {
        self.counts.emitted = self.counts.emitted.saturating_add(count);
        if incomplete {
            self.counts.incomplete = self.counts.incomplete.saturating_add(count);
        }
        let mut values = std::mem::take(&mut self.key);
        values.clear();
        values.extend(key.cloned().map(|value| if self.listing { value } else { value.into_key() }));
        let long = values.iter().map(Value::size).sum::<usize>() > self.options.limits.key_bytes;
        let functions = &self.functions;
        let start = || functions.iter().map(|function| function.start()).collect::<Vec<_>>();
        let impossible = &mut self.counts.impossible;
        let mut add = |states: &mut Vec<State>| {
            for (state, given) in states.iter_mut().zip(given.clone()) {
                match given {
                    Given::Row => state.add_row(count),
                    Given::Value(value) => *impossible += u64::from(!state.add(value, count)),
                    Given::Partial(partial, times) => state.merge(partial, times),
                }
            }
        };
        let limit = self.options.limits.groups;
        if self.options.weights && !self.listing {
            let group = self.trace.group(&values, long, limit, Trace::default);
            group.count = group.count.saturating_add(count);
            if let Some(trace) = trace {
                group.traces.get_or_insert_default().add(trace, functions, given.clone());
            }
            let (number, is_known) = self.of_trace;
            group.is_unknown |= !is_known;
            add(group.parts.entry((number, weight.to_bits())).or_insert_with(start));
        } else {
            let group = self.table.group(&values, long, limit, || Total::new(start()));
            group.count = group.count.saturating_add(count);
            if let Some(trace) = trace {
                group.traces.get_or_insert_default().add(trace, functions, given.clone());
            }
            add(&mut group.states);
        }
        self.key = values;
    }

    /// Begins a stage of the plan, which visits the points of the current trace again. Traces begin
    /// with stage 0.
    pub fn begin_stage(&mut self, stage: usize) {
        self.stage = stage;
    }

    pub(crate) fn limits(&self) -> Limits {
        self.options.bags
    }

    /// Notes a point whose rows ask for what is below it, although it is not of a span.
    pub(crate) fn note_flat(&mut self) {
        self.counts.flat += 1;
    }

    /// Ends a trace: its rows become one term of an estimate, and branches are counted anew.
    pub fn end_trace(&mut self) {
        self.counts.traces += 1;
        self.stage = 0;
        self.counts.dropped += self.nests.dropped();
        self.nests.clear();
        if self.options.seed.is_none() {
            self.branches = 0;
        }
        if self.trace.is_empty() {
            return;
        }
        let trace = std::mem::take(&mut self.trace);
        let (limit, functions) = (self.options.limits.groups, &self.functions);
        let total = || Total::new(functions.iter().map(|function| function.start()).collect());
        if let Some(other) = trace.other {
            self.table.group(&[], true, limit, total).add(other);
        }
        for (key, group) in trace.groups {
            self.table.group(&key, false, limit, total).add(group);
        }
    }

    /// Adds the answer of another thread.
    pub fn merge(&mut self, mut other: Output) {
        other.end_open_trace();
        self.end_open_trace();
        let limit = self.options.limits.groups;
        self.table.merge(other.table, limit);
        self.counts.emitted = self.counts.emitted.saturating_add(other.counts.emitted);
        self.counts.incomplete = self.counts.incomplete.saturating_add(other.counts.incomplete);
        self.counts.impossible += other.counts.impossible;
        self.counts.flat += other.counts.flat;
        self.counts.dropped += other.counts.dropped;
        self.counts.traces += other.counts.traces;
        for (name, count) in other.counts.lost {
            *self.counts.lost.entry(name).or_default() += count;
        }
    }

    fn end_open_trace(&mut self) {
        if !self.trace.is_empty() {
            self.end_trace();
            self.counts.traces -= 1;
        }
    }

    /// The answer.
    pub fn finish(mut self) -> Table {
        self.end_open_trace();
        let limit = self.options.limits.groups;
        self.table.trim(limit);
        let mut table = Table {
            estimates: (self.options.weights && !self.listing).then(Vec::new),
            emitted: clamp(self.counts.emitted),
            incomplete_rows: clamp(self.counts.incomplete),
            impossible: self.counts.impossible,
            flat: self.counts.flat,
            dropped: self.counts.dropped,
            lost: std::mem::take(&mut self.counts.lost),
            traces: self.counts.traces,
            ..Table::default()
        };
        table.columns = std::mem::take(&mut self.columns);
        let function = |position: &usize| self.functions.get(position.wrapping_sub(self.keys));
        table.ratios = self.positions.iter().map(|at| function(at) == Some(&Function::Average)).collect();
        if self.listing {
            self.list(&mut table);
        } else {
            self.aggregate(&mut table);
        }
        if table.seen.iter().all(Option::is_none) {
            table.seen.clear();
        }
        table.sort();
        table
    }

    /// The rows of a query without aggregates.
    fn list(&self, table: &mut Table) {
        let mut groups: Vec<_> = self.table.groups.iter().collect();
        groups.sort_by(|one, two| one.0.cmp(two.0));
        let mut left_out = self.table.other.as_ref().map_or(0, |other| other.count);
        for (key, group) in groups {
            let room = self.options.limits.rows.saturating_sub(table.rows.len());
            let shown = usize::try_from(group.count).unwrap_or(usize::MAX).min(room);
            let row: Vec<Value> = self
                .positions
                .iter()
                .map(|&position| key.get(position).cloned().unwrap_or_default())
                .collect();
            table.rows.extend(std::iter::repeat_n(row, shown));
            if let Some(traces) = &group.traces {
                table.why.extend(std::iter::repeat_n(traces.of_row(&self.positions, self.keys), shown));
            }
            left_out = left_out.saturating_add(group.count - shown as i128);
        }
        table.left_out = clamp(left_out);
    }

    /// The rows of a query with aggregates.
    fn aggregate(&self, table: &mut Table) {
        let other = vec![Value::from("(other)"); self.keys];
        let groups = self.table.groups.iter().map(|(key, group)| (&**key, group, true));
        let rest = self.table.other.iter().map(|group| (&*other, group, false));
        table.other = self.table.other.is_some();
        // Without groups, a count of nothing is 0. Other aggregates of nothing have no row.
        let nothing = Total::new(self.functions.iter().map(|function| function.start()).collect());
        let counts = |function: &Function| matches!(function, Function::Count | Function::Distinct);
        let is_nothing = self.keys == 0 && self.table.is_empty() && self.functions.iter().all(counts);
        let nothing = is_nothing.then_some((&[][..], &nothing, true));
        for (key, group, known) in groups.chain(rest).chain(nothing) {
            let mut row = Vec::new();
            let mut estimates = Vec::new();
            let is_unknown = self.options.weights && !group.weighted && group.count > 0;
            for &position in &self.positions {
                let fold = position.wrapping_sub(self.keys);
                let value = match (key.get(position), self.functions.get(fold), group.states.get(fold)) {
                    (Some(value), ..) => value.clone(),
                    (None, Some(function), Some(_)) if is_unknown && function.is_weighted() => Value::Null,
                    (None, Some(function), Some(state)) => state.finish(*function),
                    _ => Value::Null,
                };
                table.cut_counts += u64::from(group.states.get(fold).is_some_and(State::is_cut));
                let spread = group.spreads.get(fold).filter(|_| known && !is_unknown);
                let parts = self.functions.get(fold).zip(group.states.get(fold)).zip(spread);
                estimates
                    .push(parts.and_then(|((function, state), spread)| state.estimate(*function, spread)));
                row.push(value);
            }
            table.rows.push(row);
            if self.options.traces {
                let why = group.traces.as_ref().map(|traces| traces.of_row(&self.positions, self.keys));
                table.why.push(why.unwrap_or_default());
            }
            table.seen.push(is_unknown.then(|| clamp(group.count)));
            if let Some(all) = &mut table.estimates {
                all.push(estimates);
            }
        }
    }
}

fn clamp(number: i128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// A group of the answer.
#[derive(Debug)]
struct Total {
    count: i128,
    /// With weights: whether a row has one.
    weighted: bool,
    states: Vec<State>,
    /// With weights: the spread of each aggregate.
    spreads: Vec<Spread>,
    traces: Option<Box<Traces>>,
}

impl Total {
    fn new(states: Vec<State>) -> Total {
        Total { count: 0, weighted: false, states, spreads: Vec::new(), traces: None }
    }

    /// Adds a trace's rows.
    fn add(&mut self, trace: Trace) {
        self.spreads.resize_with(self.states.len(), Spread::default);
        self.count = self.count.saturating_add(trace.count);
        merge_traces(&mut self.traces, trace.traces);
        for (&(_, weight), states) in &trace.parts {
            let weight = f64::from_bits(weight);
            self.weighted |= weight > 0.0;
            for (state, more) in self.states.iter_mut().zip(states) {
                state.merge_weighted(more, weight);
            }
        }
        let parts: Vec<_> = trace.parts.iter().collect();
        for parts in parts.chunk_by(|(one, _), (other, _)| one.0 == other.0) {
            for (index, spread) in self.spreads.iter_mut().enumerate() {
                let part = |&(&(_, weight), states): &(&(u32, u64), &Vec<State>)| {
                    (f64::from_bits(weight), states[index].parts())
                };
                spread.add(parts.iter().map(part));
            }
        }
        if trace.is_unknown {
            self.spreads.iter_mut().for_each(Spread::note_unknown);
        }
    }
}

impl Absorb for Total {
    fn absorb(&mut self, other: Total) {
        self.count = self.count.saturating_add(other.count);
        self.weighted |= other.weighted;
        merge_traces(&mut self.traces, other.traces);
        for (state, more) in self.states.iter_mut().zip(&other.states) {
            state.merge(more, 1);
        }
        if self.spreads.len() < other.spreads.len() {
            self.spreads.resize_with(other.spreads.len(), Spread::default);
        }
        for (spread, more) in self.spreads.iter_mut().zip(&other.spreads) {
            spread.merge(more);
        }
    }
}

fn merge_traces(own: &mut Option<Box<Traces>>, more: Option<Box<Traces>>) {
    if let Some(more) = more {
        own.get_or_insert_default().merge(*more);
    }
}

/// A group's rows of one trace, by their weight.
#[derive(Debug, Default)]
struct Trace {
    count: i128,
    traces: Option<Box<Traces>>,
    /// Whether a trace's weight is not known.
    is_unknown: bool,
    /// By the number of the trace and the bits of the weight.
    parts: BTreeMap<(u32, u64), Vec<State>>,
}

impl Absorb for Trace {
    fn absorb(&mut self, other: Trace) {
        self.count = self.count.saturating_add(other.count);
        merge_traces(&mut self.traces, other.traces);
        self.is_unknown |= other.is_unknown;
        for (part, states) in other.parts {
            match self.parts.get_mut(&part) {
                Some(known) => {
                    known.iter_mut().zip(&states).for_each(|(state, more)| state.merge(more, 1));
                }
                None => drop(self.parts.insert(part, states)),
            }
        }
    }
}

/// The answer of a query.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Table {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows, in the order of their JSON text.
    pub rows: Vec<Vec<Value>>,
    /// With weights: the error of each COUNT, SUM, AVERAGE and QUANTILE.
    pub estimates: Option<Vec<Vec<Option<Estimate>>>>,
    /// With weights: for each row the number of rows seen, if none of them has a weight because
    /// all were kept late. Its estimates are null. Else empty.
    pub seen: Vec<Option<u64>>,
    /// With [`OutputOptions::traces`]: traces behind each row. Else empty.
    pub why: Vec<Why>,
    /// Whether a column is an AVERAGE: with weights a ratio of two estimates, not unbiased.
    pub ratios: Vec<bool>,
    /// Rows of a listing beyond its bounds.
    pub left_out: u64,
    /// Whether there were more groups than the bound, so that a row `(other)` has the rest.
    pub other: bool,
    /// Rows that the query found, before they were grouped.
    pub emitted: u64,
    /// Emitted rows from bags that had reached a bound.
    pub incomplete_rows: u64,
    /// Values of COUNT DISTINCT that are larger than is counted.
    pub cut_counts: u64,
    /// Operations that were impossible, such as a sum of words. They gave null.
    pub impossible: u64,
    /// Points that are not of a span, at which the query asks for what is below: there is nothing.
    pub flat: u64,
    /// Rows below spans beyond the bound of a trace, which no point joined.
    pub dropped: u64,
    /// Points whose causes are missing, at which the query joins; by tracepoint.
    pub lost: BTreeMap<String, u64>,
    /// Traces.
    pub traces: u64,
}

impl Table {
    fn sort(&mut self) {
        let text = |row: &[Value]| {
            let mut text = String::from("[");
            for value in row {
                value.write_json(&mut text);
                text.push(',');
            }
            text
        };
        let mut order: Vec<(String, usize)> =
            self.rows.iter().enumerate().map(|(index, row)| (text(row), index)).collect();
        order.sort();
        self.rows = order.iter().map(|(_, index)| std::mem::take(&mut self.rows[*index])).collect();
        if !self.seen.is_empty() {
            self.seen = order.iter().map(|(_, index)| self.seen[*index]).collect();
        }
        if !self.why.is_empty() {
            self.why = order.iter().map(|(_, index)| std::mem::take(&mut self.why[*index])).collect();
        }
        if let Some(estimates) = &mut self.estimates {
            *estimates = order.iter().map(|(_, index)| std::mem::take(&mut estimates[*index])).collect();
        }
    }
}
