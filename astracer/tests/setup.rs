//! `astracer::configure` against a server that refuses every request, without a console.

#![cfg(all(feature = "setup", feature = "otlp-http", feature = "enabled"))]

use std::time::Duration;

use astracer::exporters::{Otlp, Retry};
use astracer::opentelemetry::global;
use astracer_testing::{Answer, Server};

/// Nobody read a warning, so the shutdown fails and says why. A second set-up is refused.
#[test]
fn losses_that_nobody_was_told_of_fail_the_shutdown() {
    let server = Server::new([]).then(Answer::status(401));
    let otlp = Otlp::builder().with_endpoint(server.url("http")).with_retry(Retry::NEVER).build().unwrap();
    let setup = astracer::configure().with_service_name("shop").with_service_version("1.2.3");
    let setup = setup.with_sampler("always".parse().unwrap()).with_destination(otlp).with_console(false);
    let guard = setup.install().unwrap();
    for _ in 0..3 {
        tracing::info_span!("work").in_scope(|| ());
    }
    let resource = guard.handle().resource().unwrap();
    let attribute = |key: &'static str| resource.get(&key.into()).map(|value| value.to_string()).unwrap();
    assert_eq!(attribute("service.name"), "shop");
    assert_eq!(attribute("service.version"), "1.2.3");
    assert_eq!(attribute("telemetry.sdk.name"), "astracer");
    let has_field = |name| global::get_text_map_propagator(|all| all.fields().any(|field| field == name));
    assert!(has_field("traceparent") && has_field("baggage"));

    let error = guard.shutdown(Duration::from_secs(30)).unwrap_err();
    assert_eq!(error.spans_lost(), 3);
    assert!(error.to_string().contains("the server requires authentication"), "{error}");
    assert!(server.request(0).header("content-type").is_some());

    let again = astracer::configure().with_builder(|builder| builder.with_enabled(false)).install();
    // A `main` that returns the error prints its `Debug`.
    let error = format!("{:?}", again.unwrap_err());
    assert!(error.contains("install astracer once"), "{error}");
}
