//! Options that contradict each other, and keys that a service cannot use.

use astracer_report::numbers::written_percent;
use astracer_tuner::tune::PerKeyUse;
use astracer_tuner::{Grouping, Tunable};

use super::Tune;
use super::strata;
use crate::failure::Failure;
use crate::output;
use crate::tail;

/// Refuses options that contradict each other, and keys that a service cannot use.
pub(super) fn check(args: &Tune) -> Result<(), Failure> {
    args.tail.tail().as_ref().map_or(Ok(()), tail::check)?;
    let unknown = match args.key {
        Grouping::Tree => Some("the whole call tree"),
        Grouping::Outcome(_) => Some("the outcome"),
        _ => None,
    };
    if let Some(unknown) = unknown {
        return Err(Failure::Usage(format!(
            "--key {}: a service does not know {unknown} when a trace starts, so it cannot count by it; use name or \
             name+ATTRIBUTE",
            output::escaped(&args.key.to_string())
        )));
    }
    let is_at_start = !args.strata.late && (args.strata.no_late || !strata::is_free(args));
    if let Some(name) = at_end(args).filter(|_| is_at_start) {
        return Err(Failure::Usage(format!(
            "--key {}: only strata know {} at the end, and a sampler that decides at the start is asked for; use \
             --late, or leave the attribute out",
            output::escaped(&args.key.to_string()),
            output::escaped(name)
        )));
    }
    let limits = args.traces_per_second.is_some() || args.bytes_per_second.is_some();
    if args.strata.late && args.report.is_some() && (limits || args.tail.tail.is_some()) {
        return Err(Failure::Usage(
            "--late --report: the page has no strata with policies or limits per second; leave out --report"
                .to_owned(),
        ));
    }
    if !args.window.is_empty() && args.sampler == Tunable::Bucket {
        return Err(Failure::Usage(format!(
            "--window: the sampler {} has no window; omit it, or use --sampler bump",
            args.sampler.name()
        )));
    }
    let why = match (args.sampler, args.per_key) {
        (Tunable::Bump, PerKeyUse::Never) => Some("with --per-key never, no key has its own probability"),
        (Tunable::Bump, _) => None,
        _ => Some("only the sampler bump supports a probability per key"),
    };
    if let (Some(why), Some(_)) = (why, args.min_kept) {
        return Err(Failure::Usage(format!("--min-kept: {why}; omit it")));
    }
    if let (Some(why), PerKeyUse::Always) = (why, args.per_key) {
        return Err(Failure::Usage(format!("--per-key always: {why}; omit it, or use --sampler bump")));
    }
    if let Some(size_min) = args.size_min.filter(|&size_min| size_min > args.size_max) {
        return Err(Failure::Usage(format!(
            "--size-min {}% is above --size-max {}%; lower --size-min or raise --size-max",
            written_percent(size_min),
            written_percent(args.size_max)
        )));
    }
    Ok(())
}

/// An attribute of the key that is known only at the end.
pub(super) fn at_end(args: &Tune) -> Option<&str> {
    match &args.key {
        Grouping::Key(rule) => rule.attributes_at_end().next(),
        _ => None,
    }
}
