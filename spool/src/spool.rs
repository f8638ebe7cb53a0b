//! The queue on top of the log: opening it, appending within its limits, and writing its position.

use std::fmt;
use std::io;

use crate::cursor::{Cursor, Failure, Position, peek};
use crate::damage::{Damage, Damages};
use crate::disk::Disk;
use crate::frame::SEGMENT_START;
use crate::gone::{gone, gone_after};
use crate::inventory::Inventory;
use crate::ledger::{Book, Ledger};
use crate::letters::uncommitted;
use crate::record::{AppendError, Counts, Recovered};
use crate::segment::{Segment, UNFINISHED};
use crate::series::{Entry, Series};
use crate::settings::{Settings, WhenSpoolFull};
use crate::window::{Slot, State, Window};

/// A queue of records in a folder, used by one process at a time.
#[derive(Debug)]
pub struct Spool {
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) live: Series,
    pub(crate) dead: Series,
    pub(crate) cursor: Cursor,
    pub(crate) book: Book,
    /// The position and the ledger as they were written last.
    written: Option<(Position, Book)>,
    failure: Option<Failure>,
    /// The position before the first record that has not ended.
    pub(crate) position: Position,
    /// The place up to which the log was read; `settled` is the number of spans before it.
    pub(crate) frontier: Position,
    /// The records between the two.
    pub(crate) window: Window,
    /// Damaged spans between the last record of the window and the frontier.
    pub(crate) gap: u64,
    /// Records under way whose segment was removed to free space. They count as delivered if their
    /// delivery succeeds, otherwise as dropped.
    pub(crate) orphans: Vec<Slot>,
    /// True while dead letters are read, which then must stay.
    pub(crate) holds_letters: bool,
    /// The segment that could not be read last.
    pub(crate) unreadable: Option<u64>,
    pub(crate) settings: Settings,
    pub(crate) counts: Counts,
    pub(crate) damage: Damages,
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
        noted.damage(!live.is_empty() || !dead.is_empty()).into_iter().for_each(|note| damage.push(note));
        let (bytes, durability) = (settings.segment_bytes, settings.durability());
        let dead = Series::open("dead", dead, bytes, durability)?;
        let mut live = Series::open("live", live, bytes, durability)?;
        let cursor = Cursor::open(&*disk, noted.sequence)?;
        let is_known = noted.position.is_some();
        let mut position = noted.position.unwrap_or_default();
        let spans_found = live.spans_total;
        // The end of the log may have been lost, and with it records that are already settled.
        // Their spans still count.
        live.spans_total = live.spans_total.max(position.settled).max(noted.end.unwrap_or(0));
        let noted_segment = position.segment.max(1);
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
            let is_complete = noted.end.is_some_and(|end| end <= spans_found);
            damage.push(Damage { spans: is_complete.then_some(0), ..note });
        }
        // Damage before the position cost nothing, but a disk with damage should be known.
        if let Some(segment) = live.segment(position.segment) {
            let mut settled = Damages::default();
            segment.check(position.offset.min(segment.bytes), None, &mut settled, |_, _, _| ())?;
            settled.places.into_iter().for_each(|place| damage.push(Damage { spans: Some(0), ..place }));
        }
        let counts = Counts { found: recovered.spans, pending: recovered.spans, ..Counts::default() };
        let lock = Locked(lock);
        let mut spool = Spool {
            disk,
            live,
            dead,
            cursor,
            book: noted.book.unwrap_or_default(),
            written: None,
            failure: noted.failure,
            position,
            frontier: position,
            window: Window::default(),
            gap: 0,
            orphans: Vec::new(),
            holds_letters: false,
            unreadable: None,
            settings,
            counts,
            damage,
            _lock: lock,
        };
        spool.write_end();
        if noted.book.is_none() {
            spool.book = Book::begin(position.settled, 0);
        }
        // Segments that are gone cost their spans now, so that they do not count as dropped later.
        let first = spool.live.segments.front().map_or(Some(spool.live.spans_total), |first| {
            first.header.map(|header| header.spans_before).filter(|_| first.number == position.segment)
        });
        if let Some(first) = first.filter(|&first| first > position.settled) {
            spool.give_up_damaged(first);
            let first = spool.live.segments.front();
            let until = first.map_or(noted_segment.saturating_add(2), |first| first.number);
            let name = first.map_or("live", |first| &first.name);
            let gone = gone(&*spool.disk, "live", noted_segment..until);
            spool.damage.name_gone((name, position.offset), gone);
            spool.commit();
        }
        spool.open_letters(noted.book.is_some(), noted.dead_end)?;
        spool.commit();
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

    /// Returns every acknowledged span by its end, over all processes that used the folder.
    pub fn ledger(&self) -> Ledger {
        let mut book = self.book;
        book.ends.damaged += self.gap;
        for slot in self.window.slots() {
            book.ends.add(slot.ends);
            book.letters.kept += slot.letters.iter().map(|letter| u64::from(letter.spans)).sum::<u64>();
        }
        let under_way: u64 = self.orphans.iter().map(|orphan| u64::from(orphan.left)).sum();
        book.ends.dropped -= under_way;
        book.view(self.live.spans_total, self.counts.pending)
    }

    /// Returns the time of the oldest waiting record that has been read, in nanoseconds since 1970.
    pub fn oldest_ns(&self) -> Option<u64> {
        let mut waiting = self.window.slots().filter(|slot| slot.state != State::Done);
        waiting.next().map(|slot| slot.header.time_ns)
    }

    /// Returns the last failure of the destination that was noted, also by an earlier process.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Stores why the destination accepts nothing, for those who look at the folder later.
    pub fn note_failure(&mut self, time_ns: u64, text: &str) {
        self.failure = Some(Failure { time_ns, text: text.to_owned() });
        if self.cursor.write_failure(time_ns, text).is_err() {
            self.counts.disk_errors += 1;
        }
    }

    /// Returns the total size of the waiting segments in bytes.
    pub fn bytes(&self) -> u64 {
        self.live.bytes()
    }

    /// Appends a record of `spans` spans. The highest bit of `kind` must be 0.
    ///
    /// # Errors
    ///
    /// If the size limit is reached or the disk fails. Nothing has been appended then.
    pub fn append(&mut self, kind: u32, time_ns: u64, spans: u32, payload: &[u8]) -> Result<(), AppendError> {
        self.append_waiting(&Entry { kind, time_ns, spans, payload })?;
        // Waiting records come first.
        while self.settings.dead_letter_bytes.is_none()
            && self.live.bytes() + self.dead.bytes() > self.settings.max_bytes
            && self.throw_letters_away()
        {}
        Ok(())
    }

    pub(crate) fn append_waiting(&mut self, entry: &Entry<'_>) -> Result<(), AppendError> {
        let Entry { spans, payload, .. } = *entry;
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
                let before = self.live.segments.len();
                self.drop_oldest();
                if self.live.segments.len() == before {
                    return Err(full);
                }
            }
        }
        self.live.append(&*self.disk, entry).map_err(|error| AppendError { full: None, io: Some(error) })?;
        self.counts.appended += u64::from(spans);
        self.counts.pending += u64::from(spans);
        self.write_end();
        Ok(())
    }

    /// Adds a record to the dead letters that was never in the queue: `spans` of its spans were
    /// permanently rejected, for this reason. They count as appended and rejected.
    pub fn append_dead(&mut self, kind: u32, time_ns: u64, spans: u32, payload: &[u8], reason: &str) {
        self.counts.appended += u64::from(spans);
        self.counts.rejected += u64::from(spans);
        self.bury(&Entry { kind, time_ns, spans, payload }, reason, 0);
        self.book.direct += u64::from(spans);
        self.commit();
    }

    /// Syncs everything that was appended, whatever [`Settings::with_sync`] says.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn sync(&mut self) -> io::Result<()> {
        self.live.sync(&*self.disk).and(self.dead.sync(&*self.disk))
    }

    pub(crate) fn remove_settled_segments(&mut self) {
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
            self.live.segments.back().filter(|_| self.counts.pending == 0 && self.window.is_empty())
        else {
            return false;
        };
        self.frontier =
            Position { segment: last.number + 1, offset: SEGMENT_START, settled: self.live.spans_total };
        let before = self.live.segments.len();
        self.live.seal();
        self.commit();
        self.live.segments.len() < before
    }

    fn write_end(&mut self) {
        if self.cursor.write_end(self.live.spans_total).is_err() {
            self.counts.disk_errors += 1;
        }
    }

    /// Writes the position and the ledger, unless they are as they were written last. Returns false
    /// if that failed. No file may be removed then, because the next process would miss it.
    pub(crate) fn write_cursor(&mut self) -> bool {
        self.position.settled = self.book.settled();
        let now = Some((self.position, self.book));
        if now != self.written {
            match self.cursor.write(&self.position, &self.book) {
                Ok(()) => self.written = now,
                Err(_) => self.counts.disk_errors += 1,
            }
        }
        now == self.written
    }

    /// Checks the dead letters, and adopts them in the ledger.
    fn open_letters(&mut self, is_known: bool, end: Option<u64>) -> io::Result<()> {
        let settled = self.book.settled();
        let (torn, found) = (self.dead.torn_bytes, self.dead.spans_total);
        if let Some(last) = self.dead.segments.back().filter(|_| torn > 0) {
            let note = Damage::new(&last.name, (last.bytes, torn), UNFINISHED);
            // Whether it was acknowledged is known if all others are there.
            let is_complete = end.is_some_and(|end| end <= found);
            self.damage.push(Damage { spans: is_complete.then_some(0), ..note });
        }
        // The process ended before the position passed their records, which are sent again.
        for (index, offset, spans_before) in uncommitted(self.dead.segments.make_contiguous(), settled)? {
            let segment = &mut self.dead.segments[index];
            if segment.file.cut(offset).is_ok() {
                (segment.bytes, self.dead.spans_total) = (offset, spans_before);
            }
        }
        self.dead.spans_total = self.dead.spans_total.max(end.unwrap_or(0));
        let expected = self.book.letters.kept;
        let found = check_letters(&*self.disk, self.dead.segments.make_contiguous(), end, &mut self.damage)?;
        match is_known {
            true => {
                let last = self.dead.segments.back().map_or(("dead", 0), |last| (&*last.name, last.bytes));
                self.damage.missing_letters(last, expected.saturating_sub(found));
                self.book.find_letters(found);
            }
            // The ends that this process has added stay.
            false => {
                let begun = Book::begin(self.book.unrecorded, found);
                self.book.ends.add(begun.ends);
                self.book = Book { ends: self.book.ends, ..begun };
            }
        }
        self.counts.dead_letters = self.book.letters.kept;
        Ok(())
    }
}

/// Checks dead letters, and returns the number of their spans. `end` is the number that were ever
/// appended, if that is known.
fn check_letters(
    disk: &dyn Disk,
    segments: &mut [Segment],
    end: Option<u64>,
    damage: &mut Damages,
) -> io::Result<u64> {
    let begins: Vec<_> =
        segments.iter().map(|segment| segment.header.map(|header| header.spans_before)).collect();
    let numbers: Vec<_> = segments.iter().map(|segment| segment.number).collect();
    let mut spans = 0;
    for (index, segment) in segments.iter_mut().enumerate() {
        let next = begins[index + 1..].iter().find_map(|begin| *begin).or(end);
        segment.check(segment.bytes, next, damage, |_, frame, _| {
            spans += if frame.was_refused(next) { 0 } else { u64::from(frame.spans) };
        })?;
        damage.name_gone((&segment.name, segment.bytes), gone_after(disk, "dead", &numbers[index..]));
    }
    Ok(spans)
}
