//! Baggage between services: hyper and tonic on both sides, over connections in memory. Both
//! services are of one process, so that one set of flows counts for both.

use std::convert::Infallible;
use std::sync::Arc;

use astracer_baggage::{Applications, FlowStats, Flows, Namespace, Registry, flow};
use astracer_testing::{World, world};
use astracer_tower::{AnswerLayer, CallLayer, RemoteParentLayer, RequestSpanLayer};
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderMap, Request, Response};
use tower::ServiceExt as _;
use tower::util::service_fn;
use tower_layer::Layer as _;
use tracing::{Instrument as _, info_span};

use crate::servers::{Sender2, Texts, over_http1, over_http2};

struct Two {
    world: World,
    flows: Flows,
    notes: Namespace,
}

fn two() -> Two {
    let registry = Registry::default();
    let notes = registry.register("notes", 0).unwrap();
    let flows = Flows::new(Applications::new(&registry));
    let world = world(|builder| builder.with_observer(Arc::new(flows.clone())));
    Two { world, flows, notes }
}

fn add(notes: &Namespace, note: &str) {
    flow::with(|baggage| baggage.add(notes, b"", note.as_bytes())).unwrap();
}

#[track_caller]
fn assert_seen(notes: &Namespace, expected: &[&str]) {
    let text = |note: &[u8]| String::from_utf8(note.to_vec()).unwrap();
    let seen: Vec<String> = flow::with(|baggage| baggage.get(notes, b"").map(text).collect()).unwrap();
    assert_eq!(seen, expected);
}

impl Two {
    /// The service that is called: it notes something, and answers at once, late or never.
    fn router(&self, with_answer: bool) -> Router {
        let notes = self.notes.clone();
        let work = async move || {
            assert_seen(&notes, &["caller"]);
            tokio::task::yield_now().await;
            add(&notes, "callee");
        };
        let remote = RemoteParentLayer::new(self.world.astracer.propagator());
        let (never, broken) = (work.clone(), work.clone());
        let grpc = work.clone();
        let unary = service_fn(move |request: tonic::Request<String>| {
            let work = grpc.clone();
            async move {
                work().await;
                Ok::<_, tonic::Status>(tonic::Response::new(request.into_inner()))
            }
        });
        let serve = service_fn(move |request: Request<Body>| {
            let unary = unary.clone();
            async move { Ok::<_, Infallible>(tonic::server::Grpc::new(Texts).unary(unary, request).await) }
        });
        let router = Router::new()
            .route("/", get(async move || work().await))
            .route(
                "/never",
                get(async move || {
                    never().await;
                    std::future::pending::<()>().await;
                }),
            )
            .route(
                "/broken",
                get(async move || {
                    broken().await;
                    http::StatusCode::INTERNAL_SERVER_ERROR
                }),
            )
            .route_service("/shop.Orders/Get", serve)
            .layer(RequestSpanLayer::default().with_remote_parent(remote));
        if with_answer { router.layer(AnswerLayer::new(self.flows.clone())) } else { router }
    }

    fn calls(&self) -> CallLayer {
        CallLayer::new(self.flows.clone()).with_unnamed_peer()
    }

    /// All flows have ended, and every branch is counted.
    #[track_caller]
    fn stats(&self) -> FlowStats {
        let stats = self.flows.stats();
        assert_eq!((stats.open, stats.unmarked.len()), (0, 0), "{stats:?}");
        let ended = stats.joined + stats.detached + stats.adopted + stats.dropped + stats.joins_outside;
        assert_eq!(stats.branches, ended, "{stats:?}");
        stats
    }
}

