//! `astracer critical-path`: which functions make up the latency of requests.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use astracer_causality::causes::{Causes, Clocking};
use astracer_causality::shifts;
use astracer_critical_path::waits::{Wait, waits};
use astracer_critical_path::{
    Analyser, By, Comparison, Lanes, Method, PathKinds, Profile, Profiler, Retiming, Rule, Skew, Speedup,
    compare, folded, page, segments,
};
use astracer_model::TraceId;
use astracer_recording::intern::Symbol;
use astracer_recording::origin::THREADS;
use astracer_recording::recording::{Keep, Recording, TraceView};
use astracer_recording::weight;
use astracer_report::page::Next;
use astracer_tuner::Stop;
use clap::{Args as ClapArgs, ValueEnum};
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt;
use crate::load::{self, Causal, Input, Loaded};
use crate::output::{self, count, escaped, measure, named};
use crate::outputs::{Output, Outputs};
use crate::shell;
use crate::source::{Source, check_inputs};

mod render;

const EXAMPLES: &str = "\
Examples:
  astracer critical-path run.tar.xz                   functions by critical time
  astracer critical-path run.tar.xz --by path --top 10
  astracer critical-path today/ --compare yesterday/  largest changes first
  astracer critical-path run.tar.xz --trace 8b9c21fd  one trace with its path
  astracer critical-path run.tar.xz --speedup 'SELECT=0.5'
  astracer critical-path kept/ --weights --html path.html
  astracer critical-path run.tar.xz --folded out && flamegraph.pl out > out.svg

docs/critical-path.md has the definitions, with an example worked by hand.";

/// Rows of a table for people.
const TOP_DEFAULT: usize = 30;
/// Rows of a drawn trace in the terminal.
const LANES_MAX: usize = 60;
/// Rows of a drawn trace in a page or in JSON.
const PAGE_LANES_MAX: usize = 500;

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CriticalPath {
    #[command(flatten)]
    pub(crate) source: Source,

    /// Only traces whose root span has this name (with ids folded, as tables show it).
    #[arg(long, value_name = "NAME")]
    pub(crate) root: Option<String>,

    /// The rows: functions, services, or paths of calls [default: function].
    #[arg(long, value_enum)]
    pub(crate) by: Option<Grouped>,

    /// Rule for the critical path: last (the child that finishes last; event graphs by their
    /// edges), jaeger or crisp (as those tools), events (the latest parent, as X-Trace does).
    #[arg(long, value_name = "RULE", default_value = "last")]
    pub(crate) rule: Rule,

    /// Follow the spans of traces whose spans have X-Trace's events (rule last), instead of those
    /// events.
    #[arg(long)]
    pub(crate) spans: bool,

    /// Treatment of spans that another machine's clock puts outside their parent (rule last): shift
    /// them into it, or clip them [default: shift].
    #[arg(long, value_enum)]
    pub(crate) skew: Option<Clocks>,

    /// Show the latency if this function took FACTOR times as long as it did; repeatable.
    #[arg(long, value_name = "NAME=FACTOR", value_parser = speedup)]
    pub(crate) speedup: Vec<(String, f64)>,

    /// Compare with another recording: changes within traces of the same root, the largest
    /// significant change first, and changes because the mix of roots differs.
    #[arg(long, value_name = "RECORDING")]
    pub(crate) compare: Option<PathBuf>,

    /// Percentiles to show of each row's time, over the traces that have it on their path.
    #[arg(long, value_name = "LIST", default_value = "50,95,99", value_delimiter = ',', value_parser = percentile)]
    pub(crate) percentiles: Vec<f64>,

    /// Draw one trace with its critical path, instead of the table. If the recording has straces
    /// of its threads, also list the system calls that the path waited in.
    #[arg(long, value_name = "ID", value_parser = trace_id, conflicts_with = "compare")]
    pub(crate) trace: Option<TraceId>,

    /// Show only the first N rows of each table; 0 shows all [default: 30, with --json all].
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,

    /// Weight each trace by 1 / probability, from its threshold (`ot=th` in the tracestate).
    #[arg(long)]
    pub(crate) weights: bool,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the critical path of each trace to FILE, as JSON lines.
    #[arg(long, value_name = "FILE")]
    pub(crate) segments: Option<PathBuf>,

    /// Write critical time by path of calls to FILE, in the input format of flame graph tools.
    #[arg(long, value_name = "FILE")]
    pub(crate) folded: Option<PathBuf>,

    /// Write a page to FILE: flame graph, table, the slowest trace, and the comparison.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// The values of `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Grouped {
    /// The name of the operation.
    Function,
    /// The service.
    Service,
    /// The names from the root down to the operation.
    Path,
}

