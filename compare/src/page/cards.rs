//! Tables that stay readable on a narrow screen: each row becomes a card, whose numbers have their
//! names beside them.

use astracer_report::page::more;
use maud::{Markup, html};

/// A row: its name, and a value for each further column.
pub(super) struct Card {
    name: Markup,
    values: Vec<String>,
    /// True if the row belongs to the one above it.
    is_below: bool,
}

impl Card {
    pub(super) fn of(name: Markup, values: impl Into<Vec<String>>) -> Self {
        Self { name, values: values.into(), is_below: false }
    }

    /// The same row below the one above it.
    pub(super) fn below(self) -> Self {
        Self { is_below: true, ..self }
    }
}

/// A table of these rows, of `all` that there are.
pub(super) fn cards(labels: &[&str], rows: impl Iterator<Item = Card>, all: usize) -> Markup {
    let rows: Vec<Card> = rows.collect();
    let shown = rows.iter().filter(|row| !row.is_below).count();
    html! {
        div.wide { table.cards {
            tr { @for label in labels { th { (label) } } }
            @for row in &rows {
                tr.below[row.is_below] {
                    td.name { (row.name) }
                    @for (label, value) in labels[1..].iter().zip(&row.values) { td data-label=(label) { (value) } }
                }
            }
            (more(all, shown, labels.len()))
        } }
    }
}
