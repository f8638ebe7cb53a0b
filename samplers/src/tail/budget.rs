//! The budget of a policy: what it may keep of all keys, and of each.

use crate::cap::{Allowance, Cap, Meter};
use crate::nanos::Nanos;

/// The state of a policy's allowances: traces and bytes.
#[derive(Debug, Default)]
pub(super) struct Meters {
    traces: Meter,
    bytes: Meter,
}

/// Takes a trace of this size out of the budget, or nothing at all.
pub(super) fn admit(budget: &Cap, all: &Meters, of_key: &Meters, bytes: u64, now: Nanos) -> bool {
    let asked: [(&Meter, Option<Allowance>, u64); 4] = [
        (&of_key.traces, budget.key_traces, 1),
        (&of_key.bytes, budget.key_bytes, bytes),
        (&all.traces, budget.traces, 1),
        (&all.bytes, budget.bytes, bytes),
    ];
    for (at, (meter, allowance, units)) in asked.iter().enumerate() {
        let Some(allowance) = allowance else { continue };
        if meter.admit(allowance, *units, now) {
            continue;
        }
        // The others gave their part for nothing.
        for (meter, allowance, units) in &asked[..at] {
            if let Some(allowance) = allowance {
                meter.take_back(allowance, *units);
            }
        }
        return false;
    }
    true
}
