//! Charts, as SVG.
//!
//! They are drawn at the width of a phone, and a browser scales them up, so that text is readable
//! on both.

use std::io;
use std::ops::Range;

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::prelude::*;

/// The size of a chart across the page, in pixels before scaling.
pub const SIZE: (u32, u32) = (480, 330);
/// The size of a chart beside others.
pub const SIZE_SMALL: (u32, u32) = (330, 200);
/// The font of labels.
pub const FONT: (&str, u32) = ("sans-serif", 13);
/// Dark enough for thin lines on paper, and distinguishable with red-green colour blindness (Okabe
/// and Ito).
pub const BLUE: RGBColor = RGBColor(0, 90, 160);
/// As [`BLUE`].
pub const ORANGE: RGBColor = RGBColor(200, 80, 0);
/// For parts that matter less.
pub const GREY: RGBColor = RGBColor(110, 110, 110);
/// Axes extend beyond the values by this factor.
const ROOM: f64 = 1.12;

/// The area on which a chart is drawn.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// The result of drawing.
pub type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

/// Draws an SVG that scales with the page, and gives it a title for screen readers.
pub fn svg(title: &str, size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Markup {
    let mut text = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&area).is_ok() && area.present().is_ok()
    };
    let Some(start) = text.find("<svg").filter(|_| drawn) else { return nothing() };
    // The page sets the size, and the view box keeps the proportions.
    let text =
        text[start..].replacen(&format!("width=\"{}\" height=\"{}\" ", size.0, size.1), "role=\"img\" ", 1);
    let label = html! { title { (title) } }.into_string();
    let inside = text.find('>').map_or(0, |end| end + 1);
    html! { figure { (PreEscaped(format!("{}{label}{}", &text[..inside], &text[inside..]))) } }
}

/// The text in place of a chart without values.
pub fn nothing() -> Markup {
    html! { p.note { "There is nothing to draw." } }
}

/// The range of the positive numbers, with a margin.
pub fn log_range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let (low, high) = bounds(values.filter(|value| *value > 0.0))?;
    Some(low / ROOM..high * ROOM)
}

/// The range from 0 to the largest number, with a margin.
pub fn range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    bounds(values).map(|(_, high)| 0.0..high.max(f64::MIN_POSITIVE) * ROOM)
}

fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |bounds: Option<(f64, f64)>, value| {
        Some(bounds.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    })
}

/// A label of a logarithmic axis, empty where labels would overlap.
///
/// The axis marks each multiple of a power of ten, which is too many beside the next power.
pub fn log_label(value: f64, range: &Range<f64>) -> String {
    let decades = (range.end / range.start).log10();
    let digit = (value / 10f64.powf((value * 1.000_001).log10().floor())).round() as u64;
    let shown: &[u64] = match decades {
        ..0.4 => return number(value),
        0.4..1.4 => &[1, 2, 3, 5, 7],
        1.4..2.5 => &[1, 2, 5],
        _ => &[1],
    };
    if shown.contains(&digit) { number(value) } else { String::new() }
}

/// A label: three digits.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 {
        format!("{:.0}M", value / 1e6)
    } else if size >= 1e4 {
        format!("{:.0}k", value / 1e3)
    } else if size >= 100.0 || value == 0.0 {
        format!("{value:.0}")
    } else {
        let digits = (2 - size.log10().floor() as i32).clamp(0, 6) as usize;
        let text = format!("{value:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_an_axis_leave_room() {
        let labels = |range: Range<f64>, values: &[f64]| -> Vec<String> {
            values.iter().map(|&value| log_label(value, &range)).collect()
        };
        assert_eq!(labels(8.0..150.0, &[10.0, 20.0, 80.0, 90.0, 100.0]), ["10", "20", "", "", "100"]);
        assert_eq!(labels(1.0..3000.0, &[1.0, 2.0, 1000.0]), ["1", "", "1000"]);
        assert_eq!(labels(40.0..60.0, &[48.0, 49.0]), ["48", "49"]);
    }
}
