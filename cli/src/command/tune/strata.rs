//! Probabilities by outcome, fitted in closed form: asked for by `--late`, or found better than the
//! sampler that decides at the start.

use std::path::Path;

use astracer_recording::recording::Keep;
use astracer_samplers::parameters::Parameters;
use astracer_samplers::strata::Record;
use astracer_samplers::tail::Tail;
use astracer_tuner::held_out::HeldOut;
use astracer_tuner::tail::{Outcomes, attributes};
use astracer_tuner::tune::{KEPT_MIN, Later, PerKeyUse, StrataTuning, try_strata};
use astracer_tuner::{Candidate, Draw, Objective, Stop, Tunable, Tuning, Workload};
use clap::Args as ClapArgs;
use serde::Serialize;

use super::Tune;
use super::by_outcome::{Found, Shown, render};
use super::table::Read;
use super::together;
use super::tried::Tried;
use crate::failure::Failure;
use crate::interrupt;
use crate::load::{self, Input};
use crate::output;
use crate::outputs::Output;
use crate::progress::Progress as Bar;
use crate::source::Source;

/// Strata are written if on the whole recording they have at most this share of the dist/entropy of
/// what was found.
const WORTH: f64 = 0.9;
/// Replays on each recording of `--validate`.
const REPLAYS: usize = 48;

/// Options of decisions at the end.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Late strata (at the end of a trace)")]
pub(crate) struct StrataArgs {
    /// Decide when a trace's root has ended, without a search for a sampler that decides at its
    /// start: probabilities by key, octave of the root's duration and error, with true weights.
    /// Read such a sample by its weights.
    #[arg(long, conflicts_with_all = [
        "sampler", "objective", "risk", "per_key", "min_kept", "or_equal", "split", "size_min", "window", "starts",
        "iterations", "time",
    ])]
    pub(crate) late: bool,

    /// Decide when a trace starts, even if deciding at its end is a tenth better, no worse on
    /// unseen time, and costs little, in which case that is what is written by default.
    // clap passes over `requires` where the required option conflicts with another.
    #[arg(long, conflicts_with_all = ["late", "record", "kinds"])]
    pub(crate) no_late: bool,

    /// Traces to record for each that the head sampler would keep, such as 5, or all [default: all
    /// of a recording with at most 10,000 spans per second, else 5].
    #[arg(long, value_name = "TIMES", requires = "late", value_parser = record)]
    pub(crate) record: Option<Record>,

    /// Tell kinds of trees apart, that is sets of names and depths in the root's process: auto (if
    /// that is 10% better on the half of the time it was not fitted on), always or never.
    #[arg(long, value_name = "WHEN", requires = "late", default_value = "auto", value_parser = kinds)]
    pub(crate) kinds: Kinds,
}

/// Whether strata are told apart by the kind of tree; by default if that is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kinds(pub(super) Option<bool>);

fn kinds(text: &str) -> Result<Kinds, String> {
    match text {
        "auto" => Ok(Kinds(None)),
        "always" => Ok(Kinds(Some(true))),
        "never" => Ok(Kinds(Some(false))),
        _ => Err(format!("invalid value '{text}': use auto, always or never")),
    }
}

fn record(text: &str) -> Result<Record, String> {
    if text == "all" {
        return Ok(Record::All);
    }
    let times = text.parse().ok().filter(|times| (1.0..=1e6).contains(times));
    let error = || format!("invalid number '{text}': use all, or a number from 1 to 1,000,000, such as 5");
    times.map(Record::Times).ok_or_else(error)
}

/// Everything that is reported without a search for a sampler that decides at the start.
#[derive(Serialize)]
struct Report<'a> {
    input: &'a Input,
    key: &'a str,
    #[serde(flatten)]
    found: &'a Found,
    #[serde(serialize_with = "super::lossy")]
    out: Option<&'a Path>,
}

pub(super) fn run(args: &Tune, out: &Output, stop: Stop<'_>) -> Result<(), Failure> {
    let tail = args.tail.tail().map(Tail::beside_strata);
    let own_labels = tail.as_ref().map(attributes).unwrap_or_default();
    let keep = Keep { labels: args.key.attributes(), own_labels, ..Keep::default() };
    let load::Loaded { input, recording } = load::load_keeping(&args.source, keep, stop)?;
    let workload = load::workload(&args.source, &recording, &args.key, stop)?;
    let mut absent = load::absent(&args.key, &recording, None);
    absent.extend(input.sample_warning());
    let outcomes = tail.map(|tail| Outcomes::new(&recording, &tail, stop).ok_or(Failure::Interrupted));
    let mut outcomes = outcomes.transpose()?;
    drop(recording);
    outcomes.iter_mut().for_each(|outcomes| outcomes.learn_slow(&workload));
    let bar = Bar::steps("fitting", 0);
    let mut found = together::find(args, &workload, outcomes.as_ref(), stop, &bar)?;
    let tail = outcomes.map(|outcomes| outcomes.tail().clone());
    let late = out.write(&text(args, &input, &found.tuning, tail)?).err();
    let written = late.is_none().then(|| out.path());
    let late = late.or(validate(args, &mut found, stop));
    bar.finish();
    let _ = interrupt::answer_at_once(stop);
    let key = args.key.to_string();
    let printed = match args.json {
        true => output::print_json(&Report { input: &input, key: &key, found: &found, out: written }),
        false => output::print(&render(Shown {
            input: &input,
            key: &key,
            read: &Read::new(&workload),
            found: &found,
            head: None,
            best_baseline: None,
            choice: None,
            keys: Vec::new(),
            warnings: absent,
            out: written,
            page: None,
            verbose: args.verbose,
        })),
    };
    Failure::after(printed, late.map_or(Ok(()), Err))
}

