//! An answer as JSON, and what is missing in it.

use astracer_ask::Answer;
use astracer_queries::Value;
use serde::{Serialize, Serializer};

use crate::load::ProblemCount;

/// Examples of a problem, as elsewhere.
const EXAMPLES: usize = crate::load::EXAMPLES;

/// The JSON object.
#[derive(Serialize)]
pub(super) struct Json<'a> {
    columns: &'a [String],
    rows: Vec<Vec<Cell<'a>>>,
    errors: Option<&'a [Vec<Option<f64>>]>,
    traces: u64,
    unweighted_traces: u64,
    incomplete_rows: u64,
    problems: Vec<&'a ProblemCount>,
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
            Value::Float(number) => serializer.collect_str(number),
            Value::Text(text) => serializer.serialize_str(text),
        }
    }
}

pub(super) fn json<'a>(answer: &'a Answer, input: &'a [ProblemCount], found: &'a [ProblemCount]) -> Json<'a> {
    let table = &answer.table;
    Json {
        columns: &table.columns,
        rows: table.rows.iter().map(|row| row.iter().map(Cell).collect()).collect(),
        errors: table.errors.as_deref(),
        traces: table.traces,
        unweighted_traces: answer.unweighted_traces,
        incomplete_rows: table.incomplete_rows,
        problems: input.iter().chain(found).collect(),
    }
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
    add("late-traces", "traces kept late, which stand for none", answer.late_traces, false, Vec::new());
    problems
}
