//! A recorded workload: just what a replay needs of each trace.

mod ending;
mod part;

use std::collections::HashMap;
use std::sync::Arc;

use astracer_critical_path::{Method, PathKinds};
use astracer_model::{TraceId, UnixNanos};
use astracer_recording::intern::{Interner, Symbol};
use astracer_recording::recording::{Recording, TraceView};
use astracer_recording::shape::{Scratch, Shapes};
use astracer_recording::stop::Pulse;

use crate::buckets::{LatencyCell, bucket};
use crate::key::{Grouping, Keys};
use crate::statistics::MeanSd;
use crate::stop::Stop;
pub use ending::Ending;
use ending::Endings;
pub(crate) use part::PartSums;

/// Durations are scored in milliseconds.
const NS_PER_MS: f64 = 1e6;
/// The most that counts of a gap between arrivals, ns.
const GAP_MAX_NS: u64 = 10_000_000_000;

/// Traces in order of arrival. Each is reduced to its key, its size, its call tree and, for each of
/// its functions, the sums from which means and standard deviations are calculated.
#[derive(Clone, Debug)]
pub struct Workload {
    functions: Vec<Function>,
    keys: Arc<Interner>,
    end_keys: Arc<Interner>,
    call_trees: u32,
    /// The number of traces of each path kind.
    path_kinds: Vec<u32>,
    start: UnixNanos,
    arrivals: Vec<Arrival>,
    trace_ids: Vec<TraceId>,
    /// The calls of arrival `n` are `calls[first_call of n..first_call of n + 1]`.
    calls: Vec<Calls>,
    latency_cells: Vec<LatencyCell>,
    /// The entries of arrival `n` begin at its `first_latency`.
    latencies: Vec<Latencies>,
}

/// One function (an operation's name) in the whole workload.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Function {
    /// The function's name.
    pub name: Arc<str>,
    /// The number of spans.
    pub count: u64,
    /// Mean and standard deviation of its durations, ms.
    pub duration_ms: MeanSd,
    /// Its longest duration, ns.
    pub max_ns: u64,
}

/// One trace, as it arrived at the sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time since the first arrival, ns.
    pub at_ns: u64,
    /// Index into [`Workload::keys`].
    pub key: u32,
    /// The key at the root's end: an index into [`Workload::end_keys`].
    pub end_key: u32,
    /// The trace's call tree, a number below [`Workload::call_trees`].
    pub call_tree: u32,
    /// The trace's path kind, an index into [`Workload::path_kinds`].
    pub path_kind: u32,
    /// The number of spans.
    pub spans: u32,
    /// Bytes of its records, in the format of the recording.
    pub bytes: u64,
    /// Bytes of its spans as OTLP protobuf messages.
    pub otlp_bytes: u64,
    /// The outcome when its root ends.
    pub ending: Ending,
    first_call: u32,
    first_latency: u32,
}

/// The calls of one function in one trace.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Calls {
    /// Index into [`Workload::functions`].
    pub function: u32,
    /// The number of calls.
    pub count: u32,
    /// Sum of (duration - mean of the function in the whole workload), ms.
    pub deviation: f64,
    /// Sum of the squares of these differences. Sums of squared durations would lose digits when
    /// the variance is calculated as a small difference of large numbers.
    pub deviation_squared: f64,
    /// The longest duration, ns.
    pub max_ns: u64,
}

/// The calls of one trace with durations in one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latencies {
    /// Index into [`Workload::latency_cells`].
    pub cell: u32,
    /// The number of calls.
    pub count: u32,
}

impl Workload {
    /// Reduces a recording to a workload with keys by `grouping`. The recording must have been made
    /// with the grouping's attributes as labels.
    pub fn new(recording: &Recording, grouping: &Grouping) -> Self {
        Self::unless_stopped(recording, grouping, Stop::never()).expect("Stop::never() never stops")
    }