impl CriticalPath {
    fn by(&self) -> Grouped {
        self.by.unwrap_or(Grouped::Function)
    }

    /// The number of rows to show of `all`.
    fn rows(&self, all: usize) -> usize {
        match self.top.unwrap_or(TOP_DEFAULT) {
            0 => all,
            top => top.min(all),
        }
    }
}

impl Grouped {
    fn by(self) -> By {
        match self {
            Self::Function => By::Function,
            Self::Service => By::Service,
            Self::Path => By::Path,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Service => "service",
            Self::Path => "path",
        }
    }
}

/// The values of `--skew`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Clocks {
    /// Move spans inside.
    Shift,
    /// Cut off what is outside.
    Clip,
}

#[derive(Serialize)]
struct Report<'a> {
    input: &'a Input,
    rule: &'static str,
    percentiles: &'a [f64],
    path_kinds: usize,
    /// True if the recording has weights, whether or not they are used.
    weights_recorded: bool,
    #[serde(flatten)]
    profile: &'a Profile,
    #[serde(skip_serializing_if = "Option::is_none")]
    speedup: Option<&'a Speedup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compared_with: Option<&'a Input>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<&'a Comparison>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a Lanes>,
    #[serde(skip_serializing_if = "<[Wait]>::is_empty")]
    waits: &'a [Wait],
}

/// Results of one pass over a recording.
struct Found {
    profile: Profile,
    path_kinds: usize,
    by_path: Option<Profile>,
    speedup: Option<Speedup>,
    /// The trace given by `--trace`, else the one with the longest path if a page is written.
    lanes: Option<Lanes>,
    /// The trace given by `--trace`, with fewer rows for the terminal.
    in_text: Option<Lanes>,
    /// The system calls that the trace given by `--trace` waited in, longest first.
    waits: Vec<Wait>,
    /// Why the file of segments could not be written.
    late: Option<Failure>,
}

/// Reads the recording; for one trace with the system calls of its threads, if there are straces.
fn read(args: &CriticalPath, stop: Stop<'_>) -> Result<(Loaded, Option<Causes>), Failure> {
    if args.trace.is_none() || args.rule != Rule::Last {
        return Ok((load::load_keeping(&args.source, keep(args), stop)?, None));
    }
    let mut keep = keep(args);
    keep.own_labels.extend(THREADS.map(str::to_owned));
    let (found, input) = load::load_causes(&args.source, keep, None, None, stop)?;
    match found {
        Causal::Spans(recording) => Ok((Loaded { recording: *recording, input }, None)),
        Causal::All(collected) => {
            let found = Causes::find(*collected, &Clocking::default(), &mut stop.pulse());
            let (causes, recording) = found.ok_or(Failure::Interrupted)?;
            Ok((Loaded { recording, input }, Some(causes)))
        }
    }
}

