//! Settings that cannot be used, and changes that are refused.

use std::fmt;
use std::path::{Path, PathBuf};

/// Implements `Debug` with the text of `Display`: a `main` that returns the error prints it with
/// `Debug`.
macro_rules! debug_as_display {
    ($($error:ty),*) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )*};
}
pub(crate) use debug_as_display;

debug_as_display!(Fault, SteerError);

/// The reaction to settings that cannot be used. A setting that is ignored is reported in a warning
/// with the target `astracer`, once a subscriber exists, and is listed by
/// [`Builder::faults`](crate::Builder::faults).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFault {
    /// Environment variables are ignored, as OpenTelemetry specifies. For the others, such as a
    /// parameters file that code names, [`Builder::build`](crate::Builder::build) fails.
    #[default]
    IgnoreVariables,
    /// [`Builder::build`](crate::Builder::build) fails.
    Refuse,
    /// The setting is ignored and its default applies.
    UseDefault,
}

impl OnFault {
    pub(crate) fn refuses(self, fault: &Fault) -> bool {
        match self {
            OnFault::IgnoreVariables => !matches!(fault.origin, Origin::Variable(_)),
            OnFault::Refuse => true,
            OnFault::UseDefault => false,
        }
    }
}

/// A setting that cannot be used. Its text names the place and the problem.
#[derive(Clone, PartialEq, Eq)]
pub struct Fault {
    pub(crate) origin: Origin,
    pub(crate) message: String,
    pub(crate) default: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Variable(&'static str),
    File(PathBuf, Option<usize>),
    #[cfg(feature = "parameters")]
    Source(String),
    Tail,
}

impl Fault {
    /// The environment variable at fault.
    pub fn variable(&self) -> Option<&'static str> {
        match self.origin {
            Origin::Variable(name) => Some(name),
            _ => None,
        }
    }

    /// The file at fault.
    pub fn file(&self) -> Option<&Path> {
        match &self.origin {
            Origin::File(path, _) => Some(path),
            _ => None,
        }
    }

    /// The line at fault in the file, counted from 1.
    pub fn line(&self) -> Option<usize> {
        match self.origin {
            Origin::File(_, line) => line,
            _ => None,
        }
    }

    /// The value that applies instead if the setting is ignored.
    pub fn default(&self) -> &'static str {
        self.default
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Variable(name) => write!(f, "{name}: {}", self.message),
            Origin::Tail => write!(f, "with_tail: {}", self.message),
            Origin::File(path, Some(line)) => write!(f, "{}:{line}: {}", path.display(), self.message),
            Origin::File(path, None) => write!(f, "{}: {}", path.display(), self.message),
            #[cfg(feature = "parameters")]
            Origin::Source(place) => write!(f, "{place}: {}", self.message),
        }
    }
}

impl std::error::Error for Fault {}

/// A change that was refused; the previous settings stay in effect.
#[derive(Clone, PartialEq, Eq)]
pub struct SteerError {
    line: Option<usize>,
    /// With the line, if there is one.
    message: String,
}

impl SteerError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        SteerError { line: None, message: message.into() }
    }

    /// The line of the parameters file at fault, counted from 1.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    #[cfg(feature = "parameters")]
    pub(crate) fn reason(&self) -> &str {
        let parts = self.message.split_once(": ").filter(|_| self.line.is_some());
        parts.map_or(&self.message, |parts| parts.1)
    }
}

#[cfg(feature = "parameters")]
impl From<astracer_samplers::parameters::ParametersError> for SteerError {
    fn from(error: astracer_samplers::parameters::ParametersError) -> Self {
        SteerError { line: error.line(), message: error.to_string() }
    }
}

impl fmt::Display for SteerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SteerError {}
