//! Requests to real servers: axum and tonic on hyper's connections, in the memory of one process.
//! The spans with our layer are compared with those of tower-http's `TraceLayer`.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::time::Duration;

use astracer_sdk::{ManualClock, ProvisionalMode, Tail};
use astracer_testing::{World, reason, sampling, world};
use astracer_tower::{
    InjectLayer, RemoteParentLayer, RequestSpanLayer, record_response, record_trailers, request_span,
};
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, MatchedPath};
use axum::response::sse::{Event, Sse};
use axum::routing::{any, get, post};
use bytes::{Buf as _, BufMut as _, Bytes};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Limited, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::tokio_stream::{self, Stream, StreamExt as _};
use tower::util::service_fn;
use tower_http::trace::TraceLayer;
use tower_layer::Layer as _;
use tracing::info_span;

use crate::drawing::drawn;

pub(crate) type Sender1 = hyper::client::conn::http1::SendRequest<Body>;
pub(crate) type Sender2<B> = hyper::client::conn::http2::SendRequest<B>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum With {
    Own,
    TraceLayer,
}

fn route(request: &http::Extensions) -> Option<&str> {
    request.get::<MatchedPath>().map(MatchedPath::as_str)
}

fn layered(router: Router, with: With, world: &World) -> Router {
    let remote = RemoteParentLayer::new(world.astracer.propagator());
    match with {
        With::Own => router.layer(RequestSpanLayer::new(route).with_remote_parent(remote)),
        With::TraceLayer => {
            let trace = TraceLayer::new_for_http()
                .make_span_with(|request: &Request<Body>| request_span(request, route(request.extensions())))
                .on_response(record_response)
                .on_eos(record_trailers);
            router.layer(trace).layer(remote)
        }
    }
}

pub(crate) fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

async fn serve1(io: DuplexStream, router: Router) {
    let server = hyper::server::conn::http1::Builder::new();
    let service = TowerToHyperService::new(router);
    // A client that goes away is an error here.
    let _ = server.serve_connection(TokioIo::new(io), service).with_upgrades().await;
}

async fn serve2(io: DuplexStream, router: Router) {
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(io), TowerToHyperService::new(router)).await;
}

/// Spans of what a client does over HTTP/1.1, as they are drawn.
pub(crate) fn over_http1(world: &World, router: Router, client: impl AsyncFnOnce(Sender1)) -> String {
    let (near, far) = duplex(1 << 16);
    let spans = world.run(|| {
        run(async {
            let (sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(near)).await.unwrap();
            let _ = tokio::join!(serve1(far, router), connection.with_upgrades(), client(sender));
        });
    });
    drawn(&spans)
}

/// The same over HTTP/2.
pub(crate) fn over_http2<B>(world: &World, router: Router, client: impl AsyncFnOnce(Sender2<B>)) -> String
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (near, far) = duplex(1 << 16);
    let spans = world.run(|| {
        run(async {
            let client_of = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            let (server, handshake) = (serve2(far, router), client_of.handshake::<_, B>(TokioIo::new(near)));
            let calls = async {
                let (sender, connection) = handshake.await.unwrap();
                let _ = tokio::join!(connection, client(sender));
            };
            tokio::join!(server, calls);
        });
    });
    drawn(&spans)
}

const POLL: Duration = Duration::from_millis(100);

/// Each item takes 100 ms, inside a span.
fn slowly<T>(clock: &ManualClock, items: Vec<T>) -> impl Stream<Item = T> + use<T> {
    let clock = clock.clone();
    tokio_stream::iter(items).map(move |item| {
        info_span!("chunk").in_scope(|| clock.advance(POLL));
        item
    })
}

/// A body of two chunks of data.
fn streaming(clock: &ManualClock) -> Body {
    let chunks = [(); 2].map(|()| Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"xx"))));
    Body::new(StreamBody::new(slowly(clock, chunks.into())))
}

