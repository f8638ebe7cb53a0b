//! The parameters file of a tuning, with notes for people as comments.

use std::error::Error;
use std::fmt;

use astracer_report::numbers::fixed;
use astracer_samplers::parameters::Parameters;
use astracer_samplers::{ConfigError, Probability};

use super::Tuning;
use crate::held_out::Replayed;
use crate::key::Grouping;

impl Tuning {
    /// The file that a service loads. `workload` names the recording that was tuned on, and
    /// `grouping` is the rule for its keys.
    ///
    /// # Errors
    ///
    /// If no service can use the parameters: because no candidate was within the limits, or because
    /// the key is not known when a trace begins.
    pub fn file(&self, workload: &str, grouping: &Grouping) -> Result<Parameters, NoParameters> {
        if !self.feasible {
            return Err(NoParameters(Reason::Infeasible));
        }
        let Grouping::Key(key) = grouping else { return Err(NoParameters(Reason::CallTree)) };
        let config = self.config().map_err(|error| NoParameters(Reason::Config(error)))?;
        Ok(Parameters {
            key: key.clone().at_start(),
            random: self.random,
            cap: self.cap,
            recorded_kept: self.kept_share(),
            comments: self.comments(workload),
            ..Parameters::new(config)
        })
    }

    /// The share of traces that the sampler keeps of the recording.
    fn kept_share(&self) -> Option<Probability> {
        Probability::new(self.score.traces / self.traces as f64).filter(|share| share.get() > 0.0)
    }

    fn comments(&self, workload: &str) -> Vec<String> {
        let score = &self.score;
        let mut comments = vec![format!(
            "Made by `astracer tune` from {workload} to minimise {}, with seed {}.",
            self.goal(),
            self.seed
        )];
        if self.replayed.is_none() {
            comments.push(format!(
                "Expected: dist/entropy {} (an equal share of {:.2} % of the bytes has {}), {:.2} % of the \
                 bytes, {:.1} of {} functions, {:.1} of {} call trees.",
                fixed(score.dist_over_entropy),
                self.baseline.tfcr * 1e2,
                fixed(self.baseline.dist_over_entropy),
                score.tfcr * 1e2,
                score.functions,
                score.functions_all,
                score.call_trees,
                score.call_trees_all,
            ));
        }
        let replayed = |where_: &str, replayed: &Replayed| {
            let Replayed { replays, dist_over_entropy: ratio, tfcr, .. } = replayed;
            let ([low, high], [least, most]) =
                (ratio.mean_interval.map(fixed), ratio.run_interval.map(fixed));
            let (mean, size) = (fixed(ratio.mean), tfcr.mean * 1e2);
            format!(
                "Replayed {replays} times{where_} on draws that the search did not see: dist/entropy {mean} (mean \
                 {low} to {high}, a single run {least} to {most}), {size:.2} % of the bytes."
            )
        };
        comments.extend(self.replayed.as_ref().map(|here| replayed("", here)));
        let under = format!(" under the cap {}", self.cap);
        comments.extend(self.replayed_capped.as_ref().map(|capped| replayed(&under, capped)));
        comments.extend(
            self.held_out.as_ref().map(|there| replayed(&format!(" on {}", there.name), &there.replayed)),
        );
        if self.interrupted {
            comments.push("Interrupted: these are the best parameters found until then.".to_owned());
        }
        comments.extend(self.warnings.iter().map(|warning| format!("Warning: {warning}.")));
        comments
    }
}

/// The tuning has no parameters that a service can use.
#[derive(Debug)]
pub struct NoParameters(Reason);

#[derive(Debug)]
enum Reason {
    Infeasible,
    CallTree,
    Config(ConfigError),
}

impl fmt::Display for NoParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reason::Infeasible => {
                f.write_str("no parameters within the limits were found, so there is no file to write")
            }
            Reason::CallTree => f.write_str(
                "no service can use the key: call trees and outcomes are not known when a trace begins",
            ),
            Reason::Config(error) => error.fmt(f),
        }
    }
}

impl Error for NoParameters {}
