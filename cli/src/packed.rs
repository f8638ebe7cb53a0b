//! Compresses outputs whose names end in `.gz` or `.zst`.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

use flate2::write::GzEncoder;

/// The compression that a name asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    /// Chosen by the suffix `.gz` or `.zst`.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let suffix = path.extension()?;
        let packings = [("gz", Self::Gzip), ("zst", Self::Zstd)];
        packings.into_iter().find(|(name, _)| suffix.eq_ignore_ascii_case(name)).map(|(_, packing)| packing)
    }
}

/// Suffixes of archives and compressions that cannot be written; some of them can be read.
const NOT_WRITTEN: [&str; 13] =
    ["xz", "txz", "lzma", "bz2", "tbz2", "zstd", "tzst", "lz4", "br", "zip", "7z", "tar", "tgz"];

/// True if the name ends like a compression or archive that cannot be written. Tools that go by the
/// name could not unpack such a file.
pub(crate) fn promises_more(path: &Path) -> bool {
    path.extension().is_some_and(|suffix| NOT_WRITTEN.iter().any(|name| suffix.eq_ignore_ascii_case(name)))
}

/// A compressed file, shared by its writers. Only [`finish`](Self::finish) ends the stream, because
/// that may fail and a dropped writer could not report it.
#[derive(Clone)]
pub(crate) struct Packed(Rc<RefCell<Option<Encoder>>>);

enum Encoder {
    Gzip(GzEncoder<File>),
    Zstd(zstd::Encoder<'static, File>),
}

impl Packed {
    pub(crate) fn new(file: File, packing: Packing) -> io::Result<Self> {
        let encoder = match packing {
            Packing::Gzip => Encoder::Gzip(GzEncoder::new(file, flate2::Compression::default())),
            Packing::Zstd => Encoder::Zstd(zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?),
        };
        Ok(Self(Rc::new(RefCell::new(Some(encoder)))))
    }

    /// Writes the end of the compressed stream. Nothing can be written after it.
    pub(crate) fn finish(&self) -> io::Result<()> {
        match self.0.take() {
            Some(Encoder::Gzip(encoder)) => encoder.finish().map(drop),
            Some(Encoder::Zstd(encoder)) => encoder.finish().map(drop),
            None => Ok(()),
        }
    }
}

impl Write for Packed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *self.0.borrow_mut() {
            Some(Encoder::Gzip(encoder)) => encoder.write(bytes),
            Some(Encoder::Zstd(encoder)) => encoder.write(bytes),
            None => Err(io::Error::other("the file is already complete")),
        }
    }

    /// Does nothing: ending a compressed block at each flush would make the file larger.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
