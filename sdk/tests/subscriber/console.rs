//! tokio-console's layer on our subscriber.
//!
//! `console_subscriber::ConsoleLayer` can only be built with `--cfg tokio_unstable` for the whole
//! build. So its calls are ported from console-subscriber 0.5.0 (MIT licence): look-ups, extensions
//! and counts, but not what it sends. The spans and events are those that tokio emits.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use astracer_sdk::DroppedSpans;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::{Dispatch, Event, Metadata, Span, Subscriber, info, info_span, trace, trace_span};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use crate::layers::Page;
use crate::stacks::tells_the_same;
use crate::support::{draw, world};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Task,
    Resource,
    AsyncOp,
}

/// Sorts callsites by name, as `ConsoleLayer::register_callsite` does.
fn kind(metadata: &Metadata<'_>) -> Option<Kind> {
    match (metadata.name(), metadata.target()) {
        ("runtime.spawn", _) | ("task", "tokio::task") => Some(Kind::Task),
        ("runtime.resource", _) => Some(Kind::Resource),
        ("runtime.resource.async_op", _) => Some(Kind::AsyncOp),
        _ => None,
    }
}

/// The counts of a task, a resource or an operation, in the extensions of its span. The original
/// has one type for each.
#[derive(Debug)]
struct Stats {
    kind: Kind,
    /// The task's name, the resource's type, or the operation's source.
    name: String,
    parent: Option<String>,
    inherits: bool,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    polls: u32,
    ended_polls: u32,
    wakes: u32,
    self_wakes: u32,
    wakers: i32,
    attributes: Vec<String>,
    task: Option<String>,
}

thread_local! {
    /// The thread's spans, like `current_spans`: the original copies the registry's stack, which it
    /// cannot read.
    static STACK: RefCell<Vec<Id>> = const { RefCell::new(Vec::new()) };
}

/// Writes the counts of a span when it ends.
struct Console(Page);

fn console(page: &Page) -> Console {
    Console(page.clone())
}

#[derive(Default)]
struct Values(Vec<(&'static str, String)>);

impl Values {
    fn of(record: impl FnOnce(&mut dyn Visit)) -> Self {
        let mut values = Values::default();
        record(&mut values);
        values
    }

    fn get(&self, name: &str) -> Option<&str> {
        Some(&self.0.iter().find(|(known, _)| *known == name)?.1)
    }
}

impl Visit for Values {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }
}

/// The innermost span of this kind that the thread has entered, like `first_entered`.
fn innermost<S>(wanted: Kind, cx: &Context<'_, S>) -> Option<Id>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let is_wanted = |id: &Id| cx.span(id).is_some_and(|span| kind(span.metadata()) == Some(wanted));
    STACK.with_borrow(|stack| stack.iter().rev().find(|id| is_wanted(id)).cloned())
}

fn with_stats<S, T>(id: &Id, cx: &Context<'_, S>, f: impl FnOnce(&Stats) -> T) -> Option<T>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let span = cx.span(id)?;
    let extensions = span.extensions();
    Some(f(extensions.get::<Arc<Stats>>()?))
}

fn name<S>(id: &Id, cx: &Context<'_, S>) -> Option<String>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    with_stats(id, cx, |stats| stats.name.clone())
}

impl<S> Layer<S> for Console
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let Some(kind) = kind(attributes.metadata()) else { return };
        let values = Values::of(|visit| attributes.record(visit));
        let field = match kind {
            Kind::Task => "task.name",
            Kind::Resource => "concrete_type",
            Kind::AsyncOp => "source",
        };
        let resource = innermost(Kind::Resource, &cx);
        if kind == Kind::AsyncOp && resource.is_none() {
            return;
        }
        let parent = if kind == Kind::Task { None } else { resource };
        let stats = Arc::new(Stats {
            kind,
            name: values.get(field).unwrap_or("none").to_owned(),
            parent: parent.and_then(|parent| name(&parent, &cx)),
            inherits: values.get("inherits_child_attrs") == Some("true"),
            counts: Mutex::default(),
        });
        cx.span(id).expect("the span exists").extensions_mut().insert(stats);
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let values = Values::of(|visit| event.record(visit));
        match event.metadata().target() {
            "tokio::task::waker" => {
                // The event identifies the task by its span's id, as a number.
                let Some(Ok(id)) = values.get("task.id").map(str::parse) else { return };
                let id = Id::from_u64(id);
                let is_inside = STACK.with_borrow(|stack| stack.contains(&id));
                with_stats(&id, &cx, |stats| {
                    let mut counts = stats.counts.lock().unwrap();
                    match values.get("op") {
                        Some("waker.clone") => counts.wakers += 1,
                        Some("waker.drop") => counts.wakers -= 1,
                        _ => {
                            counts.wakes += 1;
                            counts.self_wakes += u32::from(is_inside);
                        }
                    }
                });
            }
            "runtime::resource::poll_op" => {
                let ids = innermost(Kind::Resource, &cx)
                    .and(innermost(Kind::Task, &cx))
                    .zip(innermost(Kind::AsyncOp, &cx));
                let Some((task, operation)) = ids else { return };
                let task = name(&task, &cx);
                with_stats(&operation, &cx, |stats| stats.counts.lock().unwrap().task = task);
            }
            "runtime::resource::state_update" => update(Kind::Resource, &values, &cx),
            "runtime::resource::async_op::state_update" => update(Kind::AsyncOp, &values, &cx),
            _ => {}
        }
    }

    fn on_enter(&self, id: &Id, cx: Context<'_, S>) {
        let is_known = with_stats(id, &cx, |stats| stats.counts.lock().unwrap().polls += 1);
        if is_known.is_some() {
            STACK.with_borrow_mut(|stack| stack.push(id.clone()));
        }
    }

    fn on_exit(&self, id: &Id, cx: Context<'_, S>) {
        let is_known = with_stats(id, &cx, |stats| stats.counts.lock().unwrap().ended_polls += 1);
        if is_known.is_some() {
            STACK.with_borrow_mut(|stack| {
                let at = stack.iter().rposition(|other| other == id);
                at.map(|at| stack.remove(at))
            });
        }
    }

    fn on_close(&self, id: Id, cx: Context<'_, S>) {
        with_stats(&id, &cx, |stats| writeln!(self.0.clone(), "{stats:?}").unwrap());
    }
}

