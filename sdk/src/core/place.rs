//! Where a new span belongs.
//!
//! There are three sources: an explicit parent, the spans that this thread is inside, and
//! OpenTelemetry's current context, in which code may have attached a remote parent. [`place`] is
//! the only function that weighs them. Its common case, [`parent_here`], is also called alone.

use std::mem::ManuallyDrop;

use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry::{Context, SpanId};
use tracing_core::span::Attributes;
use tracing_core::{Level, Metadata};

use super::Core;
use crate::propagation::{is_debug, received_flow};
use crate::settings::{ContextMode, faces_outward};
use crate::stack;
use crate::table::{BASE_CURRENT, Entry, Phase};
use astracer_spans::reentry::is_busy;
use astracer_spans::stats::{Counted, Loss, Tally};

#[derive(Debug)]
pub(crate) enum Placement<'a> {
    /// The span is not recorded, and not known: the layer is shut down or busy on this thread,
    /// telemetry is suppressed here, a connection's span would begin a trace of its own, or the
    /// dropped span around it has ended.
    Nowhere,
    /// The span is a local root. If its parent is one of our dropped spans, it is dropped too,
    /// unless it gets another parent.
    LocalRoot { base: Base, below_dropped: bool },
    /// The span is below a span of a kept trace.
    Child { parent: &'a Entry, base: Base },
    /// The span is below a dropped local root, or below another span there.
    BelowDropped { above: &'a Entry },
}

#[derive(Clone, Debug)]
pub(crate) enum Base {
    /// The context that is current where the span is first entered, if it is that of the span's
    /// parent; otherwise an empty one.
    Current,
    Empty,
    /// This context, because the span carries values such as baggage wherever it is entered.
    Captured(Context),
}

impl Base {
    #[inline]
    pub(crate) fn flag(&self) -> u8 {
        if matches!(self, Base::Current) { BASE_CURRENT } else { 0 }
    }

    #[inline]
    pub(crate) fn captured(self) -> Option<Context> {
        match self {
            Base::Captured(context) => Some(context),
            Base::Current | Base::Empty => None,
        }
    }
}

#[derive(Clone, Copy)]
struct Here {
    is_suppressed: bool,
    span_id: SpanId,
    /// Values that a span carries wherever it is entered: baggage, or the debug flag of B3.
    has_values: bool,
}

impl Here {
    #[inline]
    fn now() -> Self {
        if !stack::has_contexts() {
            return Here { is_suppressed: false, span_id: SpanId::INVALID, has_values: false };
        }
        Context::map_current(|context| Here {
            is_suppressed: context.is_telemetry_suppressed(),
            span_id: context.span().span_context().span_id(),
            has_values: !context.baggage().is_empty() || is_debug(context, context.span().span_context()),
        })
    }

    fn base(self) -> Base {
        if self.has_values { Base::Captured(Context::current()) } else { Base::Current }
    }

    /// A root at this place, with the current span as its parent if there is one.
    fn local_root(self) -> Placement<'static> {
        let has_flow =
            || stack::has_contexts() && Context::map_current(|context| received_flow(context).is_some());
        let is_plain = self.span_id == SpanId::INVALID && !self.has_values && !has_flow();
        let base = if is_plain { Base::Current } else { Base::Captured(Context::current()) };
        Placement::LocalRoot { base, below_dropped: false }
    }

    /// A root inside a span that only another layer on this subscriber records.
    #[cold]
    fn root_beside(self) -> Placement<'static> {
        let base =
            if self.has_values { Base::Captured(current_as(SpanContext::NONE)) } else { Base::Current };
        Placement::LocalRoot { base, below_dropped: false }
    }
}

fn current_as(span: SpanContext) -> Context {
    Context::current().with_remote_span_context(span)
}

/// The parent of a new span in the common case: the span begins on a thread that is inside a span
/// of a kept trace, and nothing else determines its place. The second value is its [`Base::flag`].
#[inline]
pub(crate) fn parent_here<'a>(core: &'a Core, attributes: &Attributes<'_>) -> Option<(&'a Entry, u8)> {
    if core.is_closed() || is_busy() || !attributes.is_contextual() {
        return None;
    }
    let inside = stack::innermost_of_all(core.number()).filter(|inside| !inside.is_dropped)?;
    let base = if core.context_mode() == ContextMode::Off {
        // Contexts do not identify our spans here.
        if core.has_attached_parent(inside.context) {
            return None;
        }
        0
    } else {
        let here = Here::now();
        if here.is_suppressed || here.has_values || here.span_id != inside.context {
            return None;
        }
        BASE_CURRENT
    };
    Some((core.find_id(inside.entry)?, base))
}

#[inline]
pub(crate) fn place<'a>(core: &'a Core, attributes: &Attributes<'_>) -> Placement<'a> {
    match parent_here(core, attributes) {
        Some((parent, 0)) => Placement::Child { parent, base: Base::Empty },
        Some((parent, _)) => Placement::Child { parent, base: Base::Current },
        None => place_elsewhere(core, attributes),
    }
}

