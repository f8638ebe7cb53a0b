//! A span ends, and with the last one its trace; or all do, when the layer is shut down.

use std::sync::atomic::Ordering;

use tracing_core::span;

use super::core::Core;
use super::record::Ending;
use super::table::{Handle, Lane};
use crate::stats::Loss;

impl Core {
    #[inline]
    pub(crate) fn end(&self, id: &span::Id) {
        let Some(lane) = self.table.find(id.into_u64()) else { return };
        // A root that nobody entered has not been decided about.
        let handle = self.decided(id, lane);
        if lane.has_context() {
            self.end_with_context(id, lane, handle);
        } else {
            self.end_decided(id, lane, handle);
        }
    }

    /// Values of contexts are the user's, and so is what runs when they are dropped: when nothing is locked.
    #[cold]
    fn end_with_context(&self, id: &span::Id, lane: &Lane, handle: Handle) {
        let context = lane.take_context();
        self.end_decided(id, lane, handle);
        drop(context);
    }

    #[inline]
    fn end_decided(&self, id: &span::Id, lane: &Lane, mut handle: Handle) {
        if let Handle::Unwritten { slot, turn } = handle {
            let ended = self.end_unwritten(id, lane, slot, turn);
            handle = if ended { Handle::Dropped } else { lane.handle() };
        }
        if let Handle::Record { slot, index } = handle {
            self.end_record(id, slot, index, self.ending(lane));
        }
        self.table.remove(id.into_u64(), lane);
    }

    #[inline]
    fn end_record(&self, id: &span::Id, slot: u32, index: u32, ending: Ending) {
        let Some(slot) = self.pool.slot(slot) else { return };
        let mut buffer = slot.lock();
        if buffer.close(index, id, ending) {
            slot.end_turn();
            self.queue.push(&mut buffer);
            drop(buffer);
            self.pool.release(slot.number);
        }
    }

    /// As in tracing-opentelemetry, a span ends when it is last left: what holds it longer does not work in it.
    #[inline]
    fn ending(&self, lane: &Lane) -> Ending {
        match lane.last_exit() {
            0 => Ending { time: self.ticks(), busy: None },
            last_exit => {
                Ending { time: last_exit, busy: self.settings.extras.inactivity.then(|| lane.busy()) }
            }
        }
    }

    /// Ends a span that has no record yet. `false` if it has one meanwhile.
    #[inline]
    fn end_unwritten(&self, id: &span::Id, lane: &Lane, slot: u32, turn: u32) -> bool {
        let Some(slot) = self.pool.slot(slot) else { return true };
        let ending = self.ending(lane);
        let mut buffer = slot.lock();
        if !lane.is(Handle::Unwritten { slot: slot.number, turn }) {
            return false;
        }
        lane.set_handle(Handle::Dropped);
        if turn != slot.turn() {
            // A registry keeps open what is above a span. Only if a filter on the layer hides what is above from us, and
            // that is no part of the trace, can the trace have left.
            self.counters.lose(Loss::ShutDown, 1);
        } else if let (Some(metadata), true) = (lane.metadata(), self.make_room(&mut buffer)) {
            let mut record = self.record_of(id, lane, metadata);
            record.close(ending);
            buffer.put(record);
        }
        true
    }

    /// Hands over what has ended of the traces that are open, and takes nothing more.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::Relaxed) {
            return;
        }
        for slot in self.pool.used() {
            let mut buffer = slot.lock();
            if buffer.pending.is_some() || buffer.records.is_empty() {
                continue;
            }
            self.counters.lose(Loss::ShutDown, u64::from(buffer.open));
            // What is open is not exported; who holds it will find that its record is gone.
            self.queue.push(&mut buffer);
        }
        for lane in self.table.lanes() {
            let handle @ Handle::Unwritten { slot, .. } = lane.handle() else { continue };
            let Some(slot) = self.pool.slot(slot) else { continue };
            let _buffer = slot.lock();
            if lane.is(handle) {
                lane.set_handle(Handle::Dropped);
                self.counters.lose(Loss::ShutDown, 1);
            }
        }
        self.queue.close();
    }
}
