//! Local roots: begins one, and decides whether its trace is kept, once.
//!
//! [`Start`] says when. A root that is decided when it is used stores its fields until then, and
//! its parent may still be set; the first thread that needs the decision makes it. A root that is
//! decided at once formats only the fields that the key needs, and stores fields only if the trace
//! is recorded.

use std::borrow::Cow;

use astracer_samplers::tail::Severity;
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{SpanContext, SpanRef, TraceContextExt as _};
use opentelemetry::{Context, KeyValue, SpanId, TraceFlags, TraceId};
use tracing_core::Metadata;
use tracing_core::field::Field;
use tracing_core::span::Attributes;

use super::Core;
use super::place::Base;
use super::wanted::{NAME, Wanted};
use crate::decider::RootDecision;
use crate::key::{self, Key, Pairs, Root};
use crate::settings::{ContextMode, Start};
use crate::table::{BODY, Beginning, Claim, Entry, Fate, HELD, Pending, Phase, ROOT, RecordedSpan, Refusal};
use astracer_spans::clock::Ticks;
use astracer_spans::memory_budget::Use;
use astracer_spans::record::{Attribute, Body, Fields, MemoryView};
use astracer_spans::stats::{Counted, Tally};
use astracer_spans::sync::statics::Ordering;
use astracer_spans::thread;
use astracer_spans::traces::{TraceRef, Traces};

#[derive(Clone, Copy)]
struct Facts<'a> {
    metadata: &'static Metadata<'static>,
    began: Ticks,
    trace_id: TraceId,
    span_id: SpanId,
    /// Invalid if the root has no parent.
    parent: &'a SpanContext,
    /// The captured context from which the root's is derived, if there is one.
    base: Option<&'a Context>,
    /// As in [`Pending`].
    below_dropped: bool,
    /// The fields of a root that is decided when it begins.
    attributes: Option<&'a Attributes<'a>>,
}

static NO_PARENT: SpanContext = SpanContext::NONE;

