//! The note of how far a sending came.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Send;
use crate::failure::Failure;
use crate::output;

/// What the file holds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Note {
    to: String,
    paths: Vec<String>,
    /// Spans that the server has answered for, in the order of the input.
    pub(super) spans: u64,
    /// By how much times were moved.
    pub(super) shift_ns: i64,
}

/// The file, and what is to stand in it.
#[derive(Debug)]
pub(super) struct Resume {
    path: PathBuf,
    note: Note,
    is_old: bool,
}

impl Resume {
    /// Reads the note of a former call, if there is one. It must be of the same input and server.
    pub(super) fn open(path: &Path, args: &Send) -> Result<Self, Failure> {
        let paths = args.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        let fresh = Note { to: args.to.to_string(), paths, spans: 0, shift_ns: 0 };
        let shown = output::shown(path);
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path: path.to_owned(), note: fresh, is_old: false });
            }
            Err(error) => return Err(Failure::Job(format!("can't read {shown}: {error}"))),
        };
        let note: Note = serde_json::from_str(&text).map_err(|error| {
            Failure::Job(format!("{shown} is no note of a sending: {error}; choose another file"))
        })?;
        if note.to != fresh.to || note.paths != fresh.paths {
            let was = format!("{} to {}", note.paths.join(" "), note.to);
            return Err(Failure::Job(format!(
                "{shown} is about another sending ({was}); choose another file"
            )));
        }
        Ok(Self { path: path.to_owned(), note, is_old: true })
    }

    /// What a former call noted.
    pub(super) fn noted(&self) -> Option<&Note> {
        self.is_old.then_some(&self.note)
    }

    pub(super) fn begin(&mut self, shift_ns: i64) {
        self.note.shift_ns = shift_ns;
    }

    /// Notes that the server has answered for so many more spans.
    pub(super) fn note(&mut self, spans: u64) -> io::Result<()> {
        self.note.spans += spans;
        let text = serde_json::to_string(&self.note)?;
        // A new file takes the old one's place at once, so there always is a whole one.
        let mut fresh = self.path.clone().into_os_string();
        fresh.push(".new");
        fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &self.path)).map_err(|error| {
            io::Error::new(error.kind(), format!("can't write {}: {error}", output::shown(&self.path)))
        })
    }

    /// Everything is sent.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
