//! Reduces each trace to what the scoreboard counts.

use std::collections::{HashMap, HashSet};

use astracer_model::Status;
use astracer_recording::recording::{Recording, SpanView, TraceView};

use super::Fault;
use super::events::{Events, Observed};
use super::operation::{Operation, is_at_fault, operation};
use crate::stop::Stop;

/// An entry is rare if fewer traces than this share begin there.
const RARE: f64 = 0.05;
/// A span is slow if it takes longer than this share of its operation's spans in normal traces.
const SLOW_SPAN: f64 = 0.9;
/// A trace is slow if it takes longer than this share of the normal traces of its path.
const SLOW_PATH: f64 = 0.99;

#[derive(Clone, Copy, Debug)]
pub(super) struct Trace {
    pub(super) entry: u32,
    pub(super) path: u32,
    pub(super) shape: u32,
    /// The set of its operations.
    pub(super) operations: u32,
    /// The fault during which it starts.
    pub(super) fault: Option<u32>,
    /// It failed, was slow, or took a path that no normal trace takes.
    pub(super) is_suspect: bool,
    /// It is suspect, and visits the place of the fault during which it starts.
    pub(super) is_anomalous: bool,
    pub(super) is_rare: bool,
}

/// All traces, in the recording's order.
#[derive(Clone, Debug)]
pub(super) struct Traces {
    pub(super) all: Vec<Trace>,
    pub(super) events: Events,
    /// Sets of operations.
    pub(super) operations: Vec<Box<[Operation]>>,
    /// The number of different entries.
    pub(super) entries: usize,
    /// The number of different paths.
    pub(super) paths: usize,
}

impl Traces {
    pub(super) fn new(recording: &Recording, faults: &[Fault], stop: Stop<'_>) -> Option<Self> {
        let mut pulse = stop.pulse();
        let fault_of = |trace: TraceView<'_>| {
            let at = faults.iter().position(|fault| fault.contains(trace.root().start()));
            at.map(|at| at as u32)
        };
        // First what is normal: which entries, which paths, and how long spans and paths take.
        let (mut entries, mut paths) = (Numbers::default(), Numbers::default());
        let mut kinds = Vec::with_capacity(recording.trace_count());
        let mut has_normal = HashSet::new();
        for trace in recording.traces() {
            let fault = fault_of(trace);
            let (entry, path) = (entries.of(operation(trace.root())), paths.of(levels(trace)));
            kinds.push((fault, entry, path));
            if fault.is_none() {
                has_normal.insert(entry);
            }
            if pulse.stopped_after(trace.span_count()) {
                return None;
            }
        }
        let is_normal = |fault: Option<u32>, entry| fault.is_none() || !has_normal.contains(&entry);
        let mut span_durations = HashMap::<Operation, Vec<u64>>::new();
        let mut path_durations = HashMap::<u32, Vec<u64>>::new();
        for (trace, &(fault, entry, path)) in recording.traces().zip(&kinds) {
            if is_normal(fault, entry) {
                path_durations.entry(path).or_default().push(trace.root().duration_ns());
                for span in trace.spans() {
                    span_durations.entry(operation(span)).or_default().push(span.duration_ns());
                }
            }
            if pulse.stopped_after(trace.span_count()) {
                return None;
            }
        }
        let slow_spans = quantiles(span_durations, SLOW_SPAN);
        let slow_paths = quantiles(path_durations, SLOW_PATH);

        let (mut sets, mut events) = (Numbers::default(), Events::default());
        let mut by_entry = vec![0usize; entries.0.len()];
        let mut all = Vec::with_capacity(recording.trace_count());
        for (trace, (fault, entry, path)) in recording.traces().zip(kinds) {
            by_entry[entry as usize] += 1;
            let is_slow = |span: SpanView<'_>| {
                slow_spans.get(&operation(span)).is_some_and(|&limit| span.duration_ns() > limit)
            };
            let observed = trace.spans().map(|span| Observed {
                operation: operation(span),
                parent: span.parent().map(operation),
                is_failed: span.status() == Status::Error,
                is_slow: is_slow(span),
            });
            // A path without a limit is one that no normal trace takes.
            let is_usual = slow_paths.get(&path).is_some_and(|&limit| trace.root().duration_ns() <= limit);
            let is_suspect = !is_usual || trace.spans().any(|span| span.status() == Status::Error);
            all.push(Trace {
                entry,
                path,
                shape: events.shape(observed),
                operations: sets.of(set(trace)),
                fault,
                is_suspect,
                is_anomalous: false,
                is_rare: false,
            });
            if pulse.stopped_after(trace.span_count()) {
                return None;
            }
        }
        let mut operations = vec![Box::default(); sets.0.len()];
        sets.0.into_iter().for_each(|(set, number)| operations[number as usize] = set);
        let count = all.len() as f64;
        for trace in &mut all {
            trace.is_rare = (by_entry[trace.entry as usize] as f64) < RARE * count;
            let visited: &[Operation] = &operations[trace.operations as usize];
            trace.is_anomalous = trace.is_suspect
                && trace.fault.is_some_and(|fault| {
                    visited
                        .iter()
                        .any(|&operation| is_at_fault(recording, &faults[fault as usize], operation))
                });
        }
        Some(Self { all, events, operations, entries: entries.0.len(), paths: paths.0.len() })
    }
}

/// Numbers values in the order in which they first occur.
struct Numbers<T>(HashMap<T, u32>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Eq + std::hash::Hash> Numbers<T> {
    fn of(&mut self, value: T) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(value).or_insert(next)
    }
}

/// For each key, the duration that this share of its durations does not exceed.
fn quantiles<K: Eq + std::hash::Hash>(durations: HashMap<K, Vec<u64>>, share: f64) -> HashMap<K, u64> {
    let quantile = |mut durations: Vec<u64>| {
        let place = (share * durations.len() as f64).ceil() as usize;
        let (_, &mut value, _) = durations.select_nth_unstable(place.saturating_sub(1));
        value
    };
    durations.into_iter().map(|(key, durations)| (key, quantile(durations))).collect()
}

/// The operations of a trace by depth, sorted within each depth: TracePicker's encoding of a path,
/// which is the same for calls in parallel whatever their order.
fn levels(trace: TraceView<'_>) -> Vec<(u32, Operation)> {
    let own: HashSet<u32> = trace.spans().map(SpanView::index).collect();
    let mut children = HashMap::<Option<u32>, Vec<SpanView<'_>>>::new();
    for span in trace.spans() {
        let parent = span.parent().map(SpanView::index).filter(|parent| own.contains(parent));
        children.entry(parent).or_default().push(span);
    }
    let (mut levels, mut depth) = (Vec::with_capacity(trace.span_count()), 0);
    let mut level = children.remove(&None).unwrap_or_default();
    while !level.is_empty() {
        let start = levels.len();
        levels.extend(level.iter().map(|&span| (depth, operation(span))));
        levels[start..].sort_unstable();
        depth += 1;
        level = level.iter().filter_map(|span| children.remove(&Some(span.index()))).flatten().collect();
    }
    levels
}

/// The operations of a trace, each once.
fn set(trace: TraceView<'_>) -> Box<[Operation]> {
    let mut set: Vec<Operation> = trace.spans().map(operation).collect();
    set.sort_unstable();
    set.dedup();
    set.into_boxed_slice()
}