async fn try_send(
    sender: &mut Sender1,
    method: &str,
    path: &str,
    body: &'static str,
) -> hyper::Result<Response<Incoming>> {
    let request = Request::builder().method(method).uri(path).header("host", "shop");
    sender.send_request(request.body(Body::from(body)).unwrap()).await
}

async fn send(sender: &mut Sender1, method: &str, path: &str, body: &'static str) -> Response<Incoming> {
    try_send(sender, method, path, body).await.unwrap()
}

/// Requests through axum, each on a connection of its own.
fn check(with: With, router: impl Fn(&World) -> Router, request: (&str, &str, &'static str), expected: &str) {
    let (method, path, body) = request;
    let world = world(|builder| builder);
    let router = layered(router(&world), with, &world);
    let text = over_http1(&world, router, async |mut sender| {
        // A body that fails is an error here, before or after the headers.
        if let Ok(response) = try_send(&mut sender, method, path, body).await {
            let _ = response.into_body().collect().await;
        }
    });
    assert_eq!(text, expected, "{with:?}, {method} {path}");
}

#[test]
fn responses_of_axum_have_durations_and_statuses() {
    let router = |world: &World| {
        let clock = world.clock.clone();
        let stream = move || streaming(&clock);
        let clock = world.clock.clone();
        let limited = move || Body::new(Limited::new(streaming(&clock), 3));
        let clock = world.clock.clone();
        let not_modified = move || (StatusCode::NOT_MODIFIED, streaming(&clock));
        Router::new()
            .route("/stream", get(async move || stream()))
            .route("/limited", get(async move || limited()))
            .route("/cached", get(async move || not_modified()))
            .route("/text", get(async || "text"))
            .route("/fails", get(async || StatusCode::SERVICE_UNAVAILABLE))
            .route("/upload", post(async |text: String| text).layer(DefaultBodyLimit::max(4)))
    };
    for with in [With::Own, With::TraceLayer] {
        let check = |request, expected| check(with, router, request, expected);
        let stream = "GET /stream 200 ms http=200\n  chunk 100 ms\n  chunk 100 ms\n";
        check(("GET", "/stream", ""), stream);
        check(("GET", "/text", ""), "GET /text http=200\n");
        check(("GET", "/fails", ""), "GET /fails http=503 error 503\n");
        // Without a body, which is dropped before it is polled.
        check(("HEAD", "/stream", ""), "HEAD /stream http=200\n");
        check(("HEAD", "/text", ""), "HEAD /text http=200\n");
        check(("GET", "/cached", ""), "GET /cached http=304\n");
        // Limits of a request's size, which is the client's fault, and of a response's.
        check(("POST", "/upload", "1234"), "POST /upload http=200\n");
        check(("POST", "/upload", "12345"), "POST /upload http=413\n");
    }
    let broken = "\
GET /limited 200 ms http=200 error axum_core::error::Error 'length limit exceeded'
  chunk 100 ms
  chunk 100 ms
";
    check(With::Own, router, ("GET", "/limited", ""), broken);
}

/// The layer changes no header and no byte: a length stays known, and a stream is chunked.
#[test]
fn responses_are_the_same_as_without_the_layer() {
    let answers = |is_traced: bool| {
        let world = world(|builder| builder);
        let clock = world.clock.clone();
        let router = Router::new()
            .route("/stream", get(async move || streaming(&clock)))
            .route("/text", get(async || "text"))
            .route("/empty", get(async || ()));
        let router = if is_traced { layered(router, With::Own, &world) } else { router };
        let mut answers = Vec::new();
        over_http1(&world, router, async |mut sender| {
            for (method, path) in [
                ("GET", "/stream"),
                ("HEAD", "/stream"),
                ("GET", "/text"),
                ("HEAD", "/text"),
                ("GET", "/empty"),
                ("GET", "/nowhere"),
            ] {
                let (mut parts, body) = send(&mut sender, method, path, "").await.into_parts();
                parts.headers.remove("date");
                let bytes = body.collect().await.unwrap().to_bytes();
                answers.push((parts.status, parts.headers, bytes));
            }
        });
        answers
    };
    let (plain, traced) = (answers(false), answers(true));
    assert_eq!(traced, plain);
    assert_eq!(plain[2].1["content-length"], "4");
    assert_eq!(plain[0].1["transfer-encoding"], "chunked");
}

/// A WebSocket's handshake: the request ends with the headers, whatever the connection does next.
#[test]
fn an_upgraded_request_ends_with_its_headers() {
    let world = world(|builder| builder);
    let clock = world.clock.clone();
    let echo = async |mut request: Request<Body>| {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async {
            let mut io = TokioIo::new(upgrade.await.unwrap());
            let mut byte = [0];
            io.read_exact(&mut byte).await.unwrap();
            io.write_all(&byte).await.unwrap();
        });
        (StatusCode::SWITCHING_PROTOCOLS, [("connection", "upgrade"), ("upgrade", "echo")])
    };
    let router = layered(Router::new().route("/socket", any(echo)), With::Own, &world);
    let text = over_http1(&world, router, async |mut sender| {
        let request = Request::get("/socket").header("connection", "upgrade").header("upgrade", "echo");
        let response = sender.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
        clock.advance(Duration::from_secs(5));
        let mut io = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        let mut byte = [0];
        io.write_all(b"x").await.unwrap();
        io.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"x");
    });
    assert_eq!(text, "GET /socket http=101\n");
}

