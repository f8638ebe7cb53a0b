//! A comparison as one self-contained HTML page.

use astracer_report::names::{line, named};
use astracer_report::numbers::{count, measure, percent, signed, span};
use astracer_report::page::{Page, more, table};
use maud::{Markup, html};

use super::comparison::{Comparison, Row, ServiceRow};
use super::details::{Details, VariableDetails};
use super::{network, words};
use astracer_critical_path::lanes::Lanes;
use astracer_critical_path::page::rows;

mod cards;
mod charts;
mod graph;
mod tables;
mod typical;
mod variables;

use cards::Card;

const CSS: &str = include_str!("page/page.css");

/// The rows of tables that are not folded.
const ROWS_SHOWN: usize = 50;

/// The contents of the page.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The names of the recordings.
    pub title: &'a str,
    /// True with the paper's test.
    pub paper: bool,
    /// The length of the bad class's time, if time tells the classes apart; 0 otherwise.
    pub window_ns: u64,
    /// The result, with details and networks.
    pub comparison: &'a Comparison,
    /// The typical good and bad trace; `None` for instances from a file.
    pub lanes: Option<&'a [Lanes; 2]>,
    /// Messages of the readers: skipped files, problems in traces.
    pub notes: &'a [String],
}

/// The page as HTML. Text from the recordings is escaped.
pub fn page(report: &Report<'_>) -> String {
    let comparison = report.comparison;
    let details = comparison.details.as_ref();
    let body = html! {
        h1 { "Good and bad " (comparison.noun) ": " (line(report.title)) }
        (verdict(report))
        h2 { "Variables that differ" }
        (variables::table(comparison))
        @if let Some(details) = details { (metric(report, details)) }
        (services(&comparison.services))
        (graph::networks(comparison))
        @if let Some(details) = details {
            (values(comparison, details))
            @if let Some(of) = &details.typical { (typical::pair(comparison, of, report.lanes)) }
            (only(comparison, details))
        }
        (mix(comparison))
        @if let Some(details) = details { (drift(comparison, details)) }
        (placebos(report))
        (tables::tests(comparison))
        (tables::networks(&comparison.networks))
        (left_out(report))
    };
    let title = format!("astracer compare: {}", report.title);
    Page { title: &title, css: &[CSS, rows::CSS].concat(), sortable: false }.html(&body)
}

fn verdict(report: &Report<'_>) -> Markup {
    let comparison = report.comparison;
    let metric = &comparison.metric;
    let error = metric.error_95.map(|error| format!(" ± {} (95 %)", measure(error)));
    html! {
        div.verdict {
            @for sentence in words::verdict(comparison, report.paper) { p { (sentence) } }
            @if let Some(sentence) = words::placebos(comparison, report.window_ns) { p { (sentence) } }
        }
        p { (words::classes(comparison)) "." }
        @if let Some(sentence) = words::tail_weights(comparison) { p.warn { (sentence) } }
        p {
            "The metric P is " (line(&report.comparison.metric.name)) ": " (measure(metric.means[0])) " in good " (comparison.noun) " and "
            (measure(metric.means[1])) " in bad ones on average, a difference of " (signed(metric.difference))
            @if let Some(error) = error { (error) } "."
        }
        @if let Some(warning) = words::tail(comparison) { p.warn { (warning) } }
        p.note {
            "A variable below goes with bad " (comparison.noun) "; that alone does not say that it makes them bad. Look at how certain it is first."
        }
    }
}

fn metric(report: &Report<'_>, details: &Details) -> Markup {
    html! {
        h2 { "Distribution of P" }
        p.note { (charts::LEGEND) @if !details.timeline.is_empty() { " " (charts::LEGEND_OF_TIME) } }
        div.charts {
            (charts::histogram("Distribution of the metric in good and bad traces", &details.metric, &report.comparison.metric.name, charts::Size::Large))
            @if !details.timeline.is_empty() { (charts::timeline(&details.timeline, &report.comparison.metric.name)) }
        }
        (of_histogram(&details.metric))
    }
}

