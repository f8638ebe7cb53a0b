//! Which dropped traces are recorded all the same.

use std::fmt;
use std::str::FromStr;

use crate::config_error::ConfigError;

/// The dropped traces that are recorded, so that a policy may still keep them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProvisionalMode {
    /// None: policies have nothing to keep.
    Never,
    /// Those of a key that is armed: for ten seconds after something went wrong in it (an error, or
    /// a root that is slow by a policy), for its first 16 roots, by hand, and one root in 1,024
    /// always.
    #[default]
    Armed,
    /// All.
    Always,
}

impl ProvisionalMode {
    const NAMES: [(&'static str, ProvisionalMode); 3] = [
        ("never", ProvisionalMode::Never),
        ("armed", ProvisionalMode::Armed),
        ("always", ProvisionalMode::Always),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}

impl fmt::Display for ProvisionalMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ProvisionalMode {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, provisional)| *provisional)
            .ok_or_else(|| ConfigError::syntax(text, "write never, armed or always"))
    }
}
