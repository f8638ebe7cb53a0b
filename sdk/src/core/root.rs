//! Begins local roots that are decided at once, from the data known at their start: see
//! [`Start::AtOnce`](crate::Start::AtOnce).
//!
//! Only the fields that the key needs are read, without copying them; the others are copied if the
//! trace is kept.

use std::borrow::Cow;

use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{SpanContext, SpanRef, TraceContextExt as _};
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};
use tracing_core::field::{Field, Visit};
use tracing_core::span::Attributes;

use super::Core;
use super::begin::NO_PARENT;
use super::context::of_dropped;
use super::place::Base;
use crate::clock::Ticks;
use crate::decider::RootDecision;
use crate::key::{Key, Lookup, Root};
use crate::memory_budget::Use;
use crate::record::Fields;
use crate::settings::ContextMode;
use crate::stats::{Counted, Loss};
use crate::table::{Beginning, Entry, NewId, Phase, REMOTE_PARENT, ROOT, Refusal};
use crate::thread;
use crate::traces::{TraceRef, Traces};

/// The inputs of a local root's start, apart from its fields and the decision.
#[derive(Clone, Copy)]
struct Facts<'a> {
    began: Ticks,
    trace_id: TraceId,
    /// Invalid if the root has no parent.
    parent: &'a SpanContext,
    /// The captured context from which the root's is derived, if there is one.
    base: Option<&'a Context>,
    /// `BASE_CURRENT` or 0.
    flag: u8,
    trace_flags: TraceFlags,
}

impl Core {
    /// Begins and decides a local root. If its parent is one of our dropped spans, it is dropped
    /// too.
    pub(super) fn begin_decided_root(
        &self,
        attributes: &Attributes<'_>,
        id: NewId,
        base: Base,
        below_dropped: bool,
    ) -> Option<&Entry> {
        let began = self.ticks();
        let flag = base.flag();
        let base = base.captured();
        let span = base.as_ref().map(Context::span);
        let parent = span.as_ref().map_or(&NO_PARENT, SpanRef::span_context);
        let trace_id = if parent.is_valid() { parent.trace_id() } else { self.shared.ids.new_trace_id() };
        let trace_flags = self.flags_below(parent);
        let facts = Facts { began, trace_id, parent, base: base.as_ref(), flag, trace_flags };
        let mut decision = self.decision(|| self.ask_at_once(attributes, &facts, below_dropped));
        // Only a base with a parent or baggage has to be kept.
        let says_much = |base: &&Context| parent.is_valid() || !base.baggage().is_empty();
        let facts = Facts { base: facts.base.filter(says_much), ..facts };
        let slot = self.slot_if_recorded(&mut decision, trace_id, began);
        if decision.keep || slot.is_some() {
            self.begin_kept_root(attributes, id, facts, (decision, slot))
        } else {
            self.begin_dropped_root(attributes, id, facts, decision)
        }
    }

    fn ask_at_once(
        &self,
        attributes: &Attributes<'_>,
        facts: &Facts<'_>,
        below_dropped: bool,
    ) -> RootDecision {
        let (decider, counters) = (&self.shared.decider, &self.shared.counters);
        let Facts { began, trace_id, parent, base, .. } = facts;
        let follows = base.is_some_and(|base| decider.respects(parent, base));
        if follows && below_dropped {
            return decider.follow(parent);
        }
        if follows && !decider.counts_roots() {
            return decider.follow_counted(parent, counters);
        }
        let (metadata, key) = (attributes.metadata(), decider.key());
        let is_static =
            key.is_name_only_at(metadata) && metadata.fields().iter().all(|field| field.name() != NAME);
        if is_static && !parent.is_valid() {
            return decider.ask_by_name(metadata, *trace_id, *began, counters);
        }
        Fields::borrow(|fields| {
            let settings = self.settings();
            let visitor = fields.of_span(settings.conventions, settings.limits.text_length);
            attributes.record(&mut Wanted { key, visitor });
            let name = fields.name.map_or(metadata.name(), |name| fields.memory.text(name));
            let known = OfFields(fields);
            Key::with_memory(|memory| {
                let key = decider.key_of(&Root::new(name, &known), memory, counters);
                if follows {
                    return decider.follow_by_key(&key, parent, counters);
                }
                decider.ask(&key, *trace_id, parent, *began, counters)
            })
        })
    }

