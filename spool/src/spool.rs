//! The queue on top of the log: limits, the head, and counts of every outcome.

use std::fmt;
use std::io;

use crate::cursor::{Cursor, Log, Position, peek};
use crate::damage::{Damage, Damages};
use crate::disk::Disk;
use crate::frame::SEGMENT_START;
use crate::inventory::Inventory;
use crate::record::{AppendError, Counts, Record, RecordId, Recovered, Settlement};
use crate::scan::Found;
use crate::segment::{BAD_PAYLOAD, NO_FRAME, Segment, UNFINISHED};
use crate::series::{Entry, Series};
use crate::settings::{Settings, WhenSpoolFull};

/// The record that was returned last.
#[derive(Clone, Copy, Debug)]
struct Head {
    id: RecordId,
    end: u64,
    kind: u32,
    time_ns: u64,
    spans: u32,
    settled: u32,
    /// True if the head's segment was removed to free space. The record then counts as delivered if
    /// its delivery succeeds, otherwise as dropped.
    is_orphan: bool,
}

/// A queue of records in a folder, used by one process at a time.
#[derive(Debug)]
pub struct Spool {
    pub(crate) disk: Box<dyn Disk>,
    live: Series,
    pub(crate) dead: Series,
    cursor: Cursor,
    position: Position,
    head: Option<Head>,
    settings: Settings,
    pub(crate) counts: Counts,
    damage: Damages,
    _lock: Locked,
}

struct Locked(#[expect(dead_code, reason = "held until it is dropped")] Box<dyn Send + std::marker::Sync>);

impl fmt::Debug for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Locked")
    }
}

impl Spool {
    /// Opens the spool in a folder, and truncates a frame that a crash left unfinished. Everything
    /// but the waiting records is checked; these are checked when they are read.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if another process uses the folder; otherwise the disk's
    /// error.
    pub fn open(disk: impl Disk + 'static, settings: Settings) -> io::Result<(Self, Recovered)> {
        let disk: Box<dyn Disk> = Box::new(disk);
        let lock = disk.lock()?;
        let noted = peek(&*disk)?;
        let inventory = Inventory::take(&*disk, noted.position.map_or(0, |position| position.segment))?;
        let Inventory { live, dead, mut damage } = inventory;
        noted.damage().into_iter().for_each(|note| damage.push(note));
        let (bytes, durability) = (settings.segment_bytes, settings.durability());
        let mut dead = Series::open("dead", dead, bytes, durability)?;
        let dead_letters = check_dead(&mut dead, noted.ends.dead, &mut damage)?;
        let mut live = Series::open("live", live, bytes, durability)?;
        let (cursor, _) = Cursor::open(&*disk)?;
        let is_known = noted.position.is_some();
        let mut position = noted.position.unwrap_or_default();
        let spans_found = live.spans_total;
        // The end of the log may have been lost, and with it records that are already settled.
        // Their spans still count.
        live.spans_total = live.spans_total.max(position.settled).max(noted.ends.live.unwrap_or(0));
        match live.at_or_after(position.segment) {
            Some(segment) if segment.number == position.segment => {}
            // The cursor's segment is gone or never existed: begin at the first existing segment.
            Some(segment) => {
                position.segment = segment.number;
                position.offset = SEGMENT_START;
                // Without the cursor, segments before this one count as settled.
                if !is_known {
                    position.settled = match segment.header {
                        Some(header) => header.spans_before,
                        None => live.spans_before_next(segment.number),
                    };
                }
            }
            // All segments are gone. New ones must come after the position, otherwise their first
            // records would count as settled.
            None => {
                let is_begun = position.offset > SEGMENT_START;
                let behind = position.segment.saturating_add(u64::from(is_begun));
                live.next_number = live.next_number.max(behind);
                (position.segment, position.offset) = (live.next_number, SEGMENT_START);
            }
        }
        position.offset = position.offset.max(SEGMENT_START);
        let recovered = Recovered { spans: live.spans_total - position.settled, torn_bytes: live.torn_bytes };
        if let Some(last) = live.segments.back().filter(|_| live.torn_bytes > 0) {
            let note = Damage::new(&last.name, (last.bytes, live.torn_bytes), UNFINISHED);
            // Only if the end is noted, it is known whether the frame was acknowledged.
            let is_complete = noted.ends.live.is_some_and(|end| end <= spans_found);
            damage.push(Damage { spans: is_complete.then_some(0), ..note });
        }
        // Damage before the position cost nothing, but a disk with damage should be known.
        if let Some(segment) = live.segment(position.segment) {
            let mut settled = Damages::default();
            segment.check(position.offset.min(segment.bytes), None, &mut settled, |_, _, _| ())?;
            settled.places.into_iter().for_each(|place| damage.push(Damage { spans: Some(0), ..place }));
        }
        let counts =
            Counts { found: recovered.spans, pending: recovered.spans, dead_letters, ..Counts::default() };
        let lock = Locked(lock);
        let mut spool =
            Spool { disk, live, dead, cursor, position, head: None, settings, counts, damage, _lock: lock };
        // Segments that are gone cost their spans now, so that they do not count as dropped later.
        let first = spool.live.segments.front().map_or(Some(spool.live.spans_total), |first| {
            first.header.map(|header| header.spans_before).filter(|_| first.number == position.segment)
        });
        if let Some(first) = first.filter(|&first| first > position.settled) {
            spool.give_up_damaged(first);
            spool.write_cursor();
        }
        spool.remove_settled_segments();
        Ok((spool, recovered))
    }

