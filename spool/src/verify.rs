//! Checks every frame of a spool that no process uses. Nothing is changed.

use std::io;

use crate::cursor;
use crate::disk::Disk;
use crate::frame::{FrameHeader, SEGMENT_START};
use crate::scan::{Found, look};
use crate::series::{file_name, numbers, read_header, read_payload};

/// The state of a spool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The segments of waiting records, oldest first.
    pub live: Vec<SegmentReport>,
    /// The segments of dead letters, oldest first.
    pub dead: Vec<SegmentReport>,
    /// The number of unsettled spans in good frames after the cursor.
    pub pending_spans: u64,
    /// The number of records in good frames after the cursor.
    pub pending_records: u64,
    /// The time of the oldest of these records, in nanoseconds since 1970.
    pub oldest_ns: Option<u64>,
    /// The reasons of the dead letters, with their numbers of spans, most frequent first.
    pub reasons: Vec<(String, u64)>,
}

impl Report {
    /// Iterates over the damaged parts, each with the name of its file.
    pub fn damage(&self) -> impl Iterator<Item = (&str, &Damage)> {
        let all = self.live.iter().chain(&self.dead);
        all.flat_map(|segment| segment.damage.iter().map(|damage| (&*segment.name, damage)))
    }
}

/// The state of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentReport {
    /// The name of the file.
    pub name: String,
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The number of good records, settled or not.
    pub records: u64,
    /// The number of spans in good records.
    pub spans: u64,
    /// The parts without a good frame.
    pub damage: Vec<Damage>,
}

/// A part of a file without a good frame.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The offset of the first byte.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// Description of the damage.
    pub description: &'static str,
}

/// The maximum number of different reasons that are listed.
const REASONS_MAX: usize = 100;

/// Reads every frame of a spool.
///
/// # Errors
///
/// [`io::ErrorKind::WouldBlock`] if a process uses the spool; otherwise the error of reading it.
pub fn verify(disk: &dyn Disk) -> io::Result<Report> {
    let _lock = disk.lock()?;
    let position = cursor::peek(disk)?.unwrap_or_default();
    let mut report = Report::default();
    let live = numbers(disk, "live")?;
    let begins = live.iter().map(|&number| {
        let header = read_header(&mut *disk.open(&file_name("live", number))?, number)?;
        Ok(header.map(|header| header.spans_before))
    });
    let begins = begins.collect::<io::Result<Vec<_>>>()?;
    for (index, &number) in live.iter().enumerate() {
        let next = begins[index + 1..].iter().find_map(|begin| *begin);
        let segment = segment(disk, "live", number, |offset, frame, _| {
            let is_behind = (number, offset) >= (position.segment, position.offset);
            if is_behind && !frame.was_refused(next) {
                // The first record may be partly settled.
                let after = frame.spans_before + u64::from(frame.spans);
                report.pending_spans += after.saturating_sub(position.settled.max(frame.spans_before));
                report.pending_records += 1;
                report.oldest_ns.get_or_insert(frame.time_ns);
            }
        })?;
        report.live.push(segment);
    }
    for number in numbers(disk, "dead")? {
        let reasons = &mut report.reasons;
        let segment = segment(disk, "dead", number, |_, frame, payload| {
            let (reason, spans) = (reason(payload).unwrap_or_default(), u64::from(frame.spans));
            if let Some((_, count)) = reasons.iter_mut().find(|(known, _)| *known == reason) {
                *count += spans;
            } else if reasons.len() < REASONS_MAX {
                reasons.push((reason, spans));
            }
        })?;
        report.dead.push(segment);
    }
    report.reasons.sort_by_key(|(_, spans)| std::cmp::Reverse(*spans));
    Ok(report)
}

/// The reason at the beginning of a dead letter.
fn reason(payload: &[u8]) -> Option<String> {
    let (length, rest) = payload.split_first_chunk::<2>()?;
    let text = rest.get(..usize::from(u16::from_le_bytes(*length)))?;
    Some(String::from_utf8_lossy(text).into_owned())
}

fn segment(
    disk: &dyn Disk,
    prefix: &str,
    number: u64,
    mut good: impl FnMut(u64, &FrameHeader, &[u8]),
) -> io::Result<SegmentReport> {
    let name = file_name(prefix, number);
    let mut file = disk.open(&name)?;
    let bytes = file.bytes()?;
    let mut report = SegmentReport { name, bytes, ..SegmentReport::default() };
    let Some(header) = read_header(&mut *file, number)? else {
        report.damage.push(Damage { offset: 0, bytes, description: "damaged segment header" });
        return Ok(report);
    };
    let mut offset = SEGMENT_START;
    loop {
        match look(&mut *file, offset, bytes, header.salt)? {
            Found::Frame(frame) => {
                match read_payload(&mut *file, offset, &frame, header.salt)? {
                    Some(payload) => {
                        report.records += 1;
                        report.spans += u64::from(frame.spans);
                        good(offset, &frame, &payload);
                    }
                    None => report.damage.push(Damage {
                        offset,
                        bytes: frame.frame_bytes(),
                        description: "payload does not match its checksum",
                    }),
                }
                offset += frame.frame_bytes();
            }
            Found::Damage { next } => {
                report.damage.push(Damage {
                    offset,
                    bytes: next - offset,
                    description: "no valid frame begins here",
                });
                offset = next;
            }
            Found::Torn => {
                report.damage.push(Damage { offset, bytes: bytes - offset, description: "unfinished frame" });
                return Ok(report);
            }
            Found::End => return Ok(report),
        }
    }
}
