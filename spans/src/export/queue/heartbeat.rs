//! Heartbeats on their way to the exporter. The exporter's own threads send them: an exporter may
//! rely on being called by no more threads than there are exports in flight.

use astracer_model::Span;

use super::Queue;
use crate::sync::{lock, wait};

/// At most one heartbeat is pending, however long the exporter takes.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    pub(super) queued: Option<Vec<Span<'static>>>,
    is_in_flight: bool,
    /// Spans of heartbeats that the exporter accepted, and that it did not.
    sent: (u64, u64),
}

impl Heartbeats {
    fn is_pending(&self) -> bool {
        self.queued.is_some() || self.is_in_flight
    }

    pub(super) fn discard(&mut self) {
        self.sent.1 += self.queued.take().map_or(0, |spans| spans.len() as u64);
    }
}

impl Queue {
    /// Whether a heartbeat can be queued: the last one was sent, and a worker is left to send
    /// another.
    pub fn accepts_heartbeat(&self) -> bool {
        let state = lock(&self.state);
        !state.ended && !state.abandoned && !state.heartbeats.is_pending()
    }

    /// Queues a heartbeat, which a worker sends when it has no other work. Only one thread calls
    /// this, and only after [`Queue::accepts_heartbeat`] returned true.
    pub fn send_heartbeat(&self, spans: Vec<Span<'static>>) {
        let mut state = lock(&self.state);
        state.heartbeats.queued = Some(spans);
        if state.ended || state.abandoned {
            state.heartbeats.discard();
        }
        drop(state);
        self.work.notify_one();
    }

    pub fn take_heartbeat(&self) -> Option<Vec<Span<'static>>> {
        let heartbeats = &mut lock(&self.state).heartbeats;
        let spans = heartbeats.queued.take();
        heartbeats.is_in_flight |= spans.is_some();
        spans
    }

    /// Notes how many spans of the heartbeat the exporter accepted, and how many it did not.
    pub fn heartbeat_sent(&self, accepted: u64, others: u64) {
        let mut state = lock(&self.state);
        let Heartbeats { is_in_flight, sent, .. } = &mut state.heartbeats;
        *is_in_flight = false;
        *sent = (sent.0 + accepted, sent.1 + others);
        drop(state);
        self.done.notify_all();
    }

    pub fn wait_for_heartbeat(&self) {
        let mut state = lock(&self.state);
        while !state.ended && state.heartbeats.is_pending() {
            state = wait(&self.done, state);
        }
    }

    pub fn heartbeats(&self) -> (u64, u64) {
        lock(&self.state).heartbeats.sent
    }
}
