//! Layers for tower, and functions on the types of the crate `http`, that trace requests to
//! services on axum, tonic or hyper, and from clients such as reqwest.
//!
//! - [`RequestSpanLayer`] and [`request_span()`] make a span for each request to a server, named by
//!   its route; [`record_response`] and [`record_trailers`] record its status.
//! - [`ClientSpanLayer`] and [`client_span()`] make a span for each request of a client.
//! - [`RemoteParentLayer`], [`RemoteParentFuture`] and [`remote_parent()`] attach the caller's
//!   context around a request.
//! - [`InjectLayer`] and [`inject()`] write the current context into an outgoing request.
//! - [`KeepLayer`] and [`KeepCallsLayer`] exchange the header [`KEEP_HEADER`], by which processes
//!   exchange the ids of traces that they kept late.
//!
//! - [`CallLayer`] and [`AnswerLayer`], with the feature `baggage`, carry the baggage of
//!   `astracer-baggage` between services.
//!
//! They work with any `tracing` subscriber and OpenTelemetry propagator. Only those of the keep
//! header need the SDK's [`Handle`](astracer_sdk::Handle), and those of baggage its `Flows`.

/// Defines the service that a layer makes: the inner one, and the layer.
macro_rules! service {
    ($(#[$about:meta])* $Service:ident of $Layer:ident) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        pub struct $Service<S> {
            inner: S,
            layer: $Layer,
        }

        impl<S> tower_layer::Layer<S> for $Layer {
            type Service = $Service<S>;

            fn layer(&self, inner: S) -> $Service<S> {
                $Service { inner, layer: self.clone() }
            }
        }
    };
}

#[cfg(feature = "baggage")]
mod baggage;
mod call;
mod client_span;
mod inject;
mod keep_header;
mod peers;
mod remote_parent;
mod request_span;
mod status;

#[cfg(feature = "baggage")]
pub use baggage::{Answer, AnswerFuture, AnswerLayer, Call, CallFuture, CallLayer};
pub use call::{RequestSpanBody, RequestSpanFuture};
pub use client_span::{ClientSpan, ClientSpanLayer, client_span};
pub use inject::{Inject, InjectLayer, inject};
pub use keep_header::{KEEP_HEADER, Keep, KeepBody, KeepCalls, KeepCallsLayer, KeepFuture, KeepLayer};
pub use remote_parent::{RemoteParent, RemoteParentFuture, RemoteParentLayer, remote_parent};
pub use request_span::{RequestSpan, RequestSpanLayer, request_span};
pub use status::{record_response, record_trailers};
