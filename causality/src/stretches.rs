//! The time from the first to the last log record that a thread wrote of each trace. Of two hosts
//! in one trace, the one with the longer stretch mostly waited for the other, so that its stretch
//! encloses the shorter one.

use std::collections::HashMap;

use astracer_model::ids::TraceId;
use rapidhash::fast::RandomState;

use crate::clocks::Bounds;

/// Hosts of one trace that are compared with each other.
const HOSTS_MAX: usize = 16;

/// The first and the last record of each thread, or of each host, in each trace.
#[derive(Debug, Default)]
pub struct Stretches(HashMap<(TraceId, u32), (u64, u64), RandomState>);

impl Stretches {
    /// Adds a record of a trace: the earliest and the latest time that it can have.
    pub fn add(&mut self, trace: TraceId, thread: u32, (first, last): (u64, u64)) {
        let own = self.0.entry((trace, thread)).or_insert((first, last));
        *own = (own.0.min(first), own.1.max(last));
    }

    /// The number of pairs of a trace and a thread.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bounds the clocks of hosts that wrote records of one trace. `clock` gives the clock of each
    /// thread.
    pub fn bound(&self, clock: impl Fn(u32) -> u32, bounds: &mut Bounds) {
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
