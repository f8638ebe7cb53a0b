//! Comparison of logs alone: the instances are files, stretches of time, or the records of an id.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use astracer_compare::instances::Class;
use astracer_compare::logs::{Cut, LogMetric, LogRun, Logs, Piece, Pieces, cut};
use astracer_compare::traces::Metric;
use astracer_recording::stop::Pulse;

use super::Compare;
use super::classes::{Classes, Run, listed};
use super::rule::Rule;
use crate::failure::Failure;
use crate::load::utc;
use crate::output::{escaped, plural, shown};

/// Stretches of time in the shorter class if `--instance` does not choose them.
const STRETCHES: u64 = 30;
/// Files in each class with which each file is an instance if `--instance` does not say.
const FILES_MIN: usize = 4;
/// Records in each class with which stretches of time are instances.
const RECORDS_MIN: usize = 40;
/// Lengths of stretches that people choose, in nanoseconds.
const LENGTHS: &[u64] = &[
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    120_000_000_000,
    300_000_000_000,
    600_000_000_000,
    1_800_000_000_000,
    3_600_000_000_000,
    21_600_000_000_000,
    86_400_000_000_000,
];

/// True if the command compares logs only: with `--instance`, or if no recording has traces.
pub(super) fn are_compared(args: &Compare, runs: &[Run]) -> Result<bool, Failure> {
    let traceless = runs.iter().filter(|run| run.loaded.recording.trace_count() == 0).count();
    if args.instance.is_none() && traceless == 0 {
        return Ok(false);
    }
    if args.instance.is_none() && traceless < runs.len() {
        let path = |is_traceless: bool| {
            let run = runs.iter().find(|run| (run.loaded.recording.trace_count() == 0) == is_traceless);
            run.map_or_else(String::new, |run| shown(&run.path))
        };
        return Err(Failure::Job(format!(
            "{} has logs alone and {} has traces; --instance compares the logs of both",
            path(true),
            path(false)
        )));
    }
    match runs.iter().find(|run| run.loaded.recording.logs().len() == 0) {
        Some(run) => Err(Failure::Job(format!("no log records in {}", shown(&run.path)))),
        None => refuse_options(args).map(|()| true),
    }
}

/// Refuses options about traces.
fn refuse_options(args: &Compare) -> Result<(), Failure> {
    let option = match () {
        () if args.key.is_some() => "--key",
        () if args.classes.root.is_some() => "--root",
        () if args.classes.r#where.is_some() => "--where",
        () if args.classes.bad_where.is_some() => "--bad-where",
        () if matches!(args.metric, Metric::Attribute(_) | Metric::Operation(_)) => {
            return Err(Failure::Usage(
                "the metric of logs alone is duration (or the number of records in stretches of time) or errors"
                    .to_owned(),
            ));
        }
        () => return Ok(()),
    };
    Err(Failure::Usage(format!("{option} is about traces, and logs alone are compared; omit it")))
}

/// The instances of both classes, and the way in which logs were cut.
pub(super) struct Chosen<'r> {
    pub(super) logs: Logs<'r>,
    /// The plural of an instance's name.
    pub(super) noun: &'static str,
    /// The metric's name and unit.
    pub(super) metric: &'static str,
    /// Lines about the cut.
    pub(super) notes: Vec<String>,
}

/// The runs as the comparison takes them.
pub(super) fn runs(runs: &[Run]) -> Vec<LogRun<'_>> {
    runs.iter().map(|run| LogRun { recording: &run.loaded.recording, class: run.class }).collect()
}

