//! The Collector: spans sent over OTLP and in Zipkin's format, read back from the file that it
//! writes.

mod metrics;

use std::collections::BTreeSet;

use astracer_exporters::{Otlp, Protocol};
use astracer_model::{Format, Span, TraceId};

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
