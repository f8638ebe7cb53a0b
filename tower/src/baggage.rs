//! Carries the baggage of a request between services: [`CallLayer`] where a service calls,
//! [`AnswerLayer`] where one is called.
//!
//! A call sends a branch of the caller's flow as the member `astracer` of the header `baggage`, and
//! asks by the header `astracer-return` for what the called service has noted, which comes back in
//! the response's header `astracer-baggage`. All of this goes only to the peers that the layer is
//! given, and only to callers who ask.

use std::pin::Pin;
use std::task::{self, Poll, ready};

use astracer_baggage::{ANSWER_HEADER, Adopted, BAGGAGE_HEADER, Calling, Flow, Flows, RETURN_HEADER};
use http::{HeaderName, HeaderValue, Request, Response};
use tower_service::Service;

use crate::peers::Peers;
use crate::remote_parent::Headers;

const BAGGAGE: HeaderName = HeaderName::from_static(BAGGAGE_HEADER);
const RETURN: HeaderName = HeaderName::from_static(RETURN_HEADER);
const ANSWER: HeaderName = HeaderName::from_static(ANSWER_HEADER);

/// A tower layer for clients. It sends the baggage of the request that is being served to the given
/// peers, and merges their answers. Put it inside [`InjectLayer`](crate::InjectLayer), next to the
/// transport, since that writes the header `baggage` anew.
///
/// A peer is the authority of a request's URI, without user information, or else its `host` header:
/// for example `payments:8080`, case-insensitive. By default there is none, and nothing leaves.
///
/// A call without an answer merges nothing, whether it failed, timed out, or was answered by a
/// service without [`AnswerLayer`]. The last is counted by peer.
///
/// ```
/// use astracer_baggage::Flows;
/// use astracer_tower::{CallLayer, InjectLayer};
/// use tower_layer::Layer as _;
/// # let (flows, client) = (Flows::default(), ());
///
/// let calls = CallLayer::new(flows).with_peer("payments:8080");
/// let client = InjectLayer::global().layer(calls.layer(client));
/// # let _: astracer_tower::Inject<astracer_tower::Call<()>> = client;
/// ```
#[derive(Clone, Debug)]
pub struct CallLayer {
    flows: Flows,
    peers: Peers<()>,
}

impl CallLayer {
    /// Sends nothing until peers are added. `flows` counts.
    pub fn new(flows: Flows) -> Self {
        CallLayer { flows, peers: Peers::default() }
    }

    /// Also sends baggage to this peer.
    #[must_use]
    pub fn with_peer(self, peer: impl Into<String>) -> Self {
        CallLayer { peers: self.peers.with(peer, ()), ..self }
    }

    /// Also sends baggage with requests that name no peer, for a client with a single server. Such
    /// requests are those through tonic's channel, which adds the authority further inside, and
    /// those on hyper's connections.
    #[must_use]
    pub fn with_unnamed_peer(self) -> Self {
        CallLayer { peers: self.peers.with_unnamed(()), ..self }
    }

    /// Sends baggage to every peer. For a client that calls only services of your own.
    #[must_use]
    pub fn with_any_peer(self) -> Self {
        CallLayer { peers: self.peers.with_any(()), ..self }
    }

    fn send<A>(&self, request: &mut Request<A>) -> Option<(Flow, String)> {
        let peer = self.peers.of(request).map(|(peer, ())| peer.to_owned());
        let call = peer.and_then(|peer| Some((Flow::branch()?, peer)));
        let headers = request.headers_mut();
        // A request that is passed on may have what its own caller sent.
        headers.remove(RETURN);
        let present = headers.get_all(BAGGAGE).iter().map(HeaderValue::as_bytes);
        let list = match &call {
            Some((flow, _)) => Some(flow.list(present)),
            None => self.flows.list_without_ours(present),
        };
        match list.map(|list| HeaderValue::from_bytes(&list)) {
            Some(Ok(list)) if !list.is_empty() => drop(headers.insert(BAGGAGE, list)),
            Some(_) => drop(headers.remove(BAGGAGE)),
            None => {}
        }
        let (flow, _) = call.as_ref()?;
        headers.insert(RETURN, HeaderValue::from(flow.asked()));
        call
    }

