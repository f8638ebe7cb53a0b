//! The queue on top of the log: limits, the head, and counts of every outcome.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::cursor::{Cursor, Position};
use crate::disk::Disk;
use crate::frame::SEGMENT_START;
use crate::scan::Found;
use crate::series::{Durability, Entry, Series};

/// When appended data is synced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sync {
    /// Never. A crash of the machine may lose everything that the operating system has not written
    /// on its own.
    Never,
    /// When a segment is full. A crash of the machine may lose the last segment.
    #[default]
    Segment,
    /// On each append. A crash of the machine loses nothing that was appended.
    Append,
}

/// The reaction to an append at the size limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenSpoolFull {
    /// The new record is rejected.
    #[default]
    Refuse,
    /// The oldest segment is removed; its spans are counted in [`Counts::dropped`].
    DropOldest,
}

/// The settings of a spool.
#[derive(Clone, Debug)]
#[must_use]
pub struct Settings {
    segment_bytes: u64,
    max_bytes: u64,
    max_age: Duration,
    dead_letter_bytes: u64,
    when_full: WhenSpoolFull,
    sync: Sync,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            segment_bytes: 8 << 20,
            max_bytes: 1 << 30,
            max_age: Duration::from_secs(24 * 3600),
            dead_letter_bytes: 64 << 20,
            when_full: WhenSpoolFull::default(),
            sync: Sync::default(),
        }
    }
}

impl Settings {
    /// Sets the size at which a new segment is begun; 8 MiB by default. Space is freed in whole
    /// segments.
    pub fn with_segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Limits the total size of the waiting segments; 1 GiB by default.
    pub fn with_max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Limits the age of a record; a day by default. Older records are counted in
    /// [`Counts::expired`].
    pub fn with_max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Limits the total size of dead letters; 64 MiB by default. At the limit, their oldest segment
    /// is removed.
    pub fn with_dead_letter_bytes(mut self, bytes: u64) -> Self {
        self.dead_letter_bytes = bytes;
        self
    }

    /// Sets the reaction to an append at the size limit.
    pub fn with_when_full(mut self, when_full: WhenSpoolFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Sets when appended data is synced to the disk.
    pub fn with_sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    fn durability(&self) -> Durability {
        Durability { each_append: self.sync == Sync::Append, each_segment: self.sync != Sync::Never }
    }
}

/// Identifies a record while it is at the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordId {
    segment: u64,
    offset: u64,
}

/// A record at the head of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The record's identifier, for [`Spool::settle`].
    pub id: RecordId,
    /// The kind, defined by the user of the spool.
    pub kind: u32,
    /// The time of the append, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The number of spans in the payload.
    pub spans: u32,
    /// The number of leading spans of the payload that are already settled.
    pub settled: u32,
    /// The bytes that were appended.
    pub payload: Vec<u8>,
}

/// The outcome of an attempt to deliver the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement<'r> {
    /// The whole record was delivered.
    Delivered,
    /// The rest of the record was permanently rejected: it goes to the dead letters, with this
    /// reason.
    Rejected(&'r str),
    /// This many leading spans of the payload are settled, including those of earlier attempts. The
    /// record stays at the head until all of them are.
    Partly(u32),
    /// Like [`Settlement::Partly`], but some of the spans that this attempt has settled were
    /// permanently rejected. If `rejected` is not 0, the record goes to the dead letters.
    PartlyRejected {
        /// The number of leading spans of the payload that are settled, including earlier attempts.
        settled: u32,
        /// The number of rejected spans among those that this attempt has settled.
        rejected: u32,
        /// The reason for the rejection.
        reason: &'r str,
    },
}

/// Spans by outcome since the spool was opened.
///
/// `found + appended = delivered + rejected + expired + damaged + dropped + pending` holds after
/// each call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Spans that an earlier process left.
    pub found: u64,
    /// Spans appended.
    pub appended: u64,
    /// Spans delivered.
    pub delivered: u64,
    /// Spans permanently rejected.
    pub rejected: u64,
    /// Spans given up because of their age.
    pub expired: u64,
    /// Spans in frames that were damaged or lost on disk.
    pub damaged: u64,
    /// Spans in segments that were removed to free space.
    pub dropped: u64,
    /// Spans that are waiting.
    pub pending: u64,
    /// Rejected spans that could not be stored as dead letters, or whose dead letters were removed
    /// to free space.
    pub dead_letters_lost: u64,
    /// Failed disk operations whose only effect is duplicates or space that is not freed.
    pub disk_errors: u64,
}

/// The state found by [`Spool::open`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// The number of waiting spans.
    pub spans: u64,
    /// The number of bytes of an unfinished frame that were truncated.
    pub torn_bytes: u64,
}

/// The reason why a record was not appended. The spool is unchanged.
#[derive(Debug)]
pub struct AppendError {
    full: Option<(u64, u64)>,
    io: Option<io::Error>,
}

