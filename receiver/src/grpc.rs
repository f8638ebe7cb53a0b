//! OTLP over gRPC: one unary method, whose one message stands in a frame behind a flag and its length.

use astracer_model::Format;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};

use crate::answer::{Body, Refused, export_response, whole};
use crate::body;
use crate::counts::Refusal;
use crate::http::text;
use crate::record::{Partial, Recorded, record};
use crate::server::Shared;

const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// A flag for compression and the length of the message.
const FRAME_HEAD_BYTES: usize = 1 + 4;

/// True for a request that speaks gRPC.
pub(crate) fn is_grpc<B>(request: &Request<B>) -> bool {
    text(request.headers(), &CONTENT_TYPE).starts_with("application/grpc")
}

pub(crate) async fn answer(shared: &Shared, request: Request<Incoming>) -> Response<Body> {
    let recorded = if request.uri().path() == METHOD {
        take(shared, request).await
    } else {
        let message = format!("only traces are received here, not {}", request.uri().path());
        Err(Refused::new(Refusal::WrongPath, message))
    };
    match recorded {
        Ok(partial) => success(&partial),
        Err(refused) => {
            shared.counts.refused(refused.reason);
            failure(&refused)
        }
    }
}

async fn take(shared: &Shared, request: Request<Incoming>) -> Recorded {
    let encoding = text(request.headers(), &ENCODING).to_owned();
    let bytes_max = shared.limits.message_bytes;
    let frame = body::read(shared, request.into_body(), bytes_max.saturating_add(FRAME_HEAD_BYTES)).await?;
    let bad = |message| Refused::new(Refusal::Bad, message);
    let Some((&[flag, ref length @ ..], message)) = frame.bytes.split_first_chunk::<FRAME_HEAD_BYTES>()
    else {
        return Err(bad("a request holds one message"));
    };
    if message.len() as u64 != u64::from(u32::from_be_bytes(*length)) {
        return Err(bad("a request holds one message, as long as it says"));
    }
    let encoding = match flag {
        0 => "",
        1 if encoding.is_empty() => return Err(bad("compressed, but grpc-encoding does not say how")),
        1 => &encoding,
        _ => return Err(bad("a message's flag is 0 or 1")),
    };
    let message = body::decompress(message, encoding, bytes_max)?;
    record(shared, &message, Format::OtlpProto)
}

fn success(partial: &Partial) -> Response<Body> {
    let message = export_response(partial.rejected, &partial.message);
    let mut frame = vec![0];
    // The text in it is one problem's, far from 4 GiB.
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert(STATUS, HeaderValue::from_static("0"));
    let body = Full::new(Bytes::from(frame)).with_trailers(std::future::ready(Some(Ok(trailers))));
    with(Body::new(body))
}

/// The head alone tells of a failure.
fn failure(refused: &Refused) -> Response<Body> {
    let status = match refused.reason {
        Refusal::Bad => "3",
        Refusal::Incomplete => "4",
        Refusal::TooLarge => "8",
        Refusal::Unsupported | Refusal::WrongPath => "12",
        Refusal::NoRoom => "14",
    };
    let mut response = with(whole(""));
    let headers = response.headers_mut();
    headers.insert(STATUS, HeaderValue::from_static(status));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(&refused.message)) {
        headers.insert(MESSAGE, message);
    }
    response
}

fn with(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip,deflate,zstd,identity"));
    response
}

/// Encodes a message for a header by gRPC's rule: printable ASCII as it is, but for the percent sign.
fn percent_encoded(text: &str) -> String {
    let encoded = text.bytes().map(|byte| match byte {
        b'%' => "%25".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    encoded.collect()
}
