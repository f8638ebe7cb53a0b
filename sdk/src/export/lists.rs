//! The batches that wait for a worker, by weight class, ordered by number within each class.

// A batch moves between lists and threads by its address, not by its contents.
#![allow(clippy::vec_box)]

use std::collections::VecDeque;

use crate::record::Batch;

/// Weight classes, by powers of two, for
/// [`WhenQueueFull::ShedLowestWeight`](crate::WhenQueueFull::ShedLowestWeight).
pub(super) const CLASSES: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Batches by weight class. Policies other than `ShedLowestWeight` use only class 0.
    classes: [VecDeque<Box<Batch>>; CLASSES],
    /// Bytes and traces of each class.
    sizes: [QueuedSize; CLASSES],
    spans: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueuedSize {
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

    /// Adds a batch, whose number must be higher than all others.
    pub(super) fn push(&mut self, batch: Box<Batch>) {
        let class = usize::from(batch.class) % CLASSES;
        self.spans += batch.spans();
        self.sizes[class].bytes += batch.bytes;
        self.sizes[class].traces += batch.traces();
        self.classes[class].push_back(batch);
    }

    fn pop(&mut self, class: usize) -> Option<Box<Batch>> {
        let batch = self.classes.get_mut(class)?.pop_front()?;
        self.spans -= batch.spans();
        self.sizes[class].bytes -= batch.bytes;
        self.sizes[class].traces -= batch.traces();
        Some(batch)
    }

    /// The bytes and traces in the classes below `class`.
    pub(super) fn size_below(&self, class: usize) -> QueuedSize {
        self.sizes.iter().take(class).fold(QueuedSize::default(), |sum, size| QueuedSize {
            bytes: sum.bytes + size.bytes,
            traces: sum.traces + size.traces,
        })
    }

    /// Takes the batch with the lowest number.
    pub(super) fn pop_first(&mut self) -> Option<Box<Batch>> {
        let fronts = self.classes.iter().enumerate().filter_map(|(class, list)| Some((class, list.front()?)));
        let (class, _) = fronts.min_by_key(|(_, batch)| batch.number)?;
        self.pop(class)
    }

    /// Takes the oldest batch of the lightest class, if that class is below `class`.
    pub(super) fn pop_lightest(&mut self, class: u8) -> Option<Box<Batch>> {
        let lightest = self.classes.iter().position(|list| !list.is_empty())?;
        if lightest < usize::from(class) { self.pop(lightest) } else { None }
    }

    /// Takes batches, lowest numbers first, until they hold at least `spans` spans or none is left.
    pub(super) fn take(&mut self, spans: usize) -> Vec<Box<Batch>> {
        let (mut taken, mut batches) = (0, Vec::new());
        while taken < spans {
            let Some(batch) = self.pop_first() else { break };
            taken += batch.spans();
            batches.push(batch);
        }
        batches
    }

    /// The lowest number in the lists.
    pub(super) fn first_number(&self) -> Option<u64> {
        self.classes.iter().filter_map(|list| Some(list.front()?.number)).min()
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn counted(&self) -> crate::stats::Counted {
        self.classes.iter().flatten().map(|batch| batch.counted()).sum()
    }

    /// The number of spans in batches with numbers below `number`.
    pub(super) fn spans_below(&self, number: u64) -> usize {
        let batches = self.classes.iter().flatten().filter(|batch| batch.number < number);
        batches.map(|batch| batch.spans()).sum()
    }
}
