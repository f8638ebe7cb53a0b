//! Spans of requests last as long as the response's body, and learn from it how the request ended.
//!
//! A body moves the manual clock by 100 ms at each poll, inside a span named `chunk`, and makes a
//! span named `cleanup` when it is dropped.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::io::Error;
use std::pin::{Pin, pin};
use std::task::{self, Poll, Waker};
use std::time::Duration;

use astracer_sdk::{Builder, ManualClock, ProvisionalMode, Tail};
use astracer_testing::{World, reason, sampling, world};
use astracer_tower::{
    InjectLayer, RequestSpanBody, RequestSpanLayer, record_response, record_trailers, request_span,
};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use opentelemetry_sdk::trace::SpanData;
use tower::util::service_fn;
use tower_http::trace::TraceLayer;
use tower_layer::Layer as _;
use tower_service::Service;
use tracing::info_span;

use crate::drawing::drawn;

/// A body of steps, one for each poll: `x` is data, `.` waits, `!` fails, and a text such as `13`
/// is the `grpc-status` of trailers.
struct Script {
    clock: ManualClock,
    steps: VecDeque<&'static str>,
    /// The body knows when it is at its end, as one with a content length does.
    is_sized: bool,
}

const POLL: Duration = Duration::from_millis(100);

impl Script {
    fn new(clock: &ManualClock, steps: &'static str) -> Self {
        let steps = steps.split_whitespace().collect();
        Script { clock: clock.clone(), steps, is_sized: false }
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        info_span!("chunk").in_scope(|| self.clock.advance(POLL));
        Poll::Ready(match self.steps.pop_front() {
            None => None,
            Some(".") => return Poll::Pending,
            Some("x") => Some(Ok(Frame::data(Bytes::from_static(b"x")))),
            Some("!") => Some(Err(Error::other("the disk is gone"))),
            Some(code) => {
                let trailers = [("grpc-status".parse().unwrap(), code.parse().unwrap())];
                Some(Ok(Frame::trailers(trailers.into_iter().collect::<HeaderMap>())))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_sized && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_sized { SizeHint::with_exact(self.steps.len() as u64) } else { SizeHint::default() }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        info_span!("cleanup").in_scope(|| ());
    }
}

fn http() -> Request<String> {
    Request::get("/stream").body(String::new()).unwrap()
}

fn grpc() -> Request<String> {
    let request = Request::post("/shop.Orders/Find").version(Version::HTTP_2);
    request.header("content-type", "application/grpc").body(String::new()).unwrap()
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut task::Context::from_waker(Waker::noop()))
}

/// Calls a service that answers at once.
fn call<S: Service<Request<String>>>(
    mut service: S,
    request: Request<String>,
) -> Result<S::Response, S::Error> {
    match poll(pin!(service.call(request))) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}

/// Polls a body to its end, or `polls` times, and drops it. Like hyper, it does not poll again
/// after trailers.
fn read<B: Body>(body: B, polls: usize) {
    let mut body = pin!(body);
    for _ in 0..polls {
        let frame = body.as_mut().poll_frame(&mut task::Context::from_waker(Waker::noop()));
        let is_last = match frame {
            Poll::Ready(Some(Ok(frame))) => frame.is_trailers() || body.is_end_stream(),
            Poll::Ready(_) => true,
            Poll::Pending => false,
        };
        if is_last {
            return;
        }
    }
}

/// The service of these tests: it answers with this body.
fn answering(
    world: &World,
    response: Response<()>,
    steps: &'static str,
) -> impl Service<Request<String>, Response = Response<Script>, Error = Infallible> + use<> {
    let clock = world.clock.clone();
    service_fn(move |_: Request<String>| {
        let (parts, ()) = response.clone().into_parts();
        ready(Ok(Response::from_parts(parts, Script::new(&clock, steps))))
    })
}

fn ok() -> Response<()> {
    Response::new(())
}

fn with_status(status: u16) -> Response<()> {
    Response::builder().status(status).body(()).unwrap()
}

fn with_code(code: &str) -> Response<()> {
    Response::builder().header("grpc-status", code).body(()).unwrap()
}

/// The spans of a request to a server with [`RequestSpanLayer`].
fn served(request: Request<String>, response: Response<()>, steps: &'static str, polls: usize) -> String {
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let service = RequestSpanLayer::default().layer(answering(&world, response, steps));
        read(call(service, request).unwrap().into_body(), polls);
    });
    drawn(&spans)
}

/// The spans of a call through a client with a span of its own.
fn called(request: Request<String>, response: Response<()>, steps: &'static str, polls: usize) -> String {
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let layer = InjectLayer::new(world.astracer.propagator()).with_client_span();
        let service = layer.layer(answering(&world, response, steps));
        read(call(service, request).unwrap().into_body(), polls);
    });
    drawn(&spans)
}

