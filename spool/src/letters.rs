//! The payload of dead letters, and those that do not count.

use std::io;

use crate::damage::Damages;
use crate::segment::Segment;

/// Set in the kind of a letter that begins with the number of spans that must have ended. Those of
/// version 1 begin with the reason.
pub(crate) const WITH_UNTIL: u32 = 1 << 31;

/// Makes the payload of a letter.
pub(crate) fn join(until: u64, reason: &str, record: &[u8]) -> Vec<u8> {
    let mut end = reason.len().min(usize::from(u16::MAX));
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let mut letter = Vec::with_capacity(8 + 2 + end + record.len());
    letter.extend_from_slice(&until.to_le_bytes());
    letter.extend_from_slice(&(end as u16).to_le_bytes());
    letter.extend_from_slice(&reason.as_bytes()[..end]);
    letter.extend_from_slice(record);
    letter
}

/// Splits a letter into the number of spans that must have ended, the reason, and the record.
pub(crate) fn split(kind: u32, payload: &[u8]) -> Option<(u64, &str, &[u8])> {
    let (until, payload) = match kind & WITH_UNTIL {
        0 => (0, payload),
        _ => payload.split_first_chunk::<8>().map(|(until, rest)| (u64::from_le_bytes(*until), rest))?,
    };
    let (length, rest) = payload.split_first_chunk::<2>()?;
    let (reason, record) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((until, std::str::from_utf8(reason).ok()?, record))
}

/// Finds the letters at the end of the log whose records wait again, because fewer than their
/// number of spans have ended. Returns for each of the last segments its index, the offset of the
/// first such letter, and the number of spans before it; the last segment first.
pub(crate) fn uncommitted(segments: &mut [Segment], settled: u64) -> io::Result<Vec<(usize, u64, u64)>> {
    let mut tails = Vec::new();
    for (index, segment) in segments.iter_mut().enumerate().rev() {
        let (mut first, mut is_whole) = (None, true);
        segment.check(segment.bytes, None, &mut Damages::default(), |offset, frame, payload| {
            let is_early = split(frame.kind, payload).is_some_and(|(until, ..)| until > settled);
            first = if is_early { first.or(Some((index, offset, frame.spans_before))) } else { None };
            is_whole &= is_early;
        })?;
        tails.extend(first);
        if !is_whole {
            break;
        }
    }
    Ok(tails)
}
