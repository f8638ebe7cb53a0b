//! The use of a service by tenant, as the endpoint and the metrics show it.

use std::sync::Arc;
use std::time::Duration;

use astracer_baggage::{Applications, Flows, Registry, flow};
use astracer_operate::{Operate as _, Part};
use astracer_sdk::Builder;
use astracer_testing::{World, sampling};
use serde_json::{Value, json};
use tracing::{error, info_span};

use crate::endpoint::{any_port, ask};
use crate::metrics::seconds;

fn with_tenants(sampler: &str) -> World {
    let applications = Applications::new(&Registry::default()).with_tenants("tenant.id");
    let flows = Arc::new(Flows::new(applications));
    sampling(sampler, |builder: Builder| builder.with_observer(flows))
}

/// A request of 5 ms, 2 of them on this thread.
fn request(world: &World, tenant: &str, fails: bool) {
    world.inside(|| {
        let root = info_span!("request", otel.name = "GET /orders/{id}");
        root.in_scope(|| {
            flow::set("tenant.id", tenant).unwrap();
            world.clock.advance(Duration::from_millis(2));
            flow::consume("disk.read", 4096).unwrap();
            if fails {
                error!("no disk");
            }
        });
        world.clock.advance(Duration::from_millis(3));
        root.in_scope(|| ());
    });
}

#[test]
fn sums_are_the_same_whatever_is_kept() {
    for sampler in ["always", "never", "ratio:0.5"] {
        let world = with_tenants(sampler);
        request(&world, "a", false);
        request(&world, "b", true);
        request(&world, "b", false);
        let endpoint = world.handle.serve(any_port(), None).unwrap();
        let (status, body) = ask(&endpoint, "GET /tenants", "");
        let answer: Value = serde_json::from_str(&body).unwrap();
        let row = |tenant: &str,
                   resource: &str,
                   counts: [u64; 2],
                   [wall, on_thread]: [f64; 2],
                   consumed: u64| {
            json!({
                "tenant": tenant, "resource": resource, "calls": counts[0], "errors": counts[1],
                "wall_ms": wall, "on_thread_ms": on_thread, "waiting_ms": wall - on_thread, "consumed": consumed,
            })
        };
        let route = "GET /orders/{id}";
        let expected = [
            row("b", route, [2, 1], [10.0, 4.0], 0),
            row("a", route, [1, 0], [5.0, 2.0], 0),
            row("a", "disk.read", [1, 0], [0.0, 0.0], 4096),
            row("b", "disk.read", [2, 0], [0.0, 0.0], 8192),
        ];
        assert_eq!((status, &answer["rows"]), (200, &json!(expected)), "{sampler}");
        assert_eq!((&answer["rows_all"], &answer["mixed"]), (&json!(4), &json!([])));
        let (_, body) = ask(&endpoint, "GET /tenants?rows=1", "");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&answer["rows"][0]["tenant"], &answer["rows"][1]), (&json!("b"), &Value::Null));
        let columns: Vec<String> = serde_json::from_value(answer["columns"].clone()).unwrap();
        assert!(columns.iter().all(|name| !answer["rows"][0][name].is_null()), "{answer}");
        assert_eq!(columns.len(), answer["rows"][0].as_object().unwrap().len());
        assert_eq!(ask(&endpoint, "GET /tenants?rows=many", "").0, 400);
        assert_eq!(world.handle.tenants().rows.len(), 4);
    }
}

#[test]
fn other_parts_have_paths_and_tables() {
    let world = sampling("never", |builder| builder);
    let part = Part::new("queries", "running queries", |parameter| match parameter("q") {
        Some(query) => Ok(json!({ "rows": [{ "query": query }] }).to_string()),
        None => Err("q is missing".to_owned()),
    });
    let endpoint = world.handle.serve_with(any_port(), None, vec![part]).unwrap();
    let (status, parts) = ask(&endpoint, "GET /parts", "");
    assert_eq!((status, parts.as_str()), (200, r#"[{"path":"queries","title":"running queries"}]"#));
    assert_eq!(ask(&endpoint, "GET /queries?q=a+b", "").1, r#"{"rows":[{"query":"a b"}]}"#);
    assert_eq!(ask(&endpoint, "GET /queries", ""), (400, "q is missing\n".to_owned()));
    // The path exists only if the service counts tenants.
    assert_eq!(ask(&endpoint, "GET /tenants", "").0, 404);
    assert!(world.handle.tenants().rows.is_empty());
}

#[test]
fn tenants_are_metrics() {
    let world = with_tenants("never");
    for number in 0..400 {
        request(&world, &format!("t{number:03}"), false);
    }
    let (series, sum) = seconds(&world, "astracer.tenant.on_thread");
    // 300 rows and the others; 400 requests of 2 ms.
    assert_eq!(series, 301);
    assert!((sum - 0.8).abs() < 1e-9, "{sum}");
}