pub(crate) fn place_elsewhere<'a>(core: &'a Core, attributes: &Attributes<'_>) -> Placement<'a> {
    match place_anywhere(core, attributes) {
        Placement::LocalRoot { .. }
            if is_of_transport(attributes.metadata()) && !core.settings().transport_roots =>
        {
            Placement::Nowhere
        }
        placement => placement,
    }
}

/// Whether a span was made by the code below a service's requests. Such spans have the levels DEBUG
/// and TRACE, so that the level decides for nearly all others.
#[inline]
fn is_of_transport(metadata: &Metadata<'_>) -> bool {
    *metadata.level() > Level::INFO && is_transport(metadata.target())
}

#[cold]
fn is_transport(target: &str) -> bool {
    let of = target.split("::").next().unwrap_or_default();
    matches!(of, "h2" | "hyper" | "hyper_util" | "tonic" | "tower")
}

fn place_anywhere<'a>(core: &'a Core, attributes: &Attributes<'_>) -> Placement<'a> {
    if core.is_closed() {
        core.note_after_shutdown(attributes.metadata());
        return Placement::Nowhere;
    }
    if is_busy() {
        core.lose_nested();
        return Placement::Nowhere;
    }
    if !attributes.is_contextual() {
        return explicit(core, attributes);
    }
    let inside = stack::innermost_place(core.number());
    let is_off = core.context_mode() == ContextMode::Off;
    let Some(inside) = inside else {
        if stack::is_inside() {
            forget_gone();
        }
        let here = Here::now();
        return match here {
            here if here.is_suppressed => Placement::Nowhere,
            here if stack::is_inside() && stack::beside(core.number(), here.span_id).is_some() => {
                here.root_beside()
            }
            here => here.local_root(),
        };
    };
    let here = if is_off {
        // Contexts do not identify our spans here.
        if core.has_attached_parent(inside.context) {
            return Here::now().local_root();
        }
        Here { is_suppressed: false, span_id: inside.context, has_values: false }
    } else {
        Here::now()
    };
    if here.is_suppressed {
        return Placement::Nowhere;
    }
    let is_beside = here.span_id != inside.context;
    let inside = match is_beside.then(|| stack::beside(core.number(), here.span_id)) {
        None => inside,
        // Code attached a context in between, with a remote parent or with none.
        Some(None) if core.is_of_other_layer(&inside) => inside,
        Some(None) => return here.local_root(),
        // The context is another layer's, of a span that both layers have or of one around it.
        Some(Some(own)) => match own {
            Some(own) => own,
            None => return here.root_beside(),
        },
    };
    let Some(above) = core.find_id(inside.entry) else {
        return match inside.is_dropped {
            true => Placement::Nowhere,
            false if is_beside => here.root_beside(),
            false => here.local_root(),
        };
    };
    if !inside.is_dropped {
        return Placement::Child { parent: above, base: if is_off { Base::Empty } else { here.base() } };
    }
    if !is_off && faces_outward(attributes.metadata()) && above.refusal().is_none() {
        // The span may get another parent, and the processes that it calls have to learn that the
        // trace is dropped.
        let base = match is_beside {
            true => current_as(core.ids(above).unwrap_or(SpanContext::NONE)),
            false => Context::current(),
        };
        return Placement::LocalRoot { base: Base::Captured(base), below_dropped: true };
    }
    Placement::BelowDropped { above }
}

impl Core {
    /// Counts a span that an allocator makes while this thread holds a lock of ours.
    #[cold]
    fn lose_nested(&self) {
        if !stack::is_dropped(self.number()) {
            let counters = &self.shared.counters;
            counters.tally(Tally::SpansMade, 1);
            counters.tally(Tally::SpansEnded, 1);
            counters.lose(Loss::Nested, Counted { spans: 1, ..Counted::default() });
        }
    }

    #[cold]
    fn note_after_shutdown(&self, metadata: &Metadata<'_>) {
        // Connections outlive the service's work.
        if !Here::now().is_suppressed && !is_of_transport(metadata) {
            self.shared.counters.tally(Tally::SpansAfterShutdown, 1);
            self.shared.reports.warn_of_span_after_shutdown();
        }
    }
}

/// Leaves spans of layers that no longer exist; otherwise their contexts would stay current here
/// forever.
#[cold]
#[inline(never)]
pub(super) fn forget_gone() {
    while let Some(left) = stack::pop_gone() {
        drop(ManuallyDrop::into_inner(left.guard));
    }
}

#[cold]
fn explicit<'a>(core: &'a Core, attributes: &Attributes<'_>) -> Placement<'a> {
    if Here::now().is_suppressed {
        return Placement::Nowhere;
    }
    let root = Placement::LocalRoot { base: Base::Empty, below_dropped: false };
    let Some(parent) = attributes.parent() else { return root };
    // If a filter hides the parent from the layer, the span is a root, as in tracing-opentelemetry.
    let Some(above) = core.find(parent) else { return root };
    // Starting the parent fixes the parent's own parent.
    if core.started(above) == Phase::Recorded {
        let base = core.kept_context(above).map_or(Base::Empty, Base::Captured);
        return Placement::Child { parent: above, base };
    }
    Placement::BelowDropped { above }
}
