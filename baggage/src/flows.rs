//! Flows of requests through this process: which flow each thread is in, and their baggage.
//!
//! The SDK stores a flow's number in each span. A flow becomes current on a thread when the span at
//! which it began is entered, or when a wrapper ([`Branched`](future::Branched), ...) runs. So a
//! task may move between threads, and no runtime has to help.
//!
//! # Which flow a span is in
//!
//! | | |
//! |---|---|
//! | a local root | takes the current flow if that has no root of another trace, else its own |
//! | a child | its parent's; the current one if that branched off from its parent's, or is that of a wrapper |
//! | entered where its flow is current, or one that branched off from it | no change |
//! | the span at which its flow began | its flow becomes current |
//! | any other span | an unmarked fork: a copy of its flow begins there |
//!
//! # Locks
//!
//! A flow's baggage is behind a lock that is held for a few instructions. Handlers work on a copy.
//! Afterwards [`Baggage::restore`] applies the differences, value by value, so that threads in
//! one flow lose nothing.

mod branch;
mod current;
mod fork;
mod future;
mod joined;
mod message;
mod message_stats;
mod observer;
mod packed;
#[cfg(feature = "critical_path")]
mod paths;
mod slots;
mod stats;
mod usage;

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::thread::LocalKey;
use std::time::UNIX_EPOCH;

use astracer_sdk::Clock;
use tracing::Span;
use tracing::span::Entered;

pub use self::branch::{Done, branch_fn};
pub use self::fork::Fork;
pub use self::future::{BranchExt, Branched};
pub use self::joined::{Join, JoinStreamExt, Joined, JoinedStream};
pub use self::message::{Calling, Flow};
pub use self::message_stats::MessageStats;
pub use self::packed::{Adopted, Packed};
pub use self::stats::{FlowStats, UnmarkedFork};

use self::current::Current;
use self::message_stats::MessageCounts;
use self::slots::{Account, BEGUN, FAILED, Key, RECEIVED, Slot, Slots, TRACED, UNCONFIRMED, lock};
use self::stats::Counts;
use crate::application::{Application, Applications, View};
use crate::baggage::Baggage;
use crate::registry::{Namespace, Registry};
use crate::tenants::{TenantSums, Tenants};
use crate::x_trace::XTrace;

/// The flows of a process, for `Builder::with_observer` of the SDK. Clones are the same flows.
#[derive(Clone)]
pub struct Flows(Arc<Inner>);

/// The flows that exist at once, by default.
const FLOWS_MAX: u32 = 262_144;
/// The namespace of members that [`flow::set`](crate::flow::set) sets.
const MEMBERS: &str = "astracer.members";

pub(crate) struct Inner {
    owner: u32,
    slots: Slots,
    applications: Applications,
    members: Namespace,
    clock: OnceLock<Clock>,
    counts: Counts,
    messages: MessageCounts,
    /// Whether messages of callers are refused whose decision about a trace does not hold here.
    refuses_callers: AtomicBool,
    trusts_all: AtomicBool,
    /// Held while it is noted that a flow was merged into another one, because two flows that are
    /// merged into each other at once would never end.
    joining: Mutex<()>,
}

/// All [`Flows`] by their numbers, with which a thread's current flow names them.
static OWNERS: RwLock<Option<HashMap<u32, Weak<Inner>>>> = RwLock::new(None);

thread_local! {
    /// Handlers are not called for what handlers do.
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
    /// A wrapper enters the span that it carries. Its flow stays current, also where the span is of
    /// another request, such as a worker's that handles a message.
    static IN_WRAPPER: Cell<bool> = const { Cell::new(false) };
}

impl Default for Flows {
    /// Flows without applications: `flow::set` sets members, and baggage is carried along.
    fn default() -> Self {
        Flows::new(Applications::new(&Registry::default()))
    }
}

impl Flows {
    /// The flows on which these applications work.
    pub fn new(applications: Applications) -> Self {
        Flows::bounded(applications, FLOWS_MAX)
    }

