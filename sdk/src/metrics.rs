//! Counts and states as OpenTelemetry metrics, collected when a metrics reader asks for them. This
//! code makes no spans.

use std::cmp::Reverse;
use std::sync::Weak;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};

use crate::core::Shared;
use crate::handle::Handle;
use crate::steering::KeyStats;
use crate::sync::{Mutex, lock};
use crate::totals::Totals;

impl Handle {
    /// Registers counts and states with a meter:
    ///
    /// - `astracer.roots` (counter): local roots of a key (`key`) by `decision` (`kept`, `dropped`)
    ///   and `reason` (`sampler`, `cap`, `cap_empty`, `override`). These are the exact numbers, of
    ///   which kept traces are a sample.
    /// - `astracer.probability` and `astracer.tokens` (gauges): the state of a key.
    /// - `astracer.keys.overflowed` (counter): roots of keys without a record of their own.
    /// - `astracer.cap.level` (gauge): the remaining part of the cap's credit, from 0 to 1.
    /// - `astracer.spans` (counter by `state`): `exported`, and `lost` by `reason`;
    ///   `astracer.spans.waiting` (gauge).
    ///
    /// The first 300 keys are reported separately, those with the most roots first; the others are
    /// added up as `_OTHER`. Counters never fall: a key continues from its last value when its
    /// record is evicted or the sampler is replaced. The instruments keep working for as long as
    /// the layer exists.
    pub fn register_metrics(&self, meter: &Meter) {
        let Some(shared) = self.shared_weak() else { return };
        let with = move |shared: &Weak<Shared>| shared.upgrade();
        let weak = shared.clone();
        let reported = Mutex::new(ReportedRoots::new());
        let roots = meter.u64_observable_counter("astracer.roots").with_unit("{root}");
        roots
            .with_callback(move |observer| {
                let Some(shared) = with(&weak) else { return };
                let mut reported = lock(&reported);
                reported.note(&shared.steering().keys(shared.decider()));
                for (key, counts) in reported.totals.each() {
                    observe_roots(observer, Some(key), counts);
                }
                if reported.others != Roots::default() {
                    observe_roots(observer, None, reported.others);
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
        let overflowed = Mutex::new(Sum::default());
        meter
            .u64_observable_counter("astracer.keys.overflowed")
            .with_callback(move |observer| {
                let Some(shared) = with(&weak) else { return };
                let mut overflowed = lock(&overflowed);
                let snapshot = shared.decider().sampler().snapshot();
                overflowed.note(snapshot.map_or(0, |snapshot| snapshot.overflow.seen()));
                observer.observe(overflowed.all(), &[]);
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

/// The maximum number of keys with their own series. OpenTelemetry's readers accept 2,000 attribute
/// sets per instrument by default, and a key has up to six.
const KEYS_MAX: usize = 300;

/// Decisions and their reasons, in the order of [`Roots`].
const DECISIONS: [(&str, &str); 6] = [
    ("kept", "sampler"),
    ("kept", "override"),
    ("dropped", "sampler"),
    ("dropped", "cap"),
    ("dropped", "cap_empty"),
    ("dropped", "override"),
];

/// Counts by decision.
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
    totals: Totals<{ DECISIONS.len() }>,
    others: Roots,
}

impl ReportedRoots {
    fn new() -> Self {
        ReportedRoots { totals: Totals::new(roots), others: Roots::default() }
    }

    fn note(&mut self, all: &[KeyStats]) {
        self.totals.note(all, KEYS_MAX);
        let left = self.totals.others(all);
        self.others.iter_mut().zip(left).for_each(|(others, left)| *others = (*others).max(left));
    }
}

/// A running sum over a counter that may restart.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// The total before the last restart.
    before: u64,
    now: u64,
}

impl Sum {
    fn note(&mut self, count: u64) {
        if count < self.now {
            self.before += self.now;
        }
        self.now = count;
    }

    fn all(self) -> u64 {
        self.before + self.now
    }
}

/// The name under which all other keys are added up.
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

fn each_state(shared: &Weak<Shared>, observer: &dyn AsyncInstrument<f64>, of: fn(&KeyStats) -> Option<f64>) {
    let Some(shared) = shared.upgrade() else { return };
    let mut keys = shared.steering().keys(shared.decider());
    keys.retain(|stats| stats.key.is_some());
    keys.sort_by_key(|stats| Reverse(stats.seen));
    for stats in keys.iter().take(KEYS_MAX) {
        if let Some(value) = of(stats) {
            observer.observe(value, &[named(stats.key.as_deref())]);
        }
    }
}
