//! Other layers receive the same calls on our subscriber and on our layer as on a plain registry,
//! whatever is dropped.
//!
//! The stacks of filters are those of tracing-subscriber's own tests: `layer_filters`,
//! `env_filter`, `reload`, `option`, `vec`.

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};
use std::io::Write as _;
use std::sync::Mutex;

use astracer_sdk::DroppedSpans;
use tracing::field::{Empty, Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber, debug, debug_span, error_span, info, info_span, trace};
use tracing::{trace_span, warn};
use tracing_error::{ErrorLayer, SpanTrace};
use tracing_subscriber::filter::{FilterExt as _, Targets, dynamic_filter_fn, filter_fn};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Scope};
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use crate::layers::{Page, trees};
use crate::support::{sampling, world};

/// All combinations in which spans are dropped or kept.
pub(crate) const CASES: [(DroppedSpans, &str); 6] = [
    (DroppedSpans::Visible, "always"),
    (DroppedSpans::Visible, "never"),
    (DroppedSpans::Visible, "every:2"),
    (DroppedSpans::Disabled, "always"),
    (DroppedSpans::Disabled, "never"),
    (DroppedSpans::Disabled, "every:2"),
];

/// Runs `run` in a stack. Returns the text that its layers wrote.
pub(crate) fn output_of(stack: impl Into<Dispatch>, page: &Page, run: fn()) -> String {
    tracing::dispatcher::with_default(&stack.into(), run);
    page.text()
}

/// Fails unless layers write the same over a plain registry, over our layer on one, and over our
/// subscriber. If the spans of a dropped trace are disabled for all layers, the plain registry has
/// more spans than the other two, which must still agree.
macro_rules! tells_the_same {
    ($name:expr, $run:expr, |$page:ident| $($layer:expr),+) => {{
        let page = $crate::layers::Page::default();
        let $page = &page;
        let plain = $crate::stacks::output_of(Registry::default()$(.with($layer))+, &page, $run);
        assert!(!plain.is_empty(), "{}", $name);
        for (dropped_spans, sampler) in $crate::stacks::CASES {
            let ours = || {
                let sampler = sampler.parse().unwrap();
                $crate::support::world(|builder| {
                    builder.with_sampler(sampler).with_dropped_spans(dropped_spans)
                })
            };
            let (world, page) = (ours(), $crate::layers::Page::default());
            let $page = &page;
            let stack = Registry::default().with(world.astracer.layer.clone())$(.with($layer))+;
            let on_layer = $crate::stacks::output_of(stack, &page, $run);
            let traces_on_layer = $crate::layers::trees(&world.exported());
            let (world, page) = (ours(), $crate::layers::Page::default());
            let $page = &page;
            let stack = world.astracer.subscriber()$(.with($layer))+;
            let on_subscriber = $crate::stacks::output_of(stack, &page, $run);
            assert_eq!(on_layer, on_subscriber, "{}, {dropped_spans:?}, {sampler}", $name);
            let traces = $crate::layers::trees(&world.exported());
            assert_eq!(traces_on_layer, traces, "{}, {dropped_spans:?}, {sampler}", $name);
            if dropped_spans == DroppedSpans::Visible || sampler == "always" {
                assert_eq!(plain, on_subscriber, "{}, {dropped_spans:?}, {sampler}", $name);
            }
        }
    }};
}

/// Nested spans with late fields, exited out of order, entered twice and on another thread, with
/// explicit parents and without; events in all of them.
fn service() {
    let request = info_span!(target: "service", "request", user = "a", n = 1, late = Empty).entered();
    info!(target: "service", answer = 42, enable = true, "began");
    let query = debug_span!(target: "store", "query", table = "t");
    query.follows_from(&*request);
    query.in_scope(|| {
        debug!(target: "store", rows = 3, "queried");
        trace!(target: "store", enable = true, "a detail");
        warn!(target: "service", "slow");
    });
    request.record("late", "now");
    let detached = info_span!(target: "service", parent: None, "detached");
    let below = info_span!(target: "service", parent: &query, "below", user = "b");
    info!(target: "service", parent: &below, "of the one below");
    info!(target: "service", parent: None, "of none");
    let first = trace_span!(target: "store", "first").entered();
    let second = info_span!(target: "service", "second").entered();
    drop(first);
    info!(target: "service", "inside of the second");
    drop(second);
    let again = query.clone();
    drop(query);
    again.in_scope(|| again.in_scope(|| info!(target: "service", "entered twice")));
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            tracing::dispatcher::with_default(&dispatch, || {
                below.in_scope(|| debug!(target: "store", "on another thread"));
            });
        });
    });
    drop((again, below));
    detached.in_scope(|| info!(target: "service", "detached"));
    drop((detached, request));
    for user in ["b", "a"] {
        let _request = error_span!(target: "service", "request", user, n = 2).entered();
        debug!(target: "service", "again");
    }
}

