//! Test support: arbitrary spans, and a sink that keeps everything.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use astracer_model::ids::{SpanId, TraceId};
use astracer_model::problem::Problem;
use astracer_model::sink::{Record, Sink};
use astracer_model::span::{Event, Link, Resource, Scope, Span, SpanKind, Status};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

/// A configuration that generates the same cases in each run.
pub(crate) fn cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        cases: count,
        rng_seed: RngSeed::Fixed(0x0071_1ed0),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Everything that a reader delivered for one file.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) spans: Vec<Span<'static>>,
    /// The record of each span, with its line and byte.
    pub(crate) records: Vec<(Vec<u8>, u64, u64)>,
    pub(crate) problems: Vec<String>,
    pub(crate) skipped: Vec<String>,
}

impl Sink for Collected {
    fn span(&mut self, span: Span<'_>, record: Record<'_>) {
        self.spans.push(span.into_owned());
        self.records.push((record.bytes.to_vec(), record.place.line, record.place.byte));
    }

    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem.to_string());
    }

    fn skipped(&mut self, _file: &Arc<str>, reason: &str) {
        self.skipped.push(reason.to_owned());
    }
}

impl Collected {
    /// Checks that exactly these spans were delivered, in any order.
    #[track_caller]
    pub(crate) fn assert_spans(mut self, expected: &[Span<'_>]) {
        assert_eq!(self.problems, [""; 0]);
        for span in expected {
            let found = self.spans.iter().position(|read| read == span);
            assert!(found.is_some(), "{span:#?}\nis not among\n{:#?}", self.spans);
            self.spans.swap_remove(found.unwrap_or(0));
        }
        assert_eq!(self.spans, []);
    }
}

fn text() -> impl Strategy<Value = String> {
    // Mostly short ASCII, sometimes anything: quotes, control characters, all of Unicode.
    let char = prop_oneof![3 => (b' '..=b'~').prop_map(char::from), 1 => any::<char>()];
    vec(char, 0..12).prop_map(String::from_iter)
}

fn value() -> impl Strategy<Value = Value<'static>> {
    let leaf = prop_oneof![
        Just(Value::Empty),
        text().prop_map(|text| Value::String(text.into())),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<f64>().prop_map(Value::Double),
        prop_oneof![Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(0.0)].prop_map(Value::Double),
        vec(any::<u8>(), 0..40).prop_map(|bytes| Value::Bytes(bytes.into())),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            vec((text(), inner), 0..4).prop_map(|items| {
                Value::Map(items.into_iter().map(|(key, value)| Attribute::new(key, value)).collect())
            }),
        ]
    })
}

fn attributes() -> impl Strategy<Value = Vec<Attribute<'static>>> {
    vec((text(), value()).prop_map(|(key, value)| Attribute::new(key, value)), 0..4)
}

fn event() -> impl Strategy<Value = Event<'static>> {
    (any::<u64>(), text(), attributes(), any::<u32>()).prop_map(
        |(time, name, attributes, dropped_attributes)| Event {
            time: UnixNanos(time),
            name: name.into(),
            attributes,
            dropped_attributes,
        },
    )
}

fn link() -> impl Strategy<Value = Link<'static>> {
    (any::<u128>(), any::<u64>(), text(), attributes(), any::<u32>(), any::<u32>()).prop_map(
        |(trace_id, span_id, trace_state, attributes, dropped_attributes, flags)| Link {
            trace_id: TraceId(trace_id),
            span_id: SpanId(span_id),
            trace_state: trace_state.into(),
            attributes,
            dropped_attributes,
            flags,
        },
    )
}

fn resource() -> impl Strategy<Value = Arc<Resource>> {
    (attributes(), any::<u32>(), text()).prop_map(|(attributes, dropped_attributes, schema_url)| {
        Arc::new(Resource { attributes, dropped_attributes, schema_url })
    })
}

fn scope() -> impl Strategy<Value = Arc<Scope>> {
    (text(), text(), attributes(), any::<u32>(), text()).prop_map(
        |(name, version, attributes, dropped_attributes, schema_url)| {
            Arc::new(Scope { name, version, attributes, dropped_attributes, schema_url })
        },
    )
}

/// A span without NaN, because NaN does not equal itself.
fn span() -> impl Strategy<Value = Span<'static>> {
    let small = || prop_oneof![Just(0), Just(1), any::<u32>()];
    let kinds = (0i64..=5, 0i64..=2);
    let ids = (prop_oneof![Just(0), any::<u128>()], 1..=u64::MAX, vec(1..=u64::MAX, 0..4), any::<bool>());
    let times = (option::of(1..=u64::MAX), option::of(1..=u64::MAX));
    let lists = (attributes(), vec(event(), 0..3), vec(link(), 0..3));
    let numbers = (small(), small(), small(), small());
    (ids, times, (text(), text(), text()), kinds, lists, numbers).prop_map(
        |(ids, times, texts, (kind, status), lists, numbers)| Span {
            trace_id: TraceId(ids.0),
            span_id: SpanId(ids.1),
            parents: ids.2.into_iter().map(SpanId).collect(),
            shared: ids.3,
            name: texts.0.into(),
            status_message: texts.1.into(),
            trace_state: texts.2.into(),
            kind: SpanKind::from_otlp(kind),
            status: Status::from_otlp(status),
            start: times.0.map(UnixNanos),
            end: times.1.map(UnixNanos),
            attributes: lists.0,
            events: lists.1,
            links: lists.2,
            dropped_attributes: numbers.0,
            dropped_events: numbers.1,
            dropped_links: numbers.2,
            flags: numbers.3,
            ..Span::default()
        },
    )
}

/// Spans of a few resources and scopes.
pub(crate) fn spans() -> impl Strategy<Value = Vec<Span<'static>>> {
    let one = (span(), any::<prop::sample::Index>(), any::<prop::sample::Index>());
    (vec(one, 0..6), vec(resource(), 1..4), vec(scope(), 1..4)).prop_map(|(spans, resources, scopes)| {
        let with =
            |(span, resource, scope): (Span<'static>, prop::sample::Index, prop::sample::Index)| Span {
                resource: Arc::clone(resource.get(&resources)),
                scope: Arc::clone(scope.get(&scopes)),
                ..span
            };
        spans.into_iter().map(with).collect()
    })
}