    /// Returns the damage that was found so far, and the files in the folder that are left alone.
    /// Waiting records are checked when they are read, so the list grows until the spool is
    /// drained; it ends after 1,000 places.
    pub fn damage(&self) -> &[Damage] {
        &self.damage.places
    }

    /// Returns the counts since the spool was opened.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the total size of the waiting segments in bytes.
    pub fn bytes(&self) -> u64 {
        self.live.bytes()
    }

    /// Appends a record of `spans` spans.
    ///
    /// # Errors
    ///
    /// If the size limit is reached or the disk fails. Nothing has been appended then.
    pub fn append(&mut self, kind: u32, time_ns: u64, spans: u32, payload: &[u8]) -> Result<(), AppendError> {
        let max_bytes = self.settings.max_bytes;
        let full = |live: &Series| AppendError { full: Some((live.bytes(), max_bytes)), io: None };
        // A record that can never fit must not evict others.
        if Series::bytes_alone(payload.len()) > max_bytes {
            return Err(full(&self.live));
        }
        while self.live.bytes() + self.live.bytes_for(payload.len()) > max_bytes {
            let full = full(&self.live);
            if self.settings.when_full == WhenSpoolFull::Refuse && !self.drop_settled_tail() {
                return Err(full);
            }
            if self.settings.when_full == WhenSpoolFull::DropOldest {
                if self.live.segments.is_empty() {
                    return Err(full);
                }
                self.drop_oldest();
            }
        }
        let entry = Entry { kind, time_ns, spans, payload };
        self.live.append(&*self.disk, &entry).map_err(|error| AppendError { full: None, io: Some(error) })?;
        self.counts.appended += u64::from(spans);
        self.counts.pending += u64::from(spans);
        self.write_end(Log::Live);
        Ok(())
    }

    /// Adds a record to the dead letters that was never in the queue: `spans` of its spans were
    /// permanently rejected, for this reason. They count as appended and rejected.
    pub fn append_dead(&mut self, kind: u32, time_ns: u64, spans: u32, payload: &[u8], reason: &str) {
        self.counts.appended += u64::from(spans);
        self.counts.rejected += u64::from(spans);
        self.bury(&Entry { kind, time_ns, spans, payload }, reason);
    }