const ALL: usize = usize::MAX;

#[test]
fn a_request_lasts_until_its_body_ends() {
    let expected = "\
GET 300 ms http=200
  chunk 100 ms
  chunk 100 ms
  chunk 100 ms
  cleanup
";
    assert_eq!(served(http(), ok(), "x x", ALL), expected);
    assert_eq!(called(http(), ok(), "x x", ALL), expected);
}

/// The reproduction `streaming` of the first week: a stream's error is in its trailers.
#[test]
fn a_grpc_status_is_read_from_the_trailers() {
    let expected = "\
shop.Orders/Find 400 ms http=200 grpc=13 error 13
  chunk 100 ms
  chunk 100 ms
  chunk 100 ms
  chunk 100 ms
  cleanup
";
    assert_eq!(served(grpc(), ok(), "x x x 13", ALL), expected);
    assert_eq!(called(grpc(), ok(), "x x x 13", ALL), expected);
}

/// The first line only: the status of a call.
fn first(drawn: &str) -> &str {
    drawn.lines().next().unwrap_or_default().split_once(" http=").map_or("no response", |(_, rest)| rest)
}

/// OpenTelemetry, "Semantic conventions for gRPC": a server's errors are UNKNOWN,
/// DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and DATA_LOSS, and a client's are all
/// but OK.
#[test]
fn each_side_fails_by_its_own_list_of_codes() {
    const CODES: [&str; 17] =
        ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];
    for code in CODES {
        let of = |fails| {
            if fails { format!("200 grpc={code} error {code}") } else { format!("200 grpc={code}") }
        };
        let on_server = of(matches!(code, "2" | "4" | "12" | "13" | "14" | "15"));
        let on_client = of(code != "0");
        // In trailers, and in the headers of a response without a body.
        assert_eq!(first(&served(grpc(), ok(), code, ALL)), on_server);
        assert_eq!(first(&served(grpc(), with_code(code), "", ALL)), on_server);
        assert_eq!(first(&called(grpc(), ok(), code, ALL)), on_client);
        assert_eq!(first(&called(grpc(), with_code(code), "", ALL)), on_client);
    }
    // Not a number, which clients take for UNKNOWN.
    assert_eq!(first(&served(grpc(), with_code("broken"), "", ALL)), "200 grpc=2 error 2");
}

/// OpenTelemetry, "Semantic conventions for HTTP spans", "Status".
#[test]
fn each_side_fails_by_its_own_http_statuses() {
    for (status, on_server, on_client) in [
        (200, "200", "200"),
        (101, "101", "101"),
        (304, "304", "304"),
        (404, "404", "404 error 404"),
        (500, "500 error 500", "500 error 500"),
        (503, "503 error 503", "503 error 503"),
    ] {
        assert_eq!(first(&served(http(), with_status(status), "x", ALL)), on_server);
        assert_eq!(first(&called(http(), with_status(status), "x", ALL)), on_client);
    }
}

/// gRPC, "HTTP to gRPC Status Code Mapping": the code that a client takes for the missing one.
#[test]
fn every_grpc_call_has_a_code() {
    for (status, code) in [(200, "2"), (400, "13"), (401, "16"), (403, "7"), (404, "12"), (503, "14")] {
        let text = called(grpc(), with_status(status), "x", ALL);
        assert_eq!(first(&text), format!("{status} grpc={code} error {code}"));
        let text = called(grpc(), with_status(status), "x", 0);
        let code = if status == 200 { "1" } else { code };
        assert_eq!(first(&text), format!("{status} grpc={code} error {code}"), "dropped");
    }
    // A caller that stops reading is no error of the server.
    assert_eq!(first(&served(grpc(), ok(), "x x 0", 1)), "200 grpc=1");
    // The trailers of gRPC-Web are in the data.
    let mut web = grpc();
    web.headers_mut().insert("content-type", "application/grpc-web+proto".parse().unwrap());
    assert_eq!(first(&served(web, ok(), "x", ALL)), "200");
}

#[test]
fn a_body_that_fails_is_an_error() {
    let expected = "\
GET 200 ms http=200 error std::io::error::Error 'the disk is gone'
  chunk 100 ms
  chunk 100 ms
  cleanup
";
    assert_eq!(served(http(), ok(), "x !", ALL), expected);
    assert_eq!(called(http(), ok(), "x !", ALL), expected);
    let grpc_error = "200 grpc=13 error std::io::error::Error 'the disk is gone'";
    assert_eq!(first(&served(grpc(), ok(), "x !", ALL)), grpc_error);
}

