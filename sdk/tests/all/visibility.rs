//! Spans below a dropped root, visible and disabled. Each test has a row in docs/tracing-layer.md.

use astracer_sdk::DroppedSpans;
use astracer_testing::{SplitMix, size};
use opentelemetry::trace::TraceContextExt as _;
use tracing::{Dispatch, Span, info, info_span};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer, Registry, reload};

use crate::late::{all_leave, dropping, tail};
use crate::support::{Row, Seen, World, draw, one, sampling, world};

/// Our layer, which keeps the first of two roots, with another layer beside it. Calls `f` with a
/// kept span, inside a dropped root.
fn below_dropped(dropped_spans: DroppedSpans, f: impl FnOnce(&World, &Span)) -> (World, Seen) {
    let world = sampling("every:2", |builder| builder.with_dropped_spans(dropped_spans));
    let other = Seen::default();
    let dispatch = Dispatch::new(Registry::default().with(world.astracer.layer.clone()).with(other.clone()));
    tracing::dispatcher::with_default(&dispatch, || {
        let kept = info_span!("kept");
        kept.in_scope(|| ());
        let _dropped = info_span!("dropped").entered();
        f(&world, &kept);
    });
    (world, other)
}

#[test]
fn a_span_exists_for_all_other_layers_or_none() {
    for (dropped_spans, expected) in [
        (DroppedSpans::Visible, vec!["kept", "dropped", "plain", "client"]),
        (DroppedSpans::Disabled, vec!["kept", "dropped", "client"]),
    ] {
        let (_, other) = below_dropped(dropped_spans, |_, _| {
            assert_eq!(info_span!("plain").is_disabled(), dropped_spans == DroppedSpans::Disabled);
            assert!(!info_span!("client", otel.kind = "client").is_disabled());
        });
        assert_eq!(other.spans(), expected);
    }
}

/// A `Vec` of layers has the highest interest of its layers, after which `tracing` does not ask
/// whether a span is enabled.
#[test]
fn in_a_vec_another_layer_makes_the_spans_visible() {
    let span = tracing::subscriber::with_default(Registry::default(), || info_span!("plain"));
    let metadata = span.metadata().unwrap();
    let world = world(|builder| builder.with_dropped_spans(DroppedSpans::Disabled));
    let layer = || world.astracer.layer.clone().boxed();
    let alone = Dispatch::new(Registry::default().with(vec![layer()]).with(Seen::default()));
    assert!(alone.register_callsite(metadata).is_sometimes());
    let beside = Dispatch::new(Registry::default().with(vec![layer(), Seen::default().boxed()]));
    assert!(beside.register_callsite(metadata).is_always());
}

#[test]
fn a_visible_span_has_an_entry_and_a_disabled_one_none() {
    const SPANS: usize = 10_000;
    let bytes = |dropped_spans| {
        let mut bytes = 0;
        below_dropped(dropped_spans, |world, _| {
            let open: Vec<Span> = (0..SPANS).map(|_| info_span!("open")).collect();
            bytes = world.handle.stats().open_bytes as usize;
            drop(open);
        });
        bytes
    };
    assert!(bytes(DroppedSpans::Visible) >= SPANS * 192);
    assert!(bytes(DroppedSpans::Disabled) < 16 * 1024);
}

#[test]
fn events_reach_other_layers() {
    for (dropped_spans, around) in [(DroppedSpans::Visible, "below"), (DroppedSpans::Disabled, "dropped")] {
        let (_, other) =
            below_dropped(dropped_spans, |_, _| info_span!("below").in_scope(|| info!("an event")));
        assert_eq!(other.events(), [Some(around)]);
    }
}

#[test]
fn tracing_asks_enabled_before_it_names_the_parent() {
    for (dropped_spans, expected) in
        [(DroppedSpans::Visible, "alone\nkept\n  child\n"), (DroppedSpans::Disabled, "kept\n")]
    {
        let (world, _) = below_dropped(dropped_spans, |_, kept| {
            info_span!(parent: kept, "child").in_scope(|| ());
            info_span!(parent: None, "alone").in_scope(|| ());
        });
        let spans = world.exported();
        assert_eq!(draw(&spans), expected, "{dropped_spans:?}");
        one(&spans, "kept");
    }
}

