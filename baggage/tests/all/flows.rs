//! Flows without a runtime: which flow a span, a thread and a branch are in.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use astracer_baggage::{BranchExt as _, Flows, Fork, Packed, branch_fn, flow};
use astracer_sdk::{ContextMode, DroppedSpans, Start};
use astracer_testing::world;
use tracing::{Instrument as _, Span, info_span};

use crate::service::{Service, service, service_with};

/// Polls a future that is ready at once.
#[track_caller]
fn now<F: Future>(work: F) -> F::Output {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits"),
    }
}

/// Runs `f` on another thread of the service.
fn elsewhere<T: Send>(service: &Service, f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let stay = service.stay();
        let work = move || {
            stay();
            f()
        };
        scope.spawn(work).join().unwrap()
    })
}

#[test]
fn outside_of_a_request_nothing_is_set() {
    let service = service();
    let error = flow::set("tenant.id", "acme").unwrap_err();
    assert_eq!(
        error.to_string(),
        "outside of any request: call this inside a request's span, and give spawned tasks a `.branch()`"
    );
    assert!(flow::with(|_| ()).is_err());
    assert_eq!(flow::get("tenant.id"), None);
    service.world.inside(|| {
        let root = info_span!("root");
        assert!(flow::set("tenant.id", "acme").is_err());
        root.in_scope(|| {
            flow::set("tenant.id", "acme").unwrap();
            flow::set("tenant.id", "umbrella").unwrap();
            assert_eq!(flow::get("tenant.id").unwrap(), "umbrella");
        });
        assert!(flow::set("tenant.id", "acme").is_err());
        // Wrappers change nothing outside of a request.
        assert_eq!(now(async { 1 }.branch()).join(), 1);
        assert_eq!(branch_fn(|| 2)().join(), 2);
        assert_eq!(Fork::here().run(|| 3), 3);
        assert_eq!(Packed::new(4).clone().merge(), 4);
        assert_eq!(Packed::new(5).adopt_fn(|five| five), 5);
        // The next request is another flow.
        info_span!("root").in_scope(|| assert_eq!(flow::get("tenant.id"), None));
    });
    service.check_sums();
    assert_eq!((service.stats().requests, service.stats().branches), (2, 0));
}

/// Kept and dropped, decided at once or when used, with contexts or without.
#[test]
fn one_request_is_one_flow_in_each_mode() {
    for start in [Start::AtOnce, Start::WhenUsed] {
        for mode in [ContextMode::Off, ContextMode::Ids, ContextMode::Recording] {
            for sampler in ["always", "never"] {
                let service = service_with(
                    |builder| {
                        builder
                            .with_start(start)
                            .with_context_mode(mode)
                            .with_sampler(sampler.parse().unwrap())
                    },
                    |applications, _| applications,
                );
                let notes = &service.notes;
                service.world.inside(|| {
                    let root = info_span!("root");
                    root.in_scope(|| {
                        notes.add("a");
                        info_span!("child").in_scope(|| {
                            notes.add("b");
                            info_span!("grandchild").in_scope(|| assert_eq!(notes.seen(), ["a", "b"]));
                        });
                    });
                    // Another thread enters the span at which the flow began.
                    elsewhere(&service, || root.in_scope(|| notes.add("c")));
                    root.in_scope(|| assert_eq!(notes.seen(), ["a", "b", "c"]));
                });
                assert_eq!(service.unmarked(), []);
                service.check_sums();
                assert_eq!((service.stats().requests, service.stats().branches), (1, 0));
            }
        }
    }
}

/// A root of another trace has its own flow, also inside a request.
#[test]
fn a_root_inside_a_request_has_its_own_flow() {
    let service = service();
    let notes = &service.notes;
    service.world.inside(|| {
        info_span!("one").in_scope(|| {
            notes.add("one");
            info_span!(parent: None, "two").in_scope(|| {
                assert!(notes.seen().is_empty());
                notes.add("two");
            });
            assert_eq!(notes.seen(), ["one"]);
        });
    });
    assert_eq!(service.stats().requests, 2);
    service.check_sums();
}

/// A request that calls its own process: both roots are of the caller's trace.
#[test]
fn a_root_of_the_same_trace_takes_the_flow() {
    use astracer_sdk::OpenTelemetrySpanExt as _;
    use astracer_testing::remote_parent;
    for (other, requests) in [(7, 1), (8, 2)] {
        let service = service();
        let notes = &service.notes;
        service.world.inside(|| {
            let one = info_span!("one");
            one.set_parent(remote_parent(7, true)).unwrap();
            one.in_scope(|| {
                notes.add("one");
                let two = info_span!("two");
                two.set_parent(remote_parent(other, true)).unwrap();
                two.in_scope(|| assert_eq!(notes.seen().len(), if requests == 1 { 1 } else { 0 }));
            });
        });
        assert_eq!(service.stats().requests, requests);
        service.check_sums();
    }
}

