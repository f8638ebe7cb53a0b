//! The layer: adapts `tracing_subscriber::Layer` to [`Core`].

use std::any::TypeId;
use std::sync::Arc;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Dispatch, Event, LevelFilter, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Identity};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

#[cfg(feature = "bridge")]
use crate::bridge::Bridge;
use crate::core::{Core, place};
use crate::settings::DroppedSpans;
use crate::stack;

/// The layer for `tracing_subscriber`. Put it on a `Registry`, with any other layers.
///
/// Built by [`Builder`](crate::Builder). It may be cloned and the clones put on several
/// subscribers. Clones share the sampler, the exporter, the bounds and the counts; each knows only
/// the spans of its own subscriber.
#[derive(Debug)]
pub struct AstracerLayer {
    /// `None`: switched off.
    core: Option<Arc<Core>>,
    /// The highest level that is enabled. On a registry a filter beside the layer does the same;
    /// the subscriber may have no filter.
    max_level: LevelFilter,
    /// The core's number if spans below a dropped root are disabled, else 0.
    refusing: u64,
    #[cfg(feature = "bridge")]
    bridge: Option<Arc<Bridge>>,
}

/// Makes a layer for another subscriber, with span state of its own.
///
/// `reload` does not notify a layer that it has been installed, so even a clone on the same
/// subscriber starts empty. It does not know the open spans of the layer it replaces. Those spans
/// are lost, and counted, when the old layer is dropped.
impl Clone for AstracerLayer {
    fn clone(&self) -> Self {
        let core = self.core.as_ref().map(|core| core.beside(false));
        AstracerLayer::new(core).with_max_level(self.max_level)
    }
}

/// A part of the type's name of a subscriber that has tracing-opentelemetry's layer, unless it is
/// boxed.
const STOCK_LAYER: &str = "tracing_opentelemetry::layer::OpenTelemetryLayer<";

impl AstracerLayer {
    pub(crate) fn new(core: Option<Arc<Core>>) -> Self {
        let refuses = |core: &&Arc<Core>| core.settings().dropped_spans == DroppedSpans::Disabled;
        AstracerLayer {
            max_level: LevelFilter::TRACE,
            refusing: core.as_ref().filter(refuses).map_or(0, |core| core.number()),
            #[cfg(feature = "bridge")]
            bridge: core.clone().map(|core| Arc::new(Bridge::new(core))),
            core,
        }
    }

    pub(crate) fn core(&self) -> Option<&Core> {
        if cfg!(feature = "enabled") { self.core.as_deref() } else { None }
    }

    pub(crate) fn shared_core(&self) -> Option<Arc<Core>> {
        if cfg!(feature = "enabled") { self.core.clone() } else { None }
    }

    pub(crate) fn max_level(&self) -> LevelFilter {
        self.max_level
    }

    pub(crate) fn with_max_level(self, max_level: LevelFilter) -> Self {
        AstracerLayer { max_level, ..self }
    }

    #[inline]
    pub(crate) fn refuses_here(&self) -> bool {
        self.refusing != 0 && stack::is_dropped(self.refusing)
    }

    #[inline]
    pub(crate) fn is_level_enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.max_level
    }
}

impl<S> Layer<S> for AstracerLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match self.core() {
            // The maximum level applies to all layers, so it also holds while this one is switched
            // off.
            _ if !self.is_level_enabled(metadata) => Interest::never(),
            Some(core) if core.settings().dropped_spans.refuses(metadata) => Interest::sometimes(),
            _ => Interest::always(),
        }
    }

    /// A layer that is switched off needs no spans; other layers may raise the level.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        match self.core() {
            None => Some(LevelFilter::OFF),
            Some(_) => Some(self.max_level).filter(|level| *level != LevelFilter::TRACE),
        }
    }

    #[inline]
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let refused =
            cfg!(feature = "enabled") && self.refuses_here() && DroppedSpans::Disabled.refuses(metadata);
        if refused {
            stack::refuse();
        }
        !refused && self.is_level_enabled(metadata)
    }

    #[inline(always)]
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        if let Some(core) = self.core() {
            core.begin(attributes, Some(id.into_u64()), place(core, attributes));
        }
    }

    #[inline(always)]
    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        if let Some(core) = self.core() {
            core.enter(id);
        }
    }

    #[inline(always)]
    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        if let Some(core) = self.core() {
            // The registry counts the handles of its spans, so there are none to release.
            core.exit(id, |_, _| ());
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some(core) = self.core() {
            core.record(id, values);
        }
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, _: Context<'_, S>) {
        if let Some(core) = self.core() {
            core.follows(id, follows);
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(core) = self.core() {
            core.event(event);
        }
    }

    #[inline(always)]
    fn on_close(&self, id: Id, _: Context<'_, S>) {
        if let Some(core) = self.core() {
            core.end(&id);
        }
    }

    fn on_layer(&mut self, _: &mut S) {
        if let Some(core) = self.core()
            && std::any::type_name::<S>().contains(STOCK_LAYER)
        {
            core.give_way();
        }
    }

    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        if let Some(core) = self.core() {
            let registry = dispatch.downcast_ref::<Registry>();
            core.set_base(registry.map_or(0, |registry| std::ptr::from_ref(registry).addr()));
        }
    }

    // The trait's method is unsafe because callers read through the returned pointer. Ours points
    // into `self` or to a static, and has the requested type.
    #[allow(unsafe_code)]
    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some((&raw const *self).cast());
        }
        if self.core().is_none() {
            // Reports itself as a `None` layer: the hint `OFF` above then applies to this layer
            // alone, not to the others.
            static NONE: Option<Identity> = None;
            return unsafe { <Option<Identity> as Layer<S>>::downcast_raw(&NONE, id) };
        }
        #[cfg(feature = "bridge")]
        return self.bridge.as_ref()?.downcast_raw(id);
        #[cfg(not(feature = "bridge"))]
        None
    }
}
