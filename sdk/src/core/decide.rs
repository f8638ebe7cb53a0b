//! Decides a local root, once. The first thread that needs the decision makes it; until then the
//! root's parent may still be set.

use std::borrow::Cow;

use astracer_samplers::tail::Severity;
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::SpanContext;
use opentelemetry::{SpanId, TraceFlags, TraceId};
use tracing_core::Metadata;

use super::Core;
use super::begin::NO_PARENT;
use super::context::of_dropped;
use crate::clock::Ticks;
use crate::decider::RootDecision;
use crate::key::{Lookup, Root};
use crate::record::Body;
use crate::settings::ContextMode;
use crate::stats::{Counted, Loss};
use crate::table::{BODY, Claim, Entry, HELD, KeptSpan, Pending, Phase, Refusal};
use crate::traces::TraceRef;

/// New ids for a local root. They are generated before the entry is claimed, because the generator
/// may be the user's code.
struct Drawn {
    trace_id: TraceId,
    span_id: SpanId,
}

impl Core {
    /// Starts a span: fixes its parent, and decides a local root. Returns `Kept` or `Dropped`.
    #[inline]
    pub(crate) fn started(&self, entry: &Entry) -> Phase {
        loop {
            match entry.settled_phase() {
                Phase::Waiting => {
                    if entry.start() {
                        self.mark_if_begun_failed(entry);
                    }
                }
                Phase::Undecided => self.decide(entry),
                Phase::Kept => return Phase::Kept,
                // `Free`: the caller's span has ended, which only misused ids can cause.
                Phase::Dropped | Phase::Free | Phase::Claimed => return Phase::Dropped,
            }
        }
    }

    /// Decides a local root, unless another thread claims it first.
    fn decide(&self, entry: &Entry) {
        let Some(metadata) = entry.metadata() else { return };
        let key = self.shared.decider.key().is_custom().then(|| self.custom_key(entry, metadata));
        let ids = &self.shared.ids;
        let own = entry.span_id();
        let drawn = Drawn {
            trace_id: ids.new_trace_id(),
            span_id: if own == SpanId::INVALID { ids.new_span_id() } else { own },
        };
        let Some(claim) = entry.claim(Phase::Undecided) else { return };
        if entry.flags() & HELD == 0 && self.shared.decider.key().is_name_only() {
            let mut decision = self.decision(|| {
                self.shared.decider.ask_by_name(
                    metadata,
                    drawn.trace_id,
                    entry.began(),
                    &self.shared.counters,
                )
            });
            let slot = self.slot_if_recorded(&mut decision, drawn.trace_id, entry.began());
            if !decision.keep && slot.is_none() {
                self.note_root(entry, &decision);
                return claim.drop_trace(drawn.trace_id, drawn.span_id, ids.flags());
            }
            return self.keep(claim, &drawn, &NO_PARENT, (decision, slot), None);
        }
        self.decide_with_extra(claim, metadata, &drawn, key.as_deref());
    }

    /// After the shutdown every trace is dropped.
    pub(super) fn decision(&self, ask: impl FnOnce() -> RootDecision) -> RootDecision {
        if self.is_closed() {
            return RootDecision::DROP;
        }
        ask()
    }

    fn decide_with_extra(
        &self,
        claim: Claim<'_>,
        metadata: &'static Metadata<'static>,
        drawn: &Drawn,
        key: Option<&str>,
    ) {
        let entry = claim.entry();
        let mut extra = entry.extra();
        let pending = extra.pending.take();
        let parent = pending.as_ref().map_or(&NO_PARENT, |pending| &pending.parent);
        let trace_id = if parent.is_valid() { parent.trace_id() } else { drawn.trace_id };
        let mut decision = self.decision(|| {
            self.ask(extra.body.as_deref(), pending.as_deref(), metadata, entry.began(), trace_id, key)
        });
        // Keep the base only if it has a parent, baggage or suppression.
        let base = pending
            .as_ref()
            .map(|pending| &pending.base)
            .filter(|base| parent.is_valid() || !base.baggage().is_empty() || base.is_telemetry_suppressed());
        let slot = self.slot_if_recorded(&mut decision, trace_id, entry.began());
        if decision.keep || slot.is_some() {
            drop(extra);
            let base = base.cloned();
            self.keep(claim, &Drawn { trace_id, ..*drawn }, parent, (decision, slot), base.as_ref());
            return drop(pending);
        }
        let flags = self.flags_below(parent).with_sampled(false);
        let mut old = None;
        if self.context_mode() != ContextMode::Off && (base.is_some() || !decision.trace_state.is_empty()) {
            let base = base.cloned().unwrap_or_default();
            let ids = SpanContext::new(trace_id, drawn.span_id, flags, false, decision.trace_state.to_api());
            old = extra.context.replace(of_dropped(&base, ids));
        }
        let body = extra.body.take();
        drop(extra);
        self.note_root(entry, &decision);
        // The body is dropped, and with it an error that was recorded before the decision. So note
        // the error first.
        if self.counts_outcomes() && body.as_ref().is_some_and(|body| body.severity() == Severity::Error) {
            entry.set_failed();
            // An outward-facing span below a dropped root has no outcome of its own.
            if entry.root_key().is_none() {
                self.fail_dropped_root(trace_id);
            }
        }
        claim.drop_trace(trace_id, drawn.span_id, flags);
        // Values of contexts are the user's, and dropping them runs the user's code.
        drop((old, pending));
        if let Some(body) = body {
            body.recycle();
        }
    }

