//! `astracer evaluate`: replays samplers and prints a table of their quality.

mod equal_size;
mod kept;
mod sampler;
mod scoreboard;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use astracer_model::TraceId;
use astracer_recording::recording::Keep;
use astracer_report::numbers::{is_above, three};
use astracer_samplers::tail::Tail;
use astracer_samplers::{Cap, Config, RandomSource};
use astracer_tuner::evaluate::{CountRow, Summary};
use astracer_tuner::held_out::CountErrors;
use astracer_tuner::records::crowded;
use astracer_tuner::tail::{Outcomes, TailSummary, attributes};
use astracer_tuner::{Candidate, Draw, Evaluation, Evaluator, Grouping, Stop, Workload};
use clap::{ArgGroup, Args as ClapArgs};
use serde::Serialize;

use self::sampler::Sampler;
use crate::failure::Failure;
use crate::interrupt;
use crate::json_text::json_escaped;
use crate::load::{self, Input};
use crate::output::{self, measure};
use crate::outputs::{Output, Outputs};
use crate::parameters_file;
use crate::progress::Progress;
use crate::source::{Source, check_inputs};
use crate::tail::{self, TailArgs, is_own};
use crate::values::{cap, key, length, random, share, time_limit};

const EXAMPLES: &str = "\
Examples:
  astracer evaluate run.tar.xz
  astracer evaluate run.tar.xz --sampler bump:lambda=215,min=0.02
  astracer evaluate run.tar.xz --sampler ratio:0.05 --baselines all
  astracer evaluate run.tar.xz --sampler ratio:0.5 --cap traces=100,key_traces=9
  astracer evaluate traces/ --parameters astracer.toml --jitter 5ms --seeds 20
  astracer evaluate traces/ --sampler ratio:0.01 --tail error,slow:p99
  astracer evaluate run.json --sampler ratio:0.05 --kept ids.txt
  astracer evaluate run.json --sampler ratio:0.05 --kept-out kept.jsonl
  astracer evaluate spans/ --key name+http.route --json
  astracer evaluate shop/ --sampler ratio:0.05 --scoreboard faults.csv
  astracer evaluate shop/ --parameters astracer.toml --scoreboard faults.csv
      --baselines all --baseline-keys outcome:name,tree

Samplers:
  always, never, ratio:P, every:N
  bump:lambda=L,min=P[,window=1s][,shift=on]
  bump:lambda=L,min=P,count=decaying,tau=1s[,exponent=2]
  bucket:capacity=C,rate=R (tokens per second)

docs/metrics.md explains the columns.";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("compared").args(["baselines", "scoreboard"]).multiple(true))]
pub(crate) struct Evaluate {
    #[command(flatten)]
    pub(crate) source: Source,

    /// Sampler to replay, in addition to always, ratio:0.1 and ratio:0.01; repeatable [default: a
    /// bump and a bucket sampler with typical parameters].
    #[arg(long = "sampler", value_name = "SAMPLER")]
    pub(crate) samplers: Vec<Config>,

    /// Parameters file to replay, as `tune` writes it; repeatable.
    #[arg(long, value_name = "FILE")]
    pub(crate) parameters: Vec<PathBuf>,

    /// Also replay each sampler under this hard cap: rates per second of traces, key_traces (per
    /// key), bytes and key_bytes, for example traces=100,burst=25,bytes=1e6 [default: the cap of
    /// the parameters file]. --kept and --counts then describe the traces under the cap.
    #[arg(long, value_name = "CAP", value_parser = cap)]
    pub(crate) cap: Option<Cap>,

    /// Seed of the first replay; each further replay has the next seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Number of replays of each sampler, each with its own seed.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) seeds: u64,

    /// Randomness of traces that begin in the service: stratified or independent [default: from the
    /// parameters file, else independent].
    #[arg(long, value_name = "RANDOM", value_parser = random)]
    pub(crate) random: Option<RandomSource>,

    /// Take the random numbers of the trace ids, as a service does whose randomness is independent:
    /// then the same traces are kept. Strata also need the service's --seed (Builder::with_seed).
    #[arg(long, conflicts_with = "random")]
    pub(crate) ids: bool,

    /// Shift each arrival by a normally distributed time with this standard deviation, such as 5ms.
    /// Of several, replays use each in turn; `tune` uses 0,5ms,50ms.
    #[arg(long, value_name = "DURATION", default_value = "0", value_delimiter = ',', value_parser = length)]
    pub(crate) jitter: Vec<Duration>,

