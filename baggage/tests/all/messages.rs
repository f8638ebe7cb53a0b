//! Flows between processes: what leaves in a request, what comes back, and what is refused.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use astracer_baggage::{
    ANSWER_HEADER, Application, Applications, BAGGAGE_HEADER, Calling, Flow, Flows, MessageStats, Namespace,
    RETURN_HEADER, Registry, View, flow,
};
use astracer_sdk::{Builder, ParentDecision};
use astracer_testing::{World, world};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use tracing::info_span;

use crate::service::{Notes, Service, service, service_with};

/// Headers, of which one name may have several lines.
#[derive(Clone, Debug, Default)]
struct Headers(Vec<(String, String)>);

impl Headers {
    fn of(lines: &[(&str, &str)]) -> Self {
        Headers(lines.iter().map(|(name, line)| ((*name).to_owned(), (*line).to_owned())).collect())
    }
}

impl Extractor for Headers {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, line)| line.as_str())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn get_all(&self, key: &str) -> Option<Vec<&str>> {
        let lines = self.0.iter().filter(|(name, _)| name == key).map(|(_, line)| line.as_str());
        Some(lines.collect())
    }
}

/// Sends the current flow's baggage beside these members. Returns the call and its headers.
fn call(present: &str) -> (Flow, Headers) {
    let flow = Flow::branch().unwrap();
    let list = flow.list(std::iter::once(present.as_bytes()).filter(|list| !list.is_empty()));
    let asked = flow.asked().to_string();
    (flow, Headers::of(&[(BAGGAGE_HEADER, std::str::from_utf8(&list).unwrap()), (RETURN_HEADER, &asked)]))
}

/// Handles a request. Returns the answer, if one was asked for.
fn serve(service: &Service, headers: &Headers, work: impl FnOnce()) -> Option<String> {
    service.world.inside(|| {
        let flow = Flow::extract(&service.flows, headers);
        let handle = || info_span!(parent: None, "request").in_scope(work);
        let Some(flow) = flow else {
            handle();
            return None;
        };
        flow.run(handle);
        Some(flow.answer(headers.get(RETURN_HEADER)?.parse().ok()?))
    })
}

fn messages(service: &Service) -> MessageStats {
    service.stats().messages
}

#[test]
fn a_call_brings_back_what_the_callee_has_noted() {
    let (caller, callee) = (service(), service());
    caller.world.inside(|| {
        info_span!("root").in_scope(|| {
            caller.notes.add("caller");
            let (flow, headers) = call("");
            let answer = serve(&callee, &headers, || {
                assert_eq!(callee.notes.seen(), ["caller"]);
                callee.notes.add("callee");
            });
            caller.notes.add("meanwhile");
            flow.merge_answer(&answer.unwrap());
            assert_eq!(caller.notes.seen(), ["callee", "caller", "meanwhile"]);
        });
    });
    assert_eq!((messages(&caller).sent, messages(&caller).merged), (1, 1));
    assert_eq!((messages(&callee).received, messages(&callee).answered), (1, 1));
    caller.check_sums();
    callee.check_sums();
}

#[test]
fn a_call_without_an_answer_merges_nothing() {
    let service = service();
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            service.notes.add("before");
            // The peer did not answer, the call failed, and two answers cannot be read.
            call("").0.end_opaque("stock:80");
            drop(call("").0);
            call("").0.merge_answer("%");
            call("").0.merge_answer(&"A".repeat(2_800));
            assert_eq!(service.notes.seen(), ["before"]);
        });
    });
    let stats = messages(&service);
    assert_eq!((stats.sent, stats.merged, stats.malformed, stats.too_large), (4, 0, 1, 1));
    assert_eq!(stats.opaque.into_iter().collect::<Vec<_>>(), [("stock:80".to_owned(), 1)]);
    assert_eq!((service.stats().dropped, service.stats().detached), (3, 1));
    service.check_sums();
}

