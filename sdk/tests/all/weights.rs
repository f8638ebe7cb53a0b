//! Threshold, randomness and flags between processes, as headers.
//!
//! The expected values come from the specification ("TraceState: Probability Sampling", "General
//! requirements"; W3C Trace Context level 2), and from what the SDKs of Python and JavaScript sent
//! and received: see `interop` in tests/data/README.md.

use std::collections::{BTreeMap, HashMap};

use astracer_samplers::Threshold;
use astracer_samplers::tracestate::OtMember;
use astracer_sdk::{AstracerSampler, ParentDecision};
use astracer_testing::Ids;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Span as _, SpanContext, TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, SpanId, TraceId, Value};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData};
use tracing::info_span;

use crate::support::{World, one, sampling, world};

type Headers = HashMap<String, String>;

/// The `traceparent` of this trace with these flags.
fn parent(trace_id: u128, flags: u8) -> String {
    format!("00-{trace_id:032x}-00000000000000aa-{flags:02x}")
}

fn headers(parent: &str, state: &str) -> Headers {
    let mut headers: Headers = [("traceparent".to_owned(), parent.to_owned())].into();
    if state != "-" {
        headers.insert("tracestate".to_owned(), state.to_owned());
    }
    headers
}

/// The flags and the trace state in headers; `-` for an empty trace state.
fn sent(headers: &Headers) -> (String, String) {
    let state = headers.get("tracestate").filter(|state| !state.is_empty());
    (headers["traceparent"][53..].to_owned(), state.map_or("-", |state| state).to_owned())
}

/// The headers that a service sends from within a root, when it is called with `received`.
fn call(world: &World, received: &dyn Extractor) -> Headers {
    let propagator = world.astracer.propagator();
    let mut sent = Headers::new();
    world.inside(|| {
        let _remote = propagator.extract_with_context(&Context::new(), received).attach();
        let _root = info_span!("root").entered();
        let _child = info_span!("child").entered();
        propagator.inject_context(&Context::current(), &mut sent);
    });
    sent
}

#[test]
fn a_parent_s_threshold_goes_on_unless_the_flag_contradicts_it() {
    let high = 0xff_ffff_ffff_ffffu128;
    for (trace_id, flags, received, sent_on) in [
        // Consistent: R >= T and sampled, or R < T and not sampled.
        (high, 3, "ot=th:c", "ot=th:c"),
        (high, 1, "ot=th:c", "ot=th:c"),
        (0xc0_0000_0000_0000, 3, "ot=th:c", "ot=th:c"),
        (0xbf_ffff_ffff_ffff, 2, "ot=th:c", "ot=th:c"),
        // Contradictory: the weight is unknown, so the threshold is erased. Everything else stays.
        (0xbf_ffff_ffff_ffff, 3, "ot=th:c", "-"),
        (high, 2, "ot=th:c", "-"),
        (1, 3, "a=1,ot=th:c;k:v;p:8,b=2", "ot=k:v;p:8,a=1,b=2"),
        // Explicit randomness has precedence over the id's.
        (1, 3, "ot=th:8;rv:80000000000000", "ot=th:8;rv:80000000000000"),
        (high, 3, "ot=th:8;rv:7fffffffffffff", "ot=rv:7fffffffffffff"),
        // Without a threshold, none is sent.
        (high, 3, "-", "-"),
        (high, 3, "ot=rv:00000000000001", "ot=rv:00000000000001"),
        // A malformed threshold or randomness is ignored, and passed on unchanged.
        (1, 3, "ot=th:C;k:v", "ot=th:C;k:v"),
        (high, 3, "ot=th:c;rv:1", "ot=th:c;rv:1"),
        (1, 3, "ot=th:8;th:0", "ot=th:8;th:0"),
        (1, 3, "ot=nonsense,a=1", "ot=nonsense,a=1"),
    ] {
        let world = sampling("ratio:0.5", |builder| builder);
        let sent = sent(&call(&world, &headers(&parent(trace_id, flags), received)));
        assert_eq!(sent, (format!("{flags:02x}"), sent_on.to_owned()), "{trace_id:x} {flags} {received}");
        let spans = world.exported();
        assert_eq!(spans.len(), if flags & 1 == 1 { 2 } else { 0 });
        for span in spans {
            let state = span.span_context.trace_state().header();
            assert_eq!(state, if sent_on == "-" { "" } else { sent_on });
        }
    }
}