#[test]
fn each_refusal_is_counted_whatever_else_would_have_refused() {
    for (dropped_spans, expected) in [(DroppedSpans::Visible, 0), (DroppedSpans::Disabled, 3)] {
        let world = sampling("never", |builder| builder.with_dropped_spans(dropped_spans));
        // `tracing` asks this filter after our layer, because it is below ours.
        let subscriber = Registry::default().with(LevelFilter::INFO).with(world.astracer.layer.clone());
        tracing::dispatcher::with_default(&Dispatch::new(subscriber), || {
            let _dropped = info_span!("dropped").entered();
            drop(info_span!("a span"));
            drop(info_span!("another"));
            let _ = tracing::span_enabled!(tracing::Level::INFO);
        });
        assert_eq!(world.handle.stats().refusals, expected, "{dropped_spans:?}");
    }
}

/// The rows of the document's table.
pub(crate) const ROWS: &[Row] = &[
    ("a span below a dropped root", a_span_exists_for_all_other_layers_or_none),
    ("cost", a_visible_span_has_an_entry_and_a_disabled_one_none),
    ("events below a dropped root", events_reach_other_layers),
    (
        "a task spawned with such a span",
        crate::threads::in_exclusive_mode_a_refused_span_s_task_begins_a_trace,
    ),
    (
        "a span with `parent: None`, or with a parent in a kept trace",
        tracing_asks_enabled_before_it_names_the_parent,
    ),
    ("`Stats::refusals`", each_refusal_is_counted_whatever_else_would_have_refused),
];

/// If a per-layer filter turns off while spans are exited, the thread must not remain inside them.
#[test]
fn a_filter_may_change_while_spans_are_entered() {
    for dropped_spans in [DroppedSpans::Visible, DroppedSpans::Disabled] {
        for (sampler, kept) in [("never", false), ("always", true)] {
            let world = sampling(sampler, |builder| builder.with_dropped_spans(dropped_spans));
            let (filter, handle) = reload::Layer::new(LevelFilter::INFO);
            let layer = world.astracer.layer.clone().with_filter(filter);
            tracing::dispatcher::with_default(&Dispatch::new(Registry::default().with(layer)), || {
                let root = info_span!("root").entered();
                let child = info_span!("child").entered();
                handle.reload(LevelFilter::OFF).unwrap();
                drop(child);
                drop(root);
                info_span!("unseen").in_scope(|| ());
                handle.reload(LevelFilter::INFO).unwrap();
                info_span!("next").in_scope(|| ());
            });
            let stats = world.handle.stats();
            let roots = (stats.roots_kept, stats.roots_dropped);
            assert_eq!(roots, if kept { (2, 0) } else { (0, 2) }, "{dropped_spans:?}, {sampler}");
            let spans = world.exported();
            assert_eq!(spans.len(), if kept { 3 } else { 0 }, "{dropped_spans:?}, {sampler}");
            if kept {
                assert_eq!(draw(&spans), "root\n  child\nnext\n", "{dropped_spans:?}");
            }
        }
    }
}

/// Registries use the same ids. A layer that is set by reload does not learn which registry it is
/// on.
#[test]
fn layers_added_by_reload_distinguish_their_spans() {
    let world = world(|builder| builder);
    let with_slot = || {
        let (slot, handle) = reload::Layer::new(None::<astracer_sdk::AstracerLayer>);
        let dispatch = Dispatch::new(Registry::default().with(slot));
        handle.reload(Some(world.astracer.layer.clone())).unwrap();
        dispatch
    };
    let (here, there) = (with_slot(), with_slot());
    let root = |dispatch, name: &str| {
        tracing::dispatcher::with_default(dispatch, || info_span!("span", otel.name = name))
    };
    let (a, b) = (root(&here, "a"), root(&there, "b"));
    assert_eq!(a.id(), b.id());
    for (dispatch, span) in [(&here, &a), (&there, &b)] {
        tracing::dispatcher::with_default(dispatch, || {
            span.in_scope(|| info_span!("child").in_scope(|| ()));
        });
    }
    drop((a, b));
    assert_eq!(draw(&world.exported()), "a\n  child\nb\n  child\n");
}

