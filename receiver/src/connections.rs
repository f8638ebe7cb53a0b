//! The open connections: which are idle, and which one makes room for a new one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Limits;

/// Open connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<u64, Entry>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    /// Requests under way.
    requests: usize,
    had_request: bool,
    /// Time of the last change of `requests`.
    since: Instant,
    /// Asks the connection to end.
    end: Arc<Notify>,
    is_ending: bool,
}

/// A connection's place among the open ones, until it is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Place>);

#[derive(Debug)]
struct Place {
    all: Arc<Connections>,
    id: u64,
    end: Arc<Notify>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.lock().open.remove(&self.id);
    }
}

/// A request under way on a connection.
#[derive(Debug)]
pub(crate) struct Busy(Connection);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change(|entry| entry.requests -= 1);
    }
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. At the limit, the one that has been idle for longest is asked to end; returns `None` if all are
    /// busy. The new one is counted at once, so one that ends slowly may be above the limit for a moment.
    pub(crate) fn add(self: &Arc<Self>, limits: &Limits, now: Instant) -> Option<Connection> {
        let mut state = self.lock();
        let staying = state.open.values().filter(|entry| !entry.is_ending).count();
        if staying >= limits.connections {
            let idle = state.open.values_mut().filter(|entry| entry.requests == 0 && !entry.is_ending);
            let oldest = idle.min_by_key(|entry| entry.since)?;
            oldest.is_ending = true;
            oldest.end.notify_one();
        }
        let id = state.next;
        state.next += 1;
        let end = Arc::new(Notify::new());
        let entry =
            Entry { requests: 0, had_request: false, since: now, end: Arc::clone(&end), is_ending: false };
        state.open.insert(id, entry);
        drop(state);
        Some(Connection(Arc::new(Place { all: Arc::clone(self), id, end })))
    }
}

impl Connection {
    fn change<R>(&self, change: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let mut state = self.0.all.lock();
        let entry = state.open.get_mut(&self.0.id)?;
        entry.since = Instant::now();
        Some(change(entry))
    }

    /// Notes that a request is under way until the value is dropped.
    pub(crate) fn busy(&self) -> Busy {
        self.change(|entry| {
            entry.requests += 1;
            entry.had_request = true;
        });
        Busy(self.clone())
    }

    /// Returns when the connection is to end: it makes room for another, or was idle for too long.
    pub(crate) async fn ended(&self, limits: &Limits) {
        loop {
            let left = self.idle_left(limits);
            if left.is_some_and(|left| left.is_zero()) {
                return;
            }
            // A busy connection is looked at again when it could have been idle for long enough.
            let wait = left.unwrap_or_else(|| limits.idle_timeout.min(limits.arrival_timeout));
            tokio::select! {
                () = self.0.end.notified() => return,
                () = tokio::time::sleep(wait.max(Duration::from_millis(1))) => {}
            }
        }
    }

    /// Returns the time for which the connection may still be idle; `None` if it is busy.
    fn idle_left(&self, limits: &Limits) -> Option<Duration> {
        let state = self.0.all.lock();
        let entry = state.open.get(&self.0.id)?;
        let max = if entry.had_request { limits.idle_timeout } else { limits.arrival_timeout };
        (entry.requests == 0).then(|| max.saturating_sub(entry.since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_that_is_idle_for_longest_makes_room() {
        let all = Arc::new(Connections::default());
        let limits = Limits::default().with_connections(3);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let first = all.add(&limits, at(0)).unwrap();
        let second = all.add(&limits, at(1)).unwrap();
        let _third = all.add(&limits, at(2)).unwrap();
        let busy = first.busy();
        // The first is busy: the second, idle since then, is asked to end.
        let _fourth = all.add(&limits, at(3)).unwrap();
        let ends = |connection: &Connection| all.lock().open[&connection.0.id].is_ending;
        assert_eq!((ends(&first), ends(&second)), (false, true));
        drop(second);
        drop(busy);
        assert_eq!(all.lock().open.len(), 3);
        let busy: Vec<_> = [&first, &_third, &_fourth].map(Connection::busy).into();
        assert!(all.add(&limits, at(5)).is_none(), "all are busy");
        drop(busy);
    }
}
