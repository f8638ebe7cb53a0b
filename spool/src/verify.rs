//! Checks every frame of a spool that no process uses. Nothing is changed.

use std::io;

use crate::cursor;
use crate::cursor::Failure;
use crate::damage::{Damage, Damages};
use crate::disk::Disk;
use crate::frame::FrameHeader;
use crate::gone::{gone, gone_after};
use crate::inventory::Inventory;
use crate::ledger::{Book, Ledger};
use crate::letters::{split, uncommitted};
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
    /// Acknowledged spans by their end, as they are stored; those that wait and those in dead
    /// letters are counted in the files. Damage that no process has found yet is missing from it.
    pub ledger: Ledger,
    /// True if the stored ledger is damaged, so that the counts begin anew.
    pub is_ledger_lost: bool,
    /// The last failure of the destination.
    pub failure: Option<Failure>,
}

impl Report {
    /// Returns the acknowledged spans without an end: neither stored, nor waiting, nor a dead
    /// letter. The damage names their files.
    pub fn unaccounted(&self) -> u64 {
        let Ledger { acknowledged, passed_on, dead, queued_again, unrecorded, waiting, .. } = self.ledger;
        acknowledged
            .saturating_sub(passed_on + dead + queued_again + unrecorded + waiting + self.ledger.lost())
    }

    /// True if each acknowledged span has exactly one end, or waits.
    pub fn is_proven(&self) -> bool {
        self.ledger.is_balanced() && !self.is_ledger_lost
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
    let lost = noted.damage(!live.is_empty() || !dead.is_empty());
    let is_ledger_lost = lost.is_some();
    lost.into_iter().for_each(|note| damage.push(note));
    let mut report = Report::default();
    if let (Some(first), Some(settled)) = (live.first(), noted.position.map(|position| position.settled))
        && let Some(header) = first.header
    {
        let gone = gone(disk, "live", position.segment.max(1)..first.number);
        damage.lost_with((&first.name, 0), gone, header.spans_before.saturating_sub(settled));
    }
    // A log of which nothing is left, though not everything was settled.
    if live.is_empty() {
        let first = position.segment.max(1);
        let gone = gone(disk, "live", first..first.saturating_add(2));
        damage.lost_with(("live", 0), gone, noted.end.unwrap_or(0).saturating_sub(position.settled));
    }
    let begins = |segments: &[Segment]| -> Vec<Option<u64>> {
        segments.iter().map(|segment| segment.header.map(|header| header.spans_before)).collect()
    };
    let numbers =
        |segments: &[Segment]| -> Vec<u64> { segments.iter().map(|segment| segment.number).collect() };
    let (live_begins, live_numbers) = (begins(&live), numbers(&live));
    let mut frames_end = 0;
    for (index, segment) in live.iter_mut().enumerate() {
        let next = live_begins[index + 1..].iter().find_map(|begin| *begin);
        let end = next.or(noted.end.map(|end| end.max(position.settled)));
        let number = segment.number;
        let mut good = |offset: u64, frame: &FrameHeader| {
            let is_behind = (number, offset) >= (position.segment, position.offset);
            if frame.was_refused(next) {
                return;
            }
            frames_end = frames_end.max(frame.spans_after());
            if is_behind {
                // The first record may be partly settled.
                report.pending_spans +=
                    frame.spans_after().saturating_sub(position.settled.max(frame.spans_before));
                report.pending_records += 1;
                report.oldest_ns.get_or_insert(frame.time_ns);
            }
        };
        let part = read(segment, end, &mut damage, |offset, frame, _| good(offset, frame))?;
        damage.name_gone((&part.name, part.bytes), gone_after(disk, "live", &live_numbers[index..]));
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
    let first_begin = live_begins.first().copied().flatten();
    let settled = noted.position.map(|position| position.settled).max(first_begin).unwrap_or(0);
    let (dead_begins, dead_numbers) = (begins(&dead), numbers(&dead));
    let tails = uncommitted(&mut dead, settled)?;
    let mut letters = 0;
    for (index, segment) in dead.iter_mut().enumerate() {
        let end = dead_begins[index + 1..].iter().find_map(|begin| *begin).or(noted.dead_end);
        let tail = tails.iter().find(|tail| tail.0 == index);
        let reasons = &mut report.reasons;
        let segment = read(segment, end, &mut damage, |offset, frame, payload| {
            // The next process removes letters whose records wait again.
            if frame.was_refused(end) || tail.is_some_and(|tail| offset >= tail.1) {
                return;
            }
            let spans = u64::from(frame.spans);
            letters += spans;
            let reason = split(frame.kind, payload).map_or(String::new(), |(_, reason, _)| reason.to_owned());
            if let Some((_, count)) = reasons.iter_mut().find(|(known, _)| *known == reason) {
                *count += spans;
            } else if reasons.len() < REASONS_MAX {
                reasons.push((reason, spans));
            }
        })?;
        damage.name_gone((&segment.name, segment.bytes), gone_after(disk, "dead", &dead_numbers[index..]));
        report.dead.push(segment);
    }
    let mut book = noted.book.unwrap_or_else(|| Book::begin(settled, letters));
    let last = report.dead.last().map_or(("dead", 0), |last| (&*last.name, last.bytes));
    damage.missing_letters(last, book.letters.kept.saturating_sub(letters));
    if letters > book.letters.kept {
        book.find_letters(letters);
    }
    book.letters.kept = letters;
    let total = noted.end.unwrap_or(0).max(frames_end).max(book.settled());
    report.ledger = book.view(total, report.pending_spans);
    report.is_ledger_lost = is_ledger_lost;
    report.failure = noted.failure;
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
