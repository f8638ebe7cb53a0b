//! A gRPC method without generated code: messages are plain text.

use std::convert::Infallible;

use astracer_examples::texts::Texts;
use tonic::{Request, Response, Status};

pub(crate) const PATH: &str = "/orders.Orders/Get";

async fn get(request: Request<String>) -> Result<Response<String>, Status> {
    Ok(Response::new(super::service::look_up(request.get_ref())))
}

/// Serves the method.
pub(crate) async fn serve(
    request: axum::extract::Request,
) -> Result<http::Response<tonic::body::Body>, Infallible> {
    Ok(tonic::server::Grpc::new(Texts).unary(tower::service_fn(get), request).await)
}