    /// The same, with a bound on the flows that exist at once instead of 262,144. Beyond it, roots
    /// have no flow and branches share their parent's; both are counted.
    pub fn bounded(applications: Applications, flows_max: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let members = applications.registry().reserved(MEMBERS, i8::MAX);
        // They travel as members of W3C Baggage.
        applications.registry().keep_local(&members);
        let inner = Arc::new(Inner {
            owner: NEXT.fetch_add(1, Ordering::Relaxed),
            slots: Slots::new(flows_max),
            members,
            applications,
            clock: OnceLock::new(),
            counts: Counts::default(),
            messages: MessageCounts::default(),
            refuses_callers: AtomicBool::new(false),
            trusts_all: AtomicBool::new(false),
            joining: Mutex::new(()),
        });
        let mut owners = OWNERS.write().unwrap_or_else(PoisonError::into_inner);
        owners.get_or_insert_default().insert(inner.owner, Arc::downgrade(&inner));
        Flows(inner)
    }

    /// Accepts baggage of every caller. Without this, baggage is refused if the decisions of
    /// callers do not hold here (`ParentDecision::Ignore` of the SDK).
    #[must_use]
    pub fn with_any_caller(self) -> Self {
        self.0.trusts_all.store(true, Ordering::Relaxed);
        self
    }

    /// Counts since the beginning, and where a `.branch()` is missing.
    pub fn stats(&self) -> FlowStats {
        let stats = self.0.counts.stats(self.0.slots.used(), self.0.applications.registry().losses());
        let x_trace = self.0.applications.x_trace().map(XTrace::stats).unwrap_or_default();
        FlowStats { messages: self.0.messages.stats(), x_trace, ..stats }
    }

    /// The critical paths, if [`Applications::with_critical_path`] was called.
    #[cfg(feature = "critical_path")]
    pub fn critical_path(&self) -> Option<&crate::paths::CriticalPath> {
        self.0.applications.critical_path()
    }

    /// Whether [`Applications::with_tenants`] was called.
    pub fn has_tenants(&self) -> bool {
        self.0.applications.tenants().is_some()
    }

    /// Sums by tenant; empty unless [`Applications::with_tenants`] was called.
    pub fn tenants(&self) -> TenantSums {
        self.0.applications.tenants().map(Tenants::sums).unwrap_or_default()
    }
}

impl fmt::Debug for Flows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flows").field("applications", &self.0.applications).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut owners = OWNERS.write().unwrap_or_else(PoisonError::into_inner);
        owners.as_mut().and_then(|owners| owners.remove(&self.owner));
    }
}

/// One use of a flow, which holds it open.
pub(crate) struct FlowRef {
    flows: Arc<Inner>,
    number: u32,
}

impl Drop for FlowRef {
    fn drop(&mut self) {
        self.flows.release(self.number);
    }
}

/// The time in which a thread is in a flow because of a wrapper.
pub(crate) struct Inside<'a> {
    flow: &'a FlowRef,
    key: Key,
    is_current: bool,
}

impl FlowRef {
    /// The thread's current flow.
    pub(crate) fn current() -> Option<FlowRef> {
        let current = current::get();
        if current.owner == 0 {
            return None;
        }
        let owners = OWNERS.read().unwrap_or_else(PoisonError::into_inner);
        let flows = owners.as_ref()?.get(&current.owner)?.upgrade()?;
        drop(owners);
        let number = flows.hold_current(current)?;
        Some(FlowRef { flows, number })
    }

    /// Splits a flow off. `None` if there are too many.
    pub(crate) fn split(&self) -> Option<FlowRef> {
        let number = self.flows.split(self.number)?;
        Some(FlowRef { flows: self.flows.clone(), number })
    }

    /// Merges this flow into the thread's current one. Returns whether there is one.
    pub(crate) fn merge_here(self) -> bool {
        let Some(into) = FlowRef::current() else { return false };
        let is_ours = Arc::ptr_eq(&into.flows, &self.flows);
        if is_ours {
            self.flows.merge(into.number, self.number);
        }
        is_ours
    }

    /// Merges this flow into another one.
    pub(crate) fn merge_into(self, into: &FlowRef) {
        self.flows.merge(into.number, self.number);
    }

