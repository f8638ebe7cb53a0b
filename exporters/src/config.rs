//! The error for invalid settings.

use std::fmt;

/// An invalid setting.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    setting: String,
    reason: String,
}

impl ConfigError {
    pub(crate) fn new(setting: &str, reason: impl Into<String>) -> Self {
        ConfigError { setting: setting.to_owned(), reason: reason.into() }
    }

    /// Returns the warning for a variable that is ignored.
    pub(crate) fn ignored(&self) -> String {
        format!("{self}; using the previous setting")
    }

    /// The name of the environment variable or the builder's function.
    pub fn setting(&self) -> &str {
        &self.setting
    }
}

/// The same text as `Display`: a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.reason)
    }
}

impl std::error::Error for ConfigError {}
