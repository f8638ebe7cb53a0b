//! The file of `--resume`, which records how much was sent.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use astracer_exporters::spool::FileLock;
use astracer_model::files;
use serde::{Deserialize, Serialize};

use super::Send;
use crate::failure::Failure;
use crate::identity::{identity_of, identity_of_open};
use crate::output;
use crate::outputs::{Output, Outputs};
use crate::partial::Known;

/// A larger file is refused: the content is a few numbers, a URL and paths.
const NOTE_BYTES_MAX: u64 = 1 << 20;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Note {
    to: String,
    paths: Vec<String>,
    /// Spans that the server has accepted or rejected, in the order of the input.
    pub(super) spans: u64,
    /// The greatest number of spans after these that may have been sent without an answer: the
    /// request in flight when a process was killed.
    #[serde(default)]
    pub(super) in_flight: u64,
    /// Nanoseconds added to each time.
    pub(super) shift_ns: i64,
}

/// The file and its content.
#[derive(Debug)]
pub(super) struct Resume {
    file: Output,
    note: Note,
    is_old: bool,
    /// `None` where the file system has no locks.
    _note_lock: Option<NoteLock>,
}

/// A lock that prevents two processes from sending the same spans.
///
/// The `--resume` file is replaced after each request, so a hidden file beside it is locked
/// instead. It exists only while a process sends. If a killed process leaves it behind, it is
/// unlocked and harmless.
#[derive(Debug)]
struct NoteLock {
    file: Known,
    _lock: FileLock,
}

impl Drop for NoteLock {
    /// Removes the file before it is unlocked. Otherwise another process could lock it just before
    /// it is removed.
    fn drop(&mut self) {
        let _ = fs::remove_file(self.file.path());
    }
}

impl NoteLock {
    /// Takes the lock if no other process has it. `note` is the path of the `--resume` file with
    /// all symbolic links resolved.
    fn take(note: &Path) -> io::Result<Self> {
        let mut name = OsString::from(".");
        name.push(note.file_name().unwrap_or_default());
        name.push(".lock");
        let path = note.with_file_name(name);
        loop {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
            let locked = identity_of_open(&file, &path);
            let lock = FileLock::take(file)?;
            // The previous holder may have removed the file between opening and locking it; then
            // try again.
            if locked.is_none() || locked == identity_of(&path) {
                return Ok(Self { file: Known::new(path), _lock: lock });
            }
        }
    }
}

impl Resume {
    /// Reads the file of an earlier run, if there is one. It must be for the same input and server,
    /// and no other process may be using it. Also checks that the file can be written.
    pub(super) fn open(path: &Path, args: &Send) -> Result<Self, Failure> {
        let paths = args.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        let fresh = Note { to: args.to.to_string(), paths, spans: 0, in_flight: 0, shift_ns: 0 };
        let file = Outputs::new(&args.paths).plain_file("--resume", path)?;
        let Some(target) = file.target() else {
            return Err(file.failure(&io::Error::other("it is a device or a pipe, not a file")));
        };
        let shown = output::shown(path);
        let note_lock = match NoteLock::take(target) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(Failure::Job(format!(
                    "{shown} is in use by another process that sends this recording; wait until it ends, or pass another \
                     --resume file"
                )));
            }
            note_lock => note_lock.ok(),
        };
        let text = match read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { file, note: fresh, is_old: false, _note_lock: note_lock });
            }
            Err(error) => return Err(Failure::Job(format!("cannot read {shown}: {error}"))),
        };
        let note: Note = serde_json::from_str(&text).map_err(|error| {
            let reason = output::escaped(&error.to_string()).into_owned();
            Failure::Job(format!("{shown} is not a --resume file: {reason}; pass another one"))
        })?;
        if note.to != fresh.to || note.paths != fresh.paths {
            let was = format!("{} to {}", note.paths.join(" "), note.to);
            let was = output::escaped(&was);
            return Err(Failure::Job(format!(
                "{shown} belongs to a different upload ({was}); pass another --resume file"
            )));
        }
        if args.shift_to_now && note.shift_ns == 0 {
            return Err(Failure::Usage(format!(
                "{shown} belongs to an upload without --shift-to-now, whose rest cannot be shifted; omit the option, or \
                 pass another --resume file"
            )));
        }
        Ok(Self { file, note, is_old: true, _note_lock: note_lock })
    }

    /// The content from an earlier run.
    pub(super) fn noted(&self) -> Option<&Note> {
        self.is_old.then_some(&self.note)
    }

    pub(super) fn begin(&mut self, shift_ns: i64) {
        self.note.shift_ns = shift_ns;
    }

    /// Records that the server answered for `spans` more spans.
    pub(super) fn note(&mut self, spans: u64) -> io::Result<()> {
        self.note.spans += spans;
        self.write()
    }

    /// Records that `spans` spans are about to be sent. The bound stays after an answer, since the
    /// next request has as many, usually.
    pub(super) fn sending(&mut self, spans: u64) -> io::Result<()> {
        if spans <= self.note.in_flight {
            return Ok(());
        }
        self.note.in_flight = spans;
        self.write()
    }

    /// Records, at an early end, how many spans were sent without an answer. Where nothing was sent
    /// at all, there is nothing to continue.
    pub(super) fn unanswered(&mut self, spans: u64) -> io::Result<()> {
        if spans == 0 && self.note.spans == 0 && !self.is_old {
            return self.remove();
        }
        self.note.in_flight = spans;
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        let text = serde_json::to_string(&self.note)?;
        let failed = |failure: Failure| io::Error::other(failure.text().unwrap_or_default().to_owned());
        self.file.write(&text).map_err(failed)
    }

    /// Removes the file, because everything was sent.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        // Removes the resolved file and then the link that was given, because a dangling link would
        // make the next run fail.
        for path in self.file.target().into_iter().chain([self.file.path()]) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Reads a small file.
