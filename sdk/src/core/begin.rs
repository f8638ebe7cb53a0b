//! Beginning a span.

use opentelemetry::{SpanId, TraceFlags, TraceId};
use tracing_core::Metadata;
use tracing_core::span::Attributes;

use super::Core;
use super::context::keep;
use super::place::Placement;
use crate::settings::Start;
use crate::table::{Beginning, CONTEXT, Entry, Fate, Phase, Refusal, STATE, UNRECORDED};
use astracer_spans::memory_budget::Use;
use astracer_spans::record::{Body, Fields};
use astracer_spans::stats::{Counted, Loss, Tally};
use astracer_spans::thread;
use astracer_spans::trace_state::State;
use astracer_spans::traces::TraceRef;

impl Core {
    /// Begins a span at its place. Returns its entry; `None` if the span is not known from then on.
    #[inline]
    pub(crate) fn begin(
        &self,
        attributes: &Attributes<'_>,
        id: Option<u64>,
        placement: Placement<'_>,
    ) -> Option<&Entry> {
        match placement {
            Placement::Nowhere => None,
            Placement::LocalRoot { base, below_dropped } => {
                Some(self.begin_root(attributes, id, base, below_dropped))
            }
            Placement::Child { parent, base } => {
                let entry = self.begin_child(attributes, id, parent, base.flag());
                if let Some(base) = base.captured()
                    && entry.refusal().is_none()
                    && let Some(context) = self.context_from(&base, entry)
                {
                    keep(entry, &context);
                }
                Some(entry)
            }
            Placement::BelowDropped { above } => {
                Some(self.begin_below_dropped(attributes.metadata(), id, above))
            }
        }
    }

    /// Refuses a span for which the memory of open spans has no room, and everything below it.
    #[cold]
    pub(super) fn refuse(&self, id: Option<u64>, refusal: Refusal) -> &Entry {
        let ids = &self.shared.ids;
        self.table.refused.add(id, refusal, || Beginning {
            trace_id: ids.new_trace_id(),
            trace_flags: ids.flags().with_sampled(false),
            ..Beginning::below_dropped(&UNRECORDED, ids.new_span_id())
        })
    }

    /// The body of a span with the fields it begins with; `None` if none of them has a value.
    #[inline]
    pub(super) fn body(&self, attributes: &Attributes<'_>) -> Option<Box<Body>> {
        if attributes.fields().is_empty() { None } else { self.body_of_fields(attributes) }
    }

    fn body_of_fields(&self, attributes: &Attributes<'_>) -> Option<Box<Body>> {
        self.with_fields(
            |visitor| attributes.record(visitor),
            |fields: &mut Fields| {
                if fields.is_empty() {
                    return None;
                }
                let mut body = self.new_body();
                body.fill(fields, &self.settings().limits);
                Some(body)
            },
        )
    }

    /// Begins a span below one of a recorded trace. `flag` is the span's [`Base::flag`].
    #[inline]
    pub(crate) fn begin_child(
        &self,
        attributes: &Attributes<'_>,
        id: Option<u64>,
        parent: &Entry,
        flag: u8,
    ) -> &Entry {
        if self.is_followed {
            return self.begin_followed_child(attributes, id, parent, flag);
        }
        self.begin_child_alone(attributes, id, parent, flag)
    }

    #[inline(never)]
    fn begin_followed_child(
        &self,
        attributes: &Attributes<'_>,
        id: Option<u64>,
        parent: &Entry,
        flag: u8,
    ) -> &Entry {
        let entry = self.begin_child_alone(attributes, id, parent, flag);
        if entry.refusal().is_none() {
            if self.adds_members() {
                self.add_members_of_child(attributes, entry, parent);
            }
            self.observe_begin(entry, parent);
        }
        entry
    }

    #[inline(always)]
    fn begin_child_alone(
        &self,
        attributes: &Attributes<'_>,
        id: Option<u64>,
        parent: &Entry,
        flag: u8,
    ) -> &Entry {
        let metadata = attributes.metadata();
        let began = self.ticks();
        let body = self.body(attributes);
        let Some(entry) = self.table.take(id, Use::Entries) else { return self.lose(id, Counted::default()) };
        self.shared.counters.tally(Tally::SpansMade, 1);
        let span_id = self.shared.ids.new_span_id();
        let thread = thread::number();
        let parent_flags = parent.flags();
        entry.begin(&Beginning {
            phase: if self.settings().start == Start::AtOnce { Phase::Recorded } else { Phase::Waiting },
            metadata,
            began,
            span_id,
            parent: parent.span_id(),
            trace: parent.trace(),
            trace_id: parent.trace_id(),
            trace_start: parent.trace_start(),
            trace_flags: parent.trace_flags(),
            fate: parent.fate(),
            thread,
            flags: flag,
        });
        if body.is_some() || parent_flags & STATE != 0 {
            begin_extra(entry, parent, body);
            // A waiting span is not marked yet: it may still leave the trace.
            self.mark_if_begun_failed(entry);
        }
        entry
    }

    #[cold]
    pub(super) fn lose(&self, id: Option<u64>, counted: Counted) -> &Entry {
        let counters = &self.shared.counters;
        counters.tally(Tally::SpansMade, 1);
        counters.tally(Tally::SpansEnded, 1);
        counters.lose(Loss::OpenSpans, Counted { spans: 1, ..counted });
        self.refuse(id, Refusal::Lost)
    }

    /// Begins a span below a dropped local root. It keeps that root's ids, wherever it is entered.
    #[inline]
    fn begin_below_dropped(
        &self,
        metadata: &'static Metadata<'static>,
        id: Option<u64>,
        above: &Entry,
    ) -> &Entry {
        if above.refusal() == Some(Refusal::Lost) {
            return self.lose(id, Counted::default());
        }
        let Some(entry) = self.table.take(id, Use::Entries) else {
            return self.refuse(id, Refusal::Dropped);
        };
        entry.begin(&Beginning {
            trace_id: above.trace_id(),
            trace_flags: above.trace_flags(),
            ..Beginning::below_dropped(metadata, above.span_id())
        });
        if above.has(CONTEXT) {
            let context = above.extra().context.clone();
            entry.extra().context = context;
        }
        if self.is_followed {
            self.observe_begin(entry, above);
        }
        entry
    }
}

/// Sets the parts of a child that most spans do not have.
#[inline(never)]
fn begin_extra(entry: &Entry, parent: &Entry, body: Option<Box<Body>>) {
    let state = if parent.has(STATE) { parent.extra().state.clone() } else { State::EMPTY };
    let mut extra = entry.extra();
    (extra.body, extra.state) = (body, state);
}

impl Beginning {
    pub(crate) fn below_dropped(metadata: &'static Metadata<'static>, root: SpanId) -> Self {
        Beginning { phase: Phase::Dropped, span_id: root, ..Self::new(metadata, 0, 0) }
    }

    #[inline]
    pub(super) fn new(metadata: &'static Metadata<'static>, began: u64, thread: u32) -> Self {
        Beginning {
            phase: Phase::Undecided,
            metadata,
            began,
            span_id: SpanId::INVALID,
            parent: SpanId::INVALID,
            trace: TraceRef::NONE,
            trace_id: TraceId::INVALID,
            trace_start: began,
            trace_flags: TraceFlags::default(),
            fate: Fate::Kept,
            thread,
            flags: 0,
        }
    }
}
