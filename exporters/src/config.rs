//! The error for invalid settings.

use std::fmt;

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    setting: String,
    reason: String,
}

impl ConfigError {
    pub(crate) fn new(setting: &str, reason: impl Into<String>) -> Self {
        ConfigError { setting: setting.to_owned(), reason: reason.into() }
    }

    /// The name of the environment variable or the builder's function.
    pub fn setting(&self) -> &str {
        &self.setting
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.reason)
    }
}

impl std::error::Error for ConfigError {}
