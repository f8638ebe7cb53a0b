//! `astracer tune`: finds sampling parameters for a recording.

mod by_outcome;
mod progress;
mod provisional;
mod refusals;
mod rounds;
mod shared_limits;
mod strata;
mod table;
mod together;
mod tried;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use astracer_baselines::{self as baselines, BaselineSpec};
use astracer_recording::recording::{Keep, Recording};
use astracer_report::page::Next;
use astracer_samplers::parameters::Parameters;
use astracer_samplers::{Cap, RandomSource, Template};
use astracer_tuner::curves::{Curves, curves};
use astracer_tuner::held_out::{HeldOut, Replayed};
use astracer_tuner::key::START_ATTRIBUTES;
use astracer_tuner::key_choice::{KeyChoice, choose_key};
use astracer_tuner::report::Report as Page;
use astracer_tuner::tail::{Outcomes, attributes};
use astracer_tuner::tune::{KEYS_TRIED_MAX, Options, PerKeyUse, TRIED_TRACES_MAX, check, validate};
use astracer_tuner::{Grouping, Limits, Objective, Stop, Tunable, Tuning, Workload};
use clap::Args as ClapArgs;
use serde::Serialize;

use self::progress::show;
use self::rounds::Late;
use self::shared_limits::SharedLimits;
use self::strata::Choice;
use self::tried::Tried;
use crate::failure::Failure;
use crate::interrupt;
use crate::load::{self, Input};
use crate::output;
use crate::outputs::{Output, Outputs};
use crate::progress::Progress as Bar;
use crate::root_attributes;
use crate::shell;
use crate::source::{Source, check_inputs};
use crate::tail::TailArgs;
use crate::values::{cap, key, part, random, rate, share, size, time_limit, window};

const EXAMPLES: &str = "\
Examples:
  astracer tune run.tar.xz                   bump, at most 10% of the bytes
  astracer tune run.tar.xz --sampler bucket --size-max 5%
  astracer tune traces/ --traces-per-second 20 --out production.toml
  astracer tune monday/ --validate tuesday/ --report report.html
  astracer tune run.tar.xz --per-key never --split 50%
  astracer tune run.tar.xz --risk 0.9 --cap traces=100,key_traces=20
  astracer tune traces/ --tail error,slow:p99       10% with late policies
  astracer tune traces/ --late               decide at the end, by outcome
  astracer tune traces/ --objective 1*dist/entropy+0.5*call-trees --json