    fn receive<B>(&self, call: Option<(Flow, String)>, response: &mut Response<B>) {
        // Removed, so that a response that is passed on does not show it to others.
        let answer = response.headers_mut().remove(ANSWER);
        match (call, answer) {
            (Some((flow, _)), Some(answer)) => flow.merge_answer(answer.to_str().unwrap_or("?")),
            (Some((flow, peer)), None) => flow.end_opaque(&peer),
            (None, Some(_)) => self.flows.note_unasked(),
            (None, None) => {}
        }
    }
}

service! {
    /// A client that sends baggage and merges answers; made by [`CallLayer`].
    Call of CallLayer
}

impl<S> Call<S> {
    /// The client inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, A, B> Service<Request<A>> for Call<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = CallFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let call = self.layer.send(&mut request);
        // A flow that is sent notes the call itself.
        let calling = if call.is_none() { Calling::here() } else { None };
        CallFuture { future: self.inner.call(request), call, calling, layer: self.layer.clone() }
    }
}

pin_project_lite::pin_project! {
    /// The future of [`Call`].
    #[derive(Debug)]
    pub struct CallFuture<F> {
        #[pin]
        future: F,
        call: Option<(Flow, String)>,
        calling: Option<Calling>,
        layer: CallLayer,
    }
}

impl<F, B, E> Future for CallFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<B>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut result = ready!(this.future.poll(cx));
        let call = this.call.take();
        *this.calling = None;
        // After an error the call is dropped, which is counted.
        if let Ok(response) = &mut result {
            this.layer.receive(call, response);
        }
        Poll::Ready(result)
    }
}

/// A tower layer for servers. The request's local root takes the flow that the caller sent, and the
/// response has what a caller asks for. Put it outermost.
///
/// Without it, the SDK's extraction still brings the caller's baggage in, but the caller gets no
/// answer.
///
/// ```
/// use astracer_baggage::Flows;
/// use astracer_tower::{AnswerLayer, RequestSpanLayer};
/// # let flows = Flows::default();
///
/// let (answer, spans) = (AnswerLayer::new(flows), RequestSpanLayer::default());
/// // axum: Router::new().route(..).layer(spans).layer(answer)
/// // tonic: Server::builder().layer(answer).layer(spans).add_service(..)
/// # drop((answer, spans));
/// ```
#[derive(Clone, Debug)]
pub struct AnswerLayer {
    flows: Flows,
}

impl AnswerLayer {
    /// Accepts the flows of callers into `flows`.
    pub fn new(flows: Flows) -> Self {
        AnswerLayer { flows }
    }
}

service! {
    /// A server that reads baggage and answers with it; made by [`AnswerLayer`].
    Answer of AnswerLayer
}

impl<S, A, B> Service<Request<A>> for Answer<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = AnswerFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let headers = request.headers();
        let flow = Flow::extract(&self.layer.flows, &Headers(headers));
        let asked = || headers.get(RETURN)?.to_str().ok()?.parse().ok();
        let asked = flow.as_ref().and_then(|_| asked());
        AnswerFuture { future: Flow::adopt_if(flow, || self.inner.call(request)), asked }
    }
}

pin_project_lite::pin_project! {
    /// The future of [`Answer`].
    #[derive(Debug)]
    pub struct AnswerFuture<F> {
        #[pin]
        future: Adopted<F>,
        // The bytes that the caller asks for.
        asked: Option<usize>,
    }
}

impl<F, B, E> Future for AnswerFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<B>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let mut result = ready!(this.future.as_mut().poll(cx));
        if let (Ok(response), Some(asked)) = (&mut result, *this.asked)
            && let Ok(answer) = HeaderValue::from_str(&this.future.answer(asked))
        {
            response.headers_mut().insert(ANSWER, answer);
        }
        Poll::Ready(result)
    }
}
