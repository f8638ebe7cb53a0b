//! Jaeger: spans sent over OTLP, read back through its query API.

use astracer_exporters::{Compression, Otlp, Protocol};
use astracer_model::{Format, Span, TraceId};

use super::{assert_same, e2e_setting, eventually, http, read, recordings, service, shop};

/// The spans of a trace, once there are at least `spans`.
fn trace(id: TraceId, spans: usize) -> Vec<Span<'static>> {
    let server = e2e_setting("JAEGER_QUERY");
    eventually("jaeger", || {
        let found = read(Format::OtlpJson, &http::get_found(&server, &format!("/api/v3/traces/{id}"))?);
        if found.len() >= spans {
            Ok(found)
        } else {
            Err(format!("{} of {spans} spans of {id}", found.len()))
        }
    })
}

#[test]
#[ignore = "needs a real server: cargo xtask e2e"]
fn every_field_of_a_trace_through_two_processes_is_read_back() {
    let (grpc, http) = (e2e_setting("JAEGER_OTLP_GRPC"), e2e_setting("JAEGER_OTLP_HTTP"));
    let protocols = [(Protocol::Grpc, &grpc), (Protocol::HttpProtobuf, &http), (Protocol::HttpJson, &http)];
    for (protocol, server) in protocols {
        let sent = service::serve(|| {
            let otlp = Otlp::builder().with_endpoint(format!("http://{server}")).with_protocol(protocol);
            Box::new(otlp.with_compression(Compression::Gzip).build().expect("good settings"))
        });
        assert_same(&trace(sent[0].trace_id, sent.len()), &sent);
    }
}

#[test]
#[ignore = "needs a real server: cargo xtask e2e"]
fn recordings_keep_their_counts() {
    recordings::are_found(&format!("otlp://{}", e2e_setting("JAEGER_OTLP_GRPC")), trace);
}

#[test]
#[ignore = "needs a real server: cargo xtask e2e"]
fn a_service_that_was_recorded_and_tuned_is_seen_with_all_its_routes() {
    shop::record_tune_and_run(&format!("otlp=http://{}", e2e_setting("JAEGER_OTLP_HTTP")));
    eventually("jaeger", || {
        let names = http::get_found(&e2e_setting("JAEGER_QUERY"), "/api/services/shop/operations")?;
        shop::all_routes(&String::from_utf8_lossy(&names), str::to_owned)
    });
}
