//! The traces whose local roots went wrong a moment ago, so that the response to a request can
//! report it to the caller.

use opentelemetry::TraceId;

use crate::sync::statics::{AtomicU64, Ordering};

/// The number of traces that are remembered at most; a power of two.
const PLACES: usize = 1_024;

/// One word for each place: the low half of a trace id, which is random. A later trace overwrites
/// an earlier one in its place, so its caller may not hear of one in a flood of errors; a boost
/// needs only one of them. Relaxed, because a word publishes no other memory.
#[derive(Debug)]
pub struct Troubled(Box<[AtomicU64]>);

impl Default for Troubled {
    fn default() -> Self {
        Troubled((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

fn low(trace_id: TraceId) -> u64 {
    u128::from_be_bytes(trace_id.to_bytes()) as u64
}

impl Troubled {
    fn place(&self, low: u64) -> &AtomicU64 {
        &self.0[low as usize % PLACES]
    }

    /// Notes that a trace went wrong here or in a called process, so that this process's caller
    /// hears of it.
    pub fn note(&self, trace_id: TraceId) {
        let low = low(trace_id);
        self.place(low).store(low, Ordering::Relaxed);
    }

    pub fn has(&self, trace_id: TraceId) -> bool {
        let low = low(trace_id);
        low != 0 && self.place(low).load(Ordering::Relaxed) == low
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Only the low half of an id counts, and a later trace takes the place of an earlier one.
    #[test]
    fn the_last_trace_of_each_place_is_known() {
        let troubled = Troubled::default();
        let id = |number: u128| TraceId::from(number);
        assert!(!troubled.has(id(5)) && !troubled.has(TraceId::INVALID));
        troubled.note(id(5));
        assert!(troubled.has(id(5)) && troubled.has(id(5 + (7 << 64))) && !troubled.has(id(6)));
        troubled.note(id(6));
        assert!(troubled.has(id(5)), "it has another place");
        troubled.note(id(5 + PLACES as u128));
        assert!(!troubled.has(id(5)) && troubled.has(id(5 + PLACES as u128)));
    }
}
