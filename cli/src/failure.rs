//! Failures of commands: the kinds, with the exit code and message of each.

use std::io;

/// A command that ended without its result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The job failed. The message says what, where, and what to do about it.
    Job(String),
    /// The options contradict each other or the files that they name, which is found before any
    /// work. Clap refuses values that are wrong by themselves, with the same exit code.
    Usage(String),
    /// A signal such as Ctrl-C stopped the command.
    Interrupted,
    /// The reader of the output is gone (`astracer inspect ... | head`), which is a normal end.
    OutputClosed,
}

impl Failure {
    /// The message to print, if any.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Job(text) | Self::Usage(text) => Some(text),
            Self::Interrupted => Some("interrupted"),
            Self::OutputClosed => None,
        }
    }

    /// 1 for a failed job, 2 for wrong usage, 130 after Ctrl-C, 0 if the reader of the output is
    /// gone.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Job(_) => 1,
            Self::Usage(_) => 2,
            Self::Interrupted => 130,
            Self::OutputClosed => 0,
        }
    }

    /// Combines printing the result with a `late` failure, such as a file that could not be
    /// written. A closed pipe does not hide the late failure.
    pub(crate) fn after(printed: Result<(), Self>, late: Result<(), Self>) -> Result<(), Self> {
        match (printed, late) {
            (Err(Self::OutputClosed), Err(late)) => Err(late),
            (Err(printed @ (Self::Job(_) | Self::Usage(_))), Err(Self::Job(late))) => {
                let printed = printed.text().unwrap_or_default();
                Err(Self::Job(format!("{late}\n{printed}")))
            }
            (printed, late) => printed.and(late),
        }
    }

    /// An error while writing to standard output.
    pub(crate) fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Job(format!("cannot write to standard output: {error}")),
        }
    }
}
