//! The critical path of each request, known while it runs: the longest way through it.
//!
//! [`Applications::with_critical_path`](crate::Applications::with_critical_path) lets flows
//! measure it, whatever the sampler keeps. [`CriticalPath::rows`] has the totals; [`here`] is
//! the longest way to a point of the current request. [`CriticalPath::experiment`] computes
//! what a faster function would gain.
//!
//! It is CPath of Brown, "A General Baggage Model for End-to-End Tracing and Its Application on
//! Critical Path Analysis" (2016): the length at a point is the largest one of the points directly
//! before it plus the time since, `d_u = max(d_v + l)`.

use std::sync::atomic::{AtomicU64, Ordering};

pub use crate::paths::*;

use crate::flows::FlowRef;
use crate::paths::{Begun, Key, ZONE};

/// The longest way to here. `None` outside of a request, or without
/// [`with_critical_path`](crate::Applications::with_critical_path).
pub fn here() -> Option<Here> {
    FlowRef::current()?.path_here()
}

/// The longest ways to here, the longest first; `None` as with [`here`].
pub fn longest() -> Option<Vec<WayTimes>> {
    FlowRef::current()?.with_note(|of, note, now| note.fork(of, now).longest(of))
}

/// The slack of a function on the longest way to here: how much faster it can get before another
/// way is the longest. `None` as with [`here`].
pub fn slack(function: &str) -> Option<Slack> {
    FlowRef::current()?.with_note(|of, note, now| note.fork(of, now).slack(of, function))
}

/// The current flow stops working, until [`resume`]: what follows is a wait.
pub fn pause() {
    if let Some(flow) = FlowRef::current() {
        flow.with_note(|of, note, now| note.pause(of, now));
    }
}

/// Ends a [`pause`].
pub fn resume() {
    if let Some(flow) = FlowRef::current() {
        flow.with_note(|of, note, now| note.resume(of, now));
    }
}

/// The current flow begins to wait for the branch that it joins next. Futures and their tasks need
/// no such call. A thread that blocks needs it only if it has worked since it forked, or since the
/// last span began or ended: without it, that work is taken for a part of the wait.
pub fn wait() {
    if let Some(flow) = FlowRef::current() {
        flow.with_note(|of, note, now| note.wait_for_branch(of, now));
    }
}

/// From now on the current flow is in nobody's way, nor are its branches: a task that goes on in
/// the background. Ends where it is joined with a flow that is none.
pub fn daemonize() {
    if let Some(flow) = FlowRef::current() {
        flow.with_note(|of, note, now| note.daemonize(of, now));
    }
}

/// The time in which a function is open that has no span.
#[must_use = "the zone ends when this is dropped"]
pub struct OpenZone(Option<(FlowRef, Key)>);

/// Opens a zone of the current flow: see [`zone!`](crate::zone).
pub fn open_zone(name: &'static str) -> OpenZone {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    OpenZone(FlowRef::current().and_then(|flow| {
        let key = (ZONE, NEXT.fetch_add(1, Ordering::Relaxed));
        flow.with_note(|of, note, now| note.span_entered(of, key, name, Begun::NEVER, || now))?;
        Some((flow, key))
    }))
}

impl Drop for OpenZone {
    fn drop(&mut self) {
        if let Some((flow, key)) = &self.0 {
            flow.with_note(|of, note, now| {
                note.span_exited(of, *key, || now);
                note.span_ends(*key);
            });
        }
    }
}

impl std::fmt::Debug for OpenZone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenZone").field("is_in_request", &self.0.is_some()).finish()
    }
}

/// Names the function of the current flow until the end of the block, for critical paths.
///
/// For code without a span, or below roots that are dropped with `DroppedSpans::Disabled`, where
/// spans do not exist.
///
/// ```
/// fn load() {
///     astracer_baggage::zone!("load");
/// }
/// ```
#[macro_export]
macro_rules! zone {
    ($name:literal) => {
        let _zone = $crate::critical_path::open_zone($name);
    };
}
