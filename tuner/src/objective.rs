//! The objective that tuning minimises.

use std::fmt;
use std::str::FromStr;

use crate::expect::{Expected, Extras};
use crate::statistics::normal_quantile;

/// A number that rates what is kept; 0 is perfect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Measure {
    /// SS divided by IEn, as in the paper.
    DistOverEntropy,
    /// The share of call trees that are not found.
    CallTrees,
    /// The relative error of the functions' numbers of calls, estimated by weights.
    Counts,
    /// The distance of the functions' latency histograms: see [`crate::latency`].
    Latency,
    /// The share of path kinds that are not found: see [`crate::paths`].
    Paths,
    /// The distance of the path kinds' shares: see [`crate::paths::PathScore::path_distance`].
    PathDistance,
}

/// A measure, or a weighted sum of several.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// Never empty.
    terms: Vec<(f64, Measure)>,
}

impl Measure {
    const ALL: [(&'static str, Self); 6] = [
        ("dist/entropy", Self::DistOverEntropy),
        ("call-trees", Self::CallTrees),
        ("counts", Self::Counts),
        ("latency", Self::Latency),
        ("paths", Self::Paths),
        ("path-distance", Self::PathDistance),
    ];

    /// The value of this measure. Infinite if it needs something that is missing: weights to
    /// estimate counts by, or latencies or paths that were not requested.
    pub fn of(self, kept: &Expected) -> f64 {
        match self {
            Self::DistOverEntropy => kept.dist_over_entropy,
            Self::CallTrees if kept.call_trees_all > 0.0 => 1.0 - kept.call_trees / kept.call_trees_all,
            Self::CallTrees => 0.0,
            Self::Counts => kept.count_error.unwrap_or(f64::INFINITY),
            Self::Latency => kept.latency.unwrap_or(f64::INFINITY),
            Self::Paths => kept.paths.map_or(f64::INFINITY, |paths| 1.0 - paths / kept.paths_all.max(1.0)),
            Self::PathDistance => kept.path_distance.unwrap_or(f64::INFINITY),
        }
    }
}

impl Objective {
    /// The paper's objective: dist/entropy alone.
    pub fn paper() -> Self {
        Self { terms: vec![(1.0, Measure::DistOverEntropy)] }
    }

    /// Whether the objective needs weights, which a token bucket does not have.
    pub fn needs_weights(&self) -> bool {
        self.terms.iter().any(|&(_, measure)| measure == Measure::Counts)
    }

    /// Whether the objective needs the number of call trees found.
    pub fn needs_call_trees(&self) -> bool {
        self.terms.iter().any(|&(_, measure)| measure == Measure::CallTrees)
    }

    /// The measures of the objective that cost extra memory and time.
    pub fn extras(&self) -> Extras {
        let has = |measures: &[Measure]| self.terms.iter().any(|(_, measure)| measures.contains(measure));
        Extras { latencies: has(&[Measure::Latency]), paths: has(&[Measure::Paths, Measure::PathDistance]) }
    }

    /// The value of the objective. A single measure is returned as it is. In a sum, each measure is
    /// divided by its value for `baseline` (an equal share of everything), so that milliseconds and
    /// shares can be added.
    pub fn of(&self, kept: &Expected, baseline: &Expected) -> f64 {
        match self.terms[..] {
            [(_, only)] => only.of(kept),
            _ => self.relative(kept, baseline),
        }
    }

    /// The sum of the measures, each divided by its value for `baseline`, even if there is only
    /// one.
    fn relative(&self, kept: &Expected, baseline: &Expected) -> f64 {
        let relative = |measure: Measure| match measure.of(baseline) {
            value if value > 0.0 => measure.of(kept) / value,
            _ => measure.of(kept),
        };
        self.terms.iter().map(|&(weight, measure)| weight * relative(measure)).sum()
    }
}

/// The weight of the relative error of counts besides the objective. Parameters whose counts have a
/// relative error larger by 10 percentage points need an objective smaller by about as much. The
/// objective hardly changes with many parameters, and this term picks the more useful ones.
const COUNT_WEIGHT: f64 = 1.0;

/// The factor by which a relative error of counts increases a value.
pub(crate) fn count_factor(error: f64) -> f64 {
    1.0 + COUNT_WEIGHT * error
}

/// An objective over several draws, compared with an equal share.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) objective: Objective,
    /// The quantile of single runs to minimise; the mean if unset.
    pub(crate) risk: Option<f64>,
    /// An equal share of everything, as large as the limits allow.
    pub(crate) baseline: Expected,
}

impl Target {
    /// The mean of the objective over the draws, or its quantile over single runs.
    ///
    /// The score of a draw is already a mean over random numbers, and has a standard deviation of
    /// SS. Together with the spread between draws this gives the variance of single runs. The
    /// quantile assumes that they have a lognormal distribution.
    pub(crate) fn value(&self, scores: &[Expected]) -> f64 {
        self.over(scores, |score| self.objective.of(score, &self.baseline))
    }

    /// The value relative to an equal share of the same size, by which results of different sizes
    /// can be compared.
    pub(crate) fn beside(&self, kept: &Expected, share: &Expected) -> f64 {
        self.over(std::slice::from_ref(kept), |kept| self.objective.relative(kept, share))
    }

