//! The requests that one server takes, learned from its answers and remembered for the
//! destination's life: their size, and whether they may be compressed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use astracer_model::destination::{ErrorKind, ExportError};

use crate::compression::Compression;

#[derive(Debug)]
pub(crate) struct Learned {
    /// The compression that was asked for.
    compression: Compression,
    is_plain: AtomicBool,
    /// The size of the smallest request that was refused as too large.
    refused: AtomicUsize,
    bytes_max: AtomicUsize,
}

impl Learned {
    pub(crate) fn new(compression: Compression) -> Self {
        Learned {
            compression,
            is_plain: AtomicBool::new(false),
            refused: AtomicUsize::new(usize::MAX),
            bytes_max: AtomicUsize::new(usize::MAX),
        }
    }

    /// Returns the compression of the next request.
    pub(crate) fn compression(&self) -> Compression {
        if self.is_plain.load(Ordering::Relaxed) { Compression::None } else { self.compression }
    }

    /// The server accepted a plain request after it had refused the same one compressed.
    pub(crate) fn takes_only_plain(&self) {
        self.is_plain.store(true, Ordering::Relaxed);
    }

    /// Returns the size in bytes, before compression, above which requests are split.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// The server found a request of this size too large.
    pub(crate) fn refuses(&self, bytes: usize) {
        self.refused.fetch_min(bytes, Ordering::Relaxed);
    }

    /// The server accepted a request of this size. A smaller one that it refused had another fault,
    /// such as a long field, or the limit was raised since. Before anything is accepted, the limit
    /// is unknown: the server may refuse everything.
    pub(crate) fn accepts(&self, bytes: usize) {
        let refused = self.refused.load(Ordering::Relaxed);
        if bytes >= refused {
            self.refused.store(usize::MAX, Ordering::Relaxed);
            self.bytes_max.store(usize::MAX, Ordering::Relaxed);
        } else if refused != usize::MAX {
            self.bytes_max.store(refused - 1, Ordering::Relaxed);
        }
    }
}

/// True if the server refused a request because of its compression, so that it may accept the same
/// request without.
pub(crate) fn is_about_compression(used: Compression, error: &ExportError) -> bool {
    used != Compression::None && error.kind() == ErrorKind::UnsupportedMedia
}
