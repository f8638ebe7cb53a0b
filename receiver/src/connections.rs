//! Tracks the open connections: which are idle, and which one to end for a new one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Limits;

/// The open connections.
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
    /// The client, as returned by [`clients::network`](crate::clients::network).
    client: IpAddr,
    /// The number of requests in progress.
    requests: usize,
    had_request: bool,
    /// The time of the last change of `requests`.
    since: Instant,
    /// Tells the connection to end.
    end: Arc<Notify>,
    is_ending: bool,
}

/// A handle to an open connection, which is removed when all handles are dropped.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<OpenConnection>);

#[derive(Debug)]
struct OpenConnection {
    all: Arc<Connections>,
    id: u64,
    end: Arc<Notify>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.all.lock().open.remove(&self.id);
    }
}

/// A request in progress on a connection.
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

    /// Adds a connection. At the limit, [another one](State::make_room) is asked to end; returns
    /// `None` if none may be ended. The new connection counts immediately, so while the other one
    /// ends, the limit may be exceeded for a moment.
    pub(crate) fn add(self: &Arc<Self>, limits: &Limits, client: IpAddr, now: Instant) -> Option<Connection> {
        let mut state = self.lock();
        let staying = state.staying().count();
        if staying >= limits.connections && !state.end_one(limits, client) {
            return None;
        }
        let id = state.next;
        state.next += 1;
        let end = Arc::new(Notify::new());
        let entry = Entry {
            client,
            requests: 0,
            had_request: false,
            since: now,
            end: Arc::clone(&end),
            is_ending: false,
        };
        state.open.insert(id, entry);
        drop(state);
        Some(Connection(Arc::new(OpenConnection { all: Arc::clone(self), id, end })))
    }

    /// Returns the number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.lock().open.len()
    }

    /// Ends the connection that has been idle for longest. Called when the system cannot accept
    /// another one.
    pub(crate) fn end_idle(&self) {
        let mut state = self.lock();
        if let Some(id) = state.longest(|entry| entry.requests == 0) {
            state.end(id);
        }
    }
}

impl State {
    fn staying(&self) -> impl Iterator<Item = (&u64, &Entry)> {
        self.open.iter().filter(|(_, entry)| !entry.is_ending)
    }

    /// The connection whose state has not changed for longest.
    fn longest(&self, may_end: impl Fn(&Entry) -> bool) -> Option<u64> {
        let may_end = self.staying().filter(|(_, entry)| may_end(entry));
        may_end.min_by_key(|(_, entry)| entry.since).map(|(&id, _)| id)
    }

    fn end(&mut self, id: u64) {
        if let Some(entry) = self.open.get_mut(&id) {
            entry.is_ending = true;
            entry.end.notify_one();
        }
    }

    /// Tells a connection to end: the one that has been idle for longest. If all are busy, and one
    /// client has more than its share of connections, a new client with less than its share takes
    /// the place of that client's longest request. Otherwise one client could block all others with
    /// deliberately slow requests.
    fn end_one(&mut self, limits: &Limits, client: IpAddr) -> bool {
        let found = self.longest(|entry| entry.requests == 0).or_else(|| {
            let mut of_each: HashMap<IpAddr, usize> = HashMap::new();
            self.staying().for_each(|(_, entry)| *of_each.entry(entry.client).or_default() += 1);
            let share = limits.connections as f64 * limits.client_share;
            let has = |client: &IpAddr| of_each.get(client).copied().unwrap_or(0) as f64;
            let most = of_each.iter().max_by_key(|(_, number)| **number).map(|(&most, _)| most)?;
            (has(&most) > share && has(&client) < share)
                .then(|| self.longest(|entry| entry.client == most))?
        });
        found.inspect(|&id| self.end(id)).is_some()
    }
}

impl Connection {
    fn change<R>(&self, change: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let mut state = self.0.all.lock();
        let entry = state.open.get_mut(&self.0.id)?;
        entry.since = Instant::now();
        Some(change(entry))
    }

    /// Marks a request as in progress until the returned value is dropped.
    pub(crate) fn busy(&self) -> Busy {
        self.change(|entry| {
            entry.requests += 1;
            entry.had_request = true;
        });
        Busy(self.clone())
    }

    /// Returns true while a request is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.all.lock().open.get(&self.0.id).is_some_and(|entry| entry.requests > 0)
    }

    /// Waits until the connection should end: to free its place, or because it was idle for too
    /// long.
    pub(crate) async fn ended(&self, limits: &Limits) {
        loop {
            let left = self.idle_left(limits);
            if left.is_some_and(|left| left.is_zero()) {
                return;
            }
            // A busy connection is checked again when it could have been idle for long enough.
            let wait = left.unwrap_or_else(|| limits.idle_timeout.min(limits.arrival_timeout));
            tokio::select! {
                () = self.0.end.notified() => return,
                () = tokio::time::sleep(wait.max(Duration::from_millis(1))) => {}
            }
        }
    }

    /// Returns how much longer the connection may be idle; `None` if it is busy.
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
    fn the_connection_idle_for_longest_is_ended() {
        let all = Arc::new(Connections::default());
        let limits = Limits::default().with_connections(3);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let client = "192.0.2.1".parse().unwrap();
        let first = all.add(&limits, client, at(0)).unwrap();
        let second = all.add(&limits, client, at(1)).unwrap();
        let _third = all.add(&limits, client, at(2)).unwrap();
        let busy = first.busy();
        // The first is busy, so the second, which is idle, is asked to end.
        let _fourth = all.add(&limits, client, at(3)).unwrap();
        let ends = |connection: &Connection| all.lock().open[&connection.0.id].is_ending;
        assert_eq!((ends(&first), ends(&second)), (false, true));
        drop(second);
        drop(busy);
        assert_eq!(all.lock().open.len(), 3);
        let busy: Vec<_> = [&first, &_third, &_fourth].map(Connection::busy).into();
        assert!(all.add(&limits, client, at(5)).is_none(), "all are busy");
        drop(busy);
    }

    #[test]
    fn a_client_with_more_than_its_share_makes_room_for_others() {
        let all = Arc::new(Connections::default());
        let limits = Limits::default().with_connections(4).with_client_share(0.5);
        let begin = Instant::now();
        let [greedy, second, third] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|ip| ip.parse().unwrap());
        let slow: Vec<Connection> = (0..4).map(|_| all.add(&limits, greedy, begin).unwrap()).collect();
        let _busy: Vec<Busy> = slow.iter().map(Connection::busy).collect();
        let ends = || slow.iter().filter(|slow| all.lock().open[&slow.0.id].is_ending).count();
        assert!(all.add(&limits, greedy, begin).is_none(), "it has all of them");
        let other = all.add(&limits, second, begin).expect("a place");
        assert_eq!(ends(), 1);
        let _busy_too = other.busy();
        let another = all.add(&limits, third, begin).expect("a place");
        assert_eq!(ends(), 2);
        let _busy_as_well = another.busy();
        assert!(all.add(&limits, third, begin).is_none(), "nobody has more than the share");
    }

    #[test]
    fn without_room_for_handles_an_idle_connection_ends() {
        let all = Arc::new(Connections::default());
        let client = "192.0.2.1".parse().unwrap();
        let [busy, idle] = [0, 1].map(|_| all.add(&Limits::default(), client, Instant::now()).unwrap());
        let _busy = busy.busy();
        all.end_idle();
        all.end_idle();
        let ends = |connection: &Connection| all.lock().open[&connection.0.id].is_ending;
        assert_eq!((ends(&busy), ends(&idle)), (false, true));
    }
}