/// Spans end unnoticed while the layer is away. When it is back, other spans have their ids.
#[test]
fn a_layer_removed_and_restored_by_reload_records_new_spans() {
    const SPANS: usize = 100;
    let world = world(|builder| builder);
    let (slot, handle) = reload::Layer::new(None::<astracer_sdk::AstracerLayer>);
    let dispatch = Dispatch::new(Registry::default().with(slot));
    tracing::dispatcher::with_default(&dispatch, || {
        handle.reload(Some(world.astracer.layer.clone())).unwrap();
        let open: Vec<_> = (0..SPANS).map(|_| info_span!("open")).collect();
        // The sampler decides on them here.
        open.iter().for_each(|span| span.in_scope(|| ()));
        handle.reload(None).unwrap();
        drop(open);
        handle.reload(Some(world.astracer.layer.clone())).unwrap();
        let _later: Vec<_> = (0..SPANS).map(|_| info_span!("later").entered()).collect();
    });
    let spans = world.exported();
    assert_eq!(spans.iter().filter(|span| span.name == "later").count(), SPANS);
    // The layer never received the ends of the spans that were open.
    let stats = world.handle.stats();
    assert_eq!((stats.spans_lost.open_spans, stats.spans_lost.total()), (SPANS as u64, SPANS as u64));
    assert_eq!((stats.spans_open, stats.traces_open), (0, 0));
}

/// The layer never receives the ends of recorded traces that were open. A trace without an ended
/// span gives its slot back at once, since policies have nothing to examine; another leaves at the
/// maximum age.
#[test]
fn a_layer_removed_by_reload_frees_its_slots() {
    const TRACES: usize = 100;
    let world = dropping(tail("error()"));
    let (slot, handle) = reload::Layer::new(None::<astracer_sdk::AstracerLayer>);
    let open_traces = || world.handle.stats().tail.traces_open;
    tracing::dispatcher::with_default(&Dispatch::new(Registry::default().with(slot)), || {
        handle.reload(Some(world.astracer.layer.clone())).unwrap();
        let open: Vec<_> = (0..TRACES).map(|_| info_span!("open")).collect();
        open.iter().for_each(|span| span.in_scope(|| ()));
        open[0].in_scope(|| info_span!("step").in_scope(|| ()));
        assert_eq!(open_traces(), TRACES as u64);
        handle.reload(None).unwrap();
        drop(open);
        assert_eq!(open_traces(), 1);
    });
    world.inside(|| all_leave(&world));
    let stats = world.handle.stats();
    assert_eq!((stats.tail.traces_given_up.late, stats.spans_open), (TRACES as u64, 0));
}

/// A thread enters and exits spans of kept and dropped traces in any order while the layer is
/// replaced. Afterwards the thread is as before: no context is current, and the next trace begins
/// as the first one did. In a dropped trace, spans rely on the context that the outermost one has
/// attached.
#[test]
fn a_layer_that_is_replaced_at_any_time_leaves_nothing_behind() {
    for seed in 0..size(30, 200) {
        println!("seed {seed}");
        let mut random = SplitMix::new(seed);
        let sampler = ["never", "every:2", "always"][random.index(3)];
        let world = sampling(sampler, |builder| builder.with_dropped_spans(DroppedSpans::Visible));
        let layer = || Some(world.astracer.layer.clone());
        let (slot, handle) = reload::Layer::new(layer());
        tracing::dispatcher::with_default(&Dispatch::new(Registry::default().with(slot)), || {
            let (mut spans, mut entered) = (Vec::new(), Vec::new());
            for _ in 0..random.index(20) {
                match random.index(8) {
                    0 => handle.reload(if random.one_in(3) { None } else { layer() }).unwrap(),
                    1 if !entered.is_empty() => drop(entered.remove(random.index(entered.len()))),
                    2 => drop(entered.pop()),
                    3 | 4 if !spans.is_empty() => {
                        let again: &tracing::Span = &spans[random.index(spans.len())];
                        entered.push(again.clone().entered());
                    }
                    5 => spans.push(info_span!("root", otel.kind = "client")),
                    _ => {
                        spans.push(info_span!("span"));
                        entered.extend(spans.last().map(|span| span.clone().entered()));
                    }
                }
            }
            handle.reload(if random.one_in(2) { None } else { layer() }).unwrap();
            while !entered.is_empty() {
                drop(entered.remove(random.index(entered.len())));
            }
            drop(spans);
            handle.reload(layer()).unwrap();
            world.handle.set_sampler(&"always".parse().unwrap());
            info_span!("new").in_scope(|| info_span!("child").in_scope(|| ()));
            assert!(!opentelemetry::Context::current().span().span_context().is_valid());
        });
        let exported = world.exported();
        assert!(draw(&exported).contains("new\n  child\n"), "{}", draw(&exported));
        assert_eq!(world.handle.stats().spans_open, 0);
    }
}