/// Server-sent events until the client goes away, and a handler that has not answered by then.
#[test]
fn a_request_ends_when_its_client_goes_away() {
    let world = world(|builder| builder);
    let events = async || {
        let first = Ok::<_, Infallible>(Event::default().data("first"));
        Sse::new(tokio_stream::once(first).chain(tokio_stream::pending()))
    };
    let router = Router::new()
        .route("/events", get(events))
        .route("/waits", get(async || pending::<&'static str>().await));
    let router = layered(router, With::Own, &world);
    let clock = world.clock.clone();
    let text = over_http1(&world, router.clone(), async |mut sender| {
        let mut body = send(&mut sender, "GET", "/events", "").await.into_body();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "data: first\n\n");
        clock.advance(Duration::from_secs(5));
    });
    assert_eq!(text, "GET /events 5000 ms http=200\n");
    world.collector.take();
    let clock = world.clock.clone();
    let text = over_http1(&world, router, async |mut sender| {
        tokio::select! {
            biased;
            _ = send(&mut sender, "GET", "/waits", "") => panic!("it never answers"),
            () = async { for _ in 0..16 { tokio::task::yield_now().await } } => {}
        }
        clock.advance(Duration::from_secs(5));
    });
    assert_eq!(text, "GET /waits 5000 ms\n");
}

/// A service that passes another one's body on: all three spans last as long as the body.
#[test]
fn a_proxy_lasts_as_long_as_the_body_it_passes_on() {
    for with in [With::Own, With::TraceLayer] {
        let world = world(|builder| builder);
        let clock = world.clock.clone();
        let upstream = Router::new().route("/stream", get(async move || streaming(&clock)));
        let upstream = layered(upstream, with, &world);
        let inject = InjectLayer::new(world.astracer.propagator()).with_client_span();
        let text = over_http2(&world, upstream, async |sender: Sender2<Body>| {
            let client = inject.layer(service_fn(move |request| {
                let mut sender = sender.clone();
                async move { sender.send_request(request).await }
            }));
            let forward = async move || {
                let request = Request::get("http://upstream:80/stream").body(Body::empty()).unwrap();
                tower::ServiceExt::oneshot(client, request).await.unwrap().map(Body::new)
            };
            let proxy = layered(Router::new().route("/proxy", get(forward)), with, &world);
            let (near, far) = duplex(1 << 16);
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake::<_, Body>(TokioIo::new(near)).await.unwrap();
            let call = async {
                let response = send(&mut sender, "GET", "/proxy", "").await;
                assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "xxxx");
                drop(sender);
            };
            let _ = tokio::join!(serve1(far, proxy), connection, call);
        });
        let expected = "\
GET /proxy 200 ms http=200
  GET 200 ms http=200
    GET /stream 200 ms http=200
      chunk 100 ms
      chunk 100 ms
";
        assert_eq!(text, expected, "{with:?}");
    }
}

