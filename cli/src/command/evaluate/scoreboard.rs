//! `--scoreboard`: reads labelled faults, and prints the measures of published samplers.

use std::path::Path;
use std::time::{Instant, UNIX_EPOCH};

use astracer_model::UnixNanos;
use astracer_recording::recording::Recording;
use astracer_report::numbers::three;
use astracer_tuner::scoreboard::{Fault, Scoreboard, Scores, Whole};
use astracer_tuner::statistics::MeanSd;
use astracer_tuner::tail::{Outcomes, TailSummary};
use astracer_tuner::{Candidate, Draw, Evaluator, Stop};
use csv::{ReaderBuilder, Trim};
use serde::{Deserialize, Serialize};

use crate::bounded::read_input;
use crate::failure::Failure;
use crate::output::{self, measure};

/// A larger file of labels is refused.
const LABELS_MAX: u64 = 16 << 20;

/// A line of the file.
#[derive(Deserialize)]
struct Label {
    fault: String,
    from: String,
    to: String,
    service: String,
    #[serde(default)]
    operation: Option<String>,
}

/// Reads labelled faults: CSV with the columns fault, from, to, service and, if wanted, operation.
pub(super) fn read(path: &Path) -> Result<Vec<Fault>, Failure> {
    let failure = |error: String| {
        Failure::Job(format!("--scoreboard {}: {}", output::shown(path), output::escaped(&error)))
    };
    let text = read_input(path, LABELS_MAX);
    let text = text.map_err(|error| failure(error.to_string()))?;
    let text =
        text.ok_or_else(|| failure(format!("the file is larger than the limit of {LABELS_MAX} bytes")))?;
    parse(&text).map_err(failure)
}

fn parse(text: &[u8]) -> Result<Vec<Fault>, String> {
    let hint = "the columns are fault,from,to,service,operation (the last may be left out)";
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(text);
    let header = reader.headers().map_err(|error| error.to_string())?.clone();
    for column in ["fault", "from", "to", "service"] {
        if !header.iter().any(|name| name == column) {
            return Err(format!("line 1: no column '{column}'; {hint}"));
        }
    }
    let mut faults = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| format!("{error}; {hint}"))?;
        let line = record.position().map_or(0, |position| line(text, position.byte()));
        let label: Label = record.deserialize(Some(&header)).map_err(|error| format!("{error}; {hint}"))?;
        let time = |column: &str, text: &str| {
            time(text).ok_or_else(|| {
                format!("line {line}: {column} is '{text}'; use a time in UTC such as 2026-11-27T10:05:00Z")
            })
        };
        let (from, to) = (time("from", &label.from)?, time("to", &label.to)?);
        if from >= to {
            return Err(format!("line {line}: the fault '{}' ends before it begins", label.fault));
        }
        if label.service.is_empty() {
            return Err(format!("line {line}: the fault '{}' has no service", label.fault));
        }
        let operation = label.operation.filter(|operation| !operation.is_empty());
        faults.push(Fault { name: label.fault, from, to, service: label.service, operation });
    }
    if faults.is_empty() {
        return Err(format!("no line with a fault; {hint}"));
    }
    Ok(faults)
}

/// The number of the first line at or after this byte that is not empty. The reader's own number is
/// that of the first empty line before a record.
fn line(text: &[u8], byte: u64) -> usize {
    let at = usize::try_from(byte).unwrap_or(usize::MAX).min(text.len());
    let (before, rest) = text.split_at(at);
    let empty = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    1 + before.iter().chain(empty).filter(|&&byte| byte == b'\n').count()
}

