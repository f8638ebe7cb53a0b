//! Runs a program one step at a time, each step on its thread.

use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{self, Poll, Waker};
use std::thread::JoinHandle;

use astracer_sdk::ContextMode;
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{SpanContext, Status, TraceContextExt as _, TraceState};
use opentelemetry::{Context, ContextGuard, KeyValue, TraceFlags};
use tracing::dispatcher::with_default;
use tracing::field::Empty;
use tracing::instrument::Instrumented;
use tracing::span::EnteredSpan;
use tracing::{Instrument as _, Span, debug_span, error, info, info_span};

use super::compare::{Mention, SeenContext};
use super::flows::Call;
use super::program::{CONTEXTS, Cx, FUTURES, Mark, Op, Parent, SPANS, Step, THREADS, Template};
use super::setup::Counts;
use super::world::World;

/// The observable outcome of one step.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The thread's current context after the step.
    pub(crate) current: SeenContext,
    pub(crate) answer: Answer,
    /// Present in programs with late keeping.
    pub(crate) counts: Option<Counts>,
    /// The observer's calls in this step, sorted.
    pub(crate) calls: Vec<Call>,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer<Ids = Mention> {
    Nothing,
    /// Whether the span that began exists.
    Exists(bool),
    Context(SeenContext<Ids>),
    SetParent(Result<(), String>),
    /// The number of traces that were kept.
    Kept(u64),
}

/// The threads of a world, and the places of its programs.
pub(crate) struct Driver {
    workers: Vec<Worker>,
    pub(crate) world: Arc<World>,
}

struct Worker {
    jobs: Option<Sender<Vec<Op>>>,
    lines: Receiver<Vec<Line>>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the threads.
struct SharedState {
    world: Arc<World>,
    /// Handles, each with its subscriber.
    spans: Mutex<[(Option<Span>, usize); SPANS]>,
    /// The step at which each span began. It identifies the span: after a shutdown, spans share an
    /// id.
    began: Mutex<[i64; SPANS]>,
    contexts: Mutex<[Context; CONTEXTS]>,
    futures: Mutex<[Option<Spawned>; FUTURES]>,
    /// The future that the next polled one polls inside itself.
    inner: Mutex<Option<usize>>,
    /// The current context inside the future that was polled last.
    inside: Mutex<Option<SeenContext>>,
}

/// A future with the subscriber of its span.
struct Spawned {
    future: Pin<Box<Instrumented<Request>>>,
    subscriber: usize,
    /// The step at which its span began.
    began: i64,
}

/// A request that takes three polls. At the first it begins a span, and at each it enters that
/// span, like a future that awaits another instrumented one.
struct Request {
    places: Arc<SharedState>,
    polls: u32,
    held: Option<Span>,
}

impl Future for Request {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<()> {
        let places = self.places.clone();
        places.world.tick();
        self.polls += 1;
        let polls = self.polls;
        let held = self.held.get_or_insert_with(|| info_span!("held"));
        held.in_scope(|| {
            let inner = places.inner.lock().unwrap().take();
            if let Some(inner) = inner {
                places.poll(inner);
            }
            let seen = places.world.seen(&Context::current());
            *places.inside.lock().unwrap() = Some(seen);
        });
        if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// A span that a thread has entered.
struct OpenScope {
    entered: EnteredSpan,
    subscriber: usize,
    began: i64,
}

/// State of one thread.
#[derive(Default)]
struct Local {
    entered: Vec<OpenScope>,
    /// Guards of attached contexts, each with the ids of the span in its context.
    attached: Vec<(ContextGuard, SpanContext)>,
}

impl Driver {
    pub(crate) fn new(world: World) -> Self {
        let world = Arc::new(world);
        let places = Arc::new(SharedState {
            world: world.clone(),
            spans: Mutex::new(std::array::from_fn(|_| (None, 0))),
            began: Mutex::default(),
            contexts: Mutex::new(std::array::from_fn(|_| Context::new())),
            futures: Mutex::default(),
            inner: Mutex::default(),
            inside: Mutex::default(),
        });
        let workers = (0..THREADS).map(|_| Worker::new(places.clone())).collect();
        Driver { workers, world }
    }

