//! Instances from logs alone: the records of a file, of a stretch of time, or of one id.
//!
//! | variable | kind | time, value |
//! |---|---|---|
//! | `log logger#line` or `log logger message` | event | a log record, by its statement or template |
//! | its name with `[1]`, or a key | state | a log record, a number that it states |
//!
//! A service precedes the name if the record states one, or if files of that name are in both
//! classes. Times are ms since the instance's first record, or since the start of its stretch.

use std::collections::{BTreeMap, HashMap, HashSet};

use astracer_model::log::Severity;
use astracer_model::time::UnixNanos;
use astracer_recording::recording::{LogView, Recording};
use astracer_recording::stop::Pulse;

use super::instances::{Class, Head, Observed, Source, Variables};
use super::templates::Templates;
use super::traces::{NO_SYMBOL, labelled};
use super::writer::{About, Writer};

/// The most stretches of time of a recording. A longer one needs longer stretches.
pub const STRETCHES_MAX: u64 = 1_000_000;

/// The parts into which logs are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Each file is an instance.
    Files,
    /// Stretches of this many nanoseconds; those in which nothing was logged count, too. One begins
    /// at `anchor`, or at the first record if that is `None`.
    Time {
        /// The length of a stretch, in nanoseconds; above 0.
        length: u64,
        /// The start of one of them, nanoseconds since the epoch.
        anchor: Option<u64>,
    },
    /// The groups of [`LogView::groups`].
    Groups,
}

/// The metric that is to be explained, P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMetric {
    /// The time from the first to the last record, ms.
    Duration,
    /// The number of records.
    Records,
    /// The number of records with severity error or above.
    Errors,
}

/// The logs of one run.
#[derive(Clone, Copy, Debug)]
pub struct LogRun<'r> {
    /// The recording with the records.
    pub recording: &'r Recording,
    /// The class of all its instances; `None` until they are chosen one by one.
    pub class: Option<Class>,
}

/// A piece of a log, before its class is known.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Piece {
    /// Its name: the file, the start of the stretch, or the id.
    pub id: String,
    /// The number of its run.
    pub run: u32,
    /// The time of its first record, or the start of its stretch; nanoseconds since the epoch.
    pub start_ns: u64,
    /// The length: to the last record, or of the stretch.
    pub length_ns: u64,
    /// The number of records with severity error or above.
    pub errors: u64,
    /// The places of its records among those of the run, by time.
    records: Vec<u32>,
}

/// The pieces of logs, and the records that are in none.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Pieces {
    /// The pieces, by run, start and name.
    pub all: Vec<Piece>,
    /// Records without a time.
    pub untimed: u64,
    /// Records that belong to no group.
    pub ungrouped: u64,
    /// Records of a last stretch that is incomplete.
    pub in_rest: u64,
}