If no parameters meet the limits, the nearest are shown, nothing is written, and
the exit code is 1. Ctrl-C writes the best parameters found so far; with --late,
which has no search, it writes nothing.";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Tune {
    #[command(flatten)]
    pub(crate) source: Source,

    /// Sampler to tune: bump, bump-tumbling (with windows, as in the paper) or bucket.
    #[arg(long, value_name = "SAMPLER", default_value = "bump", value_parser = tunable)]
    pub(crate) sampler: Tunable,

    /// The value to minimise: dist/entropy, call-trees (missed), counts (error of estimates),
    /// latency (distance of histograms), paths (path kinds missed), path-distance (of their
    /// shares), or a weighted sum.
    #[arg(long, value_name = "OBJECTIVE", default_value_t)]
    pub(crate) objective: Objective,

    /// Key that the sampler counts by: name (of the root), name+ATTRIBUTE, or name+end:ATTRIBUTE
    /// for an attribute that roots get while they run, by which strata (--late) also tell traces
    /// apart.
    #[arg(long, value_name = "KEY", default_value_t, value_parser = key)]
    pub(crate) key: Grouping,

    /// Minimise this quantile of single runs instead of the mean, for example 0.9.
    #[arg(long, value_name = "QUANTILE", value_parser = quantile)]
    pub(crate) risk: Option<f64>,

    /// Give each key its own probability (bump only): auto (if that does better on the half of the
    /// time it was not tuned on), always or never.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = per_key)]
    pub(crate) per_key: PerKeyUse,

    /// Keep at least N traces, in expectation, of each key with its own probability [default: the
    /// largest of 40, 20, 10, 5, 3 and 1 that uses at most half of each limit].
    #[arg(long, value_name = "N", value_parser = traces)]
    pub(crate) min_kept: Option<f64>,

    /// Randomness of traces that begin in the service, stored in the parameters file: stratified
    /// (spread evenly over each key's traces) or independent.
    #[arg(long, value_name = "RANDOM", default_value = "stratified", value_parser = random)]
    pub(crate) random: RandomSource,

    /// Write an equal share of all traces unless the parameters are 10% better than one, on halves
    /// of the time they were not tuned on. Without it, only if they are surely not.
    #[arg(long, conflicts_with = "split")]
    pub(crate) or_equal: bool,

    /// Do not try keys other than --key.
    #[arg(long)]
    pub(crate) one_key: bool,

    /// Tune on the first SHARE of the time, and check the parameters on the rest.
    #[arg(long, value_name = "SHARE", value_parser = part, help_heading = "Checks")]
    pub(crate) split: Option<f64>,

    /// Check the parameters on another recording; repeatable.
    #[arg(long, value_name = "RECORDING", help_heading = "Checks")]
    pub(crate) validate: Vec<PathBuf>,

    /// Keep at most this share of the bytes.
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = share, help_heading = "Limits")]
    pub(crate) size_max: f64,

    /// Keep at least this share of the bytes [default: a tenth of what the limits allow].
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = "Limits")]
    pub(crate) size_min: Option<f64>,

    /// Keep at most N traces per second, averaged over the recording.
    #[arg(long, value_name = "N", value_parser = rate, help_heading = "Limits")]
    pub(crate) traces_per_second: Option<f64>,

    /// Keep at most SIZE per second, averaged over the recording: bytes, or with KB, MB, GB.
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Limits")]
    pub(crate) bytes_per_second: Option<u64>,

    /// Write this hard cap into the parameters file, and show what it costs on this recording:
    /// rates per second of traces, key_traces (per key), new_traces (first calls of new keys),
    /// bytes and key_bytes, for example traces=100,burst=25,bytes=1e6.
    #[arg(long, value_name = "CAP", value_parser = cap, help_heading = "Limits")]
    pub(crate) cap: Option<Cap>,

    /// Write no cap. By default it is three times what is kept of the recording in the busiest
    /// minute, and bounds the first calls of new names.
    #[arg(long, conflicts_with = "cap", help_heading = "Limits")]
    pub(crate) no_cap: bool,

    /// Try only these half-lives (or window lengths), such as 1s,5m, instead of searching for one
    /// (bump).
    #[arg(long, value_name = "DURATION", value_delimiter = ',', value_parser = window, help_heading = "Search")]
    pub(crate) window: Vec<Duration>,

    /// Seed of all random choices; the same seed finds the same parameters.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Search")]
    pub(crate) seed: u64,

    /// Number of searches, each from a random point.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    #[arg(help_heading = "Search")]
    pub(crate) starts: u32,

    /// Greatest number of candidates that each search scores.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    #[arg(help_heading = "Search")]
    pub(crate) iterations: u64,

    /// Greatest number of replays that check the result, on random draws that the search did not
    /// see. The check begins with 96 (fewer for a large recording) and doubles them until the mean
    /// is known to 5%, or 30 million traces were replayed.
    #[arg(long, value_name = "N", default_value_t = Options::default().replays, help_heading = "Search")]
    #[arg(value_parser = clap::value_parser!(u64).range(24..=100_000))]
    pub(crate) replays: u64,

    /// Stop after this time, such as 90s or 2h. The result then depends on the machine's speed.
    #[arg(long, value_name = "DURATION", value_parser = time_limit, help_heading = "Search")]
    pub(crate) time: Option<Duration>,

    /// Write a page for a browser: kept and missed functions, the search, baselines of equal size.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) report: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) tail: TailArgs,

    #[command(flatten)]
    pub(crate) strata: strata::StrataArgs,

    /// Parameters file to write.
    #[arg(long, value_name = "FILE", default_value = "astracer.toml", help_heading = "Output")]
    pub(crate) out: PathBuf,

    /// Print all figures: parameters, measures, replays, searches and keys.
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub(crate) verbose: bool,

    /// Print one JSON object instead of a table.
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

fn tunable(text: &str) -> Result<Tunable, String> {
    let samplers = [Tunable::Bump, Tunable::Tumbling, Tunable::Bucket];
    let known = samplers.into_iter().find(|sampler| sampler.name() == text);
    known.ok_or_else(|| format!("sampler '{text}' cannot be tuned: use bump, bump-tumbling or bucket"))
}

fn per_key(text: &str) -> Result<PerKeyUse, String> {
    match text {
        "auto" => Ok(PerKeyUse::Auto),
        "always" => Ok(PerKeyUse::Always),
        "never" => Ok(PerKeyUse::Never),
        _ => Err(format!("invalid value '{text}': use auto, always or never")),
    }
}

