//! Profiles of a recording's latency: critical time by function, service or call path.

use std::collections::HashMap;

use astracer_recording::intern::Symbol;
use astracer_recording::recording::Recording;
use serde::Serialize;

use crate::by_root::{ByRoot, RootSums};
use crate::statistics::{Mean, Summary, Times};
use crate::traced::{Shape, Traced};

/// The grouping of critical time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    /// The name of the operation.
    #[default]
    Function,
    /// The service.
    Service,
    /// The call path: the names from the root down to the operation.
    Path,
}

/// The greatest depth of a call path. Deeper calls count toward their caller, so that paths stay
/// short in traces that are a million spans deep.
pub const DEPTH_MAX: u32 = 256;

/// One function, service or call path.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The row's name; for a call path, the names from the root down.
    pub name: Vec<String>,
    /// The row's share of all critical time, 0 to 1.
    pub share: f64,
    /// The row's critical time, weighted, ms.
    pub total_ms: f64,
    /// The weighted number of traces with the row on their path.
    pub traces: f64,
    /// The row's time on the path in those traces.
    #[serde(flatten)]
    pub time: Summary,
    /// The time by which a span of this row can shrink before a sibling replaces it on the path:
    /// the mean over its spans on paths, in ms.
    pub drag_ms: Option<f64>,
    /// The time by which a span of this row can grow before it is on the path: the mean over its
    /// spans beside paths, in ms.
    pub slack_ms: Option<f64>,
}

/// The adjustments that fitted spans into their parents, over all traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Fitting {
    /// The number of spans that were shifted.
    pub shifted_spans: u64,
    /// The critical time of spans that were shifted, or that lie below a shifted one, weighted, ms.
    pub shifted_ms: f64,
    /// The number of spans that were clipped.
    pub clipped_spans: u64,
    /// The time that was clipped off them, weighted, ms.
    pub clipped_ms: f64,
    /// The number of spans that were left out because they lie outside their parents, including
    /// those below them.
    pub dropped_spans: u64,
    /// The time of all spans that were left out, weighted, ms.
    pub dropped_ms: f64,
    /// The number of spans outside the root's tree: further roots, and orphans.
    pub unreached_spans: u64,
    /// The number of parents that an event names and the recording does not contain, and of edges
    /// that closed a cycle.
    pub missing_edges: u64,
    /// The number of traces in which a span was shifted, clipped or left out.
    pub traces: u64,
}

/// The critical time of a recording.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Profile {
    /// The number of traces that were added.
    pub traces: u64,
    /// The number of traces that they stand for, by weight.
    pub weight: f64,
    /// The number of traces without a weight, which count as one.
    pub unweighted: u64,
    /// All critical time, weighted, ms.
    pub total_ms: f64,
    /// The lengths of the traces' paths.
    #[serde(flatten)]
    pub length: Summary,
    /// The adjustments that fitted spans into their parents.
    pub fitting: Fitting,
    /// The rows by share, largest first.
    pub rows: Vec<Row>,
    /// The same times by root, if [`Profiler::with_roots`] was used.
    #[serde(skip)]
    pub by_root: Option<ByRoot>,
}

#[derive(Debug, Default)]
struct Sums {
    times: Times,
    drag: Mean,
    slack: Mean,
    /// The row's time in the trace that is being added, ns.
    now: u64,
    touched: bool,
}

/// Sums up traces one by one.
#[derive(Debug)]
pub struct Profiler<'r> {
    recording: &'r Recording,
    by: By,
    sums: Vec<Sums>,
    touched: Vec<u32>,
    /// For [`By::Path`]: from the caller's row and a name to the row.
    paths: HashMap<(u32, Symbol), u32>,
    /// For [`By::Path`]: the caller, name and depth of each row.
    callers: Vec<(u32, Symbol, u32)>,
    /// For [`By::Path`]: the row, plus one, of each node of the trace that is being added; 0 if it
    /// has not been looked up yet.
    rows: Vec<u32>,
    chain: Vec<u32>,
    roots: Option<RootSums>,
    lengths: Times,
    fitting: Fitting,
    traces: u64,
    unweighted: u64,
}

const NO_ROW: u32 = u32::MAX;

impl<'r> Profiler<'r> {
    /// Sums up traces of this recording.
    pub fn new(recording: &'r Recording, by: By) -> Self {
        let rows = match by {
            By::Function => recording.names().len(),
            By::Service => recording.services().len(),
            By::Path => 0,
        };
        Self {
            recording,
            by,
            sums: (0..rows).map(|_| Sums::default()).collect(),
            touched: Vec::new(),
            paths: HashMap::new(),
            callers: Vec::new(),
            rows: Vec::new(),
            chain: Vec::new(),
            roots: None,
            lengths: Times::default(),
            fitting: Fitting::default(),
            traces: 0,
            unweighted: 0,
        }
    }

    /// Also sums up the traces of each root, for [`crate::compare()`].
    pub fn with_roots(mut self) -> Self {
        self.roots = Some(RootSums::default());
        self
    }

