//! Scans the frames of a segment and skips damage.

use std::io;

use crate::disk::DiskFile;
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, HEADER_BYTES, MARKER};

/// The number of bytes read at a time during the search for the next frame.
const CHUNK_BYTES: usize = 64 << 10;

/// The result of [`look`] at one position of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A frame with a valid header that lies within the segment. Its payload has not been checked.
    Frame(FrameHeader),
    /// No frame begins here; the next one begins at this offset.
    Damage { next: u64 },
    /// No frame begins here or later.
    Torn,
    /// The segment ends here.
    End,
}

/// Reads the frame header at `offset` of a segment that is `bytes` long. If there is none, searches
/// for the next one.
pub(crate) fn look(file: &mut dyn DiskFile, offset: u64, bytes: u64, salt: u32) -> io::Result<Found> {
    if offset >= bytes {
        return Ok(Found::End);
    }
    if let Some(header) = header_at(file, offset, bytes, salt)? {
        return Ok(Found::Frame(header));
    }
    // The search is linear in the segment: each byte is searched once, and a candidate costs one
    // header.
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = offset + 1;
    while at < bytes {
        let wanted = CHUNK_BYTES.min(usize::try_from(bytes - at).unwrap_or(CHUNK_BYTES));
        let read = file.read_at(at, &mut chunk[..wanted])?;
        for (index, window) in chunk[..read].windows(MARKER.len()).enumerate() {
            let candidate = at + index as u64;
            if window == MARKER && header_at(file, candidate, bytes, salt)?.is_some() {
                return Ok(Found::Damage { next: candidate });
            }
        }
        if read < MARKER.len() {
            break;
        }
        // A marker may cross the boundary between chunks.
        at += (read - (MARKER.len() - 1)) as u64;
    }
    Ok(Found::Torn)
}

fn header_at(file: &mut dyn DiskFile, offset: u64, bytes: u64, salt: u32) -> io::Result<Option<FrameHeader>> {
    let mut header = [0; HEADER_BYTES];
    if bytes - offset < FRAME_HEADER_BYTES || file.read_at(offset, &mut header)? < HEADER_BYTES {
        return Ok(None);
    }
    let header = FrameHeader::decode(&header, salt);
    Ok(header.filter(|header| header.frame_bytes() <= bytes - offset))
}
