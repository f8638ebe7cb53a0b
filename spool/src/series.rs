//! The segments of one log: appended to at the end, read at any position, removed from the front.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;

use crate::disk::Disk;
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, SEGMENT_START, SegmentHeader, crc};
use crate::scan::{Found, look};
use crate::segment::{Segment, file_name, read_payload};

/// The payload and metadata of a frame to append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'p> {
    pub(crate) kind: u32,
    pub(crate) time_ns: u64,
    pub(crate) spans: u32,
    pub(crate) payload: &'p [u8],
}

/// Whether appended frames and finished segments are synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durability {
    pub(crate) each_append: bool,
    pub(crate) each_segment: bool,
}

/// The number of names that are tried for a new segment.
const TAKEN_MAX: u32 = 1_000;

/// The segments of a log whose names begin with `prefix`.
#[derive(Debug)]
pub(crate) struct Series {
    prefix: &'static str,
    pub(crate) segments: VecDeque<Segment>,
    /// True if the last segment may be appended to.
    is_open: bool,
    pub(crate) next_number: u64,
    /// The number of spans ever appended.
    pub(crate) spans_total: u64,
    segment_bytes: u64,
    durability: Durability,
    /// The number of bytes that were truncated from the last segment when the series was opened.
    pub(crate) torn_bytes: u64,
}

impl Series {
    /// Continues existing segments. A torn tail of the last one is truncated. Appends go to a new
    /// segment.
    pub(crate) fn open(
        prefix: &'static str,
        segments: Vec<Segment>,
        segment_bytes: u64,
        durability: Durability,
    ) -> io::Result<Self> {
        let mut series = Series {
            prefix,
            segments: segments.into(),
            is_open: false,
            next_number: 1,
            spans_total: 0,
            segment_bytes,
            durability,
            torn_bytes: 0,
        };
        series.next_number = series.segments.back().map_or(1, |last| last.number + 1);
        // The spans of the log are the spans before the last readable segment plus the spans in it.
        if let Some(index) = series.segments.iter().rposition(|segment| segment.header.is_some()) {
            let is_last = index + 1 == series.segments.len();
            let (end, spans_total) = find_end(&mut series.segments[index])?;
            series.spans_total = spans_total;
            let segment = &mut series.segments[index];
            if is_last && end < segment.bytes {
                series.torn_bytes = segment.bytes - end;
                segment.file.cut(end)?;
                segment.bytes = end;
            }
        }
        Ok(series)
    }

    /// Returns the total size of all segments in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Returns the size of a segment with only this payload.
    pub(crate) fn bytes_alone(payload: usize) -> u64 {
        SEGMENT_START + FRAME_HEADER_BYTES + payload as u64
    }

    /// Returns the number of bytes that an append of this payload adds.
    pub(crate) fn bytes_for(&self, payload: usize) -> u64 {
        let frame = FRAME_HEADER_BYTES + payload as u64;
        let fits = |last: &Segment| last.bytes == SEGMENT_START || last.bytes + frame <= self.segment_bytes;
        let is_appended = self.is_open && self.segments.back().is_some_and(fits);
        if is_appended { frame } else { SEGMENT_START + frame }
    }