impl AppendError {
    /// True if the size limit is reached.
    pub fn is_full(&self) -> bool {
        self.full.is_some()
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.full, &self.io) {
            (Some((used, max)), _) => write!(f, "{used} of {max} bytes are used"),
            (_, Some(error)) => error.fmt(f),
            _ => f.write_str("the record cannot be appended"),
        }
    }
}

impl std::error::Error for AppendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.io.as_ref().map(|error| error as _)
    }
}

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
    disk: Box<dyn Disk>,
    live: Series,
    dead: Series,
    cursor: Cursor,
    position: Position,
    head: Option<Head>,
    settings: Settings,
    counts: Counts,
    _lock: Locked,
}

struct Locked(#[expect(dead_code, reason = "held until it is dropped")] Box<dyn Send + std::marker::Sync>);

impl fmt::Debug for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Locked")
    }
}

impl Spool {
    /// Opens the spool in a folder, and truncates a frame that a crash left unfinished.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if another process uses the folder; otherwise the disk's
    /// error.
    pub fn open(disk: impl Disk + 'static, settings: Settings) -> io::Result<(Self, Recovered)> {
        let disk: Box<dyn Disk> = Box::new(disk);
        let lock = disk.lock()?;
        let mut live = Series::open(&*disk, "live", settings.segment_bytes, settings.durability())?;
        let dead = Series::open(&*disk, "dead", settings.segment_bytes, settings.durability())?;
        let (cursor, position) = Cursor::open(&*disk)?;
        let is_known = position.is_some();
        let mut position = position.unwrap_or_default();
        // The end of the log may have been lost, and with it records that are already settled.
        // Their spans still count.
        live.spans_total = live.spans_total.max(position.settled);
        match live.at_or_after(position.segment) {
            Some(segment) if segment.number == position.segment => {}
            // The cursor's segment is gone or never existed: begin at the first existing segment.
            Some(segment) => {
                position.segment = segment.number;
                position.offset = SEGMENT_START;
                let before = match segment.header {
                    Some(header) => header.spans_before,
                    // Without cursor and header, the number of spans in the segment is unknown, so
                    // it counts as 0.
                    None if !is_known => live.spans_before_next(segment.number),
                    None => 0,
                };
                position.settled = position.settled.max(before);
            }
            // All segments are gone. New ones must come after the position, otherwise their first
            // records would count as settled.
            None => {
                let is_begun = position.offset > SEGMENT_START;
                live.next_number = live.next_number.max(position.segment + u64::from(is_begun));
                position =
                    Position { segment: live.next_number, offset: SEGMENT_START, settled: live.spans_total };
            }
        }
        position.offset = position.offset.max(SEGMENT_START);
        let recovered = Recovered { spans: live.spans_total - position.settled, torn_bytes: live.torn_bytes };
        let counts = Counts { found: recovered.spans, pending: recovered.spans, ..Counts::default() };
        let lock = Locked(lock);
        let mut spool =
            Spool { disk, live, dead, cursor, position, head: None, settings, counts, _lock: lock };
        spool.remove_settled_segments();
        Ok((spool, recovered))
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
            let header = match self.live.look(segment, offset)? {
                Found::Frame(header) => header,
                Found::Damage { next } => {
                    self.position.offset = next;
                    continue;
                }
                Found::Torn | Found::End => {
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
            self.give_up_until(header.spans_before, |counts| &mut counts.damaged);
            let id = RecordId { segment, offset };
            let after = header.spans_before + u64::from(header.spans);
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
            let Some(payload) = self.live.payload(segment, offset, &header)? else {
                self.give_up_until(after, |counts| &mut counts.damaged);
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
        self.give_up_until(until, |counts| &mut counts.damaged);
        let bytes =
            self.live.at_or_after(self.position.segment).map_or(SEGMENT_START, |segment| segment.bytes);
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
            self.give_up_until(self.live.spans_total, |counts| &mut counts.damaged);
            return false;
        };
        let is_known =
            self.live.segments.iter().any(|segment| segment.number == next && segment.header.is_some());
        if is_known {
            self.give_up_until(before_next, |counts| &mut counts.damaged);
        }
        self.position = Position { segment: next, offset: SEGMENT_START, settled: self.position.settled };
        self.head = None;
        self.write_cursor();
        self.remove_settled_segments();
        true
    }

    fn remove_settled_segments(&mut self) {
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
            self.counts.dead_letters_lost += self.dead.spans_before_next(first.number).saturating_sub(before);
            if self.dead.remove_first(&*self.disk).is_err() {
                self.counts.disk_errors += 1;
            }
        }
        let letter = Entry { payload: &letter, ..*entry };
        if is_over(&self.dead) || self.dead.append(&*self.disk, &letter).is_err() {
            self.counts.dead_letters_lost += u64::from(entry.spans);
        }
    }

    fn write_cursor(&mut self) {
        if self.cursor.write(&self.position).is_err() {
            self.counts.disk_errors += 1;
        }
    }
}