/// Writes down the calls that it receives, each with the spans around it, innermost first.
pub(crate) struct Watch {
    name: &'static str,
    page: Page,
    /// The ids of open spans, in the order in which they began. tokio-console's layer looks spans
    /// up by the ids that events carry, on any thread.
    open: Mutex<Vec<Id>>,
}

pub(crate) fn watch(name: &'static str, page: &Page) -> Watch {
    Watch { name, page: page.clone(), open: Mutex::default() }
}

/// The fields of a span, stored in its extensions.
struct Fields(String);

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

fn text(record: impl FnOnce(&mut dyn Visit)) -> String {
    let mut text = Text::default();
    record(&mut text);
    text.0
}

/// The names of spans, innermost first.
fn names<'a, R: LookupSpan<'a>>(scope: Option<Scope<'a, R>>) -> String {
    scope.into_iter().flatten().map(|span| format!(" {}", span.name())).collect()
}

impl Watch {
    fn write<'a, R: LookupSpan<'a>>(&self, what: &str, scope: Option<Scope<'a, R>>, fields: &str) {
        writeln!(self.page.clone(), "{}: {what}{fields} in{}", self.name, names(scope)).unwrap();
    }
}

impl<S> Layer<S> for Watch
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let fields = text(|visit| attributes.record(visit));
        self.write("new", cx.span_scope(id), &fields);
        self.open.lock().unwrap().push(id.clone());
        // `replace` rather than `insert`: two of these layers may see the same span.
        cx.span(id).unwrap().extensions_mut().replace(Fields(fields));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: Context<'_, S>) {
        let fields = text(|visit| values.record(visit));
        self.write("record", cx.span_scope(id), &fields);
        if let Some(Fields(all)) = cx.span(id).unwrap().extensions_mut().get_mut() {
            all.push_str(&fields);
        }
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, cx: Context<'_, S>) {
        let name = cx.span(follows).map(|span| span.name());
        self.write("follows", cx.span_scope(id), &format!(" {name:?}"));
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let current = cx.lookup_current().map(|span| span.name());
        let fields = text(|visit| event.record(visit));
        let open: Vec<_> =
            self.open.lock().unwrap().iter().map(|id| cx.span(id).map(|span| span.name())).collect();
        self.write("event", cx.event_scope(event), &format!("{fields}, current {current:?}, open {open:?}"));
    }

    fn on_enter(&self, id: &Id, cx: Context<'_, S>) {
        self.write("enter", cx.span_scope(id), "");
    }

    fn on_exit(&self, id: &Id, cx: Context<'_, S>) {
        self.write("exit", cx.span_scope(id), "");
    }

    fn on_close(&self, id: Id, cx: Context<'_, S>) {
        self.open.lock().unwrap().retain(|open| *open != id);
        let span = cx.span(&id).unwrap();
        let extensions = span.extensions();
        let fields = extensions.get::<Fields>().map_or("", |fields| &fields.0);
        self.write("close", cx.span_scope(&id), fields);
    }
}

/// Lets only events with `enable = true` through.
struct EnabledEvents;

impl<S> Filter<S> for EnabledEvents {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        text(|visit| event.record(visit)).contains("enable=true")
    }
}

#[test]
fn layers_get_the_same_callbacks() {
    tells_the_same!("one layer", service, |page| watch("all", page));
    tells_the_same!("two layers", service, |page| watch("a", page), watch("b", page));
    tells_the_same!("none and one", service, |page| None::<Watch>, Some(watch("all", page)));
}

