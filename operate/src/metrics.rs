//! Counts and states as OpenTelemetry metrics, collected when a metrics reader asks for them. This
//! code makes no spans.

use std::cmp::Reverse;
use std::sync::{Mutex, MutexGuard, PoisonError};

use astracer_sdk::{Handle, KeyStats, KeyTotals};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};

pub(crate) fn register(handle: &Handle, meter: &Meter) {
    if !handle.is_enabled() {
        return;
    }
    let reported = Mutex::new(ReportedRoots { totals: KeyTotals::new(roots), others: Roots::default() });
    let roots = callback(handle, move |handle, observer| {
        let mut reported = lock(&reported);
        reported.note(&handle.keys());
        for (key, counts) in reported.totals.each() {
            observe_roots(observer, Some(key), counts);
        }
        if reported.others != Roots::default() {
            observe_roots(observer, None, reported.others);
        }
    });
    let overflowed = Mutex::new(Sum::default());
    let overflowed = callback(handle, move |handle, observer| {
        // Locked before the snapshot is taken, because an older one noted after a newer one looks
        // like a restart. Readers of one provider share this callback.
        let mut overflowed = lock(&overflowed);
        let seen = handle.snapshot().map_or(0, |snapshot| snapshot.overflow.seen());
        observer.observe(overflowed.note(seen), &[]);
    });
    let spans = callback(handle, |handle, observer| {
        let stats = handle.stats();
        observer.observe(stats.spans_exported, &[KeyValue::new("state", "exported")]);
        for (reason, spans) in stats.spans_lost.iter() {
            let attributes = [KeyValue::new("state", "lost"), KeyValue::new("reason", reason)];
            observer.observe(spans, &attributes);
        }
    });
    let probability =
        callback(handle, |handle, observer| each_state(handle, observer, |key| key.probability));
    let tokens = callback(handle, |handle, observer| each_state(handle, observer, |key| key.tokens));
    let cap_level = callback(handle, |handle, observer| {
        if let Some(level) = handle.cap_level() {
            observer.observe(level, &[]);
        }
    });
    let file_keys = callback(handle, |handle, observer| {
        if let Some(fit) = handle.file_fit() {
            observer.observe(fit.keys_seen, &[KeyValue::new("state", "seen")]);
            observer.observe(fit.keys - fit.keys_seen, &[KeyValue::new("state", "unseen")]);
        }
    });
    let file_size = callback(handle, |handle, observer| {
        if let Some(size) = handle.file_fit().and_then(|fit| fit.size) {
            observer.observe(size, &[]);
        }
    });
    let waiting = callback(handle, |handle, observer| observer.observe(handle.stats().spans_waiting, &[]));
    meter.u64_observable_counter("astracer.roots").with_unit("{root}").with_callback(roots).build();
    meter.f64_observable_gauge("astracer.probability").with_callback(probability).build();
    meter.f64_observable_gauge("astracer.tokens").with_callback(tokens).build();
    meter.u64_observable_counter("astracer.keys.overflowed").with_callback(overflowed).build();
    meter.f64_observable_gauge("astracer.cap.level").with_callback(cap_level).build();
    meter.u64_observable_gauge("astracer.file.keys").with_unit("{key}").with_callback(file_keys).build();
    meter.f64_observable_gauge("astracer.file.size").with_callback(file_size).build();
    meter.u64_observable_counter("astracer.spans").with_callback(spans).build();
    meter.u64_observable_gauge("astracer.spans.waiting").with_callback(waiting).build();
}

/// Observes for as long as the layer exists.
pub(crate) fn callback<T, F: Fn(&Handle, &dyn AsyncInstrument<T>) + Send + Sync>(
    handle: &Handle,
    observe: F,
) -> impl Fn(&dyn AsyncInstrument<T>) + Send + Sync + use<T, F> {
    let handle = handle.downgrade();
    move |observer| {
        if let Some(handle) = handle.upgrade() {
            observe(&handle, observer);
        }
    }
}

/// The maximum number of keys with their own series. OpenTelemetry's readers accept 2,000 attribute
/// sets per instrument by default, and a key has up to six.
const KEYS_MAX: usize = 300;

const DECISIONS: [(&str, &str); 6] = [
    ("kept", "sampler"),
    ("kept", "override"),
    ("dropped", "sampler"),
    ("dropped", "cap"),
    ("dropped", "cap_empty"),
    ("dropped", "override"),
];

type Roots = [u64; DECISIONS.len()];

fn roots(stats: &KeyStats) -> Roots {
    let by_override = stats.kept_by_override.min(stats.kept);
    [
        stats.kept - by_override,
        by_override,
        stats.dropped_by_sampler(),
        stats.dropped_by_cap,
        stats.dropped_by_empty_cap,
        stats.dropped_by_override,
    ]
}

/// Counts as they were reported to readers, none of which ever decreases: OpenTelemetry's SDK
/// computes differences between reports, and they would wrap around below 0. So a key with its own
/// series keeps it.
#[derive(Debug)]
struct ReportedRoots {
    totals: KeyTotals<{ DECISIONS.len() }>,
    others: Roots,
}

impl ReportedRoots {
    fn note(&mut self, all: &[KeyStats]) {
        self.totals.note(all, KEYS_MAX);
        let left = self.totals.others(all);
        self.others.iter_mut().zip(left).for_each(|(others, left)| *others = (*others).max(left));
    }
}

/// A running sum over a counter that may restart.
#[derive(Debug, Default)]
struct Sum {
    before: u64,
    now: u64,
}

impl Sum {
    /// Notes the counter's value, and returns the sum.
    fn note(&mut self, count: u64) -> u64 {
        if count < self.now {
            self.before += self.now;
        }
        self.now = count;
        self.before + count
    }
}

const OTHERS: &str = "_OTHER";

fn named(key: Option<&str>) -> KeyValue {
    KeyValue::new("key", key.unwrap_or(OTHERS).to_owned())
}

fn observe_roots(observer: &dyn AsyncInstrument<u64>, key: Option<&str>, counts: Roots) {
    for ((decision, reason), count) in DECISIONS.into_iter().zip(counts) {
        // The two series of the sampler are always reported, so that a rate can be computed from
        // the first call on.
        if count > 0 || reason == "sampler" {
            let attributes =
                [named(key), KeyValue::new("decision", decision), KeyValue::new("reason", reason)];
            observer.observe(count, &attributes);
        }
    }
}

fn each_state(handle: &Handle, observer: &dyn AsyncInstrument<f64>, of: fn(&KeyStats) -> Option<f64>) {
    let mut keys = handle.keys();
    keys.retain(|stats| stats.key.is_some());
    keys.sort_by_key(|stats| Reverse(stats.seen));
    for stats in keys.iter().take(KEYS_MAX) {
        if let Some(value) = of(stats) {
            observer.observe(value, &[named(stats.key.as_deref())]);
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