/// Calls by hyper over HTTP/1.1, in the root span of the calling service.
fn hyper_calls(two: &Two, with_answer: bool, path: &'static str, expected: &[&str]) {
    let (calls, notes) = (two.calls(), two.notes.clone());
    over_http1(&two.world, two.router(with_answer), async |sender| {
        let work = async {
            add(&notes, "caller");
            let sender = std::sync::Mutex::new(sender);
            let client = calls.layer(service_fn(|request| sender.lock().unwrap().send_request(request)));
            let call = client.oneshot(Request::get(path).body(Body::empty()).unwrap());
            let call = async { drop(call.await.unwrap().into_body()) };
            // A time-out drops the call.
            tokio::select! {
                biased;
                () = call => assert!(path != "/never"),
                () = ticks(100) => assert!(path == "/never"),
            }
            assert_seen(&notes, expected);
        };
        work.instrument(info_span!("caller")).await;
    });
}

async fn ticks(count: u32) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

#[test]
fn hyper_on_both_sides() {
    for path in ["/", "/broken"] {
        let two = two();
        hyper_calls(&two, true, path, &["callee", "caller"]);
        let stats = two.stats();
        assert_eq!((stats.joined, stats.messages.sent, stats.messages.merged), (1, 1, 1), "{path}");
        assert_eq!((stats.messages.received, stats.messages.answered, stats.requests), (1, 1, 1), "{path}");
    }
}

#[test]
fn without_answers_a_call_is_opaque() {
    let two = two();
    hyper_calls(&two, false, "/", &["caller"]);
    let stats = two.stats();
    // Requests that name no peer are counted under the empty name.
    assert_eq!(stats.messages.opaque.into_iter().collect::<Vec<_>>(), [(String::new(), 1)]);
    assert_eq!((stats.joined, stats.detached, stats.messages.received), (0, 1, 1));
}

#[test]
fn a_call_that_times_out_merges_nothing() {
    let two = two();
    hyper_calls(&two, true, "/never", &["caller"]);
    let stats = two.stats();
    assert_eq!((stats.joined, stats.dropped, stats.messages.merged), (0, 1, 0));
    assert!(stats.messages.opaque.is_empty());
}

#[test]
fn a_call_that_fails_merges_nothing() {
    let two = two();
    two.world.inside(|| {
        info_span!("caller").in_scope(|| {
            add(&two.notes, "caller");
            let client = service_fn(|_: Request<()>| std::future::ready(Err::<Response<()>, _>("no route")));
            let call = two.calls().layer(client).oneshot(Request::new(()));
            assert_eq!(crate::servers::run(call).unwrap_err(), "no route");
            assert_seen(&two.notes, &["caller"]);
        });
    });
    assert_eq!(two.stats().dropped, 1);
}

#[test]
fn a_call_in_a_task_that_is_aborted_merges_nothing() {
    let two = two();
    let (calls, notes) = (two.calls(), two.notes.clone());
    two.world.inside(|| {
        crate::servers::run(
            async {
                let client = service_fn(|_: Request<()>| std::future::pending::<Result<Response<()>, ()>>());
                let call = calls.layer(client).oneshot(Request::new(()));
                let task = tokio::spawn(astracer_baggage::BranchExt::branch(call));
                ticks(3).await;
                task.abort();
                assert!(task.await.is_err());
                assert_seen(&notes, &[]);
            }
            .instrument(info_span!("caller")),
        );
    });
    // The task's branch and the call's.
    assert_eq!((two.stats().dropped, two.stats().joined), (2, 0));
}

#[test]
fn tonic_on_both_sides() {
    let two = two();
    let (calls, notes) = (CallLayer::new(two.flows.clone()).with_peer("shop"), two.notes.clone());
    over_http2(&two.world, two.router(true), async |sender: Sender2<tonic::body::Body>| {
        let work = async {
            add(&notes, "caller");
            let client = calls.layer(service_fn(move |request| {
                let mut sender = sender.clone();
                async move { sender.send_request(request).await }
            }));
            let mut client = tonic::client::Grpc::with_origin(client, "http://shop".parse().unwrap());
            client.ready().await.unwrap();
            let path = http::uri::PathAndQuery::from_static("/shop.Orders/Get");
            let response = client.unary(tonic::Request::new("7".to_owned()), path, Texts).await.unwrap();
            assert_eq!(response.into_inner(), "7");
            assert_seen(&notes, &["callee", "caller"]);
        };
        work.instrument(info_span!("caller")).await;
    });
    let stats = two.stats();
    assert_eq!((stats.joined, stats.messages.merged, stats.messages.answered), (1, 1, 1));
}

