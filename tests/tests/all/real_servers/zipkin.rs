//! Zipkin: spans sent by our Zipkin exporter, read back through Zipkin's API.

use astracer_exporters::Zipkin;
use astracer_model::{Format, Span, TraceId};

use super::{assert_same, e2e_setting, eventually, http, in_order, read, recordings, service, shop, through};

/// The spans of a trace, once there are exactly `spans`.
fn trace(id: TraceId, spans: usize) -> Vec<Span<'static>> {
    let server = e2e_setting("ZIPKIN_HTTP");
    eventually("zipkin", || {
        let found = read(Format::ZipkinJson, &http::get_found(&server, &format!("/api/v2/trace/{id}"))?);
        if found.len() == spans {
            Ok(found)
        } else {
            Err(format!("{} of {spans} spans of {id}", found.len()))
        }
    })
}

#[test]
#[ignore = "needs a real server: cargo xtask e2e"]
fn every_field_of_a_trace_through_two_processes_is_read_back() {
    let server = e2e_setting("ZIPKIN_HTTP");
    let sent = service::serve(|| {
        let zipkin = Zipkin::builder().with_endpoint(format!("http://{server}/api/v2/spans"));
        Box::new(zipkin.build().expect("good settings"))
    });
    // Zipkin's format loses some fields; the formats crate tests which.
    let expected = in_order(through(Format::ZipkinJson, &sent));
    assert_same(&trace(sent[0].trace_id, sent.len()), &expected);
    for service in ["front", "back"] {
        let services = http::get_found(&server, "/api/v2/services").expect("an answer");
        assert!(String::from_utf8_lossy(&services).contains(service));
    }
}

#[test]
#[ignore = "needs a real server: cargo xtask e2e"]
fn recordings_keep_their_counts() {
    recordings::are_found(&format!("zipkin://{}", e2e_setting("ZIPKIN_HTTP")), trace);
}

#[test]
#[ignore = "needs a real server: cargo xtask e2e"]
fn a_service_that_was_recorded_and_tuned_is_seen_with_all_its_routes() {
    let server = e2e_setting("ZIPKIN_HTTP");
    shop::record_tune_and_run(&format!("zipkin=http://{server}"));
    eventually("zipkin", || {
        let names = http::get_found(&server, "/api/v2/spans?serviceName=shop")?;
        // Zipkin returns names in lower case.
        shop::all_routes(&String::from_utf8_lossy(&names), str::to_lowercase)
    });
}
