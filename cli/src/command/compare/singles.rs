//! The screens of single instances: two side by side, and one among others.

use std::fmt::Write as _;

use astracer_compare::comparison;
use astracer_compare::instances::Source;
use astracer_compare::singles::{self, Explained, Measure, Sides};
use astracer_model::TraceId;
use astracer_recording::stop::Pulse;
use astracer_report::numbers::{measure, signed};

use super::{Compare, Found, Report, TOP_DEFAULT};
use crate::failure::Failure;
use crate::output::{self, count, escaped, percent};

/// Refuses options that need several instances.
pub(super) fn check(args: &Compare, noun: &str) -> Result<(), Failure> {
    let option = match (args.fail_on.is_some(), args.html.is_some(), args.paper) {
        (true, ..) => "--fail-on",
        (_, true, _) => "--html",
        (.., true) => "--paper",
        _ => return Ok(()),
    };
    Err(Failure::Job(format!("{option} needs several {noun} in each class; there is one in each")))
}

/// Finds an instance by its name, and compares it with the others of its type.
pub(super) fn explain(
    id: &str,
    source: &impl Source,
    options: &comparison::Options,
    pulse: &mut Pulse<'_>,
) -> Result<Explained, Failure> {
    let heads = source.heads();
    let full = TraceId::from_hex(id).map(|id| id.to_string());
    let is_it = |own: &str| own == id || full.as_deref() == Some(own);
    let Some(at) = heads.iter().position(|head| is_it(&head.id)) else {
        let (noun, all) = (options.noun, count(heads.len() as u64));
        return Err(Failure::Job(format!(
            "none of {all} {noun} is '{}'; give an id that is there",
            escaped(id)
        )));
    };
    let explained = singles::explain(source, at, &options.metric, options.variables_max, pulse);
    explained.ok_or(Failure::Interrupted)
}

/// The number of rows that are shown.
pub(super) fn shown(args: &Compare, all: usize) -> usize {
    match args.top.unwrap_or(if args.json { 0 } else { TOP_DEFAULT }) {
        0 => all,
        top => top.min(all),
    }
}

fn print<T: serde::Serialize>(
    args: &Compare,
    result: &T,
    text: String,
    found: &Found,
) -> Result<(), Failure> {
    let Found { inputs, unreadable_lines, notes, .. } = found;
    if args.json {
        return output::print_json(&Report { inputs, unreadable_lines: *unreadable_lines, result });
    }
    let inputs: String = inputs.iter().map(|input| input.logs() + &input.footing()).collect();
    output::report(&(text + notes + &inputs))
}

pub(super) fn print_sides(args: &Compare, sides: &Sides, found: &Found) -> Result<(), Failure> {
    let [good, bad] = sides.values;
    let mut text = format!(
        "good {} and bad {} side by side; one of each has no spread, so nothing was tested\n{}: good {}, bad {}, difference {}\n\n",
        escaped(&sides.ids[0]),
        escaped(&sides.ids[1]),
        sides.metric,
        measure(good),
        measure(bad),
        signed(bad - good),
    );
    let shown = shown(args, sides.rows.len());
    let rows = sides.rows[..shown].iter().map(|row| {
        let value = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), measure);
        let difference = row.values[1].zip(row.values[0]).map(|(bad, good)| signed(bad - good));
        let [good, bad] = row.values.map(value);
        let difference = difference.unwrap_or_else(|| "-".to_owned());
        vec![
            row.variable.clone(),
            row.measure.name().to_owned(),
            good,
            bad,
            difference,
            measure(row.first_ms),
        ]
    });
    match shown {
        0 => text.push_str("no variable differs\n\n"),
        _ => text
            .push_str(&output::table(&["variable", "of", "good", "bad", "difference", "first at\nms"], rows)),
    }
    more(&mut text, sides.rows.len() - shown);
    let mut sides = sides.clone();
    sides.rows.truncate(shown);
    print(args, &sides, text, found)
}

pub(super) fn print_explained(args: &Compare, explained: &Explained, found: &Found) -> Result<(), Failure> {
    let of_type = match explained.of_type.is_empty() {
        true => String::new(),
        false => format!(" of {}", escaped(&explained.of_type)),
    };
    let mut text = format!(
        "{} among {} others{of_type}\n{}: {}, percentile {}, median {}\n\n",
        escaped(&explained.id),
        count(explained.others),
        explained.metric,
        measure(explained.value),
        measure(explained.percentile * 100.0),
        measure(explained.median),
    );
    let shown = shown(args, explained.rows.len());
    let rows = explained.rows[..shown].iter().map(|row| {
        let value = match (row.value, row.measure) {
            (Some(value), _) => measure(value),
            (None, Measure::Count) => "0".to_owned(),
            (None, _) => "-".to_owned(),
        };
        let percentile = row.value.map_or_else(|| "-".to_owned(), |_| measure(row.percentile * 100.0));
        let median = if row.median.is_nan() { "-".to_owned() } else { measure(row.median) };
        vec![
            row.variable.clone(),
            row.measure.name().to_owned(),
            value,
            percentile,
            median,
            percent(row.present),
        ]
    });
    match shown {
        0 => text.push_str(
            "nothing about it is unusual: outside the middle 95 % of others, or in 5 % of them\n\n",
        ),
        _ => text.push_str(&output::table(
            &["variable", "of", "value", "percentile", "others\'\nmedian", "others\nwith it"],
            rows,
        )),
    }
    more(&mut text, explained.rows.len() - shown);
    let mut explained = explained.clone();
    explained.rows.truncate(shown);
    print(args, &explained, text, found)
}

fn more(text: &mut String, rows: usize) {
    if rows > 0 {
        text.pop();
        let _ = writeln!(text, "... {} more: --top 0 shows all\n", count(rows as u64));
    }
}
