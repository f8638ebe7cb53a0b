//! `astracer tune --late`: probabilities by outcome, fitted in closed form.

use std::path::Path;

use astracer_recording::recording::Keep;
use astracer_report::numbers::three;
use astracer_samplers::Cap;
use astracer_samplers::parameters::Parameters;
use astracer_samplers::strata::Record;
use astracer_tuner::held_out::{HeldOut, Replayed};
use astracer_tuner::statistics::Distribution;
use astracer_tuner::tune::{Later, PerKeyUse, StrataOptions, StrataTuning, try_strata, tune_strata};
use astracer_tuner::{Candidate, Draw, Objective, Stop, Tunable, Tuning, Workload};
use clap::Args as ClapArgs;
use serde::Serialize;

use super::table::Read;
use super::{Tune, refuse_contradictions, show};
use crate::failure::Failure;
use crate::interrupt;
use crate::load::{self, Input};
use crate::output;
use crate::outputs::Output;
use crate::progress::Progress as Bar;
use crate::source::Source;

/// The processor time that recording a span takes beyond dropping it, us (docs/results/spans.md).
const RECORDING_US: f64 = 0.096;
/// Strata are proposed if they have at most this share of the dist/entropy of what was found.
const WORTH: f64 = 0.9;
/// Replays on each recording of `--validate`.
const REPLAYS: usize = 48;

/// Options of `--late`.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Late strata (at the end of a trace)")]
pub(crate) struct StrataArgs {
    /// Decide when a trace's root has ended: probabilities by key, octave of the root's duration
    /// and error, with true weights. Read such a sample by its weights.
    #[arg(long, conflicts_with_all = [
        "tail", "sampler", "objective", "risk", "per_key", "min_kept", "or_equal", "split", "traces_per_second",
        "bytes_per_second", "size_min", "window", "starts", "iterations", "time", "report", "verbose",
    ])]
    pub(crate) late: bool,

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
pub(crate) struct Kinds(Option<bool>);

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

/// Everything that is reported.
#[derive(Serialize)]
struct Report<'a> {
    input: &'a Input,
    key: String,
    record: String,
    strata: usize,
    #[serde(flatten)]
    tuning: &'a StrataTuning,
    validated: Vec<HeldOut>,
    #[serde(serialize_with = "super::lossy")]
    out: Option<&'a Path>,
}

pub(super) fn run(args: &Tune, out: &Output, stop: Stop<'_>) -> Result<(), Failure> {
    refuse_contradictions(args)?;
    let keep = Keep { labels: args.key.attributes(), ..Keep::default() };
    let load::Loaded { input, recording } = load::load_keeping(&args.source, keep, stop)?;
    let workload = load::workload(&args.source, &recording, &args.key, stop)?;
    let absent = load::absent(&args.key, &recording, None);
    drop(recording);
    let options = StrataOptions {
        size: args.size_max,
        record: args.strata.record,
        by_kind: args.strata.kinds.0,
        replays: args.replays,
        seed: args.seed,
        random: args.random,
        cap: if args.no_cap { Some(Cap::none()) } else { args.cap },
    };
    let bar = Bar::steps("fitting", 0);
    let found = tune_strata(&workload, &options, stop, &|progress| show(&bar, "", progress));
    let tuning =
        match found {
            None if stop.is_asked() => return Err(Failure::Interrupted),
            None => return Err(Failure::Job(
                "no strata: the recording has no traces with bytes, or --size-max is too small to keep any"
                    .to_owned(),
            )),
            Some(Err(error)) => return Err(Failure::Usage(format!("--size-max: {error}"))),
            Some(Ok(tuning)) => tuning,
        };
    let late = out.write(&text(args, &input, &tuning)?).err();
    let (validated, failed) = validate(args, &tuning, stop);
    let late = late.or(failed);
    bar.finish();
    let report = Report {
        input: &input,
        key: args.key.to_string(),
        record: recorded(tuning.late.strata.record()),
        strata: tuning.late.strata.probabilities().map(|(_, strata)| strata.len()).sum(),
        tuning: &tuning,
        validated,
        out: Some(out.path()),
    };
    let _ = interrupt::answer_at_once(stop);
    let printed = match args.json {
        true => output::print_json(&report),
        false => output::print(&render(&report, &workload, &absent)),
    };
    Failure::after(printed, late.map_or(Ok(()), Err))
}

