//! One file of a log.

use std::io;

use crate::damage::{Damage, Damages};
use crate::disk::{Disk, DiskFile};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, HEADER_BYTES, SEGMENT_START, SegmentHeader, crc};
use crate::scan::{Found, look};

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// The name of the file; somebody may have renamed it.
    pub(crate) name: String,
    /// `None` for an empty file.
    pub(crate) header: Option<SegmentHeader>,
    /// True if both copies of the header are damaged and `header` was derived from the frames.
    pub(crate) is_recovered: bool,
    /// The length up to which whole frames were written.
    pub(crate) bytes: u64,
    pub(crate) file: Box<dyn DiskFile>,
    /// True if the content and the name are durable.
    pub(crate) is_synced: bool,
}

pub(crate) fn file_name(prefix: &str, number: u64) -> String {
    format!("{prefix}-{number:08}.seg")
}

impl Segment {
    /// Opens a file and reads its header, which its frames can replace. `number` is the one in the
    /// file's name.
    pub(crate) fn open(disk: &dyn Disk, name: String, number: Option<u64>) -> io::Result<Self> {
        let mut file = disk.open(&name)?;
        let bytes = file.bytes()?;
        let mut start = [0; SEGMENT_START as usize + HEADER_BYTES];
        let read = file.read_at(0, &mut start)?;
        let mut header = SegmentHeader::decode(&start[..read.min(SEGMENT_START as usize)]);
        let mut is_recovered = false;
        if let (None, Some(number)) = (header, number) {
            header = recover(&mut *file, bytes, &start, number)?;
            is_recovered = header.is_some();
        }
        let number = header.map(|header| header.number).or(number).unwrap_or_default();
        // Whether an earlier process synced the segment is unknown.
        Ok(Segment { number, name, header, is_recovered, bytes, file, is_synced: false })
    }

    /// Reads the frame header at an offset, or finds the next one.
    pub(crate) fn look(&mut self, offset: u64) -> io::Result<Found> {
        match self.header {
            Some(header) => look(&mut *self.file, offset, self.bytes, header.salt),
            None => Ok(Found::End),
        }
    }

    /// Reads a payload; `None` if it is damaged.
    pub(crate) fn payload(&mut self, offset: u64, frame: &FrameHeader) -> io::Result<Option<Vec<u8>>> {
        let salt = self.header.map_or(0, |header| header.salt);
        read_payload(&mut *self.file, offset, frame, salt)
    }

    /// Reads every frame before `until`, and adds the damage to a list. `next` is the number of
    /// spans before the next segment, if that is known.
    pub(crate) fn check(
        &mut self,
        until: u64,
        next: Option<u64>,
        damage: &mut Damages,
        mut good: impl FnMut(u64, &FrameHeader, &[u8]),
    ) -> io::Result<()> {
        let Some(header) = self.header else { return Ok(()) };
        let (mut offset, mut spans) = (SEGMENT_START, header.spans_before);
        while offset < until {
            match self.look(offset)? {
                Found::Frame(frame) => {
                    let payload = self.payload(offset, &frame)?;
                    if !frame.was_refused(next) {
                        damage.lost(&self.name, offset, frame.spans_before.saturating_sub(spans));
                        spans = spans.max(frame.spans_after());
                    }
                    match payload {
                        Some(payload) => good(offset, &frame, &payload),
                        None => damage.push(Damage {
                            spans: Some(if frame.was_refused(next) { 0 } else { frame.spans.into() }),
                            ..Damage::new(&self.name, (offset, frame.frame_bytes()), BAD_PAYLOAD)
                        }),
                    }
                    offset += frame.frame_bytes();
                }
                Found::Damage { next } => {
                    damage.push(Damage::new(&self.name, (offset, next - offset), NO_FRAME));
                    offset = next;
                }
                Found::Torn => {
                    damage.push(Damage::new(&self.name, (offset, self.bytes - offset), UNFINISHED));
                    break;
                }
                Found::End => break,
            }
        }
        if let Some(next) = next.filter(|_| until >= self.bytes) {
            damage.lost(&self.name, self.bytes, next.saturating_sub(spans));
        }
        Ok(())
    }
}

pub(crate) const BAD_PAYLOAD: &str = "payload does not match its checksum";
pub(crate) const NO_FRAME: &str = "no valid frame begins here";
pub(crate) const UNFINISHED: &str = "unfinished frame";

/// Derives a header from what is left of its copies and from the first frame. The checksums of a
/// frame verify the salt.
fn recover(
    file: &mut dyn DiskFile,
    bytes: u64,
    start: &[u8; SEGMENT_START as usize + HEADER_BYTES],
    number: u64,
) -> io::Result<Option<SegmentHeader>> {
    for salt in SegmentHeader::possible_salts(start).into_iter().flatten() {
        let mut offset = SEGMENT_START;
        loop {
            match look(file, offset, bytes, salt)? {
                Found::Frame(frame) => {
                    if read_payload(file, offset, &frame, salt)?.is_some() {
                        return Ok(Some(SegmentHeader { salt, number, spans_before: frame.spans_before }));
                    }
                    offset += frame.frame_bytes();
                }
                Found::Damage { next } => offset = next,
                Found::Torn | Found::End => break,
            }
        }
    }
    Ok(None)
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
