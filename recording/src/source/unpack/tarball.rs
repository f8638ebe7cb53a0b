//! Tar archives, read as a stream.
//!
//! This module iterates over the blocks itself and uses only the headers of the `tar` crate. That
//! crate's iteration would hold a long name of any claimed size in memory, and it expands sparse
//! files.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use tar::{EntryType, Header, PaxExtensions};

use super::Unpack;
use crate::source::peek::Peek;
use crate::source::{label, walk};
use astracer_model::problem::{Limit, ProblemKind};

const BLOCK_BYTES: usize = 512;

/// The largest extended attributes, and the longest name, that are held in memory.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;

/// Returns true if these bytes begin with a tar header, of any variant, with a correct checksum.
pub(super) fn is_header(prefix: &[u8]) -> bool {
    let Some(block) = prefix.get(..BLOCK_BYTES) else { return false };
    let header = Header::from_byte_slice(block);
    // In the sum, the checksum field itself counts as eight spaces.
    let (before, rest) = block.split_at(148);
    let sum: u32 = before.iter().chain(&rest[8..]).map(|&byte| u32::from(byte)).sum();
    header.cksum().is_ok_and(|written| written == sum + 8 * u32::from(b' '))
}

/// Reads an archive to its end; each file in it is a separate stream.
pub(super) fn read(unpack: &mut Unpack<'_>, archive: &mut Peek<'_>, name: &Arc<str>, depth: usize) {
    let mut extension = Extension::default();
    let mut past_end = false;
    let mut is_damaged = false;
    while !unpack.is_over() {
        let at = archive.position();
        let block = archive.peek(BLOCK_BYTES);
        let (len, is_empty) = (block.len(), block.iter().all(|&byte| byte == 0));
        if len < BLOCK_BYTES {
            // Some writers omit the empty blocks that mark the end.
            if let Some(error) = archive.take_error() {
                unpack.unreadable(name, at, &error);
            } else if !past_end && !is_damaged && !is_empty {
                let detail = "incomplete tar header".to_owned();
                unpack.problem(ProblemKind::Truncated, name, at, detail);
            }
            return;
        }
        if is_empty {
            // Reading continues, to find a concatenated archive and to verify the checksum at the
            // end of a compressed stream.
            past_end |= !is_damaged;
            archive.consume(BLOCK_BYTES);
            continue;
        }
        if !is_header(block) {
            if past_end {
                return;
            }
            if !is_damaged {
                let detail = "expected a tar header; skipped to the next one".to_owned();
                unpack.problem(ProblemKind::Unreadable, name, at, detail);
            }
            is_damaged = true;
            archive.consume(BLOCK_BYTES);
            continue;
        }
        (past_end, is_damaged) = (false, false);
        let header = Header::from_byte_slice(block).clone();
        archive.consume(BLOCK_BYTES);
        let size = match extension.size.map_or_else(|| header.entry_size(), Ok) {
            Ok(size) => size,
            Err(error) => return unpack.unreadable(name, at, &error),
        };
        let mut left = size;
        match header.entry_type() {
            kind @ (EntryType::GNULongName | EntryType::XHeader) if size <= EXTENSION_BYTES_MAX => {
                let mut bytes = Vec::new();
                // An error or an early end is detected below, where the rest is skipped.
                let _ = Member { archive, left: &mut left }.read_to_end(&mut bytes);
                extension.add(kind, bytes);
            }
            EntryType::GNULongName | EntryType::XHeader => {
                let detail = format!("header extension of {size} bytes (at most 1 MiB is read)");
                unpack.limit(Limit::HeaderBytes, name, at, detail);
            }
            EntryType::XGlobalHeader | EntryType::GNULongLink => {}
            kind => {
                let Extension { name: long_name, is_sparse, .. } = std::mem::take(&mut extension);
                let member = long_name.unwrap_or_else(|| header.path_bytes().into_owned());
                let label = label::of_member(name, &member);
                match kind {
                    EntryType::Regular | EntryType::Continuous if label::is_hidden(&member) => {
                        unpack.skip(&label, walk::HIDDEN);
                    }
                    EntryType::Regular | EntryType::Continuous if !is_sparse => {
                        let mut content = Peek::new(Box::new(Member { archive, left: &mut left }));
                        unpack.member_changed(header.mtime().ok());
                        unpack.stream(&mut content, &label, depth + 1);
                        if content.has_failed() {
                            // The reader has reported the error, and the rest of the archive cannot
                            // be read.
                            return;
                        }
                    }
                    EntryType::GNUSparse | EntryType::Regular => {
                        unpack.skip(&label, "sparse file; create the archive without tar's --sparse");
                    }
                    // Folders, links and devices have no content.
                    _ => {}
                }
            }
        }
        let padding = (BLOCK_BYTES as u64 - size % BLOCK_BYTES as u64) % BLOCK_BYTES as u64;
        if let Err(error) = skip(unpack, archive, left.saturating_add(padding)) {
            return unpack.unreadable(name, archive.position(), &error);
        }
    }
}

/// Skips bytes that nobody reads. Stops if reading is over, because decompressing the rest of a
/// large file takes long.
fn skip(unpack: &Unpack<'_>, archive: &mut Peek<'_>, mut bytes: u64) -> io::Result<()> {
    while bytes > 0 && !unpack.is_over() {
        let available = archive.fill_buf()?.len() as u64;
        if available == 0 {
            return Err(ends_early());
        }
        let count = available.min(bytes);
        archive.consume(usize::try_from(count).unwrap_or(usize::MAX));
        bytes -= count;
    }
    Ok(())
}

fn ends_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends inside this file")
}

/// The content of one file in an archive.
struct Member<'m, 'r> {
    archive: &'m mut Peek<'r>,
    left: &'m mut u64,
}

impl Read for Member<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = out.len().min(usize::try_from(*self.left).unwrap_or(usize::MAX));
        if len == 0 {
            return Ok(0);
        }
        let count = self.archive.read(&mut out[..len])?;
        if count == 0 {
            return Err(ends_early());
        }
        *self.left -= count as u64;
        Ok(count)
    }
}

/// Extension entries that apply to the next file.
#[derive(Default)]
struct Extension {
    name: Option<Vec<u8>>,
    size: Option<u64>,
    is_sparse: bool,
}

impl Extension {
    fn add(&mut self, kind: EntryType, mut bytes: Vec<u8>) {
        if kind == EntryType::GNULongName {
            if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
                bytes.truncate(end);
            }
            self.name = Some(bytes);
            return;
        }
        for record in PaxExtensions::new(&bytes).flatten() {
            match record.key_bytes() {
                b"path" => self.name = Some(record.value_bytes().to_vec()),
                b"size" => self.size = record.value().ok().and_then(|text| text.parse().ok()),
                key => self.is_sparse |= key.starts_with(b"GNU.sparse."),
            }
        }
    }
}
