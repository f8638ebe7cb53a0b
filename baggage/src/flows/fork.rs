//! A fork into many closures, as in parallel iterators.

use std::fmt;

use tracing::Span;

use super::branch::Branch;
use super::enter_carried;

/// A place at which a flow forks into closures that run on any threads.
///
/// ```
/// # use astracer_baggage::Fork;
/// let fork = Fork::here();
/// std::thread::scope(|scope| {
///     for number in 0..4 {
///         let fork = &fork;
///         scope.spawn(move || fork.run(|| number * 2));
///     }
/// });
/// fork.join();
/// ```
#[must_use = "join the fork"]
pub struct Fork {
    /// Collects the branches.
    branch: Branch,
    span: Span,
}

impl Fork {
    /// A fork of the current flow, and of the current span.
    pub fn here() -> Fork {
        Fork { branch: Branch::here(), span: Span::current() }
    }

    /// Runs a closure in a branch, which is collected when the closure returns.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        let Some(flow) = self.branch.flow() else { return self.span.in_scope(work) };
        let branch = self.branch.split();
        let result = {
            // If there are too many flows, the closures share the fork's.
            let _inside = branch.enter().or_else(|| Some(flow.enter()));
            let _entered = enter_carried(&self.span);
            work()
        };
        branch.join_into(flow);
        result
    }

    /// Merges the branches that have returned into the current flow.
    pub fn join(self) {
        self.branch.join();
    }
}

impl fmt::Debug for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fork").field("span", &self.span).finish_non_exhaustive()
    }
}
