//! The variables that differ: a row for each, with both classes on one axis. Rows that another row
//! or chance explains are folded.

use astracer_report::chart::{Scale, Strip, legend, shares, strips};
use astracer_report::names::short;
use astracer_report::numbers::{change, count, percent, three};
use astracer_report::page::{folded, more};
use maud::{Markup, html};

use crate::comparison::{Comparison, MetricRow, Row, Weights};
use crate::details::histogram::Histogram;
use crate::details::{Details, VariableDetails};
use crate::features::{Feature, Kind};
use crate::ranking::LEVEL;
use crate::words;

/// The rows that are not folded.
const OPEN: usize = 12;
/// The rows below a fold.
const FOLDED: usize = 50;

/// A row, with the values behind it if they are known.
type Place<'c> = (&'c Row, Option<&'c VariableDetails>);

pub(super) fn rows(comparison: &Comparison) -> Markup {
    if comparison.ranked.is_empty() {
        return html! { h2 { "What differs" } p { "No variable differs." } };
    }
    let details = comparison.details.iter().flat_map(|details| &details.variables).map(Some);
    let all: Vec<Place<'_>> = comparison.ranked.iter().zip(details.chain(std::iter::repeat(None))).collect();
    let is_chance = |row: &Row| row.chance.is_some_and(|chance| chance > LEVEL) && !row.confirmed;
    let (chance, differ): (Vec<_>, Vec<_>) = all.into_iter().partition(|(row, _)| is_chance(row));
    let (open, closed) = differ.split_at(differ.len().min(OPEN));
    let explained: Vec<(&Row, &Row)> = comparison
        .ranked
        .iter()
        .filter(|row| !is_chance(row))
        .flat_map(|row| row.explains.iter().map(move |below| (row, below)))
        .collect();
    let plain = |of: &[Place<'_>]| {
        html! {
            @for place in of.iter().take(FOLDED) { (row(comparison, *place, None)) }
            (more(of.len(), FOLDED))
        }
    };
    html! {
        h2 { "What differs" }
        p.note {
            "A variable below goes with bad " (comparison.noun) "; that alone does not say that it makes them bad."
        }
        (legend(&[("fill-good", "good"), ("fill-bad", "bad")]))
        p.note { "Bars: the distribution of each class. Dot: its mean. Line around the bad mean: the 95 % interval of the difference." }
        @if open.is_empty() { p { "No variable differs by more than chance." } }
        @for place in open { (row(comparison, *place, None)) }
        (fold(closed.len(), "more variable differs", "more variables differ", &plain(closed)))
        (fold(explained.len(), "variable is explained by these: its difference vanishes given one of them",
            "variables are explained by these: their difference vanishes given one of them", &html! {
            @for (by, below) in explained.iter().take(FOLDED) { (row(comparison, (below, None), Some(by))) }
            (more(explained.len(), FOLDED))
        }))
        (fold(chance.len(), "variable does not differ by more than chance", "variables do not differ by more than chance", &plain(&chance)))
        (pairs(comparison))
    }
}

fn fold(number: usize, one: &str, many: &str, body: &Markup) -> Markup {
    html! { @if number > 0 { (folded(&words::plural(number, one, many), body)) } }
}

fn pairs(comparison: &Comparison) -> Markup {
    html! { @if !comparison.pairs.is_empty() {
        h3 { "Pairs that differ more than each alone" }
        @for pair in &comparison.pairs {
            div.row {
                div.name { b { (short(&pair.variables[0])) } span { "and " (short(&pair.variables[1])) } }
                (share("Share of both together", pair.means, None, comparison))
                div.say { b { (percent(pair.means[0])) " → " (percent(pair.means[1])) } }
            }
        }
    } }
}

fn row(comparison: &Comparison, (row, details): Place<'_>, explained_by: Option<&Row>) -> Markup {
    let test = &row.ranked.test;
    let is_share = row.ranked.feature == Feature::Present;
    let number = |value: f64| if is_share { percent(value) } else { three(value) };
    let change = match is_share {
        true => format!("{} ± {} points", change(row.difference * 100.0), three(row.error_95 * 100.0)),
        false => format!("{} ± {}", change(row.difference), three(row.error_95)),
    };
    let name = short(&row.ranked.variable);
    html! {
        div.row.below[explained_by.is_some()] {
            div.name {
                b { (name) }
                span {
                    (about(row, comparison.noun))
                    @if row.by_choice { "; differs because of the rule that chose the bad class" }
                    @if let Some(by) = explained_by { "; explained by " (short(&by.ranked.variable)) } }
            }
            @if is_share { (share(&name, test.means, Some(test.n), comparison)) }
            @else { (values(&name, row, details.map(|details| &details.histogram))) }
            div.say { b { (number(test.means[0])) " → " (number(test.means[1])) } span { (change) } span { (certainty(row)) } }
        }
    }
}