    /// Syncs everything that was appended, whatever [`Settings::with_sync`] says.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn sync(&mut self) -> io::Result<()> {
        self.live.sync(&*self.disk).and(self.dead.sync(&*self.disk))
    }

    /// Returns the oldest record, or `None` if there is none. It stays at the head until
    /// [`settle`](Self::settle) is called. Records that are too old or damaged are skipped, and
    /// counted.
    ///
    /// # Errors
    ///
    /// If the disk cannot be read. [`skip_segment`](Self::skip_segment) then gives up the
    /// unreadable part.
    pub fn peek(&mut self, now_ns: u64) -> io::Result<Option<Record>> {
        if let Some(orphan) = self.head.take_if(|head| head.is_orphan) {
            let left = u64::from(orphan.spans - orphan.settled);
            self.counts.dropped += left;
            self.counts.pending -= left;
        }
        let settled = self.position.settled;
        let head = self.find_head(now_ns);
        if self.position.settled != settled {
            // The cursor is written so that the next process does not find the skipped records
            // again.
            self.write_cursor();
        }
        head
    }

    fn find_head(&mut self, now_ns: u64) -> io::Result<Option<Record>> {
        loop {
            let Position { segment, offset, .. } = self.position;
            let (found, bytes) = match self.live.segment(segment) {
                Some(segment) => (segment.look(offset)?, segment.bytes),
                None => (Found::End, 0),
            };
            let header = match found {
                Found::Frame(header) => header,
                Found::Damage { next } => {
                    self.note(offset, next - offset, NO_FRAME);
                    self.position.offset = next;
                    continue;
                }
                Found::Torn | Found::End => {
                    if found == Found::Torn {
                        self.note(offset, bytes - offset, UNFINISHED);
                    }
                    if !self.next_segment() {
                        return Ok(None);
                    }
                    continue;
                }
            };
            let end = offset + header.frame_bytes();
            if header.was_refused(self.live.begin_of_next(segment)) {
                self.advance(end, self.position.settled);
                continue;
            }
            // Everything between the last settled span and this record was damaged.
            self.give_up_damaged(header.spans_before);
            let id = RecordId { segment, offset };
            let after = header.spans_after();
            let settled =
                u32::try_from(self.position.settled.saturating_sub(header.spans_before)).unwrap_or(0);
            if settled >= header.spans && header.spans > 0 {
                self.advance(end, after);
                continue;
            }
            let max_age = u64::try_from(self.settings.max_age.as_nanos()).unwrap_or(u64::MAX);
            // If the clock was set back, no record counts as older.
            if now_ns.saturating_sub(header.time_ns) > max_age {
                self.give_up_until(after, |counts| &mut counts.expired);
                self.advance(end, after);
                continue;
            }
            let payload = match self.live.segment(segment) {
                Some(segment) => segment.payload(offset, &header)?,
                None => None,
            };
            let Some(payload) = payload else {
                self.note(offset, header.frame_bytes(), BAD_PAYLOAD);
                self.give_up_damaged(after);
                self.advance(end, after);
                continue;
            };
            let (kind, time_ns, spans) = (header.kind, header.time_ns, header.spans);
            self.head = Some(Head { id, end, kind, time_ns, spans, settled, is_orphan: false });
            return Ok(Some(Record { id, kind, time_ns, spans, settled, payload }));
        }
    }

    /// Records the outcome of the record at the head. A call for any other record is ignored.
    pub fn settle(&mut self, record: &Record, settlement: Settlement<'_>) {
        let Some(head) = self.head.filter(|head| head.id == record.id) else { return };
        let left = head.spans - head.settled;
        let up_to = |settled: u32| settled.clamp(head.settled, head.spans) - head.settled;
        let (done, rejected, reason) = match settlement {
            Settlement::Delivered => (left, 0, ""),
            Settlement::Rejected(reason) => (left, left, reason),
            Settlement::Partly(settled) => (up_to(settled), 0, ""),
            Settlement::PartlyRejected { settled, rejected, reason } => {
                let done = up_to(settled);
                (done, rejected.min(done), reason)
            }
        };
        if rejected > 0 {
            let entry =
                Entry { kind: head.kind, time_ns: head.time_ns, spans: rejected, payload: &record.payload };
            self.bury(&entry, reason);
        }
        let (left, done, rejected) = (u64::from(left), u64::from(done), u64::from(rejected));
        self.counts.rejected += rejected;
        self.counts.delivered += done - rejected;
        self.counts.pending -= done;
        if head.is_orphan {
            self.counts.dropped += left - done;
            self.counts.pending -= left - done;
            self.head = None;
            return;
        }
        self.position.settled += done;
        if done == left {
            self.advance(head.end, self.position.settled);
        } else {
            // The attempt is over, so the record may now be dropped like any other.
            self.head = None;
        }
        self.write_cursor();
    }

    /// Gives up the rest of the segment at the head because it cannot be read. Its spans count as
    /// damaged.
    pub fn skip_segment(&mut self) {
        if self.live.is_last(self.position.segment) {
            self.live.seal();
        }
        let until = self.live.spans_before_next(self.position.segment);
        let bytes =
            self.live.at_or_after(self.position.segment).map_or(SEGMENT_START, |segment| segment.bytes);
        self.note(self.position.offset, bytes.saturating_sub(self.position.offset), "cannot be read");
        self.give_up_damaged(until);
        self.advance(bytes, until.max(self.position.settled));
        self.write_cursor();
    }

    /// Moves the position past a record.
    fn advance(&mut self, offset: u64, settled: u64) {
        self.position.offset = offset;
        self.position.settled = settled;
        self.head = None;
    }

    /// Counts the spans of the log up to number `spans` as lost.
    fn give_up_until(&mut self, spans: u64, reason: impl FnOnce(&mut Counts) -> &mut u64) {
        let lost = spans.saturating_sub(self.position.settled);
        *reason(&mut self.counts) += lost;
        self.counts.pending -= lost;
        self.position.settled += lost;
    }

    /// Moves to the next segment and removes the segments before it; false if this is the last one.
    fn next_segment(&mut self) -> bool {
        let before_next = self.live.spans_before_next(self.position.segment);
        let next =
            self.live.at_or_after(self.position.segment.saturating_add(1)).map(|segment| segment.number);
        let Some(next) = next else {
            // The end of the log. Spans missing from its last segment were damaged.
            self.give_up_damaged(self.live.spans_total);
            return false;
        };
        let is_known =
            self.live.segments.iter().any(|segment| segment.number == next && segment.header.is_some());
        if is_known {
            self.give_up_damaged(before_next);
        }
        self.position = Position { segment: next, offset: SEGMENT_START, settled: self.position.settled };
        self.head = None;
        self.write_cursor();
        self.remove_settled_segments();
        true
    }

    /// Adds damage in the segment at the position to the list.
    fn note(&mut self, offset: u64, bytes: u64, description: &'static str) {
        if let Some(segment) = self.live.segment(self.position.segment) {
            self.damage.push(Damage::new(&segment.name, (offset, bytes), description));
        }
    }

    /// Counts the spans of the log up to number `spans` as damaged.
    fn give_up_damaged(&mut self, spans: u64) {
        let lost = spans.saturating_sub(self.position.settled);
        let name = self.live.segment(self.position.segment).map_or("live", |segment| &segment.name);
        self.damage.lost(name, self.position.offset, lost);
        self.give_up_until(spans, |counts| &mut counts.damaged);
    }

    fn remove_settled_segments(&mut self) {
        let is_settled = |segment: &Segment| segment.number < self.position.segment;
        if !self.live.segments.front().is_some_and(is_settled) {
            return;
        }
        // After a crash of the machine, an older position would make the segments look lost.
        if self.settings.durability().each_segment && self.cursor.sync().is_err() {
            self.counts.disk_errors += 1;
        }
        while self.live.segments.front().is_some_and(|segment| segment.number < self.position.segment) {
            if self.live.remove_first(&*self.disk).is_err() {
                self.counts.disk_errors += 1;
            }
        }
    }

    /// Frees all segments if everything in them is settled; false if there was nothing to free.
    fn drop_settled_tail(&mut self) -> bool {
        let Some(last) =
            self.live.segments.back().filter(|_| self.counts.pending == 0 && self.head.is_none())
        else {
            return false;
        };
        self.position =
            Position { segment: last.number + 1, offset: SEGMENT_START, settled: self.live.spans_total };
        self.live.seal();
        self.write_cursor();
        self.remove_settled_segments();
        true
    }

    fn drop_oldest(&mut self) {
        let Some(number) = self.live.segments.front().map(|segment| segment.number) else { return };
        if self.live.is_last(number) {
            self.live.seal();
        }
        let until = self.live.spans_before_next(number).max(self.position.settled);
        let mut lost = until - self.position.settled;
        // The spans of a record that is being delivered are counted by its outcome.
        if let Some(head) = self.head.as_mut().filter(|head| head.id.segment == number && !head.is_orphan) {
            lost -= u64::from(head.spans - head.settled);
            head.is_orphan = true;
        }
        self.counts.dropped += lost;
        self.counts.pending -= lost;
        self.position = Position { segment: number + 1, offset: SEGMENT_START, settled: until };
        self.write_cursor();
        self.remove_settled_segments();
    }

    /// Stores a record with rejected spans in the dead letters, with the reason. The payload is
    /// complete, including the spans that were accepted.
    fn bury(&mut self, entry: &Entry<'_>, reason: &str) {
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

    pub(crate) fn write_end(&mut self, log: Log) {
        let spans = match log {
            Log::Live => self.live.spans_total,
            Log::Dead => self.dead.spans_total,
        };
        if self.cursor.write_end(log, spans).is_err() {
            self.counts.disk_errors += 1;
        }
    }

    fn write_cursor(&mut self) {
        if self.cursor.write(&self.position).is_err() {
            self.counts.disk_errors += 1;
        }
    }
}

/// Checks the dead letters, and returns the number of their spans.
fn check_dead(dead: &mut Series, end: Option<u64>, damage: &mut Damages) -> io::Result<u64> {
    let found = dead.spans_total;
    dead.spans_total = found.max(end.unwrap_or(0));
    if let Some(last) = dead.segments.back().filter(|_| dead.torn_bytes > 0) {
        let note = Damage::new(&last.name, (last.bytes, dead.torn_bytes), UNFINISHED);
        damage.push(Damage { spans: end.filter(|&end| end <= found).map(|_| 0), ..note });
    }
    let mut spans = 0;
    for index in 0..dead.segments.len() {
        let next = dead.segments.iter().skip(index + 1).find_map(|next| next.header);
        let next = next.map(|header| header.spans_before).or(end);
        let segment = &mut dead.segments[index];
        segment.check(segment.bytes, next, damage, |_, frame, _| {
            spans += if frame.was_refused(next) { 0 } else { u64::from(frame.spans) };
        })?;
    }
    Ok(spans)
}
