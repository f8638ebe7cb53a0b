//! The first screen of `astracer compare`.

use std::fmt::Write as _;

use astracer_compare::comparison::{Comparison, Row};
use astracer_compare::features::Feature;
use astracer_compare::words;
use astracer_report::numbers::{measure, signed};

use super::Compare;
use crate::load::Input;
use crate::output::{self, count, percent};

/// Pairs of attributes on the screen.
const PAIRS_SHOWN: usize = 3;
/// Services on the screen.
const SERVICES_SHOWN: usize = 5;
/// Explained variables below the one that explains them.
const EXPLAINED_SHOWN: usize = 2;
/// Types of requests on the screen, if their mix differs.
const TYPES_SHOWN: usize = 5;

pub(super) fn screen(args: &Compare, inputs: &[Input], comparison: &Comparison) -> String {
    let mut text = head(args, comparison);
    text.push_str(&variables(args, comparison));
    text.push_str(&pairs(comparison));
    text.push_str(&services(comparison));
    text.push_str(&mix(comparison));
    text.push_str(&notes(comparison));
    inputs.iter().for_each(|input| text.push_str(&(input.logs() + &input.footing())));
    text
}

/// The lines above the tables: classes, metric, and how certain the result is.
fn head(args: &Compare, comparison: &Comparison) -> String {
    let mut lines = vec![words::classes(comparison)];
    lines.extend(words::tail_weights(comparison));
    lines.push(words::metric(comparison));
    if let Some(warning) = words::tail(comparison) {
        lines.push(warning);
        if comparison.tail.is_none() {
            lines.push(
                "            the mean is a poor summary here; --weight-step counts large values more"
                    .to_owned(),
            );
        }
    }
    lines.extend(words::verdict(comparison, args.paper));
    let length = args.classes.window().map_or(0, |window| window.end - window.start);
    lines.extend(words::placebos(comparison, length));
    lines.join("\n") + "\n\n"
}

fn variables(args: &Compare, comparison: &Comparison) -> String {
    let all = comparison.ranked.len();
    if all == 0 {
        // Without a test the line above says so.
        return if comparison.tested == 0 { String::new() } else { "no variable differs\n\n".to_owned() };
    }
    let shown = super::singles::shown(args, all);
    let has_runs = comparison.ranked.iter().any(|row| row.null_ratio.is_some());
    let mut header = vec!["variable", "feature", "good", "bad", "difference\n± 95%"];
    if comparison.has_chances {
        header.push("chance");
    }
    if has_runs {
        header.push("null\nratio");
    }
    // Placebos are made with --bad-time, which has no runs.
    let has_placebos = comparison.ranked.iter().any(|row| row.placebo_t.is_some());
    if has_placebos {
        header.extend(["|t|", "placebo\n|t|"]);
    }
    let row = |(row, is_explained): (&Row, bool)| {
        let test = &row.ranked.test;
        let mark = if row.by_choice { " °" } else { "" };
        let mut cells =
            vec![format!("{}{}{mark}", if is_explained { "> " } else { "" }, row.ranked.variable)];
        if row.ranked.feature == Feature::Present {
            // "stretches of time" would take a column for itself.
            cells.push(format!("in {}", comparison.noun.split(' ').next().unwrap_or_default()));
            cells.extend(test.means.map(percent));
            cells.push(format!("{}% ± {}%", signed(row.difference * 100.0), measure(row.error_95 * 100.0)));
        } else {
            cells.push(row.ranked.feature.to_string());
            cells.extend(test.means.map(measure));
            cells.push(format!("{} ± {}", signed(row.difference), measure(row.error_95)));
        }
        if comparison.has_chances {
            cells.push(row.chance.map_or_else(|| "-".to_owned(), words::chance));
        }
        if has_runs {
            let ratio = row.null_ratio.map_or_else(|| "-".to_owned(), measure);
            cells.push(format!("{ratio}{}", if row.confirmed { "*" } else { "" }));
        }
        if has_placebos {
            cells.push(measure(test.t.abs()));
            cells.push(row.placebo_t.map_or_else(|| "-".to_owned(), measure));
        }
        cells
    };
    let explained = |row: &'_ Row| row.explains.len().min(EXPLAINED_SHOWN);
    let rows = comparison.ranked[..shown].iter();
    let rows = rows.flat_map(|row| {
        let below = row.explains[..explained(row)].iter().map(|row| (row, true));
        std::iter::once((row, false)).chain(below)
    });
    let mut text = output::table(&header, rows.map(row));
    if has_runs && comparison.confirmed > 0 {
        text.pop();
        text.push_str("* confirmed\n\n");
    }
    let mut legend = Vec::new();
    let of_shown = || comparison.ranked[..shown].iter().flat_map(Row::with_explained);
    if of_shown().any(|row| row.by_choice) {
        legend.push("° differs because of the rule that chose the bad class".to_owned());
    }
    if comparison.ranked[..shown].iter().any(|row| !row.explains.is_empty()) {
        let hidden: usize =
            comparison.ranked[..shown].iter().map(|row| row.explains.len() - explained(row)).sum();
        let more =
            if hidden > 0 { format!(" ({} more in --json)", count(hidden as u64)) } else { String::new() };
        legend.push(format!("> explained by the row above, or goes with it{more}"));
    }
    if all > shown {
        legend.push(format!("... {} more: --top 0 shows all", count((all - shown) as u64)));
    }
    if !legend.is_empty() {
        text.pop();
        let _ = writeln!(text, "{}\n", legend.join("\n"));
    }
    text
}

fn pairs(comparison: &Comparison) -> String {
    if comparison.pairs.is_empty() {
        return String::new();
    }
    let rows = comparison.pairs.iter().take(PAIRS_SHOWN).map(|pair| {
        let [good, bad] = pair.means.map(percent);
        vec![pair.variables.join(" and "), good, bad]
    });
    format!("pairs that differ more than each alone:\n{}", output::table(&["both", "good", "bad"], rows))
}

fn services(comparison: &Comparison) -> String {
    if comparison.services.len() < 2 {
        return String::new();
    }
    let rows = comparison
        .services
        .iter()
        .take(SERVICES_SHOWN)
        .map(|row| vec![row.service.clone(), count(row.variables), measure(row.t)]);
    output::table(&["service", "variables", "largest |t|"], rows)
}

fn mix(comparison: &Comparison) -> String {
    let mix = &comparison.mix;
    if !mix.differs {
        return String::new();
    }
    let p = mix.p.unwrap_or(1.0);
    let mut types: Vec<_> = mix.types.iter().collect();
    types.sort_by(|a, b| {
        let change = |shares: [f64; 2]| (shares[0] - shares[1]).abs();
        change(b.shares).total_cmp(&change(a.shares)).then_with(|| a.name.cmp(&b.name))
    });
    let rows = types
        .iter()
        .take(TYPES_SHOWN)
        .map(|row| vec![row.name.clone(), percent(row.shares[0]), percent(row.shares[1])]);
    let p = words::p(p);
    format!("the mix of requests differs ({p}):\n{}", output::table(&["type", "good", "bad"], rows))
}

fn notes(comparison: &Comparison) -> String {
    words::notes(comparison)
        .into_iter()
        .map(|line| {
            line + "
"
        })
        .collect()
}
