//! The folded tables: types, services, placebos, every test and every network.

use astracer_report::names::short;
use astracer_report::numbers::{change, count, percent, span, three};
use astracer_report::page::{folded, more, table};
use maud::{Markup, html};

use super::{Report, graph};
use crate::comparison::{Comparison, TestRow};
use crate::details::Details;
use crate::details::only::OnlyRow;
use crate::network::{METRIC, Network};
use crate::words;

/// The rows of a table.
const ROWS_SHOWN: usize = 50;
/// The tests in the page; the JSON has all.
const TESTS_SHOWN: usize = 500;
/// The rows of each table of a network.
const NODES_SHOWN: usize = 40;

/// The first variables in each type of requests, and over the time of good traces.
pub(super) fn by_type(comparison: &Comparison, details: &Details) -> Markup {
    let rows: Vec<_> = comparison
        .ranked
        .iter()
        .zip(&details.variables)
        .filter(|(_, of)| of.types.len() > 1)
        .flat_map(|(row, of)| of.types.iter().map(move |of| (row, of)))
        .collect();
    html! { @if !rows.is_empty() {
        (folded("The first variables by type of request", &html! {
            (table("Variables by type", &html! {
                tr { th { "variable" } th.left { "type" } th { "good" } th { "bad" } th { "difference" } th { "good traces" } th { "bad traces" } }
                @for (row, of) in rows.iter().take(4 * ROWS_SHOWN) {
                    tr {
                        td.name { (short(&row.ranked.variable)) } td.name { (short(&of.name)) }
                        td { (three(of.means[0])) } td { (three(of.means[1])) } td { (change(of.means[1] - of.means[0])) }
                        td { (count(of.n[0])) } td { (count(of.n[1])) }
                    }
                }
            }))
            (more(rows.len(), 4 * ROWS_SHOWN))
        }))
    } }
}

pub(super) fn services(comparison: &Comparison) -> Markup {
    let services = &comparison.services;
    html! { @if services.len() > 1 {
        (folded("Services", &html! {
            (table("Services", &html! {
                tr { th { "service" } th { "variables that differ" } th { "largest |t|" } th { "least chance" } }
                @for row in services.iter().take(ROWS_SHOWN) {
                    tr {
                        td.name { (short(&row.service)) } td { (count(row.variables)) } td { (three(row.t)) }
                        td { (row.chance.map_or_else(|| "-".to_owned(), words::chance)) }
                    }
                }
            }))
            (more(services.len(), ROWS_SHOWN))
        }))
    } }
}

/// The variables of one class only.
pub(super) fn only(comparison: &Comparison, details: &Details) -> Markup {
    let of = |class: usize, name: &str| {
        let (rows, all): (&[OnlyRow], _) = (&details.only[class], comparison.instances[class].max(1) as f64);
        html! {
            @if rows.is_empty() { p { "No variable is in " (name) " " (comparison.noun) " alone." } }
            @else {
                (table(&format!("Only in {name} ones"), &html! {
                    tr { th { "in " (name) " " (comparison.noun) " alone" } th { (name) " " (comparison.noun) } th { "share" } }
                    @for row in rows.iter().take(ROWS_SHOWN) {
                        tr { td.name { (short(&row.variable)) } td { (count(row.instances)) } td { (percent(row.instances as f64 / all)) } }
                    }
                }))
                (more(rows.len(), ROWS_SHOWN))
            }
        }
    };
    folded(
        "Variables in one class only",
        &html! {
            p.note { "A large class has more rare variables than a small one, so look at shares." }
            div.split { div { (of(1, "bad")) } div { (of(0, "good")) } }
        },
    )
}

pub(super) fn mix(comparison: &Comparison) -> Markup {
    let mix = &comparison.mix;
    html! { @if mix.types.len() > 1 {
        (folded("Mix of requests", &html! {
            p {
                @match mix.p {
                    Some(p) if mix.differs => { "The shares of types differ (" (words::p(p)) ", chi-square)." }
                    Some(p) => { "The shares of types differ no more than by chance (" (words::p(p)) ", chi-square)." }
                    None => { "There are too few traces to compare the shares of types." }
                }
            }
            (table("Types", &html! {
                tr { th { "type" } th { "share of good" } th { "share of bad" } th { "good traces" } th { "bad traces" } }
                @for row in mix.types.iter().take(ROWS_SHOWN) {
                    tr {
                        td.name { (short(&row.name)) } td { (percent(row.shares[0])) } td { (percent(row.shares[1])) }
                        td { (count(row.instances[0])) } td { (count(row.instances[1])) }
                    }
                }
            }))
            (more(mix.types.len(), ROWS_SHOWN))
        }))
    } }
}

