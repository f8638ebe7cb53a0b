//! Locates faults by spectrum analysis: a component is suspicious if it takes part in failed traces
//! and not in others.

use std::collections::HashMap;

use astracer_recording::intern::Symbol;
use astracer_recording::recording::Recording;

use super::Fault;
use super::operation::{Operation, is_at_fault};
use super::traces::{Trace, Traces};

/// The place of a fault, and the kind of places among which it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Among the services.
    Service(Symbol),
    /// Among the operations.
    Operation(Operation),
}

#[derive(Clone, Debug)]
pub(super) struct Spectrum {
    /// The place of each fault. `None` if the recording has no trace of it during the fault.
    places: Vec<Option<Place>>,
}

/// The quality of a ranking. Shares of the faults, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Located {
    pub(super) top_1: f64,
    pub(super) top_3: f64,
    /// The mean of 1 / rank.
    pub(super) mrr: f64,
}

/// Traces counted by their set of operations.
type BySet = HashMap<u32, u32>;

impl Spectrum {
    pub(super) fn new(recording: &Recording, faults: &[Fault], traces: &Traces) -> Self {
        let place = |(number, fault): (u32, &Fault)| {
            let of_fault = traces.all.iter().filter(|trace| trace.fault == Some(number));
            let mut visited = of_fault.flat_map(|trace| &traces.operations[trace.operations as usize]);
            let &found = visited.find(|&&operation| is_at_fault(recording, fault, operation))?;
            Some(if fault.operation.is_some() { Place::Operation(found) } else { Place::Service(found.0) })
        };
        Self { places: (0..).zip(faults).map(place).collect() }
    }

    pub(super) fn fault_count(&self) -> usize {
        self.places.iter().flatten().count()
    }

    pub(super) fn without_traces(&self, faults: &[Fault]) -> Vec<String> {
        let absent = faults.iter().zip(&self.places).filter(|(_, place)| place.is_none());
        absent.map(|(fault, _)| fault.name.clone()).collect()
    }

    /// Ranks places for each fault by these traces alone. Failed traces are the suspect ones that
    /// start during the fault; passed ones are the others that start then, and all that start
    /// during no fault.
    pub(super) fn locate(&self, kept: &[&Trace], operations: &[Box<[Operation]>]) -> Located {
        let mut outside = BySet::new();
        let mut during: Vec<[BySet; 2]> = vec![Default::default(); self.places.len()];
        for trace in kept {
            let counts = match trace.fault {
                Some(fault) => &mut during[fault as usize][usize::from(trace.is_suspect)],
                None => &mut outside,
            };
            *counts.entry(trace.operations).or_default() += 1;
        }
        let (mut located, mut faults) = (Located::default(), 0.0);
        for (place, [passed, failed]) in self.places.iter().zip(&during) {
            let Some(place) = place else { continue };
            faults += 1.0;
            let Some(rank) = rank(*place, failed, [passed, &outside], operations) else { continue };
            located.top_1 += f64::from(rank <= 1.0);
            located.top_3 += f64::from(rank <= 3.0);
            located.mrr += 1.0 / rank;
        }
        if faults > 0.0 {
            located.top_1 /= faults;
            located.top_3 /= faults;
            located.mrr /= faults;
        }
        located
    }
}

/// The rank of a place; equal coefficients share the mean of their ranks. `None` if no failed trace
/// visits it.
fn rank(place: Place, failed: &BySet, passed: [&BySet; 2], operations: &[Box<[Operation]>]) -> Option<f64> {
    match place {
        Place::Service(service) => rank_of(&service, failed, passed, operations, |&(service, _)| service),
        Place::Operation(operation) => {
            rank_of(&operation, failed, passed, operations, |&operation| operation)
        }
    }
}

fn rank_of<C: Copy + Ord + std::hash::Hash>(
    wanted: &C,
    failed: &BySet,
    passed: [&BySet; 2],
    operations: &[Box<[Operation]>],
    component: impl Fn(&Operation) -> C,
) -> Option<f64> {
    let mut counts = HashMap::<C, [u64; 2]>::new();
    let by_outcome = [failed].into_iter().map(|set| (0, set)).chain(passed.map(|set| (1, set)));
    for (outcome, (&set, &traces)) in
        by_outcome.flat_map(|(outcome, sets)| sets.iter().map(move |set| (outcome, set)))
    {
        let mut components: Vec<C> = operations[set as usize].iter().map(&component).collect();
        components.sort_unstable();
        components.dedup();
        for component in components {
            counts.entry(component).or_default()[outcome] += u64::from(traces);
        }
    }
    let all_failed: u64 = failed.values().map(|&traces| u64::from(traces)).sum();
    let coefficient = |[failed, passed]: [u64; 2]| ochiai(failed, passed, all_failed);
    let of_wanted = coefficient(*counts.get(wanted)?);
    if of_wanted <= 0.0 {
        return None;
    }
    let others = |is: &dyn Fn(f64) -> bool| counts.values().filter(|&&of| is(coefficient(of))).count();
    let (above, equal) = (others(&|of| of > of_wanted), others(&|of| of == of_wanted));
    Some(above as f64 + (equal as f64 + 1.0) / 2.0)
}

/// Ochiai's coefficient of a component that takes part in `failed` of `all_failed` failed traces
/// and in `passed` others.
fn ochiai(failed: u64, passed: u64, all_failed: u64) -> f64 {
    match failed {
        0 => 0.0,
        _ => failed as f64 / (all_failed as f64 * (failed + passed) as f64).sqrt(),
    }
}
