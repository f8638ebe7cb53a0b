//! Finds out whether another layer on the subscriber, such as tracing-opentelemetry's, keeps
//! OpenTelemetry's context.
//!
//! Two layers that attach a context for each span take each other's for remote parents. The stock
//! layer has no other way to find a span's parent, so ours gives way: it attaches none, and follows
//! a remote parent that code attaches.
//!
//! `tracing` does not tell a layer which others are on its subscriber. So when a thread enters a
//! span for the first time, the layer enters and exits it once more, through the whole subscriber
//! and inside an empty context. Other layers see a span that is entered twice, as that of a future
//! is. If a context with a span is current then, another layer has attached it.

use std::cell::Cell;
use std::sync::OnceLock;

use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, SpanId};
use tracing_core::Dispatch;
use tracing_core::dispatcher::WeakDispatch;
use tracing_core::span::Id;

use super::Core;
use crate::settings::ContextMode;
use crate::stack;
use crate::sync::{AtomicU8, Ordering};

const OFF: u8 = 0;
const IDS: u8 = 1;
const RECORDING: u8 = 2;
const MODE: u8 = 3;
/// It is unknown whether another layer keeps the context.
const UNKNOWN: u8 = 4;
/// Another layer keeps the context; the mode is `OFF`.
const BESIDE: u8 = 8;

/// The mode of the contexts of one layer on one subscriber.
#[derive(Debug)]
pub(super) struct Contexts {
    /// Relaxed: the value guards no other data.
    state: AtomicU8,
    /// The subscriber on which the layer is installed.
    dispatch: OnceLock<WeakDispatch>,
}

thread_local! {
    /// Whether this thread enters a span to look for another layer's context.
    static LOOKS: Cell<bool> = const { Cell::new(false) };
}

impl Contexts {
    pub(super) fn new(mode: ContextMode) -> Self {
        let state = match mode {
            ContextMode::Off => OFF,
            ContextMode::Ids => IDS,
            ContextMode::Recording => RECORDING,
        };
        Contexts { state: AtomicU8::new(state), dispatch: OnceLock::new() }
    }

    #[inline]
    pub(super) fn mode(&self) -> ContextMode {
        match self.state.load(Ordering::Relaxed) & MODE {
            OFF => ContextMode::Off,
            IDS => ContextMode::Ids,
            _ => ContextMode::Recording,
        }
    }

    /// Notes the subscriber. From now on the first span that is entered answers the question.
    pub(super) fn watch(&self, dispatch: &Dispatch) {
        let state = self.state.load(Ordering::Relaxed);
        if state != OFF && self.dispatch.set(dispatch.downgrade()).is_ok() {
            self.state.store(state | UNKNOWN, Ordering::Relaxed);
        }
    }

    #[inline]
    fn is_unknown(&self) -> bool {
        self.state.load(Ordering::Relaxed) & UNKNOWN != 0
    }

    /// The first thread's result counts: another may have found the context of a thread that knew
    /// it already.
    fn settle(&self, is_beside: bool) {
        let state = self.state.load(Ordering::Relaxed);
        if state & UNKNOWN != 0 {
            let known = if is_beside { BESIDE | OFF } else { state & MODE };
            let _ = self.state.compare_exchange(state, known, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Core {
    /// Whether the thread only looks for another layer's context and this layer does not enter the
    /// span. Finds out first whether there is such a layer, if that is unknown.
    #[inline]
    pub(super) fn only_looks(&self, id: &Id) -> bool {
        self.contexts.is_unknown() && self.look(id)
    }

    #[cold]
    #[inline(never)]
    fn look(&self, id: &Id) -> bool {
        if LOOKS.get() {
            return true;
        }
        let dispatch = self.contexts.dispatch.get().and_then(WeakDispatch::upgrade);
        let Some(dispatch) = dispatch.filter(|_| stack::has_contexts()) else { return false };
        /// Ends the look, also if a layer panics.
        struct Looking;
        impl Drop for Looking {
            fn drop(&mut self) {
                LOOKS.set(false);
            }
        }
        LOOKS.set(true);
        let looking = Looking;
        let empty = Context::new().attach();
        dispatch.enter(id);
        let span = Context::map_current(|context| {
            context.has_active_span().then(|| context.span().span_context().span_id())
        });
        dispatch.exit(id);
        drop(empty);
        drop(looking);
        // Layers of ours recognise each other's contexts.
        let is_of_another = |span: SpanId| stack::beside(self.number(), span).is_none();
        self.contexts.settle(span.is_some_and(is_of_another));
        false
    }

    /// Notes that tracing-opentelemetry's layer is on the subscriber.
    pub(crate) fn give_way(&self) {
        if self.context_mode() != ContextMode::Off {
            self.contexts.state.store(BESIDE | OFF, Ordering::Relaxed);
        }
    }

    /// Whether another layer keeps OpenTelemetry's context.
    #[inline]
    pub(super) fn is_beside_contexts(&self) -> bool {
        self.contexts.state.load(Ordering::Relaxed) & BESIDE != 0
    }

    /// The span in the current context where another layer keeps the contexts, else an invalid id.
    pub(super) fn other_context(&self) -> SpanId {
        if self.is_beside_contexts() && stack::has_contexts() {
            return Context::map_current(|context| context.span().span_context().span_id());
        }
        SpanId::INVALID
    }

    /// The same, if that span is remote and was not current when this thread entered the span with
    /// the context `inside`: code attached it.
    pub(super) fn attached_parent(&self, inside: SpanId) -> Option<SpanId> {
        if !self.is_beside_contexts() || !stack::has_contexts() {
            return None;
        }
        Context::map_current(|context| {
            let span = context.span();
            let ids = span.span_context();
            (ids.is_remote() && ids.is_valid() && ids.span_id() != inside).then(|| ids.span_id())
        })
    }
}
