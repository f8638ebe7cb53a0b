//! Held traces, requested by id or chosen by a function.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::TraceId;
use tracing::{info, info_span};

use crate::late::{dropping, names, part_of, reason, request, requests, tail, trace_of};

#[test]
fn a_trace_that_is_held_can_be_kept_with_its_late_children() {
    let world = dropping(tail("error"));
    let mut ids = Vec::new();
    world.inside(|| {
        ids.push(request(false));
        let root = info_span!("GET /job");
        let late = root.in_scope(|| info_span!("writes behind"));
        ids.push(trace_of(&root));
        drop(root);
        late.in_scope(|| info!("after its root"));
        drop(late);
        assert!(world.handle.keep(ids[1]));
        assert!(!world.handle.keep(ids[1]), "a trace is found only once");
        assert!(!world.handle.keep(TraceId::from(77)));
    });
    let spans = world.exported();
    assert_eq!(names(&spans), ["GET /job", "writes behind"]);
    assert!(spans.iter().all(|span| reason(span).as_deref() == Some("hand")));
    // After the hold, the other trace is gone.
    world.clock.advance(Duration::from_secs(3));
    world.inside(|| requests(100, false));
    assert!(!world.handle.keep(ids[0]));
    assert_eq!(world.exported().len(), 2);
    let stats = world.handle.stats();
    assert_eq!((stats.tail.kept_by_hand, stats.tail.traces_given_up.unwanted), (1, 1));
    assert_eq!((stats.tail.traces_held, stats.tail.not_there), (100, 2));
}

/// The function creates traces, which the ring holds. If it were called for those too, it would
/// create more and never end.
#[test]
fn a_function_that_chooses_is_asked_about_what_was_there() {
    let world = dropping(tail("error"));
    let (asked, dispatch) = (Arc::new(AtomicU64::new(0)), world.dispatch.clone());
    world.inside(|| requests(20, false));
    let counts = asked.clone();
    world.handle.keep_where(move |_| {
        assert!(counts.fetch_add(1, Ordering::Relaxed) < 20);
        tracing::dispatcher::with_default(&dispatch, || requests(30, false));
        false
    });
    assert_eq!(asked.load(Ordering::Relaxed), 20);
    assert_eq!(world.handle.stats().tail.traces_held, 20 + 20 * 30);
    assert_eq!(world.handle.keep_where(|_| true), 20 + 20 * 30);
}

/// A choosing function is not a policy: it is called for all traces, even if it is slow or panics.
#[test]
fn a_function_that_chooses_is_not_switched_off() {
    let world = dropping(tail("error"));
    let (mut kept, clock) = (0, world.clock.clone());
    world.run(|| {
        requests(40, false);
        world.handle.keep_where(|_| std::panic::resume_unwind(Box::new("refused")));
        kept = world.handle.keep_where(move |_| {
            clock.advance(Duration::from_millis(11));
            true
        });
    });
    assert_eq!(kept, 40);
}

/// While the function sees a trace, the trace is out of the ring. If the function requests it, it
/// is kept when it returns to the ring.
#[test]
fn a_trace_requested_during_the_functions_call_is_kept() {
    let world = dropping(tail("error"));
    let mut ids = Vec::new();
    world.inside(|| ids = (0..20).map(|_| request(false)).collect());
    let (handle, wanted) = (world.handle.clone(), ids[7]);
    let kept = world.handle.keep_where(move |trace| {
        assert!(trace.trace_id() != wanted || !handle.keep(wanted), "the examined trace is out of the ring");
        false
    });
    assert_eq!(kept, 0, "the function chose none");
    let spans = world.exported();
    assert_eq!(names(&spans), ["GET /cart", "query"]);
    assert!(spans.iter().all(|span| span.span_context.trace_id() == wanted));
    let stats = world.handle.stats().tail;
    assert_eq!((stats.kept_by_hand, stats.not_there, stats.traces_held), (1, 0, 19));
}

/// A trace that the function chooses counts as found, even if another request in the meantime did
/// not find it.
#[test]
fn a_chosen_trace_does_not_count_as_missing() {
    let world = dropping(tail("error"));
    world.inside(|| requests(3, false));
    let handle = world.handle.clone();
    let kept = world.handle.keep_where(move |trace| {
        handle.keep(trace.trace_id());
        handle.keep_for_caller(&trace.trace_id().to_string());
        true
    });
    let stats = world.handle.stats().tail;
    assert_eq!((kept, stats.kept_by_hand, stats.kept_by_caller, stats.not_there), (3, 3, 0, 0));
}

