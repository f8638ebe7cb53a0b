//! The batches that wait for a worker, in the order of their numbers.

use std::collections::VecDeque;

use crate::record::Batch;

#[derive(Debug, Default)]
pub(super) struct List {
    batches: VecDeque<Box<Batch>>,
    pub(super) spans: usize,
}

impl List {
    /// Adds a batch, whose number must be higher than all others.
    pub(super) fn push(&mut self, batch: Box<Batch>) {
        self.spans += batch.spans();
        self.batches.push_back(batch);
    }

    /// Takes batches, lowest numbers first, until they hold at least `spans` spans or none is left.
    pub(super) fn take(&mut self, spans: usize) -> Vec<Box<Batch>> {
        let (mut taken, mut batches) = (0, Vec::new());
        while taken < spans {
            let Some(batch) = self.batches.pop_front() else { break };
            taken += batch.spans();
            batches.push(batch);
        }
        self.spans -= taken;
        batches
    }

    pub(super) fn first_number(&self) -> Option<u64> {
        Some(self.batches.front()?.number)
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn counted(&self) -> crate::stats::Counted {
        self.batches.iter().map(|batch| batch.counted()).sum()
    }

    /// The number of spans in batches with numbers below `number`.
    pub(super) fn spans_below(&self, number: u64) -> usize {
        let batches = self.batches.iter().take_while(|batch| batch.number < number);
        batches.map(|batch| batch.spans()).sum()
    }
}
