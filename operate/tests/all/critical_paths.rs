//! Critical paths of a service, as the endpoint and the metrics show them.

use std::sync::Arc;
use std::time::Duration;

use astracer_baggage::critical_path::{CriticalPath, ExperimentError, zone};
use astracer_baggage::{Applications, Flows, Registry};
use astracer_operate::Operate as _;
use astracer_sdk::Builder;
use astracer_testing::{World, sampling};
use serde_json::{Value, json};
use tracing::info_span;

use crate::endpoint::{any_port, ask};
use crate::metrics::seconds;

fn with_paths(sampler: &str) -> World {
    let measured = CriticalPath::default();
    let applications = Applications::new(&Registry::default()).with_critical_path(&measured);
    let flows = Arc::new(Flows::new(applications));
    sampling(sampler, |builder: Builder| builder.with_observer(flows))
}

/// A request of 10 ms: 1 of its own, 6 to load, and 3 of waits.
fn request(world: &World, name: &str) {
    let millis = |millis| world.clock.advance(Duration::from_millis(millis));
    world.inside(|| {
        let root = info_span!("request", otel.name = name);
        root.in_scope(|| {
            millis(1);
            info_span!("load").in_scope(|| millis(6));
        });
        millis(3);
        root.in_scope(|| ());
    });
}

#[test]
fn rows_are_the_same_whatever_is_kept() {
    for sampler in ["always", "never", "ratio:0.5"] {
        let world = with_paths(sampler);
        world.handle.critical_path().experiment("faster load", zone("load"), 0.5).unwrap();
        request(&world, "GET /");
        request(&world, "GET /");
        request(&world, "POST /");
        let endpoint = world.handle.serve(any_port(), None).unwrap();
        let (status, body) = ask(&endpoint, "GET /critical-paths", "");
        let answer: Value = serde_json::from_str(&body).unwrap();
        // A bucket of lengths has a width of an eighth: from 9.4 to 10.5 ms here.
        let expected = json!({
            "key": "GET /", "requests": 2, "p50_ms": 9.961, "p95_ms": 9.961,
            "functions": [
                { "name": "load", "share": 0.6, "ms": 6.0 },
                { "name": "GET /", "share": 0.4, "ms": 4.0 },
            ],
            "overheads": [{ "name": "wait", "share": 0.3, "ms": 3.0 }],
            "experiments": [{
                "name": "faster load: load times 0.5", "requests": 2, "share": 0.7, "ms": 7.0, "ms_now": 10.0,
            }],
        });
        assert_eq!((status, &answer["rows"][0]), (200, &expected), "{sampler}");
        assert_eq!((&answer["rows"][1]["key"], &answer["rows_all"]), (&json!("POST /"), &json!(2)));
        assert_eq!(answer["unmarked_forks"], json!([]));
        let columns = json!(["key", "requests", "p50_ms", "p95_ms", "functions", "overheads", "experiments"]);
        assert_eq!(answer["columns"], columns);
        let (_, body) = ask(&endpoint, "GET /critical-paths?rows=1", "");
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["rows"][1], Value::Null);
        assert_eq!(world.handle.critical_paths().len(), 2);
    }
}

#[test]
fn a_service_that_measures_none_says_so() {
    let world = sampling("never", |builder| builder);
    let endpoint = world.handle.serve(any_port(), None).unwrap();
    assert_eq!(ask(&endpoint, "GET /critical-paths", "").0, 404);
    assert!(world.handle.critical_paths().is_empty());
    let added = world.handle.critical_path().experiment("faster", zone("load"), 0.5);
    assert_eq!(added, Err(ExperimentError::NotMeasured));
}

#[test]
fn times_are_metrics() {
    let world = with_paths("never");
    for number in 0..200 {
        request(&world, &format!("GET /{number}"));
    }
    let (series, sum) = seconds(&world, "astracer.critical_path.time");
    // 300 of the 600 series, and the others' by kind: work, and wait; 200 requests of 10 ms.
    assert_eq!(series, 302);
    assert!((sum - 2.0).abs() < 1e-9, "{sum}");
}
