//! The use of threads by flows, the ends of local roots, and X-Trace's events of both.

use std::sync::Arc;

use astracer_sdk::{ObservedSpan, add_event_in};
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::{Context, KeyValue, TraceId};
use tracing::{Metadata, Span};

use super::Inner;
use super::current::{self, Current};
use super::slots::{FAILED, MIXED, ROOT_NOTED, Slot, State, TRACED};
use crate::tenants::{self, Sums, Tenants};
use crate::x_trace::Step;

impl Inner {
    /// The flow that was current until now stops using the thread. Returns the time; 0 without
    /// tenants.
    pub(super) fn pause(&self) -> u64 {
        let Some(now) = self.ticks() else { return 0 };
        self.use_thread(current::get(), now);
        now
    }

    /// A flow has left the thread, and the one around it goes on.
    pub(super) fn resume(&self, left: Current) {
        if let Some(now) = self.ticks() {
            self.use_thread(left, now);
            current::restart(now);
        }
    }

    /// Adds the time up to now of the flow that is current, which goes on.
    pub(super) fn go_on(&self) {
        if let Some(now) = self.ticks().filter(|_| current::get().owner == self.owner) {
            self.use_thread(current::get(), now);
            current::restart(now);
        }
    }

    fn ticks(&self) -> Option<u64> {
        self.applications.tenants()?;
        self.clock.get().map(|clock| clock.ticks())
    }

    fn use_thread(&self, flow: Current, now: u64) {
        if flow.owner == self.owner
            && flow.since != 0
            && let Some(slot) = self.slot(flow.number).filter(|slot| slot.id() == flow.id)
            && let Some(clock) = self.clock.get()
        {
            // 0 if the clock has stepped back.
            let nanos = clock.nanos_between(flow.since, now);
            match self.slot(self.resolve(flow.number)) {
                Some(target) if slot.merged_into() != 0 => target.add_busy(nanos),
                _ => slot.add_busy(nanos),
            }
        }
    }

    /// A local root begins in a flow. Runs no code of the service.
    pub(super) fn open_account(&self, slot: &Slot, root: &ObservedSpan<'_>, base: Option<&Context>) {
        // Else sums would depend on the sampler.
        let Some(tenants) = self.applications.tenants().filter(|_| !root.is_below_dropped()) else { return };
        let stated = base.and_then(|base| base.baggage().get(tenants.member.as_str()));
        let tenant = stated.map(|tenant| tenants.tenant(tenant.as_str()));
        let resource = tenants.name(root.root_name());
        let began = u64::try_from(root.now().as_nanos()).unwrap_or(u64::MAX);
        let account = &mut slot.state().account;
        if account.root.is_none() {
            account.tenant = tenant.or(account.tenant.take());
            account.resource = Some(resource);
            account.root = Some((root.key(), began));
        }
    }

    /// A span ends: if it is its flow's local root, the request is complete.
    pub(super) fn close_account(&self, root: &ObservedSpan<'_>) {
        let number = self.resolve(root.flow());
        let Some(slot) = self.slot(number) else { return };
        if slot.has(TRACED) && slot.clear(ROOT_NOTED) && root.is_recorded() {
            self.x_trace_at_root(number, "end", root);
        }
        let Some(tenants) = self.applications.tenants() else { return };
        let now = u64::try_from(root.now().as_nanos()).unwrap_or(u64::MAX);
        // The root may end while a wrapper keeps its flow on this thread.
        self.go_on();
        let mut state = slot.state();
        let Some((_, began)) = state.account.root.take_if(|(key, _)| *key == root.key()) else { return };
        let (wall, on_thread) = (now.saturating_sub(began), slot.take_busy());
        drop(state);
        let has_failed = slot.clear(FAILED) || root.has_failed();
        let sums = Sums {
            calls: 1,
            errors: has_failed.into(),
            wall,
            on_thread,
            waiting: wall.saturating_sub(on_thread),
            consumed: 0,
        };
        self.charge(tenants, slot, &sums);
    }

    /// A flow ends: adds what is not in the sums yet.
    pub(super) fn charge_rest(&self, slot: &Slot) {
        if let Some(tenants) = self.applications.tenants() {
            let on_thread = slot.take_busy();
            if on_thread > 0 {
                self.charge(tenants, slot, &Sums { on_thread, ..Sums::default() });
            }
        }
    }

    /// A branch is about to be merged into a flow, which may be of another tenant.
    pub(super) fn charge_branch(&self, into: u32, from: u32) {
        let Some(tenants) = self.applications.tenants() else { return };
        let (into, from) = (self.resolve(into), self.resolve(from));
        let (Some(target), Some(source)) = (self.slot(into), self.slot(from)) else { return };
        if into == from {
            return;
        }
        self.charge_rest(source);
        let of = |slot: &Slot| self.tenant_of(tenants, &slot.state());
        let (own, theirs) = (of(target), of(source));
        match (own, theirs) {
            _ if source.has(MIXED) => _ = target.set(MIXED),
            (_, None) => {}
            (None, theirs) => target.state().account.tenant = theirs,
            (Some(own), Some(theirs)) if own != theirs => {
                target.set(MIXED);
                tenants.note_mixed(Span::current().metadata());
            }
            _ => {}
        }
    }

