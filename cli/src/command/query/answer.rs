//! An answer as JSON, and what is missing in it.

use std::collections::BTreeMap;

use astracer_ask::Answer;
use astracer_causality::shifts::SpanClock;
use astracer_queries::{Estimate, Fault, Table, Value};
use serde::{Serialize, Serializer};

use crate::load::ProblemCount;
use crate::output::{escaped, measure};

/// Examples of a problem, as elsewhere.
const EXAMPLES: usize = crate::load::EXAMPLES;

/// Values in the shape of the rows.
type Cells<T> = Vec<Vec<Option<T>>>;

/// The JSON object.
#[derive(Serialize)]
pub(super) struct Json<'a> {
    columns: &'a [String],
    rows: Vec<Vec<Cell<'a>>>,
    errors: Option<Cells<f64>>,
    /// The ends of 95 % intervals, null where nothing bounds them.
    intervals: Option<Cells<[Option<f64>; 2]>>,
    /// The row and column of each estimate of whose variance one trace makes up a third.
    of_one_trace: Vec<[usize; 2]>,
    why: Option<Vec<Why<'a>>>,
    /// With weights: rows seen of each group of which none has a weight.
    seen: &'a [Option<u64>],
    traces: u64,
    unweighted_traces: u64,
    incomplete_rows: u64,
    /// COUNT DISTINCTs that reached the most that is counted.
    cut_counts: u64,
    /// Parts of the query that hardly mean what was meant.
    hints: Vec<String>,
    /// The clocks that were found to be off, by how much, and within which error.
    clocks: Vec<Clock<'a>>,
    problems: Vec<&'a ProblemCount>,
}

#[derive(Serialize)]
struct Clock<'a> {
    host: &'a str,
    reference: &'a str,
    ahead_ns: i64,
    within_ns: Option<u64>,
}

/// Traces behind a row.
#[derive(Serialize)]
struct Why<'a> {
    traces: Vec<Cell<'a>>,
    /// By the name of a MIN or MAX, the trace that it is in.
    extremes: BTreeMap<&'a str, Cell<'a>>,
}

struct Cell<'a>(&'a Value);

impl Serialize for Cell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Int(number) => match i64::try_from(*number) {
                Ok(number) => serializer.serialize_i64(number),
                Err(_) => serializer.serialize_i128(*number),
            },
            Value::Float(number) if number.is_finite() => serializer.serialize_f64(*number),
            // JSON has no infinite numbers.
            Value::Float(_) => serializer.serialize_unit(),
            Value::Text(text) => serializer.serialize_str(text),
        }
    }
}

pub(super) fn json<'a>(
    answer: &'a Answer,
    input: &'a [ProblemCount],
    found: &'a [ProblemCount],
    hints: &[Fault],
) -> Json<'a> {
    let table = &answer.table;
    Json {
        columns: &table.columns,
        rows: table.rows.iter().map(|row| row.iter().map(Cell).collect()).collect(),
        errors: estimates(table, |estimate| estimate.error),
        intervals: estimates(table, |estimate| Some([estimate.low, estimate.high])),
        of_one_trace: of_one_trace(table),
        why: (!table.why.is_empty()).then(|| why(table)),
        seen: &table.seen,
        traces: table.traces,
        unweighted_traces: answer.unweighted_traces,
        incomplete_rows: table.incomplete_rows,
        cut_counts: table.cut_counts,
        hints: hints.iter().map(ToString::to_string).collect(),
        clocks: off(answer).map(Clock::of).collect(),
        problems: input.iter().chain(found).collect(),
    }
}

/// A part of each estimate.
fn estimates<T>(table: &Table, part: impl Fn(Estimate) -> Option<T>) -> Option<Cells<T>> {
    let row = |row: &Vec<Option<Estimate>>| row.iter().map(|estimate| estimate.and_then(&part)).collect();
    table.estimates.as_ref().map(|rows| rows.iter().map(row).collect())
}

fn of_one_trace(table: &Table) -> Vec<[usize; 2]> {
    let rows = table.estimates.iter().flatten().enumerate();
    let cells =
        rows.flat_map(|(at, row)| row.iter().enumerate().map(move |(column, cell)| (at, column, cell)));
    let is_of_one = |cell: &Option<Estimate>| cell.is_some_and(|estimate| estimate.is_of_one);
    cells.filter(|(.., cell)| is_of_one(cell)).map(|(at, column, _)| [at, column]).collect()
}

