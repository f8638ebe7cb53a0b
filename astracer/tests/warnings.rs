//! A subscriber that prints events hears of lost spans while the service runs.

#![cfg(all(feature = "otlp-http", feature = "enabled"))]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use astracer::Astracer;
use astracer::exporters::{Otlp, Retry};
use astracer_testing::{Answer, Server, wait_until};
use tracing::field::{Field, Visit};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Collects the events with the target `astracer`.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<String>>);

struct Writer<'a>(&'a mut String);

impl Visit for Writer<'_> {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        let _ = writeln!(self.0, "{value:?}");
    }
}

impl<S: tracing::Subscriber> Layer<S> for Page {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "astracer" {
            let mut page = self.0.lock().unwrap();
            let _ = write!(page, "{} ", event.metadata().level());
            event.record(&mut Writer(&mut page));
        }
    }
}

impl Page {
    fn waits_for(&self, text: &str) -> String {
        let page = || self.0.lock().unwrap().clone();
        wait_until(text, || page().contains(text));
        page()
    }
}

#[test]
fn a_server_that_refuses_spans_is_a_warning_and_its_recovery_an_info() {
    let server = Server::new([Answer::status(401)]).then(Answer::status(200));
    let otlp = Otlp::builder().with_endpoint(server.url("http")).with_retry(Retry::NEVER);
    let otlp = otlp.with_variables(|name| (name == "OTEL_EXPORTER_OTLP_TIMEOUT").then(|| "10s".to_owned()));
    let variables = |name: &str| (name == "OTEL_BSP_SCHEDULE_DELAY").then(|| "5s".to_owned());
    let builder = Astracer::builder().with_sampler("always".parse().unwrap()).with_variables(variables);
    let astracer = builder.with_destination(otlp.build().unwrap()).build().unwrap();
    let page = Page::default();
    tracing_subscriber::registry().with(astracer.layer.clone()).with(page.clone()).init();

    // Ignored variables are reported once the subscriber exists.
    let seen = page.waits_for("OTEL_EXPORTER_OTLP_TIMEOUT");
    let ignored = "is not a whole number from 0 to 4294967295; using the previous setting";
    assert!(seen.contains(&format!("WARN OTEL_BSP_SCHEDULE_DELAY: `5s` {ignored}\n")), "{seen}");
    let ignored = "use milliseconds, or 0 for no limit; using the previous setting";
    assert!(seen.contains(&format!("WARN OTEL_EXPORTER_OTLP_TIMEOUT: invalid timeout `10s`: {ignored}\n")));

    // A service's span around the warning does not record it.
    let around = tracing::info_span!("around").entered();
    tracing::info_span!(parent: None, "work").in_scope(|| ());
    let seen = page.waits_for("requires authentication");
    assert!(seen.contains("WARN spans since the start: 1 lost (rejected 1); http://"), "{seen}");
    tracing::info_span!(parent: None, "work").in_scope(|| ());
    let seen = page.waits_for("INFO");
    assert!(seen.contains("INFO exports succeed again; spans since the start: 1 lost"), "{seen}");
    drop(around);
    // The loss was told, so it does not fail the shutdown.
    astracer.handle.shutdown(Duration::from_secs(30)).unwrap();
}