    /// Like [`new`](Self::new), but returns `None` if asked to stop.
    pub fn unless_stopped(recording: &Recording, grouping: &Grouping, stop: Stop<'_>) -> Option<Self> {
        let mut pulse = stop.pulse();
        let functions = functions(recording, &mut pulse)?;
        let (mut shapes, mut scratch) = (Shapes::default(), Scratch::default());
        let mut call_trees: Vec<Option<u32>> = Vec::new();
        let mut call_tree_count = 0;
        let (mut keys, mut endings) = (Keys::new(recording, grouping), Endings::new(recording));
        let mut arrivals = Vec::with_capacity(recording.trace_count());
        let mut calls: Vec<Calls> = Vec::with_capacity(recording.trace_count());
        let mut slot: Vec<u32> = vec![u32::MAX; functions.len()];
        let (mut cells, mut cell_slot) = (Cells::default(), Vec::new());
        let mut latencies: Vec<Latencies> = Vec::with_capacity(recording.trace_count());
        let kinds = PathKinds::of(recording, Method::default(), &mut stop.pulse())?;
        let mut path_kinds = vec![0; kinds.count()];
        let start = recording.traces().next().map_or(UnixNanos(0), |trace| trace.root().start());

        for (trace, &path_kind) in recording.traces().zip(kinds.of_traces()) {
            path_kinds[path_kind as usize] += 1;
            let shape = shapes.of_trace(trace, &mut scratch, &mut pulse)?;
            call_trees.resize(call_trees.len().max(shapes.len()), None);
            let call_tree = *call_trees[shape.0 as usize].get_or_insert_with(|| {
                call_tree_count += 1;
                call_tree_count - 1
            });
            let (first_call, first_latency) = (calls.len(), latencies.len());
            let key = keys.of(trace, &shapes, shape);
            let mut arrival = Arrival {
                at_ns: trace.root().start().since(start),
                key: key.at_start.0,
                end_key: key.at_end.0,
                call_tree,
                path_kind,
                spans: trace.span_count() as u32,
                bytes: 0,
                otlp_bytes: 0,
                ending: endings.of(trace, &mut pulse)?,
                first_call: first_call as u32,
                first_latency: first_latency as u32,
            };
            for span in trace.spans() {
                arrival.bytes += span.record_bytes();
                arrival.otlp_bytes += span.otlp_bytes();
                let function = span.name_symbol().0;
                let place = &mut slot[function as usize];
                if *place == u32::MAX {
                    *place = calls.len() as u32;
                    calls.push(Calls {
                        function,
                        count: 0,
                        deviation: 0.0,
                        deviation_squared: 0.0,
                        max_ns: 0,
                    });
                }
                let entry = &mut calls[*place as usize];
                let deviation =
                    span.duration_ns() as f64 / NS_PER_MS - functions[function as usize].duration_ms.mean;
                entry.count += 1;
                entry.deviation += deviation;
                entry.deviation_squared += deviation * deviation;
                entry.max_ns = entry.max_ns.max(span.duration_ns());
                let cell = cells.add(function, bucket(span.duration_ns()));
                cell_slot.resize(cell_slot.len().max(cells.cells.len()), u32::MAX);
                let place = &mut cell_slot[cell as usize];
                if *place == u32::MAX {
                    *place = latencies.len() as u32;
                    latencies.push(Latencies { cell, count: 0 });
                }
                latencies[*place as usize].count += 1;
                if pulse.stopped() {
                    return None;
                }
            }
            for entry in &calls[first_call..] {
                slot[entry.function as usize] = u32::MAX;
            }
            for entry in &latencies[first_latency..] {
                cell_slot[entry.cell as usize] = u32::MAX;
            }
            arrivals.push(arrival);
        }
        let trace_ids = recording.traces().map(TraceView::id).collect();
        calls.shrink_to_fit();
        latencies.shrink_to_fit();
        let (keys, end_keys) = keys.finish();
        Some(Self {
            functions,
            keys,
            end_keys,
            call_trees: call_tree_count,
            path_kinds,
            start,
            arrivals,
            trace_ids,
            calls,
            latency_cells: cells.cells,
            latencies,
        })
    }

