//! Which traces are good, and which are bad.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use astracer_compare::choice::ChosenBy;
use astracer_compare::instances::Class;
use astracer_compare::traces::Chosen;
use astracer_model::TraceId;
use astracer_model::span::Status;
use astracer_recording::recording::{Keep, Kept, Recording, SpanView, TraceView};
use astracer_recording::weight;
use astracer_tuner::Stop;
use clap::Args as ClapArgs;

use super::Compare;
use super::nearest;
use super::rule::Rule;
use super::when::{self, Window};
use crate::bounded::read_input;
use crate::failure::Failure;
use crate::load::{self, Loaded};
use crate::output::{self, shown};
use crate::source::Source;
use crate::values;

/// The size of a list of five million ids, and more than any list needs.
const IDS_BYTES_MAX: u64 = 256 << 20;

/// Options that say which traces are bad.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Classes")]
pub(super) struct Classes {
    /// Traces whose root starts within this interval (UTC) are bad.
    #[arg(long, value_name = "TIME+DURATION", value_parser = when::window, group = "split")]
    pub(super) bad_time: Option<Window>,

    /// The slowest traces are bad: this share of all, by weight if traces have one.
    #[arg(long, value_name = "SHARE", value_parser = values::part, group = "split")]
    pub(super) bad_slowest: Option<f64>,

    /// Traces whose root takes longer are bad.
    #[arg(long, value_name = "DURATION", value_parser = when::length, group = "split")]
    pub(super) bad_above: Option<u64>,

    /// Traces with an error in any span are bad.
    #[arg(long, group = "split")]
    pub(super) bad_errors: bool,

    /// Traces with this attribute on any span or its resource are bad.
    #[arg(long, value_name = "KEY=VALUE", value_parser = when::attribute, group = "split")]
    pub(super) bad_where: Option<(String, String)>,

    /// The traces listed in this file are bad, one id per line.
    #[arg(long, value_name = "FILE", group = "split")]
    pub(super) bad_ids: Option<PathBuf>,

    /// Only the traces listed in this file are good [default: all that are not bad].
    #[arg(long, value_name = "FILE", requires = "split")]
    pub(super) good_ids: Option<PathBuf>,

    /// Only traces that start within this time of a bad one's start, or of --bad-time, are good.
    #[arg(long, value_name = "DURATION", value_parser = when::length)]
    pub(super) near: Option<u64>,

    /// Only traces whose root span has this name (with ids folded, as tables show it).
    #[arg(long, value_name = "NAME")]
    pub(super) root: Option<String>,

    /// Only traces with this attribute on any span or its resource.
    #[arg(long, value_name = "KEY=VALUE", value_parser = when::attribute)]
    pub(super) r#where: Option<(String, String)>,
}

impl Classes {
    /// True if the root's duration chooses bad traces.
    pub(super) fn is_by_duration(&self) -> bool {
        self.bad_slowest.is_some() || self.bad_above.is_some()
    }

    /// True if an option tells good from bad traces of the same recordings.
    pub(super) fn splits(&self) -> bool {
        self.bad_time.is_some()
            || self.bad_slowest.is_some()
            || self.bad_above.is_some()
            || self.bad_errors
            || self.bad_where.is_some()
            || self.bad_ids.is_some()
    }

    /// The rule that tells bad from good traces.
    pub(super) fn chosen_by(&self) -> ChosenBy {
        match &self.bad_where {
            Some((key, value)) => ChosenBy::Attribute(format!("{key}={value}")),
            None if self.bad_errors => ChosenBy::Errors,
            None if self.is_by_duration() => ChosenBy::Duration,
            None => ChosenBy::Others,
        }
    }

    /// The time of bad traces, nanoseconds since the epoch, if they are chosen by time.
    pub(super) fn window(&self) -> Option<Range<u64>> {
        self.bad_time.map(|window| window.from..window.to)
    }

    /// True if any option chooses traces.
    pub(super) fn is_given(&self) -> bool {
        self.splits() || self.near.is_some() || self.root.is_some() || self.r#where.is_some()
    }

    /// Refuses options that contradict each other.
    pub(super) fn check(&self, by_run: bool, paths: usize, explains: bool) -> Result<(), Failure> {
        let wrong = if by_run && self.splits() {
            "--good and --bad name the classes already; omit them, or the --bad-... option"
        } else if !by_run && !self.splits() && !explains && paths > 2 {
            "more than two recordings: name them with --good and --bad, or split their traces with a --bad-... option"
        } else {
            return Ok(());
        };
        Err(Failure::Usage(wrong.to_owned()))
    }
}