    /// Makes the flow current until the result is dropped.
    pub(crate) fn enter(&self) -> Inside<'_> {
        let flows = &*self.flows;
        let number = flows.resolve(self.number);
        let before = current::of(flows.owner);
        flows.adopt_unmarked(before, number);
        let key = current::wrapper_key();
        let is_current = flows.push(number, key);
        if is_current {
            flows.note_switch(before);
        }
        Inside { flow: self, key, is_current }
    }

    /// Lets a root begin in this flow whatever its trace is.
    pub(crate) fn forget_trace(&self) {
        if let Some(slot) = self.flows.slots.get(self.number) {
            slot.state().trace = None;
        }
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Baggage) -> R) -> R {
        self.flows.with_baggage(self.number, f)
    }

    pub(crate) fn set_member(&self, key: &str, value: &str) {
        let members = &self.flows.members;
        self.flows.at_state(self.number, |state| {
            // Members have no typed value, so no code of applications runs under the lock.
            state.baggage.replace(members, key.as_bytes(), [value.as_bytes()]);
        });
    }

    pub(crate) fn member(&self, key: &str) -> Option<String> {
        let baggage = self.flows.at_state(self.number, |state| state.baggage.share())?;
        let value = baggage.get(&self.flows.members, key.as_bytes()).next()?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    pub(crate) fn consume(&self, resource: &str, amount: u64) {
        self.flows.consume(self.number, resource, amount);
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.flows.counts
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if self.is_current {
            let flows = &*self.flow.flows;
            flows.leave(
                self.key,
                #[cfg(feature = "critical_path")]
                None,
            );
        }
    }
}

impl Inner {
    fn slot(&self, number: u32) -> Option<&Slot> {
        self.slots.get(number)
    }

    fn now(&self) -> u64 {
        self.clock.get().map_or(0, |clock| self.date(clock.since_origin(clock.ticks()).get()))
    }

    /// A date of nanoseconds since the clock was made.
    fn date(&self, nanos: u64) -> u64 {
        let origin = self.clock.get().and_then(|clock| clock.origin().duration_since(UNIX_EPOCH).ok());
        let origin = origin.map_or(0, |origin| u64::try_from(origin.as_nanos()).unwrap_or(u64::MAX));
        origin.saturating_add(nanos)
    }

    /// The flow into which a flow was merged, at last.
    #[inline]
    fn resolve(&self, mut number: u32) -> u32 {
        while let Some(into) = self.slot(number).map(Slot::merged_into).filter(|into| *into != 0) {
            number = into;
        }
        number
    }

    /// Adds a use of the current flow, if it is one of these.
    fn hold_current(&self, current: Current) -> Option<u32> {
        let slot = self.slot(current.number).filter(|_| current.owner == self.owner)?;
        if !slot.add_use_to(current.id) {
            return None;
        }
        if slot.id() != current.id {
            // The flow ended meanwhile, and its slot has another one.
            self.release(current.number);
            return None;
        }
        let number = self.resolve(current.number);
        if number != current.number {
            self.slot(number)?.add_use();
            self.release(current.number);
        }
        Some(number)
    }

    /// The number of the current flow; 0 if it is none of these.
    fn current(&self, current: Current) -> u32 {
        let is_valid = current.owner == self.owner
            && self.slot(current.number).is_some_and(|slot| slot.id() == current.id);
        if is_valid { self.resolve(current.number) } else { 0 }
    }

    /// Takes a slot for a flow that begins at a span, or in a wrapper.
    fn take(&self, origin: Key) -> Option<(u32, &Slot)> {
        let taken = self.slots.take();
        match taken {
            Some((_, slot)) => slot.set_origin(origin),
            None => Counts::add(&self.counts.refused),
        }
        taken
    }

    /// Whether a flow branched off from another one.
    fn is_below(&self, number: u32, above: u32) -> bool {
        let (Some(slot), Some(above)) = (self.slot(number), self.slot(above)) else { return false };
        let above = above.id();
        slot.state().ancestors.contains(&above)
    }

    fn split(&self, number: u32) -> Option<u32> {
        let (branch, slot) = self.take((0, 0))?;
        slot.set(BEGUN);
        Counts::add(&self.counts.branches);
        self.note_x_trace(number, "fork");
        let baggage = match self.applications.is_empty() {
            true => self.with_baggage(number, Baggage::split),
            false => {
                let now = self.now();
                self.with_baggage(number, |flow| handling(|| self.applications.split(flow, now)))
            }
        };
        self.descend(slot, number, baggage);
        #[cfg(feature = "critical_path")]
        self.fork_path(number, slot);
        Some(branch)
    }

    /// A copy of a flow, without its applications' knowledge, that begins at a span.
    fn copy(&self, number: u32, origin: Key) -> Option<(u32, &Slot)> {
        let (copy, slot) = self.take(origin)?;
        slot.set(BEGUN | UNCONFIRMED);
        let baggage = self.with_baggage(number, Baggage::split);
        self.descend(slot, number, baggage);
        #[cfg(feature = "critical_path")]
        self.fork_path(number, slot);
        Some((copy, slot))
    }

