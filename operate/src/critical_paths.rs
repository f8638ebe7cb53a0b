//! Critical paths of all requests, on the live page and as metrics.

#[cfg(feature = "metrics")]
mod metrics;

use astracer_baggage::Flows;
use astracer_baggage::critical_path::CriticalPath;
use astracer_sdk::Handle;

#[cfg(feature = "metrics")]
pub(crate) use self::metrics::register;

pub(crate) fn measured(handle: &Handle) -> CriticalPath {
    let flows = handle.observer::<Flows>();
    flows.and_then(Flows::critical_path).cloned().unwrap_or_else(CriticalPath::not_measured)
}

/// The path `/critical-paths`: the keys with the most time first, `?rows=10` of them.
#[cfg(feature = "endpoint")]
pub(crate) fn part(handle: &Handle) -> Option<crate::Part> {
    use astracer_baggage::UnmarkedFork;
    use astracer_baggage::critical_path::{CriticalPathRow, TimeKind};
    use serde_json::{Value, json};

    let paths = handle.observer::<Flows>()?.critical_path()?.clone();
    let handle = handle.clone();
    let unmarked = |handle: &Handle| -> Vec<Value> {
        let forks = handle.observer::<Flows>().map(|flows| flows.stats().unmarked).unwrap_or_default();
        let place = |fork: &UnmarkedFork| json!({ "name": fork.name, "file": fork.file, "line": fork.line, "count": fork.count });
        forks.iter().map(place).collect()
    };
    let millis = |nanos: f64| (nanos / 1e3).round() / 1e3;
    // A name, its part of the row's time, and the time of a request.
    let share = move |row: &CriticalPathRow, name: &str, nanos: u64| {
        json!({
            "name": name,
            "share": (nanos as f64 / row.total_ns.max(1) as f64 * 1e4).round() / 1e4,
            "ms": millis(nanos as f64 / row.requests.max(1) as f64),
        })
    };
    let draw = move |row: &CriticalPathRow| {
        let functions = row.by_function();
        let functions: Vec<Value> = functions.iter().map(|(name, nanos)| share(row, name, *nanos)).collect();
        let kinds = TimeKind::ALL.iter().filter(|kind| **kind != TimeKind::Work);
        let overheads: Vec<Value> = kinds
            .map(|kind| (kind.name(), row.of_kind(*kind)))
            .filter(|(_, nanos)| *nanos > 0)
            .map(|(name, nanos)| share(row, name, nanos))
            .collect();
        // The mean of the requests that the experiment has followed.
        let experiments: Vec<Value> = row
            .experiments
            .iter()
            .map(|of| {
                let mean = |nanos: f64| millis(nanos / of.requests.max(1) as f64);
                json!({
                    "name": format!("{}: {} times {}", of.name, of.zone, of.factor),
                    "requests": of.requests,
                    "share": (of.changed_ns / of.total_ns.max(1) as f64 * 1e4).round() / 1e4,
                    "ms": mean(of.changed_ns),
                    "ms_now": mean(of.total_ns as f64),
                })
            })
            .collect();
        json!({
            "key": &*row.key,
            "requests": row.requests,
            "p50_ms": millis(row.p50_ns as f64),
            "p95_ms": millis(row.p95_ns as f64),
            "functions": functions,
            "overheads": overheads,
            "experiments": experiments,
        })
    };
    Some(crate::Part::new("critical-paths", "critical paths of all requests", move |parameter| {
        let shown = parameter("rows").map_or(Ok(usize::MAX), |rows| rows.parse());
        let shown = shown.map_err(|_| "rows must be a whole number".to_owned())?;
        // Spans whose task lacks a `.branch()`: what their tasks do is on no way.
        let unmarked = unmarked(&handle);
        let rows = paths.rows();
        let drawn: Value = rows.iter().take(shown).map(draw).collect();
        let mut columns = vec!["key", "requests", "p50_ms", "p95_ms", "functions", "overheads"];
        if rows.iter().any(|row| !row.experiments.is_empty()) {
            columns.push("experiments");
        }
        let all = rows.len();
        let answer =
            json!({ "columns": columns, "rows": drawn, "rows_all": all, "unmarked_forks": unmarked });
        Ok(format!("{answer}\n"))
    }))
}
