//! The stratum of a trace within its key.

use std::fmt;
use std::str::FromStr;

use crate::config_error::ConfigError;
use crate::nanos::Nanos;

/// The part of a key's traces with one outcome. As text: the octave, `e` for an error, and the kind
/// in hexadecimal digits after a colon, such as `8`, `-1e` or `8:9f3a0c`.
///
/// The order is by octave first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Stratum {
    /// The binary logarithm of the root's duration in ms, rounded down, from [`Stratum::SHORTEST`]
    /// to [`Stratum::LONGEST`].
    pub octave: i8,
    /// Whether the root's process saw an error.
    pub is_error: bool,
    /// A hash of the set of names and depths in the call tree; `None` if trees are not told apart.
    pub kind: Option<u64>,
}

impl Stratum {
    /// The octave of all durations below a millisecond.
    pub const SHORTEST: i8 = -1;
    /// The octave of all durations from 2^40 ms on.
    pub const LONGEST: i8 = 40;
    /// The number of octaves.
    pub(crate) const OCTAVES: usize = (Self::LONGEST - Self::SHORTEST + 1) as usize;

    /// The stratum of a trace whose root took this long, with trees of any kind.
    pub fn new(duration: Nanos, is_error: bool) -> Self {
        let ms = duration.get() / 1_000_000;
        let octave = ms.checked_ilog2().map_or(Self::SHORTEST, |log2| log2.min(40) as i8);
        Stratum { octave, is_error, kind: None }
    }

    /// Tells the kind of the call tree.
    #[must_use]
    pub fn with_kind(self, kind: Option<u64>) -> Self {
        Stratum { kind, ..self }
    }

    /// The number of the octave and the error, from 0 on.
    pub(crate) fn number(self) -> usize {
        2 * (self.octave - Self::SHORTEST).max(0) as usize + usize::from(self.is_error)
    }
}

impl fmt::Display for Stratum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.octave, if self.is_error { "e" } else { "" })?;
        self.kind.map_or(Ok(()), |kind| write!(f, ":{kind:x}"))
    }
}

impl FromStr for Stratum {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let read = || {
            let (outcome, kind) = match text.split_once(':') {
                Some((outcome, kind)) => (outcome, Some(u64::from_str_radix(kind, 16).ok()?)),
                None => (text, None),
            };
            let (octave, is_error) =
                outcome.strip_suffix('e').map_or((outcome, false), |octave| (octave, true));
            let octave: i8 = octave.parse().ok()?;
            let is_octave = (Self::SHORTEST..=Self::LONGEST).contains(&octave);
            is_octave.then_some(Stratum { octave, is_error, kind })
        };
        // Each has one text: "02" and "8:0A" would be other names of "2" and "8:a".
        read().filter(|read| read.to_string() == text).ok_or_else(|| {
            ConfigError::out_of_range(
                text.to_owned(),
                "a stratum is the binary logarithm of a duration in ms, from -1 to 40, with an e for errors \
                 and a kind after a colon, such as \"8\", \"8e\" or \"8:9f3a\"",
            )
        })
    }
}