/// A codec for messages of plain text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texts;

impl Codec for Texts {
    type Encode = String;
    type Decode = String;
    type Encoder = Texts;
    type Decoder = Texts;

    fn encoder(&mut self) -> Texts {
        Texts
    }

    fn decoder(&mut self) -> Texts {
        Texts
    }
}

impl Encoder for Texts {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put_slice(text.as_bytes());
        Ok(())
    }
}

impl Decoder for Texts {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        Ok(Some(String::from_utf8(bytes.copy_to_bytes(bytes.remaining()).to_vec()).unwrap()))
    }
}

/// Answers with a stream: messages, and an error at its end unless the request says otherwise.
#[derive(Clone)]
struct Orders(ManualClock);

type Messages = std::pin::Pin<Box<dyn Stream<Item = Result<String, Status>> + Send>>;

impl tonic::server::ServerStreamingService<String> for Orders {
    type Response = String;
    type ResponseStream = Messages;
    type Future = std::future::Ready<Result<tonic::Response<Messages>, Status>>;

    fn call(&mut self, request: tonic::Request<String>) -> Self::Future {
        let end = match request.get_ref().as_str() {
            "refused" => return ready(Err(Status::permission_denied("not yours"))),
            "unavailable" => return ready(Err(Status::unavailable("later"))),
            "broken" => Err(Status::data_loss("the rest is gone")),
            _ => Ok("last".to_owned()),
        };
        let items = vec![Ok("first".to_owned()), Ok("second".to_owned()), end];
        ready(Ok(tonic::Response::new(Box::pin(slowly(&self.0, items)))))
    }
}

/// One call of tonic's client over HTTP/2, which reads `messages` of the stream.
fn stream_of_tonic(with: With, kind: &'static str, messages: usize) -> String {
    stream_of_tonic_in(&world(|builder| builder), with, kind, messages)
}

fn stream_of_tonic_in(world: &World, with: With, kind: &'static str, messages: usize) -> String {
    let orders = Orders(world.clock.clone());
    let serve = service_fn(move |request: Request<Body>| {
        let orders = orders.clone();
        async move { Ok::<_, Infallible>(tonic::server::Grpc::new(Texts).server_streaming(orders, request).await) }
    });
    let router = layered(Router::new().route_service("/shop.Orders/{method}", serve), with, world);
    let inject = InjectLayer::new(world.astracer.propagator()).with_client_span();
    over_http2(world, router, async |sender: Sender2<tonic::body::Body>| {
        let client = inject.layer(service_fn(move |request| {
            let mut sender = sender.clone();
            async move { sender.send_request(request).await }
        }));
        let mut client = tonic::client::Grpc::with_origin(client, "http://shop".parse().unwrap());
        client.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static("/shop.Orders/Watch");
        let request = tonic::Request::new(kind.to_owned());
        let Ok(response) = client.server_streaming(request, path, Texts).await else { return };
        let mut stream = response.into_inner();
        for _ in 0..messages {
            if !matches!(stream.message().await, Ok(Some(_))) {
                return;
            }
        }
    })
}

