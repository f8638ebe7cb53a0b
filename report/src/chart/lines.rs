//! Lines with their names at their ends.

use maud::{Markup, html};

use super::{AXIS, Scale, axis, nothing, pc, plot};
use crate::names::{line, shortened};
use crate::numbers::{three, tick};

/// The distance of names at the right, in pixels.
const APART: f64 = 15.0;
/// The letters of a name at the right.
const LETTERS: usize = 24;

/// The look of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Coloured and thick.
    Ours,
    /// Grey.
    Other,
    /// Dashed: the reference.
    Reference,
    /// Coloured as good, or as bad.
    Class(usize),
}

impl Role {
    fn classes(self) -> &'static str {
        match self {
            Role::Ours => "thick line-ours",
            Role::Other => "line-soft faint",
            Role::Reference => "dashed line-bad",
            Role::Class(0) => "line-good",
            Role::Class(_) => "line-bad",
        }
    }

    fn of_name(self) -> &'static str {
        match self {
            Role::Ours => "fill-ours bold",
            Role::Other => "fill-soft",
            Role::Reference | Role::Class(1..) => "fill-bad",
            Role::Class(0) => "fill-good",
        }
    }
}

/// A line through points.
#[derive(Clone, Debug)]
pub struct Line {
    /// The name at its end; empty for a line without.
    pub name: String,
    /// Its look.
    pub role: Role,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Lines over two scales, `height` pixels high, with a name and the last value at each line's end.
/// `units` are those of the horizontal and the vertical axis.
pub fn lines(title: &str, height: f64, scales: [Option<Scale>; 2], units: [&str; 2], of: &[Line]) -> Markup {
    let [Some(x), Some(y)] = scales else { return nothing() };
    let top = 18.0;
    let down = |value: f64| top + (100.0 - y.at(value)) / 100.0 * (height - top);
    let left = html! {
        @for value in y.ticks(5) {
            text x="34" y=(format!("{:.1}", down(value) + 4.0)) text-anchor="end" { (tick(value)) }
        }
    };
    let finite = |line: &Line| -> Vec<(f64, f64)> {
        line.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect()
    };
    let inside = html! {
        text x="0" y="10" { (units[1]) }
        @for value in y.ticks(5) {
            line.line-grid x1="0" x2="100%" y1=(format!("{:.1}", down(value))) y2=(format!("{:.1}", down(value))) {}
        }
        (axis(&x, height, units[0]))
        svg y=(top) height=(height - top) viewBox="0 0 100 100" preserveAspectRatio="none" {
            @for line in of {
                polyline class=(line.role.classes()) points=(
                    finite(line).iter().map(|&(at, value)| format!("{:.2},{:.2}", x.at(at), 100.0 - y.at(value))).collect::<Vec<_>>().join(" ")
                ) {}
            }
        }
        @for line in of.iter().filter(|line| line.points.len() < 40) {
            @for (at, value) in finite(line) {
                circle class=(line.role.of_name()) cx=(pc(x.at(at))) cy=(format!("{:.1}", down(value))) r="3" {
                    title { (super::super::names::line(&line.name)) ": " (three(value)) " at " (three(at)) }
                }
            }
        }
    };
    let names = ends(of, &finite, &down, height);
    let right = (!names.is_empty()).then(|| {
        html! {
            @for (at, role, text, whole) in &names {
                text class=(role.of_name()) x="8" y=(format!("{:.1}", at + 4.0)) { (text) title { (whole) } }
            }
        }
    });
    plot(title, height + AXIS, &left, &inside, right.as_ref())
}

/// The names with their places, apart from each other.
fn ends(
    of: &[Line],
    finite: &dyn Fn(&Line) -> Vec<(f64, f64)>,
    down: &dyn Fn(f64) -> f64,
    height: f64,
) -> Vec<(f64, Role, String, String)> {
    let mut names: Vec<(f64, Role, String, String)> = of
        .iter()
        .filter(|own| !own.name.is_empty())
        .filter_map(|own| {
            let (_, last) = *finite(own).last()?;
            let text = format!("{} {}", three(last), line(&own.name));
            Some((down(last), own.role, shortened(&text, LETTERS), text))
        })
        .collect();
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut least = 10.0;
    for name in &mut names {
        name.0 = name.0.max(least);
        least = name.0 + APART;
    }
    // Pushed beyond the lower end, they move up again.
    let mut most = height + AXIS - 6.0;
    for name in names.iter_mut().rev() {
        name.0 = name.0.min(most);
        most = name.0 - APART;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_the_ends_lie_apart() {
        let line = |name: &str, last: f64| Line {
            name: name.to_owned(),
            role: Role::Other,
            points: vec![(1.0, 5.0), (2.0, last)],
        };
        let of: Vec<Line> = (0..12).map(|at| line("n", 1.0 + f64::from(at) / 100.0)).collect();
        let names = ends(&of, &|line| line.points.clone(), &|value| 200.0 - value, 200.0);
        assert_eq!(names.len(), 12);
        assert!(names.windows(2).all(|two| two[1].0 - two[0].0 >= APART - 1e-9));
        assert!(names.iter().all(|name| name.0 >= 0.0 && name.0 <= 200.0 + AXIS));
    }

    #[test]
    fn values_that_are_not_numbers_are_left_out() {
        let of = [Line { name: "a".into(), role: Role::Ours, points: vec![(1.0, f64::NAN), (2.0, 3.0)] }];
        let scales = [Scale::linear([1.0, 2.0]), Scale::linear([0.0, 3.0])];
        let drawn = lines("t", 100.0, scales, ["x", "y"], &of).into_string();
        assert!(!drawn.contains("NaN") && drawn.contains("3.00 a"), "{drawn}");
        assert!(lines("t", 100.0, [None, None], ["x", "y"], &of).into_string().contains("no values"));
    }
}