#[derive(Clone, Copy)]
enum Known<'a> {
    Body(Option<&'a Body>),
    Attributes(&'a Attributes<'a>, &'a [KeyValue]),
    Key(&'a str),
}

/// A decision, and the slot of a trace that is dropped but recorded.
struct Outcome<'a> {
    decision: RootDecision,
    slot: UnusedSlot<'a>,
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

impl Core {
    #[inline]
    pub(super) fn begin_root(
        &self,
        attributes: &Attributes<'_>,
        id: Option<u64>,
        base: Base,
        below_dropped: bool,
    ) -> &Entry {
        let (metadata, began) = (attributes.metadata(), self.ticks());
        let flags = ROOT | base.flag();
        let undecided =
            |phase| Beginning { phase, flags, ..Beginning::new(metadata, began, thread::number()) };
        let base = base.captured();
        if self.settings().start == Start::WhenUsed {
            let body = self.body(attributes);
            if let Some(entry) = self.table.take(id, Use::Roots) {
                // The extra parts may follow after the phase is published: no other thread knows
                // the span's id yet.
                entry.begin(&undecided(Phase::Undecided));
                if body.is_some() || base.is_some() {
                    let pending = base.map(|base| Box::new(Pending { base, below_dropped }));
                    let mut extra = entry.extra();
                    (extra.body, extra.pending) = (body, pending);
                }
                return entry;
            }
            // Without room it is refused, once it is decided.
        }
        let span = base.as_ref().map(Context::span);
        let parent = span.as_ref().map_or(&NO_PARENT, SpanRef::span_context);
        let ids = &self.shared.ids;
        let trace_id = if parent.is_valid() { parent.trace_id() } else { ids.new_trace_id() };
        let (span_id, base) = (ids.new_span_id(), base.as_ref());
        let facts = Facts {
            metadata,
            began,
            trace_id,
            span_id,
            parent,
            base,
            below_dropped,
            attributes: Some(attributes),
        };
        let members = self.members_of_root(trace_id, base);
        let outcome =
            self.outcome(&facts, Known::Attributes(attributes, members.as_deref().unwrap_or_default()));
        let body = if outcome.is_recorded() { self.body(attributes) } else { None };
        let Some(entry) = self.table.take(id, Use::Roots) else {
            return self.refuse_root(id, &outcome.decision);
        };
        let claim = entry.begin_claimed(&undecided(Phase::Claimed));
        if body.is_some() {
            entry.extra().body = body;
        }
        if let Some(members) = members
            && outcome.is_recorded()
        {
            self.add_members(&mut entry.extra().body, members);
        }
        self.settle(claim, &facts, outcome);
        entry
    }

    #[cold]
    fn refuse_root(&self, id: Option<u64>, decision: &RootDecision) -> &Entry {
        if !decision.keep {
            return self.refuse(id, Refusal::Dropped);
        }
        self.shared.counters.tally(Tally::TracesMade, 1);
        let calls = decision.trace_state.calls();
        self.lose(id, Counted { roots: 1, calls, ..Counted::default() })
    }

    /// Starts a span: fixes its parent, and decides a local root. Returns `Recorded` or `Dropped`.
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
                Phase::Recorded => return Phase::Recorded,
                // `Free`: the caller's span has ended, which only misused ids can cause.
                Phase::Dropped | Phase::Free | Phase::Claimed => return Phase::Dropped,
            }
        }
    }

    fn decide(&self, entry: &Entry) {
        let Some(metadata) = entry.metadata() else { return };
        // Before the entry is claimed: the generator of ids may be the user's code.
        let (trace_id, span_id) = (self.shared.ids.new_trace_id(), self.shared.ids.new_span_id());
        let is_custom = self.shared.decider.key.is_custom();
        let key = is_custom.then(|| self.custom_key(entry, metadata, trace_id));
        let own = Some(entry.span_id()).filter(|own| *own != SpanId::INVALID);
        let facts = Facts {
            metadata,
            began: entry.began(),
            trace_id,
            span_id: own.unwrap_or(span_id),
            parent: &NO_PARENT,
            base: None,
            below_dropped: false,
            attributes: None,
        };
        let Some(claim) = entry.claim(Phase::Undecided) else { return };
        if !entry.has(HELD) && !self.adds_members() {
            let known = key.as_deref().map_or(Known::Body(None), Known::Key);
            let outcome = self.outcome(&facts, known);
            return self.settle(claim, &facts, outcome);
        }
        let mut extra = entry.extra();
        // Values of contexts are the user's, and dropping them runs the user's code: last of all.
        let pending = extra.pending.take();
        let span = pending.as_deref().map(|pending| pending.base.span());
        let parent = span.as_ref().map_or(&NO_PARENT, SpanRef::span_context);
        let facts = Facts {
            parent,
            trace_id: if parent.is_valid() { parent.trace_id() } else { trace_id },
            base: pending.as_deref().map(|pending| &pending.base),
            below_dropped: pending.as_deref().is_some_and(|pending| pending.below_dropped),
            ..facts
        };
        if let Some(members) = self.members_of_root(facts.trace_id, facts.base) {
            self.add_members(&mut extra.body, members);
        }
        let known = key.as_deref().map_or(Known::Body(extra.body.as_deref()), Known::Key);
        let outcome = self.outcome(&facts, known);
        drop(extra);
        self.settle(claim, &facts, outcome);
    }

    #[inline(always)]
    fn outcome(&self, facts: &Facts<'_>, known: Known<'_>) -> Outcome<'_> {
        let Facts { metadata, began, trace_id, base, .. } = *facts;
        let decider = &self.shared.decider;
        let mut decision = match base {
            None if known.is_name_only(&decider.key, metadata) && !self.is_closed() => {
                decider.ask_by_name(metadata, trace_id, began)
            }
            _ => self.ask(facts, known),
        };
        let slot = self.slot_if_recorded(&mut decision, facts.trace_id, facts.began);
        Outcome { decision, slot: UnusedSlot(&self.shared.traces, slot) }
    }

    /// Asks for a decision. After the shutdown every trace is dropped.
    #[inline(never)]
    fn ask(&self, facts: &Facts<'_>, known: Known<'_>) -> RootDecision {
        let decider = &self.shared.decider;
        let Facts { metadata, trace_id, parent, base, .. } = *facts;
        // As in OpenTelemetry's own SDK, suppression overrides the parent's flag and the sampler,
        // and nothing is counted.
        if self.is_closed() || base.is_some_and(Context::is_telemetry_suppressed) {
            return RootDecision::DROP;
        }
        let follows = base.is_some_and(|base| decider.respects(parent, base));
        if follows && facts.below_dropped {
            return decider.follow(parent);
        }
        if follows && decider.tail.is_none() && !decider.passes_keys {
            return decider.follow_counted(parent);
        }
        let by_key = |key: &str| match follows {
            true => decider.follow_with_key(key, parent),
            false => decider.ask(key, trace_id, parent, (facts.began, true)),
        };
        let of_root = |root: Root<'_>| Key::with_memory(|memory| by_key(&decider.key_of(&root, memory)));
        match known {
            Known::Key(key) => by_key(key),
            Known::Body(None) => of_root(Root::new(metadata.name(), &Pairs(&[]))),
            Known::Body(Some(body)) => {
                let name = body.detail.name.map_or(metadata.name(), |name| body.memory.text(name));
                of_root(Root::new(name, &KnownFields(&body.attributes, body.memory.view())))
            }
            Known::Attributes(attributes, members) => Fields::borrow(|fields| {
                let settings = self.settings();
                let visitor = fields.of_span(settings.conventions, settings.limits.text_length);
                // An error may become attributes with other names, so only a key that needs the
                // name alone skips it.
                let wants = |field: &Field, is_error: bool| match is_error {
                    true => !decider.key.is_name_only(),
                    false => field.name() == NAME || decider.key.may_need(field.name()),
                };
                attributes.record(&mut Wanted { wants, visitor });
                for member in members {
                    // Before the span's own, of which the last one of a name counts.
                    let kept = fields.memory.keep(member.clone());
                    fields.attributes.insert(0, Attribute::default_of(kept));
                }
                let name = fields.name.map_or(metadata.name(), |name| fields.memory.text(name));
                of_root(Root::new(name, &KnownFields(&fields.attributes, fields.memory.view())))
            }),
        }
    }

    #[inline]
    fn settle(&self, claim: Claim<'_>, facts: &Facts<'_>, outcome: Outcome<'_>) {
        if self.is_observed() {
            return self.settle_observed(claim, facts, outcome);
        }
        self.settle_unobserved(claim, facts, outcome);
    }

    #[inline(never)]
    fn settle_observed(&self, claim: Claim<'_>, facts: &Facts<'_>, outcome: Outcome<'_>) {
        let left = self.observe_root(
            claim.entry(),
            facts.trace_id,
            facts.base,
            (facts.attributes, facts.below_dropped),
            outcome.decision.text.as_deref(),
        );
        self.settle_unobserved(claim, facts, outcome);
        self.release(left);
    }

    #[inline(always)]
    fn settle_unobserved(&self, claim: Claim<'_>, facts: &Facts<'_>, outcome: Outcome<'_>) {
        let entry = claim.entry();
        self.note_root(entry, &outcome.decision);
        let is_plain = facts.base.is_none() && outcome.decision.trace_state.is_empty() && !entry.has(BODY);
        if is_plain && !outcome.is_recorded() {
            let flags = self.shared.ids.flags();
            return claim.drop_trace(facts.trace_id, facts.span_id, flags);
        }
        self.settle_whole(claim, facts, outcome);
    }

    #[inline(never)]
    fn settle_whole(&self, claim: Claim<'_>, facts: &Facts<'_>, outcome: Outcome<'_>) {
        let parent = facts.parent;
        let flags = if parent.is_valid() { parent.trace_flags() } else { self.shared.ids.flags() };
        // Only a base with a parent, baggage or suppression has to be kept.
        let has_values = |base: &Context| !base.baggage().is_empty() || base.is_telemetry_suppressed();
        let base = facts.base.filter(|base| parent.is_valid() || has_values(base));
        let facts = Facts { base, ..*facts };
        let is_kept = outcome.decision.keep && outcome.slot.1.is_none();
        if !is_kept && flags.with_sampled(false) == TraceFlags::NOT_SAMPLED {
            // Written once: all threads read the memory around it.
            let dropped_unmarked = &self.shared.dropped_unmarked;
            if !dropped_unmarked.load(Ordering::Relaxed) {
                dropped_unmarked.store(true, Ordering::Relaxed);
            }
        }
        match outcome.is_recorded() {
            true => self.record_root(claim, &facts, outcome, flags),
            false => self.drop_root(claim, &facts, &outcome.decision, flags.with_sampled(false)),
        }
    }

    fn record_root(&self, claim: Claim<'_>, facts: &Facts<'_>, mut outcome: Outcome<'_>, flags: TraceFlags) {
        let entry = claim.entry();
        self.shared.counters.tally(Tally::SpansMade, 1);
        self.shared.counters.tally(Tally::TracesMade, 1);
        let RootDecision { trace_state: state, attributes, .. } = outcome.decision;
        if !state.is_empty() || attributes.is_some() {
            let mut extra = entry.extra();
            extra.state = state;
            if let Some(attributes) = attributes {
                let body = extra.body.get_or_insert_with(|| self.new_body());
                for attribute in attributes {
                    body.set_attribute(attribute, &self.settings().limits);
                }
            }
        }
        let (slot, parent) = (outcome.slot.1.take(), facts.parent);
        // A trace that the sampler dropped has its slot already.
        let fate = if slot.is_some() { Fate::Provisional } else { Fate::Kept };
        claim.set(&RecordedSpan {
            fate,
            trace: slot.unwrap_or_else(|| self.shared.traces.take(facts.began)),
            trace_id: facts.trace_id,
            // Called processes get the head sampler's decision, whether or not the trace is
            // recorded.
            trace_flags: flags.with_sampled(fate == Fate::Kept),
            span_id: facts.span_id,
            parent: if parent.is_valid() { parent.span_id() } else { SpanId::INVALID },
            remote_parent: parent.is_valid() && parent.is_remote(),
        });
        let context = facts.base.and_then(|base| self.context_from(base, entry));
        let old = context.and_then(|context| entry.extra().context.replace(context));
        claim.record();
        self.mark_if_begun_failed(entry);
        // Values of contexts are the user's, and dropping them runs the user's code.
        drop(old);
    }

    /// Drops a root. It keeps its ids, and a context only if that holds more than the ids.
    fn drop_root(&self, claim: Claim<'_>, facts: &Facts<'_>, decision: &RootDecision, flags: TraceFlags) {
        let (entry, state) = (claim.entry(), &decision.trace_state);
        let mut context = None;
        if self.context_mode() != ContextMode::Off && (facts.base.is_some() || !state.is_empty()) {
            let ids = SpanContext::new(facts.trace_id, facts.span_id, flags, false, state.to_api());
            // The processes that it calls have to learn that the trace is dropped.
            context = Some(facts.base.cloned().unwrap_or_default().with_remote_span_context(ids));
        }
        let mut body = None;
        if context.is_some() || entry.has(BODY) {
            let mut extra = entry.extra();
            body = extra.body.take();
            if context.is_some() {
                std::mem::swap(&mut extra.context, &mut context);
            }
        }
        // The body is dropped, and with it an error that was recorded before the decision. So note
        // the error first.
        if self.notes_failures() && body.as_ref().is_some_and(|body| body.severity() == Severity::Error) {
            entry.set_failed();
            // An outward-facing span below a dropped root has no outcome of its own.
            if entry.root_key().is_none() {
                self.fail_dropped_root(facts.trace_id);
            }
        }
        claim.drop_trace(facts.trace_id, facts.span_id, flags);
        // Values of the replaced context are the user's, and dropping them runs the user's code.
        drop(context);
        if let Some(body) = body {
            body.recycle();
        }
    }

    /// The key that the user's function computes. It gets copies, because no lock or claim may be
    /// held while it runs.
    #[cold]
    fn custom_key(&self, entry: &Entry, metadata: &'static Metadata<'static>, trace_id: TraceId) -> String {
        let (copied, base) = match entry.has(HELD) {
            true => {
                let extra = entry.extra();
                let base = extra.pending.as_deref().filter(|_| self.adds_members());
                (extra.body.as_deref().map(Copied::of), base.map(|pending| pending.base.clone()))
            }
            false => (None, None),
        };
        let mut copied = copied.unwrap_or_default();
        let parent = base.as_ref().map(|base| base.span().span_context().trace_id());
        let trace_id = parent.filter(|parent| *parent != TraceId::INVALID).unwrap_or(trace_id);
        let members = self.members_of_root(trace_id, base.as_ref()).into_iter().flatten();
        // After the span's own, of which the first one of a name counts.
        copied.attributes.extend(members.map(|member| (member.key.to_string(), member.value.to_string())));
        let name = copied.name.as_deref().unwrap_or(metadata.name());
        let mut memory = String::new();
        self.shared.decider.key_of(&Root::new(name, &copied), &mut memory).into_owned()
    }
}