pub(super) fn placebos(report: &Report<'_>) -> Markup {
    let Some(placebos) = &report.comparison.placebos else { return html! {} };
    let start = placebos.windows.iter().map(|window| window.start_ns).min().unwrap_or(0);
    folded(
        "Placebos",
        &html! {
            p.note { "Each is a stretch of good time, as long as the bad one, against all other good traces. A difference that appears there too does not come from the fault." }
            @if !placebos.windows.is_empty() {
                (table("Placebos", &html! {
                    tr { th { "start" } th { "traces" } th { "significant" } th.left { "strongest variable" } th { "|t|" } }
                    @for window in &placebos.windows {
                        tr {
                            td { "+" (span((window.start_ns - start) as f64 / 1e9)) } td { (count(window.traces)) }
                            td { (count(window.significant as u64)) }
                            @if let Some((name, t)) = &window.first { td.name { (short(name)) } td { (three(*t)) } }
                            @else { td.left { "-" } td { "-" } }
                        }
                    }
                }))
                p.note { "Starts are counted from the first of them." }
            }
        },
    )
}

/// All tests, the largest |t| first.
pub(super) fn tests(comparison: &Comparison) -> Markup {
    let mut tests: Vec<&TestRow> = comparison.tests.iter().collect();
    // Stable: equal ones stay in the order of kinds and names.
    tests.sort_by(|a, b| b.test.t.abs().total_cmp(&a.test.t.abs()));
    let head = ["good n", "bad n", "good mean", "bad mean", "t", "df", "p", "significant"];
    folded(
        &format!("{} tests", count(tests.len() as u64)),
        &html! {
            p.note { "Significant: p < 0.05 / " (count(tests.len() as u64)) " (Bonferroni)." }
            (table("Tests", &html! {
                tr { th { "variable" } th.left { "feature" } @for name in head { th { (name) } } }
                @for row in tests.iter().take(TESTS_SHOWN) {
                    tr {
                        td.name { (short(&row.variable)) } td.left { (row.feature) }
                        td { (count(row.test.n[0])) } td { (count(row.test.n[1])) }
                        td { (three(row.test.means[0])) } td { (three(row.test.means[1])) }
                        td { (three(row.test.t)) } td { (three(row.test.df)) } td { (three(row.test.p)) }
                        td { @if row.significant { "yes" } @else { "no" } }
                    }
                }
            }))
            (more(tests.len(), TESTS_SHOWN))
            @if tests.len() > TESTS_SHOWN { p.note { "--json has all of them." } }
        },
    )
}

/// All networks.
pub(super) fn networks(networks: &[Network]) -> Markup {
    html! { @if !networks.is_empty() {
        (folded("Every network", &html! { @for network in networks { (one(network)) } }))
    } }
}

fn name(name: &str) -> String {
    if name == METRIC { "the metric".to_owned() } else { short(name) }
}

fn one(network: &Network) -> Markup {
    let (nodes, edges) = (&network.nodes, &network.edges);
    let summary = format!(
        "Network of {}: score {}, {} variables, {} edges",
        graph::title(network),
        three(network.score),
        count(network.variables as u64),
        count(edges.len() as u64)
    );
    folded(
        &summary,
        &html! {
            @if !nodes.is_empty() {
                (table("Connected with the metric", &html! {
                    tr { th { "connected with the metric" } th.left { "reached from" } th { "weight" } th { "t" } th { "score" } }
                    @for node in nodes.iter().take(NODES_SHOWN) {
                        tr {
                            td.name { (name(&node.name)) } td.name { (name(&node.from)) } td { (percent(node.weight)) }
                            td { (three(node.t)) } td { (three(node.score)) }
                        }
                    }
                }))
                (more(nodes.len(), NODES_SHOWN))
            }
            @if !edges.is_empty() {
                (table("Edges", &html! {
                    tr { th { "splits" } th.left { "the tree of" } th { "weight" } }
                    @for (parent, child, weight) in edges.iter().take(NODES_SHOWN) {
                        tr { td.name { (name(parent)) } td.name { (name(child)) } td { (percent(*weight)) } }
                    }
                }))
                (more(edges.len(), NODES_SHOWN))
            }
        },
    )
}