/// Sends a request by a client that answers with these headers. Returns what left, and what the
/// caller sees of the response.
fn sent(layer: CallLayer, request: Request<()>, answer: HeaderMap) -> [HeaderMap; 2] {
    let mut left = HeaderMap::new();
    let client = layer.layer(service_fn(|request: Request<()>| {
        left.clone_from(request.headers());
        let mut response = Response::new(());
        *response.headers_mut() = answer.clone();
        std::future::ready(Ok::<_, Infallible>(response))
    }));
    let response = crate::servers::run(client.oneshot(request)).unwrap();
    let (parts, ()) = response.into_parts();
    [left, parts.headers]
}

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let parsed =
        |(name, value): &(&'static str, &str)| (http::HeaderName::from_static(name), value.parse().unwrap());
    lines.iter().map(parsed).collect()
}

/// A proxy that passes headers on, and a peer that says what nobody has asked for.
#[test]
fn strangers_get_nothing_and_are_not_believed() {
    let two = two();
    let stranger = CallLayer::new(two.flows.clone()).with_peer("stock:80");
    two.world.inside(|| {
        info_span!("caller").in_scope(|| {
            add(&two.notes, "caller");
            let mut request = Request::get("http://elsewhere/").body(()).unwrap();
            request.headers_mut().extend(headers(&[
                ("baggage", "k=a==, p=50%25,astracer=CgEy"),
                ("astracer-return", "2048"),
                ("host", "stock:80"),
            ]));
            let [left, seen] = sent(stranger.clone(), request, headers(&[("astracer-baggage", "CgEy")]));
            assert_eq!(left, headers(&[("baggage", "k=a==, p=50%25"), ("host", "stock:80")]));
            assert!(seen.is_empty());
            assert_seen(&two.notes, &["caller"]);
            // Without baggage of ours, the header stays as it is, whatever it is.
            let mut request = Request::get("http://elsewhere/").body(()).unwrap();
            let odd = http::HeaderValue::from_bytes(b"k=\xff,,").unwrap();
            request.headers_mut().insert("baggage", odd.clone());
            assert_eq!(sent(stranger.clone(), request, HeaderMap::new())[0]["baggage"], odd);
        });
    });
    let stats = two.stats();
    assert_eq!((stats.messages.unasked, stats.messages.sent, stats.branches), (1, 0, 0));
}

#[test]
fn peers_are_named_as_requests_name_them() {
    let two = two();
    let layer = || CallLayer::new(two.flows.clone());
    let leaves = |layer: CallLayer, uri: &str, host: Option<&str>| {
        let mut request = Request::get(uri).body(()).unwrap();
        if let Some(host) = host {
            request.headers_mut().insert("host", host.parse().unwrap());
        }
        sent(layer, request, HeaderMap::new())[0].contains_key("astracer-return")
    };
    two.world.inside(|| {
        assert!(!leaves(layer().with_any_peer(), "http://stock:80/", None), "outside of a request");
        info_span!("caller").in_scope(|| {
            let stock = || layer().with_peer("Stock:80");
            assert!(leaves(stock(), "http://user@stock:80/", None));
            assert!(leaves(stock(), "/", Some("stock:80")));
            assert!(!leaves(stock(), "http://stock:81/", Some("stock:80")));
            assert!(!leaves(stock(), "/", None));
            assert!(leaves(layer().with_unnamed_peer(), "/", None));
            assert!(!leaves(layer().with_unnamed_peer(), "/", Some("stock:80")));
            assert!(leaves(layer().with_any_peer(), "/", Some("other")));
            assert!(leaves(layer().with_any_peer(), "/", None));
            assert!(!leaves(layer(), "/", None));
        });
    });
    let opaque: Vec<(String, u64)> = two.stats().messages.opaque.into_iter().collect();
    assert_eq!(opaque, [(String::new(), 2), ("other".to_owned(), 1), ("stock:80".to_owned(), 2)]);
}
