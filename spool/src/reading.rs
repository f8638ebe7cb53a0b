//! Reads waiting records: in order, past damage and records that are too old.

use std::io;

use crate::cursor::Position;
use crate::damage::Damage;
use crate::frame::SEGMENT_START;
use crate::gone::gone;
use crate::record::{Ends, Record, RecordId};
use crate::scan::Found;
use crate::segment::{BAD_PAYLOAD, NO_FRAME, UNFINISHED};
use crate::spool::Spool;
use crate::window::{Slot, State};

impl Spool {
    /// Returns the oldest record that is not under way, or `None` if there is none or if too many
    /// are. The record is then under way until [`settle`](Self::settle) is called. Records that are
    /// too old or damaged are skipped, and counted.
    ///
    /// # Errors
    ///
    /// If the disk cannot be read. [`skip_segment`](Self::skip_segment) then gives up the
    /// unreadable part.
    pub fn take(&mut self, now_ns: u64) -> io::Result<Option<Record>> {
        let taken = self.find(now_ns);
        // The position is written so that the next process does not find the skipped records again.
        self.commit();
        taken
    }

    /// True if [`take`](Self::take) may return a record.
    pub fn is_ready(&self) -> bool {
        let is_unread = self.frontier.settled < self.live.spans_total;
        self.window.first_put_back().is_some() || is_unread && !self.window.is_full()
    }

    fn find(&mut self, now_ns: u64) -> io::Result<Option<Record>> {
        while let Some(id) = self.window.first_put_back() {
            if let Some(record) = self.read_again(id, now_ns)? {
                return Ok(Some(record));
            }
        }
        while !self.window.is_full() {
            let Position { segment, offset, settled } = self.frontier;
            self.unreadable = Some(segment);
            let (found, bytes) = match self.live.segment(segment) {
                Some(segment) => (segment.look(offset)?, segment.bytes),
                None => (Found::End, 0),
            };
            let header = match found {
                Found::Frame(header) => header,
                Found::Damage { next } => {
                    self.note(segment, offset, next - offset, NO_FRAME);
                    self.frontier.offset = next;
                    continue;
                }
                Found::Torn | Found::End => {
                    if found == Found::Torn {
                        self.note(segment, offset, bytes - offset, UNFINISHED);
                    }
                    if !self.next_segment() {
                        return Ok(None);
                    }
                    continue;
                }
            };
            let (end, after) = (offset + header.frame_bytes(), header.spans_after());
            let settled = u32::try_from(settled.saturating_sub(header.spans_before)).unwrap_or(0);
            if header.was_refused(self.live.begin_of_next(segment))
                || settled >= header.spans && header.spans > 0
            {
                self.frontier.offset = end;
                continue;
            }
            // Everything between the last record and this one was damaged.
            self.give_up_damaged(header.spans_before);
            let id = RecordId { segment, offset };
            let ends = Ends { damaged: std::mem::take(&mut self.gap), ..Ends::default() };
            let (left, letters) = (header.spans - settled, Vec::new());
            let mut slot = Slot { id, header, left, ends, letters, state: State::UnderWay };
            if self.is_too_old(header.time_ns, now_ns) {
                self.expire(&mut slot);
            }
            let payload = match self.live.segment(segment) {
                Some(segment) if slot.state == State::UnderWay => segment.payload(offset, &header),
                _ => Ok(None),
            };
            let payload = match payload {
                Ok(payload) => payload,
                Err(error) => {
                    // The record stays behind the frontier.
                    self.gap = slot.ends.damaged;
                    return Err(error);
                }
            };
            self.frontier = Position { segment, offset: end, settled: after };
            if payload.is_none() && slot.state == State::UnderWay {
                self.note(segment, offset, header.frame_bytes(), BAD_PAYLOAD);
                self.damage_of(&mut slot);
            }
            self.window.push(slot);
            if let Some(payload) = payload {
                let (kind, time_ns, spans) = (header.kind, header.time_ns, header.spans);
                return Ok(Some(Record { id, kind, time_ns, spans, settled, payload }));
            }
            // A long stretch of such records must not fill the window.
            self.commit();
        }
        Ok(None)
    }

