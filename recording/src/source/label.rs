//! Labels of places: names to display, never paths to open. They are escaped, so that no name can
//! move a terminal's cursor or forge a line of a report.

use std::path::Path;
use std::sync::Arc;

use astracer_model::text::escaped;

/// The longest name from inside an archive; tar allows any length.
const BYTES_MAX: usize = 1024;

/// The name of a file on disk.
pub(super) fn of_path(path: &Path) -> Arc<str> {
    escaped(&path.to_string_lossy()).into()
}

/// The name of a file in an archive.
pub(super) fn of_member(archive: &str, member: &[u8]) -> Arc<str> {
    let shown = &member[..member.len().min(BYTES_MAX)];
    let text = String::from_utf8_lossy(shown);
    let cut = if shown.len() < member.len() { "..." } else { "" };
    format!("{archive}/{}{cut}", escaped(text.strip_prefix("./").unwrap_or(&text))).into()
}

/// Returns true if a file in an archive, or a folder above it, is hidden.
pub(super) fn is_hidden(member: &[u8]) -> bool {
    member.split(|&byte| byte == b'/').any(|part| part.starts_with(b".") && part != b"." && part != b"..")
}