fn read(path: &Path) -> io::Result<String> {
    files::read_text(path, NOTE_BYTES_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => {
            io::Error::other("it is too large for a --resume file; pass another one")
        }
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::command::{Args, Command};

    use super::*;

    fn send(words: &[&str]) -> Send {
        let args = Args::try_parse_from(["astracer", "send"].iter().chain(words));
        match args.expect("right usage").command {
            Command::Send(send) => send,
            other => panic!("{other:?}"),
        }
    }

    /// The request in flight when a process is killed may arrive twice; one that was answered, or
    /// never sent, does not.
    #[test]
    fn a_request_without_an_answer_is_noted() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let note = folder.path().join("note.json");
        let args = send(&["w.jsonl", "--to", "otlp://localhost:4317"]);
        let open = || Resume::open(&note, &args).expect("nobody uses it");
        let noted = || open().noted().map(|note| (note.spans, note.in_flight));
        let mut resume = open();
        resume.sending(5).expect("written");
        drop(resume);
        assert_eq!(noted(), Some((0, 5)), "killed during the first request");
        let mut resume = open();
        resume.note(5).expect("written");
        resume.sending(4).expect("written");
        drop(resume);
        assert_eq!(noted(), Some((5, 5)), "killed during the second one");
        let mut resume = open();
        resume.unanswered(0).expect("written");
        drop(resume);
        assert_eq!(noted(), Some((5, 0)), "ended without a request in flight");
        std::fs::remove_file(&note).expect("it is there");
        let mut resume = open();
        resume.sending(5).expect("written");
        resume.unanswered(0).expect("removed");
        drop(resume);
        assert_eq!(noted(), None, "nothing was sent");
    }

    #[test]
    fn one_process_at_a_time_sends_by_a_note() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let note = folder.path().join("note.json");
        let args = send(&["w.jsonl", "--to", "otlp://localhost:4317"]);
        let mut first = Resume::open(&note, &args).expect("nobody uses it");
        for spans in [0, 5] {
            if spans > 0 {
                first.note(spans).expect("written");
            }
            match Resume::open(&note, &args) {
                Err(Failure::Job(text)) => assert!(text.contains("in use by another process"), "{text}"),
                other => panic!("{other:?}"),
            }
        }
        drop(first);
        let mut second = Resume::open(&note, &args).expect("the first is gone");
        assert_eq!(second.noted().map(|note| note.spans), Some(5));
        second.remove().expect("removed");
        drop(second);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}
