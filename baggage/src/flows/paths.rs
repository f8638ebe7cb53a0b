//! The critical paths of flows: what happens to a flow's note where it begins, forks, joins, takes
//! or leaves a thread, and ends.

use std::cell::Cell;

use astracer_sdk::ObservedSpan;

use super::current::{self, Current};
use super::slots::Slot;
use super::{FlowRef, Inner};
use crate::paths::{Begun, CriticalPath, Here, Note};

/// The slot with the note of a request, and that of a response.
const REQUEST: &[u8] = b"to";
const RESPONSE: &[u8] = b"back";
/// The bytes of a note.
const NOTE_MAX: usize = 1_024;

thread_local! {
    /// The last span that began on this thread.
    static BEGUN: Cell<Begun> = const { Cell::new(Begun::NEVER) };
}

/// The time of one report of the SDK, read at most once.
pub(super) struct Now<'a> {
    span: &'a ObservedSpan<'a>,
    nanos: Cell<Option<u64>>,
}

impl<'a> Now<'a> {
    pub(super) fn of(span: &'a ObservedSpan<'a>) -> Self {
        Now { span, nanos: Cell::new(None) }
    }

    pub(super) fn get(&self) -> u64 {
        let nanos = self.nanos.get().unwrap_or_else(|| nanos(self.span));
        self.nanos.set(Some(nanos));
        nanos
    }
}

fn nanos(span: &ObservedSpan<'_>) -> u64 {
    u64::try_from(span.now().as_nanos()).unwrap_or(u64::MAX)
}

impl Inner {
    /// Nanoseconds since the clock was made.
    fn nanos(&self) -> u64 {
        self.clock.get().map_or(0, |clock| clock.since_origin(clock.ticks()).get())
    }

    /// Works on the note of a flow, if it has one.
    #[inline]
    fn at_note<R>(&self, number: u32, f: impl FnOnce(&CriticalPath, &mut Note) -> R) -> Option<R> {
        let of = self.applications.critical_path()?;
        self.at_state(number, |state| {
            let note = state.path.as_deref_mut().filter(|note| note.is_active())?;
            Some(f(of, note))
        })?
    }

    /// Works on the note of the flow in which a thread uses a span: the current one, or else the
    /// span's.
    #[inline]
    fn at_note_of<R>(
        &self,
        span: &ObservedSpan<'_>,
        f: impl FnOnce(&CriticalPath, &mut Note) -> R,
    ) -> Option<R> {
        let current = current::of(self.owner);
        if current.owner == self.owner
            && let Some(slot) = self.slot(current.number).filter(|slot| slot.id() == current.id)
        {
            let mut state = slot.state();
            if slot.merged_into() == 0 {
                let of = self.applications.critical_path()?;
                return Some(f(of, state.path.as_deref_mut().filter(|note| note.is_active())?));
            }
            drop(state);
            return self.at_note(current.number, f);
        }
        self.at_note(span.flow(), f)
    }

    /// A local root begins in a flow. Runs no code of the service.
    pub(super) fn open_path(&self, slot: &Slot, root: &ObservedSpan<'_>) {
        if let Some(of) = self.applications.critical_path()
            && !root.is_below_dropped()
        {
            let mut state = slot.state();
            let request = self.applications.critical_path_namespace().and_then(|own| {
                let request = state.baggage.get(own, REQUEST).next().map(<[u8]>::to_vec)?;
                state.baggage.remove(own, REQUEST);
                Some(request)
            });
            let note = state.path.get_or_insert_default();
            note.begin_root(of, nanos(root), root.key(), (root.root_name(), root.sampling_key()));
            if let Some(request) = request.filter(|_| !note.has_outer()) {
                note.come_from(of, &request);
            }
        }
    }

    /// Puts the flow's note into its baggage, which is about to be sent.
    pub(super) fn put_path(&self, number: u32, is_call: bool, limit: usize) {
        let Some(own) = self.applications.critical_path_namespace() else { return };
        let now = self.nanos();
        let limit = limit.min(NOTE_MAX);
        let note = self.at_note(number, |of, note| match is_call {
            true => note.request(of, now),
            false => note.response(of, now, limit),
        });
        if let Some(note) = note.filter(|note| !note.is_empty()) {
            let key = if is_call { REQUEST } else { RESPONSE };
            self.at_state(number, |state| state.baggage.replace(own, key, [&note[..]]));
        }
    }

    pub(super) fn remove_path(&self, number: u32) {
        if let Some(own) = self.applications.critical_path_namespace() {
            self.at_state(number, |state| state.baggage.clear(own));
        }
    }

    /// A flow begins a call.
    pub(super) fn begin_call_path(&self, caller: u32) {
        if let Some(of) = self.applications.critical_path() {
            let now = self.nanos();
            self.at_state(caller, |state| {
                let is_only = state.calling.len() == 1;
                if let Some(note) = state.path.as_deref_mut().filter(|note| note.is_active()) {
                    note.begin_call(of, now, is_only);
                }
            });
        }
    }

    /// A call ends, of which this is the branch. Its baggage is the response's.
    pub(super) fn end_call_path(&self, caller: u32, number: u32) {
        let Some(own) = self.applications.critical_path_namespace() else { return };
        let responses = self.at_state(number, |state| {
            let responses: Vec<Vec<u8>> = state.baggage.get(own, RESPONSE).map(<[u8]>::to_vec).collect();
            if !responses.is_empty() {
                state.baggage.clear(own);
            }
            responses
        });
        self.end_call_by(caller, number, &responses.unwrap_or_default());
    }

