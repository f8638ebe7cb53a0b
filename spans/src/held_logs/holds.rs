//! The held events of undecided traces, within a bound of bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use opentelemetry::TraceId;
use opentelemetry::trace::SpanContext;

use super::event::OwnedEvent;
use crate::sync::statics::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, lock};

/// An event, with the ids of its span as they are if the trace is kept.
#[derive(Debug)]
pub struct Held {
    pub event: OwnedEvent,
    pub ids: SpanContext,
}

/// The held events of one `LogLayer`, and its counts. No user code runs under the lock. The atomics
/// are Relaxed: they are counts and hints.
#[derive(Debug, Default)]
pub struct Holds {
    state: Mutex<State>,
    pub bytes_max: AtomicU64,
    held: AtomicU64,
    pub dropped: AtomicU64,
    pub passed_late: AtomicU64,
    has_ready: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// The traces with their events, numbered by the arrival of the first.
    traces: BTreeMap<u64, (TraceId, Vec<Held>)>,
    numbers: HashMap<TraceId, u64>,
    came: u64,
    /// The bytes of all events in `traces` and in `ready`.
    bytes: usize,
    /// The events of kept traces, to be passed on.
    ready: Vec<Held>,
}

/// The bytes of a trace without its events.
const TRACE_BYTES: usize = 128;

fn bytes_of(held: &Held) -> usize {
    size_of::<SpanContext>() + held.event.bytes()
}

impl Holds {
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub fn drop_events(&self, events: usize) {
        self.dropped.fetch_add(events as u64, Ordering::Relaxed);
    }

    fn drop_held(&self, state: &mut State, id: TraceId) {
        let events = state.remove(id);
        state.bytes -= events.iter().map(bytes_of).sum::<usize>();
        self.held.fetch_sub(events.len() as u64, Ordering::Relaxed);
        self.drop_events(events.len());
    }

    /// Holds an event. If it does not fit, the events of the oldest traces are dropped, and at last
    /// this one.
    pub fn hold(&self, held: Held) {
        let most = usize::try_from(self.bytes_max.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let (id, bytes) = (held.ids.trace_id(), bytes_of(&held));
        let state = &mut *lock(&self.state);
        let needs = if state.numbers.contains_key(&id) { bytes } else { bytes + TRACE_BYTES };
        while state.bytes + needs > most {
            match state.traces.values().map(|(oldest, _)| *oldest).find(|oldest| *oldest != id) {
                Some(oldest) => self.drop_held(state, oldest),
                None => return self.drop_events(1),
            }
        }
        state.bytes += needs;
        self.held.fetch_add(1, Ordering::Relaxed);
        let number = *state.numbers.entry(id).or_insert_with(|| {
            state.came += 1;
            state.came
        });
        state.traces.entry(number).or_insert_with(|| (id, Vec::new())).1.push(held);
    }

    pub fn note_kept(&self, id: TraceId) {
        if self.held() == 0 {
            return;
        }
        let state = &mut *lock(&self.state);
        let events = state.remove(id);
        if !events.is_empty() {
            state.ready.extend(events);
            self.has_ready.store(true, Ordering::Relaxed);
        }
    }

    pub fn note_given_up(&self, id: TraceId) {
        if self.held() == 0 {
            return;
        }
        self.drop_held(&mut lock(&self.state), id);
    }

    #[inline]
    pub fn has_ready(&self) -> bool {
        self.has_ready.load(Ordering::Relaxed)
    }

    pub fn take_ready(&self) -> Vec<Held> {
        let state = &mut *lock(&self.state);
        self.has_ready.store(false, Ordering::Relaxed);
        let ready = std::mem::take(&mut state.ready);
        state.bytes -= ready.iter().map(bytes_of).sum::<usize>();
        self.held.fetch_sub(ready.len() as u64, Ordering::Relaxed);
        self.passed_late.fetch_add(ready.len() as u64, Ordering::Relaxed);
        ready
    }
}

impl State {
    /// Takes the events of a trace; their bytes stay counted.
    fn remove(&mut self, id: TraceId) -> Vec<Held> {
        let Some((_, events)) = self.numbers.remove(&id).and_then(|number| self.traces.remove(&number))
        else {
            return Vec::new();
        };
        self.bytes -= TRACE_BYTES;
        events
    }
}

/// The layers that hold events of undecided traces and have to know what becomes of the traces.
#[derive(Debug, Default)]
pub struct Watchers {
    is_used: AtomicBool,
    all: RwLock<Vec<Weak<Holds>>>,
}

impl Watchers {
    pub fn add(&self, holds: &Arc<Holds>) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(holds));
        self.is_used.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub fn each(&self, f: impl Fn(&Holds)) {
        if self.is_used.load(Ordering::Relaxed) {
            let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter_map(Weak::upgrade).for_each(|holds| f(&holds));
        }
    }
}