/// Cuts the logs of these runs into instances, and chooses their classes.
pub(super) fn choose<'r>(
    args: &'r Compare,
    loaded: &[Run],
    runs: &'r [LogRun<'r>],
    pulse: &mut Pulse<'_>,
) -> Result<Chosen<'r>, Failure> {
    let rule = match &args.instance {
        Some(rule) => rule.clone(),
        None => default_rule(args, runs)?,
    };
    let (how, noun) = match &rule {
        Rule::File => (Cut::Files, "files"),
        Rule::Time(length) => {
            let anchor = args.classes.window().map(|window| window.start);
            (Cut::Time { length: *length, anchor }, "stretches of time")
        }
        Rule::Attribute(_) | Rule::Pattern(_) => (Cut::Groups, "instances"),
    };
    let mut pieces = cut(runs, how, utc).map_err(Failure::Job)?;
    if pieces.all.is_empty() {
        return Err(Failure::Job(match &rule {
            Rule::Attribute(key) => format!(
                "no log record has the attribute '{}'; `astracer order --merged --json` shows attributes",
                escaped(key)
            ),
            Rule::Pattern(pattern) => format!("no log record matches /{}/", escaped(pattern.as_str())),
            Rule::File | Rule::Time(_) => "no log record states a time".to_owned(),
        }));
    }
    let notes = notes(args, &rule, &pieces);
    let all = std::mem::take(&mut pieces.all);
    let mut chosen = classes(&args.classes, runs, all)?;
    near(&args.classes, &mut chosen);
    if how == Cut::Groups {
        refuse_both(&chosen)?;
    }
    if !args.assume_runs {
        let starts = chosen.iter().filter(|(_, class)| *class == Class::Good);
        super::classes::refuse_touching(starts.map(|(piece, _)| (piece.run, piece.start_ns)), loaded)?;
    }
    let (metric, named) = match (&args.metric, how) {
        (Metric::Errors, _) => (LogMetric::Errors, "log records with errors"),
        (_, Cut::Time { .. }) => (LogMetric::Records, "log records"),
        _ => (LogMetric::Duration, "first to last record, ms"),
    };
    let logs = Logs::new(runs, chosen, how == Cut::Files, metric, &args.ignore, pulse);
    Ok(Chosen { logs: logs.ok_or(Failure::Interrupted)?, noun, metric: named, notes })
}

/// The rule if `--instance` states none.
fn default_rule(args: &Compare, runs: &[LogRun<'_>]) -> Result<Rule, Failure> {
    if let Some(Range { start, end }) = args.classes.window() {
        return Ok(Rule::Time(nice((end - start) / 10)));
    }
    if args.classes.splits() {
        return Err(Failure::Usage(
            "logs alone: say with --instance which records are one instance: file, time:60s, an attribute's \
             key such as request_id, or /REGEX/"
                .to_owned(),
        ));
    }
    let of = |class| runs.iter().filter(move |run| run.class == Some(class));
    let files = |class| of(class).map(|run| run.recording.log_files().len()).sum::<usize>();
    let records = |class| of(class).map(|run| run.recording.logs().len()).sum::<usize>();
    let least = |count: &dyn Fn(Class) -> usize| count(Class::Good).min(count(Class::Bad));
    if least(&files) >= FILES_MIN || least(&records) < RECORDS_MIN {
        return Ok(Rule::File);
    }
    let length = |run: &LogRun<'_>| {
        let times = || run.recording.logs().filter_map(|log| log.time()).map(|time| time.0);
        times().min().zip(times().max()).map_or(0, |(first, last)| last - first)
    };
    let shorter = [Class::Good, Class::Bad].map(|class| of(class).map(length).sum::<u64>()).into_iter().min();
    Ok(Rule::Time(nice(shorter.unwrap_or(0) / STRETCHES)))
}

/// The longest usual length up to this one, in nanoseconds.
fn nice(length: u64) -> u64 {
    LENGTHS.iter().copied().rfind(|&own| own <= length).unwrap_or(LENGTHS[0])
}

