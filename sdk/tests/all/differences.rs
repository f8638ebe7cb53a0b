//! Where ours does not do what tracing-opentelemetry does, and means it. Each has its line in docs/tracing-layer.md.

use astracer_sdk::SpanLimits;
use tracing::field::Empty;
use tracing::info_span;

use crate::support::{draw, one, world};

#[test]
fn unsigned_numbers_are_numbers_where_they_fit() {
    let spans = world(|builder| builder).run(|| {
        info_span!("root", small = 7u8, large = u64::MAX, huge = 1i128 << 100).in_scope(|| ());
    });
    let expected = "root small=7 large=\"18446744073709551615\" huge=\"1267650600228229401496703205376\"\n";
    assert_eq!(draw(&spans), expected);
}

#[test]
fn an_attribute_that_is_set_again_is_exported_once() {
    let spans = world(|builder| builder).run(|| {
        let root = info_span!("root", n = 1);
        root.in_scope(|| {
            root.record("n", 2);
        });
    });
    assert_eq!(draw(&spans), "root n=2\n");
}

#[test]
fn a_name_and_a_kind_that_come_late_are_taken() {
    let spans = world(|builder| builder).run(|| {
        let root = info_span!("root", otel.name = Empty, otel.kind = Empty);
        root.in_scope(|| {
            root.record("otel.name", "GET /orders/{id}");
            root.record("otel.kind", "server");
        });
    });
    assert_eq!(one(&spans, "GET /orders/{id}").span_kind, opentelemetry::trace::SpanKind::Server);
}

#[test]
fn a_status_code_does_not_take_the_description_away() {
    let spans = world(|builder| builder).run(|| {
        info_span!("root", otel.status_description = "why", otel.status_code = "ERROR").in_scope(|| ());
    });
    assert_eq!(draw(&spans), "root [error \"why\"]\n");
}

#[test]
fn limits_cut_what_the_layer_adds_before_what_the_user_gave() {
    let mut limits = SpanLimits::default();
    limits.attributes = 2;
    let spans = world(|builder| builder.with_location(true).with_span_limits(limits)).run(|| {
        info_span!("root", a = 1).in_scope(|| ());
    });
    let root = one(&spans, "root");
    let keys: Vec<&str> = root.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
    assert_eq!((keys, root.dropped_attributes_count), (vec!["a", "code.file.path"], 2));
}

#[test]
fn limits_are_counted_on_span_and_event() {
    let mut limits = SpanLimits::default();
    (limits.attributes, limits.events, limits.links, limits.attributes_per_event, limits.text_length) =
        (1, 2, 1, 1, 4);
    let spans = world(|builder| builder.with_span_limits(limits)).run(|| {
        let others = [info_span!("x"), info_span!("x")];
        let root = info_span!("root", a = "größer", b = 2, c = 3).entered();
        others.iter().for_each(|other| {
            root.follows_from(other);
        });
        (0..3).for_each(|n| tracing::info!(n, m = n));
    });
    let root = one(&spans, "root");
    assert_eq!((root.attributes.len(), root.dropped_attributes_count), (1, 2));
    assert_eq!(root.attributes[0].value.as_str(), "größ");
    assert_eq!((root.events.events.len(), root.events.dropped_count), (2, 1));
    assert_eq!(root.events.events[0].dropped_attributes_count, 1);
    assert_eq!((root.links.links.len(), root.links.dropped_count), (1, 1));
}

#[test]
fn ok_is_final() {
    let spans = world(|builder| builder).run(|| {
        let root = info_span!("root", otel.status_code = "OK", otel.status_description = Empty);
        root.in_scope(|| {
            root.record("otel.status_description", "too late");
            tracing::error!(error = "neither");
        });
    });
    assert_eq!(one(&spans, "root").status, opentelemetry::trace::Status::Ok);
}

/// An event belongs to the span that its thread entered last. The registry, which tracing-opentelemetry asks, says that a
/// span entered again inside another one is not the current one.
#[test]
fn an_event_in_a_span_entered_again_belongs_to_it() {
    let body = || {
        let (a, b) = (info_span!("a"), info_span!("b"));
        a.in_scope(|| b.in_scope(|| a.in_scope(|| tracing::info!("an event"))));
    };
    let events = |spans: &[opentelemetry_sdk::trace::SpanData], name| one(spans, name).events.events.len();
    let ours = crate::parity::ours(|builder| builder, body);
    assert_eq!((events(&ours, "a"), events(&ours, "b")), (1, 0));
    let stock = crate::parity::stock(|layer| layer, body);
    assert_eq!((events(&stock, "a"), events(&stock, "b")), (0, 1));
}

/// The rows of the document's table, with their tests.
const ROWS: &[(&str, fn())] = &[
    ("unsigned and 128-bit numbers", unsigned_numbers_are_numbers_where_they_fit),
    ("an attribute set twice", an_attribute_that_is_set_again_is_exported_once),
    (
        "`otel.name`, `otel.kind` recorded after the span was entered",
        a_name_and_a_kind_that_come_late_are_taken,
    ),
    ("`otel.status_code` after `otel.status_description`", a_status_code_does_not_take_the_description_away),
    ("what a limit on attributes cuts first", limits_cut_what_the_layer_adds_before_what_the_user_gave),
    ("text attributes", limits_are_counted_on_span_and_event),
    (
        "an event in a span that is entered again inside another",
        an_event_in_a_span_entered_again_belongs_to_it,
    ),
];

/// Each table compares the two layers: its rows are the tests', in their order, and no others.
#[test]
fn the_document_s_tables_are_the_tests() {
    let document = include_str!("../../../docs/tracing-layer.md");
    let mut tables: Vec<Vec<&str>> = Vec::new();
    for (header, _) in document.match_indices("| feature | ours | tracing-opentelemetry |") {
        let rows = document[header..].lines().skip(2).take_while(|line| line.starts_with('|'));
        tables.push(rows.map(|row| row[2..].split(" | ").next().unwrap()).collect());
    }
    let names = |rows: &[(&'static str, fn())]| rows.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    assert_eq!(tables, [names(crate::parity::ROWS), names(crate::span_ext::OUR_TRAIT), names(ROWS)]);
}