    fn end_call_by(&self, caller: u32, number: u32, responses: &[Vec<u8>]) {
        let now = self.nanos();
        let is_own = self.at_note(caller, |of, note| note.end_own_call(of, now, responses));
        self.at_note(number, |of, note| match is_own {
            Some(true) => note.clear(),
            _ => note.end_call(of, now, responses),
        });
    }

    /// A call ends whose response says nothing.
    pub(super) fn end_opaque_path(&self, caller: u32, number: u32) {
        if self.applications.critical_path().is_some() {
            self.end_call_by(caller, number, &[]);
            if let Some(slot) = self.slot(self.resolve(number)) {
                self.join_path(caller, slot);
            }
        }
    }

    /// A span below a local root begins, and may be entered next.
    #[inline]
    pub(super) fn note_begun(&self, span: &ObservedSpan<'_>, flow: u32) {
        if self.applications.critical_path().is_some() {
            BEGUN.set(Begun { key: span.key(), at: nanos(span), flow });
        }
    }

    #[inline]
    pub(super) fn note_entered(&self, span: &ObservedSpan<'_>) {
        if self.applications.critical_path().is_some() {
            let name = span.metadata().name();
            self.at_note_of(span, |of, note| {
                note.span_entered(of, span.key(), name, BEGUN.get(), || nanos(span));
            });
        }
    }

    #[inline]
    pub(super) fn note_exited(&self, span: &ObservedSpan<'_>, now: &Now<'_>) {
        if self.applications.critical_path().is_some() {
            self.at_note_of(span, |of, note| note.span_exited(of, span.key(), || now.get()));
        }
    }

    /// A span ends. If it is a local root, the critical path of its request is complete.
    #[inline]
    pub(super) fn note_ended(&self, span: &ObservedSpan<'_>) {
        if self.applications.critical_path().is_none() {
            return;
        }
        let (own, key) = (span.flow(), span.key());
        if span.is_root() {
            let closed = self.at_note(own, |of, note| {
                note.is_of(key).then(|| {
                    note.close(of, span.is_recorded(), || nanos(span));
                    span.is_recorded().then(|| note.summary(of))
                })
            });
            if let Some(Some(closed)) = closed {
                if let Some(summary) = closed {
                    span.set_attributes(summary.attributes());
                }
                return;
            }
        }
        let ends = |_: &CriticalPath, note: &mut Note| note.span_ends(key);
        self.at_note_of(span, ends);
        if current::of(self.owner).number != own {
            // It was opened where another flow was current.
            self.at_note(own, ends);
        }
    }

    /// A flow becomes current on a thread, in place of another one.
    pub(super) fn note_pushed(&self, before: Current, number: u32) {
        if self.applications.critical_path().is_some() {
            let now = self.nanos();
            if let Some(before) = self.hold_current(before) {
                self.at_note(before, |of, note| note.suspended(of, now, true));
                self.release(before);
            }
            self.at_note(number, |of, note| note.resumed(of, now));
        }
    }

    /// A flow leaves a thread, and the one around it goes on.
    pub(super) fn note_left(&self, left: Current, now: Option<&Now<'_>>) {
        if self.applications.critical_path().is_some() {
            let now = now.map_or_else(|| self.nanos(), Now::get);
            for (flow, resumes) in [(left, false), (current::of(self.owner), true)] {
                if let Some(number) = self.hold_current(flow) {
                    self.at_note(number, |of, note| match resumes {
                        true => note.resumed(of, now),
                        false => note.suspended(of, now, false),
                    });
                    self.release(number);
                }
            }
        }
    }

    /// A flow was split off into a new slot.
    pub(super) fn fork_path(&self, parent: u32, branch: &Slot) {
        if self.applications.critical_path().is_some() {
            let now = self.nanos();
            // Nobody else knows the branch's slot yet.
            self.at_note(parent, |of, note| {
                let begun = Some(BEGUN.get()).filter(|begun| begun.flow == parent).unwrap_or_default();
                note.split_into(of, now, begun, branch.state().path.get_or_insert_default());
            });
        }
    }

    /// The flow of a slot was merged into another one.
    pub(super) fn join_path(&self, into: u32, from: &Slot) {
        if self.applications.critical_path().is_none() {
            return;
        }
        let branch = from.state().path.take();
        let Some(mut branch) = branch else { return };
        if branch.is_active() {
            let now = self.nanos();
            self.at_note(into, |of, note| note.merge(of, now, &mut branch));
        }
        branch.clear();
        // Its memory is used again.
        from.state().path = Some(branch);
    }

    /// A wrapper's flow takes the place of a flow that looked like an unmarked fork: the span at
    /// which that one began is open in the wrapper's.
    pub(super) fn adopt_path(&self, into: u32, from: &Slot) {
        if self.applications.critical_path().is_some()
            && let Some(unmarked) = from.state().path.take()
        {
            self.at_note(into, |_, note| note.take_open(&unmarked));
        }
    }
}

impl FlowRef {
    /// Works on the note of the flow, at the current time.
    pub(crate) fn with_note<R>(&self, f: impl FnOnce(&CriticalPath, &mut Note, u64) -> R) -> Option<R> {
        let now = self.flows.nanos();
        self.flows.at_note(self.number, |of, note| f(of, note, now))
    }

    pub(crate) fn path_here(&self) -> Option<Here> {
        self.with_note(|of, note, now| note.here(of, now))
    }
}
