//! The seam on which another crate follows each request through this process, such as one that
//! carries baggage along it.
//!
//! Spans have the numbers of flows, one word each; all else belongs to the observer. Without an
//! observer the numbers are neither written nor read.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::{Context, KeyValue, SpanId, TraceId};
use tracing_core::{Event, Metadata};

use crate::decider::ParentDecision;
use crate::table::{Entry, ROOT};
use astracer_spans::clock::{Clock, Ticks};

/// Follows flows: lines of control of one request, from its local root on. Set with
/// [`Builder::with_observer`](crate::Builder::with_observer).
///
/// The observer numbers the flows. The layer stores a flow's number in each of its spans, whether
/// the trace is kept or dropped, and passes it from parent to child. 0 means no flow: such spans
/// are not reported. A number is used until each call that returned it, [`root`](Self::root),
/// [`begin`](Self::begin) or [`enter`](Self::enter), has been followed by one of
/// [`end`](Self::end) or [`release`](Self::release). A parent may end before its children.
///
/// # Calls
///
/// - All calls come on the service's threads, for different spans at once. The calls for one span
///   come in order, but several threads may enter the same span.
/// - No lock is held during a call. [`root`](Self::root) is an exception in part: see there.
/// - A panic is caught and counted in [`Stats::observer_panics`](crate::Stats::observer_panics). A
///   call that panics returns 0, or for `enter` the span's number.
/// - There are no calls while a thread holds a lock of this crate, which only a global allocator
///   that traces can notice, nor for spans that begin after the shutdown, where telemetry is
///   suppressed, or that [`DroppedSpans::Disabled`](crate::DroppedSpans::Disabled) disables.
/// - A span refused because the memory of open spans is used up has no number, so entering it does
///   not change the thread's flow. A span below it that has memory again takes the number of the
///   innermost span around it on its thread.
pub trait Observer: Any + fmt::Debug + Send + Sync {
    /// Called once, before all others, with the clock behind [`ObservedSpan::now`], and with
    /// whether the decisions of callers hold in this process.
    fn start(&self, clock: &Clock, parents: ParentDecision) {
        let _ = (clock, parents);
    }

    /// Whether [`ObservedSpan::sampling_key`] is read; called once. If so, the key is also computed
    /// for roots that a parent decided.
    fn reads_keys(&self) -> bool {
        false
    }

