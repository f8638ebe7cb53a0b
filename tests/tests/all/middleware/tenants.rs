//! The caller's tenant, below middleware that knows nothing of baggage.
//!
//! The middleware reads headers by OpenTelemetry's global propagator, which other tests of this
//! binary set to another one. So this runs in a process of its own, which is this binary again.

use std::process::Command;
use std::sync::Arc;

use astracer::baggage::{Applications, Flows, Registry};
use astracer_sdk::{Astracer, DroppedSpans};
use astracer_testing::Collector;
use axum::body::Body;
use http::Request;
use tower::ServiceExt as _;
use tracing::dispatcher::with_default;
use tracing_subscriber::layer::SubscriberExt as _;

use super::{PAIRS, Pair, grpc, service};

/// Set in the process of its own.
const VARIABLE: &str = "ASTRACER_TEST_TENANTS";

#[test]
fn the_tenant_arrives_kept_and_dropped() {
    if std::env::var(VARIABLE).is_err() {
        let name = "middleware::tenants::the_tenant_arrives_kept_and_dropped";
        let binary = std::env::current_exe().expect("a test has a path");
        let output = Command::new(binary).args(["--exact", name]).env(VARIABLE, "1").output();
        let output = output.expect("this binary can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    for (pair, sampled) in PAIRS.into_iter().flat_map(|pair| [(pair, true), (pair, false)]) {
        for dropped in [DroppedSpans::Visible, DroppedSpans::Disabled] {
            check(pair, sampled, dropped);
        }
    }
}

fn check(pair: Pair, sampled: bool, dropped: DroppedSpans) {
    let flows = Flows::new(Applications::new(&Registry::default()).with_tenants("tenant.id").with_x_trace());
    let collector = Collector::default();
    let astracer = Astracer::builder()
        .with_sampler("never".parse().expect("a sampler"))
        .with_dropped_spans(dropped)
        .with_observer(Arc::new(flows.clone()))
        .with_exporter(collector.clone())
        .build()
        .expect("a layer");
    opentelemetry::global::set_text_map_propagator(astracer.propagator());
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(astracer.layer.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    with_default(&dispatch, || {
        let response = runtime.block_on(service::router(pair).oneshot(request(pair, sampled)));
        // The middleware's span ends with the body.
        drop(runtime.block_on(axum::body::to_bytes(response.expect("a response").into_body(), 1 << 10)));
    });
    astracer.handle.flush(std::time::Duration::from_secs(60)).expect("exported");
    let case = format!("{pair:?} {sampled} {dropped:?}");
    assert_eq!(collector.spans().is_empty(), !sampled, "{case}");
    let rows = flows.tenants().rows;
    assert_eq!((rows.len(), &*rows[0].tenant, rows[0].calls), (1, "acme", 1), "{case}: {rows:?}");
    let stats = flows.stats();
    assert_eq!((stats.open, stats.messages.received, stats.requests), (0, 1, 1), "{case}: {stats:?}");
}

fn request(pair: Pair, sampled: bool) -> Request<Body> {
    let request = match pair {
        Pair::AxumTracingOpentelemetry | Pair::AxumOtel | Pair::TowerOtelHttp => {
            Request::get("/orders/17").body(Body::empty())
        }
        Pair::TonicTracingOpentelemetry | Pair::TowerOtelGrpc => Request::post(grpc::PATH)
            .header("content-type", "application/grpc")
            .body(Body::from(&b"\0\0\0\0\x0217"[..])),
    };
    let mut request = request.expect("a request");
    let flags = if sampled { "01" } else { "00" };
    let parent = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
    request.headers_mut().insert("traceparent", parent.parse().expect("text"));
    let baggage = "k=a==,astracer=ChEKBW5vdGVzEggKABIEbm90ZQ,tenant.id=acme";
    request.headers_mut().insert("baggage", http::HeaderValue::from_static(baggage));
    request
}