fn time(text: &str) -> Option<UnixNanos> {
    let since = humantime::parse_rfc3339_weak(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok().map(UnixNanos)
}

/// Prepares the scoreboard, and warns of faults that no trace can show.
pub(super) fn prepare(
    recording: &Recording,
    faults: &[Fault],
    stop: Stop<'_>,
) -> Result<(Scoreboard, Option<String>), Failure> {
    let board = Scoreboard::new(recording, faults, stop).ok_or(Failure::Interrupted)?;
    let absent = &board.whole().faults_without_traces;
    let warning = absent.first().map(|first| {
        format!(
            "{} of {} without a trace of the service at fault during the fault, such as {}: they do not count; times are UTC",
            absent.len(),
            output::plural(faults.len() as u64, "fault"),
            output::escaped(first)
        )
    });
    Ok((board, warning))
}

/// The scoreboard of all samplers.
#[derive(Serialize)]
pub(super) struct Board {
    whole: Whole,
    /// The size that samplers should keep, as a share of the bytes.
    size: f64,
    rows: Vec<Row>,
}

/// One sampler, alone or with the policies at the end of traces.
#[derive(Serialize)]
struct Row {
    sampler: String,
    /// The key that it counts by, if that is one of `--baseline-keys`.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    with_policies: bool,
    mean: Scores,
    sd: Scores,
    /// The mean over the draws of |size - wanted size| / wanted size, by bytes.
    size_error: f64,
    /// Time of a whole replay divided by the number of traces, microseconds.
    replay_us_per_trace: f64,
}

/// Replays the samplers one at a time, because the time of a replay is one of the figures. Also
/// returns the results of the policies behind each sampler for which they are shown.
pub(super) fn replay(
    board: &Scoreboard,
    evaluator: &Evaluator<'_>,
    outcomes: Option<&Outcomes>,
    (samplers, draws, size): (&[Candidate], &[Draw], f64),
    stop: Stop<'_>,
) -> Result<(Board, Vec<TailSummary>), Failure> {
    let workload = evaluator.workload();
    let bytes = |kept: &[usize]| kept.iter().map(|&at| workload.arrivals()[at].bytes).sum::<u64>() as f64;
    let all_bytes = workload.arrivals().iter().map(|arrival| arrival.bytes).sum::<u64>().max(1) as f64;
    let (mut rows, mut summaries) = (Vec::new(), Vec::new());
    for sampler in samplers {
        let (mut alone, mut with_policies) = (Runs::default(), Runs::default());
        let (has_summary, mut runs) = (super::is_before_policies(sampler), Vec::new());
        for draw in draws {
            let started = Instant::now();
            let mut kept = evaluator.kept_arrivals(sampler, draw, stop).ok_or(Failure::Interrupted)?;
            let us = started.elapsed().as_secs_f64() * 1e6;
            alone.add(board, &kept, (bytes(&kept) / all_bytes, size), us);
            let is_cut = kept.len() < workload.arrivals().len();
            let Some(outcomes) = outcomes.filter(|_| is_cut || has_summary) else {
                continue;
            };
            let started = Instant::now();
            let late = outcomes.replay_behind(workload, &kept, draw, stop).ok_or(Failure::Interrupted)?;
            if is_cut {
                kept.extend(late.kept());
                let us = us + started.elapsed().as_secs_f64() * 1e6;
                with_policies.add(board, &kept, (bytes(&kept) / all_bytes, size), us);
            }
            if has_summary {
                runs.push(late);
            }
        }
        if let Some(outcomes) = outcomes.filter(|_| !runs.is_empty()) {
            summaries.push(outcomes.summary(workload, sampler, &runs));
        }
        let traces = workload.arrivals().len();
        rows.extend(alone.row(sampler, false, traces));
        rows.extend(with_policies.row(sampler, true, traces));
    }
    Ok((Board { whole: board.whole().clone(), size, rows }, summaries))
}

#[derive(Default)]
struct Runs {
    scores: Vec<Scores>,
    size_errors: f64,
    us: f64,
}

impl Runs {
    fn add(&mut self, board: &Scoreboard, kept: &[usize], (size, wanted): (f64, f64), us: f64) {
        self.scores.push(board.scores(kept.iter().copied()));
        self.size_errors += (size - wanted).abs() / wanted;
        self.us += us;
    }

    fn row(&self, sampler: &Candidate, with_policies: bool, traces: usize) -> Option<Row> {
        let runs = self.scores.len() as f64;
        let over_runs = |number: fn(&Scores) -> f64| MeanSd::of(self.scores.iter().map(number));
        (runs > 0.0).then(|| Row {
            sampler: sampler.to_string(),
            key: None,
            with_policies,
            mean: Scores::of_each(|number| over_runs(number).mean),
            sd: Scores::of_each(|number| over_runs(number).sd),
            size_error: self.size_errors / runs,
            replay_us_per_trace: self.us / runs / traces.max(1) as f64,
        })
    }
}

impl Board {
    /// Adds the rows of samplers that count by another key.
    pub(super) fn add(&mut self, key: &str, other: Board) {
        self.rows.extend(other.rows.into_iter().map(|row| Row { key: Some(key.to_owned()), ..row }));
    }

    /// Three tables within 80 columns. `named` gives samplers their readable names.
    pub(super) fn render(&self, named: impl Fn(&str) -> String) -> String {
        let Whole { traces, entries, paths, event_pairs, shapes, anomalous, faults, .. } = &self.whole;
        let of = |what: &str, count: &usize| format!("{what}\nof {}", output::count(*count as u64));
        let name = |row: &Row| match &row.key {
            _ if row.with_policies => "  + policies".to_owned(),
            Some(key) => format!("{}: {}", output::escaped(key), named(&row.sampler)),
            None => named(&row.sampler),
        };
        let rows = |cells: &dyn Fn(&Row) -> Vec<String>| -> Vec<Vec<String>> {
            self.rows.iter().map(|row| std::iter::once(name(row)).chain(cells(row)).collect()).collect()
        };
        let percents =
            |shares: &[f64]| shares.iter().map(|&share| output::percent(share)).collect::<Vec<_>>();
        let mut text = String::from("\n");
        let header = [
            of("traces", traces),
            of("entries", entries),
            of("paths", paths),
            of("event pairs", event_pairs),
            of("shapes", shapes),
            of("anomalous", anomalous),
        ];
        let found = rows(&|Row { mean, .. }: &Row| {
            percents(&[
                mean.traces,
                mean.entries,
                mean.paths,
                mean.event_pairs,
                mean.shapes,
                mean.anomalous_kept,
            ])
        });
        text += &table("found or kept", &header, found);
        let header = ["anomalous", "rare", "common", "entropy of\nshapes, bits", "traces\nper shape"]
            .map(str::to_owned);
        let kept = rows(&|Row { mean, .. }: &Row| {
            let mut cells = percents(&[mean.anomalous, mean.rare, mean.common]);
            cells.extend([measure(mean.entropy_bits), output::rounded(mean.traces_per_shape)]);
            cells
        });
        text += &table("of the kept traces", &header, kept);
        let wanted = format!("error of size\n({} wanted)", output::percent(self.size));
        let header = [
            of("first", faults),
            of("first three", faults),
            "MRR".to_owned(),
            wanted,
            "us a\ntrace".to_owned(),
        ];
        let located = rows(&|row: &Row| {
            let mut cells = percents(&[row.mean.top_1, row.mean.top_3]);
            cells.extend([
                three(row.mean.mrr),
                output::percent(row.size_error),
                measure(row.replay_us_per_trace),
            ]);
            cells
        });
        text += &table("faults located", &header, located);
        text
    }
}

fn table(corner: &str, header: &[String], rows: Vec<Vec<String>>) -> String {
    let header: Vec<&str> = std::iter::once(corner).chain(header.iter().map(String::as_str)).collect();
    output::table(&header, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_by_column() {
        let text = "service,to,fault,from\nts-food, 2023-01-29 08:46:04 ,\"a, b\",2023-01-29T08:43:04Z\n";
        let faults = parse(text.as_bytes()).unwrap();
        assert_eq!(faults.len(), 1);
        let Fault { name, from, to, service, operation } = &faults[0];
        assert_eq!((&name[..], &service[..], operation), ("a, b", "ts-food", &None));
        assert_eq!((from.0, to.0), (1_674_981_784_000_000_000, 1_674_981_964_000_000_000));
        let text = "fault,from,to,service,operation\nx,2023-01-29 08:43:04,2023-01-29 08:46:04,s,\n\
                    y,2023-01-29 08:43:04,2023-01-29 08:46:04,s,GET /\n";
        let operations: Vec<_> =
            parse(text.as_bytes()).unwrap().into_iter().map(|fault| fault.operation).collect();
        assert_eq!(operations, [None, Some("GET /".to_owned())]);
    }

    #[test]
    fn faulty_labels_are_refused_with_their_line() {
        for (text, expected) in [
            ("", "line 1: no column 'fault'"),
            ("fault,from,to\n", "line 1: no column 'service'"),
            ("fault,from,to,service\n", "no line with a fault"),
            ("fault,from,to,service\nx,y,2023-01-29 08:46:04,s\n", "line 2: from is 'y'"),
            (
                "fault,from,to,service\n\nx,2023-01-29 08:46:04,2023-01-29 08:46:04,s\n",
                "line 3: the fault 'x' ends",
            ),
            (
                "fault,from,to,service\nx,2023-01-29 08:46:04,2023-01-29 08:46:05,\n",
                "line 2: the fault 'x' has no",
            ),
            ("fault,from,to,service\nx,2023-01-29 08:46:04\n", "line: 2"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
