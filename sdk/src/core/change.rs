//! Recording on an open span, and setting its parent.

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt as _;
use tracing_core::span::{Id, Record};
use tracing_core::{Event, Metadata};

use super::Core;
#[cfg(feature = "bridge")]
use super::context::LiveSpan;
use crate::stack;
#[cfg(feature = "bridge")]
use crate::table::PENDING;
use crate::table::{Entry, Pending, Phase};
use astracer_spans::record::{Body, EventTime, Fields, SpanLimits};
use astracer_spans::reentry::is_busy;
use astracer_spans::stats::Tally;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AlreadyStarted;

impl Core {
    /// Sets the parent of a span that has not started. The context's values, such as baggage, come
    /// with it.
    ///
    /// # Errors
    ///
    /// [`AlreadyStarted`] if the span has started, or has no entry.
    pub(crate) fn set_parent(&self, id: &Id, parent: Context) -> Result<(), AlreadyStarted> {
        let entry = self.find(id).ok_or(AlreadyStarted)?;
        let (claim, was_child) = loop {
            match entry.settled_phase() {
                phase @ (Phase::Undecided | Phase::Waiting) => match entry.claim(phase) {
                    Some(claim) => break (claim, phase == Phase::Waiting),
                    None => continue,
                },
                _ => return Err(AlreadyStarted),
            }
        };
        if was_child {
            // The span leaves the trace in which it began, and becomes a local root.
            self.shared.counters.tally(Tally::SpansMade, 1u64.wrapping_neg());
            if self.adds_members()
                && let Some(body) = entry.extra().body.as_deref_mut()
            {
                body.remove_defaults();
            }
        }
        let old = claim.undecide(Box::new(Pending { base: parent, below_dropped: false }));
        // Values of contexts are the user's, and dropping them runs the user's code.
        drop(old);
        Ok(())
    }

    pub(crate) fn record(&self, id: &Id, values: &Record<'_>) {
        if is_busy() {
            return;
        }
        let Some(entry) = self.recordable(id) else {
            return self.note_dropped_fields(id, |visitor| values.record(visitor));
        };
        self.with_fields(
            |visitor| values.record(visitor),
            |fields| {
                self.with_body(id, entry, |body, limits| {
                    body.absorb(fields, limits);
                    self.mark_if_failed(entry, body);
                });
            },
        );
    }

    pub(crate) fn event(&self, event: &Event<'_>) {
        if is_busy() {
            return;
        }
        let id = if event.is_contextual() {
            match stack::innermost(self.number()) {
                Some(inside) if !inside.is_dropped && inside.entry != 0 => Id::from_u64(inside.entry),
                Some(inside) if inside.is_dropped => {
                    self.note_event_below_dropped(inside.entry, event);
                    return self.note_dropped_event(event, inside.entry);
                }
                _ => return,
            }
        } else {
            let Some(id) = event.parent() else { return };
            id.clone()
        };
        let Some(entry) = self.recordable(&id) else {
            return self.note_event_below_dropped(id.into_u64(), event);
        };
        let now = self.ticks();
        self.note_event(entry, event, now);
        let added = self.observed_attributes(entry, event, now);
        Fields::borrow(|fields| {
            let settings = self.settings();
            event.record(&mut fields.of_event(settings.conventions, settings.limits.text_length));
            for attribute in added {
                fields.add(attribute);
            }
            let metadata: &'static Metadata<'static> = event.metadata();
            self.with_body(&id, entry, |body, limits| {
                body.absorb_event(fields, metadata, now, limits);
                // An event changes no attribute.
                self.mark_if(entry, || body.has_failed());
            });
        });
    }

    pub(crate) fn follows(&self, id: &Id, follows: &Id) {
        if is_busy() {
            return;
        }
        let Some(to) = self.find(follows) else { return };
        self.started(to);
        let Some(to) = self.ids(to) else { return };
        self.change(id, |body, limits| body.add_link(to, Vec::new(), limits));
    }

    /// Changes a span that is recorded or may still be. This does not decide it.
    pub(crate) fn change(&self, id: &Id, f: impl FnOnce(&mut Body, &SpanLimits)) {
        if let Some(entry) = self.recordable(id) {
            self.with_body(id, entry, |body, limits| {
                f(body, limits);
                self.mark_if_failed(entry, body);
            });
        }
    }

    #[inline]
    fn recordable(&self, id: &Id) -> Option<&Entry> {
        self.find(id).filter(|entry| !matches!(entry.phase(), Phase::Dropped | Phase::Free))
    }

    /// Changes the body of the span `id`, to which `entry` belonged when it was looked up. Since
    /// then the service's code, which formats fields, may have ended the span, and another one may
    /// have begun in the entry. A span that was ended through the OpenTelemetry API no longer
    /// changes (OpenTelemetry specification, "End").
    fn with_body(&self, id: &Id, entry: &Entry, f: impl FnOnce(&mut Body, &SpanLimits)) {
        let mut extra = entry.extra();
        if extra.is_recordable() && entry.id() == id.into_u64() {
            let body = extra.body.get_or_insert_with(|| self.new_body());
            if !body.is_ended_by_hand() {
                f(body, &self.settings().limits);
            }
        }
    }

    pub(crate) fn event_time(&self) -> EventTime {
        EventTime::Ticks(self.ticks())
    }

    /// The context of a span, for propagation to the processes that it calls. Decides the span if
    /// it is a local root.
    pub(crate) fn context_to_call(&self, id: &Id) -> Context {
        let Some(entry) = self.find(id) else { return Context::new() };
        self.started(entry);
        self.context(entry).unwrap_or_else(|| {
            // Contexts are off, but the caller needs the ids.
            let ids = if entry.phase() == Phase::Recorded { self.ids_to_call(entry) } else { None };
            ids.map(|ids| Context::new().with_remote_span_context(ids)).unwrap_or_default()
        })
    }
}

#[cfg(feature = "bridge")]
impl Core {
    /// The context from which a span's own will be made; `None` if the span has started.
    pub(crate) fn base_of_unstarted(&self, id: &Id) -> Option<Context> {
        let entry = self.find(id)?;
        match entry.settled_phase() {
            Phase::Undecided | Phase::Waiting if self.context_mode() == crate::settings::ContextMode::Off => {
                Some(Context::new())
            }
            Phase::Undecided => {
                let base = if entry.has(PENDING) {
                    entry.extra().pending.as_ref().map(|pending| pending.base.clone())
                } else {
                    None
                };
                Some(base.unwrap_or_default())
            }
            // If contexts are on, its own context has the values of the one from which it will be
            // made.
            Phase::Waiting => Some(self.context(entry).unwrap_or_default()),
            _ => None,
        }
    }

    /// The span behind the OpenTelemetry API, in any context mode; `None` unless it is recorded or
    /// may still be.
    pub(crate) fn live_span(&self, id: &Id) -> Option<LiveSpan> {
        let entry = self.recordable(id)?;
        let ids = match entry.settled_phase() {
            Phase::Undecided => None,
            _ => self.ids_to_call(entry),
        };
        let ids = ids.unwrap_or(opentelemetry::trace::SpanContext::NONE);
        Some(self.live(entry, ids))
    }
}
