//! A gRPC client and its server in one trace: the trace context travels in the request's metadata.
//!
//! ```text
//! cargo run --release -p astracer-examples --bin tonic
//! ```
//!
//! Messages are plain text, so that no code is generated; services with generated code are traced in the same
//! way.

#![allow(clippy::print_stdout, reason = "examples show what they do")]

use std::convert::Infallible;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use astracer::{OpenTelemetrySpanExt as _, RemoteParentLayer};
use astracer_examples::telemetry;
use astracer_examples::texts::Texts;
use axum::http;
use axum::http::uri::PathAndQuery;
use clap::Parser;
use opentelemetry::propagation::Injector;
use tonic::body::Body;
use tonic::metadata::{MetadataKey, MetadataMap};
use tonic::server::NamedService;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, info_span, instrument};

const PATH: &str = "/quotes.Quotes/Get";

/// A client that asks a server for quotes, both traced.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    tracing: telemetry::Options,

    /// The number of calls.
    #[arg(long, value_name = "N", default_value_t = 3_000)]
    calls: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let running = args.tracing.start("quotes")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let failed = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        // The server binds the address again, because tonic listens by itself.
        drop(listener);
        let server = tokio::spawn(
            Server::builder().layer(RemoteParentLayer::global()).add_service(Quotes).serve(address),
        );
        let failed = ask(address, args.calls).await;
        server.abort();
        failed
    })?;
    println!("{} calls, {failed} failed", args.calls);
    println!("{}", running.stop()?);
    Ok(())
}

async fn ask(address: SocketAddr, calls: u64) -> Result<u64, Box<dyn Error>> {
    let endpoint = Channel::from_shared(format!("http://{address}"))?;
    let channel = loop {
        match endpoint.connect().await {
            Ok(channel) => break channel,
            // Not listening yet.
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let mut client = tonic::client::Grpc::new(channel);
    let mut failed = 0;
    for number in 0..calls {
        let span = info_span!(
            "quotes.Quotes/Get",
            otel.kind = "client",
            rpc.system = "grpc",
            rpc.method = "Get",
            number
        );
        let answer = async {
            let mut request = Request::new(format!("quote {number}"));
            let context = tracing::Span::current().context();
            opentelemetry::global::get_text_map_propagator(|propagator| {
                propagator.inject_context(&context, &mut Metadata(request.metadata_mut()));
            });
            client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            client.unary(request, PathAndQuery::from_static(PATH), Texts).await
        };
        failed += u64::from(answer.instrument(span).await.is_err());
    }
    Ok(failed)
}

/// The server's method. The caller's context is current here.
async fn get(request: Request<String>) -> Result<Response<String>, Status> {
    let span = info_span!("quotes.Quotes/Get", otel.kind = "server", rpc.system = "grpc", rpc.method = "Get");
    look_up(request.into_inner()).instrument(span).await
}

#[instrument(err)]
async fn look_up(name: String) -> Result<Response<String>, Status> {
    tokio::task::yield_now().await;
    if name.ends_with("777") {
        Err(Status::not_found("no such quote"))
    } else {
        Ok(Response::new(format!("{name}: 42")))
    }
}

/// Trace context in a request's metadata.
struct Metadata<'a>(&'a mut MetadataMap);

impl Injector for Metadata<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(key), Ok(value)) = (MetadataKey::from_bytes(key.as_bytes()), value.parse()) {
            self.0.insert(key, value);
        }
    }
}

/// The service, in the form of generated code.
#[derive(Clone, Debug)]
struct Quotes;

impl NamedService for Quotes {
    const NAME: &'static str = "quotes.Quotes";
}

impl tonic::codegen::Service<http::Request<Body>> for Quotes {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async { Ok(tonic::server::Grpc::new(Texts).unary(Method, request).await) })
    }
}

struct Method;

impl tonic::server::UnaryService<String> for Method {
    type Response = String;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, Status>> + Send>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        Box::pin(get(request))
    }
}