#[test]
fn spans_may_be_exited_in_any_order() {
    let service = service();
    let notes = &service.notes;
    service.world.inside(|| {
        let (one, two) = (info_span!("one"), info_span!(parent: None, "two"));
        let first = one.clone().entered();
        notes.add("one");
        let second = two.clone().entered();
        let again = one.clone().entered();
        assert_eq!(notes.seen(), ["one"]);
        drop(again);
        drop(first);
        assert!(notes.seen().is_empty());
        drop(second);
        assert!(flow::with(|_| ()).is_err());
        // Entered twice, it is left with the second exit.
        let (first, second) = (one.clone().entered(), one.clone().entered());
        drop(first);
        assert_eq!(notes.seen(), ["one"]);
        drop(second);
        assert!(flow::with(|_| ()).is_err());
    });
}

#[test]
fn a_branch_knows_the_past_and_is_known_when_it_is_joined() {
    let service = service();
    let notes = &service.notes;
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            notes.add("before");
            let branch = branch_fn(|| {
                info_span!("work").in_scope(|| {
                    notes.add("branch");
                    notes.seen()
                })
            });
            notes.add("after");
            let done = elsewhere(&service, branch);
            assert_eq!(done.value(), &["before", "branch"]);
            assert_eq!(notes.seen(), ["after", "before"]);
            done.join();
            assert_eq!(notes.seen(), ["after", "before", "branch"]);
        });
    });
    assert_eq!(service.unmarked(), []);
    assert_eq!((service.stats().branches, service.stats().joined), (1, 1));
    service.check_sums();
}

/// `.branch()` before or after `.instrument()`, whose span began before the branch.
#[test]
fn the_order_of_branch_and_instrument_does_not_matter() {
    for is_outside in [true, false] {
        let service = service();
        let notes = &service.notes;
        service.world.inside(|| {
            info_span!("root").in_scope(|| {
                let span = info_span!("task");
                notes.add("before");
                let work = async {
                    tokio::task::yield_now().await;
                    info_span!("inner").in_scope(|| notes.add("branch"));
                    notes.seen()
                };
                let poll_twice = |mut work: std::pin::Pin<Box<dyn Future<Output = _> + Send + '_>>| {
                    elsewhere(&service, || {
                        let context = &mut Context::from_waker(Waker::noop());
                        assert!(work.as_mut().poll(context).is_pending());
                        let Poll::Ready(done) = work.as_mut().poll(context) else { panic!() };
                        done
                    })
                };
                let done: astracer_baggage::Done<Vec<String>> = match is_outside {
                    true => poll_twice(Box::pin(work.instrument(span).branch())),
                    false => poll_twice(Box::pin(work.branch().instrument(span))),
                };
                assert_eq!(done.value(), &["before", "branch"]);
                assert_eq!(notes.seen(), ["before"]);
                done.join();
                assert_eq!(notes.seen(), ["before", "branch"]);
            });
        });
        assert_eq!(service.unmarked(), [], "branch outside: {is_outside}");
        service.check_sums();
    }
}

/// A branch that is dropped, panics or is detached merges nothing, and is counted.
#[test]
fn branches_that_are_not_joined_are_counted() {
    let service = service();
    let notes = &service.notes;
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            drop(async {}.branch());
            drop(now(async { notes.add("never") }.branch()));
            drop(branch_fn(|| ()));
            let panics = branch_fn(|| {
                notes.add("never");
                panic!("expected")
            });
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
            now(async { notes.add("never") }.branch()).detach();
            drop(Packed::new(()));
            let fork = Fork::here();
            fork.run(|| notes.add("never"));
            drop(fork);
            assert!(notes.seen().is_empty());
        });
    });
    let stats = service.stats();
    // The fork's closure was merged into the fork.
    assert_eq!((stats.dropped, stats.detached, stats.joined), (6, 1, 1));
    service.check_sums();
}

/// A future's values are dropped in its flow.
#[test]
fn a_future_is_dropped_in_its_flow() {
    struct OnDrop<'a>(&'a Service);
    impl Drop for OnDrop<'_> {
        fn drop(&mut self) {
            assert_eq!(self.0.notes.seen(), ["before"]);
        }
    }
    let service = service();
    service.world.inside(|| {
        let branch = info_span!("root").in_scope(|| {
            service.notes.add("before");
            let dropped = OnDrop(&service);
            async move {
                let _dropped = dropped;
                std::future::pending::<()>().await;
            }
            .branch()
        });
        drop(branch);
    });
    assert_eq!(service.stats().dropped, 1);
    service.check_sums();
}