    /// Begins a dropped root. It keeps its ids, and a context only if that holds more than the ids.
    fn begin_dropped_root(
        &self,
        attributes: &Attributes<'_>,
        id: NewId,
        facts: Facts<'_>,
        decision: RootDecision,
    ) -> Option<&Entry> {
        let trace_state = &decision.trace_state;
        let Facts { trace_id, base, .. } = facts;
        let trace_flags = facts.trace_flags.with_sampled(false);
        let span_id = self.shared.ids.new_span_id();
        let Some(entry) = self.table.take(id, Use::Roots) else {
            return Some(self.refuse(id, Refusal::Dropped));
        };
        entry.begin(&Beginning {
            trace_id,
            trace_flags,
            flags: ROOT | facts.flag,
            began: facts.began,
            ..Beginning::below_dropped(attributes.metadata(), span_id)
        });
        self.note_root(entry, &decision);
        if self.context_mode() != ContextMode::Off && (base.is_some() || !trace_state.is_empty()) {
            let ids = SpanContext::new(trace_id, span_id, trace_flags, false, trace_state.to_api());
            let context = match base {
                Some(base) => of_dropped(base, ids),
                None => of_dropped(&Context::new(), ids),
            };
            entry.extra().context = Some(context);
        }
        Some(entry)
    }

    fn begin_kept_root(
        &self,
        attributes: &Attributes<'_>,
        id: NewId,
        facts: Facts<'_>,
        (mut decision, slot): (RootDecision, Option<TraceRef>),
    ) -> Option<&Entry> {
        let Facts { began, trace_id, parent, base, flag, trace_flags } = facts;
        let mut unused = UnusedSlot(&self.shared.traces, slot);
        let mut body = self.body_of_root(attributes);
        if let Some(attributes) = decision.attributes.take() {
            let body = body.get_or_insert_with(|| self.new_body());
            let limits = &self.settings().limits;
            attributes.into_iter().for_each(|attribute| body.set_attribute(attribute, limits));
        }
        let counters = &self.shared.counters;
        counters.made();
        counters.trace_made();
        let span_id = self.shared.ids.new_span_id();
        let Some(entry) = self.table.take(id, Use::Roots) else {
            counters.ended();
            // A trace recorded for late keeping has no weight: it would have represented no other
            // calls.
            let calls = if slot.is_some() { 0.0 } else { decision.trace_state.calls() };
            counters.lose(Loss::OpenSpans, Counted { spans: 1, roots: 1, calls });
            return Some(self.refuse(id, Refusal::Lost));
        };
        unused.1 = None;
        let is_remote = parent.is_valid() && parent.is_remote();
        entry.begin(&Beginning {
            phase: Phase::Kept,
            metadata: attributes.metadata(),
            began,
            span_id,
            parent: if parent.is_valid() { parent.span_id() } else { SpanId::INVALID },
            trace: slot.unwrap_or_else(|| self.shared.traces.take(began)),
            trace_id,
            trace_start: began,
            trace_flags: trace_flags.with_sampled(slot.is_none()),
            thread: thread::number(),
            flags: ROOT | flag | if is_remote { REMOTE_PARENT } else { 0 },
        });
        self.note_root(entry, &decision);
        let state = decision.trace_state;
        if body.is_some() || !state.is_empty() {
            let mut extra = entry.extra();
            extra.body = body;
            extra.state = state;
            drop(extra);
            self.mark_if_begun_failed(entry);
        }
        if let Some(base) = base
            && self.context_mode() != ContextMode::Off
        {
            self.keep_context_from(entry, base);
        }
        Some(entry)
    }
}

/// Frees the slot if the root gets no entry after all, or if the service's code panics while
/// formatting the root's fields.
struct UnusedSlot<'a>(&'a Traces, Option<TraceRef>);

impl Drop for UnusedSlot<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.1 {
            self.0.free_if_empty(slot);
        }
    }
}

/// The field that sets a span's name.
const NAME: &str = "otel.name";

/// Forwards only the fields that the key needs.
struct Wanted<'a, V> {
    key: &'a Key,
    visitor: V,
}

impl<V> Wanted<'_, V> {
    fn wants(&self, field: &Field) -> bool {
        field.name() == NAME || self.key.may_need(field.name())
    }
}

macro_rules! pass_on {
    ($($record:ident: $value:ty),* $(,)?) => {
        $(fn $record(&mut self, field: &Field, value: $value) {
            if self.wants(field) {
                self.visitor.$record(field, value);
            }
        })*
    };
}

impl<V: Visit> Visit for Wanted<'_, V> {
    pass_on! {
        record_bool: bool,
        record_f64: f64,
        record_i64: i64,
        record_u64: u64,
        record_i128: i128,
        record_u128: u128,
        record_str: &str,
        record_bytes: &[u8],
        record_debug: &dyn std::fmt::Debug,
    }

    /// An error may become attributes with other names, so only a key that needs the name alone
    /// skips it.
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        if !self.key.is_name_only() {
            self.visitor.record_error(field, value);
        }
    }
}

struct OfFields<'a>(&'a Fields);

impl Lookup for OfFields<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let Fields { attributes, memory, .. } = self.0;
        attributes.iter().rev().find(|attribute| attribute.is_named(name, memory))?.text(memory)
    }
}
