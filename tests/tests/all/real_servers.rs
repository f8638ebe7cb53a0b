//! Traces sent to real servers and read back: Zipkin, Jaeger and the OpenTelemetry Collector.
//!
//! `cargo xtask e2e` installs and starts the servers, passes their addresses to these tests, and
//! runs them; a plain `cargo test` counts them as ignored. The tests of a server are in the module
//! with its name.

mod collector;
mod http;
mod jaeger;
mod recordings;
mod service;
mod shop;
mod zipkin;

use std::sync::Arc;
use std::time::{Duration, Instant};

use astracer_formats::Limits;
use astracer_model::sink::Record;
use astracer_model::span::Resource;
use astracer_model::{Format, Problem, Sink, Span};

/// Servers store spans in the background, so they are polled for at most this time.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// An address, a file or a program that `cargo xtask e2e` passes in an environment variable.
fn e2e_setting(name: &str) -> String {
    let name = format!("ASTRACER_E2E_{name}");
    std::env::var(&name)
        .unwrap_or_else(|_| panic!("{name} is not set: run these tests with `cargo xtask e2e`"))
}

/// Polls until `ask` succeeds. Panics with its last error after [`PATIENCE`].
#[track_caller]
fn eventually<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(last) if start.elapsed() > PATIENCE => panic!("{what}: {last}"),
            Err(_) => std::thread::sleep(POLL),
        }
    }
}

#[derive(Default)]
struct Collected {
    spans: Vec<Span<'static>>,
    problems: Vec<String>,
}

impl Sink for Collected {
    fn span(&mut self, span: Span<'_>, _record: Record<'_>) {
        self.spans.push(span.into_owned());
    }

    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem.to_string());
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        self.problems.push(format!("{file}: {reason}"));
    }
}

/// The spans of a text, sorted by id. Fails the test if the reader reports a problem.
#[track_caller]
fn read(format: Format, text: &[u8]) -> Vec<Span<'static>> {
    let mut kept = Collected::default();
    astracer_formats::read(format, &mut &*text, &"answer".into(), &Limits::default(), &mut kept);
    assert_eq!(kept.problems, [""; 0]);
    in_order(kept.spans)
}

/// Sorts spans by id and attributes by name: servers preserve neither order.
fn in_order(mut spans: Vec<Span<'static>>) -> Vec<Span<'static>> {
    for span in &mut spans {
        span.attributes.sort_by(|a, b| a.key.cmp(&b.key));
        let mut resource = Resource::clone(&span.resource);
        resource.attributes.sort_by(|a, b| a.key.cmp(&b.key));
        span.resource = Arc::new(resource);
        span.events.sort_by_key(|event| event.time);
        for event in &mut span.events {
            event.attributes.sort_by(|a, b| a.key.cmp(&b.key));
        }
    }
    spans.sort_by_key(|span| (span.span_id, span.shared));
    spans
}

/// Writes spans with our writer, and reads them back.
fn through(format: Format, spans: &[Span<'_>]) -> Vec<Span<'static>> {
    let mut text = Vec::new();
    let mut writer = astracer_formats::writer(format, Box::new(&mut text)).expect("the format is written");
    writer.trace(spans).expect("writes to memory succeed");
    writer.finish().expect("writes to memory succeed");
    drop(writer);
    read(format, &text)
}

/// Compares span by span, so that a failure shows only the one that differs.
#[track_caller]
fn assert_same(found: &[Span<'_>], expected: &[Span<'_>]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        // Compares the printed forms, because NaN does not equal itself.
        assert_eq!(format!("{found:#?}"), format!("{expected:#?}"));
    }
}
