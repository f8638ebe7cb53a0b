//! The charts of the page.

use astracer_report::chart::{BLUE, FONT, ORANGE, SIZE, SIZE_SMALL, log_label, nothing, number, svg};
use maud::Markup;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use crate::details::drift::Slice;
use crate::details::histogram::Histogram;

/// Explains the bars.
pub(super) const LEGEND: &str = "Outlined bars: good traces. Filled bars: bad traces.";
/// Explains the marks.
pub(super) const LEGEND_OF_TIME: &str =
    "Rings and triangles: medians of good and of bad traces, from the first to the last.";

/// The size of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// Across the page.
    Large,
    /// Beside others.
    Small,
}

/// The values of both classes: outlined bars for good ones, filled bars for bad ones.
pub(super) fn histogram(title: &str, of: &Histogram, unit: &str, size: Size) -> Markup {
    let (Some(&from), Some(&to)) = (of.edges.first(), of.edges.last()) else { return nothing() };
    let top = of.shares.iter().flatten().copied().fold(0.0, f64::max).max(1e-9) * 110.0;
    let pixels = if size == Size::Large { SIZE } else { SIZE_SMALL };
    svg(title, pixels, |area| {
        let mut builder = ChartBuilder::on(area);
        builder.margin(6).margin_right(18).x_label_area_size(38).y_label_area_size(48);
        if of.log {
            let mut chart = builder.build_cartesian_2d((from..to).log_scale(), 0.0..top)?;
            draw(&mut chart, of, unit, &|&x| log_label(x, &(from..to)))
        } else {
            let mut chart = builder.build_cartesian_2d(from..to, 0.0..top)?;
            draw(&mut chart, of, unit, &|&x| number(x))
        }
    })
}

fn draw<'a, X>(
    chart: &mut ChartContext<'_, SVGBackend<'a>, Cartesian2d<X, plotters::coord::types::RangedCoordf64>>,
    of: &Histogram,
    unit: &str,
    label: &dyn Fn(&f64) -> String,
) -> astracer_report::chart::Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .disable_mesh()
        .x_labels(5)
        .y_labels(5)
        .x_desc(unit)
        .y_desc("% of traces")
        .label_style(FONT)
        .x_label_formatter(label)
        .y_label_formatter(&|y| number(*y))
        .draw()?;
    let bars = |class: usize, style: ShapeStyle| {
        let shares = of.shares[class].iter().zip(of.edges.windows(2)).filter(|(share, _)| **share > 0.0);
        shares.map(move |(share, edge)| Rectangle::new([(edge[0], 0.0), (edge[1], share * 100.0)], style))
    };
    chart.draw_series(bars(1, ORANGE.mix(0.55).filled()))?;
    chart.draw_series(bars(0, BLACK.stroke_width(1)))?;
    Ok(())
}

/// The median metric of both classes over time.
pub(super) fn timeline(slices: &[Slice], unit: &str) -> Markup {
    let step = 100.0 / slices.len().max(1) as f64;
    let points = |class: usize| -> Vec<(f64, f64)> {
        let point = |(at, slice): (usize, &Slice)| Some(((at as f64 + 0.5) * step, slice.medians[class]?));
        slices.iter().enumerate().filter_map(point).collect()
    };
    let values = || (0..2).flat_map(points).map(|(_, value)| value);
    let (least, most) = (values().fold(0.0, f64::min), values().fold(0.0, f64::max));
    if !(most - least).is_finite() {
        return nothing();
    }
    let room = if most > least { (most - least) * 0.08 } else { 1.0 };
    let range = if least < 0.0 { least - room } else { 0.0 }..most + room;
    svg("Medians of the metric in good and bad traces over time", SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(6)
            .margin_right(18)
            .x_label_area_size(38)
            .y_label_area_size(58)
            .build_cartesian_2d(0.0..100.0, range)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_labels(6)
            .y_labels(6)
            .x_desc("traces by time, %")
            .y_desc(unit)
            .label_style(FONT)
            .x_label_formatter(&|x| number(*x))
            .y_label_formatter(&|y| number(*y))
            .draw()?;
        chart.draw_series(points(0).into_iter().map(|at| Circle::new(at, 4, BLUE.stroke_width(2))))?;
        chart.draw_series(points(1).into_iter().map(|at| TriangleMarker::new(at, 6, ORANGE.filled())))?;
        Ok(())
    })
}
