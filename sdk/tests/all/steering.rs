//! Changes at run time: their effect on decisions, and that no count is lost.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use astracer_samplers::Config;
use astracer_sdk::{Budget, KeyStats, Override, Reason};
use astracer_testing::Ids;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, SpanId, TraceId};
use tracing::info_span;

use crate::support::{World, sampling, world};

/// Traces a root with this name. Returns whether it was kept, and its trace id.
fn root(world: &World, name: &str) -> (bool, TraceId) {
    world.inside(|| {
        let _root = info_span!("root", otel.name = name).entered();
        let context = Context::current();
        let ids = context.span().span_context().clone();
        (ids.is_sampled(), ids.trace_id())
    })
}

fn kept(world: &World, name: &str, roots: usize) -> usize {
    (0..roots).filter(|_| root(world, name).0).count()
}

fn bucket(config: &str) -> World {
    sampling(config, |builder| builder)
}

fn key(world: &World, name: &str) -> KeyStats {
    world.handle.keys().into_iter().find(|stats| stats.key.as_deref() == Some(name)).unwrap()
}

#[test]
fn a_sampler_is_replaced_and_no_count_is_lost() {
    let world = bucket("bucket:capacity=3,rate=1");
    assert_eq!((kept(&world, "a", 10), kept(&world, "b", 2)), (3, 2));
    let handle = &world.handle;
    // A sampler of the same kind keeps its state: a's bucket is empty, and has the new capacity
    // from now on.
    handle.set_sampler(&"bucket:capacity=5,rate=1".parse().unwrap());
    assert_eq!(handle.sampler_config().unwrap().to_string(), "bucket:capacity=5,rate=1");
    assert_eq!((kept(&world, "a", 10), kept(&world, "b", 10)), (2, 3));
    // Another kind, then one without keys, then the first kind again.
    handle.set_sampler(&"bump:lambda=0.001".parse().unwrap());
    assert_eq!((kept(&world, "a", 10), kept(&world, "c", 1)), (1, 1));
    handle.set_sampler(&"never".parse().unwrap());
    assert_eq!(kept(&world, "a", 100), 0);
    handle.set_sampler(&"bucket:capacity=2,rate=1".parse().unwrap());
    assert_eq!(kept(&world, "a", 4), 2);
    let stats = |name| (key(&world, name).seen, key(&world, name).kept, key(&world, name).dropped());
    assert_eq!((stats("a"), stats("b"), stats("c")), ((34, 8, 26), (12, 5, 7), (1, 1, 0)));
    assert_eq!((key(&world, "a").tokens, key(&world, "c").tokens), (Some(0.0), None));
    let stats = handle.stats();
    assert_eq!((stats.roots_kept, stats.roots_dropped), (14, 133));
}

/// One thread changes the sampler, and another the replicas that share the cap. Each setting stays
/// as it was set last.
#[test]
fn changes_at_the_same_time_do_not_undo_each_other() {
    const CHANGES: u32 = 5_000;
    for budget in [None, Some(Budget::new(1e9).unwrap())] {
        let world = sampling("never", |builder| {
            let builder = builder.with_cap("traces=8".parse().unwrap());
            budget.clone().into_iter().fold(builder, |builder, budget| builder.with_budget(budget))
        });
        let handle = &world.handle;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 2..CHANGES {
                    let config: Config = format!("ratio:{}", 1.0 / f64::from(n)).parse().unwrap();
                    handle.set_sampler(&config);
                    assert_eq!(handle.sampler_config(), Some(config), "{budget:?}");
                }
            });
            scope.spawn(|| {
                for n in 2..CHANGES {
                    handle.set_replicas(NonZeroU32::new(n).unwrap());
                    let cap = handle.cap().unwrap().to_string();
                    assert!(cap.ends_with(&format!("replicas={n}")), "{budget:?}: {cap}, {n}");
                }
            });
        });
    }
}

#[test]
fn an_override_holds_for_its_time() {
    for config in ["never", "bucket:capacity=1,rate=0.000001", "ratio:0.000001"] {
        let world = bucket(config);
        let first = kept(&world, "GET /checkout", 1);
        let handle = &world.handle;
        handle.override_key("GET /checkout", Override::Keep, Duration::from_secs(600)).unwrap();
        assert_eq!((kept(&world, "GET /checkout", 9), kept(&world, "GET /other", 1)), (9, first));
        world.clock.advance(Duration::from_secs(500));
        let overrides = handle.overrides();
        assert_eq!(overrides["GET /checkout"], (Override::Keep, Duration::from_secs(100)));
        assert_eq!(kept(&world, "GET /checkout", 9), 9);
        world.clock.advance(Duration::from_secs(100));
        assert_eq!((handle.overrides().len(), kept(&world, "GET /checkout", 9)), (0, 0), "{config}");
        handle.override_key("GET /checkout", Override::Keep, Duration::MAX).unwrap();
        assert_eq!(kept(&world, "GET /checkout", 9), 9);
        handle.end_override("GET /checkout");
        assert_eq!(kept(&world, "GET /checkout", 9), 0);
        let spans = world.exported();
        assert!(spans.iter().any(|span| span.span_context.trace_state().header() == "ot=th:0"));
    }
    let world = bucket("bucket:capacity=9,rate=1");
    world.handle.override_key("a", Override::Drop, Duration::from_secs(1)).unwrap();
    assert_eq!(kept(&world, "a", 3), 0);
    assert_eq!((key(&world, "a").seen, key(&world, "a").dropped_by_override), (3, 3));
}

