//! Batches that wait for a worker, by class of weight, each class in the order of the batches'
//! numbers.

// A batch moves between lists and threads: its address is moved, not its contents.
#![allow(clippy::vec_box)]

use std::collections::VecDeque;

use crate::record::Batch;

/// Classes of weights by powers of two, for
/// [`WhenFull::ShedLowestWeight`](crate::WhenFull::ShedLowestWeight).
pub(super) const CLASSES: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Lists {
    /// One class, unless the lightest are to be shed.
    classes: [VecDeque<Box<Batch>>; CLASSES],
    /// Bytes and traces of each class.
    held: [Held; CLASSES],
    spans: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    pub(super) bytes: usize,
    pub(super) traces: usize,
}

impl Lists {
    pub(super) fn is_empty(&self) -> bool {
        self.spans == 0
    }

    pub(super) fn spans(&self) -> usize {
        self.spans
    }

    /// Adds a batch whose number is higher than all others.
    pub(super) fn push(&mut self, batch: Box<Batch>) {
        let class = usize::from(batch.class) % CLASSES;
        self.spans += batch.spans();
        self.held[class].bytes += batch.bytes;
        self.held[class].traces += batch.traces();
        self.classes[class].push_back(batch);
    }

    fn pop(&mut self, class: usize) -> Option<Box<Batch>> {
        let batch = self.classes.get_mut(class)?.pop_front()?;
        self.spans -= batch.spans();
        self.held[class].bytes -= batch.bytes;
        self.held[class].traces -= batch.traces();
        Some(batch)
    }

    /// Returns the bytes and traces of the classes below `class`.
    pub(super) fn held_below(&self, class: usize) -> Held {
        self.held.iter().take(class).fold(Held::default(), |sum, held| Held {
            bytes: sum.bytes + held.bytes,
            traces: sum.traces + held.traces,
        })
    }

    /// Takes the batch with the lowest number.
    pub(super) fn pop_first(&mut self) -> Option<Box<Batch>> {
        let fronts = self.classes.iter().enumerate().filter_map(|(class, list)| Some((class, list.front()?)));
        let (class, _) = fronts.min_by_key(|(_, batch)| batch.number)?;
        self.pop(class)
    }

    /// Takes the oldest batch of the lightest class below `class`.
    pub(super) fn pop_lightest(&mut self, class: u8) -> Option<Box<Batch>> {
        let lightest = self.classes.iter().position(|list| !list.is_empty())?;
        if lightest < usize::from(class) { self.pop(lightest) } else { None }
    }

    /// Takes batches of whole traces, together as many spans, or a little more.
    pub(super) fn take(&mut self, spans: usize) -> Vec<Box<Batch>> {
        let (mut taken, mut batches) = (0, Vec::new());
        while taken < spans {
            let Some(batch) = self.pop_first() else { break };
            taken += batch.spans();
            batches.push(batch);
        }
        batches
    }

    /// Returns the lowest number.
    pub(super) fn first_number(&self) -> Option<u64> {
        self.classes.iter().filter_map(|list| Some(list.front()?.number)).min()
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn counted(&self) -> crate::stats::Counted {
        self.classes.iter().flatten().map(|batch| batch.counted()).sum()
    }

    /// Returns the spans of batches with lower numbers.
    pub(super) fn spans_below(&self, number: u64) -> usize {
        let batches = self.classes.iter().flatten().filter(|batch| batch.number < number);
        batches.map(|batch| batch.spans()).sum()
    }
}
