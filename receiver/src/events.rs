//! State changes that the operator should know about.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A change of the receiver's state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Requests are rejected from now on, for this reason.
    Refusing(String),
    /// Requests are accepted again, after this many were rejected.
    Taking(u64),
    /// All connections up to the limit are busy, and a new one was turned away.
    ConnectionsFull,
    /// The system failed to accept a connection for the first time, with this error. The usual
    /// cause is the open-file limit.
    NotAccepted(String),
}

/// The maximum number of events that wait to be taken. Newer ones are dropped.
const EVENTS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Event>,
    /// Requests rejected since the last accepted one.
    refused: u64,
    /// The last rejection, and its reason.
    last: Option<(Instant, String)>,
    /// True if a connection was turned away since the last accepted one.
    is_full: bool,
    /// True if the system has failed to accept a connection. This is reported once, because at the
    /// limit every second accept may fail.
    is_stuck: bool,
}

impl State {
    fn push(&mut self, event: Event) {
        if self.waiting.len() < EVENTS_MAX {
            self.waiting.push_back(event);
        }
    }
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn refused(&self, reason: &str) {
        let mut state = self.lock();
        state.refused += 1;
        state.last = Some((Instant::now(), reason.to_owned()));
        if state.refused == 1 {
            state.push(Event::Refusing(reason.to_owned()));
        }
    }

    pub(crate) fn taken(&self) {
        let mut state = self.lock();
        if state.refused > 0 {
            let refused = std::mem::take(&mut state.refused);
            state.last = None;
            state.push(Event::Taking(refused));
        }
    }

    /// Returns why the last request was rejected, if that was within this time.
    pub(crate) fn refusing(&self, within: Duration) -> Option<String> {
        let state = self.lock();
        let (at, reason) = state.last.as_ref()?;
        (at.elapsed() < within).then(|| reason.clone())
    }

    pub(crate) fn connection(&self, is_taken: bool) {
        let mut state = self.lock();
        if !is_taken && !state.is_full {
            state.push(Event::ConnectionsFull);
        }
        state.is_full = !is_taken;
    }

    pub(crate) fn not_accepted(&self, error: &io::Error) {
        let mut state = self.lock();
        if !state.is_stuck {
            state.push(Event::NotAccepted(error.to_string()));
        }
        state.is_stuck = true;
    }

    pub(crate) fn take(&self) -> Vec<Event> {
        self.lock().waiting.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_events() {
        let events = Events::default();
        events.taken();
        events.refused("full");
        events.refused("full");
        assert_eq!(events.refusing(Duration::MAX).as_deref(), Some("full"));
        assert_eq!(events.refusing(Duration::ZERO), None);
        events.connection(false);
        events.connection(false);
        events.taken();
        assert_eq!(events.refusing(Duration::MAX), None);
        events.taken();
        let stuck = || io::Error::other("no handles");
        events.not_accepted(&stuck());
        events.not_accepted(&stuck());
        let expected = [
            Event::Refusing("full".to_owned()),
            Event::ConnectionsFull,
            Event::Taking(2),
            Event::NotAccepted(stuck().to_string()),
        ];
        assert_eq!(events.take(), expected);
        assert_eq!(events.take(), []);
    }
}
