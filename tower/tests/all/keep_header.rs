//! Three services that call each other, and report in HTTP headers which traces they kept late.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Ready, pending, poll_fn, ready};
use std::pin::{Pin, pin};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use astracer_sdk::strata::{Record, Strata};
use astracer_sdk::{ParentDecision, Probability, ProvisionalMode, Tail};
use astracer_testing::{SplitMix, TIMEOUT, World, reason, sampling};
use astracer_tower::{
    KEEP_HEADER, KeepBody, KeepCallsLayer, KeepLayer, RemoteParentLayer, RequestSpanBody, RequestSpanLayer,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use opentelemetry::propagation::{Injector, TextMapPropagator as _};
use opentelemetry::{Context, TraceId};
use tower::util::{ServiceFn, service_fn};
use tower_layer::Layer as _;
use tower_service::Service as _;
use tracing::{error, info_span};

/// A service with its own tracing. It calls the next one, if there is one.
struct Node {
    world: World,
    fails: bool,
    /// Calls to the next service per request.
    calls: usize,
    next: Option<(Box<Node>, KeepCallsLayer)>,
}

const PEER: &str = "next.example:8080";

fn node(next: Option<Node>, announces: bool) -> Node {
    let world = sampling("never", |builder| {
        let tail: Tail = "error".parse().unwrap();
        let tail = tail.with_provisional(ProvisionalMode::Always);
        builder.with_tail(tail)
    });
    in_world(world, next, announces)
}

fn in_world(world: World, next: Option<Node>, announces: bool) -> Node {
    let client = KeepCallsLayer::new(world.handle.clone());
    let client = if announces { client.with_peer("other.example").with_peer(PEER) } else { client };
    Node { world, fails: false, calls: 1, next: next.map(|next| (Box::new(next), client)) }
}

struct Headers<'a>(&'a mut http::HeaderMap);

impl Injector for Headers<'_> {
    fn set(&mut self, key: &str, value: String) {
        let name = http::HeaderName::from_bytes(key.as_bytes()).unwrap();
        self.0.insert(name, value.parse().unwrap());
    }
}

fn finish<T>(future: impl Future<Output = Result<T, Infallible>>) -> T {
    match pin!(future).poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => response,
        _ => panic!("no future here waits"),
    }
}

impl Node {
    fn serve(&self, request: Request<()>) -> Response<KeepBody<String>> {
        let remote = RemoteParentLayer::new(self.world.astracer.propagator());
        let keep = KeepLayer::new(self.world.handle.clone(), remote.clone());
        let own = service_fn(|_: Request<()>| {
            self.world.inside(|| self.handle());
            ready(Ok::<_, Infallible>(Response::new(String::new())))
        });
        finish(keep.layer(remote.layer(own)).call(request))
    }

    /// The service's own code.
    fn handle(&self) {
        let _root = info_span!("request").entered();
        for (next, client) in std::iter::repeat_n(self.next.as_ref(), self.calls).flatten() {
            let mut request = to_peer("/");
            let propagator = self.world.astracer.propagator();
            propagator.inject_context(&Context::current(), &mut Headers(request.headers_mut()));
            let wire = service_fn(|request: Request<()>| {
                // Only headers connect the two services.
                let _apart = Context::new().attach();
                ready(Ok::<_, Infallible>(next.serve(request)))
            });
            finish(client.layer(wire).call(request));
        }
        if self.fails {
            error!("failed");
        }
    }

    /// The traces that each service has exported with their reasons, from the first service to the
    /// last.
    fn kept(&self) -> Vec<Vec<(TraceId, String)>> {
        let spans = self.world.exported();
        let own = spans.iter().map(|span| (span.span_context.trace_id(), reason(span).unwrap())).collect();
        let mut kept = vec![own];
        if let Some((next, _)) = &self.next {
            kept.extend(next.kept());
        }
        kept
    }
}

fn to_peer(path: &str) -> Request<()> {
    Request::builder().uri(format!("http://{PEER}{path}")).body(()).unwrap()
}

/// A service whose requests all fail, and its client.
fn failing() -> (Node, KeepCallsLayer) {
    let node = Node { fails: true, ..node(None, false) };
    let client = KeepCallsLayer::new(node.world.handle.clone()).with_peer(PEER);
    (node, client)
}