#[test]
fn filters_by_layer_hold() {
    let of = |target: &'static str| filter_fn(move |metadata| metadata.target() == target);
    tells_the_same!(
        "levels",
        service,
        |page| watch("debug", page).with_filter(LevelFilter::DEBUG),
        watch("info", page).with_filter(LevelFilter::INFO),
        watch("warn", page).with_filter(LevelFilter::WARN)
    );
    tells_the_same!(
        "interleaved targets",
        service,
        |page| watch("info", page).with_filter(LevelFilter::INFO),
        watch("service", page).with_filter(of("service")),
        watch("store", page).with_filter(of("store"))
    );
    tells_the_same!(
        "filters of filters",
        service,
        |page| watch("and", page).with_filter(of("service").and(LevelFilter::INFO)),
        watch("or", page).with_filter(of("store").or(LevelFilter::WARN)),
        watch("not", page).with_filter(of("store").not())
    );
    tells_the_same!(
        "a tree",
        service,
        |page| watch("info", page)
            .and_then(watch("store", page).with_filter(of("store")))
            .with_filter(LevelFilter::INFO),
        watch("all", page)
    );
    tells_the_same!("events by field", service, |page| watch("enabled", page).with_filter(EnabledEvents));
    let targets =
        || Targets::new().with_target("service", LevelFilter::INFO).with_target("store", LevelFilter::DEBUG);
    tells_the_same!("targets", service, |page| watch("targets", page).with_filter(targets()));
    tells_the_same!("a list", service, |page| vec![
        watch("info", page).with_filter(LevelFilter::INFO).boxed(),
        watch("store", page).with_filter(of("store")).boxed(),
    ]);
    tells_the_same!(
        "no filter",
        service,
        |page| watch("all", page).with_filter(None::<LevelFilter>),
        watch("warn", page).with_filter(Some(LevelFilter::WARN))
    );
}

#[test]
fn filters_that_look_at_spans_hold() {
    tells_the_same!("by the current span", service, |page| watch("in a query", page).with_filter(
        dynamic_filter_fn(|metadata, cx| {
            metadata.is_span() || cx.lookup_current().is_some_and(|span| span.name() == "query")
        })
    ));
    let fields = || EnvFilter::new("warn,[request{user=a}]=debug,[query{table=t}]=trace");
    tells_the_same!("by fields", service, |page| watch("fields", page).with_filter(fields()));
    tells_the_same!(
        "by fields, one of two",
        service,
        |page| watch("fields", page).with_filter(fields()),
        watch("all", page)
    );
    tells_the_same!("by fields, globally", service, |page| fields(), watch("fields", page));
    tells_the_same!("by fields, on top", service, |page| watch("fields", page), fields());
    tells_the_same!("a level, globally", service, |page| LevelFilter::INFO, watch("info", page));
}

thread_local! {
    /// Changes the filter of the running stack.
    static RELOAD: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

#[test]
fn a_filter_changes_while_spans_are_open() {
    fn reloaded() {
        let _request = info_span!(target: "service", "request", user = "a").entered();
        service();
        RELOAD.take().unwrap()();
        service();
    }
    macro_rules! reloading {
        ($layer:expr) => {{
            let (filter, handle) = reload::Layer::new(LevelFilter::INFO);
            RELOAD.set(Some(Box::new(move || handle.modify(|level| *level = LevelFilter::TRACE).unwrap())));
            $layer(filter)
        }};
    }
    tells_the_same!("a layer's", reloaded, |page| reloading!(
        |filter| watch("reloaded", page).with_filter(filter)
    ));
    tells_the_same!("a global one", reloaded, |page| reloading!(|filter| filter), watch("reloaded", page));
}

#[test]
fn logs_are_the_same_in_each_format() {
    macro_rules! logs {
        ($page:ident) => {
            fmt::layer().with_writer($page.clone()).with_ansi(false).without_time()
        };
    }
    let spans = FmtSpan::NEW | FmtSpan::CLOSE;
    tells_the_same!("full", service, |page| logs!(page).with_span_events(FmtSpan::FULL));
    tells_the_same!("compact", service, |page| logs!(page).with_span_events(spans.clone()).compact());
    tells_the_same!("pretty", service, |page| logs!(page).with_span_events(spans.clone()).pretty());
    tells_the_same!("json", service, |page| logs!(page).with_span_events(spans.clone()).json());
    tells_the_same!("json of one user", service, |page| logs!(page)
        .json()
        .with_filter(EnvFilter::new("error,[request{user=a}]=debug")));
}

#[test]
fn span_traces_are_the_same() {
    fn captured() {
        let outer = info_span!(target: "service", "outer", user = "a", late = Empty);
        let inner = debug_span!(target: "store", parent: &outer, "inner", table = "t");
        outer.record("late", "now");
        let trace = inner.in_scope(SpanTrace::capture);
        // The span trace holds the spans.
        drop((outer, inner));
        info!(status = ?trace.status(), %trace, "on the thread");
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let elsewhere =
            std::thread::spawn(move || tracing::dispatcher::with_default(&dispatch, || trace.to_string()));
        info!(trace = elsewhere.join().unwrap(), "on another thread");
        info!(status = ?SpanTrace::capture().status(), "outside of spans");
    }
    tells_the_same!("all", captured, |page| ErrorLayer::default(), watch("all", page));
    tells_the_same!(
        "below a filter",
        captured,
        |page| ErrorLayer::default().with_filter(LevelFilter::INFO),
        watch("all", page)
    );
}

/// Makes tracing-flame's calls, and writes the stacks of its samples. (tracing-flame itself was
/// last released in 2022.)
struct Flame(Page);

impl<S> Layer<S> for Flame
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_enter(&self, id: &Id, cx: Context<'_, S>) {
        let span = cx.span(id).unwrap();
        let Some(parent) = span.parent() else { return };
        let names: String = parent.scope().from_root().map(|span| format!("; {}", span.name())).collect();
        writeln!(self.0.clone(), "until it is entered{names}").unwrap();
    }

    fn on_exit(&self, id: &Id, cx: Context<'_, S>) {
        let span = cx.span(id).unwrap();
        let names: String = span.scope().from_root().map(|span| format!("; {}", span.name())).collect();
        writeln!(self.0.clone(), "inside{names}").unwrap();
    }
}

