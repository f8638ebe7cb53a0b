//! Where a new span belongs.
//!
//! There are three sources: the parent that the span's author gave, the spans that this thread is
//! inside of, and OpenTelemetry's current context, in which code may have attached a parent from
//! elsewhere. [`place`] is the only function that weighs them; its common case, [`parent_here`], is
//! also asked alone.

use std::mem::ManuallyDrop;

use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, SpanId};
use tracing_core::span::{Attributes, Id};

use super::Core;
use crate::propagation::is_debug;
use crate::settings::{ContextMode, faces_outward};
use crate::stack;
use crate::table::{BASE_CURRENT, Entry, Phase};

/// The place of a new span.
#[derive(Debug)]
pub(crate) enum Placement<'a> {
    /// It is not recorded, and not known: the layer is shut down, or telemetry is suppressed here.
    Nowhere,
    /// It is a local root. If its parent is a dropped span of ours, so is it, unless it is given
    /// another parent.
    LocalRoot { base: Base, below_dropped: bool },
    /// It is below a span of a kept trace.
    Child { parent: &'a Entry, base: Base },
    /// It is below a dropped local root, or below another span there.
    BelowDropped { above: &'a Entry },
    /// It is below a dropped local root that has no entry, because there was no room for one.
    BelowUnknown,
}

/// The context from which the span's own is made.
#[derive(Clone, Debug)]
pub(crate) enum Base {
    /// The context that is current where the span is first entered, if the span's parent is current
    /// there, and else an empty one.
    Current,
    Empty,
    /// This one, because the span takes values such as baggage with it wherever it is entered.
    Captured(Context),
}

impl Base {
    /// The flag of the span's entry: `BASE_CURRENT` or nothing.
    #[inline]
    pub(crate) fn flag(&self) -> u8 {
        if matches!(self, Base::Current) { BASE_CURRENT } else { 0 }
    }

    /// The context that the span takes with it.
    #[inline]
    pub(crate) fn captured(self) -> Option<Context> {
        match self {
            Base::Captured(context) => Some(context),
            Base::Current | Base::Empty => None,
        }
    }
}

/// The current context, as far as it matters for a new span.
#[derive(Clone, Copy)]
struct Here {
    is_suppressed: bool,
    span_id: SpanId,
    /// Values that go with a span wherever it is entered: baggage, or the debug flag of B3.
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

    /// A root at this place: with the parent that is current, if there is one.
    fn local_root(self) -> Placement<'static> {
        let is_plain = self.span_id == SpanId::INVALID && !self.has_values;
        let base = if is_plain { Base::Current } else { Base::Captured(Context::current()) };
        Placement::LocalRoot { base, below_dropped: false }
    }
}

impl Placement<'_> {
    /// The id of the entry that answers for the span if there is no room for one of its own; 0:
    /// none. `None` if it is to have none.
    pub(crate) fn above(&self) -> Option<u64> {
        match self {
            Placement::Nowhere => None,
            Placement::Child { parent: above, .. } | Placement::BelowDropped { above } => Some(above.id()),
            Placement::LocalRoot { .. } | Placement::BelowUnknown => Some(0),
        }
    }
}

/// The parent of a new span in the case that is nearly all of them: it begins on a thread that is
/// inside of a span of a kept trace, and nothing else says where it belongs. With its base, as
/// [`Base::flag`] says it.
#[inline]
pub(crate) fn parent_here<'a>(core: &'a Core, attributes: &Attributes<'_>) -> Option<(&'a Entry, u8)> {
    if core.is_closed() || !attributes.is_contextual() {
        return None;
    }
    let (above, context) = stack::kept_here(core.number())?;
    let base = if core.settings().context == ContextMode::Off {
        // Contexts say nothing about our spans.
        0
    } else {
        let here = Here::now();
        if here.is_suppressed || here.has_values || here.span_id != context {
            return None;
        }
        BASE_CURRENT
    };
    Some((core.find_id(above)?, base))
}

/// The place of a new span. `above_lost` is asked about an explicit parent that has no entry: see
/// [`above`](crate::above).
#[inline]
pub(crate) fn place<'a>(
    core: &'a Core,
    attributes: &Attributes<'_>,
    above_lost: impl FnOnce(&Id) -> Option<u64>,
) -> Placement<'a> {
    match parent_here(core, attributes) {
        Some((parent, 0)) => Placement::Child { parent, base: Base::Empty },
        Some((parent, _)) => Placement::Child { parent, base: Base::Current },
        None => place_elsewhere(core, attributes, above_lost),
    }
}

/// The place of a span for which [`parent_here`] knows none.
pub(crate) fn place_elsewhere<'a>(
    core: &'a Core,
    attributes: &Attributes<'_>,
    above_lost: impl FnOnce(&Id) -> Option<u64>,
) -> Placement<'a> {
    if core.is_closed() {
        return Placement::Nowhere;
    }
    if !attributes.is_contextual() {
        return explicit(core, attributes, above_lost);
    }
    let inside = stack::innermost_place(core.number());
    let is_off = core.settings().context == ContextMode::Off;
    let Some(inside) = inside else {
        if stack::is_inside() {
            forget_gone();
        }
        let here = Here::now();
        return if here.is_suppressed { Placement::Nowhere } else { here.local_root() };
    };
    let here = if is_off {
        // Contexts say nothing about our spans.
        Here { is_suppressed: false, span_id: inside.context, has_values: false }
    } else {
        Here::now()
    };
    if here.is_suppressed {
        return Placement::Nowhere;
    }
    // A context that someone attached in between may hold a parent from elsewhere, or none.
    if here.span_id != inside.context {
        return here.local_root();
    }
    let Some(above) = core.find_id(inside.entry) else {
        return if inside.is_dropped { Placement::BelowUnknown } else { here.local_root() };
    };
    if !inside.is_dropped {
        return Placement::Child { parent: above, base: if is_off { Base::Empty } else { here.base() } };
    }
    if !is_off && faces_outward(attributes.metadata()) {
        // The span may be given a parent, and the processes that it calls have to know that the
        // trace is dropped.
        return Placement::LocalRoot { base: Base::Captured(Context::current()), below_dropped: true };
    }
    Placement::BelowDropped { above }
}

/// Leaves spans of layers that are gone, whose contexts would else be current here for good.
#[cold]
#[inline(never)]
pub(super) fn forget_gone() {
    while let Some(left) = stack::pop_gone() {
        drop(ManuallyDrop::into_inner(left.guard));
    }
}

/// A span with an explicit parent, or with explicitly none.
#[cold]
fn explicit<'a>(
    core: &'a Core,
    attributes: &Attributes<'_>,
    above_lost: impl FnOnce(&Id) -> Option<u64>,
) -> Placement<'a> {
    if Here::now().is_suppressed {
        return Placement::Nowhere;
    }
    let root = Placement::LocalRoot { base: Base::Empty, below_dropped: false };
    let Some(parent) = attributes.parent() else { return root };
    let above = match core.find(parent) {
        Some(above) => above,
        None => match above_lost(parent).filter(|_| core.has_refused()) {
            // A filter hides the parent from the layer: then there is none, as in
            // tracing-opentelemetry.
            None => return root,
            Some(above) => match core.find_id(above) {
                Some(above) => above,
                None => return Placement::BelowUnknown,
            },
        },
    };
    // Its parent is settled by that.
    if core.started(above) == Phase::Kept {
        let base = core.kept_context(above).map_or(Base::Empty, Base::Captured);
        return Placement::Child { parent: above, base };
    }
    Placement::BelowDropped { above }
}