/// A panic passes through the layer, and fails the span.
#[test]
fn a_handler_that_panics_fails_its_span() {
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let panics = service_fn(|_: Request<String>| async {
            let _cleanup = OnDrop(|| info_span!("cleanup").in_scope(|| ()));
            std::panic::resume_unwind(Box::new("a bug"));
            #[allow(unreachable_code, reason = "names the type of the response")]
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        let service = RequestSpanLayer::default().layer(panics);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call(service, http())));
        assert!(caught.is_err());
    });
    assert_eq!(drawn(&spans), "GET error 'panicked'\n  cleanup error 'panicked'\n");
}

/// The response's status has been recorded already, and its cleanup is inside the span.
#[test]
fn a_body_that_is_dropped_ends_the_request_then() {
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let service = RequestSpanLayer::default().layer(answering(&world, ok(), "x . x"));
        let mut body = Box::pin(call(service, http()).unwrap().into_body());
        let mut cx = task::Context::from_waker(Waker::noop());
        assert!(matches!(body.as_mut().poll_frame(&mut cx), Poll::Ready(Some(Ok(_)))));
        assert!(body.as_mut().poll_frame(&mut cx).is_pending());
        // The client goes away meanwhile.
        world.clock.advance(Duration::from_secs(5));
        drop(body);
    });
    let expected = "\
GET 5200 ms http=200
  chunk 100 ms
  chunk 100 ms
  cleanup
";
    assert_eq!(drawn(&spans), expected);
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A request that is cancelled before its response takes as long as it was open, and the cleanup
/// of its handler is inside the span.
#[test]
fn a_request_without_a_response_ends_when_it_is_dropped() {
    for (request, name) in [(http(), "GET 5000 ms"), (grpc(), "shop.Orders/Find 5000 ms grpc=1")] {
        let world = world(|builder| builder);
        let spans = world.run(|| {
            let waits = service_fn(|_: Request<String>| async {
                let _cleanup = OnDrop(|| info_span!("cleanup").in_scope(|| ()));
                pending::<Result<Response<String>, Infallible>>().await
            });
            let mut future = Box::pin(RequestSpanLayer::default().layer(waits).call(request));
            assert!(poll(future.as_mut()).is_pending());
            world.clock.advance(Duration::from_secs(5));
            drop(future);
        });
        assert_eq!(drawn(&spans), format!("{name}\n  cleanup\n"));
    }
}

#[test]
fn a_service_that_fails_fails_its_span() {
    for (request, server, client) in [
        (http(), "GET error std::io::error::Error\n", "GET error std::io::error::Error\n"),
        (
            grpc(),
            "shop.Orders/Find grpc=13 error std::io::error::Error\n",
            "shop.Orders/Find grpc=14 error std::io::error::Error\n",
        ),
    ] {
        let world = world(|builder| builder);
        let fails = || {
            service_fn(|_: Request<String>| {
                ready(Err::<Response<String>, _>(Error::other("connection refused")))
            })
        };
        let service = RequestSpanLayer::default().layer(fails());
        let spans = world.run(|| assert!(call(service, request.clone()).is_err()));
        assert_eq!(drawn(&spans), server);
        world.collector.take();
        let layer = InjectLayer::new(world.astracer.propagator()).with_client_span();
        let spans = world.run(|| assert!(call(layer.layer(fails()), request).is_err()));
        assert_eq!(drawn(&spans), client);
    }
}

/// Nobody polls a body that says it is at its end: of HEAD, 304, or an upgrade.
#[test]
fn a_response_without_a_body_ends_with_its_headers() {
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let empty = service_fn(|_: Request<String>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
        let response = call(RequestSpanLayer::default().layer(empty), http()).unwrap();
        world.clock.advance(Duration::from_secs(5));
        drop(response);
    });
    assert_eq!(drawn(&spans), "GET http=200\n");
}

/// Consumers of a body with a known length do not poll it again after the last data, and may hold
/// it for longer.
#[test]
fn a_sized_body_ends_with_its_last_data() {
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let clock = world.clock.clone();
        let sized = service_fn(move |_: Request<String>| {
            let mut body = Script::new(&clock, "x x");
            body.is_sized = true;
            ready(Ok::<_, Infallible>(Response::new(body)))
        });
        let body = call(RequestSpanLayer::default().layer(sized), http()).unwrap().into_body();
        let mut body = pin!(body);
        for left in [2, 1] {
            assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(left), false));
            let mut cx = task::Context::from_waker(Waker::noop());
            assert!(matches!(body.as_mut().poll_frame(&mut cx), Poll::Ready(Some(Ok(_)))));
        }
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
        world.clock.advance(Duration::from_secs(5));
    });
    assert_eq!(drawn(&spans), "GET 200 ms http=200\n  chunk 100 ms\n  chunk 100 ms\n  cleanup\n");
}