#[test]
fn samples_of_flame_graphs_are_the_same() {
    tells_the_same!("all", service, |page| Flame(page.clone()));
    tells_the_same!("one target", service, |page| Flame(page.clone())
        .with_filter(filter_fn(|metadata| metadata.target() == "store")));
}

/// As [`downcast_raw` of tracing-subscriber's tests][1]: a filter and the layer under it are found
/// through the stack.
///
/// [1]: https://github.com/tokio-rs/tracing/blob/main/tracing-subscriber/tests/layer_filters/downcast_raw.rs
#[test]
fn layers_and_filters_are_found_in_the_stack() {
    let world = world(|builder| builder);
    let targets = Targets::new().with_default(LevelFilter::INFO);
    let layer = watch("all", &Page::default()).with_filter(targets);
    let dispatch = Dispatch::new(world.astracer.subscriber().with(layer));
    assert!(dispatch.downcast_ref::<Targets>().is_some());
    assert!(dispatch.downcast_ref::<Watch>().is_some());
    assert!(dispatch.downcast_ref::<astracer_sdk::AstracerLayer>().is_some());
    assert!(dispatch.downcast_ref::<Registry>().is_some());
}

/// Filters directly on our subscriber let the same spans through as over our layer on a registry.
#[test]
fn filters_hold_on_the_subscriber_alone() {
    macro_rules! check {
        ($name:literal, $filter:expr) => {
            for (dropped_spans, sampler) in CASES {
                let drawn = [false, true].map(|alone| {
                    let world = sampling(sampler, |builder| builder.with_dropped_spans(dropped_spans));
                    let dispatch = if alone {
                        Dispatch::new(world.astracer.subscriber().with_filter($filter))
                    } else {
                        Dispatch::new(Registry::default().with(world.astracer.layer.clone()).with($filter))
                    };
                    tracing::dispatcher::with_default(&dispatch, service);
                    if let Some(reload) = RELOAD.take() {
                        reload();
                        tracing::dispatcher::with_default(&dispatch, service);
                    }
                    trees(&world.exported())
                });
                assert_eq!(drawn[0], drawn[1], "{}, {dropped_spans:?}, {sampler}", $name);
                assert_eq!(drawn[0].is_empty(), sampler == "never", "{}, {sampler}", $name);
            }
        };
    }
    check!("a level", LevelFilter::INFO);
    check!("a level, perhaps", Some(LevelFilter::INFO));
    check!("no level", None::<LevelFilter>);
    check!("targets", Targets::new().with_target("service", LevelFilter::DEBUG));
    check!("a function", filter_fn(|metadata| metadata.name() != "query"));
    check!("a function of the context", dynamic_filter_fn(|metadata, _| metadata.target() == "service"));
    check!("EnvFilter", EnvFilter::new("store=off,info"));
    check!("EnvFilter with fields", EnvFilter::new("warn,[request{user=a}]=debug,[query{table=t}]=trace"));
    check!("one that is changed", {
        let (filter, handle) = reload::Layer::new(LevelFilter::INFO);
        RELOAD.set(Some(Box::new(move || handle.modify(|level| *level = LevelFilter::TRACE).unwrap())));
        filter
    });
}
