//! OTLP over HTTP: `POST /v1/traces` and `POST /v1/logs`, in protobuf or JSON.

use std::sync::Arc;

use astracer_model::Format;
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ALLOW, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode, Version};
use prost::Message as _;
use tonic_types::pb::Status;

use crate::answer::{Body, Partial, RETRY_AFTER_SECONDS, Refused, export_response, json_response, whole};
use crate::clients::Client;
use crate::counts::Refusal;
use crate::record::{Recorded, record};
use crate::shared::Shared;
use crate::signal::Signal;
use crate::{body, cors, hosts, token};

/// An encoding of requests and responses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Protobuf,
    Json,
}

impl Form {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let essence = text(headers, &CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
        match essence.to_ascii_lowercase().as_str() {
            "application/x-protobuf" => Some(Self::Protobuf),
            "application/json" => Some(Self::Json),
            _ => None,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }
}

pub(crate) async fn answer(
    shared: &Arc<Shared>,
    client: &Client,
    request: Request<Incoming>,
) -> Response<Body> {
    let origin = cors::allowed(&shared.origins, request.headers());
    if let Some(origin) = &origin
        && request.method() == Method::OPTIONS
        && Signal::of_path(request.uri().path()).is_some()
    {
        return cors::preflight(origin, request.headers());
    }
    let mut response = answer_to_any(shared, client, request).await;
    if let Some(origin) = origin {
        cors::allow(response.headers_mut(), origin);
    }
    response
}

async fn answer_to_any(shared: &Arc<Shared>, client: &Client, request: Request<Incoming>) -> Response<Body> {
    let (head, mut incoming) = request.into_parts();
    let announced = incoming.size_hint().lower();
    let form = Form::of(&head.headers);
    let signal = Signal::of_path(head.uri.path());
    let allowed =
        hosts::check(&head.extensions).and_then(|()| token::check(shared.token.as_ref(), &head.headers));
    let recorded = if let Err(refused) = allowed {
        Err(refused)
    } else if let Some(signal) = signal {
        match head.method {
            Method::POST => take(shared, client, (signal, form), &head.headers, &mut incoming)
                .await
                .map(|partial| (signal, partial)),
            _ => Err(Refused::new(Refusal::WrongPath, "")),
        }
    } else {
        let message = format!(
            "unknown path {}: this receiver accepts traces as POST {} and logs as POST {}, or over gRPC",
            head.uri.path(),
            Signal::Traces.path(),
            Signal::Logs.path()
        );
        Err(Refused::new(Refusal::WrongPath, message))
    };
    // A sender that uses `Expect: 100-continue` sends no body until the server asks for it.
    let left = incoming.size_hint().lower();
    let is_asking = head.headers.contains_key(EXPECT) && left > 0 && left == announced;
    if let Err(refused) = &recorded
        && refused.reason != Refusal::Incomplete
        && head.version < Version::HTTP_2
        && !is_asking
    {
        body::discard(shared, &mut incoming).await;
    }
    // A sender of an unknown type gets the response that people can read.
    let form = form.unwrap_or(Form::Json);
    match recorded {
        Ok((signal, partial)) => success(signal, form, &partial),
        Err(refused) => {
            shared.counts.refused(refused.reason);
            if refused.reason == Refusal::WrongPath && signal.is_some() && head.method != Method::POST {
                let mut response = with(StatusCode::METHOD_NOT_ALLOWED, Form::Json, whole("{}"));
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
                return response;
            }
            failure(form, &refused)
        }
    }
}

async fn take(
    shared: &Arc<Shared>,
    client: &Client,
    (signal, form): (Signal, Option<Form>),
    headers: &HeaderMap,
    incoming: &mut Incoming,
) -> Recorded {
    let Some(form) = form else {
        let found = text(headers, &CONTENT_TYPE);
        let message =
            format!("unsupported content type {found:?}: use application/x-protobuf or application/json");
        return Err(Refused::new(Refusal::Unsupported, message));
    };
    shared.accepts(signal)?;
    let bytes_max = shared.limits.message_bytes;
    let (bytes, held) = body::read(shared, client, incoming, bytes_max).await?.into_parts();
    let (common, encoding) = (Arc::clone(shared), text(headers, &CONTENT_ENCODING).to_owned());
    let decode = move || {
        let _held = held;
        let bytes = body::decompress(&bytes, &encoding, bytes_max)?;
        match form {
            Form::Protobuf => record(&common, signal, &bytes, Format::OtlpProto),
            Form::Json if bytes.trim_ascii_start().starts_with(b"{") => {
                record(&common, signal, &bytes, Format::OtlpJson)
            }
            // Files may contain a list of requests, or none. In a request body that is a mistake,
            // which the sender should see.
            Form::Json => Err(Refused::new(Refusal::Bad, "the body is not a JSON object")),
        }
    };
    shared.turns.take(client, decode).await
}

fn success(signal: Signal, form: Form, partial: &Partial) -> Response<Body> {
    let body = match form {
        Form::Protobuf => export_response(partial).encode_to_vec(),
        Form::Json => json_response(signal, partial).into_bytes(),
    };
    with(StatusCode::OK, form, whole(body))
}

fn failure(form: Form, refused: &Refused) -> Response<Body> {
    // The codes of google.rpc.Status are those of gRPC.
    let (status, code) = match refused.reason {
        Refusal::Bad => (StatusCode::BAD_REQUEST, 3),
        Refusal::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, 8),
        Refusal::Unsupported => (StatusCode::UNSUPPORTED_MEDIA_TYPE, 3),
        Refusal::WrongPath => (StatusCode::NOT_FOUND, 12),
        Refusal::Incomplete if refused.is_cut_off => (StatusCode::SERVICE_UNAVAILABLE, 14),
        Refusal::Incomplete => (StatusCode::REQUEST_TIMEOUT, 4),
        Refusal::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, 14),
        Refusal::Host => (StatusCode::FORBIDDEN, 7),
        Refusal::Token => (StatusCode::UNAUTHORIZED, 16),
    };
    let body = match form {
        Form::Protobuf => {
            Status { code, message: refused.message.clone(), ..Status::default() }.encode_to_vec()
        }
        Form::Json => serde_json::json!({"code": code, "message": refused.message}).to_string().into_bytes(),
    };
    let mut response = with(status, form, whole(body));
    if refused.reason == Refusal::Token {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if refused.reason == Refusal::Overloaded {
        response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_SECONDS.into());
    }
    response
}

fn with(status: StatusCode, form: Form, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(form.content_type());
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// The text of a header; empty if it is missing or not text.
pub(crate) fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
