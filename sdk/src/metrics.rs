//! Counts and states as OpenTelemetry metrics. Read when a reader asks; nothing here makes a span.

use std::sync::Weak;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};

use crate::core::Shared;
use crate::handle::Handle;
use crate::steering::KeyStats;

/// The keys that are told apart, those with the most calls first: OpenTelemetry's readers take 2,000 sets of attributes of an
/// instrument by default, and there are up to six for a key.
const KEYS_MAX: usize = 300;
/// The name under which all other keys are added up.
const OTHERS: &str = "_OTHER";

impl Handle {
    /// Makes counts and states known to a meter, for as long as the service runs:
    ///
    /// - `astracer.roots` (counter): local roots of a key (`key`) by `decision` (`kept`, `dropped`) and `reason` (`sampler`, `cap`,
    ///   `cap_empty`, `override`): the exact numbers, of which kept traces are a sample;
    /// - `astracer.probability` and `astracer.tokens` (gauges): the state of a key;
    /// - `astracer.keys.overflowed` (counter): roots of keys without a record of their own;
    /// - `astracer.cap.level` (gauge): the part of the cap's credit that is there, from 0 to 1;
    /// - `astracer.spans` (counter by `state`): `exported`, and `lost` by `reason`; `astracer.spans.waiting` (gauge).
    ///
    /// The 300 keys with the most roots are told apart; the others are added up as `_OTHER`.
    pub fn register_metrics(&self, meter: &Meter) {
        let Some(shared) = self.shared_weak() else { return };
        let with = move |shared: &Weak<Shared>| shared.upgrade();
        let weak = shared.clone();
        let roots = meter.u64_observable_counter("astracer.roots").with_unit("{root}");
        roots
            .with_callback(move |observer| {
                let Some(shared) = with(&weak) else { return };
                for stats in top(shared.steering().keys(shared.decider())) {
                    observe_roots(observer, &stats);
                }
            })
            .build();
        let weak = shared.clone();
        meter
            .f64_observable_gauge("astracer.probability")
            .with_callback(move |observer| each_state(&weak, observer, |stats| stats.probability))
            .build();
        let weak = shared.clone();
        meter
            .f64_observable_gauge("astracer.tokens")
            .with_callback(move |observer| each_state(&weak, observer, |stats| stats.tokens))
            .build();
        let weak = shared.clone();
        meter
            .u64_observable_counter("astracer.keys.overflowed")
            .with_callback(move |observer| {
                let Some(shared) = with(&weak) else { return };
                let snapshot = shared.decider().sampler().snapshot();
                observer.observe(snapshot.map_or(0, |snapshot| snapshot.overflow.seen()), &[]);
            })
            .build();
        let weak = shared.clone();
        meter
            .f64_observable_gauge("astracer.cap.level")
            .with_callback(move |observer| {
                let Some(shared) = with(&weak) else { return };
                if let Some(level) = shared.decider().sampler().cap_level(shared.decider().now()) {
                    observer.observe(level, &[]);
                }
            })
            .build();
        let weak = shared.clone();
        meter
            .u64_observable_counter("astracer.spans")
            .with_callback(move |observer| {
                let Some(shared) = with(&weak) else { return };
                let stats = shared.stats();
                observer.observe(stats.spans_exported, &[KeyValue::new("state", "exported")]);
                for (reason, spans) in stats.spans_lost.iter() {
                    let attributes = [KeyValue::new("state", "lost"), KeyValue::new("reason", reason)];
                    observer.observe(spans, &attributes);
                }
            })
            .build();
        meter
            .u64_observable_gauge("astracer.spans.waiting")
            .with_callback(move |observer| {
                let Some(shared) = with(&shared) else { return };
                observer.observe(shared.stats().spans_waiting, &[]);
            })
            .build();
    }
}

/// The keys with the most roots, and all others as one.
fn top(mut keys: Vec<KeyStats>) -> Vec<KeyStats> {
    keys.sort_by(|a, b| (a.key.is_none(), b.seen).cmp(&(b.key.is_none(), a.seen)));
    let mut others = KeyStats::default();
    let beyond = keys.len().min(KEYS_MAX);
    for stats in keys.drain(beyond..).collect::<Vec<_>>() {
        others.join(&stats);
    }
    if let Some(last) = keys.pop_if(|last| last.key.is_none()) {
        others.join(&last);
    }
    if others.seen > 0 {
        keys.push(others);
    }
    keys
}

fn name(stats: &KeyStats) -> KeyValue {
    KeyValue::new("key", stats.key.clone().unwrap_or_else(|| OTHERS.to_owned()))
}

fn observe_roots(observer: &dyn AsyncInstrument<u64>, stats: &KeyStats) {
    let by_override = stats.kept_by_override.min(stats.kept);
    let counts = [
        ("kept", "sampler", stats.kept - by_override),
        ("kept", "override", by_override),
        ("dropped", "sampler", stats.dropped_by_sampler()),
        ("dropped", "cap", stats.dropped_by_cap),
        ("dropped", "cap_empty", stats.dropped_by_empty_cap),
        ("dropped", "override", stats.dropped_by_override),
    ];
    for (decision, reason, count) in counts {
        // Two are always there, so that a rate can be computed from the first call on.
        if count > 0 || reason == "sampler" {
            let attributes =
                [name(stats), KeyValue::new("decision", decision), KeyValue::new("reason", reason)];
            observer.observe(count, &attributes);
        }
    }
}

fn each_state(shared: &Weak<Shared>, observer: &dyn AsyncInstrument<f64>, of: fn(&KeyStats) -> Option<f64>) {
    let Some(shared) = shared.upgrade() else { return };
    for stats in top(shared.steering().keys(shared.decider())) {
        if let (Some(value), true) = (of(&stats), stats.key.is_some()) {
            observer.observe(value, &[name(&stats)]);
        }
    }
}
