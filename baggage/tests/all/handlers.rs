//! Handlers along a request: their order, concurrent changes, panics, and the clock.

use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use astracer_baggage::{Application, BranchExt as _, Namespace, Place, View, branch_fn, flow};
use tracing::{info, info_span};

use crate::service::{Service, service_with};

/// Writes down each call, and panics in the chosen one.
#[derive(Clone)]
struct Recorder {
    calls: Arc<Mutex<Vec<String>>>,
    own: Namespace,
    panics: &'static str,
}

impl Recorder {
    fn call(&self, flow: &mut View<'_>, name: &'static str, place: Option<Place<'_>>) {
        let place = place.map_or(String::new(), |place| format!(" {}", place.name));
        let place = if place.starts_with(" event") { String::new() } else { place };
        self.calls.lock().unwrap().push(format!("{name}{place}"));
        flow.add(&self.own, b"calls", name.as_bytes());
        assert_ne!(name, self.panics, "expected");
    }
}

impl Application for Recorder {
    fn pre_split(&self, flow: &mut View<'_>) {
        self.call(flow, "pre_split", None);
    }
    fn post_split(&self, flow: &mut View<'_>, _: &mut View<'_>) {
        self.call(flow, "post_split", None);
    }
    fn pre_merge(&self, flow: &mut View<'_>, _: &mut View<'_>) {
        self.call(flow, "pre_merge", None);
    }
    fn post_merge(&self, flow: &mut View<'_>) {
        self.call(flow, "post_merge", None);
    }
    fn begin(&self, flow: &mut View<'_>) {
        self.call(flow, "begin", None);
    }
    fn end(&self, flow: &mut View<'_>) {
        self.call(flow, "end", None);
    }
    fn suspend(&self, flow: &mut View<'_>) {
        self.call(flow, "suspend", None);
    }
    fn resume(&self, flow: &mut View<'_>) {
        self.call(flow, "resume", None);
    }
    fn enter(&self, flow: &mut View<'_>, span: Place<'_>) {
        self.call(flow, "enter", Some(span));
    }
    fn exit(&self, flow: &mut View<'_>, span: Place<'_>) {
        self.call(flow, "exit", Some(span));
    }
    fn event(&self, flow: &mut View<'_>, event: Place<'_>) {
        self.call(flow, "event", Some(event));
    }
}

fn recorded(sampler: &str, panics: &'static str) -> (Service, Recorder) {
    let mut recorder = None;
    let service = service_with(
        |builder| builder.with_sampler(sampler.parse().unwrap()),
        |applications, registry| {
            let own = registry.register("own", 0).unwrap();
            let one = Recorder { calls: Arc::default(), own: own.clone(), panics };
            recorder = Some(one.clone());
            applications.with([own], one)
        },
    );
    (service, recorder.unwrap())
}

/// A request with a child, an event, a branch that is joined and one that is dropped.
fn run(service: &Service) {
    service.world.inside(|| {
        let root = info_span!("root");
        root.in_scope(|| {
            info_span!("child").in_scope(|| info!("something"));
            branch_fn(|| info_span!("branch").in_scope(|| ()))().join();
            drop(async {}.branch());
        });
    });
}

const CALLS: [&str; 27] = [
    "begin",
    "resume",
    "enter root",
    "enter child",
    "event",
    "exit child",
    "pre_split",
    "post_split",
    // The branch runs on the same thread, in the current span.
    "suspend",
    "resume",
    "enter root",
    "enter branch",
    "exit branch",
    "exit root",
    "suspend",
    "resume",
    "pre_merge",
    "post_merge",
    // The other one is dropped in its flow.
    "pre_split",
    "post_split",
    "suspend",
    "resume",
    "enter root",
    "exit root",
    "suspend",
    "resume",
    "end",
];

#[test]
fn handlers_are_called_in_order() {
    for sampler in ["always", "never"] {
        let (service, recorder) = recorded(sampler, "");
        run(&service);
        let mut expected: Vec<&str> = CALLS.into();
        expected.extend(["exit root", "suspend", "end"]);
        let calls = recorder.calls.lock().unwrap().clone();
        assert_eq!(calls, expected, "{sampler}");
        assert_eq!(service.stats().losses.panics, 0);
        service.check_sums();
    }
}

