//! A service as a newcomer writes it, after the README and docs/http.md: axum, tower-http's
//! `TraceLayer`, and a reqwest client.

use std::time::Duration;

use astracer::{Astracer, RemoteParentLayer, inject};
use axum::Router;
use axum::routing::get;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tower_http::trace::TraceLayer;
use tracing::{Instrument as _, info_span};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;

#[derive(Clone, Debug, Default)]
struct Kept(std::sync::Arc<std::sync::Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().expect("no panic").extend(batch);
        Ok(())
    }
}

async fn serve(calls: u32) -> reqwest::Result<()> {
    let routes = Router::new()
        .route("/orders/{id}", get(async || info_span!("price").in_scope(|| "7.50")))
        .route("/health", get(async || "ok"))
        .layer(TraceLayer::new_for_http())
        .layer(RemoteParentLayer::global());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let server = tokio::spawn(axum::serve(listener, routes).into_future());
    let client = reqwest::Client::new();
    for id in 0..calls {
        let request = client.get(format!("http://{address}/orders/{id}")).build()?;
        client.execute(request).await?.error_for_status()?.text().await?;
        client.get(format!("http://{address}/health")).send().await?.error_for_status()?.text().await?;
    }
    // One request from a span, with its context.
    let mut request = client.get(format!("http://{address}/orders/1")).build()?;
    let call = async {
        inject(request.headers_mut());
        client.execute(request).await?.text().await
    };
    call.instrument(info_span!("buy", otel.kind = "client")).await?;
    server.abort();
    Ok(())
}

#[test]
fn two_routes_are_two_keys_and_context_goes_out_and_in() {
    let kept = Kept::default();
    let builder =
        Astracer::builder().with_sampler("bump:lambda=10,min=0.01,window=1h".parse().expect("bump"));
    let astracer = builder.with_exporter(kept.clone()).build().expect("a layer");
    opentelemetry::global::set_text_map_propagator(astracer.propagator());
    // hyper's and reqwest's own spans and events.
    let targets = Targets::new()
        .with_target("tower_http", tracing::Level::TRACE)
        .with_target(env!("CARGO_CRATE_NAME"), tracing::Level::TRACE);
    let subscriber = tracing_subscriber::registry().with(astracer.layer.clone()).with(targets);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tracing::subscriber::with_default(subscriber, || runtime.block_on(serve(40))).expect("responses");
    drop(runtime);
    let keys = astracer.handle.snapshot().expect("bump decides by key").keys.into_iter();
    let mut keys: Vec<_> = keys.map(|known| (known.key, known.counts.seen())).collect();
    keys.sort();
    let expected = [("GET /health", 40), ("GET /orders/*", 40), ("buy", 1)];
    assert_eq!(keys, expected.map(|(key, calls)| (key.to_owned(), calls)));
    astracer.handle.flush(Duration::from_secs(60)).expect("exported");
    let spans = kept.0.lock().expect("no panic");
    let buy = spans.iter().find(|span| span.name == "buy").expect("the first of its key is kept");
    let mut names: Vec<&str> = spans
        .iter()
        .filter(|span| span.span_context.trace_id() == buy.span_context.trace_id())
        .map(|span| &*span.name)
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["buy", "price", "request"]);
}