fn request(trace: u128) -> Request<()> {
    let parent = format!("00-{trace:032x}-00000000000000aa-00");
    Request::builder().header("traceparent", parent).body(()).unwrap()
}

/// The kept parts of one trace in three services.
fn parts(trace: u128, reasons: [&str; 3]) -> Vec<Vec<(TraceId, String)>> {
    reasons.map(|reason| vec![(TraceId::from(trace), reason.to_owned())]).into()
}

#[test]
fn an_error_in_the_third_service_brings_the_parts_of_all_three() {
    let mut last = node(None, true);
    last.fails = true;
    let first = node(Some(node(Some(last), true)), true);
    let answer = first.serve(request(7));
    assert_eq!(first.kept(), parts(7, ["caller", "caller", "error"]));
    assert_eq!(answer.headers()[KEEP_HEADER], format!("{:032x}", 7), "the outermost caller is informed too");
}

/// A retried request: the second service has two parts of it. The response to each of its own calls
/// names the trace for that part.
#[test]
fn each_error_in_the_third_service_brings_its_own_part_of_the_second() {
    let mut last = node(None, true);
    last.fails = true;
    let mut first = node(Some(node(Some(last), true)), true);
    first.calls = 2;
    first.serve(request(7));
    let part = |reason: &str| (TraceId::from(7), reason.to_owned());
    let expected =
        [vec![part("caller")], vec![part("caller"), part("caller")], vec![part("error"), part("error")]];
    assert_eq!(first.kept(), expected);
}

#[test]
fn an_error_in_the_first_service_brings_the_others_parts_with_the_next_request() {
    let mut first = node(Some(node(Some(node(None, true)), true)), true);
    first.fails = true;
    first.serve(request(7));
    assert_eq!(first.kept(), [vec![(TraceId::from(7), "error".to_owned())], vec![], vec![]]);
    first.fails = false;
    // This request names the trace to the second service, which names it to the third while it
    // serves.
    first.serve(request(8));
    assert_eq!(first.kept(), parts(7, ["error", "caller", "caller"]));
    // A trace is named to a peer once.
    first.serve(request(9));
    assert_eq!(first.kept(), parts(7, ["error", "caller", "caller"]));
}

#[test]
fn traces_are_announced_only_to_peers() {
    let mut last = node(None, false);
    last.fails = true;
    let first = node(Some(node(Some(last), false)), false);
    first.serve(request(7));
    first.serve(request(8));
    let kept: Vec<usize> = first.kept().iter().map(Vec::len).collect();
    assert_eq!(kept, [0, 0, 2]);
}

/// A service below [`RequestSpanLayer`], whose spans end with the response's body.
fn with_request_span<B>(
    node: &Node,
    request: Request<()>,
    response: Response<B>,
) -> Response<KeepBody<RequestSpanBody<B>>>
where
    B: Body,
    B::Error: std::fmt::Display,
{
    let remote = RemoteParentLayer::new(node.world.astracer.propagator());
    let keep = KeepLayer::new(node.world.handle.clone(), remote.clone());
    let mut response = Some(response);
    let own = service_fn(move |_: Request<()>| ready(Ok(response.take().unwrap())));
    let spans = RequestSpanLayer::default().with_remote_parent(remote);
    node.world.inside(|| finish(keep.layer(spans.layer(own)).call(request)))
}

/// A body that is complete in memory ends the request's span before the headers are sent, and is
/// passed on whole.
#[test]
fn a_body_in_memory_is_announced_in_the_headers() {
    let node = node(None, false);
    for (status, is_kept) in [(200, false), (500, true)] {
        for body in ["", "sorry"] {
            let own = Response::builder().status(status).body(body.to_owned()).unwrap();
            let response = with_request_span(&node, request(7), own);
            assert_eq!(response.headers().contains_key(KEEP_HEADER), is_kept, "{status}");
            assert_eq!(response.body().size_hint().exact(), Some(body.len() as u64));
            assert_eq!(response.body().is_end_stream(), body.is_empty());
            let collected = node.world.inside(|| finish(response.into_body().collect()));
            assert_eq!(collected.to_bytes(), body);
        }
    }
}

