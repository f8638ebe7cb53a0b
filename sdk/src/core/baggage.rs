//! Members of the baggage with which a span begins, as attributes.

use opentelemetry::{Context, KeyValue, TraceId};
use tracing_core::span::Attributes;

use super::Core;
use crate::baggage_attributes::BaggageAttributes;
use crate::stack;
use crate::table::Entry;
use astracer_spans::record::Body;
use astracer_spans::reentry::Busy;

/// A pointer: a root without members tests and drops no list.
pub(super) type Members = Option<Box<[KeyValue]>>;

impl Core {
    #[inline]
    pub(super) fn adds_members(&self) -> bool {
        self.shared.baggage_attributes.is_some()
    }

    /// The members for a root that is not decided yet.
    #[inline]
    pub(super) fn members_of_root(&self, trace_id: TraceId, base: Option<&Context>) -> Members {
        if self.adds_members() { self.find_members(trace_id, base) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn find_members(&self, trace_id: TraceId, base: Option<&Context>) -> Members {
        let wanted = self.shared.baggage_attributes.as_ref()?;
        let mut found = Vec::new();
        if let Some(base) = base {
            wanted.read(base, &mut found);
        }
        self.add_from_flow(wanted, (0, trace_id), &mut found);
        (!found.is_empty()).then(|| found.into())
    }

    /// Adds the members to a child that begins. No other thread knows its id yet.
    pub(super) fn add_members_of_child(&self, attributes: &Attributes<'_>, entry: &Entry, parent: &Entry) {
        let Some(wanted) = &self.shared.baggage_attributes else { return };
        let mut found = Vec::new();
        if !attributes.is_contextual() {
            if let Some(context) = self.kept_context(parent) {
                wanted.read(&context, &mut found);
            }
        } else if stack::has_contexts() {
            let _busy = Busy::mark();
            Context::map_current(|context| wanted.read(context, &mut found));
        }
        if parent.flow() != 0 {
            self.add_from_flow(wanted, (parent.flow(), parent.trace_id()), &mut found);
        }
        self.add_members(&mut entry.extra().body, found);
    }

    /// The values in a flow replace those that arrived.
    fn add_from_flow(
        &self,
        wanted: &BaggageAttributes,
        (flow, trace_id): (u32, TraceId),
        found: &mut Vec<KeyValue>,
    ) {
        self.call((), |observer| {
            observer.attributes(flow, trace_id, &mut |name, value| wanted.take(name, value, found));
        });
    }

    #[cold]
    #[inline(never)]
    pub(super) fn add_members(
        &self,
        body: &mut Option<Box<Body>>,
        members: impl IntoIterator<Item = KeyValue>,
    ) {
        for member in members {
            let body = body.get_or_insert_with(|| self.new_body());
            body.set_default(member, &self.settings().limits);
        }
    }
}
