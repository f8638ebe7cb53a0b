//! Charts as SVG that follow the page's colours and its width.
//!
//! Horizontal places are percentages and vertical ones pixels, so a chart stretches with the page
//! and its text keeps its size, on a phone too.

use maud::{Markup, PreEscaped, html};

use crate::numbers::tick;

mod lines;
mod strip;

pub use lines::{Line, Role, lines};
pub use strip::{Strip, shares, strips};

/// A scale from values to percentages of a chart's width or height.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    from: f64,
    to: f64,
    log: bool,
    /// Only whole numbers are labelled.
    whole: bool,
}

/// Axes extend beyond the values by this part of their length.
const ROOM: f64 = 0.04;

impl Scale {
    /// A linear scale over the finite values. `None` without any.
    pub fn linear(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let (from, to) = bounds(values.into_iter())?;
        let room = if to > from { (to - from) * ROOM } else { from.abs().max(1e-9) * 0.05 };
        // A bar or a line that begins at 0 needs no room below it.
        let low = if from == 0.0 { 0.0 } else { from - room };
        let scale = Self { from: low, to: to + room, log: false, whole: false };
        (scale.to - scale.from).is_finite().then_some(scale)
    }

    /// A logarithmic scale over the positive values. `None` without any.
    pub fn log(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let (from, to) = bounds(values.into_iter().filter(|value| *value > 0.0))?;
        let room = (to / from).powf(ROOM).max(1.02);
        let scale = Self { from: from / room, to: to * room, log: true, whole: false };
        (scale.from > 0.0 && scale.to.is_finite()).then_some(scale)
    }

    /// The same scale with labels at whole numbers only: the values are counts.
    #[must_use]
    pub fn whole(self) -> Self {
        Self { whole: true, ..self }
    }

    /// The place of a value, 0 to 100. Values beyond the ends are at the ends.
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.log {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        share.clamp(0.0, 1.0) * 100.0
    }

    /// Round values to label, at most `most`.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        let inside = |value: &f64| (self.from..=self.to).contains(value);
        if self.log {
            let decades = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
            let of = |digits: &'static [f64]| {
                let all = decades
                    .clone()
                    .flat_map(move |decade| digits.iter().map(move |d| d * 10f64.powi(decade)));
                all.filter(inside).collect::<Vec<f64>>()
            };
            let found = [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]].map(of);
            if let Some(ticks) = found.into_iter().find(|ticks| (2..=most).contains(&ticks.len())) {
                return ticks;
            }
            if (self.to / self.from).log10() > most as f64 {
                let step = ((self.to / self.from).log10() / most as f64).ceil() as i32;
                return decades
                    .filter(|decade| decade.rem_euclid(step) == 0)
                    .map(|decade| 10f64.powi(decade))
                    .filter(inside)
                    .collect();
            }
        }
        let rough = (self.to - self.from) / most.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|&step| step >= rough);
        let step = step.unwrap_or(10.0 * power).max(if self.whole { 1.0 } else { 0.0 });
        let first = (self.from / step).ceil();
        let last = (self.to / step).floor();
        (0..=(last - first).clamp(0.0, most as f64) as usize)
            .map(|at| (first + at as f64) * step + 0.0)
            .collect()
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |bounds: Option<(f64, f64)>, value| {
        Some(bounds.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    })
}

/// The text in place of a chart without values.
pub fn nothing() -> Markup {
    html! { p.note { "There are no values to draw." } }
}

/// A percentage as an attribute.
pub fn pc(percent: f64) -> String {
    format!("{percent:.2}%")
}

/// A legend: marks by their classes, with their meanings.
pub fn legend(entries: &[(&str, &str)]) -> Markup {
    html! {
        div.key { @for (class, text) in entries {
            span {
                svg viewBox="0 0 14 12" aria-hidden="true" {
                    @if class.starts_with("line") {
                        line class=(format!("stroke {class}")) x1="0" x2="14" y1="6" y2="6" {}
                    } @else {
                        rect class=(class) width="12" height="12" rx="3" {}
                    }
                }
                (text)
            }
        } }
    }
}

/// Labels and lines of a horizontal axis over a chart of this height; `unit` stands at its end.
fn axis(scale: &Scale, height: f64, unit: &str) -> Markup {
    let ticks = scale.ticks(5);
    html! {
        @for &value in &ticks {
            @let at = scale.at(value);
            line.line-grid x1=(pc(at)) x2=(pc(at)) y1="0" y2=(height) {}
            text x=(pc(at)) y=(height + 14.0) text-anchor=(anchor(at)) { (tick(value)) }
        }
        text x="100%" y=(height + 28.0) text-anchor="end" { (unit) }
    }
}

/// The room below a chart for its axis, in pixels.
const AXIS: f64 = 32.0;

fn anchor(at: f64) -> &'static str {
    match at {
        ..5.0 => "start",
        95.0.. => "end",
        _ => "middle",
    }
}

/// A chart of this height between labels to its left and, if there are any, to its right.
fn plot(title: &str, height: f64, left: &Markup, inside: &Markup, right: Option<&Markup>) -> Markup {
    html! {
        figure.plot {
            svg height=(height) aria-hidden="true" { (left) }
            svg height=(height) role="img" aria-label=(title) { (inside) }
            @if let Some(right) = right { svg.ends height=(height) { (PreEscaped(&right.0)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_label_round_values() {
        let ticks = |scale: Option<Scale>| scale.expect("values").ticks(5);
        assert_eq!(ticks(Scale::linear([0.0, 96.0])), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(ticks(Scale::log([1.0, 100.0])), [1.0, 3.0, 10.0, 30.0, 100.0]);
        assert_eq!(ticks(Scale::log([6.0, 24.0])), [10.0, 20.0]);
        assert_eq!(ticks(Scale::log([1e-6, 1e6])), [1e-6, 1e-3, 1.0, 1e3, 1e6]);
        assert_eq!(ticks(Scale::log([48.0, 49.0])), [48.0, 49.0]);
        assert_eq!(ticks(Scale::linear([-0.5, 1.5]).map(Scale::whole)), [0.0, 1.0]);
        for scale in [Scale::linear([f64::NAN]), Scale::log([0.0, -1.0]), Scale::linear([f64::MAX, f64::MIN])]
        {
            assert_eq!(scale, None);
        }
        assert_eq!(Scale::linear([-5.0, -5.0]).expect("a value").at(-5.0), 50.0);
    }

    #[test]
    fn places_are_within_the_chart() {
        let scale = Scale::log([1.0, 100.0]).expect("values");
        assert!((scale.at(10.0) - 50.0).abs() < 1e-9);
        assert_eq!([scale.at(0.0), scale.at(f64::INFINITY)], [0.0, 100.0]);
    }
}