    /// The functions in the whole workload. Functions without calls (all of whose spans were
    /// duplicates) have an entry, but do not count.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The number of functions with calls.
    pub fn function_count(&self) -> usize {
        self.functions.iter().filter(|function| function.count > 0).count()
    }

    /// The keys that arrivals refer to.
    pub fn keys(&self) -> &Interner {
        &self.keys
    }

    /// The keys of traces whose root has ended: those of [`keys`](Self::keys), unless the grouping
    /// names attributes at the end.
    pub fn end_keys(&self) -> &Interner {
        &self.end_keys
    }

    /// The number of different call trees.
    pub fn call_trees(&self) -> u32 {
        self.call_trees
    }

    /// The number of traces of each path kind. In a part of a workload, kinds keep their numbers,
    /// so some may have no traces.
    pub fn path_kinds(&self) -> &[u32] {
        &self.path_kinds
    }

    /// The start of the first trace.
    pub fn start(&self) -> UnixNanos {
        self.start
    }

    /// The traces, sorted by the start of their root.
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// The time from the start to the last arrival, in nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.arrivals.last().map_or(0, |last| last.at_ns)
    }

    /// The time from the start to the last arrival, in seconds.
    pub fn seconds(&self) -> f64 {
        self.length_ns() as f64 / 1e9
    }

    /// The seconds to divide by for a rate: a shorter workload counts as one second long.
    pub fn rate_seconds(&self) -> f64 {
        self.seconds().max(1.0)
    }

    /// The seconds with traffic: a gap of more than ten seconds between arrivals counts as ten.
    /// Recordings of separate minutes or days have the rate of these.
    pub fn active_seconds(&self) -> f64 {
        let gaps = self.arrivals.windows(2).map(|pair| pair[1].at_ns.saturating_sub(pair[0].at_ns));
        (gaps.map(|gap| gap.min(GAP_MAX_NS)).sum::<u64>() as f64 / 1e9).max(1.0)
    }

    /// The number of traces of each key.
    pub(crate) fn traces_by_key(&self) -> Vec<u32> {
        let mut traces = vec![0; self.keys.len()];
        self.arrivals.iter().for_each(|arrival| traces[arrival.key as usize] += 1);
        traces
    }

    /// The calls of one arrival, with one entry for each function.
    pub fn calls(&self, arrival: usize) -> &[Calls] {
        let end = self.arrivals.get(arrival + 1).map_or(self.calls.len(), |next| next.first_call as usize);
        &self.calls[self.arrivals[arrival].first_call as usize..end]
    }

    /// The duration buckets of all functions, as far as they contain calls.
    pub fn latency_cells(&self) -> &[LatencyCell] {
        &self.latency_cells
    }

    /// The durations of one arrival's calls, with one entry for each bucket of each function.
    pub fn latencies(&self, arrival: usize) -> &[Latencies] {
        let next = self.arrivals.get(arrival + 1);
        let end = next.map_or(self.latencies.len(), |next| next.first_latency as usize);
        &self.latencies[self.arrivals[arrival].first_latency as usize..end]
    }

    /// The id of one arrival's trace.
    pub fn trace_id(&self, arrival: usize) -> TraceId {
        self.trace_ids[arrival]
    }

    /// The key of one arrival.
    pub fn key(&self, arrival: &Arrival) -> &str {
        self.keys.name(Symbol(arrival.key))
    }

    /// The key of one arrival at the end of its root.
    pub fn end_key(&self, arrival: &Arrival) -> &str {
        self.end_keys.name(Symbol(arrival.end_key))
    }
}

/// Latency cells in the order in which they first occur.
#[derive(Default)]
struct Cells {
    cells: Vec<LatencyCell>,
    places: HashMap<(u32, u8), u32>,
}