fn why(table: &Table) -> Vec<Why<'_>> {
    let rows = table.why.iter().map(|why| {
        let named = table.columns.iter().zip(&why.extremes);
        let extremes = named.filter_map(|(name, trace)| Some((&**name, Cell(trace.as_ref()?))));
        Why { traces: why.traces.iter().map(Cell).collect(), extremes: extremes.collect() }
    });
    rows.collect()
}

impl<'a> Clock<'a> {
    fn of(found: &'a SpanClock) -> Self {
        let (ahead_ns, within_ns) = (found.clock.ahead, found.clock.within);
        Self { host: &found.name, reference: &found.reference, ahead_ns, within_ns }
    }
}

/// The clocks that were corrected by more than their error.
fn off(answer: &Answer) -> impl Iterator<Item = &SpanClock> {
    answer.clocks.iter().filter(|found| {
        let within = found.clock.within.unwrap_or(0);
        found.clock.ahead.unsigned_abs() > within && found.name != found.reference
    })
}

/// A line for each clock that was corrected by more than its error.
pub(super) fn clocks(answer: &Answer) -> String {
    let line = |found: &SpanClock| {
        let direction = if found.clock.ahead < 0 { "behind" } else { "ahead of" };
        let within =
            found.clock.within.map_or_else(String::new, |within| format!(" (within {})", time(within)));
        let by = time(found.clock.ahead.unsigned_abs());
        let (name, reference) = (escaped(&found.name), escaped(&found.reference));
        format!("the clock of {name} is {by} {direction} {reference}{within}; times are corrected\n")
    };
    off(answer).map(line).collect()
}

fn time(ns: u64) -> String {
    format!("{} ms", measure(ns as f64 / 1e6))
}

/// The reasons for which an answer may be incomplete, beside the problems of the input.
pub(super) fn problems(answer: &Answer) -> Vec<ProblemCount> {
    let table = &answer.table;
    let mut problems = Vec::new();
    let mut add = |kind, describe, count, loses_data, examples: Vec<String>| {
        if count > 0 {
            problems.push(ProblemCount { kind, describe, count, loses_data, examples, hints: Vec::new() });
        }
    };
    let unmatched = answer.unmatched.iter().map(|(point, near)| match near {
        Some(near) => format!("{point}: did you mean \"{near}\"?"),
        None => format!("{point}: --tracepoints lists the names"),
    });
    add(
        "no-such-tracepoint",
        "tracepoints that match no name of the recording",
        answer.unmatched.len() as u64,
        false,
        unmatched.take(EXAMPLES).collect(),
    );
    add(
        "outside-caller",
        "calls to another host that lie outside their callers by the corrected clocks, so that they are not before what their callers do next",
        answer.outside,
        false,
        Vec::new(),
    );
    add(
        "no-such-field",
        "variables that are a field of no matching point, so that they are null",
        answer.unknown_fields.len() as u64,
        false,
        answer.unknown_fields.iter().take(EXAMPLES).cloned().collect(),
    );
    let lost = table.lost.iter().map(|(point, count)| format!("{point}: {count}"));
    add(
        "lost-flow",
        "points at which the query joins, and whose causes are missing",
        table.lost.values().sum(),
        true,
        lost.take(EXAMPLES).collect(),
    );
    add(
        "incomplete-rows",
        "rows from bags that had reached a bound",
        table.incomplete_rows,
        true,
        Vec::new(),
    );
    add(
        "rows-below-left-out",
        "rows below spans beyond the bound of a million, which were not joined",
        table.dropped,
        true,
        Vec::new(),
    );
    add("rows-left-out", "rows beyond the bound of a listing", table.left_out, true, Vec::new());
    add(
        "other-row",
        "groups beyond the bound, in one row named (other)",
        u64::from(table.other),
        false,
        Vec::new(),
    );
    add(
        "impossible-operations",
        "operations that gave null, such as a sum of words",
        table.impossible,
        false,
        Vec::new(),
    );
    add(
        "cycles-of-points",
        "cycles in the order of points, opened at the earliest",
        answer.cycles,
        false,
        Vec::new(),
    );
    add(
        "below-no-span",
        "points that are not the start or end of a span, so that nothing is below them",
        table.flat,
        false,
        Vec::new(),
    );
    add("late-traces", "traces kept late, which have weight 0", answer.late_traces, false, Vec::new());
    problems
}
