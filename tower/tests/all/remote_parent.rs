//! The caller's context around requests, for spans that start when they begin.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};

use astracer_sdk::{Builder, OpenTelemetrySpanExt as _, Propagator, Start};
use astracer_testing::{TIMEOUT, World, one, sampling, world};
use astracer_tower::{KeepLayer, RemoteParentLayer};
use http::Request;
use opentelemetry::Context;
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TraceContextExt as _;
use tower::util::service_fn;
use tower_layer::Layer as _;
use tower_service::Service;
use tracing::instrument::Instrumented;
use tracing::{Instrument as _, info_span};

const PARENT: &str = "00-0000000000000000000000000000002a-000000000000002b-01";

/// A service that begins one span when it is called, and one in its future.
fn shop(_: Request<()>) -> impl Future<Output = Result<(), Infallible>> {
    let called = info_span!("called");
    async move {
        drop(called.entered());
        ready(()).instrument(info_span!("polled")).await;
        Ok(())
    }
}

/// Calls a service below these layers, in which nothing waits.
fn call<S: Service<Request<()>>>(mut service: S, request: Request<()>) -> Result<S::Response, S::Error> {
    match pin!(service.call(request)).poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}

fn serve(request: Request<()>, layer: &RemoteParentLayer) {
    call(layer.layer(service_fn(shop)), request).unwrap();
    assert!(!Context::current().span().span_context().is_valid());
}

#[test]
fn spans_of_a_request_are_children_of_its_caller() {
    let world = world(|builder| builder.with_start(Start::AtOnce));
    let layer = RemoteParentLayer::new(world.astracer.propagator());
    let spans = world.run(|| {
        let request = Request::builder().header("traceparent", PARENT);
        serve(request.body(()).unwrap(), &layer);
    });
    for name in ["called", "polled"] {
        let span = one(&spans, name);
        assert_eq!(span.parent_span_id, 0x2b.into(), "{name}");
        assert_eq!(span.span_context.trace_id(), 0x2a.into(), "{name}");
        assert!(span.parent_span_is_remote);
    }
    assert_eq!(world.handle.stats().parents_kept, 2);
}

/// A service inside a span of its own, as `TraceLayer` makes it.
fn traced<F: Future>(inner: impl Fn(Request<()>) -> F) -> impl Fn(Request<()>) -> Instrumented<F> {
    move |request| {
        let span = info_span!("server");
        let future = span.in_scope(|| inner(request));
        future.instrument(span)
    }
}

/// Both routers of a service may have the layer, and tonic's `trace_fn` sets the parent itself.
#[test]
fn a_layer_inside_a_span_of_the_callers_trace_changes_nothing() {
    for (start, sampler) in
        [(Start::AtOnce, "always"), (Start::default(), "always"), (Start::AtOnce, "never")]
    {
        let world = sampling(sampler, |builder| {
            builder.with_start(start).with_parent_decision(astracer_sdk::ParentDecision::Ignore)
        });
        let layer = RemoteParentLayer::new(world.astracer.propagator());
        let spans = world.run(|| {
            let request = Request::builder().header("traceparent", PARENT).body(()).unwrap();
            let inner = |request| layer.layer(service_fn(shop)).call(request);
            call(layer.layer(service_fn(traced(inner))), request).unwrap();
        });
        let stats = world.handle.stats();
        assert_eq!(stats.roots_kept + stats.roots_dropped, 1);
        if sampler == "never" {
            assert!(spans.is_empty());
            continue;
        }
        let server = one(&spans, "server");
        assert_eq!(server.parent_span_id, 0x2b.into());
        for name in ["called", "polled"] {
            assert_eq!(one(&spans, name).parent_span_id, server.span_context.span_id(), "{name}");
        }
    }
}

/// A process that calls itself inside the client's span.
#[test]
fn a_call_within_one_process_is_a_child_of_the_client() {
    let world = world(|builder| builder);
    let propagator = world.astracer.propagator();
    let layer = RemoteParentLayer::new(world.astracer.propagator());
    let spans = world.run(|| {
        info_span!("client").in_scope(|| {
            let mut headers = HashMap::new();
            propagator.inject_context(&Context::current(), &mut headers);
            let request = Request::builder().header("traceparent", &headers["traceparent"]);
            call(layer.layer(service_fn(traced(shop))), request.body(()).unwrap()).unwrap();
        });
    });
    let (client, server) = (one(&spans, "client"), one(&spans, "server"));
    assert_eq!(server.parent_span_id, client.span_context.span_id());
    assert_eq!(server.span_context.trace_id(), client.span_context.trace_id());
}