fn quantile(text: &str) -> Result<f64, String> {
    let quantile = text.parse().ok().filter(|quantile| (0.5..1.0).contains(quantile));
    quantile
        .ok_or_else(|| format!("invalid quantile '{text}': use a number from 0.5 to below 1, such as 0.9"))
}

fn traces(text: &str) -> Result<f64, String> {
    let traces = text.parse().ok().filter(|traces| (0.0..=1e9).contains(traces));
    traces.ok_or_else(|| format!("invalid number of traces '{text}': use 0 to 1,000,000,000, such as 10"))
}

/// Everything that is reported about a tuning.
#[derive(Serialize)]
struct Report<'a> {
    input: &'a Input,
    key: String,
    /// Says by what the file decides: `strata`, or `sampler`, the result at this level.
    written: &'static str,
    #[serde(flatten)]
    tuning: &'a Tuning,
    /// The results of other keys.
    keys: Option<KeyChoice>,
    /// The strata in the parameters file, if that decides by outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    strata: Option<by_outcome::Found>,
    /// Strata that were tried and are not better.
    #[serde(skip_serializing_if = "Option::is_none")]
    strata_tried: Option<Tried>,
    /// Results on other recordings.
    validated: Vec<HeldOut>,
    /// Late policies, replayed with the chosen sampler.
    #[serde(skip_serializing_if = "Option::is_none")]
    tail: Option<&'a Late>,
    /// The parameters file, if one was written.
    #[serde(serialize_with = "lossy")]
    out: Option<&'a Path>,
    /// The page, if one was written.
    #[serde(serialize_with = "lossy")]
    report: Option<&'a Path>,
    /// Kept bytes as a multiple, if every third call had a name of its own.
    unique_names: Option<f64>,
    /// Warnings that are not about the sampler at the start alone.
    #[serde(skip)]
    general: Vec<String>,
    /// Whether the options rule out a decision at the end, without saying so.
    #[serde(skip)]
    is_only_at_start: bool,
    #[serde(skip)]
    read: table::Read,
    /// The best baseline, if baselines were replayed for the page.
    #[serde(skip)]
    best_baseline: Option<(String, Replayed)>,
}

/// Replaces what is not Unicode, as for other paths in JSON; serde would reject the whole result.
fn lossy<S: serde::Serializer>(path: &Option<&Path>, serializer: S) -> Result<S::Ok, S::Error> {
    path.map(Path::to_string_lossy).serialize(serializer)
}

/// The failure of work that was stopped before it had a result, by the user or by `--time`.
fn stopped(stop: Stop<'_>) -> Failure {
    if stop.is_asked() {
        return Failure::Interrupted;
    }
    Failure::Job(
        "--time ran out before anything was found; allow more time, or use a key with fewer values"
            .to_owned(),
    )
}