    /// A local root is decided: when it is first used, or when it begins
    /// ([`Start`](crate::Start)). Returns the number of the flow that it begins or joins.
    ///
    /// `base` is the context from which the root's own is derived, perhaps with a remote parent and
    /// baggage; `None` if it is an empty one.
    ///
    /// Other threads that use the span wait until this returns. So it must not run the service's
    /// code, nor wait for a lock under which such code runs.
    fn root(&self, root: &ObservedSpan<'_>, base: Option<&Context>) -> u32;

    /// A span begins below one with the number [`ObservedSpan::flow`]. Returns the number of the
    /// new span, which is normally the same.
    fn begin(&self, span: &ObservedSpan<'_>) -> u32;

    /// A thread enters a span. Returns the number that the span has from now on: normally that of
    /// [`ObservedSpan::flow`], which is then not returned once more but kept.
    ///
    /// If the number is another one, the observer splits the flow, as where a span is entered on a
    /// thread that follows another flow. The old number then gets its [`release`](Self::release).
    /// If two threads do so at once, the span keeps the first one's number. The second gets
    /// `release` with its own, and a further `enter` with the first one's.
    fn enter(&self, span: &ObservedSpan<'_>) -> u32;

    /// The thread exits a span that it has entered. Spans may be exited out of order. Another
    /// thread may have given the span another number meanwhile, so observers pair this with the
    /// entry by [`ObservedSpan::key`].
    fn exit(&self, span: &ObservedSpan<'_>);

    /// A span ends, or its layer is removed while it is open.
    fn end(&self, span: &ObservedSpan<'_>);

    /// A number is no longer in use by a span that goes on: the span got another parent
    /// ([`set_parent`](crate::OpenTelemetrySpanExt::set_parent)), or another number.
    fn release(&self, flow: u32);

    /// Values in a flow that may become attributes of a span that begins in it, of which
    /// [`with_baggage_attributes`](crate::Builder::with_baggage_attributes) selects some. They
    /// replace members of the caller's baggage.
    ///
    /// For a local root that is not decided, `flow` is 0: these are the values of the flow that a
    /// root of this trace would join. The restrictions of [`root`](Self::root) apply.
    fn attributes(&self, flow: u32, trace: TraceId, each: &mut dyn FnMut(&str, &str)) {
        let _ = (flow, trace, each);
    }

    /// An event on a span, either its current or its explicit parent.
    fn event(&self, span: &ObservedSpan<'_>, event: &Event<'_>);

    /// Attributes to add to an event that is recorded. Called after [`event`](Self::event), and not
    /// for dropped traces.
    fn event_attributes(&self, span: &ObservedSpan<'_>, event: &Event<'_>) -> Vec<KeyValue> {
        let _ = (span, event);
        Vec::new()
    }
}

/// The observer of a layer.
#[derive(Debug)]
pub(crate) struct Observing {
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) layer: u64,
    pub(crate) clock: Clock,
}

/// The state of spans behind their entries.
pub(crate) trait Recorded {
    fn has_failed(&self, entry: &Entry) -> bool;
    fn has_room_for_event(&self, entry: &Entry) -> bool;
    /// Returns whether the event is kept.
    fn add_event(&self, entry: &Entry, name: Cow<'static, str>, attributes: Vec<KeyValue>) -> bool;
    fn set_attributes(&self, entry: &Entry, attributes: Vec<KeyValue>);
}

/// A span that is reported to an [`Observer`].
pub struct ObservedSpan<'a> {
    pub(crate) spans: &'a dyn Recorded,
    pub(crate) by: &'a Observing,
    pub(crate) entry: &'a Entry,
    pub(crate) flow: u32,
    /// 0: the clock has not been read.
    pub(crate) time: Ticks,
    /// The name that the fields of a local root state, during [`Observer::root`].
    pub(crate) name: Option<&'a str>,
    /// The key of a local root, during [`Observer::root`], if that reads it.
    pub(crate) key: Option<&'a str>,
    pub(crate) is_below_dropped: bool,
}

impl ObservedSpan<'_> {
    /// The name of a local root, during [`Observer::root`]: its field `otel.name`, or else its
    /// callsite's name.
    #[inline]
    pub fn root_name(&self) -> &str {
        self.name.unwrap_or(self.metadata().name())
    }

    /// The key by which the sampler counts a local root, during [`Observer::root`], if
    /// [`Observer::reads_keys`]; else the root's name. Also if a parent decided the root.
    #[inline]
    pub fn sampling_key(&self) -> &str {
        self.key.unwrap_or(self.root_name())
    }

    /// During [`Observer::root`]: whether the span is below another one of this process, whose
    /// trace was dropped, and is a local root only because it may be sent to another process. In a
    /// kept trace it would be a child.
    #[inline]
    pub fn is_below_dropped(&self) -> bool {
        self.is_below_dropped
    }

    /// Whether the span has failed so far. The same is noticed of dropped and of kept spans: an
    /// error in its fields, and a panic that unwinds through it. Of kept ones also their events of
    /// level ERROR and what the OpenTelemetry API states.
    pub fn has_failed(&self) -> bool {
        self.spans.has_failed(self.entry)
    }

    /// Whether the span's limits leave room for another event.
    pub fn has_room_for_event(&self) -> bool {
        self.spans.has_room_for_event(self.entry)
    }

    /// Adds an event with the current time to a recorded span. Returns false if the span's limits
    /// cut it.
    pub fn add_event(&self, name: impl Into<Cow<'static, str>>, attributes: Vec<KeyValue>) -> bool {
        self.spans.add_event(self.entry, name.into(), attributes)
    }

    /// Sets attributes of a recorded span, up to its end: the last chance is [`Observer::end`].
    /// Those that the span's limits cut are counted as the service's own are.
    pub fn set_attributes(&self, attributes: Vec<KeyValue>) {
        self.spans.set_attributes(self.entry, attributes);
    }

    /// The number of its flow; 0 for a root that has none yet.
    #[inline]
    pub fn flow(&self) -> u32 {
        self.flow
    }

    /// Identifies the span among those that are open in this process.
    #[inline]
    pub fn key(&self) -> (u64, u64) {
        (self.by.layer, self.entry.id())
    }

    /// The callsite.
    #[inline]
    pub fn metadata(&self) -> &'static Metadata<'static> {
        self.entry.metadata().unwrap_or(&crate::table::UNRECORDED)
    }

    /// Whether it is a local root.
    #[inline]
    pub fn is_root(&self) -> bool {
        self.entry.has(ROOT)
    }

    /// Whether its trace is recorded: it is kept, or may be kept late. False during
    /// [`Observer::root`].
    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.entry.phase().is_recorded()
    }

    /// The trace's id. Spans below a dropped root have one too.
    #[inline]
    pub fn trace_id(&self) -> TraceId {
        self.entry.trace_id()
    }

    /// The span's id; below a dropped root, that root's.
    #[inline]
    pub fn span_id(&self) -> SpanId {
        self.entry.span_id()
    }

    /// The time of the call, since the clock of [`Observer::start`] was made. Reads the clock
    /// unless the layer has read it for this call anyway. The clock may step back.
    pub fn now(&self) -> Duration {
        let clock = &self.by.clock;
        let time = if self.time == 0 { clock.ticks() } else { self.time };
        Duration::from_nanos(clock.since_origin(time).get())
    }
}

impl fmt::Debug for ObservedSpan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservedSpan")
            .field("name", &self.metadata().name())
            .field("flow", &self.flow)
            .finish_non_exhaustive()
    }
}