#[test]
fn streams_of_tonic_have_durations_and_statuses() {
    const CHUNKS: &str = "    chunk 100 ms\n    chunk 100 ms\n    chunk 100 ms\n";
    for with in [With::Own, With::TraceLayer] {
        let expected = |client: &str, server: &str, chunks: &str| {
            format!("shop.Orders/Watch{client}\n  shop.Orders/Watch{server}\n{chunks}")
        };
        let (ok, lost) = (" 300 ms http=200 grpc=0", " 300 ms http=200 grpc=15 error 15");
        assert_eq!(stream_of_tonic(with, "complete", 9), expected(ok, ok, CHUNKS), "{with:?}");
        assert_eq!(stream_of_tonic(with, "broken", 9), expected(lost, lost, CHUNKS), "{with:?}");
        // Errors without a message have headers only.
        let (refused, not_failed) = (" http=200 grpc=7 error 7", " http=200 grpc=7");
        assert_eq!(stream_of_tonic(with, "refused", 9), expected(refused, not_failed, ""), "{with:?}");
        let unavailable = " http=200 grpc=14 error 14";
        assert_eq!(
            stream_of_tonic(with, "unavailable", 9),
            expected(unavailable, unavailable, ""),
            "{with:?}"
        );
    }
}

/// Policies keep a slow stream, and one that fails at its end, of which each service is a root.
#[test]
fn streams_are_kept_late() {
    let late = |policies: &str| {
        let tail: Tail = policies.parse().unwrap();
        sampling("never", |builder| builder.with_tail(tail.with_provisional(ProvisionalMode::Always)))
    };
    let kept = |world: &World| -> Vec<(String, String)> {
        let spans = world.exported();
        let requests = spans.iter().filter(|span| span.name != "chunk");
        requests.filter_map(|span| Some((span.name.to_string(), reason(span)?))).collect()
    };
    for with in [With::Own, With::TraceLayer] {
        let world = late("error,slow:200ms");
        let clock = world.clock.clone();
        let stream = async move || {
            clock.advance(POLL);
            streaming(&clock)
        };
        let router = Router::new().route("/stream", get(stream)).route("/text", get(async || "text"));
        let router = layered(router, with, &world);
        over_http1(&world, router, async |mut sender| {
            for path in ["/text", "/stream"] {
                send(&mut sender, "GET", path, "").await.into_body().collect().await.unwrap();
            }
        });
        assert_eq!(kept(&world), [("GET /stream".to_owned(), "slow".to_owned())], "{with:?}");
        for (kind, is_kept) in [("complete", false), ("broken", true), ("unavailable", true)] {
            let world = late("error");
            stream_of_tonic_in(&world, with, kind, 9);
            // The server's and the client's root.
            let expected = ("shop.Orders/Watch".to_owned(), "error".to_owned());
            assert_eq!(kept(&world), vec![expected; if is_kept { 2 } else { 0 }], "{with:?}, {kind}");
        }
    }
}

/// A client that stops reading has cancelled its call.
#[test]
fn a_client_that_stops_reading_cancels_its_call() {
    let text = stream_of_tonic(With::Own, "complete", 1);
    let client = text.lines().next().unwrap_or_default();
    assert!(client.ends_with(" http=200 grpc=1 error 1"), "{text}");
}

/// Trailers pass through the layers on both sides.
#[test]
fn trailers_are_passed_on() {
    let world = world(|builder| builder);
    let router = Router::new().route(
        "/trailers",
        get(async || {
            let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "42".parse().unwrap())]);
            let frames = [Frame::data(Bytes::from_static(b"x")), Frame::trailers(trailers)];
            Body::new(StreamBody::new(tokio_stream::iter(frames.map(Ok::<_, Infallible>))))
        }),
    );
    let router = layered(router, With::Own, &world);
    over_http2(&world, router, async |mut sender: Sender2<Body>| {
        let request = Request::get("http://shop/trailers").body(Body::empty()).unwrap();
        let body = sender.send_request(request).await.unwrap().into_body();
        let collected = body.collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["x-sum"], "42");
        assert_eq!(collected.to_bytes(), "x");
    });
}
