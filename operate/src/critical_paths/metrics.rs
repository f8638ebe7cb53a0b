//! Critical paths as OpenTelemetry metrics.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use astracer_baggage::Flows;
use astracer_sdk::Handle;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};

use crate::metrics::{callback, lock};

/// A key, a function and a kind of time: a series of its own.
type Series = (Arc<str>, Arc<str>, &'static str);

/// The maximum number of such series.
const SERIES_MAX: usize = 300;

/// Registers counters, which never fall: what comes too late is added up as `_OTHER`.
pub(crate) fn register(handle: &Handle, meter: &Meter) {
    if handle.observer::<Flows>().and_then(Flows::critical_path).is_none() {
        return;
    }
    let named = Mutex::<HashSet<Arc<str>>>::default();
    let requests = callback(handle, move |handle, to: &dyn AsyncInstrument<u64>| {
        let mut named = lock(&named);
        let mut others = 0;
        for row in super::measured(handle).rows() {
            if named.contains(&row.key) || named.len() < SERIES_MAX && named.insert(row.key.clone()) {
                to.observe(row.requests, &[KeyValue::new("key", row.key)]);
            } else {
                others += row.requests;
            }
        }
        if others > 0 {
            to.observe(others, &[KeyValue::new("key", "_OTHER")]);
        }
    });
    meter.u64_observable_counter("astracer.critical_path.requests").with_callback(requests).build();

    let named = Mutex::<HashSet<Series>>::default();
    let time = callback(handle, move |handle, to: &dyn AsyncInstrument<f64>| {
        let mut named = lock(&named);
        let mut others = HashMap::<&'static str, u64>::new();
        for row in super::measured(handle).rows() {
            for part in row.functions {
                let series: Series = (row.key.clone(), part.name, part.kind.name());
                if named.contains(&series) || named.len() < SERIES_MAX && named.insert(series.clone()) {
                    to.observe(part.nanos as f64 * 1e-9, &attributes(series.0, series.1, series.2));
                } else {
                    *others.entry(series.2).or_default() += part.nanos;
                }
            }
        }
        for (kind, nanos) in others {
            to.observe(nanos as f64 * 1e-9, &attributes("_OTHER".into(), "_OTHER".into(), kind));
        }
    });
    let counter = meter.f64_observable_counter("astracer.critical_path.time").with_unit("s");
    counter.with_callback(time).build();
}

fn attributes(key: Arc<str>, function: Arc<str>, kind: &'static str) -> [KeyValue; 3] {
    [KeyValue::new("key", key), KeyValue::new("function", function), KeyValue::new("kind", kind)]
}