/// The content of the parameters file.
fn text(args: &Tune, input: &Input, tuning: &StrataTuning) -> Result<String, Failure> {
    let key = args.key.clone().with_template(args.source.template());
    let file = tuning.file(&input.paths().join(" "), &key);
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
fn validate(args: &Tune, tuning: &StrataTuning, stop: Stop<'_>) -> (Vec<HeldOut>, Option<Failure>) {
    let mut validated = Vec::new();
    for path in &args.validate {
        let replayed = || {
            let source = Source { paths: vec![path.clone()], ..args.source.clone() };
            let other = load::load_beside(&source, &args.key.attributes(), stop)?;
            let other = load::workload(&args.source, &other.recording, &args.key, stop)?;
            let draws = Draw::unseen(REPLAYS, args.seed, args.random);
            let candidate = Candidate::from(tuning.late.clone());
            let name = path.to_string_lossy();
            HeldOut::new(&name, &other, &candidate, None, &draws, stop).ok_or(Failure::Interrupted)
        };
        match replayed() {
            Ok(there) => validated.push(there),
            Err(failure) => return (validated, Some(failure)),
        }
    }
    (validated, None)
}

/// Late strata on halves that they were not fitted on, if they are better there by a tenth than
/// what was found: by weights, as both are. `None` if the caller asks for something else than the
/// default, or if recording all traces costs.
pub(super) fn better(args: &Tune, tuning: &Tuning, workload: &Workload, stop: Stop<'_>) -> Option<Later> {
    let limits =
        args.traces_per_second.is_some() || args.bytes_per_second.is_some() || args.min_kept.is_some();
    let is_free = args.sampler == Tunable::Bump
        && args.per_key == PerKeyUse::Auto
        && args.objective == Objective::paper()
        && args.tail.tail.is_none()
        && args.risk.is_none()
        && args.window.is_empty()
        && args.split.is_none()
        && !limits;
    if !is_free || !tuning.feasible {
        return None;
    }
    let is_share = tuning.sampler_name() == "ratio";
    let found = tuning.later.as_ref().filter(|_| !is_share).map_or(1.0, |later| later.ratio);
    try_strata(workload, args.size_max, (args.seed, args.random), stop)
        .filter(|late| late.ratio <= WORTH * found)
}

fn recorded(record: Record) -> String {
    match record {
        Record::All => "all".to_owned(),
        Record::Times(times) => times.to_string(),
    }
}

fn render(report: &Report<'_>, workload: &Workload, absent: &[String]) -> String {
    let tuning = report.tuning;
    let all = workload.function_count();
    let functions = format!("functions\nof {all}");
    let header = [
        "",
        "traces\nkept",
        "bytes\nkept",
        &functions,
        "dist/entropy by\nweights (95%)",
        "as\ncounted",
        "count\nerror",
    ];
    let rows = [
        ("late strata", &tuning.replayed),
        ("head sampler alone", &tuning.head),
        ("equal share", &tuning.share),
    ];
    let table = output::table(&header, rows.map(|(name, of)| cells(name, of)));
    let head = super::table::heading(report.input, &Read::new(workload), &report.key);
    let mut text = head + &table + &sentences(report).concat();
    let warnings = absent.iter().cloned().chain(report.input.warnings());
    text.extend(warnings.map(|warning| format!("warning: {}\n", output::escaped(&warning))));
    let out = report.out.map(output::shown).unwrap_or_default();
    text += &format!(
        "\nwrote {out}: {} strata. To use it, start the service with\n  OTEL_TRACES_SAMPLER=astracer_file \
         OTEL_TRACES_SAMPLER_ARG={out}\n",
        output::count(report.strata as u64)
    );
    output::prose(&text)
}

fn by_weights(replayed: &Replayed) -> Distribution {
    replayed.dist_over_entropy_weighted.unwrap_or(replayed.dist_over_entropy)
}

fn cells(name: &str, replayed: &Replayed) -> Vec<String> {
    let found = by_weights(replayed);
    let [low, high] = found.mean_interval.map(three);
    vec![
        name.to_owned(),
        output::whole(replayed.traces.mean),
        output::percent(replayed.tfcr.mean),
        output::rounded(replayed.functions.mean),
        match found.mean.is_finite() {
            true => format!("{} ({low} to {high})", three(found.mean)),
            false => "-".to_owned(),
        },
        three(replayed.dist_over_entropy.mean),
        replayed.counts.map_or_else(|| "-".to_owned(), |counts| output::percent(counts.functions)),
    ]
}

fn sentences(report: &Report<'_>) -> Vec<String> {
    let tuning = report.tuning;
    let mut all = vec![format!(
        "Means of {} replays at jitters of 0, 5 and 50 ms. Less dist/entropy is better. Read the sample by its \
         weights: as counted, what is slow or rare has too many traces.\n",
        tuning.replayed.replays
    )];
    let how = match tuning.late.strata.record() {
        Record::All => String::new(),
        Record::Times(times) => format!(" ({times} x the head sampler's)"),
    };
    let ms = tuning.recorded_per_second * RECORDING_US / 1e3;
    let ms = if ms < 0.1 { "less than 0.1".to_owned() } else { three(ms) };
    all.push(format!(
        "Recorded: {} of the spans{how}, {} a second; beyond dropping them, that takes {ms} ms of processor time a \
         second in all processes together.\n",
        output::percent(tuning.recorded),
        output::rounded(tuning.recorded_per_second),
    ));
    if tuning.odd.traces > 0 {
        all.push(format!(
            "Of {} that failed or took longer than 99% of their key's, {} are kept (equal share: {}).\n",
            output::plural(tuning.odd.traces, "trace"),
            output::percent(tuning.odd.kept),
            output::percent(tuning.odd.kept_by_share),
        ));
    }
    let later = |later: &Later| {
        let [low, high] = later.interval;
        format!("{:.2} ({low:.2} to {high:.2})", later.ratio)
    };
    match (&tuning.later, &tuning.other_kind) {
        (Some(own), other) => {
            let other = other.as_ref().map_or_else(String::new, |other| {
                let which = if tuning.by_kind { "without" } else { "with" };
                format!("; {which} kinds of trees {:.2}", other.ratio)
            });
            let own = later(own);
            all.push(format!("On each half, fitted on the other: {own} of an equal share{other}.\n"));
        }
        (None, _) => all.push(
            "Not tried on time that the strata were not fitted on: too few traces, too few of them kept, or all.\n"
                .to_owned(),
        ),
    }
    for there in &report.validated {
        let name = output::escaped(&there.name).into_owned();
        let share =
            there.replayed_share.map_or_else(|| "-".to_owned(), |share| three(share.dist_over_entropy.mean));
        all.push(format!(
            "On {name}: dist/entropy by weights {} (equal share {share}), {} of bytes.\n",
            three(by_weights(&there.replayed).mean),
            output::percent(there.replayed.tfcr.mean)
        ));
    }
    if let Some(bounds) = &tuning.bounds {
        all.push(format!(
            "Cap: {} x the busiest minute, at most {} a day from each process (--no-cap).\n",
            bounds.times,
            output::bytes(bounds.bytes_a_day as u64)
        ));
    }
    if let Some(growth) = &tuning.growth {
        let without = if tuning.bounds.is_some() { " without the cap" } else { "" };
        all.push(format!(
            "If any one operation became {} times as frequent: kept bytes x {:.1}{without}, all x {:.1}.\n",
            growth.calls, growth.kept_bytes, growth.bytes
        ));
    }
    all
}
