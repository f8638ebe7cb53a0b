//! Heartbeats on their way to the exporter. The exporter's own threads send them: an exporter may
//! rely on being called by no more threads than there are exports in flight.

use std::mem;

use astracer_model::Span;

use super::Queue;
use crate::sync::{PoisonError, lock};

/// At most one heartbeat is pending, however long the exporter takes.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    slot: HeartbeatSlot,
    /// Spans of heartbeats that the exporter accepted, and that it did not.
    sent: (u64, u64),
}

#[derive(Debug, Default)]
enum HeartbeatSlot {
    #[default]
    Empty,
    Queued(Vec<Span<'static>>),
    InFlight,
}

impl Heartbeats {
    /// Whether a heartbeat waits for a worker.
    pub(super) fn wait(&self) -> bool {
        matches!(self.slot, HeartbeatSlot::Queued(_))
    }

    /// Gives up the heartbeat that waits.
    pub(super) fn discard(&mut self) {
        if let HeartbeatSlot::Queued(spans) = &self.slot {
            self.sent.1 += spans.len() as u64;
            self.slot = HeartbeatSlot::Empty;
        }
    }
}

impl Queue {
    /// Whether a heartbeat can be queued: the last one was sent, and a worker is left to send
    /// another.
    pub fn accepts_heartbeat(&self) -> bool {
        let state = lock(&self.state);
        !state.ended && !state.abandoned && matches!(state.heartbeats.slot, HeartbeatSlot::Empty)
    }

    /// Queues a heartbeat, which a worker sends when it has no other work. Only one thread calls
    /// this, and only after [`Queue::accepts_heartbeat`] returned true.
    pub fn send_heartbeat(&self, spans: Vec<Span<'static>>) {
        let mut state = lock(&self.state);
        state.heartbeats.slot = HeartbeatSlot::Queued(spans);
        if state.ended || state.abandoned {
            state.heartbeats.discard();
        }
        drop(state);
        self.work.notify_one();
    }

    /// Takes the heartbeat that waits, for a worker to send.
    pub fn take_heartbeat(&self) -> Option<Vec<Span<'static>>> {
        let slot = &mut lock(&self.state).heartbeats.slot;
        match mem::take(slot) {
            HeartbeatSlot::Queued(spans) => {
                *slot = HeartbeatSlot::InFlight;
                Some(spans)
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Notes that the exporter accepted `accepted` spans of the heartbeat, and did not accept
    /// `others`.
    pub fn heartbeat_sent(&self, accepted: u64, others: u64) {
        let mut state = lock(&self.state);
        let Heartbeats { slot, sent } = &mut state.heartbeats;
        *slot = HeartbeatSlot::Empty;
        *sent = (sent.0 + accepted, sent.1 + others);
        drop(state);
        self.done.notify_all();
    }

    /// Waits until no heartbeat is pending.
    pub fn wait_for_heartbeat(&self) {
        let mut state = lock(&self.state);
        while !state.ended && !matches!(state.heartbeats.slot, HeartbeatSlot::Empty) {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Spans of heartbeats that the exporter accepted, and that it did not.
    pub fn heartbeats(&self) -> (u64, u64) {
        lock(&self.state).heartbeats.sent
    }
}