#[test]
fn overrides_are_bounded() {
    let world = bucket("never");
    let add =
        |n: usize| world.handle.override_key(&format!("key {n}"), Override::Keep, Duration::from_secs(9));
    assert!((0..1_000).all(|n| add(n).is_ok()));
    assert!(add(1_000).is_err() && add(5).is_ok());
    world.clock.advance(Duration::from_secs(9));
    assert!(add(1_000).is_ok());
}

#[test]
fn the_handle_reports_the_cap() {
    let world = world(|builder| {
        // The highest randomness, which no threshold rejects.
        let next = AtomicU64::new(1);
        let high = move || {
            let next = u128::from(next.fetch_add(1, Ordering::Relaxed));
            TraceId::from(next << 64 | 0xff_ffff_ffff_ffff)
        };
        let ids = Ids(high, || SpanId::from(1));
        builder.with_cap("traces=8,burst=8".parse().unwrap()).with_random_id_generator(ids)
    });
    assert_eq!(kept(&world, "a", 20), 8);
    assert_eq!(world.handle.cap_level(), Some(0.0));
    world.handle.set_replicas(NonZeroU32::new(2).unwrap());
    world.clock.advance(Duration::from_secs(60));
    assert_eq!(kept(&world, "a", 20), 4);
    assert_eq!(world.handle.cap().unwrap().to_string(), "traces=8,burst=8,replicas=2");
    world.clock.advance(Duration::from_secs(60));
    world.handle.set_cap(&"traces=8,burst=100,key_traces=1,key_burst=50".parse().unwrap());
    assert_eq!((kept(&world, "a", 90), kept(&world, "b", 90)), (50, 50));
    let stats = key(&world, "a");
    assert_eq!((stats.seen, stats.dropped_by_empty_cap), (90, 40));
    world.handle.set_cap(&"".parse().unwrap());
    assert_eq!(kept(&world, "a", 200), 200);
}

/// A dry run answers "What if I deployed Tuesday's file?"
#[test]
fn a_dry_run_counts_and_changes_nothing() {
    let world = bucket("every:2");
    world.handle.set_dry_run(Some(&"bucket:capacity=3,rate=1".parse().unwrap()));
    assert_eq!(kept(&world, "a", 10), 5);
    let stats = world.handle.dry_run().unwrap();
    // The sampler keeps calls 1, 3, 5, 7 and 9; the dry run's bucket would keep 1, 2 and 3.
    assert_eq!(
        (stats.both_kept, stats.only_kept_here, stats.only_kept_really, stats.both_dropped),
        (2, 1, 3, 4)
    );
    assert_eq!((stats.seen(), stats.kept_here(), stats.kept_really()), (10, 3, 5));
    world.handle.set_dry_run(None);
    assert!(world.handle.dry_run().is_none());
    assert_eq!(kept(&world, "a", 10), 5);
}

#[test]
fn a_decision_is_explained() {
    let world = sampling("bump:lambda=0.001,min=0.25", |builder| builder.with_explanations(1_000));
    let (kept, first) = root(&world, "GET /orders");
    assert!(kept);
    let second = (0..100).map(|_| root(&world, "GET /orders")).find(|(kept, _)| !kept).unwrap().1;
    let why = world.handle.why(first).unwrap();
    assert_eq!(
        (why.keep, why.reason, why.key.as_str(), why.probability),
        (true, Some(Reason::Bump), "GET /orders", Some(1.0))
    );
    let why = world.handle.why(second).unwrap();
    assert_eq!((why.keep, why.reason, why.probability), (false, Some(Reason::BumpMinimum), Some(0.25)));
    assert!(why.randomness < why.threshold.unwrap());
    let text = why.to_string();
    let expected = format!(
        "trace {second} of key \"GET /orders\" was dropped: the key's calls had brought bump down to its minimum probability; probability 0.250000, randomness "
    );
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.contains("is below threshold c0000000000000; "), "{text}");
    assert!(text.ends_with(" calls of the key were kept so far"), "{text}");
    assert!(world.handle.why(TraceId::from(1u128)).is_none());
}

