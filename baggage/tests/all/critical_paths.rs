//! Critical paths of each construct that forks and joins, on a clock that is moved by hand. The
//! ways were worked out by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use astracer_baggage::critical_path::{CriticalPath, CriticalPathRow, Measure, here, longest, slack, wait};
use astracer_baggage::{
    Applications, BranchExt as _, Flows, Fork, JoinStreamExt as _, Packed, Registry, branch_fn, zone,
};
use astracer_sdk::{Builder, Clock, DroppedSpans, Key, Start};
use astracer_testing::{World, world};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use opentelemetry::KeyValue;
use opentelemetry_sdk::trace::SpanData;
use tokio::sync::oneshot;
use tracing::dispatcher::set_default;
use tracing::{Instrument as _, info_span};

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) world: Arc<World>,
    pub(crate) paths: CriticalPath,
    pub(crate) flows: Flows,
}

pub(crate) fn service_with(measure: Measure, change: impl FnOnce(Builder) -> Builder) -> Service {
    service_of(CriticalPath::new(measure), change)
}

fn service_of(paths: CriticalPath, change: impl FnOnce(Builder) -> Builder) -> Service {
    let flows = Flows::new(Applications::new(&Registry::default()).with_critical_path(&paths));
    let world = world(|builder| change(builder.with_observer(Arc::new(flows.clone()))));
    Service { world: Arc::new(world), paths, flows }
}

pub(crate) fn sampling(sampler: &str, dropped: DroppedSpans) -> Service {
    service_with(Measure::Wall, |builder| {
        let builder = builder.with_sampler(sampler.parse().unwrap()).with_start(Start::AtOnce);
        builder.with_dropped_spans(dropped)
    })
}

impl Service {
    /// A millisecond is one unit of the ways.
    pub(crate) fn work(&self, units: u64) {
        self.world.clock.advance(Duration::from_millis(units));
    }

    pub(crate) fn row(&self) -> CriticalPathRow {
        let rows = self.paths.rows();
        assert_eq!(rows.len(), 1, "{rows:#?}");
        rows[0].clone()
    }

    /// Times by function and kind, in units. They must sum up to the root's duration.
    #[track_caller]
    pub(crate) fn check(&self, units: u64, expected: &[(&str, &str, u64)]) {
        let row = self.row();
        let found: Vec<(&str, &str, f64)> = row
            .functions
            .iter()
            .map(|part| (&*part.name, part.kind.name(), part.nanos as f64 / 1e6))
            .collect();
        let mut expected: Vec<(&str, &str, f64)> =
            expected.iter().map(|(name, kind, units)| (*name, *kind, *units as f64)).collect();
        let order = |a: &(&str, &str, f64), b: &(&str, &str, f64)| (a.0, a.1).cmp(&(b.0, b.1));
        let mut found = found;
        found.sort_by(order);
        expected.sort_by(order);
        assert_eq!(found, expected);
        assert_eq!(row.functions.iter().map(|part| part.nanos).sum::<u64>(), row.total_ns);
        assert_eq!(row.total_ns, units * 1_000_000);
    }

    fn stay(&self) -> impl Fn() + Send + Sync + Clone + 'static {
        let dispatch = self.world.dispatch.clone();
        move || std::mem::forget(set_default(&dispatch))
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.on_thread_start(self.stay()).build().unwrap();
        self.world.inside(|| runtime.block_on(async { work.instrument(info_span!("request")).await }))
    }
}

/// Spans in one line of control, with every sampler.
#[test]
fn spans_of_one_flow_share_its_time() {
    for (sampler, dropped) in [
        ("always", DroppedSpans::default()),
        ("never", DroppedSpans::default()),
        ("never", DroppedSpans::Disabled),
    ] {
        let service = sampling(sampler, dropped);
        service.world.inside(|| {
            let root = info_span!("request", otel.name = "GET /");
            service.work(1);
            root.in_scope(|| {
                service.work(2);
                let child = info_span!("child");
                service.work(4);
                child.in_scope(|| {
                    service.work(8);
                    zone!("load");
                    service.work(16);
                });
                drop(child);
                service.work(32);
                assert_eq!(here().unwrap().nanos, 63_000_000);
            });
            // After its last exit.
            service.work(64);
        });
        if dropped == DroppedSpans::Disabled {
            service.check(63, &[("GET /", "work", 47), ("load", "work", 16)]);
        } else {
            service.check(63, &[("GET /", "work", 35), ("child", "work", 12), ("load", "work", 16)]);
        }
    }
}