pub(crate) fn run(args: &Tune, stop: Stop<'_>) -> Result<(), Failure> {
    refusals::check(args)?;
    let mut options = options(args);
    options.check().map_err(|error| Failure::Usage(error.to_string()))?;
    check_inputs(args.source.paths.iter().chain(&args.validate))?;
    let files = Files::plan(args)?;
    for path in &args.validate {
        load::try_to_read(path, &args.source.reading, stop)?;
    }
    // A page also shows the sampler that decides at the start.
    if args.strata.late && args.report.is_none() {
        return strata::run(args, &files.out, stop);
    }
    let load::Loaded { input, recording } = load::load_keeping(&args.source, keep(args, stop), stop)?;
    // Each phase may use the time that earlier phases left.
    let began = Instant::now();
    let left = || args.time.map(|time| time.saturating_sub(began.elapsed()));
    let workload = load::workload(&args.source, &recording, &args.key, stop)?;
    let mut outcomes = match args.tail.tail() {
        Some(tail) => {
            let outcomes = Outcomes::new(&recording, &tail, stop.within(left()));
            let mut outcomes = outcomes.ok_or_else(|| stopped(stop))?;
            outcomes.learn_slow(&workload);
            Some(outcomes)
        }
        None => None,
    };
    if args.size_min.is_none() {
        options.limits.size_min = options.limits.largest_share(&workload) / 10.0;
    }
    let is_open = args.tail.provisional.is_none();
    if let Some(outcomes) = outcomes.as_mut().filter(|_| is_open) {
        provisional::choose(outcomes, &workload, &options, stop.within(left()));
    }
    let shared_limits = outcomes.as_ref().map(|outcomes| SharedLimits::new(&workload, outcomes, &options));
    if let Some(shared_limits) = &shared_limits {
        let first = shared_limits.first(stop.within(left()));
        options.limits = first.map_err(|failure| match failure {
            Failure::Interrupted => stopped(stop),
            other => other,
        })?;
    }
    let bar = Bar::steps("tuning", 0);
    let too_many = workload.keys().len() > KEYS_TRIED_MAX;
    let keys = (!args.one_key && !too_many)
        .then(|| try_keys(args, &recording, &workload, &options, stop.within(left().map(for_keys)), &bar));
    let absent = load::absent(&args.key, &recording, outcomes.as_ref());
    // Tuning needs only the workload.
    drop(recording);

    let policies = outcomes.as_ref().map(|outcomes| outcomes.tail().clone()).unwrap_or_default();
    let shared_limits = shared_limits.as_ref().map(|shared_limits| (shared_limits, &policies));
    let shown = |progress| show(&bar, "", progress);
    let (mut tuning, mut tail) =
        rounds::search(shared_limits, &workload, &mut options, stop, (&left, &shown))?;
    if let (Some(outcomes), Some(late)) = (outcomes.as_mut().filter(|_| is_open), &mut tail) {
        let stop = stop.within(left());
        late.other_provisional = provisional::other(outcomes, &workload, &tuning, &options, stop);
    }
    if args.cap.is_none() && !args.no_cap && tuning.feasible {
        let late =
            tail.as_ref().and_then(|late| late.summary.as_ref()).map_or(0.0, rounds::late_bytes(&workload));
        tuning.bound(&workload, late, stop.without_deadline());
    }
    let mut general = absent;
    general.extend(input.sample_warning());
    if too_many && !args.one_key {
        general.push(format!(
            "no other keys were tried, because {} are too many already; fold ids in names (--fold)",
            workload.keys().len()
        ));
    }
    tuning.warnings.extend(general.iter().cloned());
    if tuning.interrupted && tuning.evaluations == 0 {
        bar.finish();
        return Err(Failure::Interrupted);
    }
    if tuning.found_nothing_in_time() {
        bar.finish();
        return Err(stopped(Stop::never()));
    }
    // The parameters took minutes to find, so they are written before anything else can fail.
    let (mut file, mut late) = (None, None);
    let write = |text: Result<String, Failure>, before: &mut Option<String>| {
        let text = text?;
        if before.as_ref() != Some(&text) {
            files.out.write(&text)?;
            *before = Some(text);
        }
        Ok::<_, Failure>(())
    };
    // A pipe cannot be rewritten, so it gets only the final text. With `--late`, nothing but strata
    // may stay in the file.
    let is_written_twice = files.out.target().is_some() && !args.strata.late;
    if tuning.feasible && is_written_twice {
        late = write(parameters(args, &input, &tuning, tail.as_ref()), &mut file).err();
    }
    let (mut validated, mut strata, mut strata_tried) = (Vec::new(), None, None);
    if tuning.feasible {
        options.time_max = left();
        check(&mut tuning, &workload, &options, stop, &|progress| show(&bar, "", progress));
        options.time_max = None;
        let validations = validate_all(args, &options, &mut tuning, &mut validated, stop.within(left()));
        late = late.or(match validations {
            // `--time` ran out: what was found is valid, and the exit code is 0.
            Err(Failure::Interrupted) if !stop.is_asked() => {
                tuning.warnings.push(format!(
                    "--time ran out: validated {} of {}",
                    validated.len(),
                    args.validate.len()
                ));
                None
            }
            validations => validations.err(),
        });
        let stop = stop.within(left());
        match strata::choose(args, &tuning, &workload, stop, &bar)? {
            Choice::Strata(mut found) => {
                late = late.or(strata::validate(args, &mut found, stop));
                strata = Some(*found);
            }
            Choice::Worse(tried) => strata_tried = Some(tried),
            Choice::Untried => {}
        }
        let is_over = left().is_some_and(|left| left.is_zero());
        if strata.is_none()
            && strata_tried.is_none()
            && is_over
            && !args.strata.no_late
            && strata::is_free(args)
        {
            general.push(
                "strata were not tried, because --time was over; --late fits them without a search"
                    .to_owned(),
            );
        }
        if let Some(name) = refusals::at_end(args).filter(|_| strata.is_none()) {
            let warning = format!(
                "--key: {} at the end was left out, because no strata were written; --late writes them",
                output::escaped(name)
            );
            tuning.warnings.push(warning.clone());
            general.push(warning);
        }
        // Write again, now with the warnings of the checks.
        if file.is_some() || !is_written_twice {
            let text = match &strata {
                Some(strata) => strata::text(args, &input, &strata.tuning, None),
                None => parameters(args, &input, &tuning, tail.as_ref()),
            };
            late = late.or(write(text, &mut file).err());
        }
    }
    let (mut page_written, mut best_baseline) = (None, None);
    if let Some(output) = &files.report {
        let baselines = baselines();
        bar.set("comparing with baselines".to_owned(), 0, Curves::steps(baselines.len()));
        let curves = curves(&workload, &tuning, &options, &baselines, stop.within(left()), &|| bar.inc(1));
        let of_strata =
            |curves: Curves| strata.iter().fold(curves, |curves, found| curves.of_strata(&found.tuning));
        let curves = curves.map(of_strata);
        let page = Page {
            title: &input.paths().join(" "),
            workload: &workload,
            tuning: &tuning,
            key: &args.key.to_string(),
            keys: keys.as_ref(),
            validated: strata.as_ref().map_or(&validated, |strata| &strata.validated),
            curves: curves.as_ref(),
            late: tail.as_ref().and_then(|late| late.summary.as_ref()),
            strata: strata.as_ref().map(|strata| &strata.tuning),
            file: file.as_deref(),
            next: &next(file.as_ref().map(|_| files.out.path())),
        };
        let html = page.html();
        // Baselines see the whole recording, not the part that was tuned on.
        best_baseline = curves.and_then(|curves| curves.best_baseline).filter(|_| args.split.is_none());
        match output.write(&output::lines_escaped(&html)) {
            Ok(()) => page_written = Some(output.path()),
            Err(failure) => late = late.or(Some(failure)),
        }
    }
    bar.finish();
    let report = Report {
        input: &input,
        key: args.key.to_string(),
        written: if strata.is_some() { "strata" } else { "sampler" },
        tuning: &tuning,
        keys,
        strata,
        strata_tried,
        validated,
        is_only_at_start: !strata::is_free(args) && !args.strata.no_late,
        general,
        tail: tail.as_ref(),
        out: file.is_some().then(|| files.out.path()),
        report: page_written,
        read: table::Read::new(&workload),
        unique_names: tuning.with_unique_names(&workload, astracer_tuner::growth::UNIQUE),
        best_baseline,
    };
    // If a signal arrived before, the result so far is printed and the failure follows below.
    let _ = interrupt::answer_at_once(stop);
    let printed = if args.json {
        output::print_json(&report)
    } else {
        output::print(&match &report.strata {
            Some(found) => by_outcome::beside_the_start(&report, found, args.verbose),
            None => table::render(&report, args.verbose),
        })
    };
    let late = match (&tuning.infeasible, late) {
        (Some(reason), late) => {
            let late = late.as_ref().and_then(Failure::text).map(|text| format!("\n{text}"));
            let late = late.unwrap_or_default();
            Err(Failure::Job(format!("no parameters meet the limits: {reason}{late}")))
        }
        (None, Some(failure)) => Err(failure),
        (None, None) if tuning.interrupted || stop.is_asked() => Err(Failure::Interrupted),
        (None, None) => Ok(()),
    };
    Failure::after(printed, late)
}

