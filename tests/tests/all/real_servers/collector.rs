//! The Collector: spans sent over OTLP and in Zipkin's format, read back from the file that it
//! writes.

mod metrics;

use std::collections::BTreeSet;

use astracer_exporters::{Compression, Destination as _, Otlp, Protocol};
use astracer_model::{Format, Span, SpanId, TraceId};

use super::recordings::{Ids, RECORDINGS, ids, send};
use super::{assert_same, e2e_setting, eventually, read, service};

/// The spans of these traces in the Collector's file, once there are at least `spans`.
fn spans(traces: &BTreeSet<TraceId>, spans: usize) -> Vec<Span<'static>> {
    eventually("collector", || {
        let text = std::fs::read(e2e_setting("COLLECTOR_FILE")).map_err(|error| error.to_string())?;
        // The last line may be incomplete.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(&[][..], |end| &text[..=end]);
        let mut found = read(Format::OtlpJson, whole);
        found.retain(|span| traces.contains(&span.trace_id));
        if found.len() >= spans { Ok(found) } else { Err(format!("{} of {spans} spans", found.len())) }
    })
}

#[test]
#[ignore = "needs a real server: cargo xtask e2e"]
fn every_field_of_a_trace_through_two_processes_is_read_back() {
    let (grpc, http) = (e2e_setting("COLLECTOR_OTLP_GRPC"), e2e_setting("COLLECTOR_OTLP_HTTP"));
    for (protocol, server) in
        [(Protocol::Grpc, &grpc), (Protocol::HttpProtobuf, &http), (Protocol::HttpJson, &http)]
    {
        let sent = service::serve(|| {
            let otlp = Otlp::builder().with_endpoint(format!("http://{server}")).with_protocol(protocol);
            Box::new(otlp.build().expect("good settings"))
        });
        assert_same(&spans(&BTreeSet::from([sent[0].trace_id]), sent.len()), &sent);
    }
}

#[test]
#[ignore = "needs a real server: cargo xtask e2e"]
fn recordings_keep_their_counts() {
    let to = [
        format!("otlp+http://{}", e2e_setting("COLLECTOR_OTLP_HTTP")),
        format!("zipkin://{}", e2e_setting("COLLECTOR_ZIPKIN")),
    ];
    for recording in RECORDINGS {
        let expected = ids(recording);
        let traces = expected.iter().map(|(trace, _)| *trace).collect();
        let mut before = 0;
        for to in &to {
            let sent = send(recording, to) as usize;
            let found = spans(&traces, before + sent);
            assert_eq!(found.len(), before + sent, "{recording} to {to}");
            let ids: Ids = found.iter().map(|span| (span.trace_id, span.span_id)).collect();
            assert!(ids == expected, "{recording} to {to}");
            before += sent;
        }
    }
}

/// With `max_request_body_size` and without compression it answers 400 to both, and says why in a
/// protobuf `Status`.
#[test]
#[ignore = "needs a real server: cargo xtask e2e"]
fn small_plain_requests_are_sent_to_a_server_that_takes_no_others() {
    let trace = TraceId(0x63_0005);
    let span = |id| Span { trace_id: trace, span_id: SpanId(id), name: "work".into(), ..Span::default() };
    let sent: Vec<_> = (1..=200).map(span).collect();
    for (number, protocol) in [Protocol::HttpProtobuf, Protocol::HttpJson].into_iter().enumerate() {
        let builder =
            Otlp::builder().with_endpoint(format!("http://{}", e2e_setting("COLLECTOR_OTLP_LIMITED")));
        let otlp = builder.with_protocol(protocol).with_compression(Compression::Gzip).build();
        let otlp = otlp.expect("good settings");
        for part in sent.chunks(100) {
            let accepted = otlp.send(part).map(|delivery| delivery.accepted);
            assert_eq!(accepted, Ok(100), "{protocol:?}");
        }
        let found = spans(&BTreeSet::from([trace]), 200 * (number + 1));
        let ids: BTreeSet<u64> = found.iter().map(|span| span.span_id.0).collect();
        assert_eq!((found.len(), ids), (200 * (number + 1), (1..=200).collect()));
    }
}