    fn ask(
        &self,
        body: Option<&Body>,
        pending: Option<&Pending>,
        metadata: &'static Metadata<'static>,
        began: Ticks,
        trace_id: TraceId,
        key: Option<&str>,
    ) -> RootDecision {
        let (decider, counters) = (&self.shared.decider, &self.shared.counters);
        // As in OpenTelemetry's own SDK, suppression overrides the parent's flag and the sampler,
        // and nothing is counted.
        if pending.is_some_and(|pending| pending.base.is_telemetry_suppressed()) {
            return RootDecision::DROP;
        }
        let parent = pending.map_or(&NO_PARENT, |pending| &pending.parent);
        let followed = pending.filter(|pending| decider.respects(parent, &pending.base));
        if let Some(pending) = followed {
            if pending.below_dropped {
                return decider.follow(parent);
            }
            if !decider.counts_roots() {
                return decider.follow_counted(parent, counters);
            }
        }
        let mut memory = String::new();
        let attributes = body.map(OfBody);
        let key = match (key, body, &attributes) {
            (Some(key), ..) => key.into(),
            (None, Some(body), Some(attributes)) => {
                decider.key_of(&Root::new(name_of(body, metadata), attributes), &mut memory, counters)
            }
            (None, ..) => decider.key_of(&Root::new(metadata.name(), &()), &mut memory, counters),
        };
        if followed.is_some() {
            return decider.follow_by_key(&key, parent, counters);
        }
        decider.ask(&key, trace_id, parent, began, counters)
    }

    /// The parent's trace flags, or those of a new trace.
    pub(super) fn flags_below(&self, parent: &SpanContext) -> TraceFlags {
        if parent.is_valid() { parent.trace_flags() } else { self.shared.ids.flags() }
    }

    fn keep(
        &self,
        claim: Claim<'_>,
        drawn: &Drawn,
        parent: &SpanContext,
        (decision, slot): (RootDecision, Option<TraceRef>),
        base: Option<&opentelemetry::Context>,
    ) {
        let entry = claim.entry();
        self.note_root(entry, &decision);
        let RootDecision { trace_state: state, attributes, .. } = decision;
        self.shared.counters.made();
        self.shared.counters.trace_made();
        if !state.is_empty() {
            entry.extra().state = state;
        }
        if let Some(attributes) = attributes {
            let mut extra = entry.extra();
            let body = extra.body.get_or_insert_with(|| self.new_body());
            for attribute in attributes {
                body.set_attribute(attribute, &self.settings().limits);
            }
        }
        let trace = slot.unwrap_or_else(|| self.shared.traces.take(entry.began()));
        // Called processes get the head sampler's decision, whether or not the trace is recorded.
        let flags = self.flags_below(parent).with_sampled(slot.is_none());
        let kept = KeptSpan {
            trace,
            trace_id: drawn.trace_id,
            trace_flags: flags,
            span_id: drawn.span_id,
            parent: if parent.is_valid() { parent.span_id() } else { SpanId::INVALID },
            remote_parent: parent.is_valid() && parent.is_remote(),
        };
        let context = base.and_then(|base| self.make_context(base, entry, &kept));
        let old = context.and_then(|context| entry.extra().context.replace(context));
        claim.keep(&kept);
        self.mark_if_begun_failed(entry);
        drop(old);
    }

    /// Decides a local root that is refused. If its trace would be kept, it counts as lost.
    #[cold]
    pub(super) fn decide_without_entry(
        &self,
        metadata: &'static Metadata<'static>,
        began: Ticks,
        body: Option<Box<Body>>,
        pending: Option<Box<Pending>>,
    ) -> Refusal {
        let trace_id = self.shared.ids.new_trace_id();
        let decision =
            self.decision(|| self.ask(body.as_deref(), pending.as_deref(), metadata, began, trace_id, None));
        if decision.keep {
            let counters = &self.shared.counters;
            counters.made();
            counters.trace_made();
            counters.ended();
            let calls = decision.trace_state.calls();
            counters.lose(Loss::OpenSpans, Counted { spans: 1, roots: 1, calls });
        }
        if let Some(body) = body {
            body.recycle();
        }
        if decision.keep { Refusal::Lost } else { Refusal::Dropped }
    }

    /// The key that the user's function computes. It gets copies, because no lock or claim may be
    /// held while it runs.
    #[cold]
    fn custom_key(&self, entry: &Entry, metadata: &'static Metadata<'static>) -> String {
        let copied = if entry.has(BODY) { entry.extra().body.as_deref().map(Copied::of) } else { None };
        let Copied { name, attributes } = copied.unwrap_or_default();
        let name = name.as_deref().unwrap_or(metadata.name());
        let mut memory = String::new();
        let root = Root::new(name, &attributes);
        self.shared.decider.key_of(&root, &mut memory, &self.shared.counters).into_owned()
    }
}

/// The name and the attributes of an undecided root.
#[derive(Default)]
struct Copied {
    name: Option<String>,
    attributes: Vec<(String, String)>,
}

impl Copied {
    fn of(body: &Body) -> Self {
        let text = |attribute: &crate::record::Attribute| {
            let value = attribute.text(&body.memory)?.into_owned();
            Some((attribute.name(&body.memory).into_owned(), value))
        };
        Copied {
            name: body.detail.name.map(|name| body.memory.text(name).to_owned()),
            attributes: body.attributes.iter().rev().filter_map(text).collect(),
        }
    }
}

fn name_of<'a>(body: &'a Body, metadata: &'static Metadata<'static>) -> &'a str {
    body.detail.name.map_or(metadata.name(), |name| body.memory.text(name))
}

struct OfBody<'a>(&'a Body);

impl Lookup for OfBody<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let Body { attributes, memory, .. } = self.0;
        attributes.iter().rev().find(|attribute| attribute.is_named(name, memory))?.text(memory)
    }
}