/// A stream's error is in its trailers, and so is the announcement of the trace. The caller reads
/// it there and keeps its own part.
#[test]
fn a_stream_is_announced_in_its_trailers() {
    for (code, is_kept) in [("0", false), ("13", true)] {
        let (caller, callee) = (node(None, true), node(None, false));
        let trailers = http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), code.parse().unwrap())]);
        let body = || {
            let trailers = ready(Some(Ok(trailers.clone())));
            Full::new(Bytes::from_static(b"message")).with_trailers(trailers)
        };
        let wire = service_fn(|mut request: Request<()>| {
            let _apart = Context::new().attach();
            request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
            ready(Ok::<_, Infallible>(with_request_span(&callee, request, Response::new(body()))))
        });
        let client = KeepCallsLayer::new(caller.world.handle.clone()).with_peer(PEER).layer(wire);
        caller.world.inside(|| {
            let root = info_span!("request").entered();
            let mut call = to_peer("/shop.Orders/Find");
            let propagator = caller.world.astracer.propagator();
            propagator.inject_context(&Context::current(), &mut Headers(call.headers_mut()));
            let response = finish({ client }.call(call));
            assert!(!response.headers().contains_key(KEEP_HEADER), "the stream has not ended yet");
            let collected = finish(response.into_body().collect());
            assert_eq!(collected.trailers().unwrap().contains_key(KEEP_HEADER), is_kept, "{code}");
            assert_eq!(collected.to_bytes(), "message");
            drop(root);
        });
        let names = |node: &Node| node.world.exported().iter().map(|span| span.name.to_string()).collect();
        let kept: [Vec<String>; 2] = [names(&caller), names(&callee)];
        let expected = if is_kept { [vec!["request"], vec!["shop.Orders/Find"]] } else { [vec![], vec![]] };
        assert_eq!(
            kept.each_ref().map(|names| names.iter().map(String::as_str).collect::<Vec<_>>()),
            expected
        );
    }
}

/// Made-up ids cost a bounded number of look-ups and are counted, and a trace is exported once.
#[test]
fn a_storm_of_headers_is_bounded_and_counted() {
    let node = node(None, false);
    node.serve(request(7));
    let with = |ids: &str| {
        let mut request = request(8);
        request.headers_mut().insert(KEEP_HEADER, ids.parse().unwrap());
        node.serve(request);
    };
    let seven = format!("{:032x}", 7);
    with(&format!("x,{seven},{seven},0,,{}", "f".repeat(33)));
    (0..50).for_each(|_| with(&seven));
    let made_up: Vec<String> = (100..1_100_u128).map(|id| format!("{id:032x}")).collect();
    (0..20).for_each(|_| with(&made_up.join(",")));
    assert_eq!(node.kept(), [[(TraceId::from(7), "caller".to_owned())]]);
    let stats = node.world.handle.stats().tail;
    assert_eq!((stats.kept_by_caller, stats.not_there), (1, 49));
    // 4 entries are not ids. 20 lists have 984 entries beyond the first 16. Of the remaining 372
    // ids, one was held, and 100 others were looked up in this second.
    assert_eq!(stats.refused_callers, 4 + 20 * 984 + (52 + 320 - 1 - 100));
}

/// As in HTTP, several header lines form one list. Each of them is counted.
#[test]
fn several_lines_are_one_list() {
    let node = node(None, false);
    (1..=3).for_each(|number| drop(node.serve(request(number))));
    let mut asking = request(8);
    for number in [1_u128, 2] {
        asking.headers_mut().append(KEEP_HEADER, format!("{number:032x}").parse().unwrap());
    }
    let no_text = http::HeaderValue::from_bytes(b"\xff").unwrap();
    asking.headers_mut().append(KEEP_HEADER, no_text);
    let made_up: Vec<String> = (100..120_u128).map(|id| format!("{id:032x}")).collect();
    asking.headers_mut().append(KEEP_HEADER, made_up.join(",").parse().unwrap());
    node.serve(asking);
    let stats = node.world.handle.stats().tail;
    assert_eq!((stats.kept_by_caller, stats.not_there, stats.refused_callers), (2, 13, 1 + 7));
}

