//! The traces that this process kept late, for the processes that it calls.

use std::collections::VecDeque;

use opentelemetry::TraceId;

use crate::sync::{Mutex, lock};

/// Traces that are told of; older ones are told to nobody who has not heard of them by then.
const REMEMBERED: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Announcements(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    ids: VecDeque<TraceId>,
    /// Traces that were announced so far.
    all: u64,
}

impl Announcements {
    pub(crate) fn add(&self, trace_id: TraceId) {
        let mut last = lock(&self.0);
        if last.ids.len() == REMEMBERED {
            last.ids.pop_back();
        }
        last.ids.push_front(trace_id);
        last.all += 1;
    }

    /// The latest traces that came after this number of them, the last one first, at most `most`; and the number to ask with next.
    pub(crate) fn after(&self, heard: u64, most: usize) -> (Vec<TraceId>, u64) {
        let last = lock(&self.0);
        let new = usize::try_from(last.all.saturating_sub(heard)).unwrap_or(usize::MAX);
        (last.ids.iter().take(new.min(most)).copied().collect(), last.all)
    }
}
