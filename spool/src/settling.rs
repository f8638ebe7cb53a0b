//! Ends of records: in any order, committed in the order of the log.

use crate::cursor::Position;
use crate::damage::Damages;
use crate::frame::SEGMENT_START;
use crate::letters;
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

    /// Ends a record whose segment is gone: what is left of it cannot be sent again. All of it was
    /// counted as dropped in the ledger, because the position had to pass it.
    fn end_orphan(&mut self, mut orphan: Slot) {
        let left = u64::from(orphan.left);
        self.counts.dropped += left;
        self.counts.pending -= left;
        self.book.ends.dropped -= orphan.ends.passed_on;
        self.book_ends(&mut orphan, false);
    }

    /// Adds the ends of a record to the ledger, and stores its letters. Those of a record that is
    /// no longer in the queue replace the drop that was counted.
    fn book_ends(&mut self, slot: &mut Slot, is_in_queue: bool) {
        // Each letter counts its own spans, so that the ledger is right if the process ends between
        // two of them.
        self.book.ends.add(Ends { rejected: 0, ..std::mem::take(&mut slot.ends) });
        for Letter { spans, reason, payload } in slot.letters.drain(..) {
            let (kind, time_ns) = (slot.header.kind, slot.header.time_ns);
            let until = if is_in_queue { self.book.settled() + u64::from(spans) } else { 0 };
            self.bury(&Entry { kind, time_ns, spans, payload: &payload }, &reason, until);
            self.book.ends.dropped -= if is_in_queue { 0 } else { u64::from(spans) };
        }
    }

    /// Moves the position behind all records that have ended.
    pub(crate) fn commit(&mut self) {
        while let Some(front) = self.window.front_mut() {
            let is_done = front.state == State::Done;
            let (ends, letters) = (std::mem::take(&mut front.ends), std::mem::take(&mut front.letters));
            let mut slot = Slot { ends, letters, ..front.clone() };
            self.book_ends(&mut slot, true);
            if !is_done {
                break;
            }
            self.window.pop_front();
        }
        let next = self.window.front_mut().map(|front| front.id);
        (self.position.segment, self.position.offset) = match next {
            Some(id) => (id.segment, id.offset),
            None => {
                self.book.ends.damaged += std::mem::take(&mut self.gap);
                (self.frontier.segment, self.frontier.offset)
            }
        };
        if self.write_cursor() {
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
            self.book_ends(&mut slot, true);
            self.book.ends.dropped += left;
            match slot.state {
                // Its spans are counted by its outcome.
                State::UnderWay => self.orphans.push(slot),
                State::PutBack | State::Done => dropped += left,
            }
        }
        if self.frontier.segment <= number {
            let unread = until.saturating_sub(self.frontier.settled);
            self.book.ends.damaged += std::mem::take(&mut self.gap);
            self.book.ends.dropped += unread;
            dropped += unread;
            let settled = self.frontier.settled + unread;
            self.frontier = Position { segment: number + 1, offset: SEGMENT_START, settled };
        }
        self.counts.dropped += dropped;
        self.counts.pending -= dropped;
        self.commit();
    }

    /// Stores a record with rejected spans in the dead letters, with the reason, and counts it in
    /// the ledger. The payload is complete, including the spans that were accepted. The letter
    /// counts when the position has passed `until` spans.
    pub(crate) fn bury(&mut self, entry: &Entry<'_>, reason: &str, until: u64) {
        let letter = letters::join(until, reason, entry.payload);
        let frame = Series::bytes_alone(letter.len());
        // A dead letter larger than the whole limit must not evict others.
        while frame <= self.dead_letter_room() && self.is_over(letter.len()) && self.throw_letters_away() {}
        let spans = u64::from(entry.spans);
        let letter = Entry { kind: entry.kind | letters::WITH_UNTIL, payload: &letter, ..*entry };
        let is_lost = self.is_over(letter.payload.len()) || self.dead.append(&*self.disk, &letter).is_err();
        self.book.ends.rejected += spans;
        if is_lost {
            self.counts.dead_letters_lost += spans;
            self.book.letters.thrown_away += spans;
        } else {
            self.book.letters.kept += spans;
        }
        self.counts.dead_letters = self.book.letters.kept;
    }

    /// The size that dead letters may have.
    fn dead_letter_room(&self) -> u64 {
        let room = self.settings.max_bytes.saturating_sub(self.live.bytes());
        self.settings.dead_letter_bytes.unwrap_or(room)
    }

    fn is_over(&self, letter: usize) -> bool {
        self.dead.bytes() + self.dead.bytes_for(letter) > self.dead_letter_room()
    }

    /// Removes the oldest dead letters; false if there are none, they must stay, or the disk fails.
    pub(crate) fn throw_letters_away(&mut self) -> bool {
        let Some(first) = self.dead.segments.front_mut().filter(|_| !self.holds_letters) else {
            return false;
        };
        let mut lost = 0;
        // Letters that cannot be read were counted as damaged, or will be.
        let _ = first.check(first.bytes, None, &mut Damages::default(), |_, frame, _| {
            lost += u64::from(frame.spans);
        });
        let before = self.book;
        let lost = lost.min(before.letters.kept);
        self.book.letters.kept -= lost;
        self.book.letters.thrown_away += lost;
        // The ledger is written first: a file that is found again counts as kept.
        if !self.write_cursor() {
            self.book = before;
            return false;
        }
        self.counts.dead_letters_lost += lost;
        self.counts.dead_letters = self.book.letters.kept;
        self.remove_first_letters();
        true
    }

    /// Removes the first segment of dead letters, after the ledger was written.
    pub(crate) fn remove_first_letters(&mut self) {
        if self.settings.durability().each_segment && self.cursor.sync().is_err() {
            self.counts.disk_errors += 1;
        }
        if self.dead.remove_first(&*self.disk).is_err() {
            self.counts.disk_errors += 1;
        }
    }
}