/// The number of a variable that differs, in words.
fn about(row: &Row, noun: &str) -> String {
    let moment = |which: &str| format!("{which}, ms after the start");
    match row.ranked.feature {
        Feature::Present => format!("in how many {noun}"),
        Feature::Count => "times in each".to_owned(),
        Feature::FirstAbsolute => moment("its first time"),
        Feature::MedianAbsolute => moment("its median time"),
        Feature::LastAbsolute => moment("its last time"),
        Feature::FirstRelative => "its first time, share of the length".to_owned(),
        Feature::MedianRelative => "its median time, share of the length".to_owned(),
        Feature::LastRelative => "its last time, share of the length".to_owned(),
        Feature::Min => "smallest value".to_owned(),
        Feature::Mean => "mean value".to_owned(),
        Feature::Max => "largest value".to_owned(),
        Feature::Final => "last value".to_owned(),
        Feature::QuarterRelative => "value at a quarter of the length".to_owned(),
        Feature::HalfRelative => "value at half of the length".to_owned(),
        Feature::ThreeQuarterRelative => "value at three quarters of the length".to_owned(),
        Feature::QuarterAbsolute => "value after a quarter of the usual length".to_owned(),
        Feature::HalfAbsolute => "value after half of the usual length".to_owned(),
        Feature::ThreeQuarterAbsolute => "value after three quarters of the usual length".to_owned(),
    }
}

fn certainty(row: &Row) -> String {
    let mut parts = Vec::new();
    if let Some(ratio) = row.null_ratio {
        let times = format!("{} times the difference of good runs", three(ratio));
        parts.push(if row.confirmed { format!("confirmed: {times}") } else { times });
    }
    if let Some(chance) = row.chance {
        parts.push(if chance < 0.01 {
            "chance below 1 %".to_owned()
        } else {
            format!("chance {:.0} %", chance * 100.0)
        });
    }
    if let Some(placebo) = row.placebo_t {
        parts.push(format!("|t| {}, in placebos at most {}", three(row.ranked.test.t.abs()), three(placebo)));
    }
    parts.join("; ")
}

/// Both classes as shares, with the numbers of instances if each counts once.
fn share(title: &str, means: [f64; 2], n: Option<[u64; 2]>, comparison: &Comparison) -> Markup {
    let n = n.unwrap_or(comparison.instances);
    let whole = [0, 1].map(|class| means[class] * n[class] as f64);
    let are_counts = comparison.weights == Weights::Equal
        && whole.iter().all(|whole| (whole - whole.round()).abs() < 1e-6 * whole.max(1.0));
    let text = |class: usize| match are_counts {
        true => format!("{} of {}", count(whole[class].round() as u64), count(n[class])),
        false => percent(means[class]),
    };
    shares(title, &[("good", "good", means[0], text(0)), ("bad", "bad", means[1], text(1))])
}

fn values(title: &str, row: &Row, histogram: Option<&Histogram>) -> Markup {
    let unit = match (row.ranked.kind, row.ranked.feature) {
        (Kind::Event, Feature::Count) => "times",
        (Kind::Event, Feature::FirstRelative | Feature::MedianRelative | Feature::LastRelative) => {
            "share of the length"
        }
        (Kind::Event, _) => "ms after the start",
        (Kind::State, _) if row.ranked.variable.ends_with(" ms") => "ms",
        (Kind::State, _) => "",
    };
    both(title, row.ranked.test.means, Some(row.error_95), histogram, unit)
}

/// The metric of the comparison.
pub(super) fn metric(metric: &MetricRow, details: Option<&Details>) -> Markup {
    let name = short(&metric.name);
    both(&name, metric.means, metric.error_95, details.map(|details| &details.metric), &name)
}

fn both(
    title: &str,
    means: [f64; 2],
    error: Option<f64>,
    histogram: Option<&Histogram>,
    unit: &str,
) -> Markup {
    let interval = error.map(|error| [means[1] - error, means[1] + error]);
    let edges = histogram.map(|of| of.edges.as_slice()).unwrap_or_default();
    let ends = || interval.into_iter().flatten().chain(means);
    let scale = match histogram {
        // Means and intervals beyond the ends of the bins are drawn at the ends.
        Some(of) if of.log => Scale::log(edges.iter().copied()),
        // Bins of whole numbers begin halfway between two.
        Some(_) if edges.first().is_some_and(|edge| edge.fract().abs() == 0.5) => {
            Scale::linear(edges.iter().copied()).map(Scale::whole)
        }
        Some(_) if !edges.is_empty() => Scale::linear(edges.iter().copied()),
        _ => Scale::linear(ends()),
    };
    let bars = |class: usize| -> Vec<(f64, f64, f64)> {
        let shares = histogram.map(|of| of.shares[class].as_slice()).unwrap_or_default();
        edges.windows(2).zip(shares).map(|(edge, &share)| (edge[0], edge[1], share)).collect()
    };
    let strip = |class: usize, name, interval| Strip {
        name,
        colour: name,
        bars: bars(class),
        dot: Some(means[class]),
        interval,
    };
    html! {
        div {
            (strips(title, scale, unit, &[strip(0, "good", None), strip(1, "bad", interval)]))
            @if let Some([good, bad]) = histogram.map(|of| of.missing).filter(|missing| missing.iter().any(|&share| share > 0.0)) {
                p.note { "Without a value: " (percent(good)) " of good and " (percent(bad)) " of bad ones." }
            }
            @if histogram.is_some_and(|of| of.clipped) { p.note { "The outermost bars also count values beyond them." } }
        }
    }
}
