//! Heartbeats on their way to the exporter. The exporter's own threads send them: an exporter may
//! rely on being called by no more threads than there are exports in flight.

use std::mem;

use opentelemetry_sdk::trace::SpanData;

use super::Queue;
use crate::sync::{PoisonError, lock};

/// At most one heartbeat is pending, however long the exporter takes.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    way: Way,
    /// Spans of heartbeats that the exporter accepted, and that it did not.
    outcome: (u64, u64),
}

#[derive(Debug, Default)]
enum Way {
    #[default]
    Free,
    Waits(Vec<SpanData>),
    Leaves,
}

impl Heartbeats {
    /// Whether a heartbeat waits for a worker.
    pub(super) fn wait(&self) -> bool {
        matches!(self.way, Way::Waits(_))
    }

    /// Gives up the heartbeat that waits.
    pub(super) fn give_up(&mut self) {
        if let Way::Waits(spans) = &self.way {
            self.outcome.1 += spans.len() as u64;
            self.way = Way::Free;
        }
    }
}

impl Queue {
    /// Whether a heartbeat can be queued: the last one was sent, and a worker is left to send
    /// another.
    pub(crate) fn takes_heartbeat(&self) -> bool {
        let state = lock(&self.state);
        !state.ended && !state.abandoned && matches!(state.heartbeats.way, Way::Free)
    }

    /// Queues a heartbeat, which a worker sends when it has no other work. Only one thread calls
    /// this, and only after [`Queue::takes_heartbeat`] returned true.
    pub(crate) fn send_heartbeat(&self, spans: Vec<SpanData>) {
        let mut state = lock(&self.state);
        state.heartbeats.way = Way::Waits(spans);
        if state.ended || state.abandoned {
            state.heartbeats.give_up();
        }
        drop(state);
        self.work.notify_one();
    }

    /// Takes the heartbeat that waits, for a worker to send.
    pub(crate) fn take_heartbeat(&self) -> Option<Vec<SpanData>> {
        let way = &mut lock(&self.state).heartbeats.way;
        match mem::take(way) {
            Way::Waits(spans) => {
                *way = Way::Leaves;
                Some(spans)
            }
            other => {
                *way = other;
                None
            }
        }
    }

    /// Notes that the exporter accepted `accepted` spans of the heartbeat, and did not accept
    /// `others`.
    pub(crate) fn heartbeat_sent(&self, accepted: u64, others: u64) {
        let mut state = lock(&self.state);
        let Heartbeats { way, outcome } = &mut state.heartbeats;
        *way = Way::Free;
        *outcome = (outcome.0 + accepted, outcome.1 + others);
        drop(state);
        self.done.notify_all();
    }

    /// Waits until no heartbeat is pending.
    pub(crate) fn wait_for_heartbeat(&self) {
        let mut state = lock(&self.state);
        while !state.ended && !matches!(state.heartbeats.way, Way::Free) {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Spans of heartbeats that the exporter accepted, and that it did not.
    pub(crate) fn heartbeats(&self) -> (u64, u64) {
        lock(&self.state).heartbeats.outcome
    }
}
