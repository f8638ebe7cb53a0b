//! Branches, and closures that run in one.

use std::fmt;

use tracing::Span;

use super::stats::Counts;
use super::{FlowRef, Inside, enter_carried};

/// A branch until it is joined, detached or dropped.
pub(super) struct Branch {
    /// `None` outside of a request.
    flow: Option<FlowRef>,
    /// Whether this is another use of the flow it should have been split off from, because there
    /// are too many flows.
    is_shared: bool,
    is_dropped: bool,
}

impl Branch {
    /// A branch of the current flow.
    pub(super) fn here() -> Self {
        Branch::of(FlowRef::current())
    }

    pub(super) fn of(parent: Option<FlowRef>) -> Self {
        let Some(parent) = parent else { return Branch::none() };
        let branch = parent.split();
        let is_shared = branch.is_none();
        Branch { flow: Some(branch.unwrap_or(parent)), is_shared, is_dropped: !is_shared }
    }

    /// No flow.
    pub(super) fn none() -> Self {
        Branch { flow: None, is_shared: true, is_dropped: false }
    }

    /// A flow that a message has brought.
    pub(super) fn received(flow: FlowRef) -> Self {
        Branch { flow: Some(flow), is_shared: true, is_dropped: false }
    }

    /// A branch of this branch.
    pub(super) fn split(&self) -> Self {
        let flow = self.flow.as_ref().and_then(FlowRef::split);
        let is_shared = flow.is_none();
        Branch { flow, is_shared, is_dropped: !is_shared }
    }

    /// Whether it has a flow that nothing else uses.
    pub(super) fn is_own(&self) -> bool {
        !self.is_shared
    }

    pub(super) fn flow(&self) -> Option<&FlowRef> {
        self.flow.as_ref()
    }

    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        self.flow.as_ref().map(FlowRef::enter)
    }

    /// Merges the branch into the current flow.
    pub(super) fn join(mut self) {
        self.end(|flow| {
            let counts = &flow.flows.clone().counts;
            if !flow.merge_here() {
                Counts::add(&counts.joins_outside);
            }
        });
    }

    pub(super) fn join_into(mut self, into: &FlowRef) {
        self.end(|flow| flow.merge_into(into));
    }

    pub(super) fn detach(mut self) {
        self.end(|flow| Counts::add(&flow.counts().detached));
    }

    pub(super) fn note_adopted(&mut self) {
        self.is_dropped = false;
        if let Some(flow) = &self.flow {
            Counts::add(&flow.counts().adopted);
        }
    }

    fn end(&mut self, how: impl FnOnce(FlowRef)) {
        self.is_dropped = false;
        if let Some(flow) = self.flow.take().filter(|_| !self.is_shared) {
            how(flow);
        }
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        if self.is_dropped
            && let Some(flow) = &self.flow
        {
            Counts::add(&flow.counts().dropped);
        }
    }
}

/// The result of a branch, with its flow.
///
/// Where the result is used, the flow that waits for it learns what the branch knew:
/// [`join`](Self::join). Dropping this merges nothing, and is counted.
#[must_use = "join the branch, or detach it"]
pub struct Done<T> {
    value: T,
    branch: Branch,
}

impl<T> Done<T> {
    pub(super) fn new(value: T, branch: Branch) -> Self {
        Done { value, branch }
    }

    /// Merges the branch into the current flow, and returns its result.
    pub fn join(self) -> T {
        self.branch.join();
        self.value
    }

    /// Returns the result. The branch ends without being merged.
    pub fn detach(self) -> T {
        self.branch.detach();
        self.value
    }

    /// The result, before it is decided whether the branch is joined.
    pub fn value(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Done<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Done").field(&self.value).finish()
    }
}

/// Makes a closure a branch of the current flow, and of the current span:
/// `thread::spawn(branch_fn(work))`, `spawn_blocking(branch_fn(work))`.
pub fn branch_fn<R>(work: impl FnOnce() -> R) -> impl FnOnce() -> Done<R> {
    let (branch, span) = (Branch::here(), Span::current());
    move || {
        let value = {
            let _inside = branch.enter();
            let _entered = enter_carried(&span);
            work()
        };
        Done { value, branch }
    }
}
