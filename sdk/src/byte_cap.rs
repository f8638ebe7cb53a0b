//! The cap on bytes, before the exporter: a trace's part in a batch is exported whole, or not at
//! all and counted.
//!
//! A trace's bytes are known when it is exported, so this bound does not raise thresholds: what it
//! refuses was kept with a weight, and is missing from sums of weights. It is for emergencies; a
//! cap on traces keeps weights true.
//!
//! A key's allowance is for traces that were counted by that key here. Those that a parent decided,
//! that began before there was such a cap, or that a policy kept late are in the allowance of all
//! bytes alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use astracer_samplers::{Allowance, Cap, Meter, Nanos};
use opentelemetry::SpanId;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::SpanData;

use crate::decider::Decider;
use crate::export::{Export, Exported, Refused};
use crate::kept_keys::{KeyHash, KeyOf};
use crate::otlp_size;
use crate::steering::Spent;
use crate::trace_state::State;

/// Keys with a meter of their own; further ones share one, with those that are forgotten.
const KEYS_MAX: usize = 10_000;

/// An exporter behind the cap.
#[derive(Debug)]
pub(crate) struct ByteCapped {
    inner: Box<dyn Export>,
    decider: Arc<Decider>,
    meters: Mutex<Meters>,
    /// The bytes that go out, for a budget.
    spent: Option<Arc<Spent>>,
}

#[derive(Debug, Default)]
struct Meters {
    all: Meter,
    by_key: HashMap<KeyHash, Meter>,
    others: Meter,
    /// The allowances of all bytes and of each key that were at work last.
    last: [Option<Allowance>; 2],
}

impl Meters {
    /// Goes on with the credit that is there where the allowances are others than before.
    fn take_over(&mut self, cap: &Cap, now: Nanos) {
        let next = [cap.bytes, cap.key_bytes];
        if self.last == next {
            return;
        }
        self.last = next;
        if let Some(allowance) = &cap.bytes {
            self.all.owes_at_most(allowance, now);
        }
        if let Some(allowance) = &cap.key_bytes {
            self.by_key.values().chain([&self.others]).for_each(|meter| meter.owes_at_most(allowance, now));
        }
    }

    fn of(&mut self, key: KeyOf) -> Option<&mut Meter> {
        match key {
            KeyOf::Nobody => None,
            KeyOf::Forgotten => Some(&mut self.others),
            KeyOf::Key(hash) if self.by_key.len() >= KEYS_MAX && !self.by_key.contains_key(&hash) => {
                Some(&mut self.others)
            }
            KeyOf::Key(hash) => Some(self.by_key.entry(hash).or_default()),
        }
    }
}

impl ByteCapped {
    pub(crate) fn new(inner: Box<dyn Export>, decider: Arc<Decider>, spent: Option<Arc<Spent>>) -> Self {
        ByteCapped { inner, decider, meters: Mutex::default(), spent }
    }

    /// Counts bytes that go out.
    fn spend(&self, bytes: u64) {
        if let Some(spent) = &self.spent {
            spent.add(bytes);
        }
    }

    fn admits(&self, cap: &Cap, trace: &[SpanData], bytes: u64) -> bool {
        // A trace that was kept late is in no key's allowance: its policy has one. The bound of all
        // holds for it too.
        let ids = &trace[0].span_context;
        let of_key = cap.key_bytes.filter(|_| ids.is_sampled());
        let of_key = of_key.map(|allowance| (allowance, self.decider.kept_key(ids.trace_id())));
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.decider.now();
        meters.take_over(cap, now);
        // The key's meter loses the credit of a trace that the meter of all then refuses: the
        // bounds hold all the same.
        if let Some((allowance, key)) = of_key
            && let Some(meter) = meters.of(key)
            && !meter.admit(&allowance, bytes, now)
        {
            return false;
        }
        cap.bytes.is_none_or(|allowance| meters.all.admit(&allowance, bytes, now))
    }
}

/// The local roots of a trace's part, and the calls that they stand for. A root below a span of
/// OpenTelemetry's API in this process is not told apart from its children.
fn roots_of(trace: &[SpanData]) -> Refused {
    let is_root = |span: &&SpanData| span.parent_span_id == SpanId::INVALID || span.parent_span_is_remote;
    let calls = |span: &SpanData| {
        // A trace that was kept late stands for none.
        let ids = &span.span_context;
        if ids.is_sampled() { (State::of(ids.trace_state()).calls() * 1e3) as u64 } else { 0 }
    };
    let roots = trace.iter().filter(is_root);
    roots.fold(Refused::default(), |sum, root| Refused {
        roots: sum.roots + 1,
        milli_calls: sum.milli_calls.saturating_add(calls(root)),
    })
}

fn bytes_of(spans: &[SpanData]) -> u64 {
    spans.iter().map(otlp_size::of_span).sum::<usize>() as u64
}

impl Export for ByteCapped {
    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }

    fn export(&self, mut batch: Vec<SpanData>) -> Exported {
        let cap = self.decider.sampler().cap().own_share();
        if cap.bytes.is_none() && cap.key_bytes.is_none() {
            // Spans are measured only for somebody who asks.
            if self.spent.is_some() {
                self.spend(bytes_of(&batch));
            }
            return self.inner.export(batch);
        }
        let all = batch.len();
        let of_one_trace =
            |a: &SpanData, b: &SpanData| a.span_context.trace_id() == b.span_context.trace_id();
        let traces = batch.chunk_by(of_one_trace);
        let (mut spent, mut roots) = (0, Refused::default());
        let mut admit = |trace: &[SpanData]| {
            let bytes = bytes_of(trace);
            let is_admitted = self.admits(&cap, trace, bytes);
            if is_admitted {
                spent += bytes;
            } else {
                let own = roots_of(trace);
                roots.roots += own.roots;
                roots.milli_calls = roots.milli_calls.saturating_add(own.milli_calls);
            }
            vec![is_admitted; trace.len()]
        };
        let admitted: Vec<bool> = traces.flat_map(&mut admit).collect();
        self.spend(spent);
        let mut admitted = admitted.into_iter();
        batch.retain(|_| admitted.next().unwrap_or(true));
        let refused = (all - batch.len()) as u64;
        let mut exported = if batch.is_empty() { Exported::default() } else { self.inner.export(batch) };
        exported.lost.capped += refused;
        exported.refused = roots;
        if refused > 0 && exported.error.is_none() {
            exported.error = Some(format!("the cap on exported bytes was used up: {refused} spans are lost"));
        }
        exported
    }

    fn waiting(&self) -> Option<String> {
        self.inner.waiting()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shut_down(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shut_down(timeout)
    }
}
