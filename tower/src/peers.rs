//! The peers that a client's layer may trust, by the names that requests have for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Request;

/// The state of a layer for each of the peers that it was given.
///
/// A peer is the authority of a request's URI, without user information, or else its `host` header:
/// for example `payments:8080`, case-insensitive. Requests through tonic's channel have neither.
#[derive(Clone, Debug)]
pub(crate) struct Peers<T> {
    named: Arc<BTreeMap<String, T>>,
    /// For requests that name no peer.
    unnamed: Option<T>,
    /// For requests that name a peer which was not given.
    any: Option<T>,
}

impl<T> Default for Peers<T> {
    fn default() -> Self {
        Peers { named: Arc::default(), unnamed: None, any: None }
    }
}

impl<T: Clone> Peers<T> {
    pub(crate) fn with(self, peer: impl Into<String>, kept: T) -> Self {
        let known = self.named.iter().map(|(peer, kept)| (peer.clone(), kept.clone()));
        let all = known.chain([(peer.into(), kept)]);
        Peers { named: Arc::new(all.collect()), ..self }
    }

    pub(crate) fn with_unnamed(self, kept: T) -> Self {
        Peers { unnamed: Some(kept), ..self }
    }

    #[cfg(feature = "baggage")]
    pub(crate) fn with_any(self, kept: T) -> Self {
        Peers { any: Some(kept.clone()), ..self.with_unnamed(kept) }
    }
}

impl<T> Peers<T> {
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// Finds what is kept for the peer of this name; for the unnamed one if it is empty.
    pub(crate) fn named(&self, name: &str) -> Option<&T> {
        if name.is_empty() {
            return self.unnamed.as_ref();
        }
        let known = self.named.iter().find(|(peer, _)| peer.eq_ignore_ascii_case(name));
        known.map(|(_, kept)| kept)
    }

    /// The peer of a request and what is kept for it; `None` if the peer was not given.
    pub(crate) fn of<'r, A>(&self, request: &'r Request<A>) -> Option<(&'r str, &T)> {
        let authority = request.uri().authority().map(|authority| authority.as_str());
        let host = || request.headers().get(http::header::HOST)?.to_str().ok();
        let Some(named) = authority.or_else(host) else { return Some(("", self.unnamed.as_ref()?)) };
        let named = named.rsplit('@').next().unwrap_or(named);
        self.named(named).or(self.any.as_ref()).map(|kept| (named, kept))
    }
}
