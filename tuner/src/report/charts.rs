//! The charts of the tuning report.

use std::ops::Range;

use astracer_report::chart::{
    BLUE, Drawn, FONT, GREY, ORANGE, SIZE, SIZE_SMALL, log_label, log_range, nothing, number, range, svg,
};
use maud::Markup;
use plotters::prelude::*;

use super::functions::Bar;
use crate::curves::{CurvePoint, Curves, Series};
use crate::statistics::Twentieths;
use crate::tune::{Search, Tuning};

/// The height of a row of single runs.
const ROW_HEIGHT: u32 = 52;
/// The chart of convergence is cut off at this multiple of the best value.
const WORST_SHOWN: f64 = 3.0;

/// The best value of each search over the number of evaluations.
pub(super) fn convergence(tuning: &Tuning) -> Markup {
    let end = tuning.starts.iter().chain(&tuning.compared).map(|search| search.evaluations).max();
    let end = end.unwrap_or(0).max(2) as f64;
    let values = tuning.starts.iter().chain(&tuning.compared).flat_map(|search| &search.convergence);
    // The first values may be a thousand times the last ones, but the differences between the last
    // ones matter.
    let best = values.clone().map(|&(_, value)| value).fold(f64::INFINITY, f64::min);
    let Some(y) = log_range(values.map(|&(_, value)| value.min(best * WORST_SHOWN))) else {
        return nothing();
    };
    let range = y.clone();
    let (label, below) = (tuning.objective.as_str(), "evaluations");
    svg("Best value of the objective after each number of evaluations", SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(6)
            .margin_right(16)
            .x_label_area_size(38)
            .y_label_area_size(58)
            .build_cartesian_2d((1.0..end).log_scale(), y.clone().log_scale())?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_desc(below)
            .y_desc(label)
            .label_style(FONT)
            .x_label_formatter(&|&x| log_label(x, &(1.0..end)))
            .y_label_formatter(&|&y| log_label(y, &range))
            .draw()?;
        // Each line falls in steps, and continues to the end of its search.
        let steps = |search: &Search| {
            let mut points = Vec::new();
            for &(at, value) in search.convergence.iter().filter(|(_, value)| value.is_finite()) {
                if let Some(&(_, before)) = points.last() {
                    points.push((at as f64, before));
                }
                points.push((at as f64, value.min(y.end)));
            }
            if let Some(&(_, last)) = points.last() {
                points.push((search.evaluations as f64, last));
            }
            points
        };
        for search in &tuning.starts {
            chart.draw_series(LineSeries::new(steps(search), BLUE.stroke_width(1)))?;
        }
        for search in &tuning.compared {
            let dash = if search.method == "random" { (6, 3) } else { (2, 3) };
            chart.draw_series(DashedLineSeries::new(
                steps(search),
                dash.0,
                dash.1,
                ORANGE.stroke_width(2),
            ))?;
        }
        Ok(())
    })
}

/// A measure of a sampler, as a function of size.
pub(super) struct Measure {
    pub(super) what: &'static str,
    pub(super) of: fn(&CurvePoint) -> f64,
    /// Whether the scale is logarithmic.
    pub(super) log: bool,
}

/// A measure against size, for all samplers: lines for ours and for the equal share, letters for
/// baselines. The grey line is the front of all points that the search scored.
pub(super) fn by_size(curves: &Curves, measure: &Measure, front: &[(f64, f64)], letters: &[char]) -> Markup {
    let all = || curves.series.iter().flat_map(|series| series.points.iter().flatten());
    let front: Vec<(f64, f64)> = front.iter().map(|&(size, value)| (size * 100.0, value)).collect();
    let sizes = all().map(|point| point.size * 100.0);
    let values = all().map(measure.of).chain(front.iter().map(|&(_, value)| value));
    let Some(x) = log_range(sizes) else { return nothing() };
    let y = if measure.log { log_range(values) } else { range(values) };
    let Some(y) = y else { return nothing() };
    let title = format!("{} against the share of the bytes kept", measure.what);
    svg(&title, SIZE, |area| {
        let mut builder = ChartBuilder::on(area);
        builder.margin(6).margin_right(16).x_label_area_size(38).y_label_area_size(58);
        if measure.log {
            let mut chart = builder.build_cartesian_2d(x.clone().log_scale(), y.clone().log_scale())?;
            draw_by_size(&mut chart, (&x, Some(&y)), curves, measure, &front, letters)
        } else {
            let mut chart = builder.build_cartesian_2d(x.clone().log_scale(), y.clone())?;
            draw_by_size(&mut chart, (&x, None), curves, measure, &front, letters)
        }
    })
}