fn notes(args: &Compare, rule: &Rule, pieces: &Pieces) -> Vec<String> {
    let mut notes = Vec::new();
    if args.instance.is_none() {
        let (each, others) = match rule {
            Rule::Time(length) => {
                let length = humantime::format_duration(Duration::from_nanos(*length));
                (format!("{length} of a log"), "time:60s, file,")
            }
            _ => ("a file".to_owned(), "time:60s,"),
        };
        notes.push(format!(
            "logs alone: an instance is {each}; --instance chooses {others} an attribute or /REGEX/"
        ));
    }
    let mut left_out = |records: u64, reason: &str| {
        if records > 0 {
            notes.push(format!("left out: {} {reason}", plural(records, "log record")));
        }
    };
    left_out(pieces.untimed, "without a time");
    left_out(pieces.ungrouped, "that belong to no instance");
    left_out(pieces.in_rest, "of the last stretch of a log, which is incomplete");
    notes
}

/// The class of each piece; pieces of neither class are left out.
fn classes(
    options: &Classes,
    runs: &[LogRun<'_>],
    pieces: Vec<Piece>,
) -> Result<Vec<(Piece, Class)>, Failure> {
    let names = |path: &Option<std::path::PathBuf>| path.as_deref().map(ids).transpose();
    let (bad, good) = (names(&options.bad_ids)?, names(&options.good_ids)?);
    if let (Some(bad), Some(good)) = (&bad, &good)
        && let Some(both) = good.iter().filter(|id| bad.contains(*id)).min()
    {
        return Err(Failure::Job(format!(
            "'{}' is in both classes; list it in one of --good-ids and --bad-ids",
            escaped(both)
        )));
    }
    let lengths = || pieces.iter().map(|piece| (piece.length_ns, 1.0)).collect();
    let slowest = options.bad_slowest.map(|share| super::classes::slowest(share, lengths()));
    let is_bad = |piece: &Piece| {
        options.bad_time.is_some_and(|window| window.contains(piece.start_ns))
            || slowest.is_some_and(|least| piece.length_ns >= least)
            || options.bad_above.is_some_and(|limit| piece.length_ns > limit)
            || options.bad_errors && piece.errors > 0
            || bad.as_ref().is_some_and(|ids| ids.contains(&piece.id))
    };
    let class = |piece: &Piece| match runs[piece.run as usize].class {
        Some(class) => Some(class),
        None if is_bad(piece) => Some(Class::Bad),
        None => good.as_ref().is_none_or(|ids| ids.contains(&piece.id)).then_some(Class::Good),
    };
    Ok(pieces.into_iter().filter_map(|piece| class(&piece).map(|class| (piece, class))).collect())
}

/// Keeps the good pieces that `--near` asks for.
fn near(options: &Classes, chosen: &mut Vec<(Piece, Class)>) {
    let Some(near) = options.near else { return };
    let bad = chosen.iter().filter(|(_, class)| *class == Class::Bad).map(|(piece, _)| piece.start_ns);
    let distance = super::classes::distance(options, bad.collect());
    chosen.retain(|(piece, class)| *class == Class::Bad || distance(piece.start_ns) <= near);
}

/// Refuses an instance that is in both classes: the same id at the same time.
fn refuse_both(chosen: &[(Piece, Class)]) -> Result<(), Failure> {
    let of = |class| chosen.iter().filter(move |(_, own)| *own == class).map(|(piece, _)| piece);
    let good: HashSet<(&str, u64)> = of(Class::Good).map(|piece| (&*piece.id, piece.start_ns)).collect();
    match of(Class::Bad).find(|piece| good.contains(&(&*piece.id, piece.start_ns))) {
        None => Ok(()),
        Some(piece) => Err(Failure::Job(format!(
            "the instance '{}' is in both classes; are the logs copies of each other?",
            escaped(&piece.id)
        ))),
    }
}

/// Reads a list of ids: the first word of each line.
fn ids(path: &Path) -> Result<HashSet<String>, Failure> {
    Ok(listed(path)?.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_have_usual_lengths() {
        assert_eq!(
            [nice(7_000_000_000), nice(59_000_000_000), nice(0)],
            [5_000_000_000, 30_000_000_000, 1_000_000]
        );
    }
}
