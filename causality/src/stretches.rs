//! The time from the first to the last log record that a thread wrote of each trace. Of two hosts
//! in one trace, the one with the longer stretch mostly waited for the other, so that its stretch
//! encloses the shorter one.

use std::collections::HashMap;

use astracer_model::ids::TraceId;
use rapidhash::fast::RandomState;

use crate::clocks::Bounds;
use crate::points::Points;

/// Hosts of one trace that are compared with each other.
const HOSTS_MAX: usize = 16;

/// The first and the last record of each thread in each trace.
#[derive(Debug, Default)]
pub(crate) struct Stretches(HashMap<(TraceId, u32), (u64, u64), RandomState>);

impl Stretches {
    /// Adds a record of a trace: the earliest and the latest time that it can have.
    pub(crate) fn add(&mut self, trace: TraceId, thread: u32, (first, last): (u64, u64)) {
        let own = self.0.entry((trace, thread)).or_insert((first, last));
        *own = (own.0.min(first), own.1.max(last));
    }

    /// Bounds the clocks of hosts that wrote records of one trace.
    pub(crate) fn bound(&self, events: &Points, bounds: &mut Bounds) {
        let clock = |thread: u32| {
            let process = events.threads[thread as usize].process;
            events.clocks[events.processes[process as usize].host as usize]
        };
        let mut all: Vec<(TraceId, u32, u64, u64)> = self
            .0
            .iter()
            .map(|(&(trace, thread), &(first, last))| (trace, clock(thread), first, last))
            .collect();
        all.sort_unstable();
        for of_trace in all.chunk_by(|one, other| one.0 == other.0) {
            let hosts = of_trace.chunk_by(|one, other| one.1 == other.1).take(HOSTS_MAX);
            let hosts: Vec<(u32, u64, u64)> = hosts
                .map(|own| {
                    let last = own.iter().map(|own| own.3).max().unwrap_or(own[0].3);
                    (own[0].1, own[0].2, last)
                })
                .collect();
            for (at, &one) in hosts.iter().enumerate() {
                for &other in &hosts[..at] {
                    let is_longer = one.2 - one.1 > other.2 - other.1;
                    let (caller, callee) = if is_longer { (one, other) } else { (other, one) };
                    bounds.records(caller, callee);
                }
            }
        }
    }
}