/// The rightmost of 32 members is dropped for ours, by W3C's "Mutating the tracestate Field".
/// Without one of ours, all stay. Of more than 32 members, the first 32 are read.
#[test]
fn thirty_two_members_travel() {
    let members: Vec<String> = (0..40).map(|n| format!("k{n}=v{n}")).collect();
    let full = members[..32].join(",");
    let follows = world(|builder| builder);
    let high = parent(u128::from(u64::MAX), 3);
    assert_eq!(sent(&call(&follows, &headers(&high, &full))).1, full);
    assert_eq!(sent(&call(&follows, &headers(&high, &members.join(",")))).1, full);
    let decides = sampling("ratio:1", |builder| builder.with_parent_decision(ParentDecision::Ignore));
    let expected = format!("ot=th:0,{}", members[..31].join(","));
    assert_eq!(sent(&call(&decides, &headers(&high, &full))).1, expected);
}

/// If our threshold makes the member too long, foreign sub-keys are dropped. The received threshold
/// is never kept if it is not true.
#[test]
fn an_invalid_threshold_is_removed_from_a_full_trace_state() {
    let world = sampling("ratio:0.3", |builder| builder.with_parent_decision(ParentDecision::Ignore));
    let long = format!("ot=th:0;x:{};y:1", "z".repeat(245));
    let state = sent(&call(&world, &headers(&parent(u128::from(u64::MAX), 3), &long))).1;
    // (1 - 0.3) * 16^4 is 45875.2, in hexadecimal b333.
    assert_eq!(state, format!("ot=th:b333;x:{}", "z".repeat(245)));
}

struct Several;

impl Extractor for Several {
    fn get(&self, key: &str) -> Option<&str> {
        Some(self.get_all(key)?[0])
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }

    fn get_all(&self, key: &str) -> Option<Vec<&str>> {
        match key {
            "traceparent" => Some(vec!["00-000000000000000000ffffffffffffff-00000000000000aa-03"]),
            "tracestate" => Some(vec!["a=1", "ot=th:8", "b=2"]),
            _ => None,
        }
    }
}

#[test]
fn several_tracestate_headers_are_one() {
    assert_eq!(sent(&call(&world(|builder| builder), &Several)).1, "a=1,ot=th:8,b=2");
}

fn attributes(span: &SpanData) -> BTreeMap<&str, &Value> {
    span.attributes.iter().map(|attribute| (attribute.key.as_str(), &attribute.value)).collect()
}

#[test]
fn a_kept_root_says_how_it_was_decided_if_asked() {
    for (sampler, reason, weight, state) in [
        ("ratio:1", "ratio", Some(1.0), "ot=th:0"),
        ("bump:lambda=10", "bump", Some(1.0), "ot=th:0"),
        ("always", "always", Some(1.0), "ot=th:0"),
        ("bucket:capacity=5,rate=1", "token_bucket", None, ""),
    ] {
        let asked = sampling(sampler, |builder| builder.with_sampling_attributes(true));
        let spans = asked.run(|| {
            let _root = info_span!("GET /orders/1234", own = 1).entered();
            let _child = info_span!("child").entered();
        });
        let of_child = attributes(one(&spans, "child"));
        assert_eq!(of_child.get("sampler.adjusted_count").copied(), weight.map(Value::F64).as_ref());
        assert_eq!(of_child.len(), usize::from(weight.is_some()), "{sampler}");
        let found = attributes(one(&spans, "GET /orders/1234"));
        assert_eq!(found["own"], &Value::I64(1));
        assert_eq!(found["sampler.type"], &Value::from(reason));
        assert_eq!(found["sampler.key"], &Value::from("GET /orders/*"));
        let number = |name| found.get(name).map(|value| (*value).clone());
        assert_eq!(number("sampler.adjusted_count"), weight.map(Value::F64), "{sampler}");
        assert_eq!(number("sampler.param"), weight.map(Value::F64), "{sampler}");
        let plain = sampling(sampler, |builder| builder);
        let spans = plain.run(|| info_span!("root").in_scope(|| ()));
        let root = one(&spans, "root");
        assert!(root.attributes.is_empty());
        assert_eq!(root.span_context.trace_state().header(), state, "{sampler}");
    }
}

