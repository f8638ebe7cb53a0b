//! Protobuf's varints: seven bits per byte, the lowest first; all bytes except the last have the
//! highest bit set.
//!
//! `prost` has the same functions in its encoding module, but that is hidden from its documentation
//! and reads only from a `Buf`. The readers here need the size of a varint in a slice that may be
//! truncated.

/// The maximum size of a varint.
pub(crate) const BYTES_MAX: usize = 10;

/// A varint and its size; `None` if it does not end within ten bytes or the slice.
#[inline]
pub(crate) fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(BYTES_MAX).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some((value, index + 1));
        }
    }
    None
}

/// The bytes of a varint and their number.
#[inline]
pub(crate) fn encode(mut value: u64) -> ([u8; BYTES_MAX], usize) {
    let (mut bytes, mut used) = ([0; BYTES_MAX], 0);
    while value >= 0x80 {
        bytes[used] = value as u8 | 0x80;
        value >>= 7;
        used += 1;
    }
    bytes[used] = value as u8;
    (bytes, used + 1)
}

/// Appends a varint.
#[inline]
pub(crate) fn append(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(value as u8);
    } else {
        let (bytes, used) = encode(value);
        out.extend_from_slice(&bytes[..used]);
    }
}

#[cfg(test)]
mod tests {
    use super::{append, encode, read};

    #[test]
    fn boundaries() {
        // The smallest and largest value of each size, and the encoding of 300 from protobuf's
        // documentation.
        for bits in 0..64 {
            for value in [1u64 << bits, (1u64 << bits) - 1, u64::MAX >> bits] {
                let mut out = Vec::new();
                append(&mut out, value);
                let (bytes, used) = encode(value);
                assert_eq!(out, bytes[..used], "{value}");
                assert_eq!(read(&out), Some((value, out.len())), "{value}");
                assert_eq!(read(&out[..out.len() - 1]), None, "{value}, truncated");
            }
        }
        assert_eq!(encode(300).0[..2], [0xac, 0x02]);
        assert_eq!(read(&[0x80; 11]), None, "more than ten bytes");
    }
}
