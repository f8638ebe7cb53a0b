//! Late keeping with functions of the service: those that misbehave, and what they may do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use astracer_sdk::{Astracer, Handle, ManualClock, Tail};
use tracing::{error, info_span};

use crate::late::{late, names, request, requests, tail};
use crate::support::TIMEOUT;

/// The function creates several traces in one call, and sees none of them.
#[test]
fn a_function_that_makes_several_traces_is_put_none_of_them() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let world = late(tail("own:traces,error"), |builder| {
        builder.with_own_policy("traces", move |_| {
            // Stops before the stack overflows.
            if counted.fetch_add(1, Ordering::Relaxed) < 100 {
                (0..3).for_each(|_| info_span!("inside").in_scope(|| error!("failed")));
            }
            false
        })
    });
    let spans = world.run(|| requests(2, false));
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert_eq!(names(&spans), ["inside"; 6]);
}

/// A function may call anything on the handle, because no lock is held while it runs.
#[test]
fn a_function_may_use_the_handle() {
    type Use = fn(&Handle, opentelemetry::TraceId);
    let uses: [Use; 8] = [
        |handle, id| _ = handle.keep(id),
        |handle, _| _ = handle.stats(),
        |handle, id| _ = handle.why(id),
        |handle, _| _ = handle.outcomes(),
        |handle, _| _ = handle.flush(Duration::from_secs(5)),
        |handle, _| _ = handle.keep_where(|_| true),
        |handle, _| _ = handle.keep_where(|_| false),
        |handle, _| _ = handle.shutdown(Duration::from_secs(5)),
    ];
    for uses in uses {
        let handle = Arc::new(OnceLock::<Handle>::new());
        let own = handle.clone();
        let world = late(tail("own:uses,error"), |builder| {
            builder.with_explanations(64).with_own_policy("uses", move |trace| {
                uses(own.get().unwrap(), trace.trace_id());
                false
            })
        });
        handle.set(world.handle.clone()).unwrap();
        world.inside(|| {
            requests(3, false);
            let open = info_span!("open");
            request(true);
            drop(open);
        });
        let _ = world.handle.shutdown(TIMEOUT);
    }
}

#[test]
fn a_function_that_panics_is_switched_off() {
    let world = late(tail("own:panics,error"), |builder| {
        builder.with_own_policy("panics", |_| std::panic::resume_unwind(Box::new("refused")))
    });
    let spans = world.run(|| {
        requests(40, false);
        request(true);
    });
    assert_eq!(names(&spans), ["GET /cart", "query"], "the policies after it still apply");
    let faults = &world.handle.stats().tail.own_faults[0];
    assert_eq!((&*faults.name, faults.panics, faults.switched_off), ("panics", 16, true));
}

/// The function's time is measured by the service's clock. 10 ms are still allowed.
#[test]
fn a_function_that_takes_long_is_switched_off() {
    for (millis, slow) in [(10, 0), (11, 16)] {
        let clock = Arc::new(OnceLock::<ManualClock>::new());
        let hand = clock.clone();
        let world = late(tail("own:slow"), |builder| {
            builder.with_own_policy("slow", move |_| {
                hand.get().unwrap().advance(Duration::from_millis(millis));
                true
            })
        });
        clock.set(world.clock.clone()).unwrap();
        let spans = world.run(|| requests(40, false));
        let faults = &world.handle.stats().tail.own_faults[0];
        assert_eq!((faults.slow, faults.panics, faults.switched_off), (slow, 0, slow > 0));
        // The default budget of a key is a burst of ten, and one per 100 ms.
        assert_eq!(spans.len(), 2 * if slow > 0 { 11 } else { 13 });
    }
}

#[test]
fn a_policy_without_its_function_is_refused() {
    let builder = Astracer::builder().with_tail("error,own:vip".parse().unwrap());
    let error = builder.build().unwrap_err();
    assert!(error.to_string().contains("with_own_policy(\"vip\""), "{error}");
}

/// A trace's reason is stored in a field that has values for this many policies.
#[test]
fn more_policies_than_there_may_be_are_refused() {
    let mut tail: Tail = ["slow:1h"; 64].join(",").parse().unwrap();
    let build = |tail: &Tail| Astracer::builder().with_tail(tail.clone()).build();
    assert!(build(&tail).is_ok());
    tail.rules.extend("error".parse::<Tail>().unwrap().rules);
    let error = build(&tail).err().unwrap();
    assert!(error.to_string().contains("65 policies given, but at most 64 are supported"), "{error}");
}

/// A function may take any time, so none is called after the deadline of a shutdown.
#[test]
fn no_function_is_asked_when_the_time_of_a_shutdown_is_over() {
    for (timeout, calls) in [(Duration::ZERO, 0), (TIMEOUT, 5)] {
        let asked = Arc::new(AtomicU64::new(0));
        let counts = asked.clone();
        let world = late(tail("own:asks,error"), |builder| {
            builder.with_own_policy("asks", move |_| counts.fetch_add(1, Ordering::Relaxed) > 9)
        });
        world.inside(|| {
            let open: Vec<_> = (0..5).map(|_| info_span!("root")).collect();
            open.iter().for_each(|root| root.in_scope(|| info_span!("child").in_scope(|| ())));
            let _ = world.handle.shutdown(timeout);
        });
        assert_eq!(asked.load(Ordering::Relaxed), calls, "{timeout:?}");
        assert_eq!(world.handle.stats().tail.spans_given_up.shut_down, 10);
    }
}
