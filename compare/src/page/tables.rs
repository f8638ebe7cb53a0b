//! The folded tables: every test and every network.

use astracer_report::names::line;
use astracer_report::numbers::{count, measure, percent};
use astracer_report::page::{more, table};
use maud::{Markup, html};

use super::graph;
use crate::comparison::{Comparison, TestRow};
use crate::network::{METRIC, Network};

/// The tests in the page; the JSON has all.
const TESTS_SHOWN: usize = 10_000;
/// The rows of each table of a network.
const ROWS_SHOWN: usize = 300;

/// All tests, the largest |t| first.
pub(super) fn tests(comparison: &Comparison) -> Markup {
    let mut tests: Vec<&TestRow> = comparison.tests.iter().collect();
    // Stable: equal ones stay in the order of kinds and names.
    tests.sort_by(|a, b| b.test.t.abs().total_cmp(&a.test.t.abs()));
    let head = ["feature", "good n", "bad n", "good mean", "bad mean", "t", "df", "p", "significant"];
    html! {
        h2 { "Every test" }
        details {
            summary { (count(tests.len() as u64)) " tests" }
            p.note { "Significant: p < 0.05 / " (count(tests.len() as u64)) " (Bonferroni)." }
            (table(&html! {
                tr { th { "variable" } @for name in head { th { (name) } } }
                @for row in tests.iter().take(TESTS_SHOWN) {
                    tr {
                        td.name { (line(&row.variable)) } td { (row.feature) }
                        td { (count(row.test.n[0])) } td { (count(row.test.n[1])) }
                        td { (measure(row.test.means[0])) } td { (measure(row.test.means[1])) }
                        td { (measure(row.test.t)) } td { (measure(row.test.df)) } td { (measure(row.test.p)) }
                        td { @if row.significant { "yes" } @else { "no" } }
                    }
                }
                (more(tests.len(), TESTS_SHOWN, 10))
            }))
        }
    }
}

/// All networks, each folded.
pub(super) fn networks(networks: &[Network]) -> Markup {
    html! {
        @if !networks.is_empty() {
            h2 { "Every network" }
            @for network in networks { (one(network)) }
        }
    }
}

fn name(name: &str) -> Markup {
    html! { @if name == METRIC { "P" } @else { (line(name)) } }
}

fn one(network: &Network) -> Markup {
    let (nodes, edges) = (&network.nodes, &network.edges);
    html! {
        details {
            summary {
                (graph::title(network)) ": score " (measure(network.score)) ", "
                (count(network.variables as u64)) " variables, " (count(edges.len() as u64)) " edges"
            }
            @if !nodes.is_empty() {
                (table(&html! {
                    tr { th { "connected with P" } th.left { "reached from" } th { "weight" } th { "t" } th { "score" } }
                    @for node in nodes.iter().take(ROWS_SHOWN) {
                        tr {
                            td.name { (name(&node.name)) } td.name { (name(&node.from)) } td { (percent(node.weight)) }
                            td { (measure(node.t)) } td { (measure(node.score)) }
                        }
                    }
                    (more(nodes.len(), ROWS_SHOWN, 5))
                }))
            }
            @if !edges.is_empty() {
                (table(&html! {
                    tr { th { "splits" } th.left { "the tree of" } th { "weight" } }
                    @for (parent, child, weight) in edges.iter().take(ROWS_SHOWN) {
                        tr { td.name { (name(parent)) } td.name { (name(child)) } td { (percent(*weight)) } }
                    }
                    (more(edges.len(), ROWS_SHOWN, 3))
                }))
            }
        }
    }
}