/// A peer without a response may not have received the request, so each request names the trace
/// again until one gets a response.
#[test]
fn an_announcement_without_a_response_is_repeated() {
    let (node, client) = failing();
    node.serve(request(7));
    // The connection breaks during the first request, and never responds to the second.
    type Answer = Pin<Box<dyn Future<Output = Result<Response<String>, &'static str>>>>;
    let seen = RefCell::new(Vec::new());
    let broken = service_fn(|request: Request<()>| -> Answer {
        seen.borrow_mut().push(request.headers().get(KEEP_HEADER).cloned());
        match seen.borrow().len() {
            1 => Box::pin(ready(Err("refused"))),
            2 => Box::pin(pending()),
            _ => Box::pin(ready(Ok(Response::new(String::new())))),
        }
    });
    for is_answered in [true, false, true, true] {
        let mut call = pin!(client.layer(broken).call(to_peer("/")));
        assert_eq!(call.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())).is_ready(), is_answered);
    }
    let seven = Some(format!("{:032x}", 7).parse().unwrap());
    assert_eq!(*seen.borrow(), [seven.clone(), seven.clone(), seven, None]);
}

/// Several kept parts of one trace count as one trace.
#[test]
fn an_unannounced_trace_of_several_parts_counts_once() {
    let (node, client) = failing();
    let seen = RefCell::default();
    let call = || client.layer(wire(&seen)).call(to_peer("/"));
    (0..2).for_each(|_| drop(node.serve(request(7))));
    let first = call();
    node.serve(request(8));
    assert!(is_answered(call()));
    drop(first);
    let unannounced = || node.world.handle.stats().tail.unannounced;
    assert_eq!(unannounced(), 1, "7");
    // The next request has space for 16, the one after it for the rest.
    (0..2).for_each(|_| drop(node.serve(request(9))));
    (100..116).for_each(|trace| {
        node.world.clock.advance(Duration::from_secs(1));
        node.serve(request(trace));
    });
    assert!(is_answered(call()));
    assert!(is_answered(call()));
    assert_eq!((unannounced(), client.waiting(PEER)), (1, 0));
    assert_eq!(seen.borrow().iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 16, 1]);
}

/// A client that makes no calls announces all the same, as soon as its pause ends, and again if the
/// peer did not answer.
#[test]
fn traces_are_announced_without_calls() {
    let (node, client) = failing();
    let announced = RefCell::new(Vec::new());
    let (calls, pauses) = (Cell::new(0), Cell::new(0));
    let peer = service_fn(|request: Request<()>| {
        calls.set(calls.get() + 1);
        let ids = request.headers()[KEEP_HEADER].to_str().unwrap().split(',').count();
        let is_lost = calls.get() == 1;
        if !is_lost {
            announced.borrow_mut().push(ids);
        }
        ready(if is_lost { Err("no answer") } else { Ok(Response::new(String::new())) })
    });
    let pause = || {
        pauses.set(pauses.get() + 1);
        // The first pause has nothing to announce, and the fifth does not end.
        if pauses.get() == 2 {
            (1..=20).for_each(|trace| {
                node.world.clock.advance(Duration::from_secs(1));
                node.serve(request(trace));
            });
        }
        let ends = pauses.get() < 5;
        poll_fn(move |_| if ends { Poll::Ready(()) } else { Poll::Pending })
    };
    let mut announcing = pin!(client.announce_to(PEER, peer, || to_peer("/"), pause));
    assert!(announcing.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())).is_pending());
    assert_eq!((calls.get(), &*announced.borrow()), (3, &vec![16, 4]));
    assert_eq!(node.world.handle.stats().tail.unannounced, 0);
}

/// Traces that wait when the service stops are sent at once, until a request fails. The shutdown
/// counts the rest.
#[test]
fn traces_that_wait_are_announced_at_the_end() {
    for (fails_at, sent, unannounced) in [(9, &[16, 16, 8][..], 0), (2, &[16, 16], 24), (1, &[16], 40)] {
        let (node, client) = failing();
        (1..=40).for_each(|trace| {
            node.world.clock.advance(Duration::from_secs(1));
            node.serve(request(trace));
        });
        let seen = RefCell::default();
        let calls = Cell::new(0);
        let request = || {
            calls.set(calls.get() + 1);
            to_peer(if calls.get() == fails_at { "/fails" } else { "/" })
        };
        let announced = pin!(client.announce_waiting(PEER, wire(&seen), request));
        assert!(announced.poll(&mut TaskContext::from_waker(Waker::noop())).is_ready());
        let lengths: Vec<usize> = seen.borrow().iter().map(Vec::len).collect();
        assert_eq!((&*lengths, node.world.handle.stats().tail.unannounced), (sent, 0));
        node.world.handle.shutdown(TIMEOUT).unwrap();
        assert_eq!(node.world.handle.stats().tail.unannounced, unannounced);
    }
}

