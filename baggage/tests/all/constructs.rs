//! Each construct with which a Rust program forks and joins, in the real crate: with its mark, and
//! without, where the callsite is found or the task's flow is shared.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use astracer_baggage::{BranchExt as _, Fork, JoinStreamExt as _, Packed, branch_fn};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rayon::prelude::*;
use tokio::sync::{broadcast, oneshot};
use tokio::task::{JoinSet, LocalSet, spawn, spawn_blocking, spawn_local, yield_now};
use tracing::{Instrument as _, info_span, instrument};

use crate::service::{Notes, Service, service};

/// Runs a request with tokio, in its root span.
fn request(threads: usize, work: impl AsyncFnOnce(Notes)) -> Service {
    let service = service();
    let notes = service.notes.clone();
    service.block_on(threads, async { work(notes).instrument(info_span!("root")).await });
    service
}

async fn work(notes: Notes, name: &'static str) -> &'static str {
    async {
        yield_now().await;
        notes.add(name);
        assert!(notes.seen().contains(&"before".to_owned()), "the past of {name}");
        name
    }
    .instrument(info_span!("inner"))
    .await
}

/// Nothing is unmarked, every branch is counted, and all flows have ended.
#[track_caller]
fn marked(service: &Service, branches: u64) {
    assert_eq!(service.unmarked(), []);
    assert_eq!(service.stats().branches, branches);
    service.check_sums();
}

mod one_flow {
    use super::*;

    #[instrument(skip_all)]
    async fn instrumented(notes: &Notes, depth: u32) {
        notes.add(&depth.to_string());
        yield_now().await;
        if depth > 0 {
            Box::pin(instrumented(notes, depth - 1)).await;
        }
    }

    #[test]
    fn inline_await_and_instrument() {
        let service = request(1, async |notes| {
            instrumented(&notes, 3).await;
            async { notes.add("inline") }.await;
            assert_eq!(notes.seen(), ["0", "1", "2", "3", "inline"]);
        });
        marked(&service, 0);
    }

    /// Each poll is on another thread.
    #[test]
    fn a_task_that_moves_between_threads() {
        use std::task::{Context, Poll, Waker};
        let service = service();
        let notes = service.notes.clone();
        let mut task = service.world.inside(|| {
            let task = async move {
                for number in 0..4 {
                    info_span!("step").in_scope(|| notes.add(&number.to_string()));
                    yield_now().await;
                }
                notes.seen()
            };
            Box::pin(task.instrument(info_span!("root")))
        });
        for _ in 0..4 {
            let (stay, task) = (service.stay(), &mut task);
            thread::scope(|scope| {
                scope.spawn(move || {
                    stay();
                    assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                });
            });
        }
        let last = service.world.inside(|| task.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        assert_eq!(last, Poll::Ready(["0", "1", "2", "3"].map(str::to_owned).to_vec()));
        drop(task);
        marked(&service, 0);
    }

    use std::future::Future as _;
}

mod tasks {
    use super::*;

    #[test]
    fn spawn_on_one_thread_and_on_several() {
        for threads in [1, 2] {
            let service = request(threads, async |notes| {
                notes.add("before");
                let task = spawn(work(notes.clone(), "task").branch());
                notes.add("meanwhile");
                assert_eq!(task.joined().await.unwrap(), "task");
                assert_eq!(notes.seen(), ["before", "meanwhile", "task"]);
                // With a span of its own, inside or outside.
                let inside = spawn(work(notes.clone(), "inside").instrument(info_span!("own")).branch());
                let outside = spawn(work(notes.clone(), "outside").branch().instrument(info_span!("own")));
                inside.joined().await.unwrap();
                outside.joined().await.unwrap();
                assert_eq!(notes.seen().len(), 5);
            });
            marked(&service, 3);
        }
    }

    #[test]
    fn spawn_local_on_one_thread() {
        let service = request(1, async |notes| {
            notes.add("before");
            let local = LocalSet::new();
            let within = local.run_until(async {
                spawn_local(work(notes.clone(), "local").branch()).joined().await.unwrap();
            });
            within.await;
            assert_eq!(notes.seen(), ["before", "local"]);
        });
        marked(&service, 1);
    }

    #[test]
    fn spawn_blocking_with_a_closure() {
        let service = request(1, async |notes| {
            notes.add("before");
            let own = notes.clone();
            let blocking = spawn_blocking(branch_fn(move || own.add("blocking")));
            blocking.joined().await.unwrap();
            assert_eq!(notes.seen(), ["before", "blocking"]);
        });
        marked(&service, 1);
    }

    #[test]
    fn join_set() {
        let service = request(2, async |notes| {
            notes.add("before");
            let mut set = JoinSet::new();
            for name in ["a", "b", "c"] {
                set.spawn(work(notes.clone(), name).branch());
            }
            while let Some(name) = set.join_next().joined().await {
                let name = name.unwrap();
                assert!(notes.seen().iter().any(|seen| seen == name));
            }
            assert_eq!(notes.seen(), ["a", "b", "before", "c"]);
        });
        marked(&service, 3);
    }

    #[test]
    fn aborted_panicked_and_dropped_tasks_merge_nothing() {
        let service = request(1, async |notes| {
            notes.add("before");
            let pending = async {
                notes.add("never");
                std::future::pending::<()>().await;
            };
            // The task of the current thread's runtime is not polled before the abort.
            let own = notes.clone();
            let aborted = spawn(async move { own.add("never") }.branch());
            aborted.abort();
            assert!(aborted.joined().await.unwrap_err().is_cancelled());
            let own = notes.clone();
            let panicked = spawn(
                async move {
                    own.add("never");
                    panic!("expected");
                }
                .branch(),
            );
            assert!(panicked.joined().await.unwrap_err().is_panic());
            drop(pending.branch());
            assert_eq!(notes.seen(), ["before"]);
        });
        marked(&service, 3);
        assert_eq!(service.stats().dropped, 3);
    }

    /// A task whose span is a child of the request's, without a mark.
    #[test]
    fn unmarked_tasks_are_found() {
        let service = request(2, async |notes| {
            notes.add("before");
            let spawned = spawn(work(notes.clone(), "task").instrument(info_span!("spawned")));
            spawned.await.unwrap();
            let (own, span) = (notes.clone(), info_span!("blocking"));
            spawn_blocking(move || span.in_scope(|| own.add("blocking"))).await.unwrap();
            let mut set = JoinSet::new();
            set.spawn(work(notes.clone(), "set").instrument(info_span!("in a set")));
            set.join_next().await.unwrap().unwrap();
            let local = LocalSet::new();
            let task = local.run_until(async {
                spawn_local(work(notes.clone(), "local").instrument(info_span!("local"))).await.unwrap();
            });
            // The request's own thread polls it inside the request's span, so it is in the flow.
            task.await;
            assert_eq!(notes.seen(), ["before", "local"]);
        });
        let mut unmarked = service.unmarked();
        unmarked.sort();
        assert_eq!(unmarked, [("blocking", 1), ("in a set", 1), ("spawned", 1)]);
        assert_eq!(service.stats().open, 0);
    }

    /// A task without a span of the request is in no flow.
    #[test]
    fn a_task_without_a_span_knows_nothing() {
        let service = request(1, async |notes| {
            notes.add("before");
            spawn(async { assert!(astracer_baggage::flow::with(|_| ()).is_err()) }).await.unwrap();
        });
        marked(&service, 0);
    }
}

mod combinators {
    use super::*;

    #[test]
    fn join_and_try_join() {
        let service = request(1, async |notes| {
            notes.add("before");
            let (a, b) = tokio::join!(work(notes.clone(), "a").branch(), work(notes.clone(), "b").branch());
            assert_eq!(notes.seen(), ["before"]);
            a.join();
            assert_eq!(notes.seen(), ["a", "before"]);
            b.join();
            let failing = async { Err::<(), _>("expected") };
            let fine = async {
                notes.add("c");
                Ok::<_, &str>(())
            };
            let both = tokio::try_join!(fine.branch().joined(), failing.branch().joined());
            assert!(both.is_err());
            assert_eq!(notes.seen(), ["a", "b", "before", "c"]);
        });
        marked(&service, 4);
    }

    #[test]
    fn futures_unordered() {
        let service = request(1, async |notes| {
            notes.add("before");
            let futures: FuturesUnordered<_> =
                ["a", "b"].into_iter().map(|name| work(notes.clone(), name).branch()).collect();
            let mut joined = futures.joined();
            joined.get_mut().push(work(notes.clone(), "c").branch());
            while let Some(name) = joined.next().await {
                assert!(notes.seen().iter().any(|seen| seen == name));
            }
            assert_eq!(notes.seen(), ["a", "b", "before", "c"]);
        });
        marked(&service, 3);
    }

    #[test]
    fn losers_of_select_and_time_outs_are_dropped() {
        let service = request(1, async |notes| {
            notes.add("before");
            let slow = async {
                notes.add("loser");
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                done = slow.branch() => done.join(),
                done = work(notes.clone(), "winner").branch() => {
                    done.join();
                }
            }
            let late = async {
                notes.add("late");
                std::future::pending::<()>().await;
            };
            assert!(tokio::time::timeout(Duration::ZERO, late.branch()).joined().await.is_err());
            let quick = work(notes.clone(), "quick").branch();
            tokio::time::timeout(Duration::from_secs(60), quick).joined().await.unwrap();
            assert_eq!(notes.seen(), ["before", "quick", "winner"]);
        });
        marked(&service, 4);
        assert_eq!((service.stats().joined, service.stats().dropped), (2, 2));
    }

    /// Without a mark, they share the flow of their task: it knows all of them, in no order.
    #[test]
    fn unmarked_ones_share_the_tasks_flow() {
        let service = request(1, async |notes| {
            notes.add("before");
            let child = |name| work(notes.clone(), name).instrument(info_span!("child"));
            tokio::join!(child("a"), child("b"));
            let mut futures: FuturesUnordered<_> = ["c"].into_iter().map(child).collect();
            while futures.next().await.is_some() {}
            tokio::select! {
                _ = child("d") => {}
                () = std::future::pending() => {}
            }
            assert_eq!(notes.seen(), ["a", "b", "before", "c", "d"]);
        });
        marked(&service, 0);
    }
}

mod threads {
    use super::*;

    /// Runs a request on this thread.
    fn request(work: impl FnOnce(&Service)) -> Service {
        let service = service();
        service.world.inside(|| info_span!("root").in_scope(|| work(&service)));
        service
    }

    fn pool(service: &Service) -> rayon::ThreadPool {
        let stay = service.stay();
        rayon::ThreadPoolBuilder::new().num_threads(3).start_handler(move |_| stay()).build().unwrap()
    }

    #[test]
    fn spawned_and_scoped_threads() {
        let service = request(|service| {
            let notes = &service.notes;
            notes.add("before");
            let (own, stay) = (notes.clone(), service.stay());
            let handle = thread::spawn(branch_fn(move || {
                stay();
                own.add("spawned");
            }));
            handle.join().unwrap().join();
            thread::scope(|scope| {
                let scoped = scope.spawn(branch_fn(|| {
                    assert_eq!(notes.seen(), ["before", "spawned"]);
                    notes.add("scoped");
                }));
                scoped.join().unwrap().join();
            });
            assert_eq!(notes.seen(), ["before", "scoped", "spawned"]);
        });
        marked(&service, 2);
    }

    #[test]
    fn rayon_iterators_and_join() {
        let service = request(|service| {
            let notes = &service.notes;
            notes.add("before");
            let pool = pool(service);
            let fork = Fork::here();
            let sum: u64 = pool.install(|| {
                (0..100_u64)
                    .into_par_iter()
                    .map(|number| {
                        fork.run(|| {
                            info_span!("item").in_scope(|| notes.add(&format!("{number:02}")));
                            number
                        })
                    })
                    .sum()
            });
            fork.join();
            assert_eq!((sum, notes.seen().len()), (4950, 101));
            let (left, right) = (branch_fn(|| notes.add("left")), branch_fn(|| notes.add("right")));
            let (left, right) = pool.join(left, right);
            left.join();
            right.join();
            assert_eq!(notes.seen().len(), 103);
        });
        marked(&service, 103);
    }

    #[test]
    fn unmarked_threads_and_closures_are_found() {
        let service = request(|service| {
            let notes = &service.notes;
            notes.add("before");
            let stay = service.stay();
            let span = info_span!("thread");
            thread::scope(|scope| {
                scope.spawn(|| {
                    stay();
                    span.in_scope(|| notes.add("lost"));
                });
            });
            let pool = pool(service);
            let span = info_span!("rayon");
            pool.install(|| span.in_scope(|| notes.add("lost")));
            assert_eq!(notes.seen(), ["before"]);
        });
        let mut unmarked = service.unmarked();
        unmarked.sort();
        assert_eq!(unmarked, [("rayon", 1), ("thread", 1)]);
    }
}

mod channels {
    use super::*;

    /// An actor works in the flow of each message; its replies are merged.
    #[test]
    fn an_actor_with_replies() {
        let service = service();
        let notes = service.notes.clone();
        service.block_on(1, async {
            type Message = Packed<(tracing::Span, oneshot::Sender<Packed<u32>>)>;
            let (sender, mut inbox) = tokio::sync::mpsc::channel::<Message>(4);
            let own = notes.clone();
            let actor = spawn(async move {
                while let Some(message) = inbox.recv().await {
                    let handle = |(span, reply): (tracing::Span, oneshot::Sender<Packed<u32>>)| {
                        let own = own.clone();
                        async move {
                            own.add("actor");
                            let _ = reply.send(Packed::new(7));
                        }
                        .instrument(span)
                    };
                    message.adopt(handle).await;
                }
            });
            for name in ["one", "two"] {
                async {
                    notes.add(name);
                    let (reply, answer) = oneshot::channel();
                    let message = Packed::new((info_span!("handle"), reply));
                    assert!(sender.send(message).await.is_ok());
                    assert_eq!(answer.await.unwrap().merge(), 7);
                    let mut expected = vec!["actor", name];
                    expected.sort();
                    assert_eq!(notes.seen(), expected);
                }
                .instrument(info_span!("root"))
                .await;
            }
            drop(sender);
            actor.await.unwrap();
        });
        marked(&service, 4);
    }

    /// Each receiver of a broadcast gets a branch of its own.
    #[test]
    fn a_broadcast_splits() {
        let service = request(1, async |notes| {
            notes.add("before");
            let (sender, first) = broadcast::channel(4);
            let receivers = [first, sender.subscribe()];
            sender.send(Packed::new(())).unwrap();
            drop(sender);
            for (mut receiver, name) in receivers.into_iter().zip(["first", "second"]) {
                receiver.recv().await.unwrap().adopt_fn(|()| {
                    notes.add(name);
                    assert_eq!(notes.seen(), ["before", name]);
                });
            }
            assert_eq!(notes.seen(), ["before"]);
        });
        assert_eq!(service.unmarked(), []);
        service.check_sums();
        assert_eq!(service.stats().adopted, 2);
    }

    /// A queue of std, between threads: the worker's root takes the flow.
    #[test]
    fn a_worker_with_roots_of_its_own() {
        let service = service();
        let notes = &service.notes;
        thread::scope(|scope| {
            let (sender, inbox) = mpsc::channel::<Packed<u32>>();
            let stay = service.stay();
            scope.spawn(move || {
                stay();
                for message in inbox {
                    message.adopt_fn(|_| info_span!("job").in_scope(|| assert_eq!(notes.seen(), ["sent"])));
                }
            });
            service.world.inside(|| {
                info_span!("root").in_scope(|| {
                    notes.add("sent");
                    sender.send(Packed::new(1)).unwrap();
                });
            });
            drop(sender);
        });
        marked(&service, 1);
    }

    #[test]
    fn unmarked_messages_are_found() {
        let service = request(1, async |notes| {
            notes.add("before");
            let (sender, mut inbox) = tokio::sync::mpsc::channel::<tracing::Span>(4);
            let own = notes.clone();
            let worker = spawn(async move {
                while let Some(span) = inbox.recv().await {
                    span.in_scope(|| own.add("lost"));
                }
            });
            sender.send(info_span!("message")).await.unwrap();
            drop(sender);
            worker.await.unwrap();
            assert_eq!(notes.seen(), ["before"]);
        });
        assert_eq!(service.unmarked(), [("message", 1)]);
    }
}
