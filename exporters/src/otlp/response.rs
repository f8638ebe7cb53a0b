//! Responses of a server that accepted a request.

use prost::Message;

#[cfg(feature = "otlp-http")]
use crate::http::Answer;
use astracer_model::destination::Delivery;

/// `ExportTraceServiceResponse` of OTLP.
#[derive(Clone, PartialEq, Message)]
pub struct ExportResponse {
    /// Unset if everything was accepted without a message.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// `ExportTracePartialSuccess` of OTLP.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// The number of spans of the request that were not accepted.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// The reason, or a warning if no span was rejected.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// Returns the outcome of `spans` spans from a response in protobuf; `None` if the bytes are not
/// such a response.
pub(super) fn of_proto(body: &[u8], spans: usize) -> Option<Delivery> {
    let partial = ExportResponse::decode(body).ok()?.partial_success;
    Some(delivery(partial.unwrap_or_default(), spans))
}

/// Returns the same from a response in JSON, in which 64-bit integers are strings or numbers. An
/// empty body rejects nothing.
#[cfg(feature = "otlp-http")]
fn of_json(body: &[u8], spans: usize) -> Option<Delivery> {
    let response: serde_json::Value =
        if body.is_empty() { serde_json::Value::Null } else { serde_json::from_slice(body).ok()? };
    let partial = &response["partialSuccess"];
    let rejected = &partial["rejectedSpans"];
    let rejected = rejected.as_i64().or_else(|| rejected.as_str()?.parse().ok());
    let message = partial["errorMessage"].as_str().unwrap_or_default().to_owned();
    Some(delivery(PartialSuccess { rejected_spans: rejected.unwrap_or(0), error_message: message }, spans))
}

/// Returns the same from a response over HTTP. Some servers send JSON without saying so.
#[cfg(feature = "otlp-http")]
pub(super) fn of_http(answer: &Answer, spans: usize) -> Option<Delivery> {
    let body = &answer.body;
    let read = if answer.json { None } else { of_proto(body, spans) };
    read.or_else(|| of_json(body, spans))
}

fn delivery(partial: PartialSuccess, spans: usize) -> Delivery {
    let spans = spans as u64;
    // A server cannot reject more spans than it received.
    let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0).min(spans);
    Delivery::new(spans - rejected, rejected).with_message(partial.error_message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(delivery: Option<Delivery>) -> Option<(u64, u64, String)> {
        delivery.map(|delivery| (delivery.accepted, delivery.rejected, delivery.message))
    }

    fn some(accepted: u64, rejected: u64, message: &str) -> Option<(u64, u64, String)> {
        Some((accepted, rejected, message.to_owned()))
    }

    #[test]
    fn responses_in_protobuf() {
        // Field 1: a message of 6 bytes; in it field 1 = 3, and field 2 = "no".
        let partial = b"\x0a\x06\x08\x03\x12\x02no";
        assert_eq!(told(of_proto(partial, 5)), some(2, 3, "no"));
        assert_eq!(told(of_proto(partial, 2)), some(0, 2, "no"));
        assert_eq!(told(of_proto(b"", 5)), some(5, 0, ""));
        assert_eq!(told(of_proto(b"\xff\xff", 5)), None);
    }

    #[cfg(feature = "otlp-http")]
    #[test]
    fn responses_in_json() {
        let partial = br#"{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "no"}}"#;
        assert_eq!(told(of_json(partial, 5)), some(2, 3, "no"));
        assert_eq!(told(of_json(br#"{"partialSuccess": {"rejectedSpans": 1}}"#, 5)), some(4, 1, ""));
        assert_eq!(told(of_json(br#"{"partialSuccess": {"rejectedSpans": -1}}"#, 5)), some(5, 0, ""));
        for nothing in [&b"{}"[..], b"", b"null", b"[1]"] {
            assert_eq!(told(of_json(nothing, 5)), some(5, 0, ""));
        }
        assert_eq!(told(of_json(b"<html>", 5)), None);
    }

    /// A proxy's page once passed for a successful response.
    #[cfg(feature = "otlp-http")]
    #[test]
    fn an_invalid_response_is_not_a_delivery() {
        let read = |body: &[u8], json| of_http(&Answer { status: 200, body: body.to_vec(), json }, 5);
        for (body, json) in [(&b"<html>\nLog in"[..], false), (b"<html>", true), (b"\xff\xff", false)] {
            assert_eq!(read(body, json), None);
        }
        // Some servers send JSON without saying so.
        for nothing in [&b""[..], b"{}"] {
            assert_eq!(
                (told(read(nothing, false)), told(read(nothing, true))),
                (some(5, 0, ""), some(5, 0, ""))
            );
        }
    }
}
