//! Strips: classes below each other on one axis, as distributions or as shares.

use maud::{Markup, html};

use super::{AXIS, Scale, axis, nothing, pc, plot};
use crate::names::shortened;
use crate::numbers::three;

/// The height of a strip, in pixels.
const STRIP: f64 = 24.0;
/// The letters of a strip's name.
const LETTERS: usize = 6;

/// One class.
#[derive(Clone, Debug, Default)]
pub struct Strip<'s> {
    /// Its name, of a few letters.
    pub name: &'s str,
    /// Its colour's class: `good`, `bad`, `ours` or `soft`.
    pub colour: &'s str,
    /// Stretches of the axis, each with a share: the bars of a histogram, all to one scale.
    pub bars: Vec<(f64, f64, f64)>,
    /// A dot: the mean or the median.
    pub dot: Option<f64>,
    /// A line around the dot: its interval.
    pub interval: Option<[f64; 2]>,
}

/// Strips on one axis.
pub fn strips(title: &str, scale: Option<Scale>, unit: &str, of: &[Strip<'_>]) -> Markup {
    let Some(scale) = scale else { return nothing() };
    let most = of.iter().flat_map(|strip| &strip.bars).map(|bar| bar.2).fold(0.0, f64::max).max(1e-9);
    let height = STRIP * of.len() as f64 + 4.0;
    let top = |place: usize| STRIP * place as f64 + 2.0;
    let left = html! {
        @for (place, strip) in of.iter().enumerate() {
            text.strong x="0" y=(top(place) + 15.0) { (shortened(strip.name, LETTERS)) }
        }
    };
    let inside = html! {
        @for place in 0..of.len() { rect.fill-track y=(top(place)) width="100%" height=(STRIP - 3.0) rx="3" {} }
        (axis(&scale, height, unit))
        @for (place, strip) in of.iter().enumerate() {
            @let bottom = top(place) + STRIP - 3.0;
            g class=(format!("fill-{}", strip.colour)) {
                @for &(from, to, share) in strip.bars.iter().filter(|bar| bar.2 > 0.0) {
                    @let (left, high) = (scale.at(from), (share / most * (STRIP - 4.0)).max(1.0));
                    rect.faint x=(pc(left)) width=(pc((scale.at(to) - left).max(0.3))) y=(format!("{:.1}", bottom - high)) height=(format!("{high:.1}")) {}
                }
            }
            @if let Some([from, to]) = strip.interval.filter(|ends| ends.iter().all(|end| end.is_finite())) {
                line class=(format!("stroke thick line-{}", strip.colour)) x1=(pc(scale.at(from))) x2=(pc(scale.at(to))) y1=(bottom - 9.0) y2=(bottom - 9.0) {}
            }
            @if let Some(dot) = strip.dot.filter(|dot| dot.is_finite()) {
                circle class=(format!("fill-{}", strip.colour)) cx=(pc(scale.at(dot))) cy=(bottom - 9.0) r="4.5" { title { (three(dot)) } }
            }
        }
    };
    plot(title, height + AXIS, &left, &inside, None)
}

/// Two or more shares, 0 to 1, each as a bar with its text: "96 of 100".
pub fn shares(title: &str, of: &[(&str, &str, f64, String)]) -> Markup {
    let height = STRIP * of.len() as f64 + 2.0;
    let left = html! {
        @for (place, (name, ..)) in of.iter().enumerate() {
            text.strong x="0" y=(STRIP * place as f64 + 16.0) { (shortened(name, LETTERS)) }
        }
    };
    let inside = html! {
        @for (place, (_, colour, share, text)) in of.iter().enumerate() {
            @let (top, wide) = (STRIP * place as f64 + 2.0, share.clamp(0.0, 1.0) * 100.0);
            rect.fill-track y=(top) width="100%" height=(STRIP - 4.0) rx="3" {}
            rect class=(format!("fill-{colour}")) y=(top) width=(pc(wide)) height=(STRIP - 4.0) rx="3" {}
            // The text stands beside the bar, or below its end's left where the bar is long.
            @if wide < 60.0 {
                text.strong x=(pc(wide)) dx="6" y=(top + 14.0) { (text) }
            } @else {
                text.inside x=(pc(wide)) dx="-6" y=(top + 14.0) text-anchor="end" { (text) }
            }
        }
    };
    plot(title, height, &left, &inside, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_share_one_axis() {
        let strip = |name, dot| Strip { name, colour: "good", dot: Some(dot), ..Strip::default() };
        let drawn = strips("t", Scale::log([1.0, 100.0]), "ms", &[strip("good", 10.0), strip("bad", 100.0)]);
        let drawn = drawn.into_string();
        assert!(drawn.contains(r#"cx="50.00%""#) && drawn.contains(">ms</text>"), "{drawn}");
        assert_eq!(drawn.matches("<circle").count(), 2);
    }

    #[test]
    fn a_share_is_as_long_as_it_is_large() {
        let drawn = shares("t", &[("good", "good", 0.25, "1 of 4".into()), ("bad", "bad", 2.0, "?".into())]);
        let drawn = drawn.into_string();
        assert!(drawn.contains(r#"width="25.00%""#) && drawn.contains(r#"width="100.00%""#), "{drawn}");
        assert!(drawn.contains("1 of 4"));
    }
}
