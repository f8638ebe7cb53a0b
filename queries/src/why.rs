//! Traces behind a row of an answer, to look at.

use std::collections::BTreeSet;

use crate::aggregate::{Function, Given, State};
use crate::value::Value;

/// Traces that a row names.
const TRACES: usize = 3;

/// Traces behind a row of the answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Why {
    /// Up to three traces: of all those with a match, the ones with the least ids.
    pub traces: Vec<Value>,
    /// For each column that is a MIN or MAX, the trace it is in.
    pub extremes: Vec<Option<Value>>,
}

/// The traces of a group. They do not depend on the order of its rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces {
    least: BTreeSet<Value>,
    extremes: Vec<Option<Extreme>>,
}

/// The value of a MIN or MAX, with the least id of the traces that have it.
#[derive(Clone, Debug)]
struct Extreme {
    function: Function,
    state: State,
    trace: Value,
}

impl Extreme {
    /// Keeps the value that is more extreme.
    fn keep(&mut self, other: Extreme) {
        let before = self.state.finish(self.function);
        self.state.merge(&other.state, 1);
        let (now, new) = (self.state.finish(self.function), other.state.finish(self.function));
        if now != before || (now == new && other.trace < self.trace) {
            self.trace = other.trace;
        }
    }
}

impl Traces {
    /// Adds a row of a trace. `given` are the inputs of the group's aggregates.
    pub(crate) fn add<'g>(
        &mut self,
        trace: &Value,
        functions: &[Function],
        given: impl Iterator<Item = Given<'g>>,
    ) {
        let extreme = |(&function, given): (&Function, Given<'g>)| {
            let mut state = function.start();
            match given {
                Given::Value(value) => drop(state.add(value, 1)),
                Given::Partial(partial, _) => state.merge(partial, 1),
                Given::Row => {}
            }
            let is_known =
                matches!(function, Function::Min | Function::Max) && !state.finish(function).is_null();
            is_known.then(|| Extreme { function, state, trace: trace.clone() })
        };
        let extremes = functions.iter().zip(given).map(extreme).collect();
        let least = Some(trace).filter(|trace| !trace.is_null()).into_iter().cloned().collect();
        self.merge(Traces { least, extremes });
    }

    pub(crate) fn merge(&mut self, other: Traces) {
        self.least.extend(other.least);
        while self.least.len() > TRACES {
            self.least.pop_last();
        }
        self.extremes.resize_with(self.extremes.len().max(other.extremes.len()), || None);
        for (own, more) in self.extremes.iter_mut().zip(other.extremes) {
            match (own.as_mut(), more) {
                (Some(own), Some(more)) => own.keep(more),
                (None, more) => *own = more,
                (Some(_), None) => {}
            }
        }
    }

    /// The traces of a row whose columns are at these positions: those from `keys` on are
    /// aggregates.
    pub(crate) fn of_row(&self, positions: &[usize], keys: usize) -> Why {
        let extreme = |&position: &usize| {
            let extreme = self.extremes.get(position.checked_sub(keys)?)?.as_ref()?;
            Some(extreme.trace.clone())
        };
        Why {
            traces: self.least.iter().cloned().collect(),
            extremes: positions.iter().map(extreme).collect(),
        }
    }
}
