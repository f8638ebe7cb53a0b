//! The cap on exported bytes, applied before the destination. The spans of a trace in one batch are
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
use std::sync::Arc;

use astracer_samplers::{Allowance, Cap, Meter, Nanos};
use opentelemetry::TraceId;

use crate::decider::Decider;
use crate::kept_keys::{KeyHash, KeyOf};
use astracer_spans::export::Admission;
use astracer_spans::sync::statics::{AtomicU64, Ordering};
use astracer_spans::sync::{Mutex, lock};

/// Keys with a meter of their own. Further keys share one meter with the forgotten ones.
const KEYS_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct ByteCap {
    decider: Arc<Decider>,
    meters: Mutex<Meters>,
    exported_bytes: Option<Arc<AtomicU64>>,
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

impl ByteCap {
    pub(crate) fn new(decider: Arc<Decider>, exported_bytes: Option<Arc<AtomicU64>>) -> Self {
        ByteCap { decider, meters: Mutex::default(), exported_bytes }
    }

    fn is_within(&self, cap: &Cap, trace_id: TraceId, is_late: bool, bytes: u64) -> bool {
        // A trace that was kept late is outside the keys' allowances, because its policy has an
        // allowance of its own. The total still applies.
        let of_key = cap.key_bytes.filter(|_| !is_late);
        let of_key = of_key.map(|allowance| (allowance, self.decider.kept_key(trace_id)));
        let mut meters = lock(&self.meters);
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

impl Admission for ByteCap {
    fn admits(&self, trace_id: TraceId, is_late: bool, bytes: &dyn Fn() -> u64) -> bool {
        let cap = self.decider.sampler().cap().own_share();
        let is_capped = cap.bytes.is_some() || cap.key_bytes.is_some();
        if !is_capped && self.exported_bytes.is_none() {
            return true;
        }
        let bytes = bytes();
        let is_admitted = !is_capped || self.is_within(&cap, trace_id, is_late, bytes);
        if let Some(exported_bytes) = self.exported_bytes.as_ref().filter(|_| is_admitted) {
            exported_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        is_admitted
    }
}