    /// Adds one trace that stands for `weight` traces, or for one if it has no weight. A trace with
    /// weight zero counts in [`Profile::traces`] and in the counts of [`Fitting`], and in no other
    /// figure.
    pub fn add(&mut self, traced: &Traced<'_>, weight: Option<f64>) {
        self.traces += 1;
        self.unweighted += u64::from(weight.is_none());
        let weight = weight.unwrap_or(1.0);
        self.rows.clear();
        self.rows.resize(if self.by == By::Path { traced.node_count() } else { 0 }, 0);
        for segment in traced.path.segments.iter() {
            let row = self.row(traced, segment.node);
            let sums = &mut self.sums[row as usize];
            sums.now += segment.length();
            if !std::mem::replace(&mut sums.touched, true) {
                self.touched.push(row);
            }
        }
        let root = traced.trace.root().name_symbol();
        if let Some(roots) = &mut self.roots {
            roots.trace(root, weight);
        }
        while let Some(row) = self.touched.pop() {
            let sums = &mut self.sums[row as usize];
            let now = std::mem::take(&mut sums.now);
            sums.times.push(now, weight);
            sums.touched = false;
            if let Some(roots) = &mut self.roots {
                roots.row(root, row, now, weight);
            }
        }
        for amount in traced.path.drag.iter() {
            let row = self.row(traced, amount.node);
            self.sums[row as usize].drag.push(amount.ns, weight);
        }
        for amount in traced.path.slack.iter() {
            let row = self.row(traced, amount.node);
            self.sums[row as usize].slack.push(amount.ns, weight);
        }
        self.lengths.push(traced.path.length(), weight);
        self.add_fitting(traced, weight);
    }

    fn add_fitting(&mut self, traced: &Traced<'_>, weight: f64) {
        let (adjusted, fitting) = (traced.path.adjusted, &mut self.fitting);
        fitting.shifted_spans += adjusted.shifted_spans;
        fitting.clipped_spans += adjusted.clipped_spans;
        fitting.dropped_spans += adjusted.dropped_spans;
        fitting.shifted_ms += traced.path.shifted_ns as f64 * weight / 1e6;
        fitting.clipped_ms += adjusted.clipped_ns as f64 * weight / 1e6;
        fitting.dropped_ms += adjusted.dropped_ns as f64 * weight / 1e6;
        fitting.traces +=
            u64::from(adjusted.shifted_spans + adjusted.clipped_spans + adjusted.dropped_spans > 0);
        match traced.shape {
            Shape::Tree(tree) => fitting.unreached_spans += u64::from(tree.unreached()),
            Shape::Events(graph) => {
                fitting.missing_edges += graph.missing_parents() + graph.graph().cut_edges();
            }
        }
    }

    fn row(&mut self, traced: &Traced<'_>, node: u32) -> u32 {
        match self.by {
            By::Function => traced.name(node).0,
            By::Service => traced.service(node).0,
            By::Path => self.path_row(traced, node),
        }
    }

    /// The row of a node's call path. Each node is looked up once per trace, so that deep traces
    /// take linear time.
    fn path_row(&mut self, traced: &Traced<'_>, node: u32) -> u32 {
        self.chain.clear();
        let mut at = Some(node);
        while let Some(node) = at.filter(|&node| self.rows[node as usize] == 0) {
            self.chain.push(node);
            at = traced.parent(node);
        }
        let mut row = at.map_or(NO_ROW, |node| self.rows[node as usize] - 1);
        while let Some(node) = self.chain.pop() {
            let depth = if row == NO_ROW { 0 } else { self.callers[row as usize].2 + 1 };
            if depth < DEPTH_MAX {
                let key = (row, traced.name(node));
                row = *self.paths.entry(key).or_insert_with(|| {
                    self.callers.push((key.0, key.1, depth));
                    self.sums.push(Sums::default());
                    self.callers.len() as u32 - 1
                });
            }
            self.rows[node as usize] = row + 1;
        }
        row
    }

    fn name(&self, row: u32) -> Vec<String> {
        match self.by {
            By::Function => vec![self.recording.names().name(Symbol(row)).to_owned()],
            By::Service => vec![self.recording.services().name(Symbol(row)).to_owned()],
            By::Path => {
                let (mut names, mut at) = (Vec::new(), row);
                while at != NO_ROW {
                    let (caller, name, _) = self.callers[at as usize];
                    names.push(self.recording.names().name(name).to_owned());
                    at = caller;
                }
                names.reverse();
                names
            }
        }
    }

    /// The sums over all traces that were added, with these percentiles (0 to 100).
    pub fn finish(mut self, percentiles: &[f64]) -> Profile {
        let sums = std::mem::take(&mut self.sums);
        let roots = self.roots.take();
        let by_root = roots.map(|roots| {
            let root_name = |root| self.recording.names().name(root).to_owned();
            roots.finish(root_name, |row| self.name(row))
        });
        let total: f64 = self.lengths.total();
        let mut rows: Vec<Row> = (0u32..)
            .zip(sums)
            .map(|(row, sums)| (row, sums.times.weight(), sums))
            .filter(|(_, traces, sums)| *traces > 0.0 || sums.slack.ms().is_some())
            .map(|(row, traces, sums)| {
                let own = sums.times.total();
                Row {
                    name: self.name(row),
                    share: if total > 0.0 { own / total } else { 0.0 },
                    total_ms: own / 1e6,
                    traces,
                    drag_ms: sums.drag.ms(),
                    slack_ms: sums.slack.ms(),
                    time: sums.times.summary(percentiles),
                }
            })
            .collect();
        rows.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.name.cmp(&b.name)));
        Profile {
            traces: self.traces,
            weight: self.lengths.weight(),
            unweighted: self.unweighted,
            total_ms: total / 1e6,
            fitting: self.fitting,
            length: self.lengths.summary(percentiles),
            rows,
            by_root,
        }
    }
}
