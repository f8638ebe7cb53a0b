//! The observer of the layer that is compared. It numbers roots in the order in which they are
//! decided, as the reference does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use astracer_sdk::{ObservedSpan, Observer};
use opentelemetry::{Context, TraceId};
use tracing::Event;

/// A call, with the number that the span then has. Release: the number that it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Root(u32),
    Begin(u32),
    Enter(u32),
    Exit(u32),
    Event(u32),
    Release(u32),
    End(u32),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Flows(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    last: u32,
    calls: Vec<Call>,
    /// The trace of each number's root, and the number of spans that have it.
    flows: HashMap<u32, (TraceId, u32)>,
    /// The numbers of open spans.
    spans: HashMap<(u64, u64), u32>,
    problems: Vec<String>,
}

impl Flows {
    /// The calls since the last time, sorted: layer and reference may end several spans in one step
    /// in different orders.
    pub(crate) fn take(&self) -> Vec<Call> {
        let mut calls = std::mem::take(&mut self.0.lock().unwrap().calls);
        calls.sort();
        calls
    }

    /// Checks that each span had its root's number, and if no span is `open`, that none has one.
    pub(crate) fn account(&self, open: u64) -> Result<(), String> {
        let state = self.0.lock().unwrap();
        let is_exact = state.problems.is_empty() && (open > 0 || state.flows.is_empty());
        if is_exact { Ok(()) } else { Err(format!("flows: {state:?}")) }
    }

    fn with(&self, span: &ObservedSpan<'_>, call: fn(u32) -> Call, f: impl FnOnce(&mut State)) -> u32 {
        let (mut state, flow) = (self.0.lock().unwrap(), span.flow());
        state.calls.push(call(flow));
        let root = state.flows.get(&flow).map(|(trace, _)| *trace);
        // Refused spans of dropped traces share an entry, and with it a trace.
        let is_exempt = !span.is_recorded() && !span.is_root();
        if root.is_none_or(|root| root != span.trace_id() && !is_exempt) {
            let problem = format!("{:?} of a root in {root:?}: {span:?}", call(flow));
            state.problems.push(problem);
        }
        f(&mut state);
        flow
    }

    fn check_number(state: &mut State, span: &ObservedSpan<'_>) {
        if state.spans.get(&span.key()) != Some(&span.flow()) {
            state.problems.push(format!("another number than at the beginning: {span:?}"));
        }
    }
}

impl State {
    fn release(&mut self, flow: u32) {
        match self.flows.get_mut(&flow) {
            Some((_, 1)) => _ = self.flows.remove(&flow),
            Some((_, count)) => *count -= 1,
            None => self.problems.push(format!("{flow} is released once more")),
        }
    }
}

impl Observer for Flows {
    fn root(&self, root: &ObservedSpan<'_>, _: Option<&Context>) -> u32 {
        let mut state = self.0.lock().unwrap();
        state.last += 1;
        let flow = state.last;
        state.flows.insert(flow, (root.trace_id(), 1));
        state.spans.insert(root.key(), flow);
        state.calls.push(Call::Root(flow));
        flow
    }

    fn begin(&self, span: &ObservedSpan<'_>) -> u32 {
        self.with(span, Call::Begin, |state| {
            if let Some((_, count)) = state.flows.get_mut(&span.flow()) {
                *count += 1;
            }
            state.spans.insert(span.key(), span.flow());
        })
    }

    fn enter(&self, span: &ObservedSpan<'_>) -> u32 {
        self.with(span, Call::Enter, |state| Self::check_number(state, span))
    }

    fn exit(&self, span: &ObservedSpan<'_>) {
        self.with(span, Call::Exit, |state| Self::check_number(state, span));
    }

    fn event(&self, span: &ObservedSpan<'_>, _: &Event<'_>) {
        self.with(span, Call::Event, |state| Self::check_number(state, span));
    }

    fn end(&self, span: &ObservedSpan<'_>) {
        self.with(span, Call::End, |state| {
            Self::check_number(state, span);
            state.spans.remove(&span.key());
            state.release(span.flow());
        });
    }

    fn release(&self, flow: u32) {
        let mut state = self.0.lock().unwrap();
        state.calls.push(Call::Release(flow));
        state.release(flow);
    }
}

/// An observer without a lock, for many threads: a flow's number is made of its root's trace id.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Spans that have a number.
    pub(crate) spans: AtomicI64,
    /// Calls for a span with the number of another trace.
    pub(crate) wrong: AtomicU64,
}

fn number_of(trace: TraceId) -> u32 {
    u128::from_be_bytes(trace.to_bytes()) as u32 | 1
}

impl Counted {
    fn check(&self, span: &ObservedSpan<'_>) -> u32 {
        if span.flow() != number_of(span.trace_id()) {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
        span.flow()
    }
}

impl Observer for Counted {
    fn root(&self, root: &ObservedSpan<'_>, _: Option<&Context>) -> u32 {
        self.spans.fetch_add(1, Ordering::Relaxed);
        number_of(root.trace_id())
    }

    fn begin(&self, span: &ObservedSpan<'_>) -> u32 {
        self.spans.fetch_add(1, Ordering::Relaxed);
        self.check(span)
    }

    fn enter(&self, span: &ObservedSpan<'_>) -> u32 {
        self.check(span)
    }

    fn exit(&self, span: &ObservedSpan<'_>) {
        self.check(span);
    }

    fn event(&self, span: &ObservedSpan<'_>, _: &Event<'_>) {
        self.check(span);
    }

    fn end(&self, span: &ObservedSpan<'_>) {
        self.check(span);
        self.spans.fetch_sub(1, Ordering::Relaxed);
    }

    fn release(&self, _: u32) {
        self.spans.fetch_sub(1, Ordering::Relaxed);
    }
}
