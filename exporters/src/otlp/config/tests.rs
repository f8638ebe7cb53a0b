//! Variables, and the URLs that requests are sent to.

use std::time::Duration;

use astracer_testing::Identity;

use super::*;

fn read(variables: &[(&str, &str)]) -> OtlpBuilder {
    let owned: Vec<(String, String)> =
        variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    Otlp::builder()
        .with_variables(move |name| owned.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone()))
}

#[track_caller]
fn check_uri(variables: &[(&str, &str)], expected: &str) {
    let uri = read(variables).uri();
    assert_eq!(uri.as_ref().map_or_else(String::clone, ToString::to_string), expected);
}

const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const GRPC: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");

/// The examples of "Endpoint URLs for OTLP/HTTP" in OpenTelemetry's specification, and its
/// defaults.
#[test]
fn paths_over_http_follow_the_specification() {
    check_uri(&[], "http://localhost:4318/v1/traces");
    check_uri(&[(ALL, "http://collector:4318")], "http://collector:4318/v1/traces");
    check_uri(&[(ALL, "http://collector:4318/mycollector/")], "http://collector:4318/mycollector/v1/traces");
    check_uri(&[(ALL, "http://c:4318/base?token=a/b")], "http://c:4318/base/v1/traces?token=a/b");
    check_uri(&[(ALL, "http://c:4318?token=t")], "http://c:4318/v1/traces?token=t");
    check_uri(&[(ALL, "http://a"), (TRACES, "http://b:4318")], "http://b:4318/");
    check_uri(&[(ALL, "http://a"), (TRACES, "http://b/x?y=1")], "http://b/x?y=1");
    check_uri(
        &[(ALL, "collector:4318")],
        "`collector:4318` has no scheme: use http://collector:4318 or https://collector:4318",
    );
    check_uri(&[(ALL, "ftp://collector")], "unsupported scheme `ftp`: use http or https");
    check_uri(&[(ALL, "")], "http://localhost:4318/v1/traces");
}

#[test]
fn insecure_is_for_grpc_without_a_scheme() {
    check_uri(&[GRPC], "http://localhost:4317/");
    check_uri(&[GRPC, (ALL, "c:4317")], "https://c:4317/");
    check_uri(&[GRPC, (ALL, "c:4317"), ("OTEL_EXPORTER_OTLP_INSECURE", "true")], "http://c:4317/");
    check_uri(&[GRPC, (ALL, "https://c:4317"), ("OTEL_EXPORTER_OTLP_INSECURE", "true")], "https://c:4317/");
    let both = [
        GRPC,
        (ALL, "c:1"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "true"),
        ("OTEL_EXPORTER_OTLP_TRACES_INSECURE", "false"),
    ];
    check_uri(&both, "https://c:1/");
}

#[test]
fn what_is_said_of_traces_goes_before_what_is_said_of_all() {
    let builder = read(&[
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=1"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "api-key=k%20%3D%2C, x-tenant = t ,"),
    ]);
    assert_eq!(builder.fault, None);
    assert_eq!(builder.protocol, Protocol::HttpJson);
    assert_eq!(builder.sending.timeout, Duration::from_millis(2_500));
    assert_eq!(builder.sending.compression, Compression::None);
    let headers = [("api-key", "k =,"), ("x-tenant", "t")];
    assert_eq!(builder.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    // Only the variables for all signals.
    let builder = read(&[("OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "7")]);
    assert_eq!(
        (builder.sending.compression, builder.sending.timeout),
        (Compression::Gzip, Duration::from_millis(7))
    );
}

/// OpenTelemetry's specification of environment variables, "Timeout": "Implementations SHOULD
/// interpret timeout zero values as no limit (i.e. infinite)". A very large duration may stand for
/// it.
#[test]
fn a_timeout_of_zero_is_no_limit() {
    let never = Duration::from_millis(u64::from(u32::MAX));
    let builder = read(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "0"), ("OTEL_BSP_EXPORT_TIMEOUT", "0")]);
    assert_eq!(builder.fault, None);
    assert_eq!((builder.sending.timeout, builder.sending.retry.max_age()), (never, never));
    builder.build().unwrap();
}

#[track_caller]
fn check_fault(variable: (&str, &str), expected: &str) {
    let error = read(&[variable]).with_strict_variables().build().unwrap_err();
    assert_eq!(error.setting(), variable.0);
    assert_eq!(error.to_string(), format!("{}: {expected}", variable.0));
}

#[test]
fn what_cannot_be_used_is_named() {
    check_fault(
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http"),
        "unknown protocol `http`: use grpc, http/protobuf or http/json",
    );
    check_fault(
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        "invalid timeout `10s`: use milliseconds, or 0 for no limit",
    );
    check_fault(
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "lz4"),
        "unknown compression `lz4`: use gzip, zstd or none",
    );
    check_fault(("OTEL_EXPORTER_OTLP_INSECURE", "1"), "invalid boolean `1`: use true or false");
    check_fault(
        ("OTEL_EXPORTER_OTLP_HEADERS", "token"),
        "a header lacks '=': use name=value, separated by commas",
    );
    check_fault(("OTEL_EXPORTER_OTLP_HEADERS", "a b=1"), "invalid header name `a b`");
    check_fault(
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=%0A"),
        "the value of header `a` has characters that are not allowed",
    );
    check_fault(("OTEL_EXPORTER_OTLP_HEADERS", "a=%FF"), "the value of header `a` is not UTF-8");
    check_fault(
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a b"),
        "invalid URL `http://a b`: invalid uri character",
    );
    check_fault(
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "Cargo.toml"),
        "a client certificate needs both the certificate and its key",
    );
    check_fault(
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "no/such/file.pem"),
        "cannot read `no/such/file.pem`: No such file or directory (os error 2)",
    );
}

