//! Bounds that make the command fail, and the metric.

use astracer_compare::comparison::{Comparison, Row};
use astracer_compare::features::{Feature, Kind};
use astracer_compare::network::attention::Focus;
use astracer_compare::ranking::SURE;
use astracer_compare::traces::Metric;

use super::{FailOn, when};
use crate::failure::Failure;
use crate::output::{self, escaped};

/// The least difference that counts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Least {
    ms: f64,
    /// A share of the good class's mean.
    share: f64,
}

/// Parses "5ms,10%", in any order; both must be exceeded.
pub(super) fn least(text: &str) -> Result<Least, String> {
    let mut least = Least { ms: 0.0, share: 0.0 };
    for part in text.split(',').map(str::trim) {
        if part.ends_with('%') {
            least.share = share(part)?;
        } else {
            least.ms = when::length(part)? as f64 / 1e6;
        }
    }
    Ok(least)
}

/// A share of the good mean, which a difference may be many times as large as.
fn share(part: &str) -> Result<f64, String> {
    let percent = part
        .trim_end_matches('%')
        .trim()
        .parse()
        .ok()
        .filter(|share: &f64| share.is_finite() && *share >= 0.0);
    percent.map(|percent| percent / 100.0).ok_or_else(|| {
        format!("invalid share '{}': use a percentage of the good mean, such as 10%", escaped(part))
    })
}

/// Names a metric and its unit.
pub(super) fn metric_name(metric: &Metric, is_of_file: bool) -> String {
    match metric {
        _ if is_of_file => "metric P".to_owned(),
        Metric::Duration => "duration of the root, ms".to_owned(),
        Metric::Errors => "spans with errors".to_owned(),
        Metric::Attribute(key) => format!("the root's {}", escaped(key)),
        Metric::Operation(name) => format!("time in {}, ms", escaped(name)),
    }
}

/// Parses `--focus`.
pub(super) fn focus(text: &str) -> Result<Focus, String> {
    let focus = text.trim().parse().ok().and_then(Focus::new);
    focus.ok_or_else(|| format!("invalid focus '{}': use a number from 0 to 1", escaped(text)))
}

/// Parses `--metric`.
pub(super) fn metric(text: &str) -> Result<Metric, String> {
    match text.split_once(':') {
        Some(("attribute", key)) if !key.is_empty() => Ok(Metric::Attribute(key.to_owned())),
        Some(("operation", name)) if !name.is_empty() => Ok(Metric::Operation(name.to_owned())),
        None if text == "duration" => Ok(Metric::Duration),
        None if text == "errors" => Ok(Metric::Errors),
        _ => Err(format!(
            "invalid metric '{}': use duration, errors, attribute:KEY or operation:NAME",
            escaped(text)
        )),
    }
}

/// The value of `--weight-step`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Ms(f64),
    Number(f64),
}

/// Parses "500ms" or "3".
pub(super) fn step(text: &str) -> Result<Step, String> {
    let positive = |number: &f64| number.is_finite() && *number > 0.0;
    if let Some(number) = text.parse().ok().filter(positive) {
        return Ok(Step::Number(number));
    }
    let ms = when::length(text).ok().map(|nanos| nanos as f64 / 1e6).filter(positive);
    ms.map(Step::Ms).ok_or_else(|| {
        format!("invalid step of the metric '{}': use a duration such as 500ms, or a number", escaped(text))
    })
}

impl Step {
    /// The step in the metric's unit.
    pub(super) fn of(self, metric: &Metric) -> Result<f64, Failure> {
        match (self, metric) {
            (Self::Ms(ms), Metric::Duration | Metric::Operation(_)) => Ok(ms),
            (Self::Number(number), Metric::Errors | Metric::Attribute(_)) => Ok(number),
            (Self::Number(number), _) => Err(Failure::Usage(format!(
                "--weight-step {number} has no unit, but the metric is a time: write {number}ms or {number}s"
            ))),
            (Self::Ms(_), _) => Err(Failure::Usage(
                "--weight-step is a time, but the metric is not: give a plain number".to_owned(),
            )),
        }
    }
}

impl Least {
    /// True if a difference exceeds both bounds. The bound in ms is one for times only.
    fn is_exceeded(&self, row: &Row) -> bool {
        let ranked = &row.ranked;
        let is_time = match ranked.kind {
            Kind::State => ranked.variable.ends_with(" ms"),
            Kind::Event => matches!(
                ranked.feature,
                Feature::FirstAbsolute | Feature::MedianAbsolute | Feature::LastAbsolute
            ),
        };
        let difference = row.difference.abs();
        (!is_time || difference > self.ms) && difference > self.share * ranked.test.means[0].abs()
    }
}

/// Fails if a variable differs in the way that `--fail-on` asks for.
pub(super) fn verdict(on: FailOn, least: Option<&Least>, comparison: &Comparison) -> Result<(), Failure> {
    let counts = |row: &&Row| {
        let is_found = match on {
            FailOn::Confirmed => row.confirmed,
            FailOn::Significant => row.chance.is_none_or(|chance| chance <= SURE),
        };
        is_found && least.is_none_or(|least| least.is_exceeded(row))
    };
    let found: Vec<&Row> = comparison.ranked.iter().flat_map(Row::with_explained).filter(counts).collect();
    let Some(first) = found.first() else { return Ok(()) };
    let adjective = if on == FailOn::Confirmed { "confirmed" } else { "significant" };
    Err(Failure::Job(format!(
        "{} {adjective}; the first is {}",
        match found.len() {
            1 => "1 difference is".to_owned(),
            n => format!("{} differences are", output::count(n as u64)),
        },
        output::brief(&first.ranked.variable)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_a_time_and_a_share() {
        assert_eq!(least("5ms,10%"), Ok(Least { ms: 5.0, share: 0.1 }));
        assert_eq!(least("10%"), Ok(Least { ms: 0.0, share: 0.1 }));
        assert_eq!(least("1s,500%"), Ok(Least { ms: 1_000.0, share: 5.0 }));
        assert_eq!(least("1s"), Ok(Least { ms: 1_000.0, share: 0.0 }));
        // As in every other option, a number without a unit is seconds.
        assert_eq!(least("5"), Ok(Least { ms: 5_000.0, share: 0.0 }));
        for wrong in ["", "5ms,", "x%", "-1%", "inf%"] {
            assert!(least(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_step_has_the_unit_of_the_metric() {
        assert_eq!(step("500us"), Ok(Step::Ms(0.5)));
        assert_eq!(
            (step("500us").unwrap().of(&Metric::Duration).ok(), step("3").unwrap().of(&Metric::Errors).ok()),
            (Some(0.5), Some(3.0))
        );
        assert!(
            step("3").unwrap().of(&Metric::Duration).is_err()
                && step("3s").unwrap().of(&Metric::Errors).is_err()
        );
        for wrong in ["", "0", "-1", "nan", "inf", "0ms", "x"] {
            assert!(step(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn metrics_are_named() {
        assert_eq!(metric("operation:GET /?a:b"), Ok(Metric::Operation("GET /?a:b".to_owned())));
        assert_eq!(metric("errors"), Ok(Metric::Errors));
        for wrong in ["", "latency", "attribute:", "errors:x"] {
            assert!(metric(wrong).is_err(), "{wrong}");
        }
    }
}
