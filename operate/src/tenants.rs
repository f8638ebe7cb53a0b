//! The use of the service by tenant, on the live page and as metrics.

#[cfg(feature = "metrics")]
mod metrics;

use astracer_baggage::{Flows, TenantSums};
use astracer_sdk::Handle;

#[cfg(feature = "metrics")]
pub(crate) use self::metrics::register;

pub(crate) fn sums(handle: &Handle) -> TenantSums {
    handle.observer::<Flows>().map(Flows::tenants).unwrap_or_default()
}

#[cfg(feature = "endpoint")]
const COLUMNS: [&str; 8] =
    ["tenant", "resource", "calls", "errors", "wall_ms", "on_thread_ms", "waiting_ms", "consumed"];

/// The path `/tenants`: the rows with the most time on threads first.
#[cfg(feature = "endpoint")]
pub(crate) fn part(handle: &Handle) -> Option<crate::Part> {
    use serde_json::{Value, json};

    handle.observer::<Flows>().filter(|flows| flows.has_tenants())?;
    let handle = handle.clone();
    let millis = |nanos: u64| (nanos as f64 / 1e3).round() / 1e3;
    Some(crate::Part::new("tenants", "what tenants use", move |parameter| {
        let shown = parameter("rows").map_or(Ok(usize::MAX), |rows| rows.parse());
        let shown = shown.map_err(|_| "rows must be a whole number".to_owned())?;
        let TenantSums { mut rows, mixed, .. } = sums(&handle);
        rows.sort_by_key(|row| std::cmp::Reverse(row.on_thread_ns));
        let all = rows.len();
        let rows = rows.iter().take(shown).map(|row| {
            json!({
                "tenant": row.tenant,
                "resource": row.resource,
                "calls": row.calls,
                "errors": row.errors,
                "wall_ms": millis(row.wall_ns),
                "on_thread_ms": millis(row.on_thread_ns),
                "waiting_ms": millis(row.waiting_ns),
                "consumed": row.consumed,
            })
        });
        let mixed = mixed
            .iter()
            .map(|of| json!({ "name": of.name, "file": of.file, "line": of.line, "count": of.count }));
        let (rows, mixed) = (rows.collect::<Value>(), mixed.collect::<Value>());
        Ok(format!("{}\n", json!({ "columns": COLUMNS, "rows": rows, "rows_all": all, "mixed": mixed })))
    }))
}
