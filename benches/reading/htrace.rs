//! HTrace lines of real HDFS clients and servers, repeated.

use std::borrow::Cow;
use std::hint::black_box;

use astracer_model::Format;
use criterion::{Criterion, Throughput, criterion_group};
use serde::Deserialize;

use crate::{BYTES, ours};

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
        assert_eq!((ours(Format::HTrace, &text), serde(&text)), (spans, spans));
        let mut group = criterion.benchmark_group(format!("read {name} lines"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("astracer", |bencher| bencher.iter(|| ours(Format::HTrace, black_box(&text))));
        group.bench_function("serde_json, borrowed", |bencher| bencher.iter(|| serde(black_box(&text))));
        group.finish();
    }
}

fn serde(text: &str) -> u64 {
    let spans = serde_json::Deserializer::from_str(text).into_iter::<PlainSpan<'_>>();
    let mut count = 0;
    for span in spans {
        black_box(span.expect("the lines are good"));
        count += 1;
    }
    count
}

/// Both versions: 3 has `i` and `s`, 4 has `a`.
#[derive(Deserialize)]
#[allow(dead_code, reason = "what is read is not looked at")]
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
#[allow(dead_code, reason = "what is read is not looked at")]
struct Note<'a> {
    t: u64,
    #[serde(borrow)]
    m: Cow<'a, str>,
}
