//! The allowances of a cap with their state, asked together: for what is kept once a trace has
//! ended, when its bytes are known.

use super::{Allowance, Answer, Bucket, Cap, Meter};
use crate::nanos::Nanos;
use crate::randomness::Randomness;

/// The state of allowances for traces and bytes.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    traces: Meter,
    bytes: Meter,
}

/// An allowance with its state, and the units asked of it.
type Asked<'a> = (&'a Meter, Option<Allowance>, u64);

fn of_trace<'a>(budget: &Cap, all: &'a Meters, of_key: &'a Meters, bytes: u64) -> [Asked<'a>; 4] {
    [
        (&of_key.traces, budget.key_traces, 1),
        (&of_key.bytes, budget.key_bytes, bytes),
        (&all.traces, budget.traces, 1),
        (&all.bytes, budget.bytes, bytes),
    ]
}

/// The least threshold with which a trace of this size fits into the budget now: 0 while every
/// allowance is at least half full. It depends on earlier traces only, so it is the true threshold
/// of a trace that is kept because its randomness reaches it. `None` if an allowance is used up.
pub(crate) fn threshold(budget: &Cap, all: &Meters, of_key: &Meters, bytes: u64, now: Nanos) -> Option<u64> {
    let asked = of_trace(budget, all, of_key, bytes);
    asked.into_iter().try_fold(0, |threshold, (meter, allowance, units)| match allowance {
        None => Some(threshold),
        Some(allowance) => meter.peek(&Bucket::new(allowance), units, threshold, now),
    })
}

/// Takes a trace of this size and randomness from the budget: from every allowance, or from none if
/// its randomness is below the budget's [`threshold`].
pub(crate) fn admit(
    budget: &Cap,
    (all, of_key): (&Meters, &Meters),
    bytes: u64,
    randomness: Randomness,
    now: Nanos,
) -> bool {
    admit_all(&of_trace(budget, all, of_key, bytes), randomness, now)
}

/// As [`admit`], for further bytes of an admitted trace.
pub(crate) fn admit_bytes(budget: &Cap, all: &Meters, of_key: &Meters, bytes: u64, now: Nanos) -> bool {
    let asked = [(&of_key.bytes, budget.key_bytes, bytes), (&all.bytes, budget.bytes, bytes)];
    admit_all(&asked, Randomness::MAX, now)
}

/// Takes the units from every allowance, or from none.
fn admit_all(asked: &[Asked<'_>], randomness: Randomness, now: Nanos) -> bool {
    let mut threshold = 0;
    for (at, (meter, allowance, units)) in asked.iter().enumerate() {
        let Some(allowance) = allowance else { continue };
        let answer = meter.ask(&Bucket::new(*allowance), *units, threshold, randomness, now);
        if let Answer::Kept { threshold: raised, .. } = answer {
            threshold = raised;
            continue;
        }
        // The allowances before this one get their units back.
        for (meter, allowance, units) in &asked[..at] {
            if let Some(allowance) = allowance {
                meter.take_back(allowance, *units);
            }
        }
        return false;
    }
    true
}