/// Rows are by the sampler's key, also where a caller decided; the root's function is its name.
#[test]
fn rows_are_by_the_key_of_the_sampler() {
    for (key, rows) in [
        (Key::default(), vec![("GET /orders/*", 3)]),
        (
            Key::name().with_attribute("tier"),
            vec![("GET /orders/1234;tier=a", 1), ("GET /orders/5678;tier=b", 2)],
        ),
    ] {
        for sampler in ["always", "never"] {
            let service = service_with(Measure::Wall, |builder| {
                builder.with_sampler(sampler.parse().unwrap()).with_key(key.clone())
            });
            service.world.inside(|| {
                info_span!("GET /orders/1234", tier = "a").in_scope(|| service.work(1));
                let request = || info_span!("request", otel.name = "GET /orders/5678", tier = "b");
                request().in_scope(|| service.work(2));
                let _remote = astracer_testing::remote_parent(7, sampler == "always").attach();
                request().in_scope(|| service.work(2));
            });
            let mut found = service.paths.rows();
            found.sort_by_key(|row| row.requests);
            let found: Vec<(&str, u64)> = found.iter().map(|row| (&*row.key, row.requests)).collect();
            assert_eq!(found, rows, "{sampler}");
            for row in service.paths.rows() {
                assert_eq!(row.by_function(), [("GET /orders/*".into(), row.total_ns)]);
            }
        }
    }
}

/// Where dropped spans do not exist, their time is told apart from the root's.
#[test]
fn times_that_are_not_recorded() {
    let service = service_of(CriticalPath::default().without_dropped_spans(), |builder| {
        let builder = builder.with_sampler("never".parse().unwrap()).with_start(Start::AtOnce);
        builder.with_dropped_spans(DroppedSpans::Disabled)
    });
    service.world.inside(|| {
        info_span!("request").in_scope(|| {
            service.work(1);
            info_span!("child").in_scope(|| service.work(2));
            zone!("load");
            service.work(4);
        });
    });
    service.check(7, &[("(not recorded)", "work", 3), ("load", "work", 4)]);
}

/// The ways to a point, and how far they are apart.
#[test]
fn ways_and_slack_while_a_request_runs() {
    assert!(longest().is_none() && slack("fast").is_none());
    let service = sampling("never", DroppedSpans::default());
    service.world.inside(|| {
        info_span!("request").in_scope(|| {
            service.work(1);
            let slow = branch_fn(|| info_span!("slow").in_scope(|| service.work(10)));
            let fast = branch_fn(|| info_span!("fast").in_scope(|| service.work(4)));
            let (slow, fast) = (slow(), fast());
            slow.join();
            fast.join();
            service.work(2);
            // `fast` begins after `slow`, on the same thread: 1, 10 until it begins, 4, 2. The others
            // are the way through `slow`, 1, 10, 2, and the request's own, 1, 2.
            let ways: Vec<u64> = longest().unwrap().iter().map(|way| way.total_ns / 1_000_000).collect();
            assert_eq!(ways, [17, 13, 3]);
            let slack = slack("fast").unwrap();
            assert_eq!((slack.on_path_ns, slack.nanos, slack.is_bound), (4_000_000, 4e6, false));
        });
    });
}

fn path_attributes(root: &SpanData) -> BTreeMap<String, String> {
    let name = |pair: &KeyValue| {
        let name = pair.key.as_str().strip_prefix("astracer.critical_path.")?.to_owned();
        Some((name, pair.value.to_string()))
    };
    root.attributes.iter().filter_map(name).collect()
}

/// By the machine's clock, whose ticks are not whole nanoseconds: roots that were entered, and
/// roots that were not.
#[test]
fn the_path_of_a_kept_root_is_as_long_as_the_exported_span() {
    let clock = Clock::system();
    let service = service_with(Measure::Wall, |builder| builder.with_clock(clock));
    service.world.inside(|| {
        for number in 0..100 {
            info_span!("request").in_scope(|| info_span!("child").in_scope(|| number));
            drop(info_span!("request"));
        }
    });
    let spans = service.world.exported();
    let mut sum = 0;
    for root in spans.iter().filter(|span| span.name == "request") {
        let took = root.end_time.duration_since(root.start_time).unwrap().as_nanos();
        assert_eq!(path_attributes(root)["total_ns"], took.to_string());
        sum += took;
    }
    assert_eq!((service.row().requests, u128::from(service.row().total_ns)), (200, sum));
}