    /// Adds to a resource of the service's own.
    pub(super) fn consume(&self, number: u32, resource: &str, amount: u64) {
        if let (Some(tenants), Some(slot)) = (self.applications.tenants(), self.slot(self.resolve(number))) {
            let tenant = self.payer(tenants, slot);
            let sums = Sums { calls: 1, consumed: amount, ..Sums::default() };
            tenants.add(&tenant, &tenants.name(resource), &sums);
        }
    }

    fn charge(&self, tenants: &Tenants, slot: &Slot, sums: &Sums) {
        let tenant = self.payer(tenants, slot);
        let resource = slot.state().account.resource.clone();
        // A flow without a local root, as of a broker's message that no root has taken.
        let resource = resource.unwrap_or_else(|| tenants.name(tenants::NONE));
        tenants.add(&tenant, &resource, sums);
    }

    fn payer(&self, tenants: &Tenants, slot: &Slot) -> Arc<str> {
        if slot.has(MIXED) {
            return tenants.name(tenants::MIXED);
        }
        let own = self.tenant_of(tenants, &slot.state());
        own.unwrap_or_else(|| tenants.name(tenants::NONE))
    }

    /// The tenant that code has set in a flow, or else the one that the caller has named.
    fn tenant_of(&self, tenants: &Tenants, state: &State) -> Option<Arc<str>> {
        let set = state.baggage.get_set(&self.members, tenants.member.as_bytes());
        match set {
            Some(set) => Some(tenants.tenant(&String::from_utf8_lossy(set))),
            None => state.account.tenant.clone(),
        }
    }

    /// A span is entered: if it is a recorded local root, X-Trace's graph begins.
    #[inline]
    pub(super) fn begin_x_trace(&self, number: u32, root: &ObservedSpan<'_>) {
        if root.is_root() && self.applications.x_trace().is_some() && root.is_recorded() {
            let number = self.resolve(number);
            if let Some(slot) = self.slot(number)
                && slot.set(ROOT_NOTED)
            {
                slot.set(TRACED);
                self.x_trace_at_root(number, "begin", root);
            }
        }
    }

    fn x_trace_at_root(&self, number: u32, name: &'static str, root: &ObservedSpan<'_>) {
        let place = Some(root.metadata());
        let add = |attributes| Some(root.add_event(name, attributes));
        self.x_trace(number, root.trace_id(), true, |step| add(step.attributes(place)));
    }

    /// X-Trace's event of the flow's work on the thread's current span, or else on its local root.
    #[inline]
    pub(super) fn note_x_trace(&self, number: u32, name: &'static str) {
        if self.applications.x_trace().is_some()
            && let Some(slot) = self.slot(self.resolve(number)).filter(|slot| slot.has(TRACED))
            && let Some(trace) = self.at_state(number, |state| state.trace).flatten()
        {
            let root = slot.origin();
            self.x_trace(number, trace, false, |step| {
                add_event_in(trace, root, name, step.attributes(Span::current().metadata()))
            });
        }
    }

    /// X-Trace's attributes of a recorded event of `tracing`.
    pub(super) fn x_trace_event(
        &self,
        span: &ObservedSpan<'_>,
        place: &'static Metadata<'static>,
    ) -> Vec<KeyValue> {
        let mut added = Vec::new();
        if self.applications.x_trace().is_none() {
            return added;
        }
        let here = self.hold_current(current::of(self.owner));
        let number = here.unwrap_or(self.resolve(span.flow()));
        if self.slot(number).is_some_and(|slot| slot.has(TRACED)) {
            self.x_trace(number, span.trace_id(), false, |step| {
                let fits = span.has_room_for_event();
                if fits {
                    added = step.attributes(Some(place));
                }
                Some(fits)
            });
        }
        if here.is_some() {
            self.release(number);
        }
        added
    }

    /// Lets a flow go on to its next event, which `add` adds to a span, without the flow's lock.
    fn x_trace(&self, number: u32, trace: TraceId, begins: bool, add: impl FnOnce(&Step) -> Option<bool>) {
        let Some(x_trace) = self.applications.x_trace() else { return };
        let step = self.at_state(number, |state| {
            let follows = begins || x_trace.is_in(&state.baggage);
            follows.then(|| x_trace.advance(&mut state.baggage, trace))
        });
        let Some(step) = step.flatten() else { return };
        match add(&step) {
            Some(true) => x_trace.count(Some(true)),
            kept => _ = self.at_state(number, |state| x_trace.settle(&mut state.baggage, &step, kept)),
        }
    }

    /// An event of level ERROR happens in the current flow, or else in this one.
    #[cold]
    pub(super) fn note_error(&self, flow: u32) {
        let here = self.current(current::of(self.owner));
        let number = if here == 0 { self.resolve(flow) } else { here };
        if let Some(slot) = self.slot(number).filter(|_| self.applications.tenants().is_some()) {
            slot.set(FAILED);
        }
    }
}
