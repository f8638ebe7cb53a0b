//! The charts of the tuning report.

use astracer_report::chart::{Line, Role, Scale, Strip, lines, strips};
use maud::Markup;

use super::functions::Bar;
use crate::curves::{CurvePoint, Curves, Series};
use crate::statistics::Twentieths;
use crate::tune::{Search, Tuning};

/// The chart of convergence is cut off at this multiple of the best value.
const WORST_SHOWN: f64 = 3.0;
/// Other samplers that have a line: those with the lowest dist/entropy at the largest size.
const OTHERS: usize = 3;

/// A measure of a sampler, as a function of size.
pub(super) struct Measure {
    pub(super) what: &'static str,
    pub(super) of: fn(&CurvePoint) -> f64,
    /// Whether the scale is logarithmic.
    pub(super) log: bool,
}

/// The lines of a chart by size: an equal share, our sampler `own`, and the three best others, or
/// `all` of them.
fn chosen<'c>(curves: &'c Curves, own: &str, all: bool) -> Vec<(&'c Series, Role)> {
    let value = |series: &&Series| {
        let first = series.points.first().and_then(Option::as_ref);
        first.filter(|point| point.size_met).map_or(f64::INFINITY, |point| point.dist_over_entropy)
    };
    // The tuning itself has one point, at the largest size.
    let mut ours: Vec<&Series> = curves.series.iter().skip(2).filter(|series| series.ours).collect();
    let mut others: Vec<&Series> = curves.series.iter().skip(2).filter(|series| !series.ours).collect();
    // The kind of sampler that was found comes first.
    ours.sort_by(|a, b| (a.name != own).cmp(&(b.name != own)).then(value(a).total_cmp(&value(b))));
    others.sort_by(|a, b| value(a).total_cmp(&value(b)));
    if !all {
        ours.truncate(1);
        others.retain(|series| value(series).is_finite());
        others.truncate(OTHERS);
    }
    let equal = curves.series.first().map(|series| (series, Role::Reference));
    let others = others.into_iter().map(|series| (series, Role::Other));
    let ours = ours.into_iter().chain(curves.series.get(1)).map(|series| (series, Role::Ours));
    others.chain(equal).chain(ours).collect()
}

/// A measure against size, with each sampler's name at the end of its line.
pub(super) fn by_size(curves: &Curves, own: &str, measure: &Measure, all: bool) -> Markup {
    let line = |(series, role): (&Series, Role)| {
        let mut points: Vec<(f64, f64)> = series
            .points
            .iter()
            .flatten()
            .map(|point| (point.size * 100.0, (measure.of)(point)))
            .filter(|(_, value)| value.is_finite())
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { name: series.name.clone(), role, points }
    };
    let of: Vec<Line> =
        chosen(curves, own, all).into_iter().map(line).filter(|line| !line.points.is_empty()).collect();
    let points = || of.iter().flat_map(|line| line.points.iter().copied());
    let y = match measure.log {
        true => Scale::log(points().map(|point| point.1)),
        false => Scale::linear(points().map(|point| point.1).chain([0.0])),
    };
    let title = format!("{} by the share of the bytes that is kept", measure.what);
    // As many names as lines stand beside each other.
    let height = if all { 30.0 + 15.0 * of.len() as f64 } else { 190.0 };
    lines(
        &title,
        height.max(190.0),
        [Scale::log(points().map(|point| point.0)), y],
        ["% of the bytes", measure.what],
        &of,
    )
}

/// The best value of each search over the number of evaluations.
pub(super) fn convergence(tuning: &Tuning) -> Markup {
    let searches = || tuning.starts.iter().chain(&tuning.compared);
    let values = || searches().flat_map(|search| search.convergence.iter().map(|&(_, value)| value));
    // The first values may be a thousand times the last ones, but the differences between the last
    // ones matter.
    let best = values().fold(f64::INFINITY, f64::min);
    let most = best * WORST_SHOWN;
    // Each line falls in steps, and continues to the end of its search.
    let line = |search: &Search| {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for &(at, value) in search.convergence.iter().filter(|(_, value)| value.is_finite()) {
            if let Some(&(_, before)) = points.last() {
                points.push((at as f64, before));
            }
            points.push((at as f64, value.min(most)));
        }
        points.extend(points.last().map(|&(_, last)| (search.evaluations as f64, last)));
        let is_compared = tuning.compared.iter().any(|other| std::ptr::eq(other, search));
        let name = if is_compared { search.method.to_owned() } else { String::new() };
        Line { name, role: if is_compared { Role::Reference } else { Role::Ours }, points }
    };
    let of: Vec<Line> = searches().map(line).collect();
    let ends = searches().map(|search| search.evaluations as f64);
    let scales = [Scale::log(ends.chain([1.0])), Scale::log(values().map(|value| value.min(most)))];
    lines(
        "Best value of the objective after each number of evaluations",
        200.0,
        scales,
        ["evaluations", &tuning.objective],
        &of,
    )
}

/// Single runs of some samplers: nine of ten runs in the low bar, half of them in the high one, all
/// on the line, and a dot at the median.
pub(super) fn runs(rows: &[(&str, &str, &Twentieths)]) -> Markup {
    let scale = Scale::log(rows.iter().flat_map(|(.., runs)| [runs.at(0), runs.at(20)]));
    let of: Vec<Strip<'_>> = rows
        .iter()
        .map(|&(name, colour, runs)| Strip {
            name,
            colour,
            bars: vec![(runs.at(1), runs.at(19), 0.5), (runs.at(5), runs.at(15), 1.0)],
            dot: Some(runs.at(10)),
            interval: Some([runs.at(0), runs.at(20)]),
        })
        .collect();
    strips("Single runs' dist/entropy by sampler", scale, "dist/entropy of one run", &of)
}

/// A latency histogram of all calls and, by weight, of those kept.
pub(super) fn histogram(name: &str, bars: &[Bar]) -> Markup {
    // Durations of 0 have no place on a logarithmic axis, so their bar is left of it, after a gap.
    let least = bars.iter().map(|bar| bar.from_ms).find(|&from| from > 0.0).unwrap_or(1e-6);
    let sides = |bar: &Bar| {
        if bar.to_ms == 0.0 { (least / 3.0, least / 2.0) } else { (bar.from_ms.max(least / 1.4), bar.to_ms) }
    };
    let scale = Scale::log(bars.iter().flat_map(|bar| [sides(bar).0, sides(bar).1]));
    let strip = |name, colour, of: fn(&Bar) -> f64| Strip {
        name,
        colour,
        bars: bars.iter().map(|bar| (sides(bar).0, sides(bar).1, of(bar))).collect(),
        ..Strip::default()
    };
    strips(name, scale, "ms", &[strip("all", "soft", |bar| bar.all), strip("kept", "ours", |bar| bar.kept)])
}
