//! Which dropped traces are recorded provisionally.

use std::fmt;
use std::str::FromStr;

use crate::config_error::ConfigError;

/// The dropped traces that are recorded, so that a policy may still keep them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProvisionalMode {
    /// None, so policies have nothing to keep.
    Never,
    /// The traces of armed keys. A key is armed for ten seconds after something went wrong in it
    /// (an error, or a root that a policy calls slow), and by
    /// [`TailSampler::arm`](super::TailSampler::arm). Also recorded are a key's first 16 roots, and
    /// one root in 1,024.
    #[default]
    Armed,
    /// All of them.
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