    /// Runs the steps, and then ends everything that they left open, thread by thread. There is one
    /// line per step; the steps that only end things have none.
    ///
    /// # Errors
    ///
    /// If a step panicked. Its thread has then ended.
    pub(crate) fn run(&self, steps: &[Step]) -> Result<Vec<Line>, String> {
        let mut lines = Vec::with_capacity(steps.len());
        let mut rest = steps;
        while let Some(first) = rest.first() {
            // Consecutive steps of one thread are sent to it together.
            let count = rest.iter().take_while(|step| step.thread == first.thread).count();
            let ops = rest[..count].iter().map(|step| step.op.clone()).collect();
            lines.extend(self.workers[first.thread].run(ops)?);
            rest = &rest[count..];
        }
        for (thread, worker) in self.workers.iter().enumerate() {
            let entered = depth(steps, thread, |op| matches!(op, Op::Enter(_)));
            let attached = depth(steps, thread, |op| matches!(op, Op::Attach(_)));
            let mut ops = vec![Op::Exit(0); entered];
            ops.extend(vec![Op::Detach(0); attached]);
            if thread + 1 == THREADS {
                ops.extend((0..FUTURES).map(Op::Cancel));
                ops.extend((0..CONTEXTS).map(|to| Op::Context { span: SPANS, to }));
                ops.extend((0..SPANS).map(Op::Drop));
            }
            if !ops.is_empty() {
                lines.extend(worker.run(ops)?);
            }
        }
        Ok(lines)
    }
}

/// An upper bound on how many the thread has open.
fn depth(steps: &[Step], thread: usize, opens: impl Fn(&Op) -> bool) -> usize {
    steps.iter().filter(|step| step.thread == thread && opens(&step.op)).count()
}

impl Worker {
    fn new(places: Arc<SharedState>) -> Self {
        let (jobs, taken) = channel::<Vec<Op>>();
        let (given, lines) = channel();
        let work = move || {
            let mut local = Local::default();
            for ops in taken {
                let _ = given.send(ops.into_iter().map(|op| local.perform(&places, op)).collect());
            }
        };
        let thread = std::thread::Builder::new().name("program".to_owned()).spawn(work).unwrap();
        Worker { jobs: Some(jobs), lines, thread: Some(thread) }
    }

