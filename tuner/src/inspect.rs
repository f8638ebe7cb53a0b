//! Summary of a recording: its roots, functions and call trees.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::str::FromStr;

use astracer_model::UnixNanos;
use astracer_recording::intern::Symbol;
use astracer_recording::recording::{Recording, TraceView};
use astracer_recording::shape::{Scratch, Shapes};
use astracer_recording::stop::Pulse;
use serde::Serialize;

use crate::statistics::{MeanSd, quantile};
use crate::stop::Stop;

const NS_PER_MS: f64 = 1e6;

/// A recording's tables, in the shape of the paper's Tables 1 (roots), 2 (functions) and 4 (sizes).
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Inspection {
    /// The number of traces.
    pub traces: u64,
    /// The number of spans.
    pub spans: u64,
    /// Bytes of the spans' records, in the format of the recording.
    pub bytes: u64,
    /// Bytes of the spans as OTLP protobuf messages.
    pub otlp_bytes: u64,
    /// The number of different call trees.
    pub call_trees: u64,
    /// Earliest start of a span, ns since the epoch.
    pub start_unix_ns: u64,
    /// Latest end of a span, ns since the epoch.
    pub end_unix_ns: u64,
    /// Seconds from the earliest start to the latest end.
    pub seconds: f64,
    /// Root spans by name.
    pub roots: Vec<Root>,
    /// Operations by name.
    pub functions: Vec<FunctionRow>,
}

/// The traces of one root name.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Root {
    /// The root span's name.
    pub name: String,
    /// The number of traces.
    pub traces: u64,
    /// The share of all traces, 0 to 1.
    pub share: f64,
    /// The number of different call trees.
    pub call_trees: u64,
    /// Spans in these traces.
    pub spans: u64,
    /// Bytes of these spans' records.
    pub bytes: u64,
    /// The most arrivals within one second; seconds are counted from the first arrival of all.
    pub traces_per_second_max: u64,
    /// Mean duration of the root span, ms.
    pub mean_ms: f64,
    /// Population standard deviation of the root span's duration, ms.
    pub sd_ms: f64,
}

/// The spans with one name.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FunctionRow {
    /// The operation's name.
    pub name: String,
    /// The number of spans.
    pub count: u64,
    /// Mean duration, ms.
    pub mean_ms: f64,
    /// Population standard deviation of the duration, ms.
    pub sd_ms: f64,
    /// Median duration, ms.
    pub median_ms: f64,
    /// 75th percentile of the duration, ms.
    pub p75_ms: f64,
    /// 95th percentile of the duration, ms.
    pub p95_ms: f64,
    /// Longest duration, ms.
    pub max_ms: f64,
}

/// A column to sort by: names in ascending order, numbers in descending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Column {
    /// The name.
    Name,
    /// Traces of a root, spans of a function.
    #[default]
    Count,
    /// Mean duration.
    Mean,
    /// Standard deviation of the duration.
    Sd,
    /// Median duration (functions; roots are sorted by mean).
    Median,
    /// 75th percentile (functions; roots are sorted by mean).
    P75,
    /// 95th percentile (functions; roots are sorted by mean).
    P95,
    /// Longest duration (functions; roots are sorted by mean).
    Max,
    /// Call trees (roots; functions are sorted by count).
    Trees,
    /// Spans of the traces (roots; functions are sorted by count).
    Spans,
    /// Most arrivals within a second (roots; functions are sorted by count).
    Rate,
}

impl Column {
    /// Every column with its name.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("name", Self::Name),
        ("count", Self::Count),
        ("traces", Self::Count),
        ("share", Self::Count),
        ("mean", Self::Mean),
        ("sd", Self::Sd),
        ("median", Self::Median),
        ("p75", Self::P75),
        ("p95", Self::P95),
        ("max", Self::Max),
        ("trees", Self::Trees),
        ("spans", Self::Spans),
        ("max/s", Self::Rate),
    ];
}

impl FromStr for Column {
    type Err = UnknownColumn;

    fn from_str(text: &str) -> Result<Self, UnknownColumn> {
        let found = Self::ALL.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        found.map(|&(_, column)| column).ok_or_else(|| UnknownColumn(text.to_owned()))
    }
}

/// The text is not the name of a [`Column`].
#[derive(Clone, Debug)]
pub struct UnknownColumn(String);

impl fmt::Display for UnknownColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Column::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        write!(f, "'{}' is not a column: use {names}", self.0.escape_debug())
    }
}

impl Error for UnknownColumn {}

impl Inspection {
    /// Summarises a recording; `None` if asked to stop.
    pub fn new(recording: &Recording, stop: Stop<'_>) -> Option<Self> {
        let mut pulse = stop.pulse();
        let (roots, call_trees) = roots(recording, &mut pulse)?;
        let totals = Totals::of(recording, &mut pulse)?;
        let (start, end) = totals.times.unwrap_or((UnixNanos(0), UnixNanos(0)));
        let mut inspection = Self {
            traces: recording.trace_count() as u64,
            spans: recording.span_count() as u64,
            bytes: totals.bytes,
            otlp_bytes: totals.otlp_bytes,
            call_trees,
            start_unix_ns: start.0,
            end_unix_ns: end.0,
            seconds: end.since(start) as f64 / 1e9,
            roots,
            functions: functions(recording, &mut pulse)?,
        };
        inspection.sort(Column::Count);
        Some(inspection)
    }