/// A span that began in the flow is entered on a thread that is in none.
#[test]
fn an_unmarked_fork_is_found_by_its_callsite() {
    let service = service();
    let notes = &service.notes;
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            notes.add("before");
            for _ in 0..2 {
                let span = info_span!("forgotten");
                elsewhere(&service, || {
                    for _ in 0..2 {
                        span.in_scope(|| info_span!("inner").in_scope(|| notes.add("copy")));
                    }
                    span.in_scope(|| assert_eq!(notes.seen(), ["before", "copy"]));
                });
            }
            assert_eq!(notes.seen(), ["before"]);
        });
    });
    let stats = service.stats();
    assert_eq!(service.unmarked(), [("forgotten", 2)]);
    assert!(stats.unmarked[0].file.unwrap().ends_with("flows.rs") && stats.unmarked[0].line.is_some());
    assert_eq!(stats.open, 0);
}

/// Spans of a task below a dropped root begin no trace of their own, also where they are disabled.
#[test]
fn a_branch_stays_below_a_dropped_root() {
    for spans in [DroppedSpans::Visible, DroppedSpans::Disabled] {
        let service = service_with(
            |builder| builder.with_sampler("never".parse().unwrap()).with_dropped_spans(spans),
            |applications, _| applications,
        );
        let notes = &service.notes;
        service.world.inside(|| {
            let done = info_span!("root").in_scope(|| {
                let branch = branch_fn(|| {
                    info_span!("task").in_scope(|| notes.add("branch"));
                });
                let done = elsewhere(&service, branch);
                let future = async { info_span!("task").in_scope(|| notes.add("future")) }.branch();
                elsewhere(&service, || now(future)).join();
                let fork = Fork::here();
                elsewhere(&service, || fork.run(|| info_span!("task").in_scope(|| notes.add("fork"))));
                fork.join();
                assert_eq!(notes.seen(), ["fork", "future"]);
                done
            });
            // Outside of the request, nothing is merged.
            done.join();
        });
        let stats = service.stats();
        assert_eq!((stats.requests, stats.joins_outside), (1, 1), "{spans:?}");
        assert_eq!(service.unmarked(), []);
        service.check_sums();
        let counts = service.world.handle.stats();
        assert_eq!(counts.spans_made, 0);
    }
}

/// A kept trace: the branch's spans are children of the current span.
#[test]
fn a_branch_carries_the_current_span() {
    let service = service();
    let spans = service.world.run(|| {
        let root = info_span!("root").entered();
        let branch = branch_fn(|| info_span!("task").in_scope(|| ()));
        elsewhere(&service, branch).join();
        drop(root);
    });
    let (root, task) = (astracer_testing::one(&spans, "root"), astracer_testing::one(&spans, "task"));
    assert_eq!(task.parent_span_id, root.span_context.span_id());
}

/// Where a branch sets a member, the flow that has one keeps its own.
#[test]
fn members_are_inherited_and_new_ones_come_back() {
    let service = service();
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            flow::set("tenant.id", "acme").unwrap();
            now(async {
                assert_eq!(flow::get("tenant.id").unwrap(), "acme");
                // Before the flow's own in byte order.
                flow::set("tenant.id", "a").unwrap();
                flow::set("user.id", "7").unwrap();
            }
            .branch())
            .join();
            assert_eq!(flow::get("tenant.id").unwrap(), "acme");
            assert_eq!(flow::get("user.id").unwrap(), "7");
        });
    });
}

/// A worker begins a root in the flow of a message.
#[test]
fn a_root_takes_the_flow_of_an_adopted_message() {
    let service = service();
    let notes = &service.notes;
    service.world.inside(|| {
        let message = info_span!("sender").in_scope(|| {
            notes.add("sender");
            Packed::new(7)
        });
        let copy = message.clone();
        assert_eq!(*message.value(), 7);
        let reply = message.adopt_fn(|value| {
            info_span!("worker").in_scope(|| {
                assert_eq!(notes.seen(), ["sender"]);
                notes.add("worker");
                Packed::new(value + 1)
            })
        });
        let seen = copy.adopt(|value| async move {
            assert_eq!(value, 7);
            info_span!("other").in_scope(|| notes.seen())
        });
        assert_eq!(now(seen), ["sender"]);
        info_span!("receiver").in_scope(|| {
            assert_eq!(reply.merge(), 8);
            assert_eq!(notes.seen(), ["sender", "worker"]);
        });
    });
    assert_eq!(service.stats().requests, 2);
    service.check_sums();
}