    fn over(&self, scores: &[Expected], of: impl Fn(&Expected) -> f64) -> f64 {
        let draws = scores.len().max(1) as f64;
        let values = || scores.iter().map(&of);
        let mean = values().sum::<f64>() / draws;
        let Some(risk) = self.risk.filter(|_| mean > 0.0 && mean.is_finite()) else { return mean };
        let between = values().map(|value| (value - mean).powi(2)).sum::<f64>() / draws;
        let relative = |score: &Expected| if score.ss_ms > 0.0 { score.ss_sd_ms / score.ss_ms } else { 0.0 };
        let within =
            values().zip(scores).map(|(value, score)| (value * relative(score)).powi(2)).sum::<f64>() / draws;
        let variance = ((between + within) / (mean * mean)).ln_1p();
        mean * (normal_quantile(risk) * variance.sqrt() - variance / 2.0).exp()
    }
}

impl Default for Objective {
    fn default() -> Self {
        Self::paper()
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(_, measure)| measure == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(_, only)] = self.terms[..] {
            return only.fmt(f);
        }
        for (index, (weight, measure)) in self.terms.iter().enumerate() {
            let plus = if index == 0 { "" } else { "+" };
            write!(f, "{plus}{weight}*{measure}")?;
        }
        Ok(())
    }
}

/// A text that does not name an objective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidObjective(String);

impl fmt::Display for InvalidObjective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Measure::ALL.iter().map(|(name, _)| *name).collect();
        write!(
            f,
            "'{}' is not an objective: use {}, or a sum such as 1*dist/entropy+0.5*call-trees",
            self.0,
            names.join(", ")
        )
    }
}

impl std::error::Error for InvalidObjective {}

impl FromStr for Objective {
    type Err = InvalidObjective;

    fn from_str(text: &str) -> Result<Self, InvalidObjective> {
        let term = |term: &str| {
            let (weight, name) = term.split_once('*').unwrap_or(("1", term));
            let weight: f64 =
                weight.trim().parse().ok().filter(|&weight| weight > 0.0 && weight < f64::INFINITY)?;
            let (_, measure) = Measure::ALL.iter().find(|(known, _)| *known == name.trim())?;
            Some((weight, *measure))
        };
        let terms: Option<Vec<_>> = text.split('+').map(term).collect();
        terms.map(|terms| Self { terms }).ok_or_else(|| InvalidObjective(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_survive_printing_and_others_are_refused() {
        for text in [
            "dist/entropy",
            "call-trees",
            "counts",
            "latency",
            "paths",
            "path-distance",
            "1*dist/entropy+0.5*paths",
        ] {
            assert_eq!(text.parse::<Objective>().map(|o| o.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("2*counts".parse::<Objective>().map(|o| o.to_string()).as_deref(), Ok("counts"));
        for text in ["", "dist", "0*counts", "-1*counts", "inf*counts", "counts+", "nan*counts"] {
            let error = text.parse::<Objective>().expect_err(text).to_string();
            assert!(error.contains("dist/entropy"), "{error}");
        }
    }

    /// By hand: the values 8 and 12, each with a relative standard deviation of 0.3, have mean 10
    /// and variance 4 + 9.36.
    #[test]
    fn a_risk_is_a_quantile_of_single_runs() {
        let score = |value: f64| Expected {
            dist_over_entropy: value,
            ss_ms: value * 5.0,
            ss_sd_ms: value * 1.5,
            ..Expected::default()
        };
        let scores = [score(8.0), score(12.0)];
        let target = |risk| Target { objective: Objective::paper(), risk, baseline: Expected::default() };
        assert_eq!(target(None).value(&scores), 10.0);
        let sigma = (1.0f64 + 0.1336).ln().sqrt();
        let expected = 10.0 * (1.28155 * sigma - sigma * sigma / 2.0).exp();
        assert!((target(Some(0.9)).value(&scores) / expected - 1.0).abs() < 1e-3);
    }

    #[test]
    fn sums_are_relative_to_the_baseline() {
        let kept =
            Expected { dist_over_entropy: 5.0, call_trees: 9.0, call_trees_all: 10.0, ..Expected::default() };
        let baseline = Expected { dist_over_entropy: 20.0, call_trees: 5.0, ..kept };
        let objective: Objective = "1*dist/entropy+2*call-trees".parse().expect("an objective");
        // 5 / 20, plus twice 0.1 / 0.5.
        assert!((objective.of(&kept, &baseline) - (0.25 + 0.4)).abs() < 1e-12);
        assert_eq!(Objective::paper().of(&kept, &baseline), 5.0);
        let target = |objective| Target { objective, risk: None, baseline: Expected::default() };
        assert_eq!(target(Objective::paper()).beside(&kept, &baseline), 0.25);
        let trees: Objective = "call-trees".parse().expect("an objective");
        assert!((target(trees).beside(&kept, &baseline) - 0.1 / 0.5).abs() < 1e-12);
        assert_eq!(Measure::Counts.of(&kept), f64::INFINITY);
    }
}