    fn run(&self, ops: Vec<Op>) -> Result<Vec<Line>, String> {
        let jobs = self.jobs.as_ref().ok_or("the threads have ended")?;
        jobs.send(ops).map_err(|_| "a step panicked before")?;
        self.lines.recv().map_err(|_| "a step panicked".to_owned())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl SharedState {
    fn span(&self, place: usize) -> Option<(Span, usize)> {
        let spans = self.spans.lock().unwrap();
        let (span, subscriber) = spans.get(place)?;
        Some((span.clone()?, *subscriber))
    }

    fn put(&self, place: usize, span: Option<Span>, subscriber: usize) {
        let (old, owner) = std::mem::replace(&mut self.spans.lock().unwrap()[place], (span, subscriber));
        self.inside(owner, || drop(old));
    }

    /// The registry closes spans through the current subscriber, so the span's own one must be
    /// current.
    fn inside<T>(&self, subscriber: usize, f: impl FnOnce() -> T) -> T {
        with_default(&self.world.dispatches[subscriber], f)
    }

    /// Polls the future in a place, unless it is already being polled.
    fn poll(&self, place: usize) {
        let Some(mut spawned) = self.futures.lock().unwrap()[place].take() else { return };
        let mut waker = task::Context::from_waker(Waker::noop());
        let subscriber = spawned.subscriber;
        let polled = self.inside(subscriber, || spawned.future.as_mut().poll(&mut waker));
        if polled.is_pending() {
            self.futures.lock().unwrap()[place] = Some(spawned);
        } else {
            self.inside(subscriber, || drop(spawned));
        }
    }

    /// The step at which the span of a future began.
    fn began_of(&self, place: usize) -> Option<i64> {
        self.futures.lock().unwrap()[place].as_ref().map(|spawned| spawned.began)
    }

    fn cancel(&self, place: usize) {
        let spawned = self.futures.lock().unwrap()[place].take();
        if let Some(spawned) = spawned {
            self.inside(spawned.subscriber, || drop(spawned.future));
        }
    }

    fn context(&self, cx: Cx) -> Context {
        match cx {
            Cx::Empty => Context::new(),
            Cx::Remote { sampled } => {
                let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
                let state = TraceState::from_key_value([("vendor", "x")]).unwrap();
                // The highest randomness, as the ids of the world have: no budget refuses it.
                let trace = if sampled { 77u128 } else { 78u128 } << 64 | ((1 << 56) - 1);
                let parent = SpanContext::new(trace.into(), 5u64.into(), flags, true, state);
                Context::new()
                    .with_remote_span_context(parent)
                    .with_baggage([KeyValue::new("tenant", "remote")])
            }
            Cx::Kept(place) => self.contexts.lock().unwrap()[place].clone(),
            Cx::Tenant(n) => Context::current().with_baggage([KeyValue::new("tenant", i64::from(n))]),
        }
    }

    fn with(&self, place: usize, f: impl FnOnce(&Span)) {
        if let Some((span, subscriber)) = self.span(place) {
            self.inside(subscriber, || {
                f(&span);
                drop(span);
            });
        }
    }
}

impl Local {
    /// Whether a dropped span may rely on a context that was attached by hand above another one:
    /// the one difference between layer and reference that a program could show (`differences.rs`).
    /// If spans are lost, the two have different ids, so the ids do not decide it.
    fn is_relied_on(&self, at: usize, is_cramped: bool) -> bool {
        let ids = &self.attached[at].1;
        at > 0 && !self.entered.is_empty() && (is_cramped || ids.is_valid() && !ids.is_sampled())
    }

    /// Whether the thread has entered the span, and another one after it.
    fn is_around(&self, began: i64, subscriber: usize) -> bool {
        let mut inside = self.entered.iter().rev().filter(|inside| inside.subscriber == subscriber);
        inside.next().is_some_and(|last| last.began != began) && inside.any(|other| other.began == began)
    }

    /// The same condition as for entering a span: a future enters its own span, and begins another
    /// one inside.
    fn may_poll(&self, places: &SharedState, place: usize) -> bool {
        let is_around = |spawned: &Spawned| self.is_around(spawned.began, spawned.subscriber);
        places.world.may_reenter() || !places.futures.lock().unwrap()[place].as_ref().is_some_and(is_around)
    }

    fn perform(&mut self, places: &Arc<SharedState>, op: Op) -> Line {
        let world = &places.world;
        let now = world.tick() as i64;
        let mut answer = Answer::Nothing;
        match op {
            Op::New { span, template, parent, subscriber } => {
                // Dropped first, so that the old span's end has a step of its own.
                places.put(span, None, subscriber);
                let parent = Of::new(places, parent, subscriber);
                let new = places.inside(subscriber, || begin(template, &parent, now));
                answer = Answer::Exists(!new.is_disabled());
                places.put(span, Some(new), subscriber);
                places.began.lock().unwrap()[span] = now;
                parent.drop(places);
            }
            Op::Enter(place) => {
                let began = places.began.lock().unwrap()[place];
                if let Some((span, subscriber)) = places.span(place)
                    && (world.may_reenter() || !self.is_around(began, subscriber))
                {
                    let entered = places.inside(subscriber, || span.entered());
                    self.entered.push(OpenScope { entered, subscriber, began });
                }
            }
            Op::Exit(nth) => {
                if let Some(at) = self.entered.len().checked_sub(nth + 1) {
                    let OpenScope { entered, subscriber, began: _ } = self.entered.remove(at);
                    places.inside(subscriber, || drop(entered));
                }
            }
            Op::Clone { from, to } => {
                if let Some((span, subscriber)) = places.span(from) {
                    places.put(to, Some(span), subscriber);
                    let mut began = places.began.lock().unwrap();
                    began[to] = began[from];
                }
            }
            Op::Drop(span) => places.put(span, None, 0),
            Op::Leak(span) => std::mem::forget(std::mem::take(&mut places.spans.lock().unwrap()[span].0)),
            Op::Record(span) => places.with(span, |span| {
                span.record("late", now);
                span.record("otel.name", format!("renamed {now}"));
            }),
            Op::Event { parent, error, subscriber } => {
                let parent = Of::new(places, parent, subscriber);
                places.inside(subscriber, || record_result(&parent, error, now));
                parent.drop(places);
            }
            Op::Follows { span, from } => {
                // Ids have a meaning only for their own subscriber.
                if let (Some((span, subscriber)), Some((other, owner))) =
                    (places.span(span), places.span(from))
                {
                    places.inside(subscriber, || {
                        if owner == subscriber && world.may_follow(&span, &other) {
                            span.follows_from(&other);
                        }
                        drop(span);
                    });
                    places.inside(owner, || drop(other));
                }
            }
            Op::SetParent { span, parent } => {
                let parent = places.context(parent);
                places.with(span, |span| answer = Answer::SetParent(world.set_parent(span, parent)));
            }
            Op::Context { span, to } => {
                let mut context = Context::new();
                places.with(span, |span| {
                    context = world.context(span);
                    if world.setup.context == ContextMode::Off {
                        // With contexts switched off, the layer does not manage baggage.
                        context = context.with_cleared_baggage();
                    }
                    answer = Answer::Context(world.seen(&context));
                });
                drop(std::mem::replace(&mut places.contexts.lock().unwrap()[to], context));
            }
            Op::Attach(cx) => {
                let context = places.context(cx);
                let ids = context.span().span_context().clone();
                self.attached.push((context.attach(), ids));
            }
            Op::Detach(nth) => {
                if let Some(at) = self.attached.len().checked_sub(nth + 1)
                    && !self.is_relied_on(at, world.setup.is_cramped())
                {
                    drop(self.attached.remove(at));
                }
            }
            Op::SetAttribute(span) => places.with(span, |span| world.set_attribute(span, "set", now)),
            Op::SetStatus(span, mark) => places.with(span, |span| {
                let status = match mark {
                    Mark::Ok => Status::Ok,
                    Mark::Error => Status::error(format!("why {now}")),
                };
                world.set_status(span, status);
            }),
            Op::AddEvent(span) => places.with(span, |span| world.add_event(span, "added", now)),
            Op::AddLink(span) => places.with(span, |span| {
                let to = places.context(Cx::Remote { sampled: true });
                world.add_link(span, to.span().span_context());
            }),
            Op::SetOnCurrent => {
                Context::current().span().set_attribute(KeyValue::new("current", now));
            }
            Op::SetOnContext(place) => {
                let context = places.context(Cx::Kept(place));
                context.span().set_attribute(KeyValue::new("kept", now));
            }
            Op::Spawn { future: place, span: of } => {
                let began = places.began.lock().unwrap()[of];
                if let Some((span, subscriber)) = places.span(of) {
                    places.cancel(place);
                    let request = Request { places: places.clone(), polls: 0, held: None };
                    let future = Box::pin(request.instrument(span));
                    let spawned = Spawned { future, subscriber, began };
                    places.futures.lock().unwrap()[place] = Some(spawned);
                }
            }
            Op::Poll { future, inside } if self.may_poll(places, future) => {
                // While the outer future is polled, the thread has entered that future's spans too.
                let is_inside = |other: i64| self.entered.iter().any(|inside| inside.began == other);
                let outer = places.began_of(future);
                let may = |began| world.may_reenter() || (Some(began) != outer && !is_inside(began));
                let inside = inside.filter(|inner| places.began_of(*inner).is_none_or(may));
                *places.inner.lock().unwrap() = inside;
                places.poll(future);
                *places.inner.lock().unwrap() = None;
                if let Some(seen) = places.inside.lock().unwrap().take() {
                    answer = Answer::Context(seen);
                }
            }
            Op::Poll { .. } => {}
            Op::Cancel(future) => places.cancel(future),
            Op::Keep(place) => {
                let context = places.context(Cx::Kept(place));
                answer = Answer::Kept(world.keep(context.span().span_context().trace_id()));
            }
            Op::KeepWhere => answer = Answer::Kept(world.keep_where()),
            Op::Arm => world.arm_all(),
            Op::Flush => world.flush(),
            Op::Shutdown => world.shut_down(),
        }
        Line {
            current: world.seen(&Context::current()),
            answer,
            counts: world.counts(),
            calls: world.calls(),
        }
    }
}

/// A parent's id, with a handle that keeps the span open while the id is used.
struct Of {
    parent: Option<Option<tracing::Id>>,
    held: Option<(Span, usize)>,
}

impl Of {
    /// The parent for what begins on this subscriber. A parent on another subscriber counts as
    /// none.
    fn new(places: &SharedState, parent: Parent, subscriber: usize) -> Self {
        match parent {
            Parent::Contextual => Of { parent: None, held: None },
            Parent::None => Of { parent: Some(None), held: None },
            Parent::Of(place) => {
                let held = places.span(place);
                let own = held.as_ref().filter(|(_, owner)| *owner == subscriber);
                Of { parent: Some(own.and_then(|(span, _)| span.id())), held }
            }
        }
    }

    fn drop(self, places: &SharedState) {
        if let Some((span, subscriber)) = self.held {
            places.inside(subscriber, || drop(span));
        }
    }
}

macro_rules! span_of {
    ($template:expr, $now:expr $(, $parent:expr)?) => {
        match $template {
            Template::Plain => info_span!($(parent: $parent,)? "plain"),
            Template::Fields => info_span!($(parent: $parent,)? "fields", n = $now, text = "x"),
            Template::Late => info_span!($(parent: $parent,)? "late", late = Empty, otel.name = Empty),
            Template::Client => info_span!($(parent: $parent,)? "client", otel.kind = "client"),
            Template::Server => info_span!($(parent: $parent,)? "server", otel.kind = "server", n = $now),
            Template::Debug => debug_span!($(parent: $parent,)? "debug"),
            Template::DebugFields => debug_span!($(parent: $parent,)? "debug fields", n = $now),
        }
    };
}

fn begin(template: Template, parent: &Of, now: i64) -> Span {
    match &parent.parent {
        None => span_of!(template, now),
        Some(parent) => span_of!(template, now, parent.clone()),
    }
}

fn record_result(parent: &Of, is_error: bool, now: i64) {
    match (&parent.parent, is_error) {
        (None, false) => info!(n = now, "an event"),
        (None, true) => error!(n = now, "an error"),
        (Some(parent), false) => info!(parent: parent.clone(), n = now, "an event"),
        (Some(parent), true) => error!(parent: parent.clone(), n = now, "an error"),
    }
}
