//! Joining branches where tasks and streams return them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use pin_project_lite::pin_project;

use super::branch::Done;

/// Results that may hold a [`Done`], such as the `Result<Done<T>, JoinError>` of a task's handle.
pub trait Join {
    /// The result without the branch.
    type Value;

    /// Merges the branch, if there is one, into the current flow.
    fn join(self) -> Self::Value;
}

impl<T> Join for Done<T> {
    type Value = T;

    fn join(self) -> T {
        Done::join(self)
    }
}

impl<J: Join, E> Join for Result<J, E> {
    type Value = Result<J::Value, E>;

    fn join(self) -> Self::Value {
        self.map(J::join)
    }
}

impl<J: Join> Join for Option<J> {
    type Value = Option<J::Value>;

    fn join(self) -> Self::Value {
        self.map(J::join)
    }
}

pin_project! {
    /// A future that joins the branch it gets: see [`BranchExt::joined`](super::BranchExt::joined).
    #[must_use = "futures do nothing unless polled"]
    pub struct Joined<F> {
        #[pin]
        inner: F,
    }
}

impl<F> Joined<F> {
    pub(super) fn new(inner: F) -> Self {
        Joined { inner }
    }
}

impl<F> Future for Joined<F>
where
    F: Future,
    F::Output: Join,
{
    type Output = <F::Output as Join>::Value;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(self.project().inner.poll(context)).join())
    }
}

/// Methods of streams of branches, such as `FuturesUnordered` and `JoinSet`'s.
pub trait JoinStreamExt: Stream + Sized {
    /// Joins each branch when the stream returns it.
    fn joined(self) -> JoinedStream<Self>
    where
        Self::Item: Join,
    {
        JoinedStream { inner: self }
    }
}

impl<S: Stream> JoinStreamExt for S {}

pin_project! {
    /// A stream that joins the branches it gets: see [`JoinStreamExt::joined`].
    #[must_use = "streams do nothing unless polled"]
    pub struct JoinedStream<S> {
        #[pin]
        inner: S,
    }
}

impl<S> JoinedStream<S> {
    /// The stream, to add branches to it.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S> Stream for JoinedStream<S>
where
    S: Stream,
    S::Item: Join,
{
    type Item = <S::Item as Join>::Value;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(ready!(self.project().inner.poll_next(context)).join())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl<F: fmt::Debug> fmt::Debug for Joined<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Joined").field(&self.inner).finish()
    }
}

impl<S: fmt::Debug> fmt::Debug for JoinedStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoinedStream").field(&self.inner).finish()
    }
}