/// Notes below a histogram.
fn of_histogram(histogram: &super::details::histogram::Histogram) -> Markup {
    let [good, bad] = histogram.missing;
    html! {
        @if good > 0.0 || bad > 0.0 {
            p.note { "Without a value: " (percent(good)) " of good and " (percent(bad)) " of bad ones." }
        }
        @if histogram.clipped { p.note { "The outermost bars also count values beyond them." } }
    }
}

fn services(services: &[ServiceRow]) -> Markup {
    let largest = services.iter().map(|row| row.t).fold(0.0, f64::max);
    let width = |t: f64| if largest > 0.0 { t / largest * 8.0 } else { 0.0 };
    html! {
        @if services.len() > 1 {
            h2 { "Services" }
            (table(&html! {
                tr { th { "service" } th { "variables that differ" } th { "largest |t|" } th.left { "" } th { "least chance" } }
                @for row in services.iter().take(ROWS_SHOWN) {
                    tr {
                        td.name { (line(&row.service)) } td { (count(row.variables)) } td { (measure(row.t)) }
                        td.left { span.bar style=(format!("width:{:.2}rem", width(row.t))) {} }
                        td { (row.chance.map_or_else(|| "-".to_owned(), words::chance)) }
                    }
                }
                (more(services.len(), ROWS_SHOWN, 5))
            }))
        }
    }
}

fn values(comparison: &Comparison, details: &Details) -> Markup {
    let one = |(place, (row, details)): (usize, (&Row, &VariableDetails))| {
        let unit = unit(row);
        html! {
            div.variable id=(format!("v{}", place + 1)) {
                h3 { (place + 1) ". " (line(&row.ranked.variable)) }
                p.note {
                    (row.ranked.feature) ", good " (measure(row.ranked.test.means[0])) ", bad "
                    (measure(row.ranked.test.means[1])) ", t " (measure(row.ranked.test.t))
                    @if let Some(t) = details.drift_t { "; later against earlier good traces t " (measure(t)) }
                }
                (charts::histogram(&format!("{} in good and bad traces", row.ranked.variable), &details.histogram, unit, charts::Size::Small))
                (of_histogram(&details.histogram))
                @if details.types.len() > 1 {
                    details {
                        summary { "By type of request" }
                        (cards::cards(
                            &["type", "good", "bad", "difference", "good traces", "bad traces"],
                            details.types.iter().take(ROWS_SHOWN).map(|row| Card::of(html! { (line(&row.name)) }, [
                                measure(row.means[0]),
                                measure(row.means[1]),
                                signed(row.means[1] - row.means[0]),
                                count(row.n[0]),
                                count(row.n[1]),
                            ])),
                            details.types.len(),
                        ))
                    }
                }
            }
        }
    };
    let rows = comparison.ranked.iter().zip(&details.variables).enumerate();
    html! {
        @if !details.variables.is_empty() {
            h2 { "Values of the first " (count(details.variables.len() as u64)) " variables" }
            p.note { (charts::LEGEND) }
            div.charts.small { @for row in rows { (one(row)) } }
        }
    }
}

/// The unit of a feature's values.
fn unit(row: &Row) -> &'static str {
    use super::features::{Feature, Kind};
    let ranked = &row.ranked;
    match (ranked.kind, ranked.feature) {
        (Kind::Event, Feature::Count) => "times",
        (Kind::Event, Feature::Present) => "1 if present",
        (Kind::Event, Feature::FirstRelative | Feature::MedianRelative | Feature::LastRelative) => {
            "share of the run"
        }
        (Kind::Event, _) => "ms since the start",
        (Kind::State, _) if ranked.variable.ends_with(" ms") => "ms",
        (Kind::State, _) => "value",
    }
}

fn only(comparison: &Comparison, details: &Details) -> Markup {
    let of = |class: usize, name: &str| {
        let (rows, all) = (&details.only[class], comparison.instances[class].max(1) as f64);
        html! {
            @if rows.is_empty() { p { "No variable is in " (name) " " (comparison.noun) " alone." } }
            @else {
                (cards::cards(
                    &[&format!("in {name} {} alone", comparison.noun), &format!("{name} {}", comparison.noun), "share"],
                    rows.iter().take(ROWS_SHOWN).map(|row| Card::of(html! { (line(&row.variable)) }, [
                        count(row.instances),
                        percent(row.instances as f64 / all),
                    ])),
                    rows.len(),
                ))
            }
        }
    };
    html! {
        h2 { "Variables in one class only" }
        p.note { "A large class has more rare variables than a small one, so look at shares." }
        (of(1, "bad"))
        (of(0, "good"))
    }
}

