//! X-Trace: the events of kept traces, with the events that each of them followed (Fonseca et al.,
//! "X-Trace: A Pervasive Network Tracing Framework", NSDI 2007).
//!
//! A flow of a kept trace has its task and its last events in its baggage. Where a flow begins,
//! forks, joins, sends or ends, and at each event of `tracing`, a span gets an event with an id of
//! its own and the ids before it. The baggage then has the new id.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};

use astracer_sdk::thread_id;
use opentelemetry::{Array, KeyValue, StringValue, TraceId, Value};
use tracing::Metadata;

use crate::baggage::Baggage;
use crate::registry::{Namespace, Registry};

const NAMESPACE: &str = "astracer.xtrace";
/// The slot with the low 8 bytes of the trace's id.
const TASK: &[u8] = b"task";
/// The slot with the ids of the last events.
const EVENT: &[u8] = b"event";

/// Counts of X-Trace's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct XTraceStats {
    /// Events that spans have.
    pub events: u64,
    /// Events that the limits of spans cut. Those after them follow the ones before them.
    pub cut: u64,
    /// Events that were left out because the thread was in no recorded span of the task.
    pub unplaced: u64,
    /// Times that a flow got a second task: from another trace, or from a caller whose trace does
    /// not go on. It keeps its own.
    pub mixed: u64,
}

pub(crate) struct XTrace {
    own: Namespace,
    events: AtomicU64,
    cut: AtomicU64,
    unplaced: AtomicU64,
    mixed: AtomicU64,
}

impl fmt::Debug for XTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XTrace").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl XTrace {
    pub(crate) fn new(registry: &Registry) -> Self {
        XTrace {
            own: registry.reserved(NAMESPACE, i8::MAX - 1),
            events: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            unplaced: AtomicU64::new(0),
            mixed: AtomicU64::new(0),
        }
    }

    pub(crate) fn stats(&self) -> XTraceStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        XTraceStats {
            events: load(&self.events),
            cut: load(&self.cut),
            unplaced: load(&self.unplaced),
            mixed: load(&self.mixed),
        }
    }

    /// Whether a flow follows a task.
    pub(crate) fn is_in(&self, flow: &Baggage) -> bool {
        flow.has(&self.own, TASK)
    }

    /// Lets a flow of this trace go on to its next event.
    pub(crate) fn advance(&self, flow: &mut Baggage, trace: TraceId) -> Step {
        self.claim(flow, trace);
        let step = Step {
            id: random().max(1).to_be_bytes(),
            before: flow.get(&self.own, EVENT).map(Into::into).collect(),
        };
        flow.replace(&self.own, EVENT, [&step.id[..]]);
        step
    }

    /// Counts an event. If it is not `kept`, the flow's last events are again those before it.
    pub(crate) fn settle(&self, flow: &mut Baggage, step: &Step, kept: Option<bool>) {
        let is_last = flow.get(&self.own, EVENT).eq([&step.id[..]]);
        if is_last {
            flow.replace(&self.own, EVENT, step.before.iter().map(|id| &**id));
        }
        self.count(kept);
    }

    pub(crate) fn count(&self, kept: Option<bool>) {
        let count = match kept {
            Some(true) => &self.events,
            Some(false) => &self.cut,
            None => &self.unplaced,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the flow one of this trace.
    fn claim(&self, flow: &mut Baggage, trace: TraceId) {
        let task = &trace.to_bytes()[8..];
        let mut tasks = flow.get(&self.own, TASK);
        match (tasks.next(), tasks.next()) {
            (Some(known), None) if known == task => return,
            (None, _) => {}
            _ => _ = self.mixed.fetch_add(1, Ordering::Relaxed),
        }
        drop(tasks);
        flow.replace(&self.own, TASK, [task]);
    }
}

/// An event of a flow, and the ids of the events directly before it.
pub(crate) struct Step {
    id: [u8; 8],
    before: Vec<Box<[u8]>>,
}

impl Step {
    /// The attributes of the event of a span, at this place in the code.
    pub(crate) fn attributes(&self, place: Option<&'static Metadata<'static>>) -> Vec<KeyValue> {
        let parents: Vec<StringValue> = self.before.iter().map(|id| hex(id).into()).collect();
        let mut attributes = Vec::with_capacity(5);
        attributes.push(KeyValue::new("xtrace.event", hex(&self.id)));
        attributes.push(KeyValue::new("xtrace.parents", Value::Array(Array::String(parents))));
        attributes.push(KeyValue::new("thread.id", thread_id()));
        if let Some((file, line)) = place.and_then(|place| place.file().zip(place.line())) {
            attributes.push(KeyValue::new("code.file.path", file));
            attributes.push(KeyValue::new("code.line.number", i64::from(line)));
        }
        attributes
    }
}

/// Untrusted bytes as hexadecimal digits; at most 16 bytes.
fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    let mut text = String::with_capacity(16);
    for byte in bytes.iter().take(16) {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

/// A random number, by SplitMix64 from a random start in each thread.
fn random() -> u64 {
    thread_local!(static STATE: std::cell::Cell<u64> = std::cell::Cell::new(RandomState::new().build_hasher().finish()));
    let next = STATE.try_with(|state| {
        state.set(state.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        state.get()
    });
    let mut mixed = next.unwrap_or_else(|_| RandomState::new().build_hasher().finish());
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