impl Cells {
    /// Counts a call and returns its cell.
    fn add(&mut self, function: u32, bucket: u8) -> u32 {
        let place = *self.places.entry((function, bucket)).or_insert_with(|| {
            self.cells.push(LatencyCell { function, bucket, count: 0 });
            self.cells.len() as u32 - 1
        });
        self.cells[place as usize].count += 1;
        place
    }
}

/// The number, mean and standard deviation of each function's durations in the whole workload,
/// indexed by the symbol of its name. `None` if asked to stop.
fn functions(recording: &Recording, pulse: &mut Pulse<'_>) -> Option<Vec<Function>> {
    let mut sums = vec![(0u64, 0u128); recording.names().len()];
    for span in recording.traces().flat_map(TraceView::spans) {
        let (count, sum) = &mut sums[span.name_symbol().index()];
        *count += 1;
        *sum += u128::from(span.duration_ns());
        if pulse.stopped() {
            return None;
        }
    }
    let mean =
        |&(count, sum): &(u64, u128)| if count == 0 { 0.0 } else { sum as f64 / count as f64 / NS_PER_MS };
    let means: Vec<f64> = sums.iter().map(mean).collect();
    let (mut squares, mut max_ns) = (vec![0.0; sums.len()], vec![0; sums.len()]);
    for span in recording.traces().flat_map(TraceView::spans) {
        let function = span.name_symbol().index();
        squares[function] += (span.duration_ns() as f64 / NS_PER_MS - means[function]).powi(2);
        max_ns[function] = span.duration_ns().max(max_ns[function]);
        if pulse.stopped() {
            return None;
        }
    }
    let names = recording.names().names();
    let functions = names
        .enumerate()
        .map(|(function, name)| Function {
            name: name.into(),
            count: sums[function].0,
            duration_ms: MeanSd {
                mean: means[function],
                sd: (squares[function] / sums[function].0.max(1) as f64).sqrt(),
            },
            max_ns: max_ns[function],
        })
        .collect();
    Some(functions)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::Inspection;
    use crate::testing::{many_names, synthetic_recording};

    /// A millisecond between traces, and an hour before the last 1,000 of them.
    #[test]
    fn the_rate_of_recordings_with_gaps_is_that_of_the_traffic() {
        let mut workload = many_names(3, 3_001, 2);
        assert!((workload.active_seconds() - 3.0).abs() < 1e-9);
        workload.arrivals[2_001..].iter_mut().for_each(|arrival| arrival.at_ns += 3_600_000_000_000);
        assert!((workload.active_seconds() - 12.999).abs() < 1e-9);
        assert!((workload.seconds() - 3_603.0).abs() < 1e-9);
    }

    /// The stop condition is checked at least once per 4,096 spans and traces in every phase, and
    /// never again after it returned true.
    #[test]
    fn summing_up_a_recording_stops_at_any_question() {
        let recording = synthetic_recording(4_000, 1);
        let asked = |stop_at: u32, sum_up: &dyn Fn(Stop<'_>) -> bool| {
            let count = AtomicU32::new(0);
            let is_done = sum_up(Stop::when(&|| count.fetch_add(1, Ordering::Relaxed) + 1 >= stop_at));
            assert_eq!(is_done, stop_at > count.load(Ordering::Relaxed));
            count.into_inner()
        };
        let tree = |stop: Stop<'_>| Workload::unless_stopped(&recording, &Grouping::Tree, stop).is_some();
        let inspection = |stop: Stop<'_>| Inspection::new(&recording, stop).is_some();
        for sum_up in [&tree as &dyn Fn(Stop<'_>) -> bool, &inspection] {
            let all = asked(u32::MAX, sum_up);
            // Each span is visited at least three times.
            assert!(all as usize >= 3 * recording.span_count() / 4096, "{all}");
            for stop_at in [1, 2, 3, all / 4, all / 2, all - 1, all] {
                assert_eq!(asked(stop_at, sum_up), stop_at, "of {all}");
            }
        }
    }
}
