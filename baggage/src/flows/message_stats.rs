//! Counts of messages between processes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::slots::lock;

/// Counts of messages between processes, in the headers of requests and responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageStats {
    /// Requests that were sent with baggage, or that asked for some.
    pub sent: u64,
    /// Requests that arrived with baggage, and were accepted.
    pub received: u64,
    /// Requests whose baggage was refused, because their callers' decisions do not hold here.
    pub refused_callers: u64,
    /// Requests and responses whose baggage was not read: broken base64, a broken message, or the
    /// member `astracer` twice.
    pub malformed: u64,
    /// Responses that were given to callers who asked for one.
    pub answered: u64,
    /// Responses that were merged.
    pub merged: u64,
    /// Responses that nobody had asked for. They are not read.
    pub unasked: u64,
    /// Responses with more bytes than were asked for. They are not read.
    pub too_large: u64,
    /// Members of W3C Baggage, anybody's, that did not fit into a request.
    pub members_cut: u64,
    /// Requests in which others' members left no room for ours.
    pub without_room: u64,
    /// Calls that got a response without baggage, by peer: what happened there is not known here.
    /// Peers beyond 1,000 are counted under `(others)`.
    pub opaque: BTreeMap<String, u64>,
}

const PEERS_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct MessageCounts {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) refused_callers: AtomicU64,
    pub(super) malformed: AtomicU64,
    pub(super) answered: AtomicU64,
    pub(super) merged: AtomicU64,
    pub(super) unasked: AtomicU64,
    pub(super) too_large: AtomicU64,
    pub(super) members_cut: AtomicU64,
    pub(super) without_room: AtomicU64,
    opaque: Mutex<BTreeMap<String, u64>>,
}

impl MessageCounts {
    pub(super) fn note_opaque(&self, peer: &str) {
        let mut opaque = lock(&self.opaque);
        if let Some(count) = opaque.get_mut(peer) {
            *count += 1;
            return;
        }
        let peer = if opaque.len() < PEERS_MAX { peer } else { crate::tenants::OTHERS };
        *opaque.entry(peer.to_owned()).or_default() += 1;
    }

    pub(super) fn stats(&self) -> MessageStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MessageStats {
            sent: load(&self.sent),
            received: load(&self.received),
            refused_callers: load(&self.refused_callers),
            malformed: load(&self.malformed),
            answered: load(&self.answered),
            merged: load(&self.merged),
            unasked: load(&self.unasked),
            too_large: load(&self.too_large),
            members_cut: load(&self.members_cut),
            without_room: load(&self.without_room),
            opaque: lock(&self.opaque).clone(),
        }
    }
}