impl Outcome<'_> {
    fn is_recorded(&self) -> bool {
        self.decision.keep || self.slot.1.is_some()
    }
}

impl Known<'_> {
    #[inline]
    fn is_name_only(self, key: &Key, metadata: &Metadata<'_>) -> bool {
        match self {
            Known::Body(body) => body.is_none() && key.is_name_only(),
            Known::Attributes(..) => {
                key.is_name_only_at(metadata) && metadata.fields().iter().all(|field| field.name() != NAME)
            }
            Known::Key(_) => false,
        }
    }
}

#[derive(Default)]
struct Copied {
    name: Option<String>,
    /// Latest first.
    attributes: Vec<(String, String)>,
}

impl key::Attributes for Copied {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let (_, value) = self.attributes.iter().find(|(known, _)| known == name)?;
        Some(Cow::Borrowed(value))
    }
}

impl Copied {
    fn of(body: &Body) -> Self {
        let memory = body.memory.view();
        let text = |attribute: &Attribute| {
            let value = attribute.text(memory)?.into_owned();
            Some((attribute.name(memory).into_owned(), value))
        };
        Copied {
            name: body.detail.name.map(|name| body.memory.text(name).to_owned()),
            attributes: body.attributes.iter().rev().filter_map(text).collect(),
        }
    }
}

struct KnownFields<'a>(&'a [Attribute], MemoryView<'a>);

impl key::Attributes for KnownFields<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let KnownFields(attributes, memory) = *self;
        attributes.iter().rev().find(|attribute| attribute.is_named(name, memory))?.text(memory)
    }
}
