//! Checks every frame of a spool that no process uses. Nothing is changed.

use std::io;

use crate::cursor;
use crate::damage::{Damage, Damages};
use crate::dead::split;
use crate::disk::Disk;
use crate::frame::FrameHeader;
use crate::inventory::Inventory;
use crate::segment::Segment;

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
    /// The damage, and files in the folder that are not part of the spool.
    pub damage: Vec<Damage>,
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
    let noted = cursor::peek(disk)?;
    let position = noted.position.unwrap_or_default();
    let Inventory { mut live, mut dead, mut damage } = Inventory::take(disk, position.segment)?;
    noted.damage().into_iter().for_each(|note| damage.push(note));
    let mut report = Report::default();
    if let (Some(first), Some(settled)) = (live.first(), noted.position.map(|position| position.settled))
        && let Some(header) = first.header
    {
        damage.lost(&first.name, 0, header.spans_before.saturating_sub(settled));
    }
    // A log of which nothing is left, though not everything was settled.
    if live.is_empty() {
        damage.lost("live", 0, noted.ends.live.unwrap_or(0).saturating_sub(position.settled));
    }
    let begins = |segments: &[Segment]| -> Vec<Option<u64>> {
        segments.iter().map(|segment| segment.header.map(|header| header.spans_before)).collect()
    };
    let live_begins = begins(&live);
    for (index, segment) in live.iter_mut().enumerate() {
        let next = live_begins[index + 1..].iter().find_map(|begin| *begin);
        let end = next.or(noted.ends.live.map(|end| end.max(position.settled)));
        let number = segment.number;
        let mut good = |offset: u64, frame: &FrameHeader| {
            let is_behind = (number, offset) >= (position.segment, position.offset);
            if is_behind && !frame.was_refused(next) {
                // The first record may be partly settled.
                report.pending_spans +=
                    frame.spans_after().saturating_sub(position.settled.max(frame.spans_before));
                report.pending_records += 1;
                report.oldest_ns.get_or_insert(frame.time_ns);
            }
        };
        let part = read(segment, end, &mut damage, |offset, frame, _| good(offset, frame))?;
        if segment.header.is_none() && index == 0 {
            damage.lost(&part.name, 0, end.unwrap_or(0).saturating_sub(position.settled));
        }
        // Damage of settled records cost nothing.
        let has_frames =
            segment.header.is_some() && (number < position.segment || segment.bytes >= position.offset);
        let is_settled = |place: &&mut Damage| {
            has_frames
                && place.bytes > 0
                && place.file == part.name
                && (number, place.offset) < (position.segment, position.offset)
        };
        damage.places.iter_mut().filter(is_settled).for_each(|place| place.spans = Some(0));
        report.live.push(part);
    }
    let dead_begins = begins(&dead);
    for (index, segment) in dead.iter_mut().enumerate() {
        let end = dead_begins[index + 1..].iter().find_map(|begin| *begin).or(noted.ends.dead);
        let reasons = &mut report.reasons;
        let segment = read(segment, end, &mut damage, |_, frame, payload| {
            let reason = split(payload).map_or(String::new(), |(reason, _)| reason.to_owned());
            let spans = u64::from(frame.spans);
            if let Some((_, count)) = reasons.iter_mut().find(|(known, _)| *known == reason) {
                *count += spans;
            } else if reasons.len() < REASONS_MAX {
                reasons.push((reason, spans));
            }
        })?;
        report.dead.push(segment);
    }
    report.reasons.sort_by_key(|(_, spans)| std::cmp::Reverse(*spans));
    report.damage = damage.places;
    Ok(report)
}

fn read(
    segment: &mut Segment,
    end: Option<u64>,
    damage: &mut Damages,
    mut good: impl FnMut(u64, &FrameHeader, &[u8]),
) -> io::Result<SegmentReport> {
    let mut report =
        SegmentReport { name: segment.name.clone(), bytes: segment.bytes, ..SegmentReport::default() };
    segment.check(segment.bytes, end, damage, |offset, frame, payload| {
        report.records += 1;
        report.spans += u64::from(frame.spans);
        good(offset, frame, payload);
    })?;
    Ok(report)
}
