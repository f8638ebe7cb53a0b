//! Path kinds: traces of one kind wait for the same functions.
//!
//! The kind of a trace is the set of functions that each have at least 5 % of its critical time. It
//! distinguishes traces that have the same call tree but wait for different parts of it.

use std::collections::HashMap;

use astracer_recording::intern::Symbol;
use astracer_recording::recording::Recording;
use astracer_recording::stop::Pulse;

use crate::traced::{Analyser, Method, Traced};

/// A function belongs to a trace's kind if it has at least one part in this many of the critical
/// time.
const PART: u128 = 20;

/// The kinds of a recording's traces.
#[derive(Clone, Debug, Default)]
pub struct PathKinds {
    of_traces: Vec<u32>,
    kinds: HashMap<Box<[Symbol]>, u32>,
    times: HashMap<Symbol, u128>,
}

impl PathKinds {
    /// Finds the kind of each trace; `None` if the pulse stopped the work.
    pub fn of(recording: &Recording, method: Method, pulse: &mut Pulse<'_>) -> Option<Self> {
        let (mut kinds, mut analyser) = (Self::default(), Analyser::new(method));
        for trace in recording.traces() {
            kinds.add(&analyser.trace_unless_stopped(recording, trace, pulse)?);
        }
        Some(kinds)
    }

    /// Adds a trace after those added before.
    pub fn add(&mut self, traced: &Traced<'_>) {
        let kind = self.kind(traced);
        self.of_traces.push(kind);
    }

    fn kind(&mut self, traced: &Traced<'_>) -> u32 {
        self.times.clear();
        for segment in traced.path.segments.iter() {
            *self.times.entry(traced.name(segment.node)).or_default() += u128::from(segment.length());
        }
        let all = u128::from(traced.path.length());
        let mut functions: Vec<Symbol> =
            self.times.iter().filter(|&(_, &ns)| ns * PART >= all).map(|(&name, _)| name).collect();
        functions.sort_unstable();
        let next = self.kinds.len() as u32;
        *self.kinds.entry(functions.into()).or_insert(next)
    }

    /// The kind of each trace, in the order in which the traces were added. Kinds are numbered from
    /// 0 in the order of their first trace.
    pub fn of_traces(&self) -> &[u32] {
        &self.of_traces
    }

    /// The number of different kinds.
    pub fn count(&self) -> usize {
        self.kinds.len()
    }
}
