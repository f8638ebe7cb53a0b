//! Ending a span; the local root's end also ends the trace.

use tracing_core::Metadata;
use tracing_core::span::Id;

use super::Core;
use crate::table::{Entry, Fate, HELD, Phase, REMOTE_PARENT, ROOT};
use astracer_spans::clock::Ticks;
use astracer_spans::panics::caught;
use astracer_spans::record::{Body, Header, KeepReason, Record};
use astracer_spans::reentry::is_busy;
use astracer_spans::stats::{Counted, GivenUp, Loss, Tally};
use astracer_spans::trace_state::State;

impl Core {
    #[inline]
    pub(crate) fn end(&self, id: &Id) {
        match self.entry_of(id) {
            Some(entry) => self.end_entry(entry),
            None if is_busy() => {}
            None => self.table.refused.forget(id.into_u64()),
        }
    }

    #[inline]
    pub(crate) fn end_entry(&self, entry: &Entry) {
        if is_busy() {
            return self.lose_end(entry);
        }
        let phase = match entry.settled_phase() {
            // A root that was never entered is still undecided.
            Phase::Undecided => self.started(entry),
            phase => phase,
        };
        let now = self.note_ended(entry);
        let is_recorded = phase.is_recorded();
        let flags = entry.flags();
        if flags & HELD != 0 {
            return self.end_with_extra(entry, is_recorded, now);
        }
        if is_recorded {
            self.end_recorded(entry, State::EMPTY, None, now);
        } else if flags & ROOT != 0 {
            self.count_dropped_root(entry);
        }
        self.table.free(entry);
    }

    /// Counts a span as lost that an allocator ends while this thread holds a lock of ours. Its
    /// entry stays taken, since freeing it may need that lock.
    #[cold]
    fn lose_end(&self, entry: &Entry) {
        if entry.phase().is_recorded() {
            let counters = &self.shared.counters;
            counters.tally(Tally::SpansEnded, 1);
            let roots = (entry.flags() & ROOT != 0).into();
            counters.lose(Loss::Nested, Counted { spans: 1, roots, calls: 0.0 });
        }
    }

    fn end_with_extra(&self, entry: &Entry, is_recorded: bool, now: Ticks) {
        let mut extra = entry.take_extra();
        if is_recorded {
            self.end_recorded(entry, std::mem::take(&mut extra.state), extra.body.as_deref_mut(), now);
        } else if entry.flags() & ROOT != 0 {
            self.count_dropped_root(entry);
        }
        self.table.free(entry);
        if let Some(body) = extra.body.take() {
            body.recycle();
        }
        // Values of contexts are the user's, and dropping them runs the user's code. A panic there
        // is the service's own, but a second panic out of a destructor would abort the process.
        if std::thread::panicking() {
            caught(|| drop(extra), |_| ());
        } else {
            drop(extra);
        }
    }

    /// `now` is 0 if the clock was not read.
    #[inline]
    fn end_recorded(&self, entry: &Entry, state: State, body: Option<&mut Body>, now: Ticks) {
        let Some(metadata) = entry.metadata() else { return };
        let header = || Header {
            trace_id: entry.trace_id(),
            flags: entry.trace_flags(),
            state,
            began: entry.trace_start(),
            kept_by: KeepReason::HEAD,
            cut: 0,
            is_reweighed: false,
        };
        let shared = &*self.shared;
        shared.counters.tally(Tally::SpansEnded, 1);
        if let Some(late) = &shared.late {
            let record = self.record_of(entry, metadata, now);
            return self.end_with_late(late, entry, (header, &record), body);
        }
        let record = self.record_of(entry, metadata, now);
        shared.traces.end_span(entry.trace(), header, record, body, &shared.queue, |_, _| ());
    }

    /// Counts the open spans of kept and of recorded traces as lost, because their ends are no
    /// longer reported. This happens when `reload` removes a layer; a subscriber lives as long as
    /// it has open spans.
    pub(super) fn lose_open_spans(&self) {
        self.table.each_open(|entry| {
            self.note_ended(entry);
            if !entry.phase().is_recorded() {
                return;
            }
            let is_root = entry.flags() & ROOT != 0;
            let counted = Counted { spans: 1, roots: is_root.into(), calls: 0.0 };
            let counters = &self.shared.counters;
            counters.tally(Tally::SpansEnded, 1);
            if entry.fate() == Fate::Provisional {
                counters.give_up(GivenUp::Late, counted);
                // Without an ended span its slot would never be freed, since its root will not end.
                if let Some(late) = self.shared.late.as_ref().filter(|_| is_root)
                    && self.shared.traces.free_if_empty(entry.trace())
                {
                    late.note_open_given_up(entry.trace_id(), GivenUp::Late);
                }
                return;
            }
            let calls = if is_root { entry.extra().state.calls() } else { 0.0 };
            counters.lose(Loss::OpenSpans, Counted { calls, ..counted });
        });
    }

    #[inline(always)]
    fn record_of(&self, entry: &Entry, metadata: &'static Metadata<'static>, now: Ticks) -> Record {
        let ids = (entry.span_id(), entry.parent());
        // As in tracing-opentelemetry, a span ends when it is last exited: its handles may live
        // longer.
        let (end, busy) = match entry.last_exit() {
            0 if now == 0 => (self.ticks(), None),
            0 => (now, None),
            last_exit => (last_exit, self.settings().extras.inactivity.then(|| entry.busy())),
        };
        let mut record = Record::new(metadata, ids, (entry.began(), end), busy, entry.thread());
        let flags = entry.flags();
        record.is_local_root = flags & ROOT != 0;
        record.parent_is_remote = record.is_local_root && flags & REMOTE_PARENT != 0;
        record
    }
}
