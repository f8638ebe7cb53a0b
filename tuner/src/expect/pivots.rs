//! The few traces that decide a function's mean and deviation.
//!
//! Durations have heavy tails: one slow call of a hundred can be most of a function's variance, and
//! a function with three calls is three traces. Kept or not, such a trace moves the sample by more
//! than any formula of first order allows for. So each function's weightiest traces are set apart,
//! and every combination of keeping them is counted.

use crate::stop::Stop;
use crate::workload::{Calls, Workload};

/// Traces set apart for each function: 2^4 combinations are a microsecond, and errors of some
/// percent become some tenths of a percent (see `expect/tests.rs`).
pub(crate) const PIVOTS: usize = 4;

/// The traces set apart, by function.
#[derive(Debug)]
pub(crate) struct Pivots {
    /// `PIVOTS` for each function; unused ones have no calls.
    calls: Vec<Calls>,
    /// Where each arrival's places begin in `places`, and where the last one's end.
    first: Vec<u32>,
    /// Functions, each with its place in `calls`.
    places: Vec<(u32, u32)>,
}

impl Pivots {
    /// Takes, for each function, the traces with the largest sum of squared deviations.
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
                // The least of the function's; the earlier arrival stays if two are alike.
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

    /// Those of one arrival.
    pub(crate) fn of_arrival(&self, arrival: u32) -> ArrivalPivots<'_> {
        let range = self.first[arrival as usize] as usize..self.first[arrival as usize + 1] as usize;
        ArrivalPivots(&self.places[range])
    }

    /// The number of places.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// One function's places.
    pub(crate) fn of(&self, function: usize) -> &[Calls] {
        &self.calls[function * PIVOTS..(function + 1) * PIVOTS]
    }
}

/// The calls of one arrival that are set apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalPivots<'p>(&'p [(u32, u32)]);

impl ArrivalPivots<'_> {
    /// The place of the calls of this function, if they are set apart.
    pub(crate) fn place(self, function: u32) -> Option<u32> {
        // Ascending by function. Nearly all arrivals have none.
        let at = self.0.binary_search_by_key(&function, |&(own, _)| own).ok()?;
        Some(self.0[at].1)
    }
}