    /// Reads a record that waits again.
    fn read_again(&mut self, id: RecordId, now_ns: u64) -> io::Result<Option<Record>> {
        let Some(mut slot) = self.window.get(id).cloned() else { return Ok(None) };
        let header = slot.header;
        if self.is_too_old(header.time_ns, now_ns) {
            self.expire(&mut slot);
            self.replace(slot);
            return Ok(None);
        }
        self.unreadable = Some(id.segment);
        let payload = match self.live.segment(id.segment) {
            Some(segment) => segment.payload(id.offset, &header)?,
            None => None,
        };
        let Some(payload) = payload else {
            self.note(id.segment, id.offset, header.frame_bytes(), BAD_PAYLOAD);
            self.damage_of(&mut slot);
            self.replace(slot);
            return Ok(None);
        };
        self.window.set(id, State::UnderWay);
        let (kind, time_ns, spans) = (header.kind, header.time_ns, header.spans);
        Ok(Some(Record { id, kind, time_ns, spans, settled: spans - slot.left, payload }))
    }

    /// Puts a changed copy of a record back into the window.
    fn replace(&mut self, slot: Slot) {
        let (id, state) = (slot.id, slot.state);
        if let Some(known) = self.window.get(id) {
            *known = slot;
        }
        self.window.set(id, state);
    }

    /// If the clock was set back, no record counts as older.
    fn is_too_old(&self, time_ns: u64, now_ns: u64) -> bool {
        let max_age = u64::try_from(self.settings.max_age.as_nanos()).unwrap_or(u64::MAX);
        now_ns.saturating_sub(time_ns) > max_age
    }

    fn expire(&mut self, slot: &mut Slot) {
        let left = u64::from(std::mem::take(&mut slot.left));
        slot.ends.expired += left;
        slot.state = State::Done;
        self.counts.expired += left;
        self.counts.pending -= left;
    }

    /// Ends a record whose payload is damaged.
    fn damage_of(&mut self, slot: &mut Slot) {
        let left = u64::from(std::mem::take(&mut slot.left));
        slot.ends.damaged += left;
        slot.state = State::Done;
        let name = self.live.segment(slot.id.segment).map_or("live", |segment| &segment.name);
        self.damage.lost(name, slot.id.offset, left);
        self.counts.damaged += left;
        self.counts.pending -= left;
    }

    /// Gives up the rest of the segment that could not be read. Its spans count as damaged.
    pub fn skip_segment(&mut self) {
        let segment = self.unreadable.take().unwrap_or(self.frontier.segment);
        for id in self.window.put_back_of(segment) {
            if let Some(mut slot) = self.window.get(id).cloned() {
                self.note(segment, id.offset, slot.header.frame_bytes(), "cannot be read");
                self.damage_of(&mut slot);
                self.replace(slot);
            }
        }
        if segment == self.frontier.segment {
            if self.live.is_last(segment) {
                self.live.seal();
            }
            let until = self.live.spans_before_next(segment);
            let bytes = self.live.at_or_after(segment).map_or(SEGMENT_START, |segment| segment.bytes);
            let offset = self.frontier.offset;
            self.note(segment, offset, bytes.saturating_sub(offset), "cannot be read");
            self.give_up_damaged(until);
            self.frontier.offset = bytes;
        }
        self.commit();
    }

    /// Moves the frontier to the next segment; false if this is the last one.
    fn next_segment(&mut self) -> bool {
        let number = self.frontier.segment;
        let before_next = self.live.spans_before_next(number);
        let next = self.live.at_or_after(number.saturating_add(1)).map(|segment| segment.number);
        let Some(next) = next else {
            // The end of the log. Spans missing from its last segment were damaged.
            self.give_up_damaged(self.live.spans_total);
            return false;
        };
        let is_known =
            self.live.segments.iter().any(|segment| segment.number == next && segment.header.is_some());
        if is_known {
            let name = self.live.segment(number).map(|segment| segment.name.clone());
            let first = if name.is_some() { number.saturating_add(1) } else { number.max(1) };
            self.give_up_damaged(before_next);
            let place = (name.as_deref().unwrap_or("live"), self.frontier.offset);
            self.damage.name_gone(place, gone(&*self.disk, "live", first..next));
        }
        self.frontier = Position { segment: next, offset: SEGMENT_START, settled: self.frontier.settled };
        true
    }

    /// Adds damage in a segment to the list.
    fn note(&mut self, segment: u64, offset: u64, bytes: u64, description: &'static str) {
        if let Some(segment) = self.live.segment(segment) {
            self.damage.push(Damage::new(&segment.name, (offset, bytes), description));
        }
    }

    /// Counts the unread spans of the log up to number `spans` as damaged.
    pub(crate) fn give_up_damaged(&mut self, spans: u64) {
        let lost = spans.saturating_sub(self.frontier.settled);
        let name = self.live.segment(self.frontier.segment).map_or("live", |segment| &segment.name);
        self.damage.lost(name, self.frontier.offset, lost);
        self.gap += lost;
        self.counts.damaged += lost;
        self.counts.pending -= lost;
        self.frontier.settled += lost;
    }
}
