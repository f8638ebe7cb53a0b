//! The caller's context around requests, for spans that start when they begin.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};

use astracer_sdk::{Builder, OpenTelemetrySpanExt as _, Propagator, Start};
use astracer_testing::{TIMEOUT, World, one, world};
use astracer_tower::{KeepLayer, RemoteParentLayer};
use http::Request;
use opentelemetry::Context;
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TraceContextExt as _;
use tower_layer::Layer as _;
use tower_service::Service;
use tracing::{Instrument as _, info_span};

const PARENT: &str = "00-0000000000000000000000000000002a-000000000000002b-01";

/// A service that begins one span when it is called, and one in its future.
#[derive(Clone)]
struct Shop;

impl Service<Request<()>> for Shop {
    type Response = ();
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<(), Infallible>>>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let called = info_span!("called");
        Box::pin(async move {
            drop(called.entered());
            let polled: Ready<()> = ready(());
            polled.instrument(info_span!("polled")).await;
            Ok(())
        })
    }
}

fn serve(request: Request<()>, layer: &RemoteParentLayer) {
    let future = layer.layer(Shop).call(request);
    let mut task = TaskContext::from_waker(Waker::noop());
    assert!(pin!(future).poll(&mut task).is_ready());
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
#[derive(Clone)]
struct Traced<S>(S);

impl<S: Service<Request<()>>> Service<Request<()>> for Traced<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = tracing::instrument::Instrumented<S::Future>;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let span = info_span!("server");
        let future = span.in_scope(|| self.0.call(request));
        future.instrument(span)
    }
}

/// Both routers of a service may have the layer, and tonic's `trace_fn` sets the parent itself.
#[test]
fn a_layer_inside_a_span_of_the_callers_trace_changes_nothing() {
    for (start, sampler) in
        [(Start::AtOnce, "always"), (Start::default(), "always"), (Start::AtOnce, "never")]
    {
        let world = world(|builder| {
            builder
                .with_start(start)
                .with_sampler(sampler.parse().unwrap())
                .with_parent_decision(astracer_sdk::ParentDecision::Ignore)
        });
        let layer = RemoteParentLayer::new(world.astracer.propagator());
        let spans = world.run(|| {
            let request = Request::builder().header("traceparent", PARENT).body(()).unwrap();
            let future = layer.layer(Traced(layer.layer(Shop))).call(request);
            let mut task = TaskContext::from_waker(Waker::noop());
            assert!(pin!(future).poll(&mut task).is_ready());
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
            let future = layer.layer(Traced(Shop)).call(request.body(()).unwrap());
            let mut task = TaskContext::from_waker(Waker::noop());
            assert!(pin!(future).poll(&mut task).is_ready());
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
            let world = world(|builder| {
                builder
                    .with_propagators([propagator])
                    .with_sampler("never".parse().unwrap())
                    .with_start(Start::AtOnce)
            });
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
        let mut service = layer.layer(Look(list));
        let mut task = TaskContext::from_waker(Waker::noop());
        match pin!(service.call(request(headers))).poll(&mut task) {
            Poll::Ready(Ok(list)) => list,
            other => panic!("{other:?}"),
        }
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

/// Responds with the result of its function, called inside the request.
struct Look<F>(F);

impl<F: Fn() -> String> Service<Request<()>> for Look<F> {
    type Response = String;
    type Error = Infallible;
    type Future = Ready<Result<String, Infallible>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok((self.0)()))
    }
}
