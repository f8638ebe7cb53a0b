//! Why a command ended without its result, and what the shell is told.

use std::io;

/// The ways to fail.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The job could not be done: what, where, and what to do about it.
    Job(String),
    /// Options that contradict each other or the files they name, found before any work. Values
    /// that are wrong by themselves are refused by clap, with the same exit code.
    Usage(String),
    /// A signal asked to stop: the user pressed Ctrl-C, for example.
    Interrupted,
    /// Nobody reads the output any more (`astracer inspect ... | head`): an end like any other.
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

    /// 1 for a job that could not be done, 2 for wrong usage, 130 after Ctrl-C, 0 when the reader
    /// of the output went away.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Job(_) => 1,
            Self::Usage(_) => 2,
            Self::Interrupted => 130,
            Self::OutputClosed => 0,
        }
    }

    /// The end of a command that printed its result, of which something else failed too: that
    /// counts though nobody reads.
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
