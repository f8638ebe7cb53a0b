//! The export format of journald: a block of `KEY=value` lines for each record.
//!
//! A value with line ends is binary: the key alone on a line, the length of the value as 64 bits,
//! and the value (systemd, "Journal Export Formats").

use std::borrow::Cow;

use super::json_lines::{Found, Shared};
use astracer_model::text::lossy;
use astracer_model::value::Value;

/// Lines within which a block states its time.
const BLOCK_LINES: usize = 20;

/// The key that begins each block of a file with these first lines; `None` if it is no export.
///
/// Journald writes the cursor first, and filters may leave it out.
pub(super) fn first_key<'t>(lines: &[&'t [u8]]) -> Option<&'t [u8]> {
    let is_key = |key: &[u8]| {
        !key.is_empty()
            && key.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_')
    };
    let first = lines.first()?;
    let key = &first[..memchr::memchr(b'=', first)?];
    let has_time = || {
        let mut block = lines.iter().take(BLOCK_LINES);
        block.any(|line| line.starts_with(b"__REALTIME_TIMESTAMP="))
    };
    (is_key(key) && (key == b"__CURSOR" || has_time())).then_some(key)
}

/// Reads a block.
pub(super) fn read<'t>(block: &'t [u8], shared: &Shared) -> Found<'t> {
    let mut found = Found::new(shared);
    let mut rest = block;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        let (key, value) = match memchr::memchr(b'=', line) {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => {
                let Some((len, behind)) = rest.split_first_chunk::<8>() else { continue };
                let Ok(len) = usize::try_from(u64::from_le_bytes(*len)) else { continue };
                let Some(value) = behind.get(..len) else { continue };
                rest = behind.get(len + 1..).unwrap_or_default();
                (line, value)
            }
        };
        if !key.is_empty() && key != b"__CURSOR" {
            let text = |bytes: &'t [u8]| -> Cow<'t, str> { lossy(bytes) };
            found.member(text(key), Value::String(text(value)), true);
        }
    }
    found
}
