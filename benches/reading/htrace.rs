//! HTrace lines of real HDFS clients and servers, repeated.

use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;

use astracer_model::problem::Place;
use astracer_model::span::{Event, Resource, Scope};
use astracer_model::value::{Attribute, Value};
use astracer_model::{Format, Span, SpanId, TraceId, UnixNanos};
use criterion::{Criterion, Throughput, criterion_group};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{BYTES, Count, deliver, ours};

criterion_group! {
    name = benches;
    config = crate::settings();
    targets = reading
}

fn reading(criterion: &mut Criterion) {
    for (name, lines) in [
        ("HTrace 3", include_str!("../../fuzz/seeds/htrace/htrace3-client.json")),
        ("HTrace 4", include_str!("../../fuzz/seeds/htrace/htrace4.jsonl")),
    ] {
        let text = format!("{}\n", lines.trim_end()).repeat(BYTES / lines.len());
        let spans = text.lines().count() as u64;
        assert_eq!([ours(Format::HTrace, &text), serde(&text), same_sink(&text)], [spans; 3]);
        let mut group = criterion.benchmark_group(format!("read {name} lines"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("astracer", |bencher| bencher.iter(|| ours(Format::HTrace, black_box(&text))));
        group.bench_function("serde_json, borrowed", |bencher| bencher.iter(|| serde(black_box(&text))));
        group.bench_function("serde_json, same sink", |bencher| bencher.iter(|| same_sink(black_box(&text))));
        group.finish();
    }
}

fn serde(text: &str) -> u64 {
    let spans = serde_json::Deserializer::from_str(text).into_iter::<PlainSpan<'_>>();
    let mut count = 0;
    for span in spans {
        black_box(span.expect("the lines are valid"));
        count += 1;
    }
    count
}

/// Delivers the same spans to the same sink as our reader. Spans of the same process share one
/// resource.
fn same_sink(text: &str) -> u64 {
    let mut count = Count::default();
    let mut place = Place::start_of(&Arc::from("f"));
    let (mut process, mut resource, scope) = (String::new(), Arc::default(), Arc::default());
    for record in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        let record = record.expect("the lines are valid").get();
        let plain: PlainSpan<'_> = serde_json::from_str(record).expect("the lines are valid");
        if plain.r != process {
            process = plain.r.clone().into_owned();
            resource = Arc::new(Resource::service(&process));
        }
        let span = plain.into_span(&resource, &scope);
        deliver(&mut count, &mut place, text, record, span);
    }
    count.spans
}

impl<'a> PlainSpan<'a> {
    fn into_span(self, resource: &Arc<Resource>, scope: &Arc<Scope>) -> Span<'a> {
        let mut span = Span::of(Arc::clone(resource), Arc::clone(scope));
        let (trace, id) = if self.a.is_empty() { (self.i, self.s) } else { self.a.split_at(16) };
        span.trace_id = TraceId::from_hex(trace).expect("an id");
        span.span_id = SpanId::from_hex(id).expect("an id");
        let low = |id: &str| SpanId::from_hex(&id[id.len() - 16..]).expect("an id");
        span.parents.extend(self.p.iter().copied().map(low));
        span.name = self.d;
        span.start = UnixNanos::from_millis(self.b);
        span.end = UnixNanos::from_millis(self.e);
        let attribute = |(key, text)| Attribute { key, value: Value::String(text) };
        span.attributes = self.n.into_iter().map(attribute).collect();
        let time = |millis| UnixNanos::from_millis(millis).unwrap_or_default();
        span.events = self
            .t
            .into_iter()
            .map(|note| Event { time: time(note.t), name: note.m, ..Event::default() })
            .collect();
        span
    }
}

/// A span of either version: 3 has `i` and `s`, 4 has `a`.
#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed fields are not used")]
struct PlainSpan<'a> {
    #[serde(default)]
    a: &'a str,
    #[serde(default)]
    i: &'a str,
    #[serde(default)]
    s: &'a str,
    b: u64,
    e: u64,
    #[serde(borrow)]
    d: Cow<'a, str>,
    #[serde(default, borrow)]
    r: Cow<'a, str>,
    #[serde(default, borrow)]
    p: Vec<&'a str>,
    #[serde(default, borrow)]
    n: std::collections::BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(default, borrow)]
    t: Vec<Note<'a>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed fields are not used")]
struct Note<'a> {
    t: u64,
    #[serde(borrow)]
    m: Cow<'a, str>,
}