/// A recording and the class of all its traces, if it has one.
pub(super) struct Run {
    pub(super) loaded: Loaded,
    pub(super) class: Option<Class>,
    pub(super) path: PathBuf,
}

/// Reads the recordings: each its own run, or all together if their traces are split.
pub(super) fn load(args: &Compare, stop: Stop<'_>) -> Result<Vec<Run>, Failure> {
    let by_class: Vec<(Vec<PathBuf>, Option<Class>)> = if !args.good.is_empty() {
        let of = |paths: &[PathBuf], class| -> Vec<_> {
            paths.iter().map(|path| (vec![path.clone()], Some(class))).collect()
        };
        [of(&args.good, Class::Good), of(&args.bad, Class::Bad)].concat()
    } else if args.classes.splits() || args.explain.is_some() {
        vec![(args.paths.clone(), None)]
    } else if let [good, bad] = &args.paths[..] {
        vec![(vec![good.clone()], Some(Class::Good)), (vec![bad.clone()], Some(Class::Bad))]
    } else {
        return Err(Failure::Usage(
            "one recording: give a GOOD and a BAD one, or split its traces with a --bad-... option such as --bad-slowest 1%"
                .to_owned(),
        ));
    };
    let keep = Keep {
        contents: !args.paper || args.classes.bad_where.is_some() || args.classes.r#where.is_some(),
        labels: args.key.iter().flat_map(|key| key.attributes().map(str::to_owned)).collect(),
        own_labels: vec![weight::ADJUSTED_COUNT.to_owned()],
        trace_states: true,
        logs: true,
        log_groups: args.instance.as_ref().and_then(Rule::groups),
        ..Keep::default()
    };
    let read = |(paths, class): (Vec<PathBuf>, Option<Class>)| {
        let path = paths[0].clone();
        let source = Source { paths, reading: args.reading.clone(), naming: args.naming.clone() };
        Ok(Run { loaded: load::load_with_logs(&source, keep.clone(), &args.logs, stop)?, class, path })
    };
    by_class.into_iter().map(read).collect()
}

/// The traces of both classes.
pub(super) fn choose<'r>(args: &Compare, runs: &'r [Run]) -> Result<Vec<Chosen<'r>>, Failure> {
    let options = &args.classes;
    let mut chosen: Vec<Chosen<'r>> = Vec::new();
    for (number, run) in (0..).zip(runs) {
        let recording = &run.loaded.recording;
        let wanted = |trace: &TraceView<'_>| {
            options.root.as_ref().is_none_or(|root| trace.root().name() == root)
                && options.r#where.as_ref().is_none_or(|pair| has(recording, *trace, pair))
        };
        let traces = recording.traces().filter(wanted);
        let one = |(trace, class)| Chosen { recording, trace, class, run: number };
        match run.class {
            Some(class) => chosen.extend(traces.map(|trace| (trace, class)).map(one)),
            None => chosen.extend(split(options, recording, traces.collect())?.into_iter().map(one)),
        }
    }
    let has = |class| chosen.iter().any(|one| one.class == class);
    let recordings: Vec<&Recording> = runs.iter().map(|run| &run.loaded.recording).collect();
    match (&options.root, &options.r#where, &options.bad_where) {
        (Some(root), ..) if chosen.is_empty() => return Err(nearest::no_root(root, &recordings)),
        (_, Some((key, value)), _) if chosen.is_empty() => {
            return Err(nearest::no_attribute(key, value, &recordings));
        }
        (.., Some((key, value))) if !has(Class::Bad) => {
            return Err(nearest::no_attribute(key, value, &recordings));
        }
        _ => {}
    }
    refuse_both(&chosen)?;
    if let Some(near) = options.near {
        let bad = of_class(&chosen, Class::Bad).map(|one| one.trace.root().start().0).collect();
        let distance = distance(options, bad);
        chosen.retain(|one| one.class == Class::Bad || distance(one.trace.root().start().0) <= near);
    }
    if !args.assume_runs {
        let good = of_class(&chosen, Class::Good).map(|one| (one.run, one.trace.root().start().0));
        refuse_touching(good, runs)?;
    }
    Ok(chosen)
}