/// The namespace is a local one in one process, and arrives from another that does not know that.
#[test]
fn a_local_namespace_neither_leaves_nor_arrives() {
    let registry = Registry::default();
    let (own, shared) = (registry.register_local("own", 0).unwrap(), registry.register("shared", 0).unwrap());
    let flows = Flows::new(Applications::new(&registry));
    let home = world(|builder| builder.with_observer(Arc::new(flows.clone())));
    let add = |namespace: &Namespace| flow::with(|baggage| baggage.add(namespace, b"", b"x")).unwrap();
    home.inside(|| {
        info_span!("root").in_scope(|| {
            add(&own);
            add(&shared);
            let (_flow, headers) = call("");
            let elsewhere = Registry::default();
            let foreign = elsewhere.register("own", 0).unwrap();
            let others = Flows::new(Applications::new(&elsewhere));
            let flow = Flow::extract(&others, &headers).unwrap();
            flow.run(|| {
                flow::with(|baggage| {
                    assert!(baggage.namespaces().eq([b"shared"]));
                    baggage.add(&foreign, b"", b"stolen");
                })
                .unwrap();
            });
            let (call, _) = call("");
            call.merge_answer(&flow.answer(2048));
            let seen = |namespace: &Namespace| {
                flow::with(|baggage| baggage.get(namespace, b"").map(<[u8]>::to_vec).collect::<Vec<_>>())
                    .unwrap()
            };
            assert_eq!((seen(&own), seen(&shared)), (vec![b"x".to_vec()], vec![b"x".to_vec()]));
        });
    });
    assert_eq!(flows.stats().losses.refused, 1);
}

#[test]
fn members_that_came_leave_as_they_came() {
    let service = service();
    let propagator = service.world.astracer.propagator();
    let received = "k=a==,p=50%25,userId=Am%C3%A9lie;x";
    let headers = HashMap::from([(BAGGAGE_HEADER.to_owned(), received.to_owned())]);
    let context = propagator.extract_with_context(&Context::new(), &headers);
    service.world.inside(|| {
        let _context = context.attach();
        info_span!("root").in_scope(|| {
            flow::set("userId", "Zoë").unwrap();
            flow::set("not a token", "x").unwrap();
            service.notes.add("n");
            let mut sent = HashMap::<String, String>::new();
            Flow::branch().unwrap().inject(&mut sent);
            let list = &sent[BAGGAGE_HEADER];
            assert!(list.starts_with("k=a==,p=50%25,userId=Zo%C3%AB,astracer="), "{list}");
        });
    });
    assert_eq!(messages(&service).members_cut, 1);
}

/// The SDK's own extraction, without a layer.
#[test]
fn the_sdks_extraction_brings_baggage_in() {
    for sampler in ["always", "never"] {
        let seen = Arc::<std::sync::Mutex<Vec<&'static str>>>::default();
        let caller = service();
        let mut headers = Headers::default();
        caller.world.inside(|| {
            info_span!("root").in_scope(|| {
                caller.notes.add("caller");
                headers = call("k=v").1;
            });
        });
        let callee = service_with(
            |builder| builder.with_sampler(sampler.parse().unwrap()),
            |all, registry| {
                let own = registry.register("arrivals", 0).unwrap();
                all.with([own], Arrivals(seen.clone()))
            },
        );
        let context = callee.world.astracer.propagator().extract_with_context(&Context::new(), &headers);
        callee.world.inside(|| {
            let _context = context.attach();
            info_span!("request").in_scope(|| {
                assert_eq!(callee.notes.seen(), ["caller"]);
                // It goes on to the next process as it is.
                assert_eq!(call("k=v").1.0, headers.0);
            });
        });
        assert_eq!(*seen.lock().unwrap(), ["arrived", "begin"]);
        assert_eq!(messages(&callee).received, 1);
        callee.check_sums();
    }
}