/// Each handler panics once or more. The service and the other namespaces notice nothing.
#[test]
fn a_panic_in_each_handler_is_counted() {
    let handlers = [
        "pre_split",
        "post_split",
        "pre_merge",
        "post_merge",
        "begin",
        "end",
        "suspend",
        "resume",
        "enter",
        "exit",
        "event",
    ];
    for handler in handlers {
        let (service, recorder) = recorded("always", handler);
        run(&service);
        let calls = recorder.calls.lock().unwrap().clone();
        let expected = calls.iter().filter(|call| call.split(' ').next() == Some(handler)).count();
        assert_eq!(service.stats().losses.panics, expected as u64, "{handler}");
        assert_eq!(service.world.handle.stats().observer_panics, 0, "{handler}");
        service.check_sums();
    }
}

/// Spans and events of a handler are not reported to handlers.
#[test]
fn handlers_may_trace() {
    struct Traces(Namespace);
    impl Application for Traces {
        fn enter(&self, flow: &mut View<'_>, span: Place<'_>) {
            flow.add(&self.0, b"entered", span.name.as_bytes());
            info_span!("of a handler").in_scope(|| info!("also of a handler"));
            flow::set("tenant.id", "acme").unwrap();
        }
    }
    let mut own = None;
    let service = service_with(
        |builder| builder,
        |applications, registry| {
            let token = registry.register("own", 0).unwrap();
            own = Some(token.clone());
            applications.with([token.clone()], Traces(token))
        },
    );
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            let entered = |baggage: &mut astracer_baggage::Baggage| {
                let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
                baggage.get(own.as_ref().unwrap(), b"entered").map(name).collect::<Vec<_>>()
            };
            assert_eq!(flow::with(entered).unwrap(), ["root"]);
            assert_eq!(flow::get("tenant.id").unwrap(), "acme");
        });
    });
    service.check_sums();
}

/// Two threads change the same flow at once, each while the other one holds a copy.
#[test]
fn two_threads_in_one_flow_lose_nothing() {
    let service = service_with(|builder| builder, |applications, _| applications);
    let notes = &service.notes;
    service.world.inside(|| {
        let root = info_span!("root");
        root.in_scope(|| {
            notes.add("removed by one");
            notes.add("removed by two");
            notes.add("stays");
        });
        let both = Barrier::new(2);
        thread::scope(|scope| {
            for name in ["one", "two"] {
                let (root, both, stay) = (&root, &both, service.stay());
                scope.spawn(move || {
                    stay();
                    root.in_scope(|| {
                        flow::with(|baggage| {
                            both.wait();
                            let own = format!("removed by {name}");
                            let kept: Vec<Vec<u8>> = baggage
                                .get(&notes.0, b"")
                                .filter(|note| *note != own.as_bytes())
                                .map(<[u8]>::to_vec)
                                .collect();
                            baggage.replace(&notes.0, b"", kept.iter().map(|note| &**note));
                            baggage.add(&notes.0, b"", format!("added by {name}").as_bytes());
                            flow::set(name, "set").unwrap();
                            both.wait();
                        })
                        .unwrap();
                    });
                });
            }
        });
        root.in_scope(|| {
            assert_eq!(notes.seen(), ["added by one", "added by two", "stays"]);
            assert_eq!((flow::get("one"), flow::get("two")), (Some("set".into()), Some("set".into())));
        });
    });
}

/// Handlers get the SDK's time as a date; the clock is set back.
#[test]
fn the_time_is_the_sdks() {
    struct Times(Arc<Mutex<Vec<u64>>>);
    impl Application for Times {
        fn event(&self, flow: &mut View<'_>, _: Place<'_>) {
            self.0.lock().unwrap().push(flow.now());
        }
        fn pre_split(&self, flow: &mut View<'_>) {
            self.0.lock().unwrap().push(flow.now());
        }
    }
    let times = Arc::<Mutex<Vec<u64>>>::default();
    let service = service_with(
        |builder| builder,
        |applications, _| applications.with(Vec::new(), Times(times.clone())),
    );
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            info!("at the start");
            service.world.clock.advance(Duration::from_secs(5));
            info!("later");
            service.world.clock.set_back(Duration::from_secs(3));
            info!("earlier");
            drop(async {}.branch());
        });
    });
    let start = 1_700_000_000_000_000_000;
    let seconds = times.lock().unwrap().iter().map(|now| (now - start) / 1_000_000_000).collect::<Vec<_>>();
    assert_eq!(seconds, [0, 5, 2, 2]);
}