/// The distance of a time from `--bad-time`, or else from the nearest of these starts.
pub(super) fn distance(options: &Classes, mut bad: Vec<u64>) -> impl Fn(u64) -> u64 {
    bad.sort_unstable();
    let window = options.bad_time;
    move |time| match window {
        Some(window) => window.distance(time),
        None => {
            let after = bad.partition_point(|&bad| bad < time);
            let near = [after.checked_sub(1), Some(after)].into_iter().flatten();
            near.filter_map(|at| bad.get(at)).map(|bad| bad.abs_diff(time)).min().unwrap_or(u64::MAX)
        }
    }
}

fn of_class<'c, 'r>(chosen: &'c [Chosen<'r>], class: Class) -> impl Iterator<Item = &'c Chosen<'r>> {
    chosen.iter().filter(move |one| one.class == class)
}

fn split<'r>(
    options: &Classes,
    recording: &Recording,
    traces: Vec<TraceView<'r>>,
) -> Result<Vec<(TraceView<'r>, Class)>, Failure> {
    let listed = options.bad_ids.as_deref().map(ids).transpose()?;
    let good = options.good_ids.as_deref().map(ids).transpose()?;
    if let (Some(bad), Some(good)) = (&listed, &good)
        && let Some(both) = good.iter().filter(|id| bad.contains(id)).min()
    {
        return Err(in_both(*both, "list it in one of --good-ids and --bad-ids"));
    }
    let weight = |trace: &TraceView<'_>| {
        weight::adjusted_count(recording, *trace).filter(|weight| *weight > 0.0 && weight.is_finite())
    };
    // If some weights are unknown, each trace counts once in the comparison, too.
    let is_weighted = traces.iter().all(|trace| weight(trace).is_some());
    let lengths = || {
        let weighed = |trace| weight(trace).filter(|_| is_weighted).unwrap_or(1.0);
        traces.iter().map(move |trace| (trace.root().duration_ns(), weighed(trace)))
    };
    let slowest = options.bad_slowest.map(|share| slowest(share, lengths().collect()));
    let is_bad = |trace: TraceView<'_>| {
        let root = trace.root();
        options.bad_time.is_some_and(|window| window.contains(root.start().0))
            || slowest.is_some_and(|least| root.duration_ns() >= least)
            || options.bad_above.is_some_and(|limit| root.duration_ns() > limit)
            || options.bad_errors && trace.spans().any(|span| span.status() == Status::Error)
            || options.bad_where.as_ref().is_some_and(|pair| has(recording, trace, pair))
            || listed.as_ref().is_some_and(|ids| ids.contains(&trace.id()))
    };
    let mut classes = Vec::new();
    for trace in traces {
        let is_good = good.as_ref().map(|ids| ids.contains(&trace.id()));
        match (is_bad(trace), is_good) {
            (true, Some(true)) => {
                return Err(in_both(trace.id(), "remove it from --good-ids, or narrow the bad class"));
            }
            (true, _) => classes.push((trace, Class::Bad)),
            (false, None | Some(true)) => classes.push((trace, Class::Good)),
            (false, Some(false)) => {}
        }
    }
    Ok(classes)
}

fn in_both(id: TraceId, remedy: &str) -> Failure {
    Failure::Job(format!("the trace {} is in both classes; {remedy}", load::trace_id(id)))
}