/// A kept root has its critical path as attributes, whose total is the root's duration.
#[test]
fn kept_roots_have_their_path() {
    let service = service_with(Measure::Wall, |builder| builder);
    service.paths.experiment("faster", astracer_baggage::critical_path::zone("load"), 0.5).unwrap();
    service.world.inside(|| {
        let root = info_span!("request");
        root.in_scope(|| {
            service.work(1);
            info_span!("load").in_scope(|| service.work(6));
        });
        service.work(3);
        root.in_scope(|| ());
        service.work(5);
    });
    let spans = service.world.exported();
    let root = spans.iter().find(|span| span.name == "request").unwrap();
    let found = path_attributes(root);
    let expected = [
        ("experiments", "[\"faster\"]"),
        ("experiments_ns", "[7000000]"),
        ("functions", "[\"load\",\"request\"]"),
        ("functions_ns", "[6000000,4000000]"),
        ("total_ns", "10000000"),
        ("wait_ns", "3000000"),
    ];
    assert!(found.iter().map(|(key, value)| (key.as_str(), value.as_str())).eq(expected), "{found:#?}");
    let duration = root.end_time.duration_since(root.start_time).unwrap();
    assert_eq!(duration, Duration::from_millis(10));
}

/// Without any `.branch()`, a task's waits are those of the innermost span that is open.
#[test]
fn waits_of_a_task_are_its_own() {
    let service = sampling("never", DroppedSpans::default());
    let (sender, receiver) = oneshot::channel::<()>();
    let own = service.clone();
    service.block_on(async {
        let other = own.clone();
        tokio::spawn(async move {
            other.work(4);
            sender.send(()).unwrap();
        });
        own.work(1);
        async {
            own.work(2);
            receiver.await.unwrap();
            own.work(8);
        }
        .instrument(info_span!("child"))
        .await;
        own.work(16);
    });
    service.check(31, &[("request", "work", 17), ("child", "work", 10), ("child", "wait", 4)]);
}

/// A task that is spawned, and awaited: it is longer than what its parent does meanwhile.
#[test]
fn spawn() {
    for measure in [Measure::Wall, Measure::Productive] {
        let service = service_with(measure, |builder| builder);
        let own = service.clone();
        service.block_on(async {
            own.work(1);
            let task = own.clone();
            let child = async move {
                task.work(8);
                tokio::task::yield_now().await;
                task.work(16);
            };
            let handle = tokio::spawn(child.instrument(info_span!("child")).branch());
            own.work(2);
            // Between the fork and the branch's beginning, and after its end, another task runs.
            let other = own.clone();
            tokio::spawn(async move { other.work(4) });
            handle.joined().await.unwrap();
            own.work(32);
        });
        match measure {
            // The child: 2 of the parent and 0 to begin; 8, 4 for the other task, 16.
            Measure::Wall => service.check(
                63,
                &[
                    ("request", "work", 33),
                    ("child", "spawn", 2),
                    ("child", "work", 24),
                    ("child", "wait", 4),
                ],
            ),
            // 1 + 24 + 32.
            _ => assert_eq!(service.row().total_ns, 57_000_000),
        }
    }
}

/// Two branches are polled by the same task: the one that ends last is on the way.
#[test]
fn join_macro() {
    let service = sampling("never", DroppedSpans::default());
    let own = service.clone();
    let branch = |name: &'static str, steps: u64, units: u64| {
        let own = own.clone();
        let work = async move {
            for _ in 0..steps {
                own.work(units);
                tokio::task::yield_now().await;
            }
        };
        work.instrument(info_span!("branch", name)).branch()
    };
    own.paths.experiment("faster", astracer_baggage::critical_path::zone("long"), 0.0).unwrap();
    service.block_on(async {
        own.work(1);
        let long = async {
            for _ in 0..50 {
                own.work(2);
                tokio::task::yield_now().await;
            }
        };
        let long = long.instrument(info_span!("long")).branch();
        let (long, short) = tokio::join!(long, branch("short", 3, 10));
        long.join();
        short.join();
        own.work(1);
    });
    // `long`: 50 * 2 of its own; meanwhile it waits for 3 * 10 of the other one.
    service.check(132, &[("request", "work", 2), ("long", "work", 100), ("long", "wait", 30)]);
    // Without `long`, the other one is on the way: 1 + 30 and the time between its polls, 2 * 2
    // after the first two and 2 before the first, + 1.
    let experiments = service.row().experiments;
    assert_eq!((experiments[0].requests, experiments[0].total_ns), (1, 132_000_000));
    assert_eq!(experiments[0].changed_ns, 38_000_000.0);
}