/// Without a span the body is passed through, and the caller's context is still current inside.
#[test]
fn a_disabled_span_leaves_the_body_alone() {
    let world = world(|builder| builder);
    let filtered = without_request_spans(&world);
    let spans = tracing::dispatcher::with_default(&filtered, || {
        for parent in [None, Some("00-0000000000000000000000000000002a-000000000000002b-01")] {
            let mut request = http();
            if let Some(parent) = parent {
                request.headers_mut().insert("traceparent", parent.parse().unwrap());
            }
            let remote = astracer_tower::RemoteParentLayer::new(world.astracer.propagator());
            let layer = RequestSpanLayer::default().with_remote_parent(remote);
            let service = layer.layer(answering(&world, with_status(500), "x !"));
            read(call(service, request).unwrap().into_body(), ALL);
        }
        world.exported()
    });
    let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["chunk", "chunk", "cleanup", "chunk", "chunk", "cleanup"]);
    let is_below = |span: &SpanData| span.parent_span_id == 0x2b.into();
    assert_eq!(spans.iter().map(is_below).collect::<Vec<_>>(), [false, false, false, true, true, true]);
}

fn without_request_spans(world: &World) -> tracing::Dispatch {
    use tracing_subscriber::layer::SubscriberExt as _;

    let is_other = tracing_subscriber::filter::filter_fn(|metadata| metadata.target() != "http_server");
    tracing_subscriber::registry().with(world.astracer.layer.clone()).with(is_other).into()
}

/// A timeout outside of the layer replaces the response by one with a default body.
#[test]
fn a_default_body_is_empty() {
    let body = RequestSpanBody::<String>::default();
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
}

/// tower-http's layer with our span, as docs/http.md shows it. Duration, status and tree are the
/// same. Only cleanup code is different, since the layer does not enter its span there.
#[test]
fn a_trace_layer_sees_the_same() {
    for (request, response, steps) in [
        (http(), ok(), "x x x"),
        (http(), with_status(404), "x"),
        (http(), with_status(503), "x x"),
        (grpc(), ok(), "x x 0"),
        (grpc(), ok(), "x x 5"),
        (grpc(), ok(), "x x 14"),
        (grpc(), with_code("13"), ""),
    ] {
        let expected = served(request.clone(), response.clone(), steps, ALL);
        let world = world(|builder| builder);
        let spans = world.run(|| {
            let layer = TraceLayer::new_for_http()
                .make_span_with(|request: &Request<String>| request_span(request, None))
                .on_response(record_response)
                .on_eos(record_trailers);
            read(call(layer.layer(answering(&world, response, steps)), request).unwrap().into_body(), ALL);
        });
        let without = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.contains("cleanup")).map(str::to_owned).collect()
        };
        assert_eq!(without(&drawn(&spans)), without(&expected), "{steps}");
    }
}

/// Late policies see a stream's duration and its error, below a root that the sampler dropped.
#[test]
fn late_policies_see_the_body() {
    let check = |request: Request<String>, steps: &'static str, polls: usize, expected: Option<&str>| {
        for (mode, is_recorded) in [(ProvisionalMode::Always, true), (ProvisionalMode::Never, false)] {
            let late = |builder: Builder| {
                let tail: Tail = "error,slow:200ms".parse().unwrap();
                builder.with_tail(tail.with_provisional(mode))
            };
            let world = sampling("never", late);
            let spans = world.run(|| {
                let service = RequestSpanLayer::default().layer(answering(&world, ok(), steps));
                read(call(service, request.clone()).unwrap().into_body(), polls);
            });
            let reasons: Vec<_> = spans.iter().filter_map(reason).collect();
            assert_eq!(reasons.first().map(String::as_str), expected.filter(|_| is_recorded), "{steps}");
            // One trace, and the error is counted even if nothing was recorded.
            let outcomes = world.handle.outcomes();
            let errors: u64 = outcomes.iter().map(|key| key.errors).sum();
            assert_eq!(outcomes.len(), 1, "{steps}");
            assert_eq!(errors, u64::from(expected == Some("error")), "{steps}, {mode:?}");
        }
    };
    check(http(), "x x", ALL, Some("slow"));
    check(http(), "x x", 1, None);
    check(http(), "!", ALL, Some("error"));
    check(grpc(), "0", ALL, None);
    check(grpc(), "13", ALL, Some("error"));
    check(grpc(), "5", ALL, None);
    check(grpc(), "x x 0", ALL, Some("slow"));
}

/// Only the root of a dropped trace is counted: what its body begins is below it.
#[test]
fn spans_of_a_dropped_requests_body_are_not_roots() {
    let world = sampling("never", |builder| builder);
    world.inside(|| {
        let service = RequestSpanLayer::default().layer(answering(&world, ok(), "x . x"));
        let mut body = pin!(call(service, http()).unwrap().into_body());
        for _ in 0..3 {
            let _ = body.as_mut().poll_frame(&mut task::Context::from_waker(Waker::noop()));
        }
    });
    assert_eq!(world.handle.stats().roots_dropped, 1);
}