fn draw_by_size<'a, X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'a>, Cartesian2d<X, Y>>,
    (x, log_y): (&Range<f64>, Option<&Range<f64>>),
    curves: &Curves,
    measure: &Measure,
    front: &[(f64, f64)],
    letters: &[char],
) -> Drawn
where
    X: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc("% of the bytes")
        .y_desc(measure.what)
        .label_style(FONT)
        .x_label_formatter(&|&at| log_label(at, x))
        .y_label_formatter(&|&at| log_y.map_or_else(|| number(at), |range| log_label(at, range)))
        .draw()?;
    chart.draw_series(LineSeries::new(front.iter().copied(), GREY.mix(0.5).stroke_width(1)))?;
    let mut labels = Labels::within(chart.plotting_area().get_pixel_range());
    // Ours are placed first, and stay where they are.
    let mut series: Vec<(&Series, char)> = curves.series.iter().zip(letters.iter().copied()).collect();
    series.sort_by_key(|(series, letter)| (!series.ours, *letter != EQUAL_SHARE));
    for (series, letter) in series {
        let points: Vec<(f64, f64)> = series
            .points
            .iter()
            .flatten()
            .map(|point| (point.size * 100.0, (measure.of)(point)))
            .filter(|(_, value)| value.is_finite())
            .collect();
        let color = match (series.ours, letter) {
            (true, _) => BLUE,
            (false, EQUAL_SHARE) => ORANGE,
            (false, _) => BLACK,
        };
        if series.ours {
            chart.draw_series(LineSeries::new(points.clone(), BLUE.stroke_width(2)))?;
        } else if letter == EQUAL_SHARE {
            chart.draw_series(DashedLineSeries::new(points.clone(), 5, 3, ORANGE.stroke_width(2)))?;
        }
        let mut drawn: Vec<(i32, i32)> = Vec::new();
        for at in points {
            let pixel = chart.backend_coord(&at);
            // A baseline that cannot keep less has the same point at each size.
            if drawn.iter().any(|&(x, y)| (x - pixel.0).abs() < 6 && (y - pixel.1).abs() < 6) {
                continue;
            }
            drawn.push(pixel);
            let (dx, dy) = labels.place(pixel);
            let moved = (dx, dy) != (0, 0);
            let place = || EmptyElement::at(at);
            if moved {
                let leader = PathElement::new(vec![(0, 0), (dx, dy)], GREY.stroke_width(1));
                chart.draw_series([place() + leader + Circle::new((0, 0), 2, color.filled())])?;
            }
            if series.ours {
                let ring = Circle::new((dx, dy), 8, WHITE.filled());
                chart.draw_series([place() + ring + Circle::new((dx, dy), 8, BLUE.stroke_width(2))])?;
            } else if moved {
                chart.draw_series([place() + Circle::new((dx, dy), 6, WHITE.filled())])?;
            }
            // The letter's middle on its place.
            let style = FONT.into_font().color(&color);
            chart.draw_series([place() + Text::new(letter.to_string(), (dx - 4, dy - 7), style)])?;
        }
    }
    Ok(())
}

/// Places letters beside each other where their points nearly coincide.
struct Labels {
    placed: Vec<(i32, i32)>,
    x: Range<i32>,
    y: Range<i32>,
}

impl Labels {
    /// The least distance of two letters, in pixels to the side and up or down.
    const APART: (i32, i32) = (14, 15);
    /// Rings of places that are tried around a point.
    const RINGS: i32 = 6;

    /// Keeps letters inside an area of pixels.
    fn within((x, y): (Range<i32>, Range<i32>)) -> Self {
        Self { placed: Vec::new(), x, y }
    }

    /// The offset from its point at which a letter overlaps no other: the nearest one, or none
    /// where everything is full.
    fn place(&mut self, (x, y): (i32, i32)) -> (i32, i32) {
        let is_free = |(dx, dy): (i32, i32)| {
            let is_apart = |&(other_x, other_y): &(i32, i32)| {
                (x + dx - other_x).abs() >= Self::APART.0 || (y + dy - other_y).abs() >= Self::APART.1
            };
            let is_inside = self.x.contains(&(x + dx)) && self.y.contains(&(y + dy));
            (is_inside || (dx, dy) == (0, 0)) && self.placed.iter().all(is_apart)
        };
        let around = (0..=Self::RINGS).flat_map(|ring| {
            let side = -ring..=ring;
            let ring_places = side.clone().flat_map(move |dx| side.clone().map(move |dy| (dx, dy)));
            ring_places.filter(move |(dx, dy)| dx.abs().max(dy.abs()) == ring)
        });
        let offset = around.map(|(dx, dy)| (dx * Self::APART.0, dy * Self::APART.1)).find(|&at| is_free(at));
        let offset = offset.unwrap_or_default();
        self.placed.push((x + offset.0, y + offset.1));
        offset
    }
}