pub(crate) fn run(args: &CriticalPath, stop: Stop<'_>) -> Result<(), Failure> {
    refuse_contradictions(args)?;
    check_inputs(args.source.paths.iter().chain(&args.compare))?;
    let mut outputs = Outputs::new(args.source.paths.iter().chain(&args.compare));
    let mut file =
        |option, path: &Option<PathBuf>| path.as_ref().map(|path| outputs.file(option, path)).transpose();
    let segments = file("--segments", &args.segments)?;
    let folded_file = file("--folded", &args.folded)?;
    let html = file("--html", &args.html)?;
    if let Some(other) = &args.compare {
        load::try_to_read(other, &args.source.reading, stop)?;
    }
    let (loaded, causes) = read(args, stop)?;
    let mut found = analyse(
        args,
        &loaded.recording,
        causes.as_ref(),
        segments.as_ref(),
        folded_file.is_some() || html.is_some(),
        stop,
    )?;
    refuse_weightless(&found.profile, "all traces")?;
    let compared = args.compare.as_ref().map(|other| compared(args, other, stop)).transpose()?;
    let mut comparison = compared.as_ref().map(|(_, profile)| compare(profile, &found.profile));
    let hint = match args.weights {
        true => None,
        false => loaded.input.sample_hint("all traffic from them"),
    };
    let mut written: Vec<&Output> = segments.iter().filter(|_| found.late.is_none()).collect();
    // Print the table before a failed file ends the command, because it is worth more.
    let mut late = found.late.take();
    let mut write = |file, content: &str| match Output::write(file, content) {
        Ok(()) => written.push(file),
        Err(failure) => late = late.take().or(Some(failure)),
    };
    if let (Some(file), Some(by_path)) = (&folded_file, &found.by_path) {
        write(file, &folded(by_path));
    }
    if let (Some(file), Some(by_path)) = (&html, &found.by_path) {
        let next = next_of_page(found.lanes.as_ref(), &found.profile);
        let page = page::page(&page::Report {
            title: &loaded.input.paths().join(", "),
            rule: args.rule.name(),
            percentiles: &args.percentiles,
            profile: &found.profile,
            hint: hint.as_deref(),
            by_path,
            lanes: found.lanes.as_ref(),
            speedup: found.speedup.as_ref(),
            compared: compared.as_ref().map(|(other, _)| other.paths().join(", ")).as_deref(),
            comparison: comparison.as_ref(),
            next: &next,
        });
        write(file, &output::lines_escaped(&page));
    }
    let late = late.map_or(Ok(()), Err);
    let written: String =
        written.into_iter().map(|file| format!("wrote {}\n", output::shown(file.path()))).collect();
    if args.json {
        if let Some(top) = args.top.filter(|&top| top > 0) {
            found.profile.rows.truncate(top);
            comparison.iter_mut().for_each(|comparison| comparison.differences.truncate(top));
        }
        let printed = output::print_json(&Report {
            input: &loaded.input,
            rule: args.rule.name(),
            percentiles: &args.percentiles,
            path_kinds: found.path_kinds,
            weights_recorded: loaded.recording.is_weighted(),
            profile: &found.profile,
            speedup: found.speedup.as_ref(),
            compared_with: compared.as_ref().map(|(other, _)| other),
            comparison: comparison.as_ref(),
            trace: found.lanes.as_ref().filter(|_| args.trace.is_some()),
            waits: &found.waits,
        });
        return Failure::after(printed, late);
    }
    let mut text = loaded.input.heading();
    text.push_str(&render::head(args, &found.profile, found.path_kinds));
    match (&args.trace, &found.in_text) {
        (Some(_), Some(lanes)) => {
            text.push_str(&render::lanes(lanes));
            text.push_str(&render::waits(&found.waits));
        }
        _ => text.push_str(&render::table(args, &found.profile)),
    }
    if let Some(speedup) = &found.speedup {
        text.push_str(&render::speedup(args, speedup));
    }
    if let (Some(comparison), Some((other, _))) = (&comparison, &compared) {
        text.push_str(&render::comparison(args, other, comparison));
    }
    text.push_str(&render::notes(&found.profile));
    text.extend(hint.map(|hint| format!("hint: {hint}\n")));
    // Beside a sample, a recording without any weight is one of all traces.
    let is_whole = |own: &Input, other: &Input| !own.is_sample() && other.is_sample();
    let other = compared.as_ref().map(|(other, _)| other);
    if !other.is_some_and(|other| is_whole(&loaded.input, other)) {
        text += &render::unweighted(args, &found.profile, "");
    }
    if let Some((other, profile)) = &compared
        && !is_whole(other, &loaded.input)
    {
        text += &render::unweighted(args, profile, &format!(" of {}", escaped(&other.paths().join(", "))));
    }
    text.push_str(&loaded.input.footing());
    text.push_str(&written);
    Failure::after(output::report(&text), late)
}

