//! The future and the response body of a call that has a span.
//!
//! The span is entered whenever the future or the body is polled or dropped. It ends with the body:
//! after its last frame or an error, or when it is dropped. The body inside is dropped at that
//! moment, so that its cleanup is part of the span.

use std::fmt::Display;
use std::pin::Pin;
use std::task::{self, Poll, ready};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use opentelemetry::Context;
use tracing::Span;

use crate::remote_parent::attach;
use crate::status::Outcome;

/// The span of a call that is not complete yet.
#[derive(Debug)]
struct OpenCall {
    span: Span,
    /// The caller's context: if a filter disables the span, spans inside are still the caller's
    /// children.
    parent: Option<Context>,
    outcome: Outcome,
}

impl OpenCall {
    fn inside<T>(&mut self, f: impl FnOnce(&Span, &mut Outcome) -> T) -> T {
        let _guard = self.parent.as_ref().and_then(attach);
        let _entered = self.span.enter();
        f(&self.span, &mut self.outcome)
    }
}

pin_project_lite::pin_project! {
    /// The future of [`RequestSpan`](crate::RequestSpan) and [`ClientSpan`](crate::ClientSpan):
    /// polled inside the call's span.
    #[derive(Debug)]
    pub struct RequestSpanFuture<F> {
        // `None` after its end.
        #[pin]
        future: Option<F>,
        call: Option<OpenCall>,
    }

    impl<F> PinnedDrop for RequestSpanFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if let Some(call) = this.call {
                call.inside(|span, outcome| {
                    this.future.set(None);
                    outcome.cancelled(span);
                });
            }
        }
    }
}

impl<F> RequestSpanFuture<F> {
    #[inline]
    pub(crate) fn new(future: F, span: Span, parent: Option<Context>, outcome: Outcome) -> Self {
        let is_traced = !span.is_disabled() || parent.is_some();
        RequestSpanFuture {
            future: Some(future),
            call: is_traced.then(|| OpenCall { span, parent, outcome }),
        }
    }
}

impl<F, B, E> Future for RequestSpanFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<RequestSpanBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let mut poll = |future: Pin<&mut Option<F>>| match future.as_pin_mut() {
            Some(future) => future.poll(cx),
            None => Poll::Pending,
        };
        let Some(call) = this.call else {
            return poll(this.future)
                .map_ok(|response| response.map(|body| RequestSpanBody::new(body, None)));
        };
        let polled = call.inside(|span, outcome| {
            let result = ready!(poll(this.future.as_mut()));
            this.future.set(None);
            let is_complete = match &result {
                Ok(response) => {
                    outcome.headers(span, response);
                    response.body().is_end_stream()
                }
                Err(_) => {
                    outcome.no_response::<E>(span);
                    true
                }
            };
            if is_complete {
                outcome.complete(span);
            }
            Poll::Ready((result, is_complete))
        });
        let (result, is_complete) = ready!(polled);
        // A complete call's span has ended when the caller continues: layers outside may ask what
        // became of it.
        let call = this.call.take().filter(|_| !is_complete);
        Poll::Ready(result.map(|response| response.map(|body| RequestSpanBody::new(body, call))))
    }
}

pin_project_lite::pin_project! {
    /// The body of a response to a call that has a span: polled inside that span, which ends with
    /// the body. It has the frames, the size and the errors of the body inside.
    #[derive(Debug)]
    pub struct RequestSpanBody<B> {
        // `None` after its end.
        #[pin]
        body: Option<B>,
        call: Option<OpenCall>,
    }

    impl<B> PinnedDrop for RequestSpanBody<B> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if let Some(call) = this.call {
                call.inside(|span, outcome| {
                    this.body.set(None);
                    outcome.cancelled(span);
                });
            }
        }
    }
}

impl<B> RequestSpanBody<B> {
    fn new(body: B, call: Option<OpenCall>) -> Self {
        RequestSpanBody { body: Some(body), call }
    }
}

impl<B: Default> Default for RequestSpanBody<B> {
    /// A body without a span, which layers outside such as a timeout put in its place.
    fn default() -> Self {
        Self::new(B::default(), None)
    }
}

impl<B> Body for RequestSpanBody<B>
where
    B: Body,
    B::Error: Display,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let mut poll = |body: Pin<&mut Option<B>>| match body.as_pin_mut() {
            Some(body) => body.poll_frame(cx),
            None => Poll::Ready(None),
        };
        let Some(call) = this.call else { return poll(this.body) };
        let polled = call.inside(|span, outcome| {
            let frame = ready!(poll(this.body.as_mut()));
            let is_complete = match &frame {
                Some(Ok(frame)) => match frame.trailers_ref() {
                    Some(trailers) => {
                        outcome.trailers(span, trailers);
                        true
                    }
                    // Consumers do not poll such a body again.
                    None => this.body.as_ref().get_ref().as_ref().is_none_or(B::is_end_stream),
                },
                Some(Err(error)) => {
                    outcome.broken(span, error);
                    true
                }
                None => true,
            };
            if is_complete {
                this.body.set(None);
                outcome.complete(span);
            }
            Poll::Ready((frame, is_complete))
        });
        let (frame, is_complete) = ready!(polled);
        if is_complete {
            *this.call = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), B::size_hint)
    }
}