/// Ids from callers are bounded in number, and do not evict ids that the service itself requests.
#[test]
fn requests_of_callers_do_not_displace_those_by_hand() {
    let world = dropping(tail("error"));
    let spans = world.run(|| {
        let root = info_span!("root").entered();
        world.handle.keep(trace_of(&root));
        for made_up in 1..=2_900_u128 {
            world.clock.advance(Duration::from_millis(10));
            assert_eq!(world.handle.keep_for_caller(&TraceId::from(made_up).to_string()), 1);
        }
        drop(root);
    });
    assert_eq!(names(&spans), ["root"]);
    assert_eq!(world.handle.stats().tail.not_there, 2_900);
}

/// A caller's request keeps the held parts and one later part, because requests have a budget.
#[test]
fn a_callers_request_covers_one_arriving_part() {
    for asks in 0..4 {
        let world = dropping(tail("error"));
        let id = TraceId::from(7);
        let spans = world.run(|| {
            (0..asks).for_each(|_| _ = world.handle.keep_for_caller(&id.to_string()));
            (0..5).for_each(|_| part_of(7, || info_span!("second")).in_scope(|| ()));
        });
        assert_eq!(spans.len(), asks);
        let stats = world.handle.stats().tail;
        assert_eq!(
            (stats.kept_by_caller, stats.not_there, stats.traces_held),
            (asks as u64, 0, 5 - asks as u64)
        );
        world.run(|| {
            world.handle.keep_for_caller(&id.to_string());
            (0..2).for_each(|_| part_of(7, || info_span!("first")).in_scope(|| ()));
        });
        assert_eq!(world.collector.spans().len(), 6);
    }
}

/// A request is remembered for the maximum age of an open trace. A later request of a caller does
/// not extend that.
#[test]
fn each_request_of_a_caller_expires_separately() {
    let world = dropping(tail("error"));
    let id = TraceId::from(7);
    let spans = world.run(|| {
        for seconds in [25, 15] {
            world.handle.keep_for_caller(&id.to_string());
            world.clock.advance(Duration::from_secs(seconds));
        }
        (0..2).for_each(|_| part_of(7, || info_span!("first")).in_scope(|| ()));
    });
    assert_eq!(names(&spans), ["first"]);
    assert_eq!(world.handle.stats().tail.not_there, 1);
}

/// A trace that was requested before it ended is kept if it ends within the maximum age of an open
/// trace after the last request. If the clock was set back meanwhile, the request has expired.
#[test]
fn a_request_is_remembered_for_the_age_of_a_trace() {
    type Times<'a> = &'a [i64];
    let cases: [(Times<'_>, bool); 4] =
        [(&[30], true), (&[31], false), (&[25, 15], true), (&[-3_590], false)];
    for (times, comes) in cases {
        let world = dropping(tail("error"));
        world.clock.advance(Duration::from_secs(3_600));
        let spans = world.run(|| {
            for seconds in times {
                assert!(!world.handle.keep(TraceId::from(7)));
                let time = Duration::from_secs(seconds.unsigned_abs());
                if *seconds > 0 { world.clock.advance(time) } else { world.clock.set_back(time) }
            }
            part_of(7, || info_span!("first")).in_scope(|| ());
        });
        assert_eq!(spans.len(), usize::from(comes), "{times:?}");
        assert_eq!(world.handle.stats().tail.not_there, u64::from(!comes), "{times:?}");
    }
}

/// Parts whose roots are open when the trace is requested are kept with the held parts.
#[test]
fn all_parts_of_a_trace_are_kept_together() {
    let world = dropping(tail("error"));
    let part = |name: &'static str| part_of(7, || info_span!("part", otel.name = name));
    let spans = world.run(|| {
        let open = [part("open"), part("open")];
        open.iter().for_each(|root| root.in_scope(|| ()));
        ["held", "held"].iter().for_each(|name| part(name).in_scope(|| ()));
        assert!(world.handle.keep(TraceId::from(7)));
        drop(open);
        world.clock.advance(Duration::from_secs(31));
        part("too late").in_scope(|| ());
    });
    assert_eq!(names(&spans), ["held", "held", "open", "open"]);
    assert!(spans.iter().all(|span| reason(span).as_deref() == Some("hand")));
    let stats = world.handle.stats().tail;
    assert_eq!((stats.kept_by_hand, stats.not_there, stats.traces_held), (4, 0, 1));
}
