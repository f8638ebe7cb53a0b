//! The caller, which requests two orders in sequence inside its own span.

use astracer_examples::texts::Texts;
use http::Uri;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tonic::client::{Grpc, GrpcService};
use tower::{Layer as _, ServiceExt as _};
use tracing::{Instrument as _, Level, info_span};

use super::telemetry::Telemetry;
use super::{Pair, grpc};

/// Runs the client. All its tasks have ended when this returns.
pub(crate) fn run(telemetry: &Telemetry, pair: Pair, port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tracing::dispatcher::with_default(&telemetry.dispatch, || {
        runtime.block_on(check_out(pair, port).instrument(info_span!("checkout", orders = 2)));
        drop(runtime);
    });
}

async fn check_out(pair: Pair, port: u16) {
    match pair {
        Pair::AxumTracingOpentelemetry | Pair::AxumOtel | Pair::TowerOtelHttp => over_http(port).await,
        Pair::TonicTracingOpentelemetry => {
            over_grpc(tonic_tracing_opentelemetry::middleware::client::OtelGrpcLayer.layer(http2()), port)
                .await;
        }
        Pair::TowerOtelGrpc => {
            over_grpc(tower_otel::trace::GrpcLayer::client(Level::INFO).layer(http2()), port).await;
        }
    }
}

async fn over_http(port: u16) {
    let client: Client<HttpConnector, Empty<&[u8]>> = Client::builder(TokioExecutor::new()).build_http();
    let client = tower_otel::trace::HttpLayer::client(Level::INFO).layer(client);
    for id in [17, 18] {
        let uri = format!("http://127.0.0.1:{port}/orders/{id}?full");
        let request = http::Request::get(uri).body(Empty::new()).expect("a request");
        let response = client.clone().oneshot(request).await.expect("the service answers");
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(body, format!("order {id}"));
    }
}

fn http2() -> Client<HttpConnector, tonic::body::Body> {
    Client::builder(TokioExecutor::new()).http2_only(true).build_http()
}

async fn over_grpc<S>(service: S, port: u16)
where
    S: GrpcService<tonic::body::Body>,
    S::ResponseBody: Send + 'static,
    <S::ResponseBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let origin: Uri = format!("http://127.0.0.1:{port}").parse().expect("an address");
    let mut client = Grpc::with_origin(service, origin);
    for id in [17, 18] {
        assert!(client.ready().await.is_ok());
        let path = http::uri::PathAndQuery::from_static(grpc::PATH);
        let request = tonic::Request::new(id.to_string());
        let response = client.unary(request, path, Texts).await.expect("the service answers");
        assert_eq!(response.into_inner(), format!("order {id}"));
    }
}
