//! A loss is reported if and only if the written span is read back differently.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::otlp::testing::{Collected, cases, spans};
use super::*;
use crate::Limits;
use astracer_model::span::{Event, Link, Resource, Scope, SpanKind, Status};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};
use astracer_model::{SpanId, TraceId};

/// The formats with losses.
const NARROW: [Format; 3] = [Format::JaegerJson, Format::ZipkinJson, Format::HTrace];

fn losses(format: Format, span: &Span<'_>) -> Vec<Loss> {
    let mut losses = Losses::default();
    losses.count(format, span);
    losses.counts().map(|(loss, _)| loss).collect()
}

/// The span read back from its written form, with attributes sorted by name.
fn read_back(format: Format, span: &Span<'_>) -> Span<'static> {
    let mut text = Vec::new();
    let mut writer = crate::writer(format, Box::new(&mut text)).expect("the format has a writer");
    writer.trace(std::slice::from_ref(span)).expect("writing to memory succeeds");
    writer.finish().expect("writing to memory succeeds");
    drop(writer);
    let mut kept = Collected::default();
    crate::read(format, &mut &*text, &"f".into(), &Limits::default(), &mut kept);
    assert_eq!(kept.problems, [""; 0], "{format}: {}", String::from_utf8_lossy(&text));
    sorted(kept.spans.pop().expect("a span"))
}

/// Attributes are sorted because no format guarantees their order.
fn sorted(mut span: Span<'static>) -> Span<'static> {
    let mut resource = Resource::clone(&span.resource);
    resource.attributes.sort_by(|a, b| a.key.cmp(&b.key));
    span.attributes.sort_by(|a, b| a.key.cmp(&b.key));
    span.resource = Arc::new(resource);
    span
}

/// A span that every format represents fully, with a value in each shared field.
fn plain() -> Span<'static> {
    let millis = |millis: u64| UnixNanos(1_700_000_000_000_000_000 + millis * 1_000_000);
    Span {
        trace_id: TraceId(0xabc),
        span_id: SpanId(0x12),
        parents: [SpanId(0x11)].into_iter().collect(),
        name: "work".into(),
        kind: SpanKind::Server,
        start: Some(millis(0)),
        end: Some(millis(7)),
        status: Status::Error,
        status_message: "no luck".into(),
        attributes: vec![Attribute::new("route", "/x"), Attribute::new("empty", "")],
        dropped_attributes: 3,
        events: vec![Event { time: millis(1), name: "retry".into(), ..Event::default() }],
        dropped_events: 2,
        links: vec![Link { trace_id: TraceId(0xdef), span_id: SpanId(0x21), ..Link::default() }],
        dropped_links: 1,
        trace_state: "ot=th:8".into(),
        flags: 0,
        shared: false,
        follows: false,
        lone_duration: None,
        wording: Default::default(),
        resource: Arc::new(Resource::service("shop")),
        scope: Arc::new(Scope { name: "lib".into(), version: "1".into(), ..Scope::default() }),
    }
}

fn resource<'s>(span: &'s mut Span<'static>) -> &'s mut Resource {
    Arc::make_mut(&mut span.resource)
}

fn scope<'s>(span: &'s mut Span<'static>) -> &'s mut Scope {
    Arc::make_mut(&mut span.scope)
}

#[test]
fn each_loss_is_named_where_it_happens() {
    use Loss::*;
    type Change = fn(&mut Span<'static>);
    type Row = (&'static str, Change, [&'static [Loss]; 3]);
    let rows: &[Row] = &[
        ("nothing", |_| {}, [&[], &[], &[]]),
        ("long trace id", |s| s.trace_id.0 |= 1 << 64, [&[], &[], &[TraceId]]),
        ("micros", |s| s.end = s.end.map(|t| UnixNanos(t.0 + 1_000)), [&[], &[], &[TimePrecision]]),
        ("nanos", |s| s.events[0].time.0 += 1, [&[TimePrecision], &[TimePrecision], &[TimePrecision]]),
        ("no start", |s| s.start = None, [&[], &[End], &[]]),
        ("no end", |s| s.end = None, [&[], &[], &[]]),
        ("ends at its start", |s| s.end = s.start, [&[], &[End], &[]]),
        ("ends before it starts", |s| s.end = Some(UnixNanos(1_000_000)), [&[End], &[End], &[]]),
        ("1970", |s| s.start = Some(UnixNanos(0)), [&[], &[Start, End], &[Start]]),
        ("flag sampled", |s| s.flags = 1, [&[], &[Flags], &[Flags]]),
        ("other flags", |s| s.flags = 0x100, [&[Flags], &[Flags], &[Flags]]),
        ("shared", |s| s.shared = true, [&[], &[], &[Shared]]),
        ("follows", |s| s.follows = true, [&[], &[Follows], &[Follows]]),
        (
            "follows beside further parents",
            |s| {
                s.follows = true;
                s.parents.push(SpanId(5));
            },
            [&[Follows], &[Follows], &[Follows]],
        ),
        ("further parents", |s| s.parents.push(SpanId(5)), [&[], &[], &[]]),
        ("true as description", |s| s.status_message = "true".into(), [&[], &[], &[]]),
        ("integer", |s| s.attributes[0].value = Value::Int(1), [&[], &[AttributeType], &[AttributeType]]),
        (
            "bytes in an event",
            |s| {
                s.events[0]
                    .attributes
                    .push(Attribute { key: "b".into(), value: Value::Bytes(vec![1].into()) })
            },
            [&[], &[AttributeType], &[EventDetails]],
        ),
        (
            "list",
            |s| s.attributes[0].value = Value::Array(vec![]),
            [&[AttributeType], &[AttributeType], &[AttributeType]],
        ),
        (
            "text in an event",
            |s| s.events[0].attributes.push(Attribute::new("k", "v")),
            [&[], &[], &[EventDetails]],
        ),
        (
            "repeated",
            |s| s.attributes.push(Attribute::new("route", "/y")),
            [&[], &[AttributeRepeated], &[AttributeRepeated]],
        ),
        (
            "error that is false",
            |s| s.attributes.push(Attribute::new("error", "false")),
            [&[], &[AttributeLeftOut], &[]],
        ),
        (
            "reserved",
            |s| s.attributes.push(Attribute::new("otel.scope.version", "2")),
            [&[ReservedName], &[ReservedName], &[ReservedName]],
        ),
        (
            "a resource's attribute on a span",
            |s| s.attributes.push(Attribute::new("process.id", "2")),
            [&[], &[AttributeMoved], &[]],
        ),
        (
            "an attribute of the scope",
            |s| scope(s).attributes.push(Attribute::new("k", "v")),
            [&[AttributeMoved], &[AttributeMoved], &[AttributeMoved]],
        ),
        (
            "a host",
            |s| resource(s).attributes.push(Attribute::new("host.name", "h")),
            [&[], &[], &[AttributeMoved]],
        ),
        (
            "a resource of its own",
            |s| resource(s).attributes.push(Attribute::new("zone", "z")),
            [&[], &[AttributeMoved], &[AttributeMoved]],
        ),
        ("no service", |s| s.resource = Arc::default(), [&[], &[ServiceName], &[]]),
        (
            "schema",
            |s| scope(s).schema_url = "https://example.com/1".into(),
            [&[SchemaUrl], &[SchemaUrl], &[SchemaUrl]],
        ),
        (
            "dropped by the resource",
            |s| resource(s).dropped_attributes = 1,
            [&[DroppedCounts], &[DroppedCounts], &[DroppedCounts]],
        ),
        ("near link", |s| s.links[0].trace_id = s.trace_id, [&[], &[], &[Link]]),
        (
            "near link without a parent",
            |s| (s.links[0].trace_id, s.parents) = (s.trace_id, Default::default()),
            [&[LinkAsParent], &[], &[Link]],
        ),
        ("link's state", |s| s.links[0].trace_state = "a=b".into(), [&[LinkDetails], &[], &[LinkDetails]]),
        (
            "the count of dropped attributes as an event's own",
            |s| {
                let count = Attribute { key: "otel.dropped_attributes_count".into(), value: Value::Int(5) };
                s.events[0].attributes.push(count);
            },
            [&[ReservedName], &[ReservedName], &[EventDetails]],
        ),
        (
            "link to nothing",
            |s| (s.links[0].trace_id, s.links[0].span_id) = Default::default(),
            [&[Link], &[], &[Link]],
        ),
        ("link without a span id", |s| s.links[0].span_id = SpanId::ZERO, [&[Link], &[], &[]]),
        ("link without a trace id", |s| s.links[0].trace_id = Default::default(), [&[Link], &[], &[]]),
        (
            "near link without a span id and without a parent",
            |s| {
                (s.links[0].trace_id, s.links[0].span_id, s.parents) =
                    (s.trace_id, SpanId::ZERO, Default::default())
            },
            [&[Link], &[], &[Link]],
        ),
        ("link's flags", |s| s.links[0].flags = 1, [&[LinkDetails], &[LinkDetails], &[LinkDetails]]),
    ];
    for (name, change, expected) in rows {
        let mut span = plain();
        change(&mut span);
        for (format, expected) in NARROW.into_iter().zip(expected) {
            assert_eq!(losses(format, &span), *expected, "{name} in {format}");
            let unchanged = read_back(format, &span) == sorted(span.clone());
            assert_eq!(unchanged, expected.is_empty(), "{name} in {format}");
        }
        let otlp: &[Loss] = match *name {
            "1970" => &[Start],
            "follows" | "follows beside further parents" => &[Follows],
            _ => &[],
        };
        assert_eq!(losses(Format::OtlpJson, &span), otlp, "{name}");
        assert_eq!(read_back(Format::OtlpJson, &span) == sorted(span.clone()), otlp.is_empty(), "{name}");
    }
}

/// Copies one group of fields of an arbitrary span into a plain one.
fn graft(group: usize, from: Span<'static>) -> Span<'static> {
    let mut span = plain();
    match group {
        0 => span.trace_id = TraceId(from.trace_id.0.max(1)),
        1 => (span.start, span.end) = (from.start, from.end),
        2 => (span.status, span.kind, span.name) = (from.status, from.kind, from.name),
        3 => span.attributes = from.attributes,
        4 => span.events = from.events,
        5 => span.links = from.links,
        6 => span.resource = from.resource,
        7 => span.scope = from.scope,
        8 => {
            (span.flags, span.shared, span.follows) = (from.flags, from.shared, from.flags & 2 != 0);
            span.parents = from.parents;
        }
        _ => (span.dropped_attributes, span.dropped_events) = (from.dropped_attributes, from.dropped_events),
    }
    // Larger times overflow when rounded up, and links without a span id carry no information.
    span.start = span.start.map(|time| UnixNanos(time.0 / 2));
    span.end = span.end.map(|time| UnixNanos(time.0 / 2));
    span.links.iter_mut().for_each(|link| (link.span_id.0 |= 1, link.trace_id.0 |= 1).0);
    span
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn what_is_not_named_comes_back(spans in spans(), group in 0usize..10) {
        for span in spans {
            let span = graft(group, span);
            for format in NARROW {
                let unchanged = read_back(format, &span) == sorted(span.clone());
                let losses = losses(format, &span);
                prop_assert_eq!(unchanged, losses.is_empty(), "{}: {:?}", format, losses);
            }
        }
    }
}
