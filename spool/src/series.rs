//! Segments of one log: appended to at the end, read at any position, removed from the front.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;

use crate::disk::{Disk, DiskFile};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, SEGMENT_START, SegmentHeader, crc};
use crate::scan::{Found, look};

/// Bytes of a frame's payload with the facts about it.
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

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// `None` if both copies of the header are damaged: no frame can be checked then.
    pub(crate) header: Option<SegmentHeader>,
    /// Bytes up to which whole frames were written.
    pub(crate) bytes: u64,
    file: Box<dyn DiskFile>,
    /// Its bytes and its name are durable.
    is_synced: bool,
}

/// The segments of a log whose names begin with `prefix`.
#[derive(Debug)]
pub(crate) struct Series {
    prefix: &'static str,
    pub(crate) segments: VecDeque<Segment>,
    /// The last segment may be appended to.
    is_open: bool,
    pub(crate) next_number: u64,
    /// Spans ever appended.
    pub(crate) spans_total: u64,
    segment_bytes: u64,
    durability: Durability,
    /// Bytes cut from the end of the last segment when the series was opened.
    pub(crate) torn_bytes: u64,
}

pub(crate) fn file_name(prefix: &str, number: u64) -> String {
    format!("{prefix}-{number:08}.seg")
}

/// Returns the segments' numbers in order.
pub(crate) fn numbers(disk: &dyn Disk, prefix: &str) -> io::Result<Vec<u64>> {
    let number =
        |name: &String| name.strip_prefix(prefix)?.strip_prefix('-')?.strip_suffix(".seg")?.parse().ok();
    let mut numbers: Vec<u64> = disk.list()?.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads a segment's header; `None` if it is damaged.
pub(crate) fn read_header(file: &mut dyn DiskFile, number: u64) -> io::Result<Option<SegmentHeader>> {
    let mut start = [0; SEGMENT_START as usize];
    let read = file.read_at(0, &mut start)?;
    Ok(SegmentHeader::decode(&start[..read]).filter(|header| header.number == number))
}

impl Series {
    /// Opens the segments that are there. A torn tail of the last one is cut; appends go to a new
    /// segment.
    pub(crate) fn open(
        disk: &dyn Disk,
        prefix: &'static str,
        segment_bytes: u64,
        durability: Durability,
    ) -> io::Result<Self> {
        let mut series = Series {
            prefix,
            segments: VecDeque::new(),
            is_open: false,
            next_number: 1,
            spans_total: 0,
            segment_bytes,
            durability,
            torn_bytes: 0,
        };
        for number in numbers(disk, prefix)? {
            let mut file = disk.open(&file_name(prefix, number))?;
            let (bytes, header) = (file.bytes()?, read_header(&mut *file, number)?);
            series.next_number = number + 1;
            // Nobody knows what a former process has synced.
            series.segments.push_back(Segment { number, header, bytes, file, is_synced: false });
        }
        // The spans of the log are those before the last readable segment, and those in it.
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

    /// Returns the bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Returns the bytes of a segment that has nothing but this payload.
    pub(crate) fn bytes_alone(payload: usize) -> u64 {
        SEGMENT_START + FRAME_HEADER_BYTES + payload as u64
    }

    /// Returns the bytes that an append of this payload adds.
    pub(crate) fn bytes_for(&self, payload: usize) -> u64 {
        let frame = FRAME_HEADER_BYTES + payload as u64;
        let fits = |last: &Segment| last.bytes == SEGMENT_START || last.bytes + frame <= self.segment_bytes;
        let is_appended = self.is_open && self.segments.back().is_some_and(fits);
        if is_appended { frame } else { SEGMENT_START + frame }
    }

    /// Appends a frame. After an error nothing of it is left, or nothing that is in the way.
    pub(crate) fn append(&mut self, disk: &dyn Disk, entry: &Entry<'_>) -> io::Result<()> {
        let frame_bytes = FRAME_HEADER_BYTES + entry.payload.len() as u64;
        if self.is_open
            && let Some(last) = self.segments.back_mut()
        {
            // A file that somebody removed would take bytes and lose them.
            if !disk.contains(&file_name(self.prefix, last.number)) {
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
                // A segment that was sealed before it was full has had no sync. A sync that failed
                // above has been told.
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
            // A part that cannot be cut is skipped as damage, if nothing is written over it.
            self.is_open = file.cut(*bytes).is_ok();
            return Err(error);
        }
        if self.durability.each_append
            && let Err(error) = file.sync()
        {
            // The kernel may have dropped the pages: nothing more is trusted to this file.
            let is_empty = *bytes == SEGMENT_START;
            let _ = file.cut(*bytes);
            self.is_open = false;
            if is_empty && let Some(segment) = self.segments.pop_back() {
                let _ = disk.remove(&file_name(self.prefix, segment.number));
            }
            return Err(error);
        }
        *bytes += frame_bytes;
        self.spans_total += u64::from(entry.spans);
        Ok(())
    }

    fn begin_segment(&mut self, disk: &dyn Disk) -> io::Result<()> {
        let number = self.next_number;
        let name = file_name(self.prefix, number);
        let mut file = disk.create(&name)?;
        self.next_number += 1;
        // Every hasher of the standard library starts with random keys.
        let salt = RandomState::new().build_hasher().finish() as u32;
        let header = SegmentHeader { salt, number, spans_before: self.spans_total };
        let begun = file
            .write_at(0, &header.encode())
            .and_then(|()| if self.durability.each_append { disk.sync() } else { Ok(()) });
        if let Err(error) = begun {
            // No empty file stays behind.
            let _ = disk.remove(&name);
            return Err(error);
        }
        // With each append, the header is durable as soon as the first frame is.
        let is_synced = self.durability.each_append;
        self.segments.push_back(Segment {
            number,
            header: Some(header),
            bytes: SEGMENT_START,
            file,
            is_synced,
        });
        self.is_open = true;
        Ok(())
    }

    /// Returns the first segment with at least this number.
    pub(crate) fn at_or_after(&self, number: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.number >= number)
    }

    /// Returns the next segment's count of spans before it; the series' total if there is none
    /// whose header is whole.
    pub(crate) fn spans_before_next(&self, number: u64) -> u64 {
        self.begin_of_next(number).unwrap_or(self.spans_total)
    }

    /// The same; `None` if there is no such segment.
    pub(crate) fn begin_of_next(&self, number: u64) -> Option<u64> {
        let mut later = self.segments.iter().filter(|segment| segment.number > number);
        later.find_map(|segment| segment.header).map(|header| header.spans_before)
    }

    /// Looks at a position of a segment.
    pub(crate) fn look(&mut self, number: u64, offset: u64) -> io::Result<Found> {
        match self.segments.iter_mut().find(|segment| segment.number == number) {
            Some(Segment { header: Some(header), bytes, file, .. }) => {
                look(&mut **file, offset, *bytes, header.salt)
            }
            Some(Segment { header: None, .. }) => Ok(Found::Torn),
            None => Ok(Found::End),
        }
    }

    /// Reads a frame's payload; `None` if it is damaged.
    pub(crate) fn payload(
        &mut self,
        number: u64,
        offset: u64,
        header: &FrameHeader,
    ) -> io::Result<Option<Vec<u8>>> {
        let segment = self.segments.iter_mut().find(|segment| segment.number == number);
        let Some(Segment { header: Some(SegmentHeader { salt, .. }), file, .. }) = segment else {
            return Ok(None);
        };
        read_payload(&mut **file, offset, header, *salt)
    }

    /// True if this is the last segment, which may still grow.
    pub(crate) fn is_last(&self, number: u64) -> bool {
        self.segments.back().is_some_and(|segment| segment.number == number)
    }

    /// Ends the last segment: the next append begins a new one.
    pub(crate) fn seal(&mut self) {
        self.is_open = false;
    }

    /// Removes the first segment.
    pub(crate) fn remove_first(&mut self, disk: &dyn Disk) -> io::Result<()> {
        let Some(segment) = self.segments.pop_front() else { return Ok(()) };
        if self.segments.is_empty() {
            self.is_open = false;
        }
        match disk.remove(&file_name(self.prefix, segment.number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Syncs all segments and their names, as far as they were not yet.
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

/// Returns the end of the last whole frame of a segment, and the spans of the log up to there.
fn find_end(segment: &mut Segment) -> io::Result<(u64, u64)> {
    let Some(SegmentHeader { salt, spans_before, .. }) = segment.header else {
        return Ok((segment.bytes, 0));
    };
    let (mut offset, mut spans) = (SEGMENT_START, spans_before);
    loop {
        match look(&mut *segment.file, offset, segment.bytes, salt)? {
            Found::Frame(header) => {
                // The last payload is the one that a crash can have torn.
                let end = offset + header.frame_bytes();
                if end == segment.bytes && read_payload(&mut *segment.file, offset, &header, salt)?.is_none()
                {
                    return Ok((offset, spans));
                }
                spans = spans.max(header.spans_before + u64::from(header.spans));
                offset = end;
            }
            Found::Damage { next } => offset = next,
            Found::Torn | Found::End => return Ok((offset.min(segment.bytes), spans)),
        }
    }
}

/// Reads a payload and checks it.
pub(crate) fn read_payload(
    file: &mut dyn DiskFile,
    offset: u64,
    header: &FrameHeader,
    salt: u32,
) -> io::Result<Option<Vec<u8>>> {
    let mut payload = vec![0; header.payload_bytes as usize];
    let read = file.read_at(offset + FRAME_HEADER_BYTES, &mut payload)?;
    Ok((read == payload.len() && crc(salt, &payload) == header.payload_crc).then_some(payload))
}
