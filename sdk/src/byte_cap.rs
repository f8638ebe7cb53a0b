//! The cap on exported bytes, applied before the exporter. The spans of a trace in one batch are
//! exported together, or refused together and counted.
//!
//! A trace's bytes are known only when it is exported, so this cap cannot raise thresholds. The
//! traces that it refuses were kept with a weight, and sums of weights miss them. It is for
//! emergencies; a cap on traces keeps weights true.
//!
//! A key's allowance covers traces that were counted by that key in this process. The total
//! allowance alone covers traces that a parent decided, that began before such a cap was set, or
//! that a policy kept late.

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
use crate::steering::ExportedBytes;
use crate::trace_state::State;

/// Keys with a meter of their own. Further keys share one meter with the forgotten ones.
const KEYS_MAX: usize = 10_000;

/// An exporter behind the cap.
#[derive(Debug)]
pub(crate) struct ByteCapped {
    inner: Box<dyn Export>,
    decider: Arc<Decider>,
    meters: Mutex<Meters>,
    /// Counts the exported bytes, for a budget.
    exported_bytes: Option<Arc<ExportedBytes>>,
}

#[derive(Debug, Default)]
struct Meters {
    all: Meter,
    by_key: HashMap<KeyHash, Meter>,
    others: Meter,
    /// The total and the per-key allowance that were applied last.
    last: [Option<Allowance>; 2],
}

impl Meters {
    /// Clamps the meters' debt when the allowances change; the credit is carried over.
    fn take_over(&mut self, cap: &Cap, now: Nanos) {
        let next = [cap.bytes, cap.key_bytes];
        if self.last == next {
            return;
        }
        self.last = next;
        if let Some(allowance) = &cap.bytes {
            self.all.clamp_debt(allowance, now);
        }
        if let Some(allowance) = &cap.key_bytes {
            self.by_key.values().chain([&self.others]).for_each(|meter| meter.clamp_debt(allowance, now));
        }
    }

    fn of(&mut self, key: KeyOf) -> Option<&mut Meter> {
        match key {
            KeyOf::NoKey => None,
            KeyOf::Forgotten => Some(&mut self.others),
            KeyOf::Key(hash) if self.by_key.len() >= KEYS_MAX && !self.by_key.contains_key(&hash) => {
                Some(&mut self.others)
            }
            KeyOf::Key(hash) => Some(self.by_key.entry(hash).or_default()),
        }
    }
}

impl ByteCapped {
    pub(crate) fn new(
        inner: Box<dyn Export>,
        decider: Arc<Decider>,
        exported_bytes: Option<Arc<ExportedBytes>>,
    ) -> Self {
        ByteCapped { inner, decider, meters: Mutex::default(), exported_bytes }
    }

    /// Counts exported bytes.
    fn count_exported(&self, bytes: u64) {
        if let Some(exported_bytes) = &self.exported_bytes {
            exported_bytes.add(bytes);
        }
    }

    fn admits(&self, cap: &Cap, trace: &[SpanData], bytes: u64) -> bool {
        // A trace that was kept late is outside the keys' allowances, because its policy has an
        // allowance of its own. The total still applies.
        let ids = &trace[0].span_context;
        let of_key = cap.key_bytes.filter(|_| ids.is_sampled());
        let of_key = of_key.map(|allowance| (allowance, self.decider.kept_key(ids.trace_id())));
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.decider.now();
        meters.take_over(cap, now);
        // If the total then refuses the trace, the key's meter has lost that credit for nothing.
        // Both bounds still hold.
        if let Some((allowance, key)) = of_key
            && let Some(meter) = meters.of(key)
            && !meter.admit(&allowance, bytes, now)
        {
            return false;
        }
        cap.bytes.is_none_or(|allowance| meters.all.admit(&allowance, bytes, now))
    }
}

/// The local roots in a trace's spans, and the calls that they represent. A root below a span of
/// OpenTelemetry's API in this process cannot be told apart from a child.
fn roots_of(trace: &[SpanData]) -> Refused {
    let is_root = |span: &&SpanData| span.parent_span_id == SpanId::INVALID || span.parent_span_is_remote;
    let calls = |span: &SpanData| {
        // A trace that was kept late represents calls only if it has a weight.
        let ids = &span.span_context;
        let state = State::of(ids.trace_state());
        let is_counted = ids.is_sampled() || state.threshold().is_some();
        if is_counted { (state.calls() * 1e3) as u64 } else { 0 }
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
            // Measure spans only if a budget needs their size.
            if self.exported_bytes.is_some() {
                self.count_exported(bytes_of(&batch));
            }
            return self.inner.export(batch);
        }
        let all = batch.len();
        let of_one_trace =
            |a: &SpanData, b: &SpanData| a.span_context.trace_id() == b.span_context.trace_id();
        let traces = batch.chunk_by(of_one_trace);
        let (mut exported_bytes, mut roots) = (0, Refused::default());
        let mut admit = |trace: &[SpanData]| {
            let bytes = bytes_of(trace);
            let is_admitted = self.admits(&cap, trace, bytes);
            if is_admitted {
                exported_bytes += bytes;
            } else {
                let own = roots_of(trace);
                roots.roots += own.roots;
                roots.milli_calls = roots.milli_calls.saturating_add(own.milli_calls);
            }
            vec![is_admitted; trace.len()]
        };
        let admitted: Vec<bool> = traces.flat_map(&mut admit).collect();
        self.count_exported(exported_bytes);
        let mut admitted = admitted.into_iter();
        batch.retain(|_| admitted.next().unwrap_or(true));
        let refused = (all - batch.len()) as u64;
        let mut exported = if batch.is_empty() { Exported::default() } else { self.inner.export(batch) };
        exported.lost.capped += refused;
        exported.refused = roots;
        if refused > 0 && exported.error.is_none() {
            exported.error = Some(format!("the cap on exported bytes was used up: {refused} spans lost"));
        }
        exported
    }

    fn waiting(&self) -> Option<String> {
        self.inner.waiting()
    }

    fn unanswered(&self) -> Option<String> {
        self.inner.unanswered()
    }

    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }

    fn undelivered(&self) -> Option<String> {
        self.inner.undelivered()
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