/// Commands for the page: use the file, and check it on another recording.
fn next(file: Option<&Path>) -> Vec<Next> {
    let Some(file) = file else { return Vec::new() };
    let file = shell::paths([file]);
    vec![
        Next::new("Use it", format!("OTEL_TRACES_SAMPLER=astracer_file OTEL_TRACES_SAMPLER_ARG={file}")),
        Next::new(
            "Check it on another day",
            shell::again(&["--report", "--validate"], "--validate OTHER_RECORDING"),
        ),
    ]
}

/// The time for trying other keys: at most half of the time left, because their results are only
/// advice.
fn for_keys(left: Duration) -> Duration {
    left / 2
}

/// The files to write.
struct Files {
    out: Output,
    report: Option<Output>,
}

impl Files {
    fn plan(args: &Tune) -> Result<Self, Failure> {
        let mut outputs = Outputs::new(args.source.paths.iter().chain(&args.validate));
        let out = outputs.plain_file("--out", &args.out)?;
        let report = args.report.as_ref().map(|path| outputs.file("--report", path)).transpose()?;
        Ok(Self { out, report })
    }
}

/// The attributes to read: those of the key, and of keys to try. Attributes that policies need are
/// read from spans only.
fn keep(args: &Tune, stop: Stop<'_>) -> Keep {
    let mut labels: BTreeSet<String> = args.key.attributes().into_iter().collect();
    if !args.one_key {
        labels.extend(START_ATTRIBUTES.map(str::to_owned));
        labels.extend(root_attributes::found(&args.source, stop));
    }
    let labels = labels.into_iter().collect();
    let own_labels = args.tail.tail().as_ref().map(attributes).unwrap_or_default();
    Keep { labels, own_labels, ..Keep::default() }
}

