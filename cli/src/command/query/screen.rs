//! An answer for people: a table, and below it what was read and left out.

use std::cmp::Ordering;
use std::fmt::Write as _;

use astracer_ask::Answer;
use astracer_queries::{Estimate, Fault, Plan, Table, Value};

use crate::failure::Failure;
use crate::load::{Input, ProblemCount};
use crate::output;

/// Columns of text after the first column.
const TEXT_WIDTH: usize = 30;

/// The rows to show.
pub(super) struct Shown {
    /// The place of the column to sort by.
    pub(super) sort: Option<usize>,
    /// The number of rows; 0 for all.
    pub(super) top: usize,
}

/// The place of the column with a name.
pub(super) fn column(plan: &Plan, name: &str) -> Result<usize, Failure> {
    let squeezed = |text: &str| text.replace(' ', "").to_lowercase();
    let found = plan.columns().iter().position(|column| squeezed(column) == squeezed(name));
    found.ok_or_else(|| {
        Failure::Usage(format!(
            "--sort {}: the query has no such column; use one of: {}",
            output::escaped(name),
            output::escaped(&plan.columns().join(", "))
        ))
    })
}

pub(super) fn screen(
    plan: &Plan,
    answer: &Answer,
    problems: &[ProblemCount],
    input: &Input,
    shown: &Shown,
    is_sampled: bool,
    hints: &[Fault],
) -> String {
    let table = &answer.table;
    let aggregates: Vec<bool> = plan.aggregates().collect();
    let sort = shown.sort.or_else(|| aggregates.iter().position(|&is_aggregate| is_aggregate));
    let order = order(&table.rows, sort);
    let count = if shown.top == 0 { order.len() } else { shown.top.min(order.len()) };
    let mut text = input.heading() + &input.logs();
    text.push('\n');
    let header: Vec<&str> = table.columns.iter().map(String::as_str).collect();
    let rows = order[..count].iter().map(|&at| {
        let estimates = table.estimates.as_ref().and_then(|estimates| estimates.get(at));
        let cells = table.rows[at].iter().enumerate();
        let seen = table.seen.get(at).copied().flatten();
        cells
            .map(|(column, value)| {
                if let (Some(seen), Value::Null, Some(true)) = (seen, value, aggregates.get(column)) {
                    return format!("{} seen", output::count(seen));
                }
                let estimate = estimates.and_then(|cells| cells.get(column).copied().flatten());
                cell(value, column, aggregates.get(column) == Some(&true), estimate)
            })
            .collect()
    });
    if count > 0 {
        text.push_str(&output::table(&header, rows));
    }
    if order.len() > count {
        // Directly below the table, instead of its empty line.
        text.pop();
        let more = output::plural((order.len() - count) as u64, "more row");
        let _ = writeln!(text, "... {more}: --top 0 shows all\n");
    }
    let _ = writeln!(
        text,
        "{} of {} {}, from {}",
        output::plural(order.len() as u64, "row"),
        output::count(table.emitted),
        if table.emitted == 1 { "match" } else { "matches" },
        output::plural(table.traces, "trace"),
    );
    if let Some(estimates) = &table.estimates {
        weights(answer, estimates, &mut text);
    } else if is_sampled && aggregates.contains(&true) {
        text.push_str("the recording is a sample; --weights estimates the counts and sums of all traces\n");
    }
    if table.cut_counts > 0 {
        let cells = output::plural(table.cut_counts, "number");
        let _ = writeln!(text, "COUNT DISTINCT counts up to 10,000; it reached this in {cells}");
    }
    for hint in hints {
        let _ = writeln!(text, "hint: {hint}");
    }
    if table.seen.iter().any(Option::is_some) {
        text.push_str("seen: rows of traces that were kept late; how many there were is not known\n");
    }
    text.push_str(&super::answer::clocks(answer));
    text.push_str(&why(table, &order[..count], &aggregates));
    for problem in problems {
        let _ = writeln!(text, "{}: {}", problem.describe, output::count(problem.count));
        for example in &problem.examples {
            let _ = writeln!(text, "  {}", output::escaped(example));
        }
    }
    text.push_str(&input.footing());
    text
}

