//! Late keeping with functions that misbehave.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use astracer_sdk::{Handle, ProvisionalMode};
use tracing::field::{self, debug, display};
use tracing::{error, info_span};

use crate::late::{check_sums, dropping, names, request, requests, tail};
use crate::support::{TIMEOUT, world};

/// The function creates several traces in one call, and sees none of them.
#[test]
fn a_function_that_makes_several_traces_is_put_none_of_them() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let world = world(|builder| {
        let builder = builder.with_sampler("never".parse().unwrap()).with_tail(tail("own:traces,error"));
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
    check_sums(&world.handle);
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
        let world = world(|builder| {
            let builder = builder.with_sampler("never".parse().unwrap()).with_explanations(64);
            builder.with_tail(tail("own:uses,error")).with_own_policy("uses", move |trace| {
                uses(own.get().unwrap(), trace.trace_id());
                false
            })
        });
        handle.set(world.handle.clone()).unwrap();
        tracing::dispatcher::with_default(&world.dispatch, || {
            requests(3, false);
            let open = info_span!("open");
            request(true);
            drop(open);
        });
        let _ = world.handle.shutdown(TIMEOUT);
        check_sums(&world.handle);
    }
}

/// The same field values are errors in a recorded root, in an unrecorded one, and in a span below.
#[test]
fn a_field_says_the_same_whether_its_trace_is_recorded() {
    type Record = fn(&tracing::Span);
    let records: [(Record, bool); 19] = [
        (|span| _ = span.record("error", true), true),
        (|span| _ = span.record("error", false), false),
        (|span| _ = span.record("error", 1), true),
        (|span| _ = span.record("error", 0), false),
        (|span| _ = span.record("error", 0_u64), false),
        (|span| _ = span.record("error", 7_u64), true),
        (|span| _ = span.record("error", 0_i128), false),
        (|span| _ = span.record("error", 0.0), false),
        (|span| _ = span.record("error", 0.5), true),
        (|span| _ = span.record("error", ""), false),
        (|span| _ = span.record("error", "0"), false),
        (|span| _ = span.record("error", "false"), false),
        (|span| _ = span.record("error", "no route"), true),
        (|span| _ = span.record("error", display(false)), false),
        (|span| _ = span.record("error", display("timeout")), true),
        (|span| _ = span.record("otel.status_code", "error"), true),
        (|span| _ = span.record("otel.status_code", debug("OK")), false),
        (|span| _ = span.record("otel.status_code", debug("ERROR")), false),
        (|span| _ = span.record("otel.status_description", "no route"), true),
    ];
    for (at, (record, is_error)) in records.into_iter().enumerate() {
        for provisional in [ProvisionalMode::Never, ProvisionalMode::Always] {
            for is_below in [false, true] {
                let world = dropping(tail("error").with_provisional(provisional));
                world.run(|| {
                    let span = || {
                        let status = (field::Empty, field::Empty);
                        info_span!(
                            "span",
                            error = field::Empty,
                            otel.status_code = status.0,
                            otel.status_description = status.1
                        )
                    };
                    let root = span();
                    root.in_scope(|| if is_below { record(&span()) } else { record(&root) });
                });
                let errors = world.handle.outcomes()[0].errors;
                assert_eq!(errors, u64::from(is_error), "{at}, {provisional}, below: {is_below}");
            }
        }
    }
}
