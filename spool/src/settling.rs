//! Ends of records: in any order, committed in the order of the log.

use crate::cursor::{Log, Position};
use crate::frame::SEGMENT_START;
use crate::record::{Ends, Record, Settlement};
use crate::series::{Entry, Series};
use crate::spool::Spool;
use crate::window::{Letter, Slot, State};

impl Spool {
    /// Records the outcome of a record that is under way. A call for any other record is ignored.
    pub fn settle(&mut self, record: &Record, settlement: Settlement<'_>) {
        self.settle_all([(record, settlement)]);
    }

    /// Records the outcomes of several records that are under way, and then writes the position
    /// once.
    pub fn settle_all<'r>(&mut self, outcomes: impl IntoIterator<Item = (&'r Record, Settlement<'r>)>) {
        for (record, settlement) in outcomes {
            self.settle_one(record, settlement);
        }
        self.commit();
    }

    fn settle_one(&mut self, record: &Record, settlement: Settlement<'_>) {
        let orphan = self.orphans.iter().position(|orphan| orphan.id == record.id);
        let mut orphan = orphan.map(|index| self.orphans.swap_remove(index));
        let in_window = self.window.get(record.id).filter(|slot| slot.state == State::UnderWay);
        let Some(slot) = orphan.as_mut().or(in_window) else { return };
        let (left, spans) = (slot.left, slot.header.spans);
        let up_to = |settled: u32| settled.min(spans).saturating_sub(spans - left);
        let (done, rejected, letter) = match settlement {
            Settlement::Delivered => (left, 0, None),
            Settlement::Rejected(reason) => (left, left, Some(reason)),
            Settlement::Partly(settled) => (up_to(settled), 0, None),
            Settlement::PartlyRejected { settled, rejected, reason } => {
                let done = up_to(settled);
                let rejected = rejected.min(done);
                (done, rejected, Some(reason).filter(|_| rejected > 0))
            }
            Settlement::PerhapsRejected { rejected, reason } => (left, rejected.min(left), Some(reason)),
        };
        slot.left -= done;
        let ends =
            Ends { passed_on: u64::from(done - rejected), rejected: u64::from(rejected), ..Ends::default() };
        slot.ends.add(ends);
        let letter = letter.map(|reason| Letter {
            spans: rejected,
            reason: reason.to_owned(),
            payload: record.payload.clone(),
        });
        slot.letters.extend(letter);
        let (id, is_done) = (slot.id, slot.left == 0);
        self.counts.rejected += ends.rejected;
        self.counts.delivered += ends.passed_on;
        self.counts.pending -= ends.total();
        match orphan {
            Some(orphan) => self.end_orphan(orphan),
            None => self.window.set(id, if is_done { State::Done } else { State::PutBack }),
        }
    }

    /// Ends a record whose segment is gone: what is left of it cannot be sent again.
    fn end_orphan(&mut self, mut orphan: Slot) {
        let left = u64::from(orphan.left);
        self.counts.dropped += left;
        self.counts.pending -= left;
        self.bury_letters(&mut orphan);
    }

    /// Moves the position behind all records that have ended, and stores their letters.
    pub(crate) fn commit(&mut self) {
        let mut settled = self.position.settled;
        while let Some(front) = self.window.front_mut() {
            let ends = std::mem::take(&mut front.ends);
            settled += ends.total();
            let is_done = front.state == State::Done;
            if !front.letters.is_empty() {
                let mut letters = Slot { letters: std::mem::take(&mut front.letters), ..front.clone() };
                self.bury_letters(&mut letters);
            }
            if !is_done {
                break;
            }
            self.window.pop_front();
        }
        let position = match self.window.front_mut() {
            Some(Slot { id, .. }) => Position { segment: id.segment, offset: id.offset, settled },
            None => {
                settled += std::mem::take(&mut self.gap);
                Position { settled, ..self.frontier }
            }
        };
        if position != self.position {
            self.position = position;
            self.write_cursor();
            self.remove_settled_segments();
        }
    }

    /// Removes the oldest segment to free space.
    pub(crate) fn drop_oldest(&mut self) {
        let Some(number) = self.live.segments.front().map(|segment| segment.number) else { return };
        if self.live.is_last(number) {
            self.live.seal();
        }
        let until = self.live.spans_before_next(number);
        let mut dropped = 0;
        while self.window.front_mut().is_some_and(|slot| slot.id.segment == number)
            && let Some(mut slot) = self.window.pop_front()
        {
            let left = u64::from(slot.left);
            self.position.settled += slot.ends.total() + left;
            self.bury_letters(&mut slot);
            match slot.state {
                // Its spans are counted by its outcome.
                State::UnderWay => self.orphans.push(Slot { ends: Ends::default(), ..slot }),
                State::PutBack | State::Done => dropped += left,
            }
        }
        if self.frontier.segment <= number {
            let unread = until.saturating_sub(self.frontier.settled);
            self.position.settled += std::mem::take(&mut self.gap) + unread;
            dropped += unread;
            let settled = self.frontier.settled + unread;
            self.frontier = Position { segment: number + 1, offset: SEGMENT_START, settled };
        }
        self.counts.dropped += dropped;
        self.counts.pending -= dropped;
        self.commit();
    }

    /// Stores the letters of a record.
    fn bury_letters(&mut self, slot: &mut Slot) {
        for Letter { spans, reason, payload } in slot.letters.drain(..) {
            let (kind, time_ns) = (slot.header.kind, slot.header.time_ns);
            self.bury(&Entry { kind, time_ns, spans, payload: &payload }, &reason);
        }
    }
    /// Stores a record with rejected spans in the dead letters, with the reason. The payload is
    /// complete, including the spans that were accepted.
    pub(crate) fn bury(&mut self, entry: &Entry<'_>, reason: &str) {
        let mut end = reason.len().min(usize::from(u16::MAX));
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        let mut letter = (end as u16).to_le_bytes().to_vec();
        letter.extend_from_slice(&reason.as_bytes()[..end]);
        letter.extend_from_slice(entry.payload);
        let is_over =
            |dead: &Series| dead.bytes() + dead.bytes_for(letter.len()) > self.settings.dead_letter_bytes;
        // A dead letter larger than the whole limit must not evict others.
        let may_fit = Series::bytes_alone(letter.len()) <= self.settings.dead_letter_bytes;
        while may_fit && is_over(&self.dead) {
            let Some(first) = self.dead.segments.front() else { break };
            let before = first.header.map_or(0, |header| header.spans_before);
            let lost = self.dead.spans_before_next(first.number).saturating_sub(before);
            self.counts.dead_letters_lost += lost;
            self.counts.dead_letters = self.counts.dead_letters.saturating_sub(lost);
            if self.dead.remove_first(&*self.disk).is_err() {
                self.counts.disk_errors += 1;
            }
        }
        let letter = Entry { payload: &letter, ..*entry };
        if is_over(&self.dead) || self.dead.append(&*self.disk, &letter).is_err() {
            self.counts.dead_letters_lost += u64::from(entry.spans);
        } else {
            self.counts.dead_letters += u64::from(entry.spans);
            self.write_end(Log::Dead);
        }
    }
}
