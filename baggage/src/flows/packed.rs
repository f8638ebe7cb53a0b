//! Messages that carry a flow through a channel.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::branch::Branch;

/// A message with a branch of the sender's flow.
///
/// The receiver merges it into its own flow, as with the reply to a request, or works in it, as
/// with a request that an actor or a worker handles. A copy of the message has a branch of its own.
/// A message that is dropped is counted, and merges nothing.
#[must_use = "merge the message, or adopt it"]
pub struct Packed<T> {
    value: T,
    branch: Branch,
}

impl<T> Packed<T> {
    /// A message from the current flow.
    pub fn new(value: T) -> Self {
        let branch = Branch::here();
        if let Some(flow) = branch.flow().filter(|_| branch.is_own()) {
            flow.forget_trace();
        }
        Packed { value, branch }
    }

    /// The content.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Merges the sender's flow into the current one, and returns the content.
    pub fn merge(self) -> T {
        self.branch.join();
        self.value
    }

    /// Makes a future of the content that works in the sender's flow. A local root that begins
    /// there takes that flow.
    pub fn adopt<F: Future>(self, work: impl FnOnce(T) -> F) -> Adopted<F> {
        let Packed { value, mut branch } = self;
        branch.note_adopted();
        let inner = {
            let _inside = branch.enter();
            work(value)
        };
        Adopted { inner: Some(inner), branch }
    }

    /// Calls a function with the content in the sender's flow.
    pub fn adopt_fn<R>(self, work: impl FnOnce(T) -> R) -> R {
        let Packed { value, mut branch } = self;
        branch.note_adopted();
        let _inside = branch.enter();
        work(value)
    }
}

impl<T: Clone> Clone for Packed<T> {
    fn clone(&self) -> Self {
        Packed { value: self.value.clone(), branch: self.branch.split() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Packed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Packed").field(&self.value).finish()
    }
}

pin_project! {
    /// A future in the flow of a message: see [`Packed::adopt`].
    #[must_use = "futures do nothing unless polled"]
    pub struct Adopted<F> {
        #[pin]
        inner: Option<F>,
        branch: Branch,
    }

    impl<F> PinnedDrop for Adopted<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _inside = this.branch.enter();
            this.inner.set(None);
        }
    }
}

impl<F: Future> Adopted<F> {
    pub(super) fn new(inner: F, branch: Branch) -> Self {
        Adopted { inner: Some(inner), branch }
    }

    /// The response to a caller: see [`Flow::answer`](crate::Flow::answer). Empty without a flow.
    pub fn answer(&self, asked: usize) -> String {
        self.branch.answer(asked)
    }
}

impl<F: Future> Future for Adopted<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let _inside = this.branch.enter();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else { return Poll::Pending };
        let result = inner.poll(context);
        if result.is_ready() {
            this.inner.set(None);
        }
        result
    }
}

impl<F> fmt::Debug for Adopted<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adopted").finish_non_exhaustive()
    }
}