/// A quarter of the randomness is kept, so each kept root represents four.
#[test]
fn the_adjusted_count_is_the_reciprocal_of_the_probability() {
    let world = sampling("ratio:0.25", |builder| {
        builder
            .with_id_generator(Ids(|| TraceId::from(0xc0_0000_0000_0000_u128), || SpanId::from(0xaa_u64)))
            .with_sampling_attributes(true)
    });
    let spans = world.run(|| info_span!("root").in_scope(|| ()));
    let root = one(&spans, "root");
    assert_eq!(attributes(root)["sampler.adjusted_count"], &Value::F64(4.0));
    assert_eq!(attributes(root)["sampler.param"], &Value::F64(0.25));
    assert_eq!(root.span_context.trace_state().header(), "ot=th:c");
}

/// The cap raises the threshold of a sampler that keeps everything too. It was not written: 1,441
/// requests of which 621 were kept counted as 621.
#[test]
fn a_capped_sampler_that_keeps_everything_writes_a_raised_threshold() {
    for sampler in ["always", "ratio:1"] {
        let world = sampling(sampler, |builder| builder.with_cap("traces=1,burst=64".parse().unwrap()));
        let spans = world.run(|| (0..200).for_each(|_| info_span!("root").in_scope(|| ())));
        let weights = spans.iter().map(|span| {
            let header = span.span_context.trace_state().header();
            OtMember::of(&header).unwrap().threshold.map_or(1.0, Threshold::adjusted_count)
        });
        let weights: Vec<f64> = weights.collect();
        // The first half of the bucket is given out with weight 1, and the rest with more.
        assert!(weights.len() > 32 && weights[40..].iter().all(|&weight| weight > 1.0), "{weights:?}");
    }
}

fn stock(sampler: impl opentelemetry_sdk::trace::ShouldSample + 'static) -> SdkTracerProvider {
    SdkTracerProvider::builder().with_sampler(sampler).build()
}

/// The headers of a root of the stock SDK, written by its own propagator.
fn stock_root(provider: &SdkTracerProvider, parent: &Context) -> (SpanContext, Headers) {
    let span = provider.tracer("stock").start_with_context("root", parent);
    let ids = span.span_context().clone();
    let mut headers = Headers::new();
    TraceContextPropagator::new()
        .inject_context(&Context::new().with_remote_span_context(ids.clone()), &mut headers);
    (ids, headers)
}

#[test]
fn the_stock_sdk_as_parent_is_honoured() {
    let provider = stock(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(0.5))));
    let mut kept = 0;
    for _ in 0..50 {
        let (ids, headers) = stock_root(&provider, &Context::new());
        let world = sampling("never", |builder| builder);
        let sent = call(&world, &headers);
        assert_eq!(sent["traceparent"][3..35], ids.trace_id().to_string());
        // The stock SDK does not send its ratio, so the weight is unknown and none is written.
        assert_eq!(self::sent(&sent), (format!("0{}", u8::from(ids.is_sampled())), "-".to_owned()));
        assert_eq!(world.exported().len(), if ids.is_sampled() { 2 } else { 0 });
        kept += u32::from(ids.is_sampled());
    }
    assert!((1..50).contains(&kept), "{kept}");
}

