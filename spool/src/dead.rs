//! Dead letters: their reasons, and their way back to the queue.

use std::io;

use crate::frame::SEGMENT_START;
use crate::scan::Found;
use crate::series::Entry;
use crate::spool::Spool;

/// A rejected record.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DeadLetter<'l> {
    /// The reason for the rejection.
    pub reason: &'l str,
    /// The kind, defined by the user of the spool.
    pub kind: u32,
    /// The number of rejected spans. The payload may have more.
    pub spans: u32,
    /// The whole record.
    pub payload: &'l [u8],
}

/// The result of [`Spool::revive`], in spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revived {
    /// Rejected spans of the records that are in the queue again.
    pub spans: u64,
    /// All spans of these records, including those that were accepted before.
    pub queued: u64,
    /// Rejected spans of the letters that stay.
    pub left: u64,
}

/// Splits a dead letter into reason and record.
pub(crate) fn split(payload: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = payload.split_first_chunk::<2>()?;
    let (reason, record) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((std::str::from_utf8(reason).ok()?, record))
}

impl Spool {
    /// Moves dead letters back to the end of the queue. `spans_of` gets each letter and returns the
    /// number of spans in its payload, or `None` if the letter stays.
    ///
    /// # Errors
    ///
    /// If the disk fails, or [`Settings::with_max_bytes`](crate::Settings::with_max_bytes) is
    /// reached. The letters of one segment may then be both in the queue and in the dead letters.
    pub fn revive(
        &mut self,
        mut spans_of: impl FnMut(&DeadLetter<'_>) -> Option<u32>,
    ) -> io::Result<Revived> {
        let mut revived = Revived::default();
        let Some(last) = self.dead.segments.back().map(|segment| segment.number) else { return Ok(revived) };
        self.dead.seal();
        while let Some(number) = self.dead.segments.front().map(|first| first.number)
            && number <= last
        {
            let next = self.dead.begin_of_next(number);
            let (mut offset, mut spans_here) = (SEGMENT_START, 0);
            while let Some(segment) = self.dead.segment(number) {
                let frame = match segment.look(offset)? {
                    Found::Frame(frame) => frame,
                    Found::Damage { next } => {
                        offset = next;
                        continue;
                    }
                    Found::Torn | Found::End => break,
                };
                let payload = segment.payload(offset, &frame)?;
                offset += frame.frame_bytes();
                let Some(payload) = payload.filter(|_| !frame.was_refused(next)) else { continue };
                let (kind, time_ns, spans) = (frame.kind, frame.time_ns, frame.spans);
                spans_here += u64::from(spans);
                let letter = split(&payload)
                    .map(|(reason, payload)| DeadLetter { reason, kind, spans, payload })
                    .and_then(|letter| Some((spans_of(&letter)?, letter)));
                match letter {
                    Some((count, letter)) => {
                        self.append(kind, time_ns, count, letter.payload).map_err(io::Error::other)?;
                        revived.spans += u64::from(spans);
                        revived.queued += u64::from(count);
                    }
                    None => {
                        self.bury_again(&Entry { kind, time_ns, spans, payload: &payload })?;
                        revived.left += u64::from(spans);
                    }
                }
            }
            self.sync()?;
            self.counts.dead_letters = self.counts.dead_letters.saturating_sub(spans_here);
            if self.dead.remove_first(&*self.disk).is_err() {
                self.counts.disk_errors += 1;
            }
        }
        Ok(revived)
    }

    /// Appends a letter as it is to the dead letters.
    fn bury_again(&mut self, letter: &Entry<'_>) -> io::Result<()> {
        self.dead.append(&*self.disk, letter)?;
        self.counts.dead_letters += u64::from(letter.spans);
        self.write_end(crate::cursor::Log::Dead);
        Ok(())
    }
}