fn mix(comparison: &Comparison) -> Markup {
    let mix = &comparison.mix;
    html! {
        @if mix.types.len() > 1 {
            h2 { "Mix of requests" }
            p {
                @match mix.p {
                    Some(p) if mix.differs => { "The shares of types differ (" (words::p(p)) ", chi-square)." }
                    Some(p) => { "The shares of types differ no more than by chance (" (words::p(p)) ", chi-square)." }
                    None => { "There are too few traces to compare the shares of types." }
                }
            }
            (cards::cards(
                &["type", "share of good", "share of bad", "good traces", "bad traces"],
                mix.types.iter().take(ROWS_SHOWN).map(|row| Card::of(html! { (line(&row.name)) }, [
                    percent(row.shares[0]),
                    percent(row.shares[1]),
                    count(row.instances[0]),
                    count(row.instances[1]),
                ])),
                mix.types.len(),
            ))
        }
    }
}

fn drift(comparison: &Comparison, details: &Details) -> Markup {
    let Some(drift) = &details.drift else { return html! {} };
    html! {
        h2 { "Drift of good traces" }
        p {
            "Of " (count(drift.tested as u64)) " features, " (count(drift.significant as u64))
            " differ between the earlier and the later half of good traces; between good and bad traces, "
            (count(comparison.tests.iter().filter(|test| test.significant).count() as u64)) " of "
            (count(comparison.tested as u64)) " do."
            @if let Some(test) = &drift.metric {
                " P is " (measure(test.means[0])) " in the earlier and " (measure(test.means[1])) " in the later half (" (words::p(test.p)) ")."
            }
        }
        p.note { "If good traces change with time as much as that, a bad class that is later may differ for that reason alone." }
    }
}

fn placebos(report: &Report<'_>) -> Markup {
    let Some(placebos) = &report.comparison.placebos else { return html! {} };
    let start = placebos.windows.iter().map(|window| window.start_ns).min().unwrap_or(0);
    html! {
        h2 { "Placebos" }
        @if let Some(sentence) = words::placebos(report.comparison, report.window_ns) { p { (sentence) "." } }
        p.note { "Each is a stretch of good time, as long as the bad one, against all other good traces. A difference that appears there too does not come from the fault." }
        @if !placebos.windows.is_empty() {
            (table(&html! {
                tr { th { "start" } th { "traces" } th { "significant" } th.left { "strongest variable" } th { "|t|" } }
                @for window in &placebos.windows {
                    tr {
                        td { "+" (span((window.start_ns - start) as f64 / 1e9)) } td { (count(window.traces)) }
                        td { (count(window.significant as u64)) }
                        @if let Some((name, t)) = &window.first { td.name { (line(name)) } td { (measure(*t)) } }
                        @else { td.left { "-" } td { "-" } }
                    }
                }
            }))
            p.note { "Starts are counted from the first of them." }
        }
    }
}

fn left_out(report: &Report<'_>) -> Markup {
    let networks = &report.comparison.networks;
    let variables = networks.iter().map(|network| network.variables_left_out).max().unwrap_or(0);
    let instances = networks.iter().map(|network| network.instances_left_out).max().unwrap_or(0);
    let limits = network::Options::default();
    let mut lines = words::notes(report.comparison);
    if variables > 0 {
        lines.push(format!(
            "left out: {} variables of a network, which has the {} with the largest |t|",
            count(variables as u64),
            count(limits.variables_max as u64)
        ));
    }
    if instances > 0 {
        lines.push(format!(
            "left out: {} traces of a class in networks, which have {} of each, chosen by the hash of their ids",
            count(instances as u64),
            count(limits.instances_max as u64)
        ));
    }
    html! {
        h2 { "Left out" }
        @if lines.is_empty() && report.notes.is_empty() { p { "Nothing." } }
        ul { @for text in lines.iter().chain(report.notes) { li { (line(named(text))) } } }
    }
}