/// Commands for the page: what if the first call took half of its time, and one trace.
fn next_of_page(lanes: Option<&Lanes>, profile: &Profile) -> Vec<Next> {
    let first = profile.rows.first().and_then(|row| row.name.last()).filter(|name| !name.is_empty());
    let faster = first.map(|name| {
        let option = format!("--speedup {}", shell::quoted(&format!("{name}=0.5")));
        Next::new(
            "What if the first call took half of its time",
            shell::again(&["--html", "--speedup"], &option),
        )
    });
    let trace = lanes.map(|lanes| {
        Next::new(
            "See one trace",
            shell::again(&["--html", "--trace", "--compare"], &format!("--trace {}", lanes.trace_id)),
        )
    });
    faster.into_iter().chain(trace).collect()
}

/// The parts of spans that the options need, beside their place in the tree.
fn keep(args: &CriticalPath) -> Keep {
    // CRISP does not clip an only child on another host. Recorders use either attribute for the
    // host.
    let labels = match args.rule {
        Rule::Crisp => vec!["hostname".to_owned(), "host.name".to_owned()],
        _ => Vec::new(),
    };
    // CRISP compares all own labels to tell hosts apart, so no other label may be kept.
    let own_labels = match args.rule {
        Rule::Crisp => Vec::new(),
        _ if args.weights => vec![weight::ADJUSTED_COUNT.to_owned()],
        _ => Vec::new(),
    };
    // Other rules are of trees of spans.
    let x_trace = !args.spans && matches!(args.rule, Rule::Last | Rule::Events);
    Keep { labels, own_labels, trace_states: args.weights, origins: true, x_trace, ..Keep::default() }
}

fn method(args: &CriticalPath) -> Method {
    let skew = match args.skew {
        None | Some(Clocks::Shift) => Skew::Shift,
        Some(Clocks::Clip) => Skew::Clip,
    };
    Method { rule: args.rule, skew }
}

/// The traces selected by `--root` and `--trace`.
fn selected<'r>(args: &CriticalPath, recording: &'r Recording) -> Result<Vec<TraceView<'r>>, Failure> {
    let root = args.root.as_ref().map(|name| {
        recording.names().find(name).ok_or_else(|| {
            Failure::Job(format!("no span is named '{}'; `astracer inspect` lists the names", escaped(name)))
        })
    });
    let root = root.transpose()?;
    let is_selected = |trace: &TraceView<'_>| {
        root.is_none_or(|root| trace.root().name_symbol() == root)
            && args.trace.is_none_or(|id| trace.id() == id)
    };
    let traces: Vec<_> = recording.traces().filter(is_selected).collect();
    if traces.is_empty() {
        let what = match (args.trace, &args.root) {
            (Some(id), Some(name)) => format!(
                "no trace has both the id {} and a root named '{}'; omit --root or --trace",
                segments::trace_id(id),
                escaped(name)
            ),
            (Some(id), None) => {
                format!("no trace has the id {}; --segments lists all ids", segments::trace_id(id))
            }
            (None, Some(name)) => {
                format!("no trace has a root named '{}'; `astracer inspect` lists the roots", escaped(name))
            }
            (None, None) => "no traces".to_owned(),
        };
        return Err(Failure::Job(what));
    }
    Ok(traces)
}

fn profiler<'r>(args: &CriticalPath, recording: &'r Recording) -> Profiler<'r> {
    let profiler = Profiler::new(recording, args.by().by());
    if args.compare.is_some() { profiler.with_roots() } else { profiler }
}