/// A request to another peer announces nothing, however often it is sent.
#[test]
fn a_request_that_names_another_peer_is_sent_once() {
    let (node, client) = failing();
    node.serve(request(7));
    let seen = RefCell::default();
    let other = || Request::builder().uri("http://other.example/").body(()).unwrap();
    let announced = pin!(client.announce_waiting(PEER, wire(&seen), other));
    assert!(announced.poll(&mut TaskContext::from_waker(Waker::noop())).is_ready());
    assert_eq!((&*seen.borrow(), client.waiting(PEER)), (&vec![Vec::new()], 1));
}

/// Host names are case-insensitive, and a URI may contain a user name.
#[test]
fn a_peer_is_known_however_its_name_is_written() {
    for peer in [PEER, "Next.Example:8080"] {
        let (node, _) = failing();
        let client = KeepCallsLayer::new(node.world.handle.clone()).with_peer(peer);
        for (trace, (uri, host)) in (1..).zip([
            ("http://next.example:8080/", ""),
            ("http://NEXT.example:8080/", ""),
            ("http://ann:secret@Next.Example:8080/", ""),
            ("/", "NEXT.EXAMPLE:8080"),
        ]) {
            node.serve(request(trace));
            let seen = RefCell::default();
            let call = Request::builder().uri(uri).header(http::header::HOST, host).body(()).unwrap();
            assert_eq!((client.waiting("NEXT.example:8080"), client.waiting("other")), (1, 0));
            assert!(is_answered(client.layer(wire(&seen)).call(call)));
            assert_eq!(client.waiting(peer), 0);
            assert_eq!(*seen.borrow(), [[format!("{trace:032x}")]], "{peer}, {uri}, {host}");
        }
    }
}

type Answered = Ready<Result<Response<String>, &'static str>>;

/// A connection that responds or fails, by the path, and notes the ids in each request.
fn wire(seen: &RefCell<Vec<Vec<String>>>) -> ServiceFn<impl FnMut(Request<()>) -> Answered> {
    service_fn(|request: Request<()>| {
        let ids = request.headers().get(KEEP_HEADER).map(|ids| ids.to_str().unwrap());
        seen.borrow_mut().push(ids.into_iter().flat_map(|ids| ids.split(',')).map(str::to_owned).collect());
        ready(if request.uri().path() == "/fails" {
            Err("refused")
        } else {
            Ok(Response::new(String::new()))
        })
    })
}

fn is_answered<B>(call: impl Future<Output = Result<Response<B>, &'static str>>) -> bool {
    let polled = pin!(call).poll(&mut TaskContext::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Ok(_)))
}

/// Overlapping requests, some of them without a response. Each kept trace is named in a request
/// that gets one, or counted in `unannounced`: in every second round, also those that wait at the
/// shutdown, when requests may be under way.
#[test]
fn unannounced_traces_are_counted() {
    for seed in 0..100_u64 {
        let (node, client) = failing();
        let mut random = SplitMix::new(seed);
        let mut below = |end: u64| random.below(end);
        let (seen, mut open, mut announced, mut kept) = (RefCell::default(), Vec::new(), Vec::new(), 0_u64);
        let call = |path: &str| {
            let call = client.layer(wire(&seen)).call(to_peer(path));
            (call, seen.borrow_mut().pop().unwrap())
        };
        for _ in 0..60 {
            match below(6) {
                0 | 1 => (0..below(30)).for_each(|_| {
                    kept += 1;
                    node.world.clock.advance(Duration::from_secs(1));
                    node.serve(request(kept.into()));
                }),
                2 | 3 => open.push(call(if below(4) == 0 { "/fails" } else { "/" })),
                _ if open.is_empty() => {}
                // The request has its outcome, or its caller has stopped waiting.
                end => {
                    let (call, ids) = open.swap_remove(below(open.len() as u64) as usize);
                    if end == 4 && is_answered(call) {
                        announced.extend(ids);
                    }
                }
            }
        }
        if seed % 2 == 1 {
            node.world.handle.shutdown(TIMEOUT).unwrap();
            assert_eq!((client.waiting(PEER), &*call("/").1), (0, &[][..]), "seed {seed}");
        }
        while !open.is_empty() {
            let (call, ids) = open.swap_remove(below(open.len() as u64) as usize);
            if is_answered(call) {
                announced.extend(ids);
            }
        }
        while client.waiting(PEER) > 0 {
            let (call, ids) = call("/");
            assert!(is_answered(call));
            announced.extend(ids);
        }
        let (all, unannounced) = (announced.len() as u64, node.world.handle.stats().tail.unannounced);
        announced.sort_unstable();
        announced.dedup();
        assert_eq!(
            (announced.len() as u64, announced.len() as u64 + unannounced),
            (all, kept),
            "seed {seed}"
        );
    }
}