/// The places of the rows: by the column, largest first, then by all columns.
fn order(rows: &[Vec<Value>], sort: Option<usize>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let by_column = |one: usize, other: usize| match sort {
        Some(column) => rows[other].get(column).cmp(&rows[one].get(column)),
        None => Ordering::Equal,
    };
    order.sort_by(|&one, &other| by_column(one, other).then_with(|| rows[one].cmp(&rows[other])));
    order
}

fn cell(value: &Value, column: usize, is_aggregate: bool, estimate: Option<Estimate>) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        // Ids and times are columns too, and have no separators.
        Value::Int(number) if is_aggregate => match u64::try_from(number.unsigned_abs()) {
            Ok(size) => format!("{}{}", if *number < 0 { "-" } else { "" }, output::count(size)),
            Err(_) => number.to_string(),
        },
        Value::Float(number) if is_aggregate && number.is_finite() => {
            let sign = if *number < 0.0 { "-" } else { "" };
            format!("{sign}{}", output::measure(number.abs()))
        }
        Value::Text(text) if column > 0 => output::shortened(&output::escaped(text), TEXT_WIDTH).into_owned(),
        other => other.to_string(),
    };
    match estimate {
        Some(Estimate { low, high, is_of_one, .. }) => {
            let mark = if is_of_one { "*" } else { "" };
            format!("{text}{mark} ({} to {})", end(low), end(high))
        }
        None => text,
    }
}

/// An end of an interval.
fn end(number: Option<f64>) -> String {
    match number {
        Some(number) if number.is_infinite() => number.to_string(),
        Some(number) => format!("{}{}", if number < 0.0 { "-" } else { "" }, output::measure(number.abs())),
        None => "?".to_owned(),
    }
}

/// The traces behind the shown rows.
fn why(table: &Table, shown: &[usize], aggregates: &[bool]) -> String {
    let mut text = String::new();
    if table.why.is_empty() || shown.is_empty() {
        return text;
    }
    text.push_str("\ntraces of each row\n");
    for &at in shown {
        let (Some(why), Some(row)) = (table.why.get(at), table.rows.get(at)) else { continue };
        let names = |ids: &[Value]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let keys = row.iter().enumerate().filter(|(column, _)| aggregates.get(*column) != Some(&true));
        let keys: Vec<String> = keys.map(|(_, value)| cell(value, 1, false, None)).collect();
        let label = if keys.is_empty() { "all".to_owned() } else { keys.join(", ") };
        let traces = if why.traces.is_empty() { "no trace".to_owned() } else { names(&why.traces) };
        let _ = writeln!(text, "  {label}: {traces}");
        for (column, trace) in table.columns.iter().zip(&why.extremes) {
            if let Some(trace) = trace.as_ref().filter(|trace| !trace.is_null()) {
                let _ = writeln!(text, "    {}: in {trace}", output::escaped(column));
            }
        }
    }
    text.push('\n');
    text
}

fn weights(answer: &Answer, estimates: &[Vec<Option<Estimate>>], text: &mut String) {
    let mut all = estimates.iter().flatten().flatten();
    if all.clone().next().is_some() {
        text.push_str("(a to b): the 95 % interval of an estimate; ? where nothing bounds it\n");
    }
    if all.any(|estimate| estimate.is_of_one) {
        text.push_str(
            "*: one trace makes up more than a third of the variance; others like it may have been dropped, and \
             the interval may be too narrow\n",
        );
    }
    if answer.table.ratios.contains(&true) {
        text.push_str("AVERAGE is a ratio of two estimates, which is biased for few traces\n");
    }
    if answer.unweighted_traces > 0 {
        let traces = output::plural(answer.unweighted_traces, "trace");
        let _ = writeln!(
            text,
            "{traces} without a weight (ot=th) count once: counts and sums are \"at least\", unless nothing was dropped"
        );
    }
}