    /// Sorts both tables by `column`.
    pub fn sort(&mut self, column: Column) {
        let number = |f: &FunctionRow| match column {
            Column::Name => 0.0,
            Column::Count | Column::Trees | Column::Spans | Column::Rate => f.count as f64,
            Column::Mean => f.mean_ms,
            Column::Sd => f.sd_ms,
            Column::Median => f.median_ms,
            Column::P75 => f.p75_ms,
            Column::P95 => f.p95_ms,
            Column::Max => f.max_ms,
        };
        self.functions.sort_by(|a, b| number(b).total_cmp(&number(a)).then_with(|| a.name.cmp(&b.name)));
        let number = |r: &Root| match column {
            Column::Name => 0.0,
            Column::Count => r.traces as f64,
            Column::Sd => r.sd_ms,
            Column::Trees => r.call_trees as f64,
            Column::Spans => r.spans as f64,
            Column::Rate => r.traces_per_second_max as f64,
            Column::Mean | Column::Median | Column::P75 | Column::P95 | Column::Max => r.mean_ms,
        };
        self.roots.sort_by(|a, b| number(b).total_cmp(&number(a)).then_with(|| a.name.cmp(&b.name)));
    }
}

/// Sums over all spans, and their earliest start and latest end.
#[derive(Default)]
struct Totals {
    bytes: u64,
    otlp_bytes: u64,
    times: Option<(UnixNanos, UnixNanos)>,
}

impl Totals {
    fn of(recording: &Recording, pulse: &mut Pulse<'_>) -> Option<Self> {
        let mut totals = Self::default();
        for span in recording.traces().flat_map(TraceView::spans) {
            totals.bytes += span.record_bytes();
            totals.otlp_bytes += span.otlp_bytes();
            let (start, end) = (span.start(), span.end().unwrap_or(span.start()));
            let (earliest, latest) = totals.times.unwrap_or((start, end));
            totals.times = Some((earliest.min(start), latest.max(end)));
            if pulse.stopped() {
                return None;
            }
        }
        Some(totals)
    }
}

fn functions(recording: &Recording, pulse: &mut Pulse<'_>) -> Option<Vec<FunctionRow>> {
    let mut durations: Vec<Vec<u64>> = vec![Vec::new(); recording.names().len()];
    for span in recording.traces().flat_map(TraceView::spans) {
        durations[span.name_symbol().index()].push(span.duration_ns());
        if pulse.stopped() {
            return None;
        }
    }
    let row = |(name, mut durations): (&str, Vec<u64>)| {
        if !pulse.sort_by_key(&mut durations, |&ns| ns) {
            return None;
        }
        let ms = durations.iter().map(|&ns| ns as f64 / NS_PER_MS);
        let MeanSd { mean, sd } = MeanSd::of(ms);
        let quantile_ms = |q| quantile(&durations, q) / NS_PER_MS;
        Some(FunctionRow {
            name: name.to_owned(),
            count: durations.len() as u64,
            mean_ms: mean,
            sd_ms: sd,
            median_ms: quantile_ms(0.5),
            p75_ms: quantile_ms(0.75),
            p95_ms: quantile_ms(0.95),
            max_ms: quantile_ms(1.0),
        })
    };
    let named = recording.names().names().zip(durations);
    named.filter(|(_, durations)| !durations.is_empty()).map(row).collect()
}

/// The roots by name, and the number of call trees of all traces.
fn roots(recording: &Recording, pulse: &mut Pulse<'_>) -> Option<(Vec<Root>, u64)> {
    #[derive(Default)]
    struct Sums {
        durations_ms: Vec<f64>,
        call_trees: Vec<u32>,
        spans: u64,
        bytes: u64,
        /// The second of the latest arrival, the arrivals in that second so far, and the most
        /// arrivals in any earlier second.
        second: (u64, u64, u64),
    }
    let (mut shapes, mut scratch) = (Shapes::default(), Scratch::default());
    let mut sums: HashMap<Symbol, Sums> = HashMap::new();
    let mut first = None;
    for trace in recording.traces() {
        let root = trace.root();
        let sum = sums.entry(root.name_symbol()).or_default();
        sum.durations_ms.push(root.duration_ns() as f64 / NS_PER_MS);
        sum.call_trees.push(shapes.of_trace(trace, &mut scratch, pulse)?.0);
        sum.spans += trace.span_count() as u64;
        for span in trace.spans() {
            sum.bytes += span.record_bytes();
            if pulse.stopped() {
                return None;
            }
        }
        let second = root.start().since(*first.get_or_insert(root.start())) / 1_000_000_000;
        let (last, count, most) = sum.second;
        sum.second = if last == second { (last, count + 1, most) } else { (second, 1, most.max(count)) };
    }
    let mut all: Vec<u32> = sums.values().flat_map(|sum| sum.call_trees.iter().copied()).collect();
    let call_trees = distinct(&mut all, pulse)?;
    let traces = recording.trace_count() as f64;
    let root = |(name, mut sum): (Symbol, Sums)| {
        let MeanSd { mean, sd } = MeanSd::of(sum.durations_ms.iter().copied());
        Some(Root {
            name: recording.names().name(name).to_owned(),
            traces: sum.durations_ms.len() as u64,
            share: sum.durations_ms.len() as f64 / traces,
            call_trees: distinct(&mut sum.call_trees, pulse)?,
            spans: sum.spans,
            bytes: sum.bytes,
            traces_per_second_max: sum.second.1.max(sum.second.2),
            mean_ms: mean,
            sd_ms: sd,
        })
    };
    let roots = sums.into_iter().map(root).collect::<Option<_>>()?;
    Some((roots, call_trees))
}

/// The number of different ids; `None` if asked to stop.
fn distinct(ids: &mut Vec<u32>, pulse: &mut Pulse<'_>) -> Option<u64> {
    if !pulse.sort_by_key(ids, |&id| id) {
        return None;
    }
    ids.dedup();
    Some(ids.len() as u64)
}
