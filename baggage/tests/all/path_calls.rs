//! Critical paths of calls to other processes, on clocks that are moved by hand.

use std::collections::HashMap;

use astracer_baggage::critical_path::{Measure, here};
use astracer_baggage::{Flow, Losses, Packed, branch_fn, zone};
use astracer_sdk::DroppedSpans;
use tracing::info_span;

use crate::critical_paths::{sampling, service_with};

/// A call to another process, which calls back into the first one's flows here.
#[test]
fn calls() {
    let (client, server) =
        (sampling("never", DroppedSpans::default()), sampling("always", DroppedSpans::default()));
    let both = |units| [&client, &server].iter().for_each(|service| service.work(units));
    // Clocks of two hosts have nothing in common.
    server.work(1_000_000);
    client.world.inside(|| {
        info_span!("request").in_scope(|| {
            both(1);
            let span = info_span!("call");
            let (call, headers) = span.in_scope(|| {
                both(2);
                let call = Flow::branch().unwrap();
                let mut headers = HashMap::new();
                call.inject(&mut headers);
                headers.insert("astracer-return".to_owned(), call.asked().to_string());
                (call, headers)
            });
            both(4);
            let answer = server.world.inside(|| {
                let flow = Flow::extract(&server.flows, &headers).unwrap();
                flow.run(|| {
                    info_span!("serve").in_scope(|| {
                        both(8);
                        info_span!("load").in_scope(|| both(16));
                        assert_eq!(here().unwrap().nanos, 24_000_000);
                        assert_eq!(here().unwrap().before_ns, 3_000_000);
                    });
                    // After the local root: for the caller that is the network's.
                    both(16);
                });
                flow.answer(2_048)
            });
            both(16);
            span.in_scope(|| call.merge_answer(&answer));
            drop(span);
            both(64);
        });
    });
    server.check(24, &[("serve", "work", 8), ("load", "work", 16)]);
    // The network took 4 and 32.
    let expected = [
        ("request", "work", 65),
        ("call", "work", 2),
        ("serve", "work", 8),
        ("load", "work", 16),
        ("call", "network", 36),
    ];
    client.check(127, &expected);
    let flows = [&client.flows, &server.flows].map(|flows| flows.stats().losses);
    assert_eq!(flows, [Losses::default(); 2]);
}

/// The client's own work in a call stays its own. The callee took a part of its last wait.
#[test]
fn a_client_that_connects_first() {
    let (client, server) =
        (sampling("never", DroppedSpans::default()), sampling("never", DroppedSpans::default()));
    let headers = HashMap::from([("astracer-return".to_owned(), "2048".to_owned())]);
    let answer = server.world.inside(|| {
        let flow = Flow::extract(&server.flows, &headers).unwrap();
        flow.run(|| info_span!("serve").in_scope(|| server.work(24)));
        flow.answer(2_048)
    });
    let own = client.clone();
    let others_work = |units: u64| {
        let own = own.clone();
        tokio::spawn(async move { own.work(units) });
        tokio::task::yield_now()
    };
    client.block_on(async {
        own.work(1);
        let call = Flow::branch().unwrap();
        {
            zone!("connect");
            own.work(2);
            others_work(4).await;
        }
        others_work(30).await;
        call.merge_answer(&answer);
        own.work(8);
    });
    let expected = [
        ("request", "work", 9),
        ("connect", "work", 2),
        ("connect", "network", 4),
        ("serve", "work", 24),
        ("request", "network", 6),
    ];
    client.check(45, &expected);
}

/// A peer that says nothing, and one whose answer is broken.
#[test]
fn opaque_calls() {
    for measure in [Measure::Wall, Measure::Productive] {
        let service = service_with(measure, |builder| builder);
        service.world.inside(|| {
            info_span!("request").in_scope(|| {
                service.work(1);
                let call = Flow::branch().unwrap();
                service.work(2);
                call.end_opaque("payments");
                let call = Flow::branch().unwrap();
                service.work(4);
                call.merge_answer("");
                service.work(8);
            });
        });
        service.check(15, &[("request", "work", 9), ("request", "opaque", 6)]);
    }
}

/// A root may end late: what its flow does after the last exit is not the request's.
#[test]
fn a_root_that_ends_late() {
    let service = sampling("never", DroppedSpans::default());
    let headers = HashMap::from([("astracer-return".to_owned(), "64".to_owned())]);
    service.world.inside(|| {
        Flow::extract(&service.flows, &headers).unwrap().run(|| {
            let root = info_span!("request");
            root.in_scope(|| service.work(2));
            service.work(1);
            branch_fn(|| service.work(4))().detach();
            service.work(8);
            drop(root);
        });
    });
    service.check(2, &[("request", "work", 2)]);
}

/// A local root in a branch ends its way where it was last exited, also if a span below it goes on:
/// the request has waited to be woken since then.
#[test]
fn a_root_in_a_branch_that_ends_late() {
    let service = sampling("never", DroppedSpans::default());
    service.world.inside(|| {
        info_span!("request").in_scope(|| {
            service.work(1);
            let answer = Packed::new(()).adopt_fn(|()| {
                let job = info_span!(parent: None, "job");
                job.in_scope(|| service.work(4));
                info_span!(parent: &job, "late").in_scope(|| service.work(8));
                drop(job);
                Packed::new(())
            });
            answer.merge();
            service.work(2);
        });
    });
    let rows = service.paths.rows();
    let lengths: Vec<(&str, u64)> = rows.iter().map(|row| (&*row.key, row.total_ns / 1_000_000)).collect();
    assert_eq!(lengths, [("request", 15), ("job", 4)]);
}
