//! Late policies: their options, and the report of their replay.

use std::fmt::Write as _;
use std::time::Duration;

use astracer_samplers::Nanos;
use astracer_samplers::tail::{Policy, ProvisionalMode, Rule, Slow, Tail};
use astracer_tuner::statistics::MeanSd;
use astracer_tuner::tail::TailSummary;
use clap::Args as ClapArgs;

use crate::failure::Failure;
use crate::output;
use crate::values::{hold, size};

/// Policies that keep some of the traces that the sampler dropped.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Late policies (at the end of a trace)")]
pub(crate) struct TailArgs {
    /// Keep traces that the sampler dropped if they turn out to matter: error, slow:p99 or
    /// slow:500ms, odd, attr:NAME>=VALUE. Separate several by commas; a budget follows in
    /// parentheses, as in error(traces=10,bytes=1e6).
    #[arg(long, value_name = "POLICIES", value_parser = policies)]
    pub(crate) tail: Option<Tail>,

    /// Dropped traces to record for the policies: never, armed (those of keys with recent errors or
    /// slow traces) or always [default: armed].
    #[arg(long, value_name = "WHEN", requires = "tail", value_parser = provisional)]
    pub(crate) provisional: Option<ProvisionalMode>,

    /// Size of the ring buffer for traces that wait for the policies: bytes, or with KB, MB, GB
    /// [default: 32 MiB].
    #[arg(long, value_name = "SIZE", requires = "tail", value_parser = size)]
    pub(crate) ring: Option<u64>,

    /// Time for which an ended trace that no policy kept stays in the ring, such as 250ms or 5s; 0
    /// frees it at once [default: 2s; with strata 30s].
    #[arg(long, value_name = "DURATION", requires = "tail", value_parser = hold)]
    pub(crate) hold: Option<Duration>,
}

impl TailArgs {
    /// The policies with all options applied.
    pub(crate) fn tail(&self) -> Option<Tail> {
        let mut tail = self.tail.clone()?;
        if let Some(provisional) = self.provisional {
            tail = tail.with_provisional(provisional);
        }
        if let Some(ring) = self.ring {
            tail = tail.with_ring_bytes(usize::try_from(ring).unwrap_or(usize::MAX));
        }
        if let Some(hold) = self.hold {
            tail = tail.with_hold(Nanos::new(u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX)));
        }
        Some(tail)
    }
}

fn policies(text: &str) -> Result<Tail, String> {
    let tail: Tail = text.parse().map_err(|error: astracer_samplers::ConfigError| error.to_string())?;
    if tail.is_none() {
        return Err("no policy given: use for example error,slow:p99".to_owned());
    }
    Ok(tail)
}

fn provisional(text: &str) -> Result<ProvisionalMode, String> {
    text.parse().map_err(|error: astracer_samplers::ConfigError| error.to_string())
}

/// The policies of `--tail` with the durations that a file has learnt for equal policies: from when
/// on roots of a key are slow for `slow:p99`.
pub(crate) fn with_thresholds(mut tail: Tail, of: &Tail) -> Tail {
    let has = |quantile| tail.rules.iter().any(|rule| rule.policy == Policy::Slow(Slow::Quantile(quantile)));
    tail.slow_from = of.slow_from.iter().filter(|learnt| has(learnt.quantile)).cloned().collect();
    tail
}

/// Refuses policies that are code of the service, which a replay cannot run.
pub(crate) fn check(tail: &Tail) -> Result<(), Failure> {
    let own = tail.rules.iter().find(|rule| is_own(rule));
    own.map_or(Ok(()), |rule| {
        let reason = "is code of the service, which a recording does not contain; omit it";
        Err(Failure::Usage(format!("--tail: {} {reason}", rule.policy)))
    })
}

/// True if a policy is code of the service.
pub(crate) fn is_own(rule: &Rule) -> bool {
    matches!(rule.policy, Policy::Own(_))
}

/// Two lines: how much the policies keep, and how many errors.
pub(crate) fn in_short(summary: &TailSummary) -> String {
    let mut text = format!(
        "Policies keep another {} of the bytes: together {}.\n",
        output::percent(summary.tail.mean),
        output::percent(summary.head.mean + summary.tail.mean)
    );
    if summary.errors > 0 {
        let _ = writeln!(
            text,
            "Traces with errors kept: {} of {}.",
            output::rounded(summary.errors_kept.mean),
            output::count(summary.errors)
        );
    }
    text
}

/// The full report, with the sampler's name for people.
pub(crate) fn render(summary: &TailSummary, tail: &Tail, sampler: &str) -> String {
    let mut text = format!(
        "\nlate policies after {}: the sampler keeps {} of the bytes, the policies another {}, together {}\n",
        output::brief(sampler),
        output::percent(summary.head.mean),
        output::percent(summary.tail.mean),
        output::percent(summary.head.mean + summary.tail.mean),
    );
    let rows = summary.policies.iter().map(|policy| {
        vec![
            policy.policy.clone(),
            number(policy.kept),
            output::bytes(policy.kept_otlp_bytes.mean.round() as u64),
            number(policy.refused),
        ]
    });
    text += &output::table(&["policy", "traces kept", "as OTLP", "over budget"], rows);
    if summary.errors == 0 {
        text += "errors: no span of this recording has an error status\n";
    } else {
        let late = match summary.errors_late {
            late if late.mean > 0.0 => format!(
                ", {} too late (in traces open for more than {} s)",
                number(late),
                Tail::TRACE_AGE_MAX.get() / 1_000_000_000
            ),
            _ => String::new(),
        };
        let _ = writeln!(
            text,
            "errors: {} of {} kept; lost: {} not recorded ({}), {} evicted from the ring, {} refused{late}",
            number(summary.errors_kept),
            output::plural(summary.errors, "trace"),
            number(summary.errors_not_recorded),
            tail.provisional,
            number(summary.errors_given_up),
            number(summary.errors_refused),
        );
    }
    if let Some(slow) = summary.slow_not_recorded {
        let _ = writeln!(text, "slow: {} traces not recorded ({})", number(slow), tail.provisional);
    }
    if let Some(unknown) = summary.slow_unknown.filter(|unknown| unknown.mean > 0.0) {
        let quantiles = tail.rules.iter().filter_map(|rule| match rule.policy {
            Policy::Slow(Slow::Quantile(quantile)) => Some(quantile.to_string()),
            _ => None,
        });
        let quantiles: Vec<String> = quantiles.collect();
        let remedy = match tail.slow_from.is_empty() {
            true => "tune --tail writes starting values",
            false => "the file has starting values for other keys only",
        };
        let _ = writeln!(
            text,
            "too few calls for {}: {} traces ended before it was known; {remedy}",
            quantiles.join(" and "),
            number(unknown)
        );
    }
    let _ = writeln!(
        text,
        "ring: {} traces recorded, at most {} of {} used; {} evicted before their end",
        number(summary.recorded),
        output::bytes(summary.ring_peak_bytes.mean.round() as u64),
        output::bytes(tail.ring_bytes as u64),
        number(summary.given_up),
    );
    text
}

/// The mean over the replays, with its deviation.
fn number(of: MeanSd) -> String {
    let mean = output::rounded(of.mean);
    if of.sd > 0.0 { format!("{mean} \u{b1} {}", output::rounded(of.sd)) } else { mean }
}