/// With its own sampler, the stock SDK follows the flag and passes the trace state on. With ours it
/// also erases a threshold that contradicts the flag. Its propagator clears the flag `random`.
#[test]
fn the_stock_sdk_as_child_follows() {
    let ours = |builder: astracer_sdk::Builder| builder.with_sampler("ratio:0.5".parse().unwrap());
    let followed: AstracerSampler = world(ours).astracer.sampler.clone();
    let stocks = [stock(Sampler::ParentBased(Box::new(Sampler::AlwaysOff))), stock(followed)];
    for _ in 0..50 {
        let world = world(ours);
        let sent_by_us = call(&world, &Headers::new());
        let (flags, state) = sent(&sent_by_us);
        assert_eq!(state, if flags == "03" { "ot=th:8" } else { "-" });
        for provider in &stocks {
            let context = TraceContextPropagator::new().extract(&sent_by_us);
            let (ids, headers) = stock_root(provider, &context);
            assert_eq!(ids.is_sampled(), flags == "03");
            assert_eq!(ids.trace_id().to_string(), sent_by_us["traceparent"][3..35]);
            assert_eq!(sent(&headers), (format!("0{}", u8::from(flags == "03")), state.clone()));
        }
    }
    let contradicted = headers(&parent(1, 1), "ot=th:8,a=1");
    let context = TraceContextPropagator::new().extract(&contradicted);
    let (_, headers) = stock_root(&stocks[1], &context);
    assert_eq!(sent(&headers), ("01".to_owned(), "a=1".to_owned()));
}

/// Headers that the SDKs of Python and JavaScript sent: their decision is followed here, and their
/// weight is passed on.
#[test]
fn other_languages_as_parents_are_honoured() {
    let mut roots = 0;
    for line in include_str!("../data/interop-roots.txt").lines().filter(|line| !line.starts_with('#')) {
        let [_, ratio, parent, state] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let world = sampling("never", |builder| builder);
        let is_sampled = parent.ends_with('1') || parent.ends_with('3');
        assert_eq!(sent(&call(&world, &headers(parent, state))), (parent[53..].to_owned(), state.to_owned()));
        let spans = world.exported();
        assert_eq!(spans.len(), if is_sampled { 2 } else { 0 }, "{line}");
        if let Some(threshold) = state.strip_prefix("ot=th:") {
            let threshold = Threshold::parse(threshold).unwrap();
            let ratio: f64 = ratio.parse().unwrap();
            assert!((threshold.adjusted_count() * ratio - 1.0).abs() < 1e-4, "{line}");
        }
        roots += 1;
    }
    assert!(roots > 30, "{roots}");
}

/// Headers that our service sent, and the results in those SDKs: the same decision and the same
/// weight, except for the contradictions marked in the table.
#[test]
fn other_languages_as_children_agree() {
    let mut children = 0;
    for line in include_str!("../data/interop-children.txt").lines().filter(|line| !line.starts_with('#')) {
        let [language, parent, state, kept, sent_on] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let world = sampling("never", |builder| builder);
        let (flags, state) = sent(&call(&world, &headers(parent, state)));
        // Sub-keys may be in any order.
        let value = |state: &str| OtMember::of(state.trim_matches('-')).unwrap().value();
        let ours = (flags == "03" || flags == "01", value(&state));
        let theirs = (kept == "true", value(sent_on));
        // If flag and threshold contradict each other, the other SDKs follow the threshold and keep
        // it. The specification requires erasing it.
        let contradicted = language.ends_with('!');
        assert_eq!(ours == theirs, !contradicted, "{line}: {ours:?}");
        children += 1;
    }
    assert!(children > 15, "{children}");
}