/// A key of more than 88 bytes is counted under its prefix.
#[test]
fn a_decision_about_a_long_key_has_its_counts() {
    let world = sampling("bump:lambda=9", |builder| builder.with_explanations(9));
    let name = "GET /organizations/".repeat(9);
    let trace = root(&world, &name).1;
    assert_eq!(world.handle.why(trace).unwrap().counts, Some((1, 1)));
}

/// The number of remembered decisions does not depend on the number of threads. Later ones
/// overwrite them.
#[test]
fn as_many_decisions_are_remembered_as_were_asked_for() {
    let world = world(|builder| builder.with_explanations(16));
    let traces: Vec<_> = (0..16).map(|_| root(&world, "a").1).collect();
    assert!(traces.iter().all(|trace| world.handle.why(*trace).is_some()));
    let last = (0..100).fold(traces[0], |_, _| root(&world, "a").1);
    assert!(world.handle.why(traces[0]).is_none() && world.handle.why(last).is_some());
    // Without `with_explanations`, none is remembered.
    let silent = bucket("always");
    assert!(silent.handle.why(root(&silent, "a").1).is_none());
}

#[test]
fn parameters_are_replaced_by_those_of_a_text() {
    let world = bucket("bucket:capacity=3,rate=1");
    let handle = &world.handle;
    let text = "version = 3\n[bucket]\ncapacity = 7.0\nrate = 1.0\n[cap]\ntraces = 5.0\n";
    handle.set_parameters(text).unwrap();
    assert_eq!(handle.sampler_config().unwrap().to_string(), "bucket:capacity=7,rate=1");
    assert_eq!(handle.cap().unwrap().to_string(), "traces=5,burst=1.25");
    for (text, line, message) in [
        ("version = 3\n[bucket]\ncapacity = 0.5\nrate = 1.0\n", Some(3), "capacity=0.5"),
        ("version = 3\n[bucket]\ncapaci", Some(3), ""),
        ("version = 3\n[never]\n[key]\nnames = \"raw\"\n", None, "key rule"),
        ("version = 3\nrandom = \"stratified\"\n[never]\n", None, "random"),
        ("", Some(1), "version"),
    ] {
        let error = handle.set_parameters(text).unwrap_err();
        assert_eq!(error.line(), line, "{text}: {error}");
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(handle.sampler_config().unwrap().to_string(), "bucket:capacity=7,rate=1");
    }
}

/// Roots of the key `a` that are not decided yet.
fn undecided(world: &World, count: usize) -> Vec<tracing::Span> {
    world.inside(|| (0..count).map(|_| info_span!("root", otel.name = "a")).collect())
}

/// Uses these roots. Returns how many of them are kept.
fn kept_of(world: &World, roots: &[tracing::Span]) -> usize {
    let is_kept = || Context::current().span().span_context().is_sampled();
    world.inside(|| roots.iter().filter(|root| root.in_scope(is_kept)).count())
}

/// A root is decided at its first use. If it was created long before, the decision uses the key's
/// state of that moment, after the calls in between.
#[test]
fn a_root_that_waited_for_its_first_use_finds_its_key_as_it_is_by_then() {
    for (sampler, calls, kept_by_then) in
        [("bucket:capacity=3,rate=0.001", 9, 3), ("bump:lambda=0,min=0,window=60s", 2, 1)]
    {
        let world = bucket(sampler);
        let old = undecided(&world, 3);
        world.clock.advance(Duration::from_secs(240));
        assert_eq!(kept(&world, "a", calls), kept_by_then, "{sampler}");
        assert_eq!((kept_of(&world, &old), kept(&world, "a", calls)), (0, 0), "{sampler}");
    }
}

/// The same without decisions in between, and with a clock that was set back.
#[test]
fn the_time_of_a_decision_is_that_of_the_clock_wherever_it_went() {
    let world = bucket("bucket:capacity=3,rate=0.01");
    let old = undecided(&world, 9);
    world.clock.advance(Duration::from_secs(3_600));
    assert_eq!(kept_of(&world, &old), 3, "a full bucket");
    assert_eq!(kept(&world, "a", 9), 0, "the old roots used up the bucket");
    world.clock.advance(Duration::from_secs(100));
    let future = undecided(&world, 9);
    world.clock.set_back(Duration::from_secs(3_000));
    // The bucket stays empty, and gets a token after 100 s.
    assert_eq!(kept(&world, "a", 9), 0);
    world.clock.advance(Duration::from_secs(100));
    assert_eq!(kept_of(&world, &future), 1);
    world.clock.advance(Duration::from_secs(100));
    assert_eq!(kept(&world, "a", 9), 1, "an earlier time does not hold the bucket back");
}