    fn descend(&self, slot: &Slot, parent: u32, baggage: Baggage) {
        let parent = self.resolve(parent);
        let id = self.slot(parent).map_or(0, Slot::id);
        let of = |state: &mut slots::State| {
            let account = Account { root: None, ..state.account.clone() };
            (state.ancestors, state.trace, account)
        };
        let (mut ancestors, trace, account) = self.at_state(parent, of).unwrap_or_default();
        ancestors.rotate_right(1);
        ancestors[0] = id;
        if self.slot(parent).is_some_and(|parent| parent.has(TRACED)) {
            slot.set(TRACED);
        }
        let mut state = slot.state();
        (state.baggage, state.ancestors, state.trace, state.account) = (baggage, ancestors, trace, account);
    }

    fn merge(&self, into: u32, from: u32) {
        self.charge_branch(into, from);
        #[cfg(feature = "critical_path")]
        let source = self.slot(self.resolve(from));
        let Some((into, mut branch)) = self.unite(into, from) else { return };
        #[cfg(feature = "critical_path")]
        if let Some(source) = source {
            self.join_path(into, source);
        }
        Counts::add(&self.counts.joined);
        let now = if self.applications.is_empty() { 0 } else { self.now() };
        self.with_baggage(into, |flow| {
            // A member that the flow has is not changed by a branch.
            let known: Vec<Vec<u8>> = flow.keys(&self.members).map(<[u8]>::to_vec).collect();
            known.iter().for_each(|key| branch.remove(&self.members, key));
            handling(|| self.applications.merge(flow, branch, now));
        });
        self.note_x_trace(into, "join");
    }

    /// Notes that a flow was merged into another one. Returns the other one's number, and the
    /// flow's baggage; `None` if they are the same.
    fn unite(&self, into: u32, from: u32) -> Option<(u32, Baggage)> {
        let _joining = lock(&self.joining);
        let (into, from) = (self.resolve(into), self.resolve(from));
        if into == from {
            return None;
        }
        let (target, source) = (self.slot(into)?, self.slot(from)?);
        target.add_use();
        let mut state = source.state();
        for flag in [FAILED, TRACED] {
            if source.has(flag) {
                target.set(flag);
            }
        }
        target.add_busy(source.take_busy());
        source.set_merged_into(into);
        Some((into, mem::take(&mut state.baggage)))
    }

    /// Removes a use of a flow, and ends it with the last one.
    #[inline]
    fn release(&self, number: u32) {
        if self.slot(number).is_some_and(Slot::remove_use) {
            self.end(number);
        }
    }

    fn end(&self, mut number: u32) {
        // A loop, because a flow may be the last use of the one into which it was merged.
        while let Some(slot) = self.slot(number) {
            let into = slot.merged_into();
            if into == 0 {
                self.charge_rest(slot);
            }
            let mut baggage = slot.state().clear();
            if into == 0 && !self.applications.is_empty() {
                let now = self.now();
                let has_begun = !slot.set(BEGUN);
                handling(|| {
                    if !has_begun {
                        self.applications.call(&mut baggage, now, |one, flow| one.begin(flow));
                    }
                    self.applications.call(&mut baggage, now, |one, flow| one.end(flow));
                });
            }
            self.slots.free(number);
            drop(baggage);
            if into == 0 || !self.slot(into).is_some_and(Slot::remove_use) {
                return;
            }
            number = into;
        }
    }

    /// Runs `f` on the state of a flow, under its lock.
    fn at_state<R>(&self, number: u32, f: impl FnOnce(&mut slots::State) -> R) -> Option<R> {
        let mut number = number;
        loop {
            let slot = self.slot(number)?;
            let mut state = slot.state();
            match slot.merged_into() {
                0 => return Some(f(&mut state)),
                into => number = into,
            }
        }
    }

    /// Runs `f` on a copy of a flow's baggage, and then changes the flow's as `f` has changed the
    /// copy. Typed values move to the copy meanwhile.
    fn with_baggage<R>(&self, number: u32, f: impl FnOnce(&mut Baggage) -> R) -> R {
        let mut lent = self.at_state(number, |state| state.baggage.lend()).unwrap_or_default();
        let result = f(&mut lent.baggage);
        // Repeated only if another thread has made typed values of its own meanwhile, which are
        // merged by code of their owner, without the lock.
        loop {
            let registry = self.applications.registry();
            match self.at_state(number, |state| state.baggage.restore(&mut lent, registry)).flatten() {
                None => return result,
                Some(others) => lent.unite(others),
            }
        }
    }