fn options(args: &Tune) -> Options {
    let limits = Limits {
        size_min: args.size_min.unwrap_or(args.size_max / 10.0),
        size_max: args.size_max,
        traces_per_second_max: args.traces_per_second,
        bytes_per_second_max: args.bytes_per_second.map(|bytes| bytes as f64),
    };
    Options {
        sampler: args.sampler,
        objective: args.objective.clone(),
        limits,
        cap: args.cap.unwrap_or_default(),
        windows: (!args.window.is_empty()).then(|| args.window.clone()),
        seed: args.seed,
        random: args.random,
        starts: args.starts,
        iterations: args.iterations,
        replays: args.replays,
        time_max: args.time,
        risk: args.risk,
        per_key: args.per_key,
        min_kept: args.min_kept,
        or_equal: args.or_equal,
        split: args.split,
        ..Options::default()
    }
}

fn try_keys(
    args: &Tune,
    recording: &Recording,
    workload: &Workload,
    options: &Options,
    stop: Stop<'_>,
    bar: &Bar,
) -> KeyChoice {
    // Without the folding template, which is a separate option on the command line.
    let mut groupings = Grouping::candidates(recording, Template::default());
    if !groupings.contains(&args.key) {
        groupings.insert(1, args.key.clone());
    }
    let candidates = groupings.into_iter().map(|grouping| {
        let own = if grouping == args.key {
            Some(Cow::Borrowed(workload))
        } else {
            let with_template = grouping.clone().with_template(args.source.template());
            workload.with_keys(recording, &with_template, TRIED_TRACES_MAX, stop).map(Cow::Owned)
        };
        own.map(|own| (grouping, own))
    });
    choose_key(candidates.map_while(|candidate| candidate), &args.key, options, stop, &|progress| {
        show(bar, "trying keys: ", progress)
    })
}

/// Checks the parameters on each recording of `--validate`, until one fails or it is asked to stop.
fn validate_all(
    args: &Tune,
    options: &Options,
    tuning: &mut Tuning,
    validated: &mut Vec<HeldOut>,
    stop: Stop<'_>,
) -> Result<(), Failure> {
    for path in &args.validate {
        let source = Source { paths: vec![path.clone()], ..args.source.clone() };
        let other = load::load_beside(&source, &args.key.attributes(), stop)?;
        let other = load::workload(&args.source, &other.recording, &args.key, stop)?;
        let held_out = validate(tuning, &path.to_string_lossy(), &other, options, stop);
        let held_out = held_out.ok_or(Failure::Interrupted)?;
        tuning.warnings.extend(held_out.warnings(options.limits.size_max));
        validated.push(held_out);
    }
    Ok(())
}

/// The content of the parameters file.
fn parameters(args: &Tune, input: &Input, tuning: &Tuning, late: Option<&Late>) -> Result<String, Failure> {
    let key = args.key.clone().with_template(args.source.template());
    let mut file =
        tuning.file(&input.paths().join(" "), &key).map_err(|error| Failure::Job(error.to_string()))?;
    if let Some(Late { tail, summary, .. }) = late {
        file.tail = tail.clone();
        file.comments.extend(summary.as_ref().map(|summary| {
            format!(
                "Late policies keep another {:.2} % of the bytes: together {:.2} %.",
                summary.tail.mean * 1e2,
                (summary.head.mean + summary.tail.mean) * 1e2
            )
        }));
    }
    let text = file.to_string();
    match text.parse::<Parameters>() {
        Ok(_) => Ok(text),
        // For example because names are megabytes long.
        Err(error) => Err(Failure::Job(format!(
            "the SDK would reject these parameters: {}. Fold ids in names, or use --per-key never",
            output::escaped(&error.to_string())
        ))),
    }
}

/// All baselines except the fixed ratio, which is the equal share.
fn baselines() -> Vec<BaselineSpec> {
    baselines::all().into_iter().filter(|baseline| baseline.kind().name != "ratio").collect()
}