/// Cuts logs into pieces. `name` writes the time at which a stretch starts.
///
/// # Errors
///
/// If a recording has more than [`STRETCHES_MAX`] stretches.
pub fn cut(runs: &[LogRun<'_>], cut: Cut, name: impl Fn(u64) -> String) -> Result<Pieces, String> {
    let mut pieces = Pieces::default();
    for (run, LogRun { recording, .. }) in (0u32..).zip(runs) {
        let logs: Vec<LogView<'_>> = recording.logs().collect();
        let mut timed: Vec<(u64, u32)> = Vec::new();
        for (at, log) in (0u32..).zip(&logs) {
            match log.time() {
                Some(time) => timed.push((time.0, at)),
                None => pieces.untimed += 1,
            }
        }
        timed.sort_unstable();
        match cut {
            Cut::Files => {
                let mut of: BTreeMap<&str, Vec<(u64, u32)>> = BTreeMap::new();
                for &(time, at) in &timed {
                    of.entry(logs[at as usize].file()).or_default().push((time, at));
                }
                pieces.all.extend(of.into_iter().map(|(file, of)| Piece::of(file, run, &of, &logs)));
            }
            Cut::Groups => {
                let mut of: BTreeMap<&str, Vec<(u64, u32)>> = BTreeMap::new();
                for &(time, at) in &timed {
                    let groups = logs[at as usize].groups();
                    pieces.ungrouped += u64::from(groups.is_empty());
                    for &group in groups {
                        of.entry(recording.log_groups().name(group)).or_default().push((time, at));
                    }
                }
                pieces.all.extend(of.into_iter().map(|(id, of)| Piece::of(id, run, &of, &logs)));
            }
            Cut::Time { length, anchor } => {
                let Some((&(first, _), &(last, _))) = timed.first().zip(timed.last()) else { continue };
                let start = match anchor {
                    // The latest start at or before the first record.
                    Some(anchor) if anchor <= first => first - (first - anchor) % length,
                    Some(anchor) => anchor - (anchor - first).div_ceil(length) * length,
                    None => first,
                };
                let whole = (last - start) / length;
                if whole > STRETCHES_MAX {
                    return Err(format!(
                        "more than {STRETCHES_MAX} stretches of time; choose longer ones with --instance time:LENGTH"
                    ));
                }
                let mut rest = &timed[..];
                // The last stretch is cut off by the end of the log, unless it is the only one.
                for number in 0..whole.max(1) {
                    let from = start + number * length;
                    let end = rest.partition_point(|&(time, _)| time < from.saturating_add(length));
                    let (own, behind) = rest.split_at(end);
                    rest = behind;
                    let records = own.iter().map(|&(_, at)| at).collect();
                    let errors = errors(own, &logs);
                    let id = name(from);
                    pieces.all.push(Piece { id, run, start_ns: from, length_ns: length, errors, records });
                }
                pieces.in_rest += rest.len() as u64;
            }
        }
    }
    pieces.all.sort_by(|a, b| (a.run, a.start_ns, &a.id).cmp(&(b.run, b.start_ns, &b.id)));
    Ok(pieces)
}

fn errors(records: &[(u64, u32)], logs: &[LogView<'_>]) -> u64 {
    records.iter().filter(|&&(_, at)| logs[at as usize].severity() >= Severity::ERROR).count() as u64
}

impl Piece {
    fn of(id: &str, run: u32, records: &[(u64, u32)], logs: &[LogView<'_>]) -> Self {
        let (first, last) = (records[0].0, records[records.len() - 1].0);
        Self {
            id: id.to_owned(),
            run,
            start_ns: first,
            length_ns: last - first,
            errors: errors(records, logs),
            records: records.iter().map(|&(_, at)| at).collect(),
        }
    }
}

/// Instances of pieces of logs.
#[derive(Debug)]
pub struct Logs<'r> {
    logs: Vec<Vec<LogView<'r>>>,
    runs: &'r [LogRun<'r>],
    pieces: Vec<Piece>,
    heads: Vec<Head>,
    types: [String; 1],
    templates: Templates,
    /// Names of files that precede the names of variables.
    shown_files: HashSet<&'r str>,
    ignore: &'r [String],
}

impl<'r> Logs<'r> {
    /// Makes instances of pieces with their classes. Variables whose names contain one of `ignore`
    /// are left out. `None` if `pulse` stopped the work.
    pub fn new(
        runs: &'r [LogRun<'r>],
        chosen: Vec<(Piece, Class)>,
        by_file: bool,
        metric: LogMetric,
        ignore: &'r [String],
        pulse: &mut Pulse<'_>,
    ) -> Option<Self> {
        let head = |(piece, class): &(Piece, Class)| Head {
            id: piece.id.clone(),
            class: *class,
            run: piece.run,
            stratum: 0,
            weight: Some(1.0),
            length_ms: piece.length_ns as f64 / 1e6,
            metric: match metric {
                LogMetric::Duration => piece.length_ns as f64 / 1e6,
                LogMetric::Records => piece.records.len() as f64,
                LogMetric::Errors => piece.errors as f64,
            },
            start_ns: piece.start_ns,
        };
        let heads = chosen.iter().map(head).collect();
        let logs: Vec<Vec<LogView<'r>>> = runs.iter().map(|run| run.recording.logs().collect()).collect();
        let shown_files = if by_file { HashSet::new() } else { in_both(&logs, &chosen) };
        if pulse.stopped() {
            return None;
        }
        Some(Self {
            templates: Templates::new(runs.iter().map(|run| run.recording)),
            logs,
            runs,
            pieces: chosen.into_iter().map(|(piece, _)| piece).collect(),
            heads,
            types: [String::new()],
            shown_files,
            ignore,
        })
    }

    /// The service that precedes the names of a record's variables; empty if none does.
    fn service(&self, log: LogView<'r>) -> &'r str {
        let service = log.service();
        if log.is_named_by_file() && !self.shown_files.contains(service) { "" } else { service }
    }
}

/// The names of files that are in both classes, so that they name a part of the system.
fn in_both<'r>(logs: &[Vec<LogView<'r>>], chosen: &[(Piece, Class)]) -> HashSet<&'r str> {
    let mut classes: HashMap<&'r str, [bool; 2]> = HashMap::new();
    for (piece, class) in chosen {
        for &at in &piece.records {
            let log = logs[piece.run as usize][at as usize];
            if log.is_named_by_file() {
                classes.entry(log.service()).or_default()[class.index()] = true;
            }
        }
    }
    let several = classes.len() > 1;
    classes.into_iter().filter(|(_, of)| several && *of == [true; 2]).map(|(name, _)| name).collect()
}

impl Source for Logs<'_> {
    fn heads(&self) -> &[Head] {
        &self.heads
    }

    fn types(&self) -> &[String] {
        &self.types
    }

    fn observe(&self, at: usize, variables: &mut Variables, observed: &mut Observed) {
        let piece = &self.pieces[at];
        let names = self.runs[piece.run as usize].recording.log_names();
        let zero = UnixNanos(piece.start_ns);
        let mut writer = Writer { ignore: self.ignore, run: piece.run, zero, variables, observed };
        for &at in &piece.records {
            let log = self.logs[piece.run as usize][at as usize];
            let Some(time) = log.time() else { continue };
            let service = self.service(log);
            // Some records may state a service that is the name of others' file.
            let of = if service.is_empty() { NO_SYMBOL } else { log.service_symbol() };
            let symbols = |more| Some([of, log.event_symbol(), more]);
            let event = || self.templates.name(log.event());
            writer.event(About::Log, symbols(NO_SYMBOL), time, || labelled(service, event()));
            for &(number, value) in log.values() {
                writer.state(About::LogNumber, symbols(number), time, value, || {
                    let suffix = names.name(number).get(log.event().len()..).unwrap_or_default();
                    labelled(service, &format!("{}{suffix}", event()))
                });
            }
        }
    }
}