    /// Appends a frame. After an error, either no part of the frame is left, or the part that is
    /// left cannot be mistaken for a valid frame of later spans.
    pub(crate) fn append(&mut self, disk: &dyn Disk, entry: &Entry<'_>) -> io::Result<()> {
        let frame_bytes = FRAME_HEADER_BYTES + entry.payload.len() as u64;
        if self.is_open
            && let Some(last) = self.segments.back_mut()
        {
            // Bytes written to a file that was removed would be lost.
            if !disk.contains(&last.name) {
                (self.is_open, last.is_synced) = (false, true);
            } else if last.bytes > SEGMENT_START && last.bytes + frame_bytes > self.segment_bytes {
                self.is_open = false;
                if self.durability.each_segment {
                    self.sync(disk)?;
                }
            }
        }
        if !self.is_open {
            if self.durability.each_segment {
                // A segment that was sealed before it was full has not been synced. If a sync
                // failed above, its error was returned.
                let _ = self.sync(disk);
            }
            self.begin_segment(disk)?;
        }
        let Some(Segment { header: Some(SegmentHeader { salt, .. }), bytes, file, is_synced, .. }) =
            self.segments.back_mut()
        else {
            return Err(io::ErrorKind::NotFound.into());
        };
        *is_synced &= self.durability.each_append;
        let header = FrameHeader {
            payload_bytes: u32::try_from(entry.payload.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            time_ns: entry.time_ns,
            spans: entry.spans,
            kind: entry.kind,
            spans_before: self.spans_total,
            payload_crc: crc(*salt, entry.payload),
        };
        if let Err(error) = file.write_both_at(*bytes, [&header.encode(*salt), entry.payload]) {
            // If a partial frame cannot be truncated, the segment is closed, and readers skip the
            // rest as damage.
            self.is_open = file.cut(*bytes).is_ok();
            // The process's limit on the size of files (`ulimit -f`), not a full disk.
            if error.kind() == io::ErrorKind::FileTooLarge && *bytes > SEGMENT_START {
                self.is_open = false;
                return self.append(disk, entry);
            }
            return Err(error);
        }
        if self.durability.each_append
            && let Err(error) = file.sync()
        {
            // The kernel may have dropped the dirty pages, so nothing more is written to this file.
            let is_empty = *bytes == SEGMENT_START;
            let _ = file.cut(*bytes);
            self.is_open = false;
            if is_empty && let Some(segment) = self.segments.pop_back() {
                let _ = disk.remove(&segment.name);
            }
            return Err(error);
        }
        *bytes += frame_bytes;
        self.spans_total += u64::from(entry.spans);
        Ok(())
    }

    fn begin_segment(&mut self, disk: &dyn Disk) -> io::Result<()> {
        let mut taken = 0;
        let (number, name, mut file) = loop {
            let name = file_name(self.prefix, self.next_number);
            match disk.create(&name) {
                // A file that is left alone has the name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && taken < TAKEN_MAX => taken += 1,
                created => break (self.next_number, name, created?),
            }
            self.next_number += 1;
        };
        self.next_number += 1;
        // Each hasher of the standard library starts with random keys.
        let salt = RandomState::new().build_hasher().finish() as u32;
        let header = SegmentHeader { salt, number, spans_before: self.spans_total };
        let begun = file
            .write_at(0, &header.encode())
            .and_then(|()| if self.durability.each_append { disk.sync() } else { Ok(()) });
        if let Err(error) = begun {
            // Leave no empty file behind.
            let _ = disk.remove(&name);
            return Err(error);
        }
        // If each append is synced, the header becomes durable with the first frame.
        let is_synced = self.durability.each_append;
        self.segments.push_back(Segment {
            number,
            name,
            header: Some(header),
            is_recovered: false,
            bytes: SEGMENT_START,
            file,
            is_synced,
        });
        self.is_open = true;
        Ok(())
    }

    /// Returns the first segment whose number is at least this.
    pub(crate) fn at_or_after(&self, number: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.number >= number)
    }

    /// Returns the number of spans before the next segment; if no later segment has an intact
    /// header, the series' total.
    pub(crate) fn spans_before_next(&self, number: u64) -> u64 {
        self.begin_of_next(number).unwrap_or(self.spans_total)
    }

    /// Returns the number of spans before the next segment; `None` if no later segment has an
    /// intact header.
    pub(crate) fn begin_of_next(&self, number: u64) -> Option<u64> {
        let mut later = self.segments.iter().filter(|segment| segment.number > number);
        later.find_map(|segment| segment.header).map(|header| header.spans_before)
    }

    /// Returns the segment with this number.
    pub(crate) fn segment(&mut self, number: u64) -> Option<&mut Segment> {
        self.segments.iter_mut().find(|segment| segment.number == number)
    }

    /// True if this is the last segment, which may still grow.
    pub(crate) fn is_last(&self, number: u64) -> bool {
        self.segments.back().is_some_and(|segment| segment.number == number)
    }

    /// Ends the last segment, so that the next append begins a new one.
    pub(crate) fn seal(&mut self) {
        self.is_open = false;
    }

    /// Removes the first segment.
    pub(crate) fn remove_first(&mut self, disk: &dyn Disk) -> io::Result<()> {
        let Some(segment) = self.segments.pop_front() else { return Ok(()) };
        if self.segments.is_empty() {
            self.is_open = false;
        }
        match disk.remove(&segment.name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Syncs all segments and their names that are not synced yet.
    pub(crate) fn sync(&mut self, disk: &dyn Disk) -> io::Result<()> {
        if self.segments.iter().all(|segment| segment.is_synced) {
            return Ok(());
        }
        for segment in self.segments.iter_mut().filter(|segment| !segment.is_synced) {
            segment.file.sync()?;
        }
        disk.sync()?;
        self.segments.iter_mut().for_each(|segment| segment.is_synced = true);
        Ok(())
    }
}

/// Returns the end of the last whole frame of a segment, and the number of spans of the log up to
/// there.
fn find_end(segment: &mut Segment) -> io::Result<(u64, u64)> {
    let Some(SegmentHeader { salt, spans_before, .. }) = segment.header else {
        return Ok((segment.bytes, 0));
    };
    let (mut offset, mut spans) = (SEGMENT_START, spans_before);
    loop {
        match look(&mut *segment.file, offset, segment.bytes, salt)? {
            Found::Frame(header) => {
                // Only the last payload can have been torn by a crash.
                let end = offset + header.frame_bytes();
                if end == segment.bytes && read_payload(&mut *segment.file, offset, &header, salt)?.is_none()
                {
                    return Ok((offset, spans));
                }
                spans = spans.max(header.spans_after());
                offset = end;
            }
            Found::Damage { next } => offset = next,
            Found::Torn | Found::End => return Ok((offset.min(segment.bytes), spans)),
        }
    }
}
