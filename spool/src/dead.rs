//! The way of dead letters back to the queue.

use std::io;

use crate::frame::SEGMENT_START;
use crate::letters::{WITH_UNTIL, split};
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

impl Spool {
    /// Moves dead letters back to the end of the queue. `spans_of` gets each letter and returns the
    /// number of spans in its payload, or `None` if the letter stays.
    ///
    /// # Errors
    ///
    /// If the disk fails, or [`Settings::with_max_bytes`](crate::Settings::with_max_bytes) is
    /// reached. The letters of one segment may then be both in the queue and in the dead letters.
    pub fn revive(&mut self, spans_of: impl FnMut(&DeadLetter<'_>) -> Option<u32>) -> io::Result<Revived> {
        // Making room for a record may end others, whose letters must not evict those of this loop.
        self.holds_letters = true;
        let revived = self.revive_segments(spans_of);
        self.holds_letters = false;
        revived
    }

    fn revive_segments(
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
            let (mut offset, mut spans_here, mut queued_here, mut left_here) = (SEGMENT_START, 0, 0, 0);
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
                let letter = split(kind, &payload)
                    .map(|(_, reason, payload)| DeadLetter {
                        reason,
                        kind: kind & !WITH_UNTIL,
                        spans,
                        payload,
                    })
                    .and_then(|letter| Some((spans_of(&letter)?, letter)));
                match letter {
                    Some((count, letter)) => {
                        let (kind, payload) = (letter.kind, letter.payload);
                        let entry = Entry { kind, time_ns, spans: count, payload };
                        self.append_waiting(&entry).map_err(io::Error::other)?;
                        queued_here += u64::from(spans);
                        revived.queued += u64::from(count);
                    }
                    None => {
                        // Appended as it is. It is the same letter until the first one is removed.
                        self.dead.append(&*self.disk, &Entry { kind, time_ns, spans, payload: &payload })?;
                        left_here += u64::from(spans);
                    }
                }
            }
            self.sync()?;
            revived.spans += queued_here;
            revived.left += left_here;
            let before = self.book;
            let letters = &mut self.book.letters;
            // Copies that a failed call has left are not in the ledger.
            let gone = spans_here.min(letters.kept + left_here).max(left_here) - left_here;
            letters.kept -= gone;
            letters.queued_again += gone;
            if !self.write_cursor() {
                self.book = before;
                return Err(io::Error::other("the ledger cannot be written"));
            }
            self.counts.dead_letters = self.book.letters.kept;
            self.remove_first_letters();
        }
        Ok(revived)
    }
}
