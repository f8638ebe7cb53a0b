//! The budget of a policy: what it may keep, of all keys and of each.

use crate::cap::{Allowance, Cap, Meter};
use crate::nanos::Nanos;

/// The state of a policy's allowances for traces and bytes.
#[derive(Debug, Default)]
pub(super) struct Meters {
    traces: Meter,
    bytes: Meter,
}

/// Takes a trace of this size from the budget: from every allowance, or from none.
pub(super) fn admit(budget: &Cap, all: &Meters, of_key: &Meters, bytes: u64, now: Nanos) -> bool {
    admit_all(
        &[
            (&of_key.traces, budget.key_traces, 1),
            (&of_key.bytes, budget.key_bytes, bytes),
            (&all.traces, budget.traces, 1),
            (&all.bytes, budget.bytes, bytes),
        ],
        now,
    )
}

/// As [`admit`], for further bytes of an admitted trace.
pub(super) fn admit_bytes(budget: &Cap, all: &Meters, of_key: &Meters, bytes: u64, now: Nanos) -> bool {
    admit_all(&[(&of_key.bytes, budget.key_bytes, bytes), (&all.bytes, budget.bytes, bytes)], now)
}

/// Takes the units from every allowance, or from none.
fn admit_all(asked: &[(&Meter, Option<Allowance>, u64)], now: Nanos) -> bool {
    for (at, (meter, allowance, units)) in asked.iter().enumerate() {
        let Some(allowance) = allowance else { continue };
        if meter.admit(allowance, *units, now) {
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