/// Waits of a task that polls a branch are for that branch, whichever task runs meanwhile.
#[test]
fn join_macro_with_waits() {
    let service = sampling("never", DroppedSpans::default());
    let own = service.clone();
    own.paths.experiment("faster", astracer_baggage::critical_path::zone("long"), 0.0).unwrap();
    service.block_on(async {
        own.work(1);
        let long = async {
            for _ in 0..3 {
                own.work(2);
                let other = own.clone();
                tokio::spawn(async move { other.work(5) });
                tokio::task::yield_now().await;
            }
        };
        let (long,) = tokio::join!(long.instrument(info_span!("long")).branch());
        long.join();
        own.work(1);
    });
    service.check(23, &[("request", "work", 2), ("long", "work", 6), ("long", "wait", 15)]);
    assert_eq!(service.row().experiments[0].changed_ns, 2_000_000.0);
}

/// The branch that loses is dropped, and on no way.
#[test]
fn select_macro() {
    let service = sampling("never", DroppedSpans::default());
    let own = service.clone();
    service.block_on(async {
        own.work(1);
        let never = async {
            own.work(4);
            std::future::pending::<()>().await;
        };
        let wins = async {
            own.work(2);
            tokio::task::yield_now().await;
            own.work(8);
        };
        tokio::select! {
            biased;
            _ = never.instrument(info_span!("never")).branch() => unreachable!(),
            done = wins.instrument(info_span!("wins")).branch() => done.join(),
        }
        own.work(16);
    });
    // 4 pass until the branch that wins is polled first.
    service.check(31, &[("request", "work", 17), ("wins", "spawn", 4), ("wins", "work", 10)]);
}

#[test]
fn streams() {
    let service = sampling("never", DroppedSpans::default());
    let own = service.clone();
    service.block_on(async {
        let branch = |name: &'static str, units: u64| {
            let own = own.clone();
            async move {
                zone!("each");
                own.work(units);
                name
            }
            .branch()
        };
        let mut all = [branch("a", 1), branch("b", 2)].into_iter().collect::<FuturesUnordered<_>>().joined();
        while all.next().await.is_some() {
            own.work(4);
        }
    });
    // `a`, 1, 4 of the request; `b` begins after that, 2; then 4.
    service.check(11, &[("request", "work", 4), ("each", "work", 2), ("request", "spawn", 5)]);
}

/// A thread that is joined: nothing is known of the one that waits.
#[test]
fn threads() {
    let service = sampling("never", DroppedSpans::default());
    let own = service.clone();
    let stay = service.stay();
    service.world.inside(|| {
        info_span!("request").in_scope(|| {
            own.work(1);
            let work = branch_fn(|| {
                info_span!("child").in_scope(|| own.work(4));
            });
            let done = thread::scope(|scope| {
                scope
                    .spawn(move || {
                        stay();
                        work()
                    })
                    .join()
                    .unwrap()
            });
            own.work(2);
            done.join();
            own.work(8);
        });
    });
    service.check(15, &[("request", "work", 11), ("child", "work", 4)]);
}

/// The thread works while the other one runs, and longer. It says when it begins to wait.
#[test]
fn a_thread_that_works_longer_than_its_branch() {
    let service = sampling("never", DroppedSpans::default());
    let own = service.clone();
    service.world.inside(|| {
        info_span!("request").in_scope(|| {
            own.work(1);
            let work = branch_fn(|| info_span!("child").in_scope(|| own.work(4)));
            let stay = service.stay();
            let done = thread::scope(|scope| {
                let handle = scope.spawn(|| {
                    stay();
                    work()
                });
                while !handle.is_finished() {
                    thread::yield_now();
                }
                own.work(2);
                wait();
                own.work(16);
                handle.join().unwrap()
            });
            done.join();
            own.work(8);
        });
    });
    // The request has worked for all of 1 + 4 + 2, then waited for 16 to be woken.
    service.check(31, &[("request", "work", 15), ("request", "wake", 16)]);
}