/// Single runs of some samplers, one below the other: nine of ten runs in a light bar, half of them
/// in a dark one, the median as a line.
pub(super) fn runs(rows: &[(&str, &Twentieths)]) -> Markup {
    let ends = rows.iter().flat_map(|(_, runs)| [runs.at(0), runs.at(20)]);
    let Some(x) = log_range(ends) else { return nothing() };
    let height = ROW_HEIGHT * rows.len() as u32;
    svg("Single runs' dist/entropy by sampler", (SIZE.0, height + ROW_HEIGHT), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(6)
            .margin_right(16)
            .x_label_area_size(38)
            .build_cartesian_2d(x.clone().log_scale(), 0.0..rows.len() as f64)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .disable_y_axis()
            .x_desc("dist/entropy of one run")
            .label_style(FONT)
            .x_label_formatter(&|&at| log_label(at, &x))
            .draw()?;
        for (place, (name, runs)) in rows.iter().enumerate() {
            let color = [BLUE, ORANGE, GREY][place.min(2)];
            let bottom = (rows.len() - 1 - place) as f64;
            let value = |twentieth: usize| runs.at(twentieth).clamp(x.start, x.end);
            let bar = |from: usize, to: usize| {
                Rectangle::new(
                    [(value(from), bottom + 0.08), (value(to), bottom + 0.5)],
                    color.mix(0.45).filled(),
                )
            };
            let line = |from: usize, to: usize| {
                let ends = if from == to { [0.04, 0.54] } else { [0.29, 0.29] };
                PathElement::new(
                    vec![(value(from), bottom + ends[0]), (value(to), bottom + ends[1])],
                    color.stroke_width(if from == to { 3 } else { 1 }),
                )
            };
            chart.draw_series([bar(1, 19), bar(5, 15)])?;
            chart.draw_series([line(0, 20), line(10, 10)])?;
            let text = format!("{name} (median {})", number(runs.at(10)));
            let at = EmptyElement::at((x.start, bottom + 0.92));
            chart.draw_series([at + Text::new(text, (4, 0), FONT.into_font().color(&color))])?;
        }
        Ok(())
    })
}

/// The letter of the equal share.
pub(super) const EQUAL_SHARE: char = '=';

/// A latency histogram: outlined bars for the whole, filled bars for the weighted sample.
pub(super) fn histogram(name: &str, bars: &[Bar]) -> Markup {
    let (Some(first), Some(last)) = (bars.first(), bars.last()) else { return nothing() };
    // Durations of 0 have no place on a logarithmic axis, so their bar is left of it, after a gap.
    let least = bars.iter().map(|bar| bar.from_ms).find(|&from| from > 0.0).unwrap_or(1e-6);
    let sides = |bar: &Bar| {
        if bar.to_ms == 0.0 { (least / 3.0, least / 2.0) } else { (bar.from_ms.max(least / 1.4), bar.to_ms) }
    };
    let x = sides(first).0..sides(last).1;
    let top = bars.iter().map(|bar| bar.all.max(bar.kept)).fold(0.0, f64::max).max(1e-9);
    let title = format!("Latency histogram of {name}");
    svg(&title, SIZE_SMALL, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(4)
            .margin_right(14)
            .x_label_area_size(32)
            .y_label_area_size(40)
            .build_cartesian_2d(x.clone().log_scale(), 0.0..top * 110.0)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_labels(4)
            .y_labels(4)
            .x_desc("ms")
            .y_desc("% of calls")
            .label_style(("sans-serif", 11))
            .x_label_formatter(&|&at| log_label(at, &x))
            .y_label_formatter(&|y| number(*y))
            .draw()?;
        let corners = |bar: &Bar, share: f64| [(sides(bar).0, 0.0), (sides(bar).1, share * 100.0)];
        chart.draw_series(
            bars.iter().map(|bar| Rectangle::new(corners(bar, bar.kept), ORANGE.mix(0.55).filled())),
        )?;
        chart.draw_series(
            bars.iter().map(|bar| Rectangle::new(corners(bar, bar.all), BLACK.stroke_width(1))),
        )?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_the_same_point_lie_apart() {
        let mut labels = Labels::within((0..400, 0..300));
        for _ in 0..20 {
            labels.place((100, 100));
            labels.place((103, 98));
        }
        for (index, one) in labels.placed.iter().enumerate() {
            for other in &labels.placed[..index] {
                let apart = ((one.0 - other.0).abs(), (one.1 - other.1).abs());
                assert!(apart.0 >= Labels::APART.0 || apart.1 >= Labels::APART.1, "{one:?} {other:?}");
            }
        }
        assert_eq!(labels.placed[0], (100, 100));
    }
}
