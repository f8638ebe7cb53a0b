//! Finds out whether another layer on the subscriber, such as tracing-opentelemetry's, keeps
//! OpenTelemetry's context.
//!
//! Two layers that attach a context for each span take each other's for remote parents. The stock
//! layer has no other way to find a span's parent, so ours gives way: it attaches none, and follows
//! a remote parent that code attaches.
//!
//! A layer cannot ask `tracing` for the other layers of its subscriber, but their contexts show. A
//! parent that code attaches comes from another process and is marked as remote; the span of a
//! layer is not. So our layer gives way when it first sees such a context inside one of its spans,
//! or between a span's beginning and its entry. When it exits that span it knows: the contexts that
//! code attached inside are gone then, and those of another layer are not, or the other way round
//! if the other layer is called first. If it was code after all, which started a span through
//! OpenTelemetry's API, the layer attaches its contexts again, and from then on follows such spans.

use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};

use super::Core;
use crate::settings::ContextMode;
use crate::stack::{self, CurrentSpan, owner};
use crate::table::{Entry, REMOTE_PARENT};
use astracer_spans::sync::{AtomicU8, AtomicU64, Ordering};

/// Another layer keeps the context, as far as is known.
const BESIDE: u8 = 1;
/// `BESIDE` is a guess, until the suspect is exited.
const UNSURE: u8 = 2;
/// Contexts of this process were attached by code.
const ALONE: u8 = 4;

/// The mode of the contexts of one layer on one subscriber. Relaxed: the values guard no other
/// data, and a guess that is late is corrected.
#[derive(Debug)]
pub(super) struct Contexts {
    state: AtomicU8,
    /// The mode of the settings.
    own: ContextMode,
    /// The span whose exit resolves a guess.
    suspect: AtomicU64,
}

impl Contexts {
    pub(super) fn new(own: ContextMode) -> Self {
        Contexts { state: AtomicU8::new(0), own, suspect: AtomicU64::new(0) }
    }

    #[inline]
    pub(super) fn mode(&self) -> ContextMode {
        if self.state() & BESIDE == 0 { self.own } else { ContextMode::Off }
    }

    #[inline]
    fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    fn set(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
    }

    /// Gives way, until `suspect` is exited.
    fn suspect(&self, suspect: u64) {
        if self.state() & (BESIDE | ALONE) == 0 {
            self.suspect.store(suspect, Ordering::Relaxed);
            self.set(BESIDE | UNSURE);
        }
    }
}

/// The span of the current context.
struct CurrentContext {
    trace: TraceId,
    span: SpanId,
    is_remote: bool,
    is_recording: bool,
    /// It has no flag, as dropped spans of OpenTelemetry's SDK.
    is_unmarked: bool,
}

impl CurrentContext {
    fn get() -> Option<Self> {
        if !stack::has_contexts() {
            return None;
        }
        Context::map_current(|context| {
            let span = context.span();
            let ids = span.span_context();
            ids.is_valid().then(|| CurrentContext {
                trace: ids.trace_id(),
                span: ids.span_id(),
                is_remote: ids.is_remote(),
                is_recording: span.is_recording(),
                is_unmarked: ids.trace_flags() == TraceFlags::NOT_SAMPLED,
            })
        })
    }
}

#[cold]
fn current_id() -> SpanId {
    CurrentContext::get().map_or(SpanId::INVALID, |current| current.span)
}

/// Whether the current span is remote, and not this one.
#[cold]
fn is_remote(other_than: SpanId) -> bool {
    CurrentContext::get().is_some_and(|current| current.is_remote && current.span != other_than)
}

impl Core {
    /// Notes that tracing-opentelemetry's layer is on the subscriber.
    pub(crate) fn give_way(&self) {
        if self.contexts.own != ContextMode::Off {
            self.contexts.set(BESIDE);
        }
    }

