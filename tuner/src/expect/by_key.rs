//! Groups arrivals by key.

use astracer_recording::stop::Pulse;

use crate::workload::Workload;

/// Each key's arrivals, in order of time. Grouping them once saves sorting them again for each
/// table.
#[derive(Debug)]
pub(super) struct ByKey {
    /// The index of each key's first arrival, and one more entry for the end of the last key.
    first: Vec<u32>,
    arrivals: Vec<u32>,
}

impl ByKey {
    /// Uses a counting sort, which is linear in arrivals and keys. `None` if asked to stop.
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

    /// The arrivals of each key as indices into the workload, key by key.
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
