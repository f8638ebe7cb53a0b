//! Reads small files, which options name.

use std::io::{self, Read};

/// Reads the whole input; `None` if it is larger than `most` bytes. A path may be a device that
/// never ends.
pub(crate) fn read_within(input: impl Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    input.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_input_is_refused() {
        assert_eq!(read_within(&b"abc"[..], 3).unwrap(), Some(b"abc".to_vec()));
        assert_eq!(read_within(&b"abc"[..], 2).unwrap(), None);
        assert_eq!(read_within(io::repeat(0), 1000).unwrap(), None);
    }
}
