//! OTLP over gRPC: one unary method for each signal. tonic handles the framing, within the
//! receiver's own limits.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use astracer_exporters::wire::Encoded;
use astracer_model::Format;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response};
use prost::Message as _;
use tokio::runtime::Handle;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::answer::{Body, RETRY_AFTER_SECONDS, Refused, export_response};
use crate::clients::Client;
use crate::counts::Refusal;
use crate::http::text;
use crate::record::record;
use crate::shared::Shared;
use crate::signal::Signal;
use crate::{body, hosts, token};

/// The compression flag and the length of the message.
const FRAME_HEAD_BYTES: usize = 1 + 4;

/// Returns true for a gRPC request.
pub(crate) fn is_grpc<B>(request: &Request<B>) -> bool {
    text(request.headers(), &CONTENT_TYPE).starts_with("application/grpc")
}

pub(crate) async fn answer(
    shared: &Arc<Shared>,
    client: &Client,
    request: Request<Incoming>,
) -> Response<Body> {
    match take(shared, client, request).await {
        Ok(response) => response,
        Err(refused) => {
            shared.counts.refused(refused.reason);
            boxed(status(&refused).into_http::<tonic::body::Body>())
        }
    }
}

async fn take(
    shared: &Arc<Shared>,
    client: &Client,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refused> {
    hosts::check(request.extensions())?;
    token::check(shared.token.as_ref(), request.headers())?;
    let Some(signal) = Signal::of_method(request.uri().path()) else {
        let message =
            format!("unknown method {}: this receiver accepts only traces and logs", request.uri().path());
        return Err(Refused::new(Refusal::WrongPath, message));
    };
    shared.accepts(signal)?;
    let bytes_max = shared.limits.message_bytes;
    let (head, mut incoming) = request.into_parts();
    let read = body::read(shared, client, &mut incoming, bytes_max.saturating_add(FRAME_HEAD_BYTES)).await?;
    let (bytes, held) = read.into_parts();
    let (common, runtime) = (Arc::clone(shared), Handle::current());
    let decode = move || {
        let _held = held;
        // The body is complete, so this waits for nothing.
        Ok(runtime.block_on(decode(&common, signal, bytes_max, Request::from_parts(head, bytes))))
    };
    shared.turns.take(client, decode).await
}

async fn decode(
    shared: &Shared,
    signal: Signal,
    bytes_max: usize,
    request: Request<Vec<u8>>,
) -> Response<Body> {
    let mut grpc = Grpc::new(Encoded).max_decoding_message_size(bytes_max);
    for encoding in [CompressionEncoding::Gzip, CompressionEncoding::Deflate, CompressionEncoding::Zstd] {
        grpc = grpc.accept_compressed(encoding);
    }
    let mut is_asked = false;
    let service = Service { shared, signal, is_asked: &mut is_asked };
    let response = grpc.unary(service, request.map(|bytes| Full::new(Bytes::from(bytes)))).await;
    if !is_asked {
        // tonic rejected the frame or its compression, and made the response.
        let code = Status::from_header_map(response.headers()).map_or(Code::Internal, |status| status.code());
        shared.counts.refused(match code {
            Code::OutOfRange | Code::ResourceExhausted => Refusal::TooLarge,
            Code::Unimplemented => Refusal::Unsupported,
            _ => Refusal::Bad,
        });
    }
    boxed(response)
}

/// The method of a signal's service.
struct Service<'s> {
    shared: &'s Shared,
    signal: Signal,
    is_asked: &'s mut bool,
}

impl UnaryService<Bytes> for Service<'_> {
    type Response = Bytes;
    type Future = Ready<Result<tonic::Response<Bytes>, Status>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        *self.is_asked = true;
        ready(match record(self.shared, self.signal, request.get_ref(), Format::OtlpProto) {
            Ok(partial) => Ok(tonic::Response::new(export_response(&partial).encode_to_vec().into())),
            Err(refused) => {
                self.shared.counts.refused(refused.reason);
                Err(status(&refused))
            }
        })
    }
}

fn status(refused: &Refused) -> Status {
    let message = &*refused.message;
    match refused.reason {
        Refusal::Bad => Status::invalid_argument(message),
        Refusal::Incomplete if refused.is_cut_off => Status::unavailable(message),
        Refusal::Incomplete => Status::deadline_exceeded(message),
        // Senders do not retry this code unless its details ask for it.
        Refusal::TooLarge => Status::resource_exhausted(message),
        Refusal::Unsupported | Refusal::WrongPath => Status::unimplemented(message),
        Refusal::Host => Status::permission_denied(message),
        Refusal::Token => Status::unauthenticated(message),
        Refusal::Overloaded => {
            let after = ErrorDetails::with_retry_info(Some(Duration::from_secs(RETRY_AFTER_SECONDS)));
            Status::with_error_details(Code::Unavailable, message, after)
        }
    }
}

fn boxed(response: Response<tonic::body::Body>) -> Response<Body> {
    response.map(|body| body.map_err(Into::into).boxed_unsync())
}