    /// Samplers of other projects to compare with, tuned to keep as much as your one --sampler (or
    /// 10% of the bytes): all, or names with optional parameters, as in xray:rate=0.05,brave.
    /// Without parameters, times are shortened so that they pass ten times in the recording, as in
    /// `tune`.
    #[arg(long, value_name = "BASELINE", num_args = 1..)]
    pub(crate) baselines: Vec<String>,

    /// Share of the bytes that baselines keep, and from which --scoreboard counts the error of
    /// size, for example 5%.
    #[arg(long, value_name = "SHARE", value_parser = share, requires = "compared")]
    pub(crate) size: Option<f64>,

    /// Key that samplers count by: name (of the root), name+ATTRIBUTE, name+end:ATTRIBUTE (known to
    /// strata only), outcome:KEY (with the octave of the root's duration and whether a span failed,
    /// as tail samplers can), or tree (the whole call tree) [default: that of the parameters file,
    /// else name].
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub(crate) key: Option<Grouping>,

    /// Write the ids of the traces kept with the first seed to FILE, one per line, followed by
    /// those that --tail keeps. With {seed} in the name, a file is written for each seed. Needs
    /// exactly one sampler.
    #[arg(long, value_name = "FILE")]
    pub(crate) kept: Option<PathBuf>,

    /// Write the traces kept with the first seed to FILE as a recording (OTLP JSON lines), with
    /// their weights in the tracestate (`ot=th`), to ask what the sample would say. Needs exactly
    /// one sampler.
    #[arg(long, value_name = "FILE")]
    pub(crate) kept_out: Option<PathBuf>,

    /// Write how many traces were seen and kept with the first seed to FILE, by key and interval,
    /// as JSON lines (format: docs/metrics.md). Needs exactly one sampler.
    #[arg(long, value_name = "FILE")]
    pub(crate) counts: Option<PathBuf>,

    /// Length of an interval of --counts, such as 10s or 1m.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = time_limit, requires = "counts")]
    pub(crate) interval: Duration,

    /// Also print the measures of published samplers (docs/metrics.md). FILE is a CSV file of the
    /// faults in the recording, with the columns fault, from, to (UTC), service and, if known,
    /// operation.
    #[arg(long, value_name = "FILE")]
    pub(crate) scoreboard: Option<PathBuf>,

    /// Keys by which --scoreboard also replays the baselines, tuned to the same size: what samplers
    /// that see whole traces may count by, such as outcome:name+entry,tree.
    #[arg(long, value_name = "KEYS", value_delimiter = ',', value_parser = key)]
    #[arg(requires_all = ["scoreboard", "baselines"])]
    pub(crate) baseline_keys: Vec<Grouping>,

    #[command(flatten)]
    pub(crate) tail: TailArgs,

    /// Print more measures: spans, OTLP bytes, entropy, path kinds, errors of estimates.
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub(crate) verbose: bool,