/// OpenTelemetry's specification of environment variables: a value that an enum does not have, or
/// that is not a number, "SHOULD generate a warning and gracefully ignore the setting".
#[test]
fn names_numbers_and_booleans_are_ignored_with_a_warning() {
    use crate::Destination as _;
    let builder = read(&[
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "lz4"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "1"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "-1"),
    ]);
    let expected = Otlp::builder();
    assert_eq!((builder.protocol, builder.insecure), (expected.protocol, false));
    assert_eq!(builder.sending.timeout, expected.sending.timeout);
    assert_eq!(builder.sending.retry, expected.sending.retry);
    let warnings = builder.build().unwrap().warnings();
    assert_eq!(
        warnings,
        [
            "OTEL_EXPORTER_OTLP_PROTOCOL: unknown protocol `http`: use grpc, http/protobuf or http/json; using \
             the previous setting",
            "OTEL_EXPORTER_OTLP_INSECURE: invalid boolean `1`: use true or false; using the previous setting",
            "OTEL_EXPORTER_OTLP_TIMEOUT: invalid timeout `10s`: use milliseconds, or 0 for no limit; using the \
             previous setting",
            "OTEL_BSP_EXPORT_TIMEOUT: invalid timeout `-1`: use milliseconds, or 0 for no limit; using the \
             previous setting",
            "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: unknown compression `lz4`: use gzip, zstd or none; using \
             the previous setting",
        ]
    );
}

#[test]
fn certificates_that_cannot_be_used_are_refused_before_the_first_request() {
    let build =
        |builder: OtlpBuilder| builder.with_endpoint("https://localhost:1").build().unwrap_err().to_string();
    for protocol in [Protocol::HttpProtobuf, Protocol::Grpc] {
        let builder = Otlp::builder().with_protocol(protocol);
        assert_eq!(
            build(builder.clone().with_root_certificates("hello")),
            "certificates: the file of root certificates contains no certificate"
        );
        let own = Identity::self_signed("localhost", false);
        let other = Identity::self_signed("localhost", false);
        let builder = builder.with_root_certificates(own.pem());
        let bad = build(builder.clone().with_client_certificate(own.pem(), "hello"));
        assert!(bad.starts_with("certificates: cannot read the file of the client's key: "), "{bad}");
        let unequal = build(builder.with_client_certificate(own.pem(), other.key_pem()));
        assert!(unequal.starts_with("certificates: invalid client certificate or key: "), "{unequal}");
    }
}

/// OpenTelemetry's specification of environment variables: "Enum values SHOULD be interpreted in a
/// case-insensitive manner".
#[test]
fn names_of_protocols_are_read_in_any_case() {
    for (name, protocol) in [
        ("gRPC", Protocol::Grpc),
        ("HTTP/protobuf", Protocol::HttpProtobuf),
        ("http/JSON", Protocol::HttpJson),
    ] {
        assert_eq!(name.parse::<Protocol>().ok(), Some(protocol), "{name}");
    }
}

#[test]
fn the_setting_that_requested_metrics_in_json_is_named() {
    let builder = crate::OtlpMetrics::builder;
    let read = |name: &'static str| {
        builder().with_variables(move |asked| (asked == name).then(|| "http/json".to_owned()))
    };
    let all = "OTEL_EXPORTER_OTLP_PROTOCOL";
    let metrics = "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL";
    for (builder, setting) in [
        (read(all), all),
        (read(metrics), metrics),
        (builder().with_protocol(Protocol::HttpJson), "protocol"),
        (read(all).with_protocol(Protocol::HttpJson), "protocol"),
    ] {
        assert_eq!(builder.build().unwrap_err().setting(), setting);
    }
}

/// A second `content-length` would make the request invalid; a second `host` goes elsewhere.
#[test]
fn headers_of_the_request_itself_are_refused() {
    for name in ["Content-Length", "transfer-encoding", "content-encoding", "content-type", "host"] {
        let builder = read(&[("OTEL_EXPORTER_OTLP_HEADERS", &format!("a=b,{name}=x"))]);
        let error = builder.build().unwrap_err().to_string();
        let lower = name.to_ascii_lowercase();
        let expected =
            format!("OTEL_EXPORTER_OTLP_HEADERS: the exporter itself sets the header `{lower}`: remove it");
        assert_eq!(error, expected);
    }
}
