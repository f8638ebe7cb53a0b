//! The note of how much of a recording was sent.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Send;
use crate::failure::Failure;
use crate::output;
use crate::outputs::{Output, Outputs};

/// Notes are smaller: a few numbers, a URL and paths.
const NOTE_BYTES_MAX: u64 = 1 << 20;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Note {
    to: String,
    paths: Vec<String>,
    /// Spans that the server has answered for, in the order of the input.
    pub(super) spans: u64,
    /// Nanoseconds added to each time.
    pub(super) shift_ns: i64,
}

/// The file, and its content.
#[derive(Debug)]
pub(super) struct Resume {
    file: Output,
    note: Note,
    is_old: bool,
}

impl Resume {
    /// Reads the note of a former call, if there is one. It must be of the same input and server. The file is known to
    /// be writable afterwards.
    pub(super) fn open(path: &Path, args: &Send) -> Result<Self, Failure> {
        let paths = args.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        let fresh = Note { to: args.to.to_string(), paths, spans: 0, shift_ns: 0 };
        let file = Outputs::new(&args.paths).plain_file("--resume", path)?;
        if !file.is_file() {
            return Err(file.failure(&io::Error::other("it is a device or a pipe")));
        }
        let shown = output::shown(path);
        let text = match read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { file, note: fresh, is_old: false });
            }
            Err(error) => return Err(Failure::Job(format!("can't read {shown}: {error}"))),
        };
        let note: Note = serde_json::from_str(&text).map_err(|error| {
            let reason = output::escaped(&error.to_string()).into_owned();
            Failure::Job(format!("{shown} is not a note of a sending: {reason}; choose another file"))
        })?;
        if note.to != fresh.to || note.paths != fresh.paths {
            let was = format!("{} to {}", note.paths.join(" "), note.to);
            let was = output::escaped(&was);
            return Err(Failure::Job(format!(
                "{shown} is about another sending ({was}); choose another file"
            )));
        }
        if args.shift_to_now && note.shift_ns == 0 {
            return Err(Failure::Usage(format!(
                "{shown} is about a sending without --shift-to-now, whose rest can't be moved; leave it out, or choose \
                 another file"
            )));
        }
        Ok(Self { file, note, is_old: true })
    }

    /// The note of a former call.
    pub(super) fn noted(&self) -> Option<&Note> {
        self.is_old.then_some(&self.note)
    }

    pub(super) fn begin(&mut self, shift_ns: i64) {
        self.note.shift_ns = shift_ns;
    }

    /// Notes that the server has answered for `spans` more.
    pub(super) fn note(&mut self, spans: u64) -> io::Result<()> {
        self.note.spans += spans;
        let text = serde_json::to_string(&self.note)?;
        let failed = |failure: Failure| io::Error::other(failure.text().unwrap_or_default().to_owned());
        self.file.write(&text).map_err(failed)
    }

    /// Removes the note: everything is sent.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        match fs::remove_file(self.file.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Reads a small file.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(NOTE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > NOTE_BYTES_MAX {
        return Err(io::Error::other("it is too large for a note of a sending; choose another file"));
    }
    Ok(text)
}