/// A worker with a span of its own adopts a message, and forks there: the spans around it are the
/// worker's, and the flow is the message's.
#[test]
fn branches_of_an_adopted_message_are_in_its_flow() {
    let service = service();
    let notes = &service.notes;
    service.world.inside(|| {
        let message = info_span!("sender").in_scope(|| {
            notes.add("sender");
            Packed::new(())
        });
        info_span!("worker").in_scope(|| {
            notes.add("worker");
            let own = info_span!("loop").entered();
            message.adopt_fn(|()| {
                info_span!("handle").in_scope(|| assert_eq!(notes.seen(), ["sender"]));
                branch_fn(|| {
                    info_span!("branch").in_scope(|| notes.add("branch"));
                    notes.add("closure");
                })()
                .join();
                now(async { info_span!("future").in_scope(|| notes.add("future")) }.branch()).join();
                let fork = Fork::here();
                elsewhere(&service, || fork.run(|| info_span!("fork").in_scope(|| notes.add("fork"))));
                fork.join();
                assert_eq!(notes.seen(), ["branch", "closure", "fork", "future", "sender"]);
            });
            drop(own);
            assert_eq!(notes.seen(), ["worker"]);
        });
    });
    assert_eq!(service.unmarked(), []);
    service.check_sums();
}

/// That root may be entered anywhere, as one at which a flow began.
#[test]
fn a_root_that_took_a_messages_flow_is_its_origin() {
    let service = service();
    let notes = &service.notes;
    service.world.inside(|| {
        let message = info_span!("sender").in_scope(|| Packed::new(()));
        let root = message.adopt_fn(|()| {
            let root = info_span!("worker");
            root.in_scope(|| notes.add("worker"));
            root
        });
        elsewhere(&service, || root.in_scope(|| assert_eq!(notes.seen(), ["worker"])));
    });
    assert_eq!(service.unmarked(), []);
}

/// Two siblings get each other's results.
#[test]
fn branches_that_join_each_other_are_one_flow() {
    let service = service();
    let notes = &service.notes;
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            let one = branch_fn(|| notes.add("one"));
            let two = branch_fn(|| notes.add("two"));
            let (one, two) = (one(), two());
            let packed = Packed::new(two);
            // Inside of the first branch, the second one is joined, and the other way round.
            let third = Packed::new(one);
            packed.adopt_fn(|two| {
                two.join();
                third.adopt_fn(|one| one.join());
                notes.add("three");
            });
        });
    });
    assert_eq!(service.stats().open, 0);
}

#[test]
fn two_services_do_not_share_flows() {
    let (one, two) = (service(), service());
    let outer = one.world.inside(|| {
        let outer = info_span!("outer").entered();
        one.notes.add("one");
        outer
    });
    two.world.inside(|| {
        info_span!("inner").in_scope(|| {
            two.notes.add("two");
            assert_eq!(two.notes.seen(), ["two"]);
        });
    });
    assert_eq!(one.notes.seen(), ["one"]);
    // A branch of one service merges nothing in the other.
    let branch = branch_fn(|| one.notes.add("branch"));
    two.world.inside(|| info_span!("inner").in_scope(|| branch().join()));
    assert_eq!(one.stats().joins_outside, 1);
    drop(outer);
}

/// Two layers on one registry, each with flows of its own: a child is in the flow of each.
#[test]
fn two_layers_with_flows_of_their_own() {
    use tracing_subscriber::layer::SubscriberExt as _;
    let (one, two) = (service(), service());
    let both = tracing_subscriber::Registry::default()
        .with(one.world.astracer.layer.clone())
        .with(two.world.astracer.layer.clone());
    tracing::subscriber::with_default(both, || {
        info_span!("root").in_scope(|| {
            info_span!("child").in_scope(|| info_span!("grandchild").in_scope(|| ()));
            info_span!("next").in_scope(|| ());
        });
    });
    for service in [one, two] {
        assert_eq!(service.unmarked(), []);
        assert_eq!(service.stats().requests, 1);
        service.check_sums();
    }
}

/// Flows whose owner is gone: threads and wrappers may outlive it.
#[test]
fn flows_may_be_dropped_before_their_users() {
    let flows = Flows::default();
    let world = world(|builder| builder.with_observer(Arc::new(flows.clone())));
    let (branch, root) = world.inside(|| {
        let root = info_span!("root").entered();
        (async { flow::set("a", "b") }.branch(), root)
    });
    drop(flows);
    let done = world.inside(|| now(branch));
    assert!(done.join().is_ok());
    drop(root);
    drop(world);
    assert!(Span::current().is_none() && flow::with(|_| ()).is_err());
}
