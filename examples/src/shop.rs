//! An HTTP shop with routes of different kinds: one is frequent, one rare, one fails sometimes, one
//! is slow, and one has a deep call tree.

use std::time::Duration;

use astracer::RemoteParentLayer;
use astracer::baggage::BranchExt as _;
use axum::Router;
use axum::extract::{MatchedPath, Path, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use tracing::field::Empty;
use tracing::{Instrument as _, error, info_span, instrument};

/// Spans below the root of `/categories`, one below the other.
const DEPTH: u32 = 12;
/// Payment fails for every order whose id is a multiple of this.
const FAILS: u64 = 5;

/// The shop's routes. Each request has its own span, below the caller's span if the request's
/// headers name one.
pub fn routes() -> Router {
    Router::new()
        .route("/products/{id}", get(product))
        .route("/reports/{month}", get(report))
        .route("/orders/{id}", post(order))
        .route("/search", get(search))
        .route("/categories", get(categories))
        .route_layer(middleware::from_fn(traced))
        // Outside of the layer that creates the request's span, so that the caller's context is
        // current when the span begins.
        .route_layer(RemoteParentLayer::global())
}

/// Creates the span of a request, named by method and route: ids in the path would give each
/// request a name of its own.
pub(crate) async fn traced(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let method = request.method().as_str();
    let span = info_span!(
        "request",
        otel.name = format_args!("{method} {route}"),
        otel.kind = "server",
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        otel.status_code = Empty,
    );
    let served = async {
        let response = next.run(request).await;
        crate::json_log::write("request served");
        response
    };
    let response = served.instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    response
}

#[instrument]
async fn product(Path(id): Path<u64>) -> String {
    let cached = cache(id).await;
    let name = match cached {
        Some(name) => name,
        None => load(id).await,
    };
    render(&name)
}

#[instrument]
async fn cache(id: u64) -> Option<String> {
    (!id.is_multiple_of(4)).then(|| format!("product {id}"))
}

#[instrument]
async fn load(id: u64) -> String {
    tokio::task::yield_now().await;
    format!("product {id}")
}

#[instrument(skip_all)]
fn render(name: &str) -> String {
    format!("{{\"name\":\"{name}\"}}")
}

#[instrument]
async fn report(Path(month): Path<u32>) -> String {
    let mut sum = 0;
    for day in 1..=20 {
        sum += info_span!("sum day", day).in_scope(|| u64::from(month * day));
    }
    sum.to_string()
}

#[instrument(err(Debug))]
async fn pay(id: u64) -> Result<(), &'static str> {
    if id.is_multiple_of(FAILS) { Err("card declined by the bank") } else { Ok(()) }
}

#[instrument]
async fn order(Path(id): Path<u64>) -> Result<String, StatusCode> {
    reserve(id).await;
    match pay(id).await {
        Ok(()) => {
            // Not awaited: the receipt may take longer than the response. A branch stays in the
            // request, with its span and baggage.
            tokio::spawn(receipt(id).branch());
            Ok(format!("order {id}"))
        }
        Err(reason) => {
            error!(reason, "order not paid");
            Err(StatusCode::SERVICE_UNAVAILABLE)
        }
    }
}

#[instrument(name = "send receipt")]
async fn receipt(id: u64) {
    tokio::task::yield_now().await;
}

#[instrument]
async fn reserve(id: u64) {
    tokio::task::yield_now().await;
}

#[instrument]
async fn search() -> &'static str {
    info_span!("scan index")
        .in_scope(|| tokio::time::sleep(Duration::from_millis(25)))
        .instrument(info_span!("wait for disk"))
        .await;
    "3 hits"
}

async fn categories() -> String {
    level(1)
}

#[instrument]
fn level(depth: u32) -> String {
    if depth < DEPTH { level(depth + 1) } else { "leaf".to_owned() }
}
