//! The slow model of random programs of threads: the history of each trace, and the counts that
//! follow from it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use opentelemetry::{TraceId, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

pub(crate) const KEYS: [&str; 4] = ["GET /a", "GET /b", "job", "poll"];

/// Trace ids from 1 to this are shared with other processes, which have parts of these traces.
pub(crate) const SHARED_IDS: u128 = 8;

/// The value of `last_exit` before the first exit.
const NEVER: u64 = u64::MAX;

/// A trace, as its program's steps determine it.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) number: u64,
    pub(crate) key: usize,
    pub(crate) began: u64,
    /// It has the attribute that the own function and the attribute policy match.
    pub(crate) is_wanted: bool,
    /// Other traces may have its id; together they are parts of one trace.
    pub(crate) is_shared: bool,
    pub(crate) id: Mutex<Option<TraceId>>,
    pub(crate) made: AtomicU64,
    /// `failed`: an error that is seen in any case. `failed_if_recorded`: one that is seen only if
    /// the trace is recorded.
    pub(crate) failed: AtomicBool,
    pub(crate) failed_if_recorded: AtomicBool,
    /// The program called `Handle::keep` for it while it was open.
    pub(crate) asked: AtomicBool,
    last_exit: AtomicU64,
    /// Handles of its spans, the root's included. The root ends after its children.
    handles: AtomicU64,
    closed: AtomicU64,
}

impl Trace {
    pub(crate) fn new(number: u64, key: usize, began: u64, (is_wanted, is_shared): (bool, bool)) -> Self {
        Trace {
            number,
            key,
            began,
            is_wanted,
            is_shared,
            id: Mutex::new(None),
            made: AtomicU64::new(1),
            failed: AtomicBool::new(false),
            failed_if_recorded: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            last_exit: AtomicU64::new(NEVER),
            handles: AtomicU64::new(1),
            closed: AtomicU64::new(NEVER),
        }
    }

    pub(crate) fn root_left(&self, now: u64) {
        self.last_exit.store(now, Ordering::Relaxed);
    }

    pub(crate) fn span_made(&self) {
        self.made.fetch_add(1, Ordering::Relaxed);
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn dropped(&self, now: u64) {
        if self.handles.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.closed.store(now, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.closed.load(Ordering::Relaxed) != NEVER
    }

    /// The root's duration, from its beginning to its last exit, or to its last handle's drop if it
    /// was never entered.
    pub(crate) fn duration(&self) -> u64 {
        let left = self.last_exit.load(Ordering::Relaxed);
        let end = if left == NEVER { self.closed.load(Ordering::Relaxed) } else { left };
        end.saturating_sub(self.began)
    }
}

/// The counts of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Calls {
    pub(crate) calls: u64,
    /// The least and the greatest possible number.
    pub(crate) errors: (u64, u64),
    pub(crate) nanos: u128,
}

pub(crate) fn calls(traces: &[Arc<Trace>]) -> [Calls; KEYS.len()] {
    let mut all = [Calls::default(); KEYS.len()];
    for trace in traces.iter().filter(|trace| trace.is_ended()) {
        let of = &mut all[trace.key];
        let failed = trace.failed.load(Ordering::Relaxed);
        of.calls += 1;
        of.errors.0 += u64::from(failed);
        of.errors.1 += u64::from(failed || trace.failed_if_recorded.load(Ordering::Relaxed));
        of.nanos += u128::from(trace.duration());
    }
    all
}

/// The exported spans of one trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exported {
    pub(crate) spans: u64,
    pub(crate) has_root: bool,
    /// `None` if the head sampler kept it.
    pub(crate) reason: Option<String>,
    pub(crate) cut: u64,
}

#[derive(Debug, Default)]
pub(crate) struct ExportedTraces {
    pub(crate) of: HashMap<u64, Exported>,
    pub(crate) spans: u64,
    /// Single-span traces of a policy's own function that were kept through the handle.
    pub(crate) inside_by_hand: u64,
    ids: std::collections::HashSet<[u8; 8]>,
    pub(crate) faults: Vec<String>,
}

/// Checks each exported span.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checker(pub(crate) Arc<Mutex<ExportedTraces>>);

impl SpanExporter for Checker {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let mut seen = self.0.lock().unwrap();
        batch.iter().for_each(|span| seen.look(span));
        Ok(())
    }
}

/// Whether a trace that was kept late counts as many calls by its attribute as by its tracestate:
/// none without a threshold.
fn has_late_weight(count: Option<&Value>, state: Option<&str>) -> bool {
    let Some(th) = state.map(|state| state.strip_prefix("th:")) else {
        return count == Some(&Value::F64(0.0));
    };
    let rejected = th.and_then(|th| u64::from_str_radix(&format!("{th:0<14}"), 16).ok());
    let calls = rejected.map(|rejected| 2_f64.powi(56) / (2_f64.powi(56) - rejected as f64));
    matches!((count, calls), (Some(Value::F64(count)), Some(calls)) if (count / calls - 1.0).abs() < 1e-9)
}

impl ExportedTraces {
    fn look(&mut self, span: &SpanData) {
        self.spans += 1;
        let value = |name: &str| {
            let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
            found.map(|attribute| attribute.value.clone())
        };
        if !self.ids.insert(span.span_context.span_id().to_bytes()) {
            self.faults.push(format!("exported twice: {span:?}"));
        }
        let reason = value("sampling.reason").map(|reason| reason.to_string());
        let number = match value("request") {
            Some(Value::I64(number)) => number as u64,
            Some(Value::String(text)) => text.as_str().parse().unwrap_or(0),
            // A span of a policy's own function.
            _ => {
                self.inside_by_hand += u64::from(reason.as_deref() == Some("hand"));
                return;
            }
        };
        let state = span.span_context.trace_state();
        let weight = state.get("ot").map(str::to_owned);
        let count = value("sampler.adjusted_count");
        let is_true = match &reason {
            Some(_) => has_late_weight(count.as_ref(), weight.as_deref()) && !span.span_context.is_sampled(),
            None => weight.is_some_and(|weight| weight.starts_with("th:")) && span.span_context.is_sampled(),
        };
        if !is_true {
            self.faults.push(format!("{reason:?} with {count:?}, {state:?}, {:?}", span.span_context));
        }
        let known = self.of.get(&number).cloned();
        let is_root = KEYS.contains(&&*span.name);
        let cut = match value("sampling.spans_cut") {
            Some(Value::I64(cut)) => cut as u64,
            _ => 0,
        };
        let mut trace = known.unwrap_or_else(|| Exported { reason: reason.clone(), ..Exported::default() });
        // A span that ends late follows the last kept part of its trace.
        let is_shared = u128::from_be_bytes(span.span_context.trace_id().to_bytes()) <= SHARED_IDS;
        if trace.reason != reason && !is_shared || trace.has_root && is_root {
            self.faults.push(format!("request {number}: {trace:?}, and then {reason:?}, {is_root}"));
        }
        trace.spans += 1;
        trace.has_root |= is_root;
        trace.cut += cut;
        self.of.insert(number, trace);
    }
}
