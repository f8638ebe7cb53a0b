//! The use of the service by tenant, as OpenTelemetry metrics.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use astracer_baggage::{Flows, TenantRow};
use astracer_sdk::Handle;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};

use crate::metrics::{callback, lock};

/// Rows with series of their own, by tenant and resource.
type Named = Mutex<HashSet<(String, String)>>;
type Of = fn(&TenantRow) -> u64;

/// The maximum number of such rows.
const ROWS_MAX: usize = 300;

/// Registers counters, which never fall: a row keeps its series, and the rows that come too late
/// are added up as `_OTHER`.
pub(crate) fn register(handle: &Handle, meter: &Meter) {
    if !handle.observer::<Flows>().is_some_and(Flows::has_tenants) {
        return;
    }
    let named = Arc::<Named>::default();
    let sums: [(&'static str, &'static str, f64, Of); 6] = [
        ("astracer.tenant.calls", "{call}", 1.0, |row| row.calls),
        ("astracer.tenant.errors", "{call}", 1.0, |row| row.errors),
        ("astracer.tenant.consumed", "1", 1.0, |row| row.consumed),
        ("astracer.tenant.wall", "s", 1e-9, |row| row.wall_ns),
        ("astracer.tenant.on_thread", "s", 1e-9, |row| row.on_thread_ns),
        ("astracer.tenant.waiting", "s", 1e-9, |row| row.waiting_ns),
    ];
    for (name, unit, scale, of) in sums {
        let named = named.clone();
        let observe = callback(handle, move |handle, to: &dyn AsyncInstrument<f64>| {
            each_row(handle, &named, of, |sum, attributes| to.observe(sum as f64 * scale, attributes));
        });
        meter.f64_observable_counter(name).with_unit(unit).with_callback(observe).build();
    }
}

fn each_row(handle: &Handle, named: &Named, of: Of, observe: impl Fn(u64, &[KeyValue])) {
    let mut named = lock(named);
    let mut rows = super::sums(handle).rows;
    rows.sort_by_key(|row| Reverse(row.on_thread_ns));
    let attributes =
        |tenant, resource| [KeyValue::new("tenant", tenant), KeyValue::new("resource", resource)];
    let mut others = 0;
    for row in rows {
        let (sum, key) = (of(&row), (row.tenant, row.resource));
        if named.contains(&key) || named.len() < ROWS_MAX && named.insert(key.clone()) {
            observe(sum, &attributes(key.0, key.1));
        } else {
            others += sum;
        }
    }
    if others > 0 {
        observe(others, &attributes("_OTHER".to_owned(), "_OTHER".to_owned()));
    }
}
