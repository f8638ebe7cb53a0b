//! The parameters file, checked periodically.
//!
//! A file is read again only if its length or modification time has changed, or if the last check
//! failed: it may have been half written. A text that cannot be used is therefore reported only
//! when it is found twice in a row. Until a good one comes, the last good parameters stay in
//! effect.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::time::SystemTime;

use crate::steering::SteerError;

/// The maximum number of bytes read: more than a parameters file may have.
const BYTES_MAX: u64 = (2 << 20) + 1;

#[derive(Debug, Default)]
pub(super) struct Watch {
    stamp: Option<Stamp>,
    /// The text that last took effect, here or in the builder; `None` if the builder could not use
    /// it.
    taken: Option<String>,
    /// The fault found by the last check.
    fault: Option<String>,
}

/// The properties of a file that show a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileCheck {
    Unchanged,
    Applied,
    Fault(String),
}

impl Watch {
    /// Starts from the text in effect. The file may have changed since.
    pub(super) fn new(taken: Option<String>) -> Self {
        Watch { taken, ..Watch::default() }
    }

    pub(super) fn look(
        &mut self,
        path: &Path,
        take: impl FnOnce(&str) -> Result<(), SteerError>,
    ) -> FileCheck {
        let stamp = fs::metadata(path)
            .ok()
            .map(|known| Stamp { length: known.len(), modified: known.modified().ok() });
        if stamp.is_some() && stamp == self.stamp && self.fault.is_none() {
            return FileCheck::Unchanged;
        }
        self.stamp = stamp;
        let text = match read(path) {
            Ok(text) => text,
            Err(error) => {
                return self.fault(format!("{}: {error}; the last parameters hold", path.display()));
            }
        };
        if self.taken.as_ref() == Some(&text) {
            return if self.fault.take().is_some() { FileCheck::Applied } else { FileCheck::Unchanged };
        }
        match take(&text) {
            Ok(()) => {
                self.taken = Some(text);
                self.fault = None;
                FileCheck::Applied
            }
            Err(error) => self.fault(format!("{}: {error}; the last parameters hold", path.display())),
        }
    }

    fn fault(&mut self, fault: String) -> FileCheck {
        let is_known = self.fault.as_ref() == Some(&fault);
        self.fault = Some(fault.clone());
        if is_known { FileCheck::Fault(fault) } else { FileCheck::Unchanged }
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
