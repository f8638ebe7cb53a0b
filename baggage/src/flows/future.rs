//! Futures that run in a branch.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tracing::Span;

use super::branch::{Branch, Done};
use super::enter_carried;
use super::joined::{Join, Joined};

/// Methods of futures that fork or join the flow of a request.
pub trait BranchExt: Future + Sized {
    /// Makes the future a branch of the current flow, and of the current span.
    ///
    /// Call it where the work is spawned or given to `join!`, before or after `.instrument(span)`:
    /// `spawn(work.branch())`. Its output is a [`Done`].
    fn branch(self) -> Branched<Self> {
        Branched { inner: Some(self), branch: Some(Branch::here()), span: Span::current() }
    }

    /// Joins the branch that the future returns: `spawn(work.branch()).joined().await`. Works for
    /// the handles of tasks, whose errors are returned. A task that was aborted or has panicked
    /// merges nothing.
    fn joined(self) -> Joined<Self>
    where
        Self::Output: Join,
    {
        Joined::new(self)
    }
}

impl<F: Future> BranchExt for F {}

pin_project! {
    /// A future in a flow of its own: see [`BranchExt::branch`].
    #[must_use = "futures do nothing unless polled"]
    pub struct Branched<F> {
        #[pin]
        inner: Option<F>,
        branch: Option<Branch>,
        span: Span,
    }

    impl<F> PinnedDrop for Branched<F> {
        fn drop(this: Pin<&mut Self>) {
            // The future's values are dropped in its flow.
            let mut this = this.project();
            if this.inner.is_some() {
                let _inside = this.branch.as_ref().and_then(Branch::enter);
                let _entered = enter_carried(this.span);
                this.inner.set(None);
            }
        }
    }
}

impl<F: Future> Future for Branched<F> {
    type Output = Done<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let value = {
            let _inside = this.branch.as_ref().and_then(Branch::enter);
            let _entered = enter_carried(this.span);
            let Some(inner) = this.inner.as_mut().as_pin_mut() else { return Poll::Pending };
            let Poll::Ready(value) = inner.poll(context) else { return Poll::Pending };
            this.inner.set(None);
            value
        };
        // The span may end now, instead of when the future is dropped.
        *this.span = Span::none();
        match this.branch.take() {
            Some(branch) => Poll::Ready(Done::new(value, branch)),
            None => Poll::Pending,
        }
    }
}

impl<F> fmt::Debug for Branched<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Branched").field("span", &self.span).finish_non_exhaustive()
    }
}
