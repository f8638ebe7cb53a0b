//! Arrivals put together by key.

use astracer_recording::stop::Pulse;

use crate::workload::Workload;

/// Each key's arrivals, in order of time. Sums over keys would otherwise sort the arrivals anew for
/// each table.
#[derive(Debug)]
pub(super) struct ByKey {
    /// Where each key's arrivals begin, and where the last one's end.
    first: Vec<u32>,
    arrivals: Vec<u32>,
}

impl ByKey {
    /// A counting sort, linear in arrivals and keys. `None` if asked to stop.
    pub(super) fn new(workload: &Workload, pulse: &mut Pulse<'_>) -> Option<Self> {
        let mut first = vec![0u32; workload.keys().len() + 1];
        for arrival in workload.arrivals() {
            first[arrival.key as usize + 1] += 1;
            if pulse.stopped() {
                return None;
            }
        }
        for key in 1..first.len() {
            first[key] += first[key - 1];
        }
        let mut next = first.clone();
        let mut arrivals = vec![0; workload.arrivals().len()];
        for (index, arrival) in (0u32..).zip(workload.arrivals()) {
            let place = &mut next[arrival.key as usize];
            arrivals[*place as usize] = index;
            *place += 1;
            if pulse.stopped() {
                return None;
            }
        }
        Some(Self { first, arrivals })
    }

    /// The arrivals of one key after the other, as indices.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = &[u32]> {
        self.first.windows(2).map(|range| &self.arrivals[range[0] as usize..range[1] as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic;

    #[test]
    fn every_arrival_is_with_its_key_in_order_of_time() {
        let workload = synthetic(500, 3);
        let by_key = ByKey::new(&workload, &mut Pulse::never()).expect("not stopped");
        let mut seen = 0;
        for (key, arrivals) in (0u32..).zip(by_key.arrivals()) {
            let expected = (0u32..).zip(workload.arrivals()).filter(|(_, arrival)| arrival.key == key);
            assert!(expected.map(|(index, _)| index).eq(arrivals.iter().copied()));
            seen += arrivals.len();
        }
        assert_eq!(seen, 500);
    }
}