    /// Calls a handler for a flow. `now` reads the clock.
    fn call(&self, number: u32, now: impl Fn() -> u64, handler: impl Fn(&dyn Application, &mut View<'_>)) {
        if self.applications.is_empty() || IN_HANDLER.get() {
            return;
        }
        let now = now();
        self.with_baggage(number, |flow| {
            handling(|| {
                if self.slot(self.resolve(number)).is_some_and(|slot| slot.clear(RECEIVED)) {
                    self.applications.call(flow, now, |application, flow| application.post_deserialize(flow));
                }
                let begins = self.slot(self.resolve(number)).is_some_and(|slot| slot.set(BEGUN));
                if begins {
                    self.applications.call(flow, now, |application, flow| application.begin(flow));
                }
                self.applications.call(flow, now, &handler);
            });
        });
    }

    /// Makes a flow current. Returns whether it is.
    fn push(&self, number: u32, key: Key) -> bool {
        let id = self.slot(number).map_or(0, Slot::id);
        let since = self.pause();
        #[cfg(feature = "critical_path")]
        let before = current::of(self.owner);
        let is_current = current::push(Current::new((self.owner, number), id, key, since));
        if !is_current {
            Counts::add(&self.counts.refused);
            current::restart(since);
        }
        #[cfg(feature = "critical_path")]
        if is_current {
            self.note_pushed(before, number);
        }
        is_current
    }

    /// Calls the handlers of a flow that became current after another one.
    fn note_switch(&self, before: Current) {
        if !self.applications.is_empty() {
            self.note_other(before, |application, flow| application.suspend(flow));
            self.note_other(current::of(self.owner), |application, flow| application.resume(flow));
        }
    }

    fn note_other(&self, current: Current, handler: impl Fn(&dyn Application, &mut View<'_>)) {
        if let Some(number) = self.hold_current(current) {
            self.call(number, || self.now(), handler);
            self.release(number);
        }
    }

    /// Leaves a span or a wrapper. Returns the flow that is no longer current.
    fn leave(
        &self,
        key: Key,
        #[cfg(feature = "critical_path")] now: Option<&paths::Now<'_>>,
    ) -> Option<Current> {
        let left = current::pop(key)?;
        self.resume(left);
        #[cfg(feature = "critical_path")]
        self.note_left(left, now);
        if self.applications.is_empty() {
            return Some(left);
        }
        self.note_other(left, |application, flow| application.suspend(flow));
        self.note_other(current::of(self.owner), |application, flow| application.resume(flow));
        Some(left)
    }

    /// A wrapper is entered directly inside a span that looked like an unmarked fork of the flow
    /// from which the wrapper's flow was split off: the two are one, and the fork is marked.
    fn adopt_unmarked(&self, current: Current, number: u32) {
        let Some(unmarked) = self.hold_current(current) else { return };
        if let (Some(slot), Some(wrapped)) = (self.slot(unmarked), self.slot(number))
            && slot.has(UNCONFIRMED)
            && unmarked != number
            && self.is_sibling(slot, wrapped)
            && slot.clear(UNCONFIRMED)
        {
            if wrapped.origin() == (0, 0) {
                wrapped.set_origin(slot.origin());
            }
            // The branch has what the copy has.
            if self.unite(number, unmarked).is_some() {
                #[cfg(feature = "critical_path")]
                self.adopt_path(number, slot);
            }
        }
        self.release(unmarked);
    }

    /// Whether a flow was split off from the one that another flow is a copy of.
    fn is_sibling(&self, copy: &Slot, other: &Slot) -> bool {
        let parent = copy.state().ancestors[0];
        other.state().ancestors.contains(&parent)
    }
}

/// Runs handlers. What they do calls no handlers.
fn handling<R>(f: impl FnOnce() -> R) -> R {
    with_flag(&IN_HANDLER, f)
}

/// Enters the span that a wrapper carries.
fn enter_carried(span: &Span) -> Entered<'_> {
    with_flag(&IN_WRAPPER, || span.enter())
}

fn with_flag<R>(flag: &'static LocalKey<Cell<bool>>, f: impl FnOnce() -> R) -> R {
    struct Reset(&'static LocalKey<Cell<bool>>, bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _reset = Reset(flag, flag.replace(true));
    f()
}