    /// Whether another layer on the subscriber attached the current context, for the span `inside`
    /// or one that only it has.
    #[cold]
    pub(super) fn is_of_other_layer(&self, inside: &CurrentSpan) -> bool {
        if self.is_beside_contexts() {
            return CurrentContext::get().is_some_and(|current| !current.is_remote);
        }
        if !self.may_guess() {
            return false;
        }
        let Some(CurrentContext { trace, span, .. }) = self.foreign() else { return false };
        // Code that starts a span here continues our trace. Another layer does so only where both
        // continue a caller's.
        let continues = |entry: &Entry| {
            entry.trace_id() == trace && !inside.is_dropped && entry.flags() & REMOTE_PARENT == 0
        };
        if self.find_id(inside.entry).is_some_and(continues) || self.is_ours(span) {
            return false;
        }
        self.contexts.suspect(inside.entry);
        true
    }

    /// Whether another layer attached the current context since this span began, before ours is
    /// called for the span's entry.
    #[inline]
    pub(super) fn gives_way_to_enter(&self, entry: &Entry) -> bool {
        self.may_guess() && stack::has_contexts() && self.guess_at_entry(entry)
    }

    #[inline(never)]
    fn guess_at_entry(&self, entry: &Entry) -> bool {
        let Some(CurrentContext { span, .. }) = self.foreign() else { return false };
        if span == entry.parent() || stack::has_context(span) || self.is_ours(span) {
            return false;
        }
        self.contexts.suspect(entry.id());
        true
    }

    /// The current context, if its span may be another layer's or started through OpenTelemetry's
    /// API: it is of this process, and open or dropped. Our contexts that outlive their spans
    /// record nothing, and those of dropped spans have the flag of a random trace id, which
    /// OpenTelemetry's SDK does not set. A caller's trace may lack that flag. Once we have dropped
    /// such a trace, only an open span proves it.
    fn foreign(&self) -> Option<CurrentContext> {
        let flag_proves_it = !self.shared.dropped_unmarked.load(Ordering::Relaxed);
        CurrentContext::get().filter(|current| {
            !current.is_remote && (current.is_recording || current.is_unmarked && flag_proves_it)
        })
    }

    /// Whether it is unknown if another layer keeps the contexts. Our own subscriber has no other
    /// layer.
    #[inline]
    fn may_guess(&self) -> bool {
        self.contexts.state() & (BESIDE | ALONE) == 0 && !self.makes_ids()
    }

    /// Whether another layer keeps OpenTelemetry's context.
    #[inline]
    pub(super) fn is_beside_contexts(&self) -> bool {
        self.contexts.state() & BESIDE != 0
    }

    /// The span in the current context where another layer keeps the contexts, else an invalid id.
    #[inline]
    pub(super) fn other_context(&self) -> SpanId {
        if self.is_beside_contexts() { current_id() } else { SpanId::INVALID }
    }

    /// Whether code attached a remote parent since this thread entered the span with the context
    /// `inside`, where another layer keeps the contexts.
    #[inline]
    pub(super) fn has_attached_parent(&self, inside: SpanId) -> bool {
        self.is_beside_contexts() && is_remote(inside)
    }

    /// Whether the exit of a span may resolve a guess.
    #[inline]
    pub(super) fn is_unsure(&self) -> bool {
        self.contexts.state() & UNSURE != 0
    }

    /// Resolves a guess when the thread is about to exit the suspect.
    #[cold]
    #[inline(never)]
    pub(super) fn resolve(&self, id: u64) {
        if self.contexts.suspect.load(Ordering::Relaxed) != id {
            return;
        }
        let Some((inside, is_attached)) = stack::entered(self.number(), id) else { return };
        if inside == SpanId::INVALID {
            return;
        }
        let now = CurrentContext::get();
        let is_same = now.as_ref().is_some_and(|now| now.span == inside);
        // Ours is covered by another layer's, or the other layer's has gone before ours is called.
        let is_beside = !is_same && (!is_attached || now.is_some_and(|now| !now.is_remote));
        if is_beside {
            self.contexts.set(BESIDE);
        } else if is_same {
            self.contexts.set(ALONE);
        }
    }

    /// Whether this is the id of an open span of ours, on any subscriber: then code attached its
    /// context, and no other layer keeps the contexts of its subscriber.
    fn is_ours(&self, span: SpanId) -> bool {
        let of_core = owner::with_open(span);
        if of_core == Some(self.number()) {
            self.contexts.set(ALONE);
        }
        of_core.is_some()
    }
}
