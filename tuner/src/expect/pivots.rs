//! The few traces that dominate a function's mean and standard deviation, called its pivots.
//!
//! Durations have heavy tails. One slow call in a hundred can make up most of a function's
//! variance, and a function with three calls may have three traces. Keeping or dropping such a
//! trace moves the sample by more than a first-order formula covers. So the weightiest traces of
//! each function are treated separately, and every combination of keeping them is counted.

use crate::stop::Stop;
use crate::workload::{Calls, Workload};

/// Pivots per function. Their 2^4 combinations take a microsecond, and reduce errors of some
/// percent to some tenths of a percent (see `expect/tests.rs`).
pub(crate) const PIVOTS: usize = 4;

/// The pivots of each function.
#[derive(Debug)]
pub(crate) struct Pivots {
    /// [`PIVOTS`] entries for each function; unused ones have no calls.
    calls: Vec<Calls>,
    /// The index in `places` of each arrival's first entry, and one more for the end.
    first: Vec<u32>,
    /// Functions, each with its index in `calls`.
    places: Vec<(u32, u32)>,
}

impl Pivots {
    /// Takes for each function the traces with the largest sum of squared deviations.
    ///
    /// `None` if asked to stop.
    pub(crate) fn new(workload: &Workload, stop: Stop<'_>) -> Option<Self> {
        let functions = workload.functions().len();
        let none = |place: usize| Calls {
            function: (place / PIVOTS) as u32,
            count: 0,
            deviation: 0.0,
            deviation_squared: -1.0,
            max_ns: 0,
        };
        let mut calls: Vec<Calls> = (0..functions * PIVOTS).map(none).collect();
        let mut arrivals = vec![u32::MAX; calls.len()];
        for arrival in 0..workload.arrivals().len() {
            if stop.is_asked_at(arrival) {
                return None;
            }
            for candidate in workload.calls(arrival) {
                let first = candidate.function as usize * PIVOTS;
                // The function's smallest pivot so far. On a tie, the earlier arrival stays.
                let mut least = first;
                for place in first + 1..first + PIVOTS {
                    if calls[place].deviation_squared < calls[least].deviation_squared {
                        least = place;
                    }
                }
                if candidate.deviation_squared > calls[least].deviation_squared {
                    calls[least] = *candidate;
                    arrivals[least] = arrival as u32;
                }
            }
        }
        // A counting sort by arrival.
        let mut first = vec![0u32; workload.arrivals().len() + 1];
        let places_of = |arrival: u32| Some(arrival as usize).filter(|&at| at < workload.arrivals().len());
        for at in arrivals.iter().filter_map(|&arrival| places_of(arrival)) {
            first[at + 1] += 1;
        }
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        let mut next = first.clone();
        let mut places = vec![(0, 0); first[workload.arrivals().len()] as usize];
        for (place, (&arrival, calls)) in (0u32..).zip(arrivals.iter().zip(&calls)) {
            if let Some(at) = places_of(arrival) {
                places[next[at] as usize] = (calls.function, place);
                next[at] += 1;
            }
        }
        Some(Self { calls, first, places })
    }

    /// The pivots of one arrival.
    pub(crate) fn of_arrival(&self, arrival: u32) -> ArrivalPivots<'_> {
        let range = self.first[arrival as usize] as usize..self.first[arrival as usize + 1] as usize;
        ArrivalPivots(&self.places[range])
    }

    /// The number of entries, used or not.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// The entries of one function.
    pub(crate) fn of(&self, function: usize) -> &[Calls] {
        &self.calls[function * PIVOTS..(function + 1) * PIVOTS]
    }
}

/// The pivots of one arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalPivots<'p>(&'p [(u32, u32)]);

impl ArrivalPivots<'_> {
    /// The index of this function's pivot, if the arrival's calls of the function are one.
    pub(crate) fn place(self, function: u32) -> Option<u32> {
        // Sorted by function. Nearly all arrivals have no pivots.
        let at = self.0.binary_search_by_key(&function, |&(own, _)| own).ok()?;
        Some(self.0[at].1)
    }
}