/// The process with the root decides by stratum. The others hold their parts until they learn what
/// was kept, and give them the weight of the whole trace: with the same strata, or with policies
/// that record everything.
#[test]
fn all_parts_of_a_trace_that_a_stratum_keeps_have_its_weight() {
    let quarter = Probability::new(0.25).unwrap();
    let strata = Strata::new(quarter).unwrap().with_record(Record::Times(5.0)).unwrap();
    let strata = strata.with_probability("request", "-1".parse().unwrap(), quarter);
    let with_strata = || sampling("ratio:0.1", |builder| builder.with_strata(strata.clone()));
    for others_have_strata in [true, false] {
        let other = |next| match others_have_strata {
            true => in_world(with_strata(), next, true),
            false => node(next, true),
        };
        let first = in_world(with_strata(), Some(other(Some(other(None)))), true);
        // The last two requests bring what is left to the others.
        for _ in 0..402 {
            first.serve(Request::new(()));
        }
        let states = |node: &Node| -> HashMap<TraceId, String> {
            let spans = node.world.exported();
            spans
                .iter()
                .map(|span| &span.span_context)
                .map(|it| (it.trace_id(), it.trace_state().header()))
                .collect()
        };
        let (second, _) = first.next.as_ref().unwrap();
        let (third, _) = second.next.as_ref().unwrap();
        let recorded = second.world.handle.stats().spans_made;
        let [all, second, third] = [&first, second, third].map(states);
        // A half is recorded, and of that a half kept.
        assert!(all.len().abs_diff(100) <= 20, "{}", all.len());
        assert!(all.values().all(|state| state.starts_with("ot=th:c")), "{all:?}");
        for parts in [second, third] {
            assert!(all.len() - parts.len() <= 2, "{} of {}", parts.len(), all.len());
            assert!(parts.iter().all(|(trace_id, state)| all.get(trace_id) == Some(state)), "{parts:?}");
        }
        // With strata, others record only what the first process records.
        let expected = if others_have_strata { 201 } else { 402 };
        assert!(recorded.abs_diff(expected) <= 40, "{recorded}");
    }
}

/// A process that does not trust its callers records nothing because they say so.
#[test]
fn a_process_that_bounds_its_callers_does_not_record_for_them() {
    for (parents, states) in [
        (ParentDecision::Respect, ["astracer=recorded", "astracer=else"]),
        (ParentDecision::RespectWithinCap, ["", "astracer=recorded"]),
    ] {
        let world = sampling("ratio:0.1", |builder| {
            let strata = Strata::new(Probability::new(0.25).unwrap()).unwrap();
            builder.with_strata(strata).with_parent_decision(parents)
        });
        let node = in_world(world, None, false);
        let held = states.map(|state| {
            let before = node.world.handle.stats().tail.traces_held;
            for trace in 1..=300 {
                let mut request = request(trace << 8 | state.len() as u128);
                request.headers_mut().insert("tracestate", state.parse().unwrap());
                node.serve(request);
            }
            node.world.handle.stats().tail.traces_held - before
        });
        // A share of all, and the first ones of each key, are recorded for policies.
        let is_recorded = held.map(|held| held > 200);
        assert_eq!(is_recorded, [parents == ParentDecision::Respect, false], "{held:?}");
    }
}
