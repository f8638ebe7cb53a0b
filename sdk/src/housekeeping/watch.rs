//! The parameters file, looked at now and then.
//!
//! A file is read again only if its length or its time has changed, or if it was wrong: whoever
//! replaces it may be writing it. So a text that cannot be used is told only when it is found twice
//! in a row, and the last good one holds.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::time::SystemTime;

use crate::steering::SteerError;

/// The longest file that is read: more than a parameters file may have.
const BYTES_MAX: u64 = (2 << 20) + 1;

#[derive(Debug, Default)]
pub(super) struct Watch {
    stamp: Option<Stamp>,
    /// The text that was taken over last, or that the builder took over; `None` if it could not be
    /// used.
    taken: Option<String>,
    /// The fault that was found at the last look.
    fault: Option<String>,
}

/// The facts by which a change of a file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
}

/// The result of a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    Taken,
    Fault(String),
}

impl Watch {
    /// Goes on from the text that is at work. The file may be another by now.
    pub(super) fn new(taken: Option<String>) -> Self {
        Watch { taken, ..Watch::default() }
    }

    pub(super) fn look(&mut self, path: &Path, take: impl FnOnce(&str) -> Result<(), SteerError>) -> Seen {
        let stamp = fs::metadata(path)
            .ok()
            .map(|known| Stamp { length: known.len(), modified: known.modified().ok() });
        if stamp.is_some() && stamp == self.stamp && self.fault.is_none() {
            return Seen::Nothing;
        }
        self.stamp = stamp;
        let text = match read(path) {
            Ok(text) => text,
            Err(error) => {
                return self.fault(format!("{}: {error}; the last parameters hold", path.display()));
            }
        };
        if self.taken.as_ref() == Some(&text) {
            return if self.fault.take().is_some() { Seen::Taken } else { Seen::Nothing };
        }
        match take(&text) {
            Ok(()) => {
                self.taken = Some(text);
                self.fault = None;
                Seen::Taken
            }
            Err(error) => self.fault(format!("{}: {error}; the last parameters hold", path.display())),
        }
    }

    fn fault(&mut self, fault: String) -> Seen {
        let is_known = self.fault.as_ref() == Some(&fault);
        self.fault = Some(fault.clone());
        if is_known { Seen::Fault(fault) } else { Seen::Nothing }
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