#[test]
fn a_request_without_a_caller_begins_a_trace() {
    let world = world(|builder| builder.with_start(Start::AtOnce));
    let layer = RemoteParentLayer::new(world.astracer.propagator());
    for header in ["x-unrelated", "traceparent"] {
        // A header that cannot be parsed is ignored.
        let request = Request::builder().header(header, "nonsense").body(()).unwrap();
        world.inside(|| serve(request, &layer));
    }
    assert_eq!(world.exported().len(), 4);
    assert_eq!(world.handle.stats().roots_kept, 4);
}

fn request(headers: &[(&str, &str)]) -> Request<()> {
    let request = Request::builder();
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(()).unwrap()
}

/// OpenTelemetry's propagators API on B3: both forms are read, whichever is written.
#[test]
fn both_forms_of_b3_are_accepted_from_a_caller() {
    let several: &[(&str, &str)] = &[
        ("x-b3-traceid", "0000000000000000000000000000002a"),
        ("x-b3-spanid", "000000000000002b"),
        ("x-b3-sampled", "1"),
    ];
    let one_header: &[(&str, &str)] = &[("b3", "0000000000000000000000000000002a-000000000000002b-1")];
    for propagator in [Propagator::B3, Propagator::B3Multi] {
        for headers in [several, one_header] {
            let world =
                sampling("never", |builder| builder.with_propagators([propagator]).with_start(Start::AtOnce));
            let layer = RemoteParentLayer::new(world.astracer.propagator());
            let spans = world.run(|| serve(request(headers), &layer));
            for name in ["called", "polled"] {
                assert_eq!(one(&spans, name).parent_span_id, 0x2b.into(), "{propagator:?}, {headers:?}");
            }
            assert_eq!(world.handle.stats().parents_kept, 2);
            let trace_id = KeepLayer::new(world.handle.clone(), layer).on_request(request(headers).headers());
            assert_eq!(trace_id, Some(0x2a.into()), "{propagator:?}, {headers:?}");
        }
    }
}

/// One caller writes several formats; the later ones have precedence. W3C Trace Context cannot
/// leave the decision to the callee, and says "not sampled" instead.
#[test]
fn a_decision_in_another_format_counts_where_b3_leaves_it_open() {
    const IDS: &str = "0000000000000000000000000000002a-000000000000002b";
    for (flags, sampler, followed, is_kept) in [
        ("01", "never", 1, true),
        ("01", "always", 1, true),
        ("00", "never", 0, false),
        ("00", "always", 0, true),
    ] {
        let change = |builder: Builder| {
            let propagators = [Propagator::B3, Propagator::TraceContext];
            builder.with_propagators(propagators).with_sampler(sampler.parse().unwrap())
        };
        let World { dispatch, handle, astracer, collector, .. } = world(change);
        let headers = [("b3", IDS.to_owned()), ("traceparent", format!("00-{IDS}-{flags}"))];
        let headers: HashMap<String, String> =
            headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let parent = astracer.propagator().extract(&headers);
        tracing::dispatcher::with_default(&dispatch, || {
            let server = info_span!("server");
            server.set_parent(parent.clone()).unwrap();
            server.in_scope(|| ());
        });
        handle.flush(TIMEOUT).unwrap();
        assert_eq!(collector.spans().len(), usize::from(is_kept), "{flags}, {sampler}");
        assert_eq!(handle.stats().parents_kept, followed, "{flags}, {sampler}");
        let mut sent = HashMap::new();
        astracer.propagator().inject_context(&parent, &mut sent);
        let expected = if flags == "01" { format!("{IDS}-1") } else { IDS.to_owned() };
        assert_eq!(sent["b3"], expected, "passed on without a span");
    }
}

/// W3C Baggage, "Header Content": several headers are one list.
#[test]
fn several_baggage_headers_are_one_list() {
    let world = world(|builder| builder);
    let layer = RemoteParentLayer::new(world.astracer.propagator());
    let seen = |headers: &[(&str, &str)]| {
        let list = || {
            let cx = Context::current();
            let mut list: Vec<String> =
                cx.baggage().iter().map(|(name, (value, _))| format!("{name}={value}")).collect();
            list.sort();
            list.join(",")
        };
        let look = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(list())));
        call(layer.layer(look), request(headers)).unwrap()
    };
    assert_eq!(seen(&[("baggage", "a=1"), ("baggage", "b=2, c=3")]), "a=1,b=2,c=3");
    assert_eq!(seen(&[("baggage", "a=1"), ("baggage", "a=2")]), "a=2");
    assert_eq!(seen(&[("baggage", "a=1")]), "a=1");
    // A header with a list above the specification's limit is ignored, without an effect on the
    // others.
    let long = format!("long={}", "x".repeat(8_192));
    assert_eq!(seen(&[("baggage", "a=1"), ("baggage", &long), ("baggage", "b=2")]), "a=1,b=2");
    let _around = Context::new().with_baggage([opentelemetry::KeyValue::new("around", 1)]).attach();
    assert_eq!(seen(&[("baggage", &long), ("baggage", &long)]), "around=1");
}