/// Refuses a trace that is in recordings of both classes.
fn refuse_both(chosen: &[Chosen<'_>]) -> Result<(), Failure> {
    let good: HashSet<TraceId> = of_class(chosen, Class::Good).map(|one| one.trace.id()).collect();
    let both = of_class(chosen, Class::Bad).map(|one| one.trace.id()).filter(|id| good.contains(id)).min();
    both.map_or(Ok(()), |id| Err(in_both(id, "are the recordings copies of each other?")))
}

/// Refuses good runs whose times touch: halves of one run differ less than two runs do, so they
/// would confirm differences falsely. `good` has the run and the start of each good instance.
pub(super) fn refuse_touching(good: impl Iterator<Item = (u32, u64)>, runs: &[Run]) -> Result<(), Failure> {
    let mut starts: HashMap<u32, Vec<u64>> = HashMap::new();
    for (run, start) in good {
        starts.entry(run).or_default().push(start);
    }
    let mut extents: Vec<(u64, u64, u64, u32)> = Vec::new();
    for (run, mut starts) in starts {
        starts.sort_unstable();
        let pause = starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        if let (Some(&first), Some(&last)) = (starts.first(), starts.last()) {
            extents.push((first, last, pause, run));
        }
    }
    extents.sort_unstable();
    for pair in extents.windows(2) {
        let [(_, end, before, one), (start, _, after, other)] = pair else { continue };
        // Two parts of one run are as far apart as its requests.
        if start.saturating_sub(*end) <= 2 * before.max(after) {
            let path = |run: u32| runs.get(run as usize).map_or_else(String::new, |run| shown(&run.path));
            return Err(Failure::Job(format!(
                "the good recordings {} and {} touch in time, so they may be parts of one run, which confirm \
                 differences falsely; record separate runs, or say --assume-runs",
                path(*one),
                path(*other)
            )));
        }
    }
    Ok(())
}

/// Reads a file with a list of ids.
pub(super) fn listed(path: &Path) -> Result<String, Failure> {
    let failed = |error: String| Failure::Job(format!("{}: {error}", shown(path)));
    let read = read_input(path, IDS_BYTES_MAX).map_err(|error| failed(error.to_string()))?;
    let bytes = read.ok_or_else(|| failed("more than 256 MB; write one id per line".to_owned()))?;
    String::from_utf8(bytes).map_err(|_| failed("not UTF-8 text; write one id per line".to_owned()))
}

/// Reads a list of ids: the first word of each line.
fn ids(path: &Path) -> Result<HashSet<TraceId>, Failure> {
    let text = listed(path)?;
    let mut ids = HashSet::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(word) = line.split_whitespace().next() else { continue };
        let id = TraceId::from_hex(word).ok_or_else(|| {
            let word = output::brief(word);
            Failure::Job(format!(
                "{}:{number}: '{word}' is not a trace id; write one id per line",
                shown(path)
            ))
        })?;
        ids.insert(id);
    }
    Ok(ids)
}

/// True if any span of the trace, or its resource, has this attribute.
fn has(recording: &Recording, trace: TraceView<'_>, (key, wanted): &(String, String)) -> bool {
    let texts = recording.content_texts();
    let Some(key) = texts.find(key) else { return false };
    let equal = |value: Kept| match value {
        Kept::Text(text) => texts.name(text) == wanted,
        Kept::Bool(value) => wanted.parse() == Ok(value),
        Kept::Int(value) => wanted.parse() == Ok(value),
        Kept::Double(value) => wanted.parse() == Ok(value),
        Kept::Other => false,
    };
    let has = |span: SpanView<'_>| {
        span.content().is_some_and(|content| {
            let mut all = content.attributes.iter().chain(content.resource_attributes);
            all.any(|&(own, value)| own == key && equal(value))
        })
    };
    trace.spans().any(has)
}

/// The least length of the slowest instances, which are this share of all by weight: one at least.
/// `instances` are pairs of length and weight.
pub(super) fn slowest(share: f64, mut instances: Vec<(u64, f64)>) -> u64 {
    instances.sort_unstable_by_key(|&(length, _)| std::cmp::Reverse(length));
    let wanted = share * instances.iter().map(|(_, weight)| weight).sum::<f64>();
    let mut before = 0.0;
    let is_bad = |&(_, weight): &(u64, f64)| {
        // More than half of it is within the share: the number is rounded.
        let is_bad = before + weight / 2.0 <= wanted;
        before += weight;
        is_bad
    };
    let bad = instances.iter().copied().take_while(is_bad).count().max(1);
    instances.get(bad - 1).map_or(u64::MAX, |&(length, _)| length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By weight there are 100 traces. The slowest 3 % are three of weight 1; 10 % are those and
    /// most of the seven that one of weight 7 stands for. By number, 10 % would be a single one.
    #[test]
    fn the_slowest_share_is_by_weight() {
        let mut all: Vec<(u64, f64)> = (0..9).map(|ns| (ns, 10.0)).collect();
        all.extend([(101, 1.0), (50, 7.0), (100, 1.0), (102, 1.0)]);
        assert_eq!(slowest(0.03, all.clone()), 100);
        assert_eq!(slowest(0.1, all.clone()), 50);
        assert_eq!(slowest(0.001, all), 102, "one at least");
        let equal = |n: u64| (0..n).map(|ns| (ns, 1.0)).collect();
        assert_eq!([slowest(0.01, equal(149)), slowest(0.01, equal(150))], [148, 148]);
        assert_eq!(slowest(0.5, equal(0)), u64::MAX);
    }
}