/// Whether the file decides by outcome.
pub(super) enum Choice {
    /// It has these strata.
    Strata(Box<Found>),
    /// Strata were tried, and are not better.
    Worse(Tried),
    /// They were not tried.
    Untried,
}

/// Strata for the file, or why it gets none.
pub(super) fn choose(
    args: &Tune,
    tuning: &Tuning,
    workload: &Workload,
    stop: Stop<'_>,
    bar: &Bar,
) -> Result<Choice, Failure> {
    Ok(match args.strata.late {
        true => Choice::Strata(Box::new(together::fit(args, args.size_max, workload, stop, bar)?)),
        false => better(args, tuning, workload, stop, bar),
    })
}

/// The content of the parameters file, with these policies.
pub(super) fn text(
    args: &Tune,
    input: &Input,
    tuning: &StrataTuning,
    tail: Option<Tail>,
) -> Result<String, Failure> {
    let key = args.key.clone().with_template(args.source.template());
    let file = tuning.file(&input.paths().join(" "), &key);
    let file = file.map(|file| Parameters { tail: tail.unwrap_or_default(), ..file });
    let text = file.map(|file| file.to_string()).unwrap_or_default();
    match text.parse::<Parameters>() {
        Ok(_) => Ok(text),
        Err(error) => Err(Failure::Job(format!(
            "the SDK would reject these parameters: {}. Fold ids in names, or use another --key",
            output::escaped(&error.to_string())
        ))),
    }
}

/// Replays the strata on each recording of `--validate`, until one fails.
pub(super) fn validate(args: &Tune, found: &mut Found, stop: Stop<'_>) -> Option<Failure> {
    for path in &args.validate {
        let replayed = || {
            let source = Source { paths: vec![path.clone()], ..args.source.clone() };
            let other = load::load_beside(&source, &args.key.attributes(), stop)?;
            let other = load::workload(&args.source, &other.recording, &args.key, stop)?;
            let draws = Draw::unseen(REPLAYS, args.seed, args.random);
            let candidate = Candidate::from(found.tuning.late.clone());
            let name = path.to_string_lossy();
            HeldOut::new(&name, &other, &candidate, None, &draws, stop).ok_or(Failure::Interrupted)
        };
        match replayed() {
            Ok(there) => found.validated.push(there),
            Err(failure) => return Some(failure),
        }
    }
    None
}

/// Whether the options leave the choice of the sampler to the search.
pub(super) fn is_free(args: &Tune) -> bool {
    let limits =
        args.traces_per_second.is_some() || args.bytes_per_second.is_some() || args.min_kept.is_some();
    args.sampler == Tunable::Bump
        && args.per_key == PerKeyUse::Auto
        && args.objective == Objective::paper()
        && args.tail.tail.is_none()
        && args.risk.is_none()
        && args.window.is_empty()
        && args.split.is_none()
        && args.size_min.is_none()
        && !args.or_equal
        && !limits
}

/// Strata, if nothing but the default is asked for, if recording all traces costs little, and if
/// they are better than the sampler that was found: on halves of the time that neither was tuned
/// on, and by a tenth on the whole recording. Both are by weights.
fn better(args: &Tune, tuning: &Tuning, workload: &Workload, stop: Stop<'_>, bar: &Bar) -> Choice {
    if !is_free(args) || args.strata.no_late || !tuning.feasible {
        return Choice::Untried;
    }
    let is_share = tuning.sampler_name() == "ratio";
    let found = tuning.later.as_ref().filter(|_| !is_share).map_or(1.0, |later| later.ratio);
    // Few kept traces leave the ratio open: then the end of its interval must be a tenth lower.
    let is_few = workload.arrivals().len() as f64 * args.size_max < KEPT_MIN;
    let is_worse = |later: &Later| match is_few {
        true => later.interval[1] > WORTH * found,
        false => later.ratio > found,
    };
    // The trial has few replays, so it rules out only what is clear.
    let later = match try_strata(workload, args.size_max, (args.seed, args.random), stop) {
        None => return Choice::Untried,
        Some(later) if WORTH * later.ratio > found => return Choice::Worse(Tried { later, here: None }),
        Some(later) => later,
    };
    // Without strata there is the sampler, whatever the reason.
    let Ok(strata) = together::fit(args, args.size_max, workload, stop, bar) else {
        return Choice::Untried;
    };
    let later = strata.tuning.later.clone().unwrap_or(later);
    if is_worse(&later) {
        return Choice::Worse(Tried { later, here: None });
    }
    let here = strata.tuning.replayed.by_weights().mean;
    let head = tuning.replayed.as_ref().map(|replayed| replayed.by_weights().mean);
    match head.is_none_or(|head| here <= WORTH * head) {
        true => Choice::Strata(Box::new(strata)),
        false => Choice::Worse(Tried { later, here: Some(here) }),
    }
}