    /// Print one JSON object instead of a table.
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Samplers that are always shown for comparison.
const YARDSTICKS: [&str; 3] = ["always", "ratio:0.1", "ratio:0.01"];
/// Samplers that are shown if none is given.
const DEFAULTS: [&str; 2] = ["bump:lambda=10,min=0.01,window=1s", "bucket:capacity=50,rate=2"];
/// The share of the bytes that baselines keep by default.
const SIZE_DEFAULT: f64 = 0.1;
/// Replays that decide whether a baseline keeps the wanted size.
const SIZE_SEEDS: u64 = 3;

#[derive(Serialize)]
struct Report<'a> {
    input: &'a Input,
    #[serde(flatten)]
    evaluation: Evaluation,
    /// Late policies replayed with each of our samplers except `always`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tail: Vec<TailSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scoreboard: Option<scoreboard::Board>,
    /// Warnings, which are printed below the table too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

pub(crate) fn run(args: &Evaluate, stop: Stop<'_>) -> Result<(), Failure> {
    let inputs = || args.source.paths.iter().chain(&args.parameters).chain(&args.scoreboard);
    check_inputs(inputs())?;
    let mut outputs = Outputs::new(inputs());
    let mut file =
        |option, path: &Option<PathBuf>| path.as_ref().map(|path| outputs.file(option, path)).transpose();
    let kept = match &args.kept {
        Some(path) => {
            kept::of_seeds(args, path)?.iter().map(|path| file("--kept", &Some(path.clone()))).collect()
        }
        None => Ok(Vec::new()),
    };
    let kept: Vec<Output> = kept?.into_iter().flatten().collect();
    let counts = file("--counts", &args.counts)?;
    let kept_out = args.kept_out.as_ref().map(|path| outputs.recording("--kept-out", path)).transpose()?;
    if let Some(output) = &kept_out {
        kept::check(output, &args.source.paths)?;
    }
    args.tail.tail.as_ref().map_or(Ok(()), tail::check)?;
    // A pipe waits for its writer.
    let RequestedSamplers { samplers: asked, source, key, random, tail, warnings } =
        interrupt::answer_at_once_while_reading(stop, || asked(args))?;
    let faults = match &args.scoreboard {
        Some(path) => interrupt::answer_at_once_while_reading(stop, || scoreboard::read(path).map(Some))?,
        None => None,
    };
    let lone = |option: &str, file: Option<Output>| match (file, &asked[..]) {
        (None, _) => Ok(None),
        (Some(file), [sampler]) => Ok(Some((file, sampler.candidate(sampler.cap)))),
        (Some(_), samplers) => Err(Failure::Usage(format!(
            "{option} needs exactly one --sampler or --parameters, not {}",
            samplers.len()
        ))),
    };
    let kept: Vec<_> = kept.into_iter().map(|file| lone("--kept", Some(file))).collect::<Result<_, _>>()?;
    let counts = lone("--counts", counts)?;
    let kept_out = lone("--kept-out", kept_out)?;
    let mut samplers = samplers(args, &asked)?;
    let baselines = equal_size::baselines(args)?;
    let own_labels = tail.as_ref().map(attributes).unwrap_or_default();
    let labels: BTreeSet<String> =
        std::iter::once(&key).chain(&args.baseline_keys).flat_map(Grouping::attributes).collect();
    let keep = Keep { labels: labels.into_iter().collect(), own_labels, ..Keep::default() };
    let loaded = load::load_keeping(&source, keep, stop)?;
    let workload = load::workload(&source, &loaded.recording, &key, stop)?;
    // Replays need only the workload.
    let load::Loaded { input, recording } = loaded;
    let outcomes = tail
        .as_ref()
        .map(|tail| Outcomes::new(&recording, tail, stop).ok_or(Failure::Interrupted))
        .transpose()?;
    let absent = load::absent(&key, &recording, outcomes.as_ref());
    let board = faults.map(|faults| scoreboard::prepare(&recording, &faults, stop)).transpose()?;
    let (board, without_traces) = board.unzip();
    let owners = kept_out.is_some().then(|| kept::Owners::of(&recording));
    let with_key = |grouping: &Grouping| {
        let grouping_here = grouping.clone().with_template(source.template());
        let workload = workload.with_keys(&recording, &grouping_here, usize::MAX, stop);
        Ok((grouping.to_string(), workload.ok_or(Failure::Interrupted)?))
    };
    let others: Vec<(String, Workload)> =
        args.baseline_keys.iter().map(with_key).collect::<Result<_, Failure>>()?;
    drop(recording);

    let evaluator = Evaluator::unless_stopped(&workload, stop).ok_or(Failure::Interrupted)?;
    let size = wanted_size((args, &asked, random), &evaluator);
    let met = equal_size::tuned(&baselines, size, (args, random), &evaluator, stop)?;
    samplers.extend(met.iter().map(|met| Candidate::from(met.spec.clone())));
    let progress = Progress::steps("replaying", samplers.len() as u64 * args.seeds);
    let draws: Vec<Draw> = (0..args.seeds).map(|index| draw(args, random, index)).collect();
    let evaluation = evaluator.evaluate(&samplers, &draws, &key, stop, || progress.inc(1));
    progress.finish();
    let evaluation = evaluation.ok_or(Failure::Interrupted)?;
    let mut missed: Vec<String> = equal_size::missed(&met, &workload, "").collect();
    let mut names_of_others = Vec::new();
    let board = board
        .map(|board| {
            let replayed = (&samplers[..], &draws[..], size);
            let (mut rows, behind) =
                scoreboard::replay(&board, &evaluator, outcomes.as_ref(), replayed, stop)?;
            for (key, workload) in &others {
                let evaluator = Evaluator::unless_stopped(workload, stop).ok_or(Failure::Interrupted)?;
                let met = equal_size::tuned(&baselines, size, (args, random), &evaluator, stop)?;
                let samplers: Vec<Candidate> =
                    met.iter().map(|met| Candidate::from(met.spec.clone())).collect();
                let replayed = (&samplers[..], &draws[..], size);
                let (of_key, _) = scoreboard::replay(&board, &evaluator, None, replayed, stop)?;
                rows.add(key, of_key);
                names_of_others.extend(samplers.iter().map(|sampler| (sampler.to_string(), sampler.brief())));
                missed.extend(equal_size::missed(&met, workload, &format!(" by {}", output::escaped(key))));
            }
            Ok::<_, Failure>((rows, behind))
        })
        .transpose()?;
    let (board, behind) = board.unzip();
    let mut summaries = behind.unwrap_or_default();
    // The scoreboard has replayed the policies already.
    if let Some(outcomes) = outcomes.as_ref().filter(|_| board.is_none()) {
        for sampler in samplers.iter().filter(|sampler| is_before_policies(sampler)) {
            let summary = outcomes.replay(&workload, sampler, &draws, stop);
            summaries.push(summary.ok_or(Failure::Interrupted)?);
        }
    }
    // Print the table before a failed file ends the command, because it is worth more.
    let mut late = Ok(());
    for ((file, sampler), draw) in kept.into_iter().flatten().zip(&draws) {
        let mut ids = evaluator.kept(&sampler, draw);
        ids.extend(outcomes.iter().flat_map(|outcomes| outcomes.kept(&workload, &sampler, draw)));
        late = late.and(write_ids(&file, &ids));
        interrupt::answer_at_once(stop)?;
    }
    let mut wrote = String::new();
    if let Some(((file, sampler), owners)) = kept_out.zip(owners) {
        let (replayed, by) = ((&workload, outcomes.as_ref()), (&sampler, &draw(args, random, 0)));
        let written = kept::write(&file, &source, &owners, replayed, by, stop);
        late = late.and(written.map(|(traces, spans)| {
            let (traces, spans) = (output::plural(traces, "trace"), output::plural(spans, "span"));
            wrote = format!("--kept-out: wrote {traces} with {spans}\n");
        }));
        interrupt::answer_at_once(stop)?;
    }
    if let Some((file, sampler)) = counts {
        let interval_ns = u64::try_from(args.interval.as_nanos()).ok().and_then(NonZeroU64::new);
        let interval_ns = interval_ns.unwrap_or(NonZeroU64::MAX);
        let rows = evaluator.counts(&sampler, &draw(args, random, 0), interval_ns);
        let line =
            |row: &CountRow| serde_json::to_string(row).map(|line| json_escaped(&line).into_owned() + "\n");
        let lines = rows.iter().map(line).collect::<Result<String, _>>();
        let lines = lines.map_err(|error| Failure::Job(format!("--counts: {error}")));
        late = late.and(lines.and_then(|lines| file.write(&lines)));
    }
    let warnings = missed.into_iter().chain(warnings).chain(absent).chain(crowded(&workload));
    let warnings = warnings.chain(input.sample_warning());
    let warnings: Vec<String> = warnings.chain(without_traces.flatten()).collect();
    interrupt::answer_at_once(stop)?;
    if args.json {
        let report = Report { input: &input, evaluation, tail: summaries, scoreboard: board, warnings };
        return Failure::after(output::print_json(&report), late);
    }
    let names: BTreeMap<String, String> = samplers
        .iter()
        .map(|sampler| (sampler.to_string(), sampler.brief()))
        .chain(names_of_others)
        .collect();
    let labels = sampler::labels(&samplers);
    let mut text = input.heading() + &table(&evaluation, &samplers, &labels);
    if args.verbose {
        text += &details(&evaluation, (&labels, &names));
    }
    let policies = summaries
        .iter()
        .zip(tail.iter().cycle())
        .map(|(summary, tail)| tail::render(summary, tail, named(&names, &summary.sampler)));
    text.extend(policies);
    text.extend(board.map(|board| board.render(|sampler| named(&names, sampler).to_owned())));
    text.extend(warnings.iter().map(|warning| format!("warning: {warning}\n")));
    text += &wrote;
    text += &input.footing();
    if !args.verbose {
        text += "More measures: --verbose\n";
    }
    Failure::after(output::report(&text), late)
}

/// Whether the figures of late policies are shown behind this sampler.
fn is_before_policies(sampler: &Candidate) -> bool {
    match sampler {
        Candidate::Ours(config) => *config != Config::Always,
        Candidate::Capped(..) | Candidate::Late(..) => true,
        Candidate::Baseline(_) => false,
    }
}

/// The share of the bytes that baselines keep: `--size`, or as much as the only sampler given, or a
/// tenth.
fn wanted_size(
    (args, asked, random): (&Evaluate, &[Sampler], RandomSource),
    evaluator: &Evaluator<'_>,
) -> f64 {
    match (args.size, asked) {
        (Some(size), _) => size,
        (None, [sampler]) if !args.baselines.is_empty() || args.scoreboard.is_some() => {
            let sampler = sampler.candidate(sampler.cap);
            let sizes =
                (0..SIZE_SEEDS).map(|index| evaluator.score(&sampler, &draw(args, random, index)).tfcr);
            sizes.sum::<f64>() / SIZE_SEEDS as f64
        }
        _ => SIZE_DEFAULT,
    }
}

/// The draw of the replay with this index.
fn draw(args: &Evaluate, random: RandomSource, index: u64) -> Draw {
    let jitter = args.jitter.iter().cycle().nth((index % args.jitter.len().max(1) as u64) as usize);
    let jitter_ms = jitter.map_or(0.0, |jitter| jitter.as_secs_f64() * 1e3);
    let seed = args.seed.wrapping_add(index);
    Draw { jitter_ms, ..Draw::recorded(seed) }.with_random(random).of_ids(args.ids)
}

/// The samplers, key, randomness and policies that options and parameters files ask for.
struct RequestedSamplers {
    samplers: Vec<Sampler>,
    /// The recordings, with names folded as the files say.
    source: Source,
    /// The key of the files, or else of `--key`.
    key: Grouping,
    random: RandomSource,
    /// The policies of `--tail`, else of the first file that has any.
    tail: Option<Tail>,
    /// Warnings about parts of the files that are not replayed.
    warnings: Vec<String>,
}

/// The contents of one parameters file.
struct File {
    /// The path, for messages.
    name: String,
    sampler: Sampler,
    random: RandomSource,
    tail: Tail,
}

fn asked(args: &Evaluate) -> Result<RequestedSamplers, Failure> {
    let (mut warnings, mut files_key) = (Vec::new(), None);
    let mut read = |path: &PathBuf| {
        let parameters = parameters_file::read(path)?;
        // Options may repeat the key, but need not.
        let template = *parameters.key.template();
        let template = if args.source.has_own_template() { args.source.template() } else { template };
        let key = Grouping::Key(parameters.key);
        let asked = args.key.clone().unwrap_or_else(|| key.clone()).with_template(template);
        let other = Some(&asked).filter(|asked| **asked != key);
        if let Some(other) = other.or(files_key.as_ref().filter(|before| **before != key)) {
            let path = output::shown(path);
            let (key, other) = (key.to_string(), other.to_string());
            let (key, other) = (output::escaped(&key), output::escaped(&other));
            return Err(Failure::Usage(format!(
                "--parameters {path}: its keys are {key}, not {other}; omit --key, --names and --fold, and evaluate files \
                 with different keys one by one"
            )));
        }
        files_key = Some(key);
        let (name, cap) = (output::shown(path), args.cap.unwrap_or(parameters.cap));
        if parameters.budget.is_some() {
            warnings.push(format!(
                "the budget of {name} is not replayed: probabilities stay as the file has them"
            ));
        }
        let mut tail = parameters.tail;
        if args.tail.tail.is_none() {
            for own in tail.rules.iter().filter(|rule| is_own(rule)) {
                warnings.push(format!(
                    "the policy {} of {name} is not replayed: it is code of the service",
                    own.policy
                ));
            }
        }
        tail.rules.retain(|rule| !is_own(rule));
        let sampler = Sampler { strata: parameters.strata, ..Sampler::new(parameters.config, cap) };
        Ok(File { name, sampler, random: parameters.random, tail })
    };
    let files = args.parameters.iter().map(&mut read).collect::<Result<Vec<_>, Failure>>()?;
    // All samplers of the table use the same randomness.
    let random = args.random.or(files.first().map(|first| first.random)).unwrap_or_default();
    if let (None, Some(first)) = (args.random, files.first()) {
        for file in files.iter().filter(|file| file.random != random) {
            warnings.push(format!(
                "all samplers are replayed with {} randomness, as in {}, although {} asks for another; --random sets \
                 it for all",
                random.name(),
                first.name,
                file.name
            ));
        }
    }
    let first = files.iter().find(|file| !file.tail.is_none());
    if let (None, Some(first)) = (&args.tail.tail, first) {
        for file in files.iter().filter(|file| file.tail != first.tail) {
            warnings.push(format!(
                "the policies of {} are replayed with all samplers, although {} has others; evaluate that file alone",
                first.name, file.name
            ));
        }
    }
    let learnt = files.iter().find(|file| !file.tail.slow_from.is_empty());
    let of_options = args.tail.tail().map(|tail| match learnt {
        Some(file) => tail::with_thresholds(tail, &file.tail),
        None => tail,
    });
    let tail = of_options.or_else(|| first.map(|first| first.tail.clone()));
    let cap = args.cap.unwrap_or_default();
    let of_texts = args.samplers.iter().map(|config| Sampler::new(config.clone(), cap));
    let samplers = of_texts.chain(files.into_iter().map(|file| file.sampler)).collect();
    let source = match &files_key {
        Some(Grouping::Key(rule)) => args.source.folded_by(*rule.template()),
        _ => args.source.clone(),
    };
    let key = files_key.or(args.key.clone()).unwrap_or_default();
    Ok(RequestedSamplers { samplers, source, key, random, tail, warnings })
}

/// The samplers of the table. Each capped sampler comes after the same sampler without the cap.
fn samplers(args: &Evaluate, asked: &[Sampler]) -> Result<Vec<Candidate>, Failure> {
    let parse = |text: &&str| text.parse::<Config>().map_err(|error| Failure::Job(error.to_string()));
    let yardsticks = YARDSTICKS.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let mut samplers: Vec<Candidate> = yardsticks.into_iter().map(Candidate::from).collect();
    let mut add = |sampler: &Sampler| {
        for sampler in [Cap::none(), sampler.cap].map(|cap| sampler.candidate(cap)) {
            if !samplers.contains(&sampler) {
                samplers.push(sampler);
            }
        }
    };
    if asked.is_empty() {
        for config in DEFAULTS.iter().map(parse) {
            add(&Sampler::new(config?, args.cap.unwrap_or_default()));
        }
    }
    asked.iter().for_each(add);
    Ok(samplers)
}

fn write_ids(file: &Output, ids: &[TraceId]) -> Result<(), Failure> {
    file.write(&ids.iter().map(|id| load::trace_id(*id) + "\n").collect::<String>())
}

/// The readable name of a sampler.
fn named<'n>(names: &'n BTreeMap<String, String>, sampler: &'n str) -> &'n str {
    names.get(sampler).map_or(sampler, String::as_str)
}

/// The table: a head about the workload, and a row for each sampler. `labels` maps samplers to
/// readable names.
fn table(evaluation: &Evaluation, samplers: &[Candidate], labels: &BTreeMap<String, String>) -> String {
    let workload = &evaluation.workload;
    let seeds = evaluation.summary.first().map_or(0, |summary| summary.seeds);
    let mut text = format!(
        "{}, {}, {} by {}, {} over {}\n\n",
        output::plural(workload.traces, "trace"),
        output::plural(workload.spans, "span"),
        output::plural(workload.keys, "key"),
        output::escaped(&workload.key),
        output::bytes(workload.bytes),
        output::span(workload.seconds),
    );
    let first = if seeds == 1 { "one replay".to_owned() } else { format!("means of\n{seeds} replays") };
    let has_strata = samplers.iter().any(|sampler| matches!(sampler, Candidate::Late(..)));
    let functions = format!("functions\nof {}", output::count(workload.functions));
    let trees = format!("call trees\nof {}", output::count(workload.call_trees));
    let mut header =
        vec![&*first, "traces\nkept", "bytes\nkept", &functions, &trees, "dist/\nentropy", "count\nerror"];
    if has_strata {
        header.insert(6, "by\nweights");
    }
    let rows = evaluation.summary.iter().map(|summary| {
        let Summary { mean, sd, .. } = summary;
        let optional = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let mut cells = vec![
            named(labels, &summary.sampler).to_owned(),
            output::whole(mean.traces),
            output::percent(mean.tfcr),
            mean_of(mean.functions, sd.functions),
            mean_of(mean.call_trees, sd.call_trees),
            mean_and_sd(mean.dist_over_entropy, sd.dist_over_entropy, three),
            optional(summary.counts.map(|counts| output::percent(counts.functions))),
        ];
        if has_strata {
            cells.insert(6, optional(summary.dist_over_entropy_by_weights.map(three)));
        }
        cells
    });
    text += &output::table(&header, rows);
    let sd = if seeds == 1 { "" } else { " \u{b1} is the standard deviation of single replays." };
    let strata = if has_strata { " Samples by strata are read by weights." } else { "" };
    text + &format!("Less dist/entropy is better.{strata}{sd}\n")
}

/// The measures that the table has no columns for. `labels` are for rows, `names` for sentences.
fn details(
    evaluation: &Evaluation,
    (labels, names): (&BTreeMap<String, String>, &BTreeMap<String, String>),
) -> String {
    let workload = &evaluation.workload;
    let paths = format!("path kinds\nof {}", output::count(workload.paths));
    let header = [
        "means \u{b1} sd",
        "spans",
        "bytes\nas OTLP",
        "distance\n(SS) ms",
        "entropy\n(IEn) bits",
        &paths,
        "distance of\npath kinds",
    ];
    let rows = evaluation.summary.iter().map(|summary| {
        let Summary { mean, sd, .. } = summary;
        vec![
            named(labels, &summary.sampler).to_owned(),
            mean_and_sd(mean.spans, sd.spans, output::whole),
            mean_and_sd(mean.tfcr_otlp, sd.tfcr_otlp, output::percent),
            mean_and_sd(mean.ss_ms, sd.ss_ms, three),
            mean_and_sd(mean.entropy_bits, sd.entropy_bits, three),
            mean_and_sd(mean.paths, sd.paths, |paths| format!("{paths:.1}")),
            mean_and_sd(mean.path_distance, sd.path_distance, measure),
        ]
    });
    let mut text = "\n".to_owned() + &output::table(&header, rows);
    let optional = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let weighted = evaluation.summary.iter().filter(|summary| summary.counts.is_some()).map(|summary| {
        let counts = |of: fn(CountErrors) -> f64| optional(summary.counts.map(of).map(output::percent));
        vec![
            named(labels, &summary.sampler).to_owned(),
            counts(|counts| counts.functions),
            counts(|counts| counts.functions_calibrated),
            counts(|counts| counts.roots),
            optional(summary.ss_by_weights_ms.map(three)),
            optional(summary.ss_of_equal_share_ms.map(three)),
        ]
    });
    let header = [
        "estimated with weights",
        "error of\nfunctions",
        "calibrated\nto roots",
        "error of\nroots",
        "SS ms",
        "SS ms, equal\nshare",
    ];
    text += &output::table(&header, weighted);
    for summary in &evaluation.summary {
        if let (Some(by_weights), Some(share)) = (summary.ss_by_weights_ms, summary.ss_of_equal_share_ms)
            && is_above(by_weights, share, 3)
        {
            let _ = writeln!(
                text,
                "{}: weighted durations are worse than an equal share's; weights of very small probabilities are mostly noise",
                output::brief(named(names, &summary.sampler)),
            );
        }
    }
    text
}

/// The mean, and the deviation with as many decimals.
fn mean_and_sd(mean: f64, sd: f64, number: fn(f64) -> String) -> String {
    let text = number(mean);
    if !(sd > 0.0 && sd.is_finite()) {
        return text;
    }
    let decimals = text.trim_end_matches('%').split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let (sd, unit) = if text.ends_with('%') { (sd * 100.0, "%") } else { (sd, "") };
    match decimals {
        0 => format!("{text} \u{b1} {}{unit}", output::whole(sd)),
        _ => format!("{text} \u{b1} {sd:.decimals$}{unit}"),
    }
}

/// Shows a decimal if seeds differ, even if the mean happens to be whole.
fn mean_of(mean: f64, sd: f64) -> String {
    if sd > 0.0 { format!("{mean:.1}") } else { output::rounded(mean) }
}