struct Arrivals(Arc<std::sync::Mutex<Vec<&'static str>>>);

impl Application for Arrivals {
    fn post_deserialize(&self, _: &mut View<'_>) {
        self.0.lock().unwrap().push("arrived");
    }

    fn begin(&self, _: &mut View<'_>) {
        self.0.lock().unwrap().push("begin");
    }
}

/// By both ways: with a layer's extraction, and with the SDK's.
#[test]
fn baggage_is_refused_where_the_callers_decision_is() {
    let caller = service();
    let mut headers = Headers::default();
    caller.world.inside(|| {
        info_span!("root").in_scope(|| {
            caller.notes.add("secret");
            headers = call("").1;
        });
    });
    let decides = |builder: Builder| builder.with_parent_decision(ParentDecision::Ignore);
    for trusts in [false, true] {
        let registry = Registry::default();
        let notes = Notes(registry.register("notes", 0).unwrap());
        let flows = Flows::new(Applications::new(&registry));
        let flows = if trusts { flows.with_any_caller() } else { flows };
        let world = world(|builder| decides(builder).with_observer(Arc::new(flows.clone())));
        let callee = Service { world, flows, notes };
        let expected: &[&str] = if trusts { &["secret"] } else { &[] };
        let answer = serve(&callee, &headers, || assert_eq!(callee.notes.seen(), expected));
        assert_eq!(answer.is_some(), trusts);
        let context = callee.world.astracer.propagator().extract_with_context(&Context::new(), &headers);
        callee.world.inside(|| {
            let _context = context.attach();
            info_span!("request").in_scope(|| assert_eq!(callee.notes.seen(), expected));
        });
        let stats = messages(&callee);
        assert_eq!((stats.received, stats.refused_callers), if trusts { (2, 0) } else { (0, 2) });
    }
}

#[test]
fn hostile_headers_are_counted_and_bounded() {
    let service = service();
    let long = "x".repeat(1 << 20);
    let many = vec!["k=v"; 100_000].join(",");
    let valid = "CgwKBW5vdGVzEgMKABIA";
    let twice = format!("astracer={valid},astracer={valid}");
    for (lines, malformed) in [
        (vec![long.clone()], 0),
        (vec![format!("astracer={long}")], 0),
        (vec![many.clone()], 0),
        (vec![format!("{many},astracer={valid}")], 0),
        (vec!["astracer=*".to_owned()], 1),
        (vec!["astracer=CgwK".to_owned()], 1),
        (vec![twice], 1),
        (vec![format!("astracer={valid}"), format!("astracer={valid}")], 1),
        (vec!["astracer".to_owned()], 0),
        (vec![",,=,;=,".to_owned()], 0),
    ] {
        let before = messages(&service).malformed;
        let lines: Vec<_> = lines.iter().map(|line| (BAGGAGE_HEADER, line.as_str())).collect();
        serve(&service, &Headers::of(&lines), || assert!(service.notes.seen().is_empty()));
        assert_eq!(messages(&service).malformed - before, malformed, "{:.40}", lines[0].1);
        // Nor do others' members leave beyond the limits.
        service.world.inside(|| {
            info_span!("root").in_scope(|| {
                let list = Flow::branch().unwrap().list(lines.iter().map(|(_, line)| line.as_bytes()));
                assert!(list.len() <= 8192 && list.split(|byte| *byte == b',').count() <= 64);
            });
        });
    }
    // A caller that asks for more than there may be, and one whose number is none.
    for (asked, length) in [("99999999", 0), ("18446744073709551616", 0), ("-1", 0)] {
        let headers = Headers::of(&[(RETURN_HEADER, asked)]);
        let answer = serve(&service, &headers, || ()).unwrap_or_default();
        assert_eq!(answer.len(), length);
    }
    service.check_sums();
}

/// The caller bounds the answer, whatever the callee has.
#[test]
fn answers_fit_what_was_asked_for() {
    let service = service();
    for asked in [0, 64, 500, 1 << 20] {
        let headers = Headers::of(&[(RETURN_HEADER, &asked.to_string())]);
        let answer = serve(&service, &headers, || {
            (0..200).for_each(|number| service.notes.add(&format!("note {number}")));
        });
        let bytes = answer.unwrap().len() / 4 * 3;
        assert!(bytes <= asked.min(2048), "{bytes} of {asked}");
    }
}

/// A calls B and B calls A, again and again, and each answers. Notes are a set, so the baggage is
/// the same after each round.
#[test]
fn two_services_in_a_circle_do_not_grow_their_baggage() {
    let (one, other) = (service(), service());
    let mut headers = Headers::of(&[(BAGGAGE_HEADER, "k=v"), (RETURN_HEADER, "2048")]);
    let (mut sizes, mut answers) = (Vec::new(), Vec::new());
    for round in 0..10_000 {
        let (service, name) = if round % 2 == 0 { (&one, "one") } else { (&other, "other") };
        let answer = serve(service, &headers.clone(), || {
            service.notes.add(name);
            let (flow, next) = call("k=v");
            headers = next;
            flow.merge_answer(answers.last().map_or("", |answer: &String| answer));
            assert!(service.notes.seen().len() <= 2);
        });
        answers = vec![answer.unwrap()];
        sizes.push((headers.0[0].1.len(), answers[0].len()));
    }
    assert!(sizes[4..].iter().all(|size| *size == sizes[4]), "{:?}", &sizes[..8]);
    one.check_sums();
    other.check_sums();
}

/// Panics in each handler that a message calls: the namespaces go, and the request goes on.
#[test]
fn panics_of_handlers_are_counted() {
    struct Panics(&'static str);
    impl Application for Panics {
        fn pre_split(&self, _: &mut View<'_>) {
            assert!(self.0 != "pre_split");
        }
        fn post_split(&self, _: &mut View<'_>, _: &mut View<'_>) {
            assert!(self.0 != "post_split");
        }
        fn pre_serialize(&self, _: &mut View<'_>) {
            assert!(self.0 != "pre_serialize");
        }
        fn post_deserialize(&self, _: &mut View<'_>) {
            assert!(self.0 != "post_deserialize");
        }
        fn pre_merge(&self, _: &mut View<'_>, _: &mut View<'_>) {
            assert!(self.0 != "pre_merge");
        }
        fn post_merge(&self, _: &mut View<'_>) {
            assert!(self.0 != "post_merge");
        }
        fn begin(&self, _: &mut View<'_>) {
            assert!(self.0 != "begin");
        }
        fn end(&self, _: &mut View<'_>) {
            assert!(self.0 != "end");
        }
    }
    for hook in [
        "pre_split",
        "post_split",
        "pre_serialize",
        "post_deserialize",
        "pre_merge",
        "post_merge",
        "begin",
        "end",
    ] {
        let service = service_with(
            |builder| builder,
            |all, registry| all.with([registry.register("panics", 0).unwrap()], Panics(hook)),
        );
        service.world.inside(|| {
            info_span!("root").in_scope(|| {
                service.notes.add("kept");
                let (flow, headers) = call("");
                let answer = serve(&service, &headers, || assert_eq!(service.notes.seen(), ["kept"]));
                flow.merge_answer(&answer.unwrap());
                assert_eq!(service.notes.seen(), ["kept"]);
            });
        });
        assert!(service.stats().losses.panics > 0, "{hook}");
        service.check_sums();
    }
}

/// Time that runs backwards adds nothing to sums.
#[test]
fn the_clock_may_step_back() {
    let registry = Registry::default();
    let flows = Flows::new(Applications::new(&registry).with_tenants("tenant.id").with_x_trace());
    let world = world(|builder| builder.with_observer(Arc::new(flows.clone())));
    step_back(&world);
    let rows = flows.tenants().rows;
    assert_eq!((rows.len(), rows[0].calls), (1, 1));
    assert_eq!((rows[0].wall_ns, rows[0].on_thread_ns, rows[0].waiting_ns), (0, 0, 0));
}

fn step_back(world: &World) {
    world.clock.advance(Duration::from_millis(10));
    world.inside(|| {
        let root = info_span!("root");
        root.in_scope(|| world.clock.set_back(Duration::from_millis(5)));
        drop(root);
    });
}

#[test]
fn outside_of_requests_nothing_is_sent() {
    let service = service();
    service.world.inside(|| assert!(Flow::branch().is_none()));
    assert_eq!(ANSWER_HEADER, "astracer-baggage");
    let headers = Headers::of(&[(BAGGAGE_HEADER, "k=v")]);
    assert!(Flow::extract(&service.flows, &headers).is_none());
}

/// Python's SDK in the middle, 1.45.2: it encodes others' members anew, and passes ours on, as long
/// as 3,000 bytes are.
#[test]
fn pythons_sdk_passes_our_member_on() {
    let text = include_str!("../data/python.json");
    let recorded: HashMap<String, String> = serde_json::from_str(text).unwrap();
    assert!(recorded["passed"].starts_with("k=a%3D%3D,p=50%25,tenant.id=acme,astracer="));
    for hop in ["sent", "passed"] {
        let service = service();
        serve(&service, &Headers::of(&[(BAGGAGE_HEADER, &recorded[hop])]), || {
            let expected: Vec<String> = (0..290).map(|number| format!("note {number:03}")).collect();
            assert_eq!(service.notes.seen(), expected);
            // Our own part of what we send is what arrived.
            let sent = call("").1.0[0].1.clone();
            assert!(recorded["sent"].ends_with(&sent));
        });
    }
}

/// Transports enter the span of a call where they send and receive, in tasks of their own. After
/// the call, that is a fork without a mark.
#[test]
fn the_span_of_a_call_may_be_entered_by_the_transport() {
    let service = service();
    let enter = |span: &tracing::Span| {
        let stay = service.stay();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stay();
                span.in_scope(|| ());
            });
        });
    };
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            let (during, after) = (info_span!("during"), info_span!("after"));
            let call = during.in_scope(Flow::branch);
            enter(&during);
            drop(call);
            let calling = after.in_scope(Calling::here);
            drop(calling);
            enter(&after);
        });
    });
    assert_eq!(service.unmarked(), [("after", 1)]);
}
