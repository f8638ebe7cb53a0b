//! Which failures are final: every row of the table in docs/recordings.md, over HTTP and gRPC.

use std::sync::Arc;
use std::time::Duration;

use astracer_exporters::{Destination, ExportError, Otlp, Protocol, Retry, spans};
use astracer_model::span::Resource;
use astracer_testing::{Answer, Server};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::otlp_grpc::GrpcSink;
use super::sample;

const DOCS: &str = include_str!("../../../docs/recordings.md");

const CODES: &[Code] = &[
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

fn error(protocol: Protocol, endpoint: String) -> ExportError {
    let builder = Otlp::builder().with_protocol(protocol).with_endpoint(endpoint);
    let otlp = builder.with_retry(Retry::NEVER).with_timeout(Duration::from_secs(20)).build().unwrap();
    let batch = [sample::plain(1, 1)];
    let outcome = otlp.deliver(&spans(&batch, &Arc::new(Resource::service("a"))));
    assert_eq!((outcome.delivery.accepted, outcome.lost.total()), (0, 1));
    outcome.error.unwrap()
}

#[test]
fn every_row_of_the_table_of_answers_holds() {
    let (_, table) = DOCS.split_once("| over HTTP | over gRPC |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let (mut statuses, mut codes) = (Vec::new(), Vec::new());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [http, grpc, again] = cells[..] else { panic!("{row}") };
        let expected = match again {
            "while the batch is young enough" => (true, false),
            "for a limited time" => (true, true),
            "never" => (false, false),
            _ => panic!("{row}"),
        };
        let check = |error: ExportError| {
            assert_eq!((error.may_retry(), error.is_doubtful()), expected, "{error}");
        };
        let numbers =
            http.split(|char: char| !char.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
        // "5xx" has a number too.
        for status in numbers.filter(|&status| status >= 100_u16) {
            statuses.push(status);
            let server = Server::new([]).then(Answer::status(status));
            check(error(Protocol::HttpProtobuf, server.url("http")));
        }
        for name in grpc.split('`') {
            let Some(&code) = CODES.iter().find(|code| format!("{code:?}") == name) else { continue };
            codes.push(name);
            let status = match grpc.contains("RetryInfo") && code == Code::ResourceExhausted {
                true => {
                    let details = ErrorDetails::with_retry_info(Some(Duration::ZERO));
                    Status::with_error_details(code, "no", details)
                }
                false => Status::new(code, "no"),
            };
            check(error(Protocol::Grpc, GrpcSink::new([Err(status)]).url("http")));
        }
    }
    // The table leaves out nothing.
    assert!(
        statuses.len() > 20 && [400, 401, 408, 429, 500, 503].iter().all(|status| statuses.contains(status))
    );
    assert!(CODES.iter().all(|code| codes.contains(&&*format!("{code:?}"))), "{codes:?}");
}
