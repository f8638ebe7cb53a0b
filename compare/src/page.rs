//! A comparison as one self-contained HTML page.

use astracer_report::chart::{Line, Role, Scale, lines};
use astracer_report::names::{line, named, short, shortened};
use astracer_report::numbers::{change, count, percent, three};
use astracer_report::page::{Next, Page, Tone, folded, table};
use maud::{Markup, html};

use super::comparison::Comparison;
use super::details::Details;
use super::{network, words};
use astracer_critical_path::lanes::Lanes;

mod graph;
mod rows;
mod tables;
mod typical;

/// The notes of a page, and the letters of each.
const NOTES_SHOWN: usize = 100;
const NOTE: usize = 600;

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
    /// Commands to run next.
    pub next: &'a [Next],
}

/// The page as HTML. Text from the recordings is escaped.
pub fn page(report: &Report<'_>) -> String {
    let comparison = report.comparison;
    let details = comparison.details.as_ref();
    let body = html! {
        (rows::rows(comparison))
        @if let Some(of) = details.and_then(|details| details.typical.as_ref()) {
            (typical::pair(comparison, of, report.lanes))
        }
        h2 { "More" }
        @if let Some(details) = details { (over_time(comparison, details)) (tables::by_type(comparison, details)) }
        (tables::services(comparison))
        (tables::mix(comparison))
        @if let Some(details) = details { (tables::only(comparison, details)) (drift(comparison, details)) }
        (tables::placebos(report))
        (graph::networks(comparison))
        (tables::networks(&comparison.networks))
        (tables::tests(comparison))
        (left_out(report))
    };
    let title = format!("astracer compare: {}", short(report.title));
    let about = format!("astracer compare · {} · {}", short(report.title), words::classes(comparison));
    Page {
        title: &title,
        about: &about,
        answer: &answer(comparison),
        picture: picture(report),
        tone: if is_different(comparison) { Tone::Bad } else { Tone::Plain },
        next: report.next,
        script: None,
    }
    .html(&body)
}

fn is_different(comparison: &Comparison) -> bool {
    comparison.metric.differs() || comparison.significant > 0
}

fn answer(comparison: &Comparison) -> String {
    let (metric, noun) = (&comparison.metric, comparison.noun);
    let [good, bad] = metric.means.map(three);
    let n = comparison.significant;
    if metric.differs() {
        return match metric.name.strip_suffix(", ms") {
            Some("duration of the root") => format!("Bad {noun} take {bad} ms instead of {good} ms"),
            _ => format!("{}: {bad} in bad {noun}, {good} in good ones", short(&metric.name)),
        };
    }
    match (n, comparison.tested) {
        (_, 0) => "There is too little to compare".to_owned(),
        (0, _) => format!("Good and bad {noun} do not differ by more than chance"),
        (n, _) => format!(
            "{} in bad {noun}; the difference in the {} may be chance",
            words::plural(n, "variable differs", "variables differ"),
            short(metric.name.split(',').next().unwrap_or_default())
        ),
    }
}

/// The certainty of the answer, and the metric of both classes.
fn picture(report: &Report<'_>) -> Markup {
    let (comparison, metric) = (report.comparison, &report.comparison.metric);
    html! {
        p {
            "Difference " b { (change(metric.difference)) @if let Some(error) = metric.error_95 { " ± " (three(error)) } }
            @if metric.error_95.is_some() { " (95 % interval)" } ". "
            @for sentence in words::verdict(comparison, report.paper) { (sentence_of(&sentence)) " " }
            @if let Some(sentence) = words::placebos(comparison, report.window_ns) { (sentence_of(&sentence)) }
        }
        @if let Some(sentence) = words::tail_weights(comparison) { p { (sentence_of(&sentence)) } }
        @if metric.is_heavy {
            @let [good, bad] = metric.heavy_tail.map(percent);
            p {
                "The mean is a poor summary here: " (good) " of good and " (bad) " of bad values are more than 3 standard deviations "
                "from it (0.27 % in a normal distribution)."
            }
        }
        (rows::metric(metric, comparison.details.as_ref()))
    }
}

/// A line of the terminal as a sentence.
fn sentence_of(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", letters.as_str())
}

fn over_time(comparison: &Comparison, details: &Details) -> Markup {
    let slices = &details.timeline;
    let step = 100.0 / slices.len().max(1) as f64;
    let of = |class: usize| Line {
        name: ["good", "bad"][class].to_owned(),
        role: Role::Class(class),
        points: (0..slices.len())
            .filter_map(|at| Some(((at as f64 + 0.5) * step, slices[at].medians[class]?)))
            .collect(),
    };
    let of = [of(0), of(1)];
    let values = || of.iter().flat_map(|line| &line.points).map(|point| point.1).chain([0.0]);
    let scales = [Scale::linear([0.0, 100.0]), Scale::linear(values())];
    html! { @if !slices.is_empty() {
        (folded("The metric over time", &html! {
            p.note { "Medians of good and of bad ones, from the first to the last." }
            (lines("Medians of the metric over time", 200.0, scales, ["traces by time, %", &short(&comparison.metric.name)], &of))
        }))
    } }
}

fn drift(comparison: &Comparison, details: &Details) -> Markup {
    let Some(drift) = &details.drift else { return html! {} };
    folded(
        "Drift of good traces",
        &html! {
            p {
                "Of " (count(drift.tested as u64)) " features, " (count(drift.significant as u64))
                " differ between the earlier and the later half of good traces; between good and bad traces, "
                (count(comparison.tests.iter().filter(|test| test.significant).count() as u64)) " of "
                (count(comparison.tested as u64)) " do."
                @if let Some(test) = &drift.metric {
                    " The metric is " (three(test.means[0])) " in the earlier and " (three(test.means[1])) " in the later half (" (words::p(test.p)) ")."
                }
            }
            p.note { "If good traces change with time as much as that, a bad class that is later may differ for that reason alone." }
            (table("Drift", &html! {
                tr { th { "variable" } th { "t, bad against good" } th { "t, later against earlier good" } }
                @for (row, of) in comparison.ranked.iter().zip(&details.variables) {
                    tr {
                        td.name { (short(&row.ranked.variable)) } td { (three(row.ranked.test.t)) }
                        td { (of.drift_t.map_or_else(|| "-".to_owned(), three)) }
                    }
                }
            }))
        },
    )
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
        @if lines.is_empty() && report.notes.is_empty() { p { "Nothing was left out." } }
        ul { @for text in lines.iter().chain(report.notes).take(NOTES_SHOWN) { li { (shortened(&line(named(text)), NOTE)) } } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_terminal_becomes_a_sentence() {
        assert_eq!(sentence_of("within chance: it is"), "Within chance: it is.");
    }
}