#[test]
fn rayon_join_and_iterators() {
    let service = sampling("never", DroppedSpans::default());
    let own = service.clone();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let stay = service.stay();
    pool.install(stay);
    service.world.inside(|| {
        info_span!("request").in_scope(|| {
            own.work(1);
            let (left, right) = (
                branch_fn(|| info_span!("left").in_scope(|| own.work(2))),
                branch_fn(|| info_span!("right").in_scope(|| own.work(4))),
            );
            let (left, right) = pool.join(left, right);
            left.join();
            right.join();
            own.work(8);
            let fork = Fork::here();
            pool.install(|| {
                for units in [16, 32] {
                    fork.run(|| info_span!("item").in_scope(|| own.work(units)));
                }
            });
            fork.join();
            own.work(64);
        });
    });
    // The only thread of the pool runs one after the other: `right` begins when `left` has ended.
    let expected: [(&str, &str, u64); 4] =
        [("request", "work", 73), ("request", "spawn", 2), ("right", "work", 4), ("item", "work", 48)];
    service.check(127, &expected);
}

/// An actor works in the flow of a message, in a root of its own. Its reply is merged.
#[test]
fn channels() {
    let service = sampling("never", DroppedSpans::default());
    let own = service.clone();
    thread::scope(|scope| {
        let (sender, inbox) = mpsc::channel::<Packed<mpsc::Sender<Packed<()>>>>();
        let stay = service.stay();
        let worker = service.clone();
        let worker = scope.spawn(move || {
            stay();
            for message in inbox {
                worker.work(2);
                message.adopt_fn(|reply| {
                    info_span!("job").in_scope(|| {
                        worker.work(4);
                        assert_eq!(here().unwrap().nanos, 4_000_000);
                        // 1 of the sender, and 2 until the worker took the message.
                        assert_eq!(here().unwrap().before_ns, 3_000_000);
                        reply.send(Packed::new(())).unwrap();
                    });
                });
            }
        });
        service.world.inside(|| {
            info_span!("request").in_scope(|| {
                own.work(1);
                let (reply, answer) = mpsc::channel();
                sender.send(Packed::new(reply)).unwrap();
                drop(sender);
                // The job has ended when the clock goes on.
                worker.join().unwrap();
                answer.recv().unwrap().merge();
                own.work(8);
            });
        });
    });
    let rows = own.paths.rows();
    let of = |name: &str| rows.iter().find(|row| &*row.key == name).unwrap();
    let times = |name: &str| -> Vec<(String, u64)> {
        let parts = of(name).functions.iter();
        parts.map(|part| (format!("{} {}", part.name, part.kind.name()), part.nanos / 1_000_000)).collect()
    };
    assert_eq!(times("job"), [("job work".to_owned(), 4)]);
    let expected = [("request work", 9), ("job work", 4), ("request spawn", 2)];
    assert_eq!(times("request"), expected.map(|(name, units)| (name.to_owned(), units)));
}

/// A root that became a daemon is as long as its span; as the paper measures, up to that point.
#[test]
fn roots_that_are_daemons() {
    for (measure, units) in [(Measure::Wall, 5), (Measure::Productive, 1)] {
        let service = service_with(measure, |builder| builder);
        service.world.inside(|| {
            let root = info_span!("request").entered();
            service.work(1);
            astracer_baggage::critical_path::daemonize();
            service.work(4);
            drop(root);
        });
        service.check(units, &[("request", "work", units)]);
    }
}

/// A branch that nobody joins does not count, nor does what a daemon does.
#[test]
fn daemons_and_branches_that_nobody_joins() {
    let service = sampling("never", DroppedSpans::default());
    let own = service.clone();
    service.world.inside(|| {
        info_span!("request").in_scope(|| {
            own.work(1);
            branch_fn(|| own.work(2))().detach();
            branch_fn(|| {
                own.work(4);
                astracer_baggage::critical_path::daemonize();
                own.work(8);
            })()
            .join();
            own.work(16);
        });
    });
    // The request waits while another branch uses its thread. The daemon's way ends after 4.
    service.check(31, &[("request", "work", 21), ("request", "wait", 2), ("request", "wake", 8)]);
}
