//! Errors in parameters files.

use std::fmt;
use std::ops::Range;

use crate::config_error::ConfigError;

/// An invalid parameters file: the fault and its line.
#[derive(Clone, PartialEq, Eq)]
pub struct ParametersError {
    line: Option<usize>,
    message: String,
}

impl ParametersError {
    /// An error about the part of `text` at `span`.
    pub(super) fn at(text: &str, span: Option<Range<usize>>, message: impl Into<String>) -> Self {
        let line = span.map(|span| text.bytes().take(span.start).filter(|&byte| byte == b'\n').count() + 1);
        ParametersError { line, message: message.into() }
    }

    pub(super) fn from_config(text: &str, span: Range<usize>, error: &ConfigError) -> Self {
        Self::at(text, Some(span), error.to_string())
    }

    /// The line at fault, from 1; `None` if the fault is not in one line, such as a missing table.
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for ParametersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// The same text as `Display`: a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for ParametersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ParametersError {}