/// Computes everything in one pass over the traces.
fn analyse(
    args: &CriticalPath,
    recording: &Recording,
    causes: Option<&Causes>,
    segments_file: Option<&Output>,
    by_path: bool,
    stop: Stop<'_>,
) -> Result<Found, Failure> {
    let clocks = shifts::estimate(recording, &mut stop.pulse()).ok_or(Failure::Interrupted)?;
    let traces = selected(args, recording)?;
    let mut profiler = profiler(args, recording);
    let mut path_profiler =
        (by_path && args.by() != Grouped::Path).then(|| Profiler::new(recording, By::Path));
    let mut retiming =
        (!args.speedup.is_empty()).then(|| factors(args, recording)).transpose()?.map(Retiming::new);
    let (mut analyser, mut kinds) =
        (Analyser::new(method(args)).with_shifts(clocks.proven), PathKinds::default());
    let mut longest: Option<(u64, TraceView<'_>)> = None;
    let open = segments_file.map(Output::open).transpose()?;
    let (mut late, mut writer) =
        (None, open.as_ref().map(|open| open.writer().map(BufWriter::new)).transpose()?);
    let mut pulse = stop.pulse();
    for trace in traces {
        let weight = if args.weights { weight::adjusted_count(recording, trace) } else { Some(1.0) };
        let traced = analyser.trace_unless_stopped(recording, trace, &mut pulse);
        let traced = traced.ok_or(Failure::Interrupted)?;
        profiler.add(&traced, weight);
        kinds.add(&traced);
        if let Some(profiler) = &mut path_profiler {
            profiler.add(&traced, weight);
        }
        if longest.is_none_or(|(length, _)| traced.path.length() > length) {
            longest = Some((traced.path.length(), trace));
        }
        if let (Some(to), Some(file)) = (&mut writer, segments_file) {
            if let Err(error) = segments::write(to, recording, &traced, &mut pulse) {
                (late, writer) = (Some(file.failure(&error)), None);
            }
            if pulse.stopped() {
                return Err(Failure::Interrupted);
            }
        }
        if let Some(retiming) = &mut retiming {
            retiming.add(&mut analyser, weight);
        }
    }
    if let (Some(mut writer), Some(open), Some(file)) = (writer, open, segments_file) {
        let flushed = writer.flush().map_err(|error| file.failure(&error));
        drop(writer);
        late = flushed.and_then(|()| open.complete()).err();
    }
    interrupt::answer_at_once(stop)?;
    let mut drawn = |is_wanted: bool, lanes_max: usize| {
        let (_, trace) = longest.filter(|_| is_wanted)?;
        Some(Lanes::new(recording, &analyser.trace(recording, trace), lanes_max))
    };
    let is_one = args.trace.is_some();
    let lanes = drawn(args.html.is_some() || (is_one && args.json), PAGE_LANES_MAX);
    let in_text = drawn(is_one && !args.json, LANES_MAX);
    let waits = match (causes, longest) {
        (Some(causes), Some((_, trace))) => waits(&analyser.trace(recording, trace), causes),
        _ => Vec::new(),
    };
    let profile = profiler.finish(&args.percentiles);
    let path_profile = path_profiler.map(|profiler| profiler.finish(&args.percentiles));
    Ok(Found {
        by_path: path_profile.or_else(|| by_path.then(|| profile.clone())),
        profile,
        path_kinds: kinds.count(),
        speedup: retiming.map(|retiming| retiming.finish(&args.percentiles)),
        lanes,
        in_text,
        waits,
        late,
    })
}

/// The factors of `--speedup`, by function.
fn factors(args: &CriticalPath, recording: &Recording) -> Result<HashMap<Symbol, f64>, Failure> {
    let factor = |(name, factor): &(String, f64)| match recording.names().find(name) {
        Some(symbol) => Ok((symbol, *factor)),
        None => Err(Failure::Job(format!(
            "--speedup: no function is named '{}'; `astracer inspect` lists the names",
            escaped(name)
        ))),
    };
    args.speedup.iter().map(factor).collect()
}

/// Refuses options that contradict each other or have no effect.
fn refuse_contradictions(args: &CriticalPath) -> Result<(), Failure> {
    let twice = args
        .speedup
        .iter()
        .enumerate()
        .find(|(number, (name, _))| args.speedup[..*number].iter().any(|(before, _)| before == name));
    if let Some((_, (name, _))) = twice {
        let name = escaped(name);
        return Err(Failure::Usage(format!("--speedup: '{name}' is given twice; give it one factor")));
    }
    if args.skew.is_some() && args.rule != Rule::Last {
        return Err(Failure::Usage(format!(
            "--skew: the rule {} corrects clocks by itself; omit --skew, or use --rule last",
            args.rule.name()
        )));
    }
    if args.spans && args.rule != Rule::Last {
        return Err(Failure::Usage(format!(
            "--spans: the rule {} decides by itself what it follows; omit --spans, or use --rule last",
            args.rule.name()
        )));
    }
    // With `--trace`, only a page has tables, and those show all rows.
    let is_drawn = args.trace.is_some() && !args.json;
    let passed_over = [("--by", args.by.is_some() && args.html.is_none()), ("--top", args.top.is_some())];
    match passed_over.into_iter().find(|&(_, given)| given && is_drawn) {
        Some((option, _)) => Err(Failure::Usage(format!(
            "{option} has no effect with --trace, which draws one trace instead of the table; omit one of them, or add \
             --json"
        ))),
        None => Ok(()),
    }
}

/// The other recording's profile.
fn compared(args: &CriticalPath, other: &Path, stop: Stop<'_>) -> Result<(Input, Profile), Failure> {
    let source = Source { paths: vec![other.to_owned()], ..args.source.clone() };
    let Loaded { recording, input } = load::load_keeping(&source, keep(args), stop)?;
    let mut profiler = profiler(args, &recording);
    let clocks = shifts::estimate(&recording, &mut stop.pulse()).ok_or(Failure::Interrupted)?;
    let (mut analyser, mut pulse) = (Analyser::new(method(args)).with_shifts(clocks.proven), stop.pulse());
    let root = args.root.as_ref().map(|name| recording.names().find(name));
    for trace in
        recording.traces().filter(|trace| root.is_none_or(|root| root == Some(trace.root().name_symbol())))
    {
        let weight = if args.weights { weight::adjusted_count(&recording, trace) } else { Some(1.0) };
        let traced = analyser.trace_unless_stopped(&recording, trace, &mut pulse);
        profiler.add(&traced.ok_or(Failure::Interrupted)?, weight);
    }
    let profile = profiler.finish(&args.percentiles);
    refuse_weightless(&profile, &format!("--compare: all traces of {}", output::shown(other)))?;
    Ok((input, profile))
}

/// Refuses traces whose weights are all 0, because they have no mean. This only happens with
/// `--weights`.
fn refuse_weightless(profile: &Profile, traces: &str) -> Result<(), Failure> {
    if profile.traces > 0 && profile.weight == 0.0 {
        return Err(Failure::Job(format!(
            "{traces} were kept by late policies and have weight 0; omit --weights"
        )));
    }
    Ok(())
}

/// Parses "NAME=FACTOR"; the name itself may contain "=".
fn speedup(text: &str) -> Result<(String, f64), String> {
    let wrong = || {
        format!(
            "invalid speedup '{}': use NAME=FACTOR with a factor of 0 to 1,000,000, as in read=0.5",
            escaped(text)
        )
    };
    let (name, factor) = text.rsplit_once('=').ok_or_else(wrong)?;
    let factor = factor.trim().parse::<f64>().ok().filter(|factor| *factor >= 0.0 && *factor <= FACTOR_MAX);
    Ok((name.to_owned(), factor.ok_or_else(wrong)?))
}

/// A larger factor is a typing error, and would make sums of lengths infinite.
const FACTOR_MAX: f64 = 1e6;

fn percentile(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| format!("invalid percentile '{}': use a number from 0 to 100", escaped(text)))
}

pub(super) fn trace_id(text: &str) -> Result<TraceId, String> {
    TraceId::from_hex(text)
        .ok_or_else(|| format!("invalid trace id '{}': use up to 32 hexadecimal digits", escaped(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speedups_name_a_function_and_a_factor() {
        assert_eq!(speedup("read=0.5"), Ok(("read".to_owned(), 0.5)));
        assert_eq!(speedup("GET /?a=b=2"), Ok(("GET /?a=b".to_owned(), 2.0)));
        assert_eq!(speedup("=0"), Ok((String::new(), 0.0)));
        for wrong in ["", "read", "read=", "read=-1", "read=nan", "read=inf", "read=1e300"] {
            assert!(speedup(wrong).is_err(), "{wrong}");
        }
    }
}