/// Updates the innermost span of this kind, and a resource's parent if it inherits, like
/// `state_update`.
fn update<S>(kind: Kind, values: &Values, cx: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let Some(id) = innermost(kind, cx) else { return };
    let add = |stats: &Stats| stats.counts.lock().unwrap().attributes.push(format!("{:?}", values.0));
    with_stats(&id, cx, add);
    let parent = STACK.with_borrow(|stack| {
        let at = stack.iter().position(|other| *other == id)?;
        stack[..at].last().cloned()
    });
    if let Some(parent) = parent {
        with_stats(&parent, cx, |stats| stats.inherits.then(|| add(stats)));
    }
}

fn task(name: &str) -> Span {
    trace_span!(target: "tokio::task", parent: None, "runtime.spawn", kind = "task", task.name = name)
}

fn wake(op: &str, task: &Span) {
    let id = task.id().map_or(0, |id| id.into_u64());
    trace!(target: "tokio::task::waker", op, task.id = id);
}

/// Two tasks wait for a mutex, which contains a semaphore. Spans and events are in tokio's order.
/// The first task wakes the second, on another thread than the second was polled on.
fn tasks() {
    let tasks = [task("first"), task("second")];
    let mutex = trace_span!(
        parent: None,
        "runtime.resource",
        concrete_type = "Mutex",
        kind = "Sync",
        inherits_child_attrs = true
    );
    let semaphore = mutex.in_scope(|| {
        trace!(target: "runtime::resource::state_update", locked = false);
        trace_span!("runtime.resource", concrete_type = "Semaphore", kind = "Sync", is_internal = true)
    });
    let operations = [(); 2].map(|()| {
        let _mutex = mutex.enter();
        semaphore.in_scope(|| {
            trace!(target: "runtime::resource::state_update", permits = 1, permits.op = "override");
            trace_span!("runtime.resource.async_op", source = "Mutex::lock", inherits_child_attrs = false)
        })
    });
    let poll = |at: usize, is_ready: bool| {
        let _task = tasks[at].enter();
        wake("waker.clone", &tasks[at]);
        let _request = info_span!("request", at).entered();
        let _mutex = mutex.enter();
        let _semaphore = semaphore.enter();
        let _operation = operations[at].enter();
        let _poll = trace_span!("runtime.resource.async_op.poll").entered();
        trace!(target: "runtime::resource::poll_op", op_name = "poll_acquire", is_ready);
        trace!(target: "runtime::resource::async_op::state_update", permits_obtained = is_ready);
        info!("polled");
    };
    poll(0, true);
    poll(1, false);
    tasks[0].in_scope(|| wake("waker.wake_by_ref", &tasks[0]));
    tasks[0].in_scope(|| wake("waker.wake", &tasks[1]));
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    std::thread::scope(|scope| {
        scope.spawn(|| tracing::dispatcher::with_default(&dispatch, || poll(1, true)));
    });
    wake("waker.drop", &tasks[0]);
    drop((operations, semaphore, mutex, tasks));
}

fn is_of_the_runtime(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("tokio") || metadata.name().starts_with("runtime") || metadata.is_event()
}

#[test]
fn a_console_sees_the_same_tasks() {
    tells_the_same!("alone", tasks, |page| console(page));
    let filter = || filter_fn(is_of_the_runtime);
    tells_the_same!("with a filter", tasks, |page| console(page).with_filter(filter()));
    tells_the_same!(
        "beside another layer",
        tasks,
        |page| console(page).with_filter(filter()),
        crate::stacks::watch("all", page).with_filter(LevelFilter::INFO)
    );
}

/// Expected counts by hand. None of the runtime's spans is in the traces, if a filter hides them.
#[test]
fn a_console_counts_its_events_and_traces_omit_them() {
    let world = world(|builder| builder);
    let page = Page::default();
    let layer = world.astracer.layer.clone().with_filter(LevelFilter::INFO);
    let stack = Dispatch::new(Registry::default().with(layer).with(console(&page)));
    tracing::dispatcher::with_default(&stack, tasks);
    let text = page.text();
    let line = |name: &str| {
        text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {text}"))
    };
    let first = line("name: \"first\"");
    for part in ["polls: 3", "ended_polls: 3", "wakes: 1, self_wakes: 1"] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let second = line("name: \"second\"");
    for part in ["polls: 2", "wakes: 1, self_wakes: 0", "wakers: 2"] {
        assert!(second.contains(part), "{part}: {second}");
    }
    assert!(line("name: \"Semaphore\"").contains("parent: Some(\"Mutex\")"));
    assert!(line("name: \"Mutex\"").contains("permits"), "inherited: {text}");
    assert_eq!(text.lines().filter(|line| line.contains("task: Some(")).count(), 2, "{text}");
    let event = "  * polled level=\"INFO\" target=\"tests::console\"\n";
    let request = |at: usize| format!("request at={at}\n{event}");
    // Traces may arrive in any order.
    let drawn = draw(&world.exported());
    let (of_0, of_1) = (drawn.matches(&request(0)).count(), drawn.matches(&request(1)).count());
    assert_eq!((of_0, of_1, drawn.lines().count()), (1, 2, 6), "{drawn}");
}
