//! A traced gRPC service of quotes and its client. Messages are plain text, so the example needs no
//! generated code.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http;
use axum::http::uri::PathAndQuery;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codegen::{Body as HttpBody, StdError};
use tonic::server::NamedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, info_span, instrument};

use crate::texts::Texts;

const PATH: &str = "/quotes.Quotes/Get";

/// Connects to the server, and retries until it listens.
pub async fn connect(address: SocketAddr) -> Result<Channel, Box<dyn Error>> {
    let endpoint = Channel::from_shared(format!("http://{address}"))?;
    loop {
        match endpoint.connect().await {
            Ok(channel) => return Ok(channel),
            // The server is not listening yet.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Requests one quote inside a client span. If the service is inside an `InjectLayer`, the
/// request's metadata carries the span's context.
///
/// # Errors
///
/// If the server cannot be reached, or answers with an error.
pub async fn call<S>(service: S, number: u64) -> Result<String, Status>
where
    S: GrpcService<Body>,
    S::Error: Into<StdError>,
    S::ResponseBody: HttpBody<Data = bytes::Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let span = info_span!(
        "quotes.Quotes/Get",
        otel.kind = "client",
        rpc.system = "grpc",
        rpc.method = "Get",
        number
    );
    unary(service, PathAndQuery::from_static(PATH), format!("quote {number}")).instrument(span).await
}

/// Calls a method.
pub(crate) async fn unary<S>(service: S, path: PathAndQuery, text: String) -> Result<String, Status>
where
    S: GrpcService<Body>,
    S::Error: Into<StdError>,
    S::ResponseBody: HttpBody<Data = bytes::Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let mut client = Grpc::new(service);
    client.ready().await.map_err(|error| Status::unavailable(error.into().to_string()))?;
    client.unary(Request::new(text), path, Texts).await.map(Response::into_inner)
}

/// The server's method. `RemoteParentLayer` has made the caller's context current, so the span
/// becomes the caller's child.
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

/// The service, shaped like the code that tonic generates.
#[derive(Clone, Debug)]
pub struct Quotes;

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
