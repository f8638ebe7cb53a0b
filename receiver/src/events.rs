//! Changes that the operator should know of.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A change of the receiver's state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Requests are refused from now on, for this reason.
    Refusing(String),
    /// Requests are taken again, after this many were refused.
    Taking(u64),
    /// Every connection is busy at the limit: a new one was turned away.
    ConnectionsFull,
    /// The system gave no new connection for the first time, for this reason: mostly for lack of
    /// file handles.
    NotAccepted(String),
}

/// Events that nobody has taken yet. Newer ones are left out if nobody takes them.
const EVENTS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Event>,
    /// Requests refused since the last one was taken.
    refused: u64,
    /// A connection was turned away since the last one was taken in.
    is_full: bool,
    /// The system gave no connection. That is told once, for at the limit every other one may be
    /// lost.
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
        if state.refused == 1 {
            state.push(Event::Refusing(reason.to_owned()));
        }
    }

    pub(crate) fn taken(&self) {
        let mut state = self.lock();
        if state.refused > 0 {
            let refused = std::mem::take(&mut state.refused);
            state.push(Event::Taking(refused));
        }
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
        events.connection(false);
        events.connection(false);
        events.taken();
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
