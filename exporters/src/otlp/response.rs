//! Answers of a server that took spans.

use prost::Message;

use crate::counts::Delivery;

/// `ExportTraceServiceResponse` of OTLP.
#[derive(Clone, PartialEq, Message)]
pub struct ExportResponse {
    /// Unset if everything was accepted without a remark.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// `ExportTracePartialSuccess` of OTLP.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// Spans of the request that were not accepted.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// The reason, or a warning if no span was rejected.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

impl ExportResponse {
    /// Returns the JSON form.
    pub fn to_json(&self) -> String {
        let Some(PartialSuccess { rejected_spans, error_message }) = &self.partial_success else {
            return "{}".to_owned();
        };
        let partial =
            serde_json::json!({ "rejectedSpans": rejected_spans.to_string(), "errorMessage": error_message });
        serde_json::json!({ "partialSuccess": partial }).to_string()
    }
}

/// Returns the outcome of `spans` spans by a response in protobuf. One that cannot be read rejects nothing: the status
/// already says that the spans were taken.
pub(super) fn of_proto(body: &[u8], spans: usize) -> Delivery {
    let partial = ExportResponse::decode(body).ok().and_then(|response| response.partial_success);
    delivery(partial.unwrap_or_default(), spans)
}

/// The same for a response in JSON, whose 64-bit integers are strings, or numbers.
#[cfg(feature = "otlp-http")]
pub(super) fn of_json(body: &[u8], spans: usize) -> Delivery {
    let response: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let partial = &response["partialSuccess"];
    let rejected = &partial["rejectedSpans"];
    let rejected = rejected.as_i64().or_else(|| rejected.as_str()?.parse().ok());
    let message = partial["errorMessage"].as_str().unwrap_or_default().to_owned();
    delivery(PartialSuccess { rejected_spans: rejected.unwrap_or(0), error_message: message }, spans)
}

fn delivery(partial: PartialSuccess, spans: usize) -> Delivery {
    let spans = spans as u64;
    // A server can't reject more than it was given.
    let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0).min(spans);
    Delivery { accepted: spans - rejected, rejected, message: partial.error_message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(delivery: Delivery) -> (u64, u64, String) {
        (delivery.accepted, delivery.rejected, delivery.message)
    }

    #[test]
    fn responses_in_protobuf() {
        // Field 1: a message of 6 bytes; in it field 1 = 3, and field 2 = "no".
        let partial = b"\x0a\x06\x08\x03\x12\x02no";
        assert_eq!(told(of_proto(partial, 5)), (2, 3, "no".to_owned()));
        assert_eq!(told(of_proto(partial, 2)), (0, 2, "no".to_owned()));
        assert_eq!(told(of_proto(b"", 5)), (5, 0, String::new()));
        assert_eq!(told(of_proto(b"\xff\xff", 5)), (5, 0, String::new()));
    }

    #[test]
    fn responses_in_json() {
        let partial = br#"{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "no"}}"#;
        assert_eq!(told(of_json(partial, 5)), (2, 3, "no".to_owned()));
        assert_eq!(told(of_json(br#"{"partialSuccess": {"rejectedSpans": 1}}"#, 5)), (4, 1, String::new()));
        assert_eq!(told(of_json(br#"{"partialSuccess": {"rejectedSpans": -1}}"#, 5)), (5, 0, String::new()));
        for nothing in [&b"{}"[..], b"", b"null", b"[1]"] {
            assert_eq!(told(of_json(nothing, 5)), (5, 0, String::new()));
        }
    }
}
