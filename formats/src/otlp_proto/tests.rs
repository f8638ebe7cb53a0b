//! Requests made by prost from independent definitions of OTLP's messages, valid and invalid.

use std::sync::Arc;

use proptest::prelude::*;
use prost::Message as _;

use super::write_request;
use crate::Limits;
use crate::otlp::testing::{Collected, cases, spans};
use astracer_model::Format;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::otlp::otlp_size;
use astracer_model::span::Span;
use astracer_model::value::{Attribute, Value};

/// OTLP's messages, numbered as in its version 1 definitions.
mod proto {
    use prost::{Message, Oneof};

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Request {
        #[prost(message, repeated, tag = "1")]
        pub(super) resource_spans: Vec<ResourceSpans>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct ResourceSpans {
        #[prost(message, optional, tag = "1")]
        pub(super) resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub(super) scope_spans: Vec<ScopeSpans>,
        #[prost(string, tag = "3")]
        pub(super) schema_url: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Resource {
        #[prost(message, repeated, tag = "1")]
        pub(super) attributes: Vec<KeyValue>,
        #[prost(uint32, tag = "2")]
        pub(super) dropped_attributes_count: u32,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct ScopeSpans {
        #[prost(message, optional, tag = "1")]
        pub(super) scope: Option<Scope>,
        #[prost(message, repeated, tag = "2")]
        pub(super) spans: Vec<Span>,
        #[prost(string, tag = "3")]
        pub(super) schema_url: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Scope {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(string, tag = "2")]
        pub(super) version: String,
        #[prost(message, repeated, tag = "3")]
        pub(super) attributes: Vec<KeyValue>,
        #[prost(uint32, tag = "4")]
        pub(super) dropped_attributes_count: u32,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Span {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) trace_id: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub(super) span_id: Vec<u8>,
        #[prost(string, tag = "3")]
        pub(super) trace_state: String,
        #[prost(bytes = "vec", tag = "4")]
        pub(super) parent_span_id: Vec<u8>,
        #[prost(string, tag = "5")]
        pub(super) name: String,
        #[prost(int32, tag = "6")]
        pub(super) kind: i32,
        #[prost(fixed64, tag = "7")]
        pub(super) start_time_unix_nano: u64,
        #[prost(fixed64, tag = "8")]
        pub(super) end_time_unix_nano: u64,
        #[prost(message, repeated, tag = "9")]
        pub(super) attributes: Vec<KeyValue>,
        #[prost(uint32, tag = "10")]
        pub(super) dropped_attributes_count: u32,
        #[prost(message, repeated, tag = "11")]
        pub(super) events: Vec<Event>,
        #[prost(uint32, tag = "12")]
        pub(super) dropped_events_count: u32,
        #[prost(message, repeated, tag = "13")]
        pub(super) links: Vec<Link>,
        #[prost(uint32, tag = "14")]
        pub(super) dropped_links_count: u32,
        #[prost(message, optional, tag = "15")]
        pub(super) status: Option<Status>,
        #[prost(fixed32, tag = "16")]
        pub(super) flags: u32,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Event {
        #[prost(fixed64, tag = "1")]
        pub(super) time_unix_nano: u64,
        #[prost(string, tag = "2")]
        pub(super) name: String,
        #[prost(message, repeated, tag = "3")]
        pub(super) attributes: Vec<KeyValue>,
        #[prost(uint32, tag = "4")]
        pub(super) dropped_attributes_count: u32,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Link {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) trace_id: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub(super) span_id: Vec<u8>,
        #[prost(string, tag = "3")]
        pub(super) trace_state: String,
        #[prost(message, repeated, tag = "4")]
        pub(super) attributes: Vec<KeyValue>,
        #[prost(uint32, tag = "5")]
        pub(super) dropped_attributes_count: u32,
        #[prost(fixed32, tag = "6")]
        pub(super) flags: u32,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Status {
        #[prost(string, tag = "2")]
        pub(super) message: String,
        #[prost(int32, tag = "3")]
        pub(super) code: i32,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct KeyValue {
        #[prost(string, tag = "1")]
        pub(super) key: String,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<AnyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct AnyValue {
        #[prost(oneof = "Any", tags = "1, 2, 3, 4, 5, 6, 7")]
        pub(super) value: Option<Any>,
    }

    #[derive(Clone, PartialEq, Oneof)]
    pub(super) enum Any {
        #[prost(string, tag = "1")]
        String(String),
        #[prost(bool, tag = "2")]
        Bool(bool),
        #[prost(int64, tag = "3")]
        Int(i64),
        #[prost(double, tag = "4")]
        Double(f64),
        #[prost(message, tag = "5")]
        Array(ArrayValue),
        #[prost(message, tag = "6")]
        Map(KeyValueList),
        #[prost(bytes = "vec", tag = "7")]
        Bytes(Vec<u8>),
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct ArrayValue {
        #[prost(message, repeated, tag = "1")]
        pub(super) values: Vec<AnyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct KeyValueList {
        #[prost(message, repeated, tag = "1")]
        pub(super) values: Vec<KeyValue>,
    }
}

fn any_value(value: &Value<'_>) -> proto::AnyValue {
    let value = match value {
        Value::Empty => None,
        Value::String(text) => Some(proto::Any::String(text.to_string())),
        Value::Bool(value) => Some(proto::Any::Bool(*value)),
        Value::Int(value) => Some(proto::Any::Int(*value)),
        Value::Double(value) => Some(proto::Any::Double(*value)),
        Value::Bytes(bytes) => Some(proto::Any::Bytes(bytes.to_vec())),
        Value::Array(items) => {
            Some(proto::Any::Array(proto::ArrayValue { values: items.iter().map(any_value).collect() }))
        }
        Value::Map(items) => Some(proto::Any::Map(proto::KeyValueList { values: attributes(items) })),
    };
    proto::AnyValue { value }
}

fn attributes(attributes: &[Attribute<'_>]) -> Vec<proto::KeyValue> {
    let one = |attribute: &Attribute<'_>| proto::KeyValue {
        key: attribute.key.to_string(),
        value: Some(any_value(&attribute.value)),
    };
    attributes.iter().map(one).collect()
}

/// The message of a span. Further parents and a shared id are marked as the OTLP JSON writer marks
/// them.
fn span_message(span: &Span<'_>) -> proto::Span {
    let id = |id: SpanId| id.0.to_be_bytes().to_vec();
    let mut own_attributes = attributes(&span.attributes);
    if span.shared {
        own_attributes.extend(attributes(&[Attribute::new("astracer.shared", Value::Bool(true))]));
    }
    let parents = span.parents.iter().skip(1).map(|&parent| proto::Link {
        trace_id: span.trace_id.0.to_be_bytes().to_vec(),
        span_id: id(parent),
        attributes: attributes(&[Attribute::new("astracer.parent", Value::Bool(true))]),
        ..proto::Link::default()
    });
    let links = span.links.iter().map(|link| proto::Link {
        trace_id: link.trace_id.0.to_be_bytes().to_vec(),
        span_id: id(link.span_id),
        trace_state: link.trace_state.to_string(),
        attributes: attributes(&link.attributes),
        dropped_attributes_count: link.dropped_attributes,
        flags: link.flags,
    });
    let events = span.events.iter().map(|event| proto::Event {
        time_unix_nano: event.time.0,
        name: event.name.to_string(),
        attributes: attributes(&event.attributes),
        dropped_attributes_count: event.dropped_attributes,
    });
    proto::Span {
        trace_id: span.trace_id.0.to_be_bytes().to_vec(),
        span_id: id(span.span_id),
        trace_state: span.trace_state.to_string(),
        parent_span_id: span.parents.first().map_or(Vec::new(), |&parent| id(parent)),
        name: span.name.to_string(),
        kind: span.kind as i32,
        start_time_unix_nano: span.start.map_or(0, |start| start.0),
        end_time_unix_nano: span.end.map_or(0, |end| end.0),
        attributes: own_attributes,
        dropped_attributes_count: span.dropped_attributes,
        events: events.collect(),
        dropped_events_count: span.dropped_events,
        links: parents.chain(links).collect(),
        dropped_links_count: span.dropped_links,
        status: Some(proto::Status { message: span.status_message.to_string(), code: span.status as i32 }),
        flags: span.flags,
    }
}

/// A request with a unit for each span.
fn request(spans: &[Span<'_>]) -> proto::Request {
    let unit = |span: &Span<'_>| proto::ResourceSpans {
        resource: Some(proto::Resource {
            attributes: attributes(&span.resource.attributes),
            dropped_attributes_count: span.resource.dropped_attributes,
        }),
        scope_spans: vec![proto::ScopeSpans {
            scope: Some(proto::Scope {
                name: span.scope.name.clone(),
                version: span.scope.version.clone(),
                attributes: attributes(&span.scope.attributes),
                dropped_attributes_count: span.scope.dropped_attributes,
            }),
            spans: vec![span_message(span)],
            schema_url: span.scope.schema_url.clone(),
        }],
        schema_url: span.resource.schema_url.clone(),
    };
    proto::Request { resource_spans: spans.iter().map(unit).collect() }
}

fn read_with(input: &[u8], limits: &Limits) -> Collected {
    let mut kept = Collected::default();
    crate::read(Format::OtlpProto, &mut &*input, &"f".into(), limits, &mut kept);
    kept
}

fn read(input: impl AsRef<[u8]>) -> Collected {
    read_with(input.as_ref(), &Limits::default())
}

fn in_words(requests: &[proto::Request]) -> Vec<u8> {
    let one = |request: &proto::Request| {
        let bytes = request.encode_to_vec();
        [&(bytes.len() as u32).to_be_bytes(), &bytes[..]].concat()
    };
    requests.iter().flat_map(one).collect()
}

fn in_varints(requests: &[proto::Request]) -> Vec<u8> {
    requests.iter().flat_map(proto::Request::encode_length_delimited_to_vec).collect()
}

proptest! {
    #![proptest_config(cases(50))]

    #[test]
    fn the_size_is_that_of_the_message(spans in spans()) {
        for span in &spans {
            prop_assert_eq!(otlp_size(span), span_message(span).encoded_len());
        }
    }

    /// The output equals prost's byte for byte, in the order of the field numbers.
    #[test]
    fn a_span_is_written_as_prost_writes_it(spans in spans()) {
        for span in &spans {
            let mut bytes = Vec::new();
            write_request(&mut bytes, std::slice::from_ref(span));
            prop_assert_eq!(bytes, request(std::slice::from_ref(span)).encode_to_vec());
        }
    }

    #[test]
    fn spans_written_come_back(spans in spans()) {
        let mut bytes = Vec::new();
        write_request(&mut bytes, &spans);
        let message = proto::Request::decode(&bytes[..]).unwrap();
        // Each resource and scope occurs once: spans share them by address.
        let scopes = message.resource_spans.iter().flat_map(|unit| &unit.scope_spans);
        let mut pairs: Vec<_> =
            spans.iter().map(|span| (Arc::as_ptr(&span.resource), Arc::as_ptr(&span.scope))).collect();
        pairs.sort();
        pairs.dedup();
        prop_assert!(scopes.count() <= pairs.len());
        read(&bytes).assert_spans(&spans);

        let mut file = Vec::new();
        let mut writer = crate::writer(Format::OtlpProto, Box::new(&mut file)).unwrap();
        for trace in spans.chunks(2) {
            writer.trace(trace).unwrap();
        }
        writer.finish().unwrap();
        drop(writer);
        read(&file).assert_spans(&spans);
    }

    #[test]
    fn any_spans_are_read_in_every_framing(spans in spans()) {
        read(request(&spans).encode_to_vec()).assert_spans(&spans);
        let requests: Vec<_> = spans.chunks(2).map(request).collect();
        read(in_varints(&requests)).assert_spans(&spans);
        read(in_words(&requests)).assert_spans(&spans);
    }

    #[test]
    fn mangled_requests_are_read_without_panic(
        spans in spans(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        framed in any::<bool>(),
    ) {
        let request = request(&spans);
        let mut bytes = if framed { in_varints(&[request]) } else { request.encode_to_vec() };
        bytes.push(0);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()));
        read(&bytes);
    }
}

fn small(id: u64) -> Span<'static> {
    Span { trace_id: TraceId(7), span_id: SpanId(id), name: "n".into(), ..Span::default() }
}

/// Lengths of one, two, three and four bytes, in nested messages.
#[test]
fn long_messages_get_long_lengths() {
    for len in [100, 127, 128, 16_300, 16_400, 2_097_000, 2_097_200] {
        let text = "x".repeat(len);
        let inner = Value::Array(vec![Value::from(&*text)]);
        let span =
            Span { name: text.clone().into(), attributes: vec![Attribute::new("k", inner)], ..small(1) };
        let mut bytes = Vec::new();
        write_request(&mut bytes, std::slice::from_ref(&span));
        assert!(bytes == request(&[span]).encode_to_vec(), "{len}");
    }
}

#[test]
fn an_empty_span_is_as_large_as_its_ids_and_status() {
    assert_eq!(otlp_size(&Span::default()), 18 + 10 + 2);
}

#[test]
fn empty_requests_come_in_between() {
    let requests = [request(&[]), request(&[small(1)]), request(&[]), request(&[]), request(&[small(2)])];
    read(in_varints(&requests)).assert_spans(&[small(1), small(2)]);
    read(in_words(&requests)).assert_spans(&[small(1), small(2)]);
    assert_eq!(read("").problems, [""; 0]);
}

#[test]
fn the_smallest_requests_are_told_apart() {
    // A request of ten bytes: its length looks like the tag of a request.
    let unit = proto::ResourceSpans { schema_url: "123456".to_owned(), ..proto::ResourceSpans::default() };
    let ten = proto::Request { resource_spans: vec![unit] };
    assert_eq!(ten.encoded_len(), 10);
    let requests = [ten, request(&[small(1)])];
    read(in_varints(&requests)).assert_spans(&[small(1)]);
    read(in_words(&requests)).assert_spans(&[small(1)]);
    let merged: Vec<u8> = requests.iter().flat_map(proto::Request::encode_to_vec).collect();
    read(merged).assert_spans(&[small(1)]);
}

#[test]
fn a_span_comes_with_its_own_bytes_and_their_place() {
    let bytes = request(&[small(1), small(2)]).encode_to_vec();
    let kept = read(&bytes);
    for (span, (record, line, byte)) in [small(1), small(2)].iter().zip(&kept.records) {
        assert_eq!((record, *line), (&span_message(span).encode_to_vec(), 0));
        assert!(bytes[*byte as usize..].starts_with(record));
    }
    let framed = in_words(&[request(&[small(1)]), request(&[small(2)])]);
    let byte = read(&framed).records[1].2 as usize;
    assert!(framed[byte..].starts_with(&span_message(&small(2)).encode_to_vec()));
}

#[test]
fn old_versions_and_unknown_fields() {
    let mut unit = proto::ResourceSpans {
        resource: Some(proto::Resource::default()),
        scope_spans: vec![],
        schema_url: String::new(),
    }
    .encode_to_vec();
    // Field 1000: the spans of an instrumentation library, whose name is field 1 as in a scope.
    let mut library = request(&[small(1)]).resource_spans[0].scope_spans[0].clone();
    library.scope = Some(proto::Scope { name: "l".to_owned(), ..proto::Scope::default() });
    unit.extend([0xc2, 0x3e]);
    library.encode_length_delimited(&mut unit).expect("writing to memory succeeds");
    // Field 99 in each wire type.
    unit.extend([0x98, 0x06, 0x01]);
    unit.extend([0x99, 0x06, 1, 2, 3, 4, 5, 6, 7, 8]);
    unit.extend([0x9a, 0x06, 2, 9, 9]);
    unit.extend([0x9d, 0x06, 1, 2, 3, 4]);
    let mut bytes = vec![0x0a];
    prost::encode_length_delimiter(unit.len(), &mut bytes).expect("writing to memory succeeds");
    bytes.extend(&unit);
    bytes.extend([0x98, 0x06, 0x01, 0x9a, 0x06, 2, 9, 9, 0x99, 0x06, 1, 2, 3, 4, 5, 6, 7, 8]);
    let kept = read(&bytes);
    assert_eq!(kept.problems, [""; 0]);
    assert_eq!((kept.spans.len(), &*kept.spans[0].scope.name), (1, "l"));
}

/// A request of three spans, the second replaced by the given bytes, followed by a good request.
#[track_caller]
fn check_span(second: &[u8], at: usize, problem: &str) {
    let group = |span: &[u8]| {
        let mut group = vec![0x12];
        prost::encode_length_delimiter(span.len(), &mut group).expect("writing to memory succeeds");
        [&group, span].concat()
    };
    let [first, third] = [1, 3].map(|id| group(&span_message(&small(id)).encode_to_vec()));
    let second = group(second);
    let scope = group(&[first.clone(), second, third].concat());
    let mut unit = vec![0x0a];
    prost::encode_length_delimiter(scope.len(), &mut unit).expect("writing to memory succeeds");
    let unit = [unit, scope].concat();
    let next = in_varints(&[request(&[small(4)])]);
    let mut bytes = Vec::new();
    prost::encode_length_delimiter(unit.len(), &mut bytes).expect("writing to memory succeeds");
    // Length, tag and length of the unit, of the scope's spans, the first span, and tag and length
    // of the second.
    let byte = bytes.len() + 2 + 2 + first.len() + 2 + at;
    let kept = read([bytes, unit, next].concat());
    assert_eq!(kept.problems, [format!("f (byte {byte}): {problem}")]);
    assert_eq!(kept.spans, [small(1), small(3), small(4)]);
}

#[test]
fn text_that_is_not_unicode_and_unknown_numbers_cost_no_span() {
    let mut span = span_message(&small(1)).encode_to_vec();
    // The name again, and kind 9; the last one of a repeated field counts.
    span.extend([0x2a, 3, 0xc3, 0x28, b'x', 0x30, 9]);
    let scope = [&[0x12, span.len() as u8], &span[..]].concat();
    let unit = [&[0x12, scope.len() as u8], &scope[..]].concat();
    let kept = read([&[0x0a, unit.len() as u8], &unit[..]].concat());
    assert_eq!(kept.spans, [Span { name: "\u{fffd}(x".into(), ..small(1) }]);
    let at = 6;
    assert_eq!(
        kept.problems,
        [
            format!("f (byte {at}): text that is not Unicode, U+FFFD replaces it: span 0000000000000001"),
            format!("f (byte {at}): a word or number without meaning, read as unset: span 0000000000000001"),
        ]
    );
}

/// Tempo's `TraceByIDResponse`: the trace, then metrics of the query.
#[cfg(feature = "all-formats")]
#[test]
fn an_answer_of_tempo_is_read() {
    let trace = request(&[small(1), small(2)]).encode_to_vec();
    let answer = [&[0x0a, trace.len() as u8], &trace[..], &[0x12, 2, 0x08, 5]].concat();
    let complete = crate::detect::detect(&answer, true);
    assert_eq!(complete, crate::detect::Detection::Format(Format::OtlpProto));
    let kept = read(answer);
    assert_eq!(kept.problems, [""; 0]);
    assert_eq!(kept.spans, [small(1), small(2)]);
}

#[test]
fn bad_spans_are_named_with_their_place() {
    check_span(&[], 0, "bad record: span without an id");
    check_span(&[0x0a, 8, 1, 2, 3, 4, 5, 6, 7, 8], 2, "bad record: invalid trace id: OTLP requires 16 bytes");
    check_span(&[0x22, 3, 1, 2, 3], 2, "bad record: invalid span id: OTLP requires 8 bytes");
    check_span(&[0x0a, 200, 1, 2], 0, "bad record: field longer than its message");
    check_span(&[0x28, 1], 0, "bad record: field of an unexpected type");
    check_span(&[0x30, 1, 0x03], 2, "bad record: invalid field");
    check_span(&[0x39, 1, 2], 3, "bad record: the message ends inside a field");
    check_span(&[0x30, 0x80], 2, "bad record: the message ends inside a field");
    check_span(&[[0x30].as_slice(), &[0xff; 11]].concat(), 1, "bad record: invalid varint");
    check_span(&[0x4a, 2, 0x12, 5], 2, "bad record: field longer than its message");
}

#[test]
fn nesting_is_bounded() {
    let with = |levels: usize| {
        let nested = (0..levels).fold(Value::Empty, |value, _| Value::Array(vec![value]));
        Span { attributes: vec![Attribute::new("a", nested)], ..small(1) }
    };
    // Span and attribute are levels 4 and 5; each list is a message in a value, and holds a value.
    let kept = read(request(&[with(47)]).encode_to_vec());
    assert_eq!((kept.problems.len(), kept.spans.len()), (0, 1));
    let kept = read(request(&[with(48), small(2)]).encode_to_vec());
    assert_eq!(kept.spans, [small(2)]);
    assert_eq!(kept.problems.len(), 1);
    assert!(kept.problems[0].ends_with("is over a limit: nested too deeply"), "{:?}", kept.problems);
    // Far deeper than any stack, built from the inside out; lengths grow, so the size limit does
    // not catch it.
    let mut value = Vec::new();
    for _ in 0..4_000 {
        let mut list = vec![0x0a];
        prost::encode_length_delimiter(value.len(), &mut list).expect("writing to memory succeeds");
        list.append(&mut value);
        value = vec![0x2a];
        prost::encode_length_delimiter(list.len(), &mut value).expect("writing to memory succeeds");
        value.append(&mut list);
    }
    let mut bytes = value;
    for tag in [0x12, 0x4a, 0x12, 0x12, 0x0a] {
        let mut outer = vec![tag];
        prost::encode_length_delimiter(bytes.len(), &mut outer).expect("writing to memory succeeds");
        outer.append(&mut bytes);
        bytes = outer;
    }
    let limits = Limits { nesting_max: usize::MAX, ..Limits::default() };
    let kept = read_with(&bytes, &limits);
    assert_eq!((kept.problems.len(), kept.spans.len()), (1, 0));
}

#[test]
fn a_unit_over_the_limit_is_stepped_over() {
    let large = Span { name: "x".repeat(1000).into(), ..small(2) };
    let limits = Limits { record_bytes_max: 500, ..Limits::default() };
    for bytes in [
        request(&[small(1), large.clone(), small(3)]).encode_to_vec(),
        in_varints(&[request(&[small(1), large.clone(), small(3)])]),
    ] {
        let kept = read_with(&bytes, &limits);
        assert_eq!(kept.spans, [small(1), small(3)]);
        assert_eq!(kept.problems.len(), 1);
        assert!(
            kept.problems[0].ends_with("is over a limit: record longer than 500 bytes"),
            "{:?}",
            kept.problems
        );
    }
}

#[test]
fn hostile_lengths_do_not_ask_for_memory() {
    for bytes in [
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 2, 3][..],
        &[0x0a, 0xff, 0xff, 0xff, 0x7f, 1, 2, 3],
        &[0xff, 0xff, 0xff, 0xff, 0x0a, 0xff, 0xff, 0xff, 0x7f, 0x12],
        &[0xff; 64],
        &[0; 64],
        b"a text that is not protobuf at all",
    ] {
        let kept = read(bytes);
        assert!(kept.spans.is_empty() && kept.problems.len() <= 2, "{:?}", kept.problems);
    }
}

#[test]
fn a_broken_request_in_a_frame_is_stepped_over_and_a_bare_one_ends_reading() {
    let broken = [request(&[small(1)]).encode_to_vec(), vec![0x0f, 1, 2, 3]].concat();
    let mut framed = Vec::new();
    prost::encode_length_delimiter(broken.len(), &mut framed).expect("writing to memory succeeds");
    let byte = framed.len() + broken.len() - 4;
    framed.extend(&broken);
    framed.extend(in_varints(&[request(&[small(2)])]));
    let kept = read(&framed);
    assert_eq!(kept.spans, [small(1), small(2)]);
    assert_eq!(kept.problems, [format!("f (byte {byte}): bad record: invalid field")]);
    let kept = read(&broken);
    assert_eq!(kept.spans, [small(1)]);
    assert_eq!(kept.problems, [format!("f (byte {}): bad record: invalid field", broken.len() - 4)]);
}

#[test]
fn a_request_cut_off_anywhere_gives_the_spans_before_the_cut() {
    let requests = [request(&[small(1), small(2)]), request(&[small(3)])];
    let bare = request(&[small(1), small(2), small(3)]).encode_to_vec();
    for whole in [bare, in_varints(&requests), in_words(&requests)] {
        let records = read(&whole).records;
        assert_eq!(records.len(), 3);
        for end in 20..whole.len() {
            let kept = read(&whole[..end]);
            let before =
                records.iter().filter(|(bytes, _, start)| *start as usize + bytes.len() <= end).count();
            assert_eq!(kept.spans.len(), before, "cut at {end}");
            // A cut between two requests is not a problem.
            if !kept.problems.is_empty() {
                assert_eq!(
                    kept.problems,
                    [format!("f (byte {end}): ends too early: incomplete protobuf message")]
                );
            }
        }
    }
}

#[test]
fn resources_are_shared() {
    let resource = Arc::new(astracer_model::span::Resource::service("s"));
    let spans = [1, 2].map(|id| Span { resource: Arc::clone(&resource), ..small(id) });
    let kept = read(request(&spans).encode_to_vec());
    assert!(Arc::ptr_eq(&kept.spans[0].resource, &kept.spans[1].resource));
}
