//! Detects the format of a file from its first bytes, regardless of its name.
//!
//! The prefix is scanned for the few keys, columns or tags that distinguish the formats. The scan
//! tolerates truncated and damaged records, and nothing is parsed twice. For a file in an unknown
//! format, the result is a reason that a user can act on.

use astracer_model::Format;

use super::nezha_csv;

mod json;
mod others;
mod proto;

pub(super) use proto::{is_answer, is_log_request};

/// The result of detection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detection {
    /// The file contains traces of this format.
    Format(Format),
    /// The file contains something else, described here; the detection may be wrong.
    Other(String),
    /// The file contains no traces as it is, whatever its format: it is empty, or packed in a way
    /// that is not supported.
    Unusable(String),
    /// The prefix is inconclusive. If no further bytes follow, the file is something else,
    /// described here.
    Open(String),
}

/// The description of files of OTLP requests without spans, as a receiver of logs writes them.
pub const OTHER_SIGNALS: &str = "OTLP logs or metrics, without spans";

/// The number of further lines that are tried if the first line is damaged.
const RESTARTS_MAX: usize = 16;

/// Detects the format from the first bytes of a file. `complete` is true if these are all the bytes
/// of the file.
///
/// 64 KiB are enough for nearly every file, because the keys of a record come near its start. If a
/// record has a large value before them, the result is open, and more bytes decide.
pub fn detect(prefix: &[u8], complete: bool) -> Detection {
    if prefix.is_empty() {
        return Detection::Unusable("empty".to_owned());
    }
    if let Some(known) = known_binary(prefix) {
        return Detection::Unusable(known.to_owned());
    }
    let text = skip_blank(prefix);
    if text.is_empty() {
        let reason = "blank".to_owned();
        return if complete { Detection::Unusable(reason) } else { Detection::Open(reason) };
    }
    if let b'{' | b'[' = text[0] {
        return match json::scan(text, complete) {
            found @ Detection::Format(_) => found,
            other => {
                // A logger's prefix, such as `[main]`, begins like a list.
                let is_logged = text[0] == b'['
                    && !matches!(
                        text[1..].trim_ascii_start().first(),
                        None | Some(b'{' | b'[' | b']' | b'"')
                    );
                let logged = if is_logged { prefixed(text) } else { None };
                restarted(text).or(logged).unwrap_or(other)
            }
        };
    }
    if proto::is_request(prefix) {
        return Detection::Format(Format::OtlpProto);
    }
    if is_binary(text) {
        return Detection::Other("binary data in an unknown format".to_owned());
    }
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or(text);
    if nezha_csv::is_header(line) {
        return Detection::Format(Format::NezhaCsv);
    }
    if let Some(found) = restarted(text).or_else(|| prefixed(text)) {
        return found;
    }
    let separators = line.iter().filter(|&&byte| matches!(byte, b',' | b'\t')).count();
    let kind = if separators >= 2 { "a table without span columns" } else { "text, not traces" };
    Detection::Other(kind.to_owned())
}

fn other_or_open(reason: impl Into<String>, complete: bool) -> Detection {
    if complete { Detection::Other(reason.into()) } else { Detection::Open(reason.into()) }
}

/// Tries the following lines if the first is damaged, as it is after a log was rotated in the
/// middle of a record.
fn restarted(text: &[u8]) -> Option<Detection> {
    let starts = memchr::memchr_iter(b'\n', text).map(|end| &text[end + 1..]);
    let records = starts.filter(|rest| matches!(rest.first(), Some(b'{' | b'[')));
    records
        .take(RESTARTS_MAX)
        .map(|rest| json::scan(rest, false))
        .find(|found| matches!(found, Detection::Format(_)))
}

/// Tries the requests that a logger wrote behind a prefix of its own.
fn prefixed(text: &[u8]) -> Option<Detection> {
    let starts = memchr::memmem::find_iter(text, b"{\"resource");
    starts
        .take(RESTARTS_MAX)
        .map(|start| json::scan(&text[start..], false))
        .find(|found| matches!(found, Detection::Format(_)))
}

/// Skips a byte order mark, blanks and empty lines.
fn skip_blank(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start()
}

fn known_binary(prefix: &[u8]) -> Option<&'static str> {
    Some(match prefix {
        [b'P', b'K', 3 | 5, 4 | 6, ..] => "a zip archive; unpack it, or pack it as tar",
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => "bzip2; decompress it, or use gz, xz or zst",
        [b'7', b'z', 0xbc, 0xaf, ..] => "a 7z archive; unpack it, or pack it as tar",
        [0x04, 0x22, 0x4d, 0x18, ..] => "lz4; decompress it, or use gz, xz or zst",
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "UTF-16 text; convert it to UTF-8",
        _ => return None,
    })
}

fn is_binary(text: &[u8]) -> bool {
    text[..text.len().min(4096)].contains(&0)
}

#[cfg(test)]
mod tests;
