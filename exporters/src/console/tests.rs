//! Whole drawings.

use std::borrow::Cow;
use std::io;
use std::sync::{Arc, Mutex};

use astracer_model::span::Resource;
use astracer_model::{SpanId, UnixNanos};

use super::*;

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn span(id: u64, parent: u64, name: &str, micros: (u64, u64)) -> Span<'static> {
    Span {
        trace_id: TraceId(0xabc),
        span_id: SpanId(id),
        parents: (parent != 0).then_some(SpanId(parent)).into_iter().collect(),
        name: Cow::Owned(name.to_owned()),
        start: Some(UnixNanos(1_000_000_000 + micros.0 * 1_000)),
        end: Some(UnixNanos(1_000_000_000 + micros.1 * 1_000)),
        resource: Arc::new(Resource::service("shop")),
        ..Span::default()
    }
}

fn failed(span: Span<'static>, message: &'static str) -> Span<'static> {
    Span { status: Status::Error, status_message: message.into(), ..span }
}

fn drawn(spans: &[Span<'_>]) -> String {
    let page = Page::default();
    let console = Console::plain(page.clone());
    console.send(spans).unwrap();
    assert_eq!(console.counter().read().sent, spans.len() as u64);
    let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= COLUMNS, "{line}");
    }
    text
}

#[test]
fn a_trace_is_drawn_as_a_tree() {
    // Children end before their parents, so they come first. Of two siblings, the one that starts
    // first is drawn first.
    let spans = [
        span(5, 4, "read page", (4_500, 5_000)),
        failed(span(4, 1, "SELECT orders", (4_000, 10_000)), "deadlock: transaction 7 was chosen"),
        span(3, 2, "read key", (600, 601)),
        span(2, 1, "check token", (500, 1_500)),
        failed(span(6, 1, "render", (11_000, 12_000)), ""),
        span(1, 0, "GET /orders/{id}", (0, 12_000)),
    ];
    let expected = "\
trace 00000000000000000000000000000abc  shop  6 spans, 2 failed
GET /orders/{id}                               12.0 ms  ████████████████████████
├─ check token                                 1.00 ms   ██
│  └─ read key                                 1.00 µs   █
├─ SELECT orders                            !  6.00 ms          ████████████
│  │  deadlock: transaction 7 was chosen
│  └─ read page                                 500 µs           █
└─ render                                   !  1.00 ms                        ██

";
    assert_eq!(drawn(&spans), expected);
}

/// A service may itself set an attribute of that name. Spans that were kept late also have an
/// adjusted count of 0.
#[test]
fn a_trace_that_was_kept_late_says_why() {
    use astracer_model::value::Attribute;

    for (count, heading) in
        [(Some(0.0), "1 span, kept late: error\n"), (Some(100.0), "1 span\n"), (None, "1 span\n")]
    {
        let mut span = span(1, 0, "GET /", (0, 1_000));
        span.attributes.push(Attribute::new("sampling.reason", "error"));
        if let Some(count) = count {
            span.attributes.push(Attribute::new("sampler.adjusted_count", Value::Double(count)));
        }
        let expected = format!("trace 00000000000000000000000000000abc  shop  {heading}");
        assert!(drawn(&[span]).starts_with(&expected), "{count:?}");
    }
}

#[test]
fn traces_are_drawn_one_by_one_and_orphans_are_roots() {
    let other = |span: Span<'static>| Span { trace_id: TraceId(0xdef), resource: Arc::default(), ..span };
    let spans = [
        span(1, 77, "the parent is elsewhere", (0, 10)),
        other(span(1, 0, "another", (0, 20))),
        span(2, 77, "so is this one's", (10, 20)),
        Span { end: None, ..span(3, 2, "no end", (12, 0)) },
    ];
    let expected = "\
trace 00000000000000000000000000000abc  shop  3 spans
the parent is elsewhere                        10.0 µs  ████████████
so is this one's                               10.0 µs              ████████████
└─ no end                                            ?

trace 00000000000000000000000000000def  1 span
another                                        20.0 µs  ████████████████████████

";
    assert_eq!(drawn(&spans), expected);
}

#[test]
fn long_names_deep_traces_and_circles_fit() {
    let mut spans: Vec<_> = (1..=5_000).map(|id| span(id, id - 1, &"n".repeat(100), (0, 1))).collect();
    // Two spans that are each other's parents, and one that is its own.
    spans.push(span(6_001, 6_002, "a", (0, 1)));
    spans.push(span(6_002, 6_001, "b", (0, 1)));
    spans.push(span(6_003, 6_003, "c", (0, 1)));
    let text = drawn(&spans);
    assert_eq!(text.lines().filter(|line| line.contains("nnn")).count(), SPANS_MAX);
    assert!(text.contains("... and 4003 more"), "{text}");
    let circle = drawn(&spans[5_000..]);
    let names: Vec<_> = circle.lines().filter_map(|line| line.split("  ").next()).collect();
    assert_eq!(names[1..], ["c", "a", "\u{2514}\u{2500} b", ""]);
}

#[test]
fn colours_are_for_terminals() {
    let file = tempfile::tempfile().unwrap();
    assert!(!Console::colored(file).paint.colors);
    let mut text = String::new();
    let spans = [failed(span(1, 0, "x", (0, 1)), "why")];
    draw(&mut text, &spans.iter().collect::<Vec<_>>(), Paint { colors: true });
    assert!(text.contains("\u{1b}[31mx\u{1b}[0m") && text.contains("\u{1b}[31mwhy\u{1b}[0m"), "{text}");
}

#[test]
fn what_cannot_be_written_is_lost_by_name() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let console = Console::plain(Closed);
    assert_eq!(console.send(&[span(1, 0, "x", (0, 1))]).unwrap_err().kind(), ErrorKind::File);
    console.shut_down(Duration::ZERO).unwrap();
    assert_eq!(console.send(&[span(1, 0, "x", (0, 1))]).unwrap_err().kind(), ErrorKind::ShutDown);
    let counts = console.counter().read();
    assert_eq!((counts.lost.of(ErrorKind::File), counts.lost.of(ErrorKind::ShutDown)), (1, 1));
}

/// The clock was set back while the second span ran, so it ends before its start and before the
/// start of the trace.
#[test]
fn a_span_that_ends_before_it_starts_is_drawn() {
    let text =
        drawn(&[span(1, 0, "GET /", (0, 10)), span(2, 1, "query", (100, 50)), span(3, 1, "late", (200, 50))]);
    assert!(text.contains("query") && text.contains("late"), "{text}");
}
