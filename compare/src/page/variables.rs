//! The table of the first screen: the variables that differ, with those that each explains.

use astracer_report::names::line;
use astracer_report::numbers::{measure, percent, signed};
use maud::{Markup, html};

use super::ROWS_SHOWN;
use super::cards::{Card, cards};
use crate::comparison::{Comparison, Row};
use crate::details::VARIABLES;
use crate::features::Feature;
use crate::words;

/// The rows below one that explains them.
const EXPLAINED_SHOWN: usize = 5;

pub(super) fn table(comparison: &Comparison) -> Markup {
    let all = &comparison.ranked;
    if all.is_empty() {
        return html! { p { "No variable differs." } };
    }
    let has_runs = all.iter().any(|row| row.null_ratio.is_some());
    let has_placebos = all.iter().any(|row| row.placebo_t.is_some());
    let mut labels = vec!["variable", "feature", "good", "bad", "difference", "± 95 %"];
    labels.extend(comparison.has_chances.then_some("chance"));
    labels.extend(has_runs.then_some("null ratio"));
    labels.extend(has_placebos.then_some(["|t|", "placebo |t|"]).into_iter().flatten());
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), measure);
    let values = |row: &Row| {
        let test = &row.ranked.test;
        let mut values = match row.ranked.feature {
            Feature::Present => vec![
                format!("in {}", comparison.noun),
                percent(test.means[0]),
                percent(test.means[1]),
                format!("{}%", signed(row.difference * 100.0)),
                format!("{}%", measure(row.error_95 * 100.0)),
            ],
            feature => vec![
                feature.to_string(),
                measure(test.means[0]),
                measure(test.means[1]),
                signed(row.difference),
                measure(row.error_95),
            ],
        };
        if comparison.has_chances {
            values.push(row.chance.map_or_else(|| "-".to_owned(), words::chance));
        }
        if has_runs {
            values.push(optional(row.null_ratio) + if row.confirmed { " confirmed" } else { "" });
        }
        if has_placebos {
            values.extend([measure(test.t.abs()), optional(row.placebo_t)]);
        }
        values
    };
    let card = |place: Option<usize>, row: &Row| {
        let name = html! {
            @match place.filter(|&place| place < VARIABLES && comparison.details.is_some()) {
                Some(place) => { a href=(format!("#v{}", place + 1)) { (line(&row.ranked.variable)) } }
                None => { (line(&row.ranked.variable)) }
            }
            @if row.by_choice { " °" }
        };
        Card::of(name, values(row))
    };
    let rows = all.iter().enumerate().take(ROWS_SHOWN).flat_map(|(place, row)| {
        let below = row.explains.iter().take(EXPLAINED_SHOWN).map(|row| card(None, row).below());
        std::iter::once(card(Some(place), row)).chain(below).collect::<Vec<_>>()
    });
    let of_all = || all.iter().flat_map(Row::with_explained);
    html! {
        (cards(&labels, rows, all.len()))
        @if of_all().any(|row| row.by_choice) { p.note { "°: differs because of the rule that chose the bad class." } }
        @if all.iter().any(|row| !row.explains.is_empty()) {
            p.note { "Indented rows: their difference vanishes given the row above, or they go with it." }
        }
        @if !comparison.pairs.is_empty() {
            h3 { "Pairs that differ more than each alone" }
            (cards(
                &["both", "good", "bad"],
                comparison.pairs.iter().map(|pair| {
                    let name = html! { (line(&pair.variables[0])) " and " (line(&pair.variables[1])) };
                    Card::of(name, pair.means.map(percent))
                }),
                comparison.pairs.len(),
            ))
        }
        @if comparison.has_chances {
            p.note { "Chance: the share of permutations of the labels within types in which some feature differs as much." }
        }
        @if has_runs {
            p.note {
                "Null ratio: the least |t| of the bad runs against a good one, by the largest |t| between two good runs. "
                "From 3 on, and if it is significant against each good run, a difference is confirmed."
            }
        }
    }
}
