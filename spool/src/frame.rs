//! The headers of segments and frames. The crate's documentation has the layout.

use crc32fast::Hasher;

const MAGIC: [u8; 8] = *b"astspool";
const VERSION: u32 = 1;
/// The first bytes of every frame, by which a frame after damage is found.
pub(crate) const MARKER: [u8; 4] = *b"fram";

pub(crate) const HEADER_BYTES: usize = 40;
/// The size of both copies of a segment's header.
pub(crate) const SEGMENT_START: u64 = 2 * HEADER_BYTES as u64;
pub(crate) const FRAME_HEADER_BYTES: u64 = HEADER_BYTES as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) salt: u32,
    pub(crate) number: u64,
    pub(crate) spans_before: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) payload_bytes: u32,
    pub(crate) time_ns: u64,
    pub(crate) spans: u32,
    pub(crate) kind: u32,
    pub(crate) spans_before: u64,
    pub(crate) payload_crc: u32,
}

pub(crate) fn crc(salt: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(salt);
    hasher.update(bytes);
    hasher.finalize()
}

/// Copies fields into a header and appends their checksum.
fn pack(fields: &[&[u8]], salt: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let mut at = 0;
    for field in fields {
        header[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    let sum = crc(salt, &header[..HEADER_BYTES - 4]);
    header[HEADER_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    header
}

fn u32_at(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn u64_at(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from(u32_at(header, at)) | u64::from(u32_at(header, at + 4)) << 32
}

fn is_whole(header: &[u8; HEADER_BYTES], salt: u32) -> bool {
    crc(salt, &header[..HEADER_BYTES - 4]) == u32_at(header, HEADER_BYTES - 4)
}

/// Returns the salt with which the checksum of a frame's header is right. A checksum of fixed
/// length is linear in its seed, so the seed follows from it by running the shifts backwards.
fn salt_of(frame: &[u8; HEADER_BYTES]) -> Option<u32> {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let content = &frame[..HEADER_BYTES - 4];
    let mut salt = crc(0, content) ^ u32_at(frame, HEADER_BYTES - 4);
    for _ in 0..content.len() * 8 {
        let is_reduced = salt >> 31 == 1;
        salt = if is_reduced { ((salt ^ POLYNOMIAL) << 1) | 1 } else { salt << 1 };
    }
    (frame.starts_with(&MARKER) && crc(salt, content) == u32_at(frame, HEADER_BYTES - 4)).then_some(salt)
}

impl SegmentHeader {
    /// Returns both copies.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { salt, number, spans_before } = self;
        let one = pack(
            &[
                &MAGIC,
                &VERSION.to_le_bytes(),
                &salt.to_le_bytes(),
                &number.to_le_bytes(),
                &spans_before.to_le_bytes(),
            ],
            0,
        );
        [one, one].concat()
    }

    /// Returns salts that the segment may have had, if its header is damaged: those in the copies,
    /// and the one that makes the first frame valid.
    pub(crate) fn possible_salts(start: &[u8]) -> [Option<u32>; 3] {
        let header = |at: usize| start.get(at..at + HEADER_BYTES)?.try_into().ok();
        [
            header(0).map(|copy| u32_at(copy, 12)),
            header(HEADER_BYTES).map(|copy| u32_at(copy, 12)),
            header(2 * HEADER_BYTES).and_then(salt_of),
        ]
    }

    /// Decodes the first valid copy.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.chunks_exact(HEADER_BYTES).take(2).find_map(|copy| {
            let header: &[u8; HEADER_BYTES] = copy.try_into().ok()?;
            let is_known = header.starts_with(&MAGIC) && u32_at(header, 8) == VERSION && is_whole(header, 0);
            is_known.then(|| SegmentHeader {
                salt: u32_at(header, 12),
                number: u64_at(header, 16),
                spans_before: u64_at(header, 24),
            })
        })
    }
}

impl FrameHeader {
    pub(crate) fn encode(&self, salt: u32) -> [u8; HEADER_BYTES] {
        let Self { payload_bytes, time_ns, spans, kind, spans_before, payload_crc } = self;
        pack(
            &[
                &MARKER,
                &payload_bytes.to_le_bytes(),
                &time_ns.to_le_bytes(),
                &spans.to_le_bytes(),
                &kind.to_le_bytes(),
                &spans_before.to_le_bytes(),
                &payload_crc.to_le_bytes(),
            ],
            salt,
        )
    }

    pub(crate) fn decode(bytes: &[u8], salt: u32) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = bytes.try_into().ok()?;
        (header.starts_with(&MARKER) && is_whole(header, salt)).then(|| FrameHeader {
            payload_bytes: u32_at(header, 4),
            time_ns: u64_at(header, 8),
            spans: u32_at(header, 16),
            kind: u32_at(header, 20),
            spans_before: u64_at(header, 24),
            payload_crc: u32_at(header, 32),
        })
    }

    /// Returns the size of header and payload in bytes.
    pub(crate) fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES + u64::from(self.payload_bytes)
    }

    /// Returns the number of spans of the log up to the end of this frame.
    pub(crate) fn spans_after(&self) -> u64 {
        self.spans_before.saturating_add(self.spans.into())
    }

    /// True if the append of this frame failed and the frame could not be removed. The next segment
    /// then begins with the spans that this frame claims.
    pub(crate) fn was_refused(&self, spans_before_next: Option<u64>) -> bool {
        self.spans > 0 && spans_before_next.is_some_and(|next| self.spans_before >= next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_header_is_laid_out_as_documented() {
        let header = FrameHeader {
            payload_bytes: 0x0102,
            time_ns: 0x0a0b_0c0d,
            spans: 3,
            kind: 4,
            spans_before: 5,
            payload_crc: 6,
        };
        let bytes = header.encode(7);
        let mut expected =
            b"fram\x02\x01\0\0\x0d\x0c\x0b\x0a\0\0\0\0\x03\0\0\0\x04\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0"
                .to_vec();
        expected.extend_from_slice(&crc(7, &expected).to_le_bytes());
        assert_eq!(bytes[..], expected[..]);
        assert_eq!(FrameHeader::decode(&bytes, 7), Some(header));
        assert_eq!(salt_of(&bytes), Some(7));
        // The salt of another segment.
        assert_eq!(FrameHeader::decode(&bytes, 8), None);
    }

    /// The check value of CRC-32/ISO-HDLC for "123456789", from the catalogue of parametrised CRC
    /// algorithms.
    #[test]
    fn the_checksum_is_crc_32() {
        assert_eq!(crc(0, b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn one_copy_of_a_segment_header_may_be_damaged() {
        let header = SegmentHeader { salt: 1, number: 2, spans_before: 3 };
        let bytes = header.encode();
        assert_eq!(bytes.len() as u64, SEGMENT_START);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&damaged), Some(header), "bit {bit}");
        }
        assert_eq!(SegmentHeader::decode(&bytes[..39]), None);
    }
}
