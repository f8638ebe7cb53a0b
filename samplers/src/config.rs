//! The choice of a sampler and its parameters, as values and as text.
//!
//! A config that exists is valid. Invalid parameters are refused when it is parsed or built, with
//! an error that names the part at fault and shows a valid example.

mod parse;

use std::fmt;
use std::num::NonZeroU64;

#[cfg(feature = "parameters")]
pub(crate) use parse::{CountName, HalfLife, choose_count};

use crate::bump::{Bump, Count};
use crate::per_key::PerKey;
use crate::ratio::Ratio;
use crate::token_bucket::TokenBucket;

/// A sampler and its parameters. [`FromStr`](std::str::FromStr) reads, and
/// [`Display`](fmt::Display) prints, this text:
///
/// ```text
/// always                                   keep everything
/// never                                    keep nothing
/// ratio:0.1                                keep this share of traces
/// every:10                                 keep the first of each ten calls, whatever their keys
/// bump:lambda=10,min=0.01,window=1s        by key; min (0), window (1s) and shift (off) are optional
/// bump:lambda=10,shift=on
/// bump:lambda=3,count=decaying,tau=1s,exponent=0.7   a count that halves in tau; exponent (2) is optional
/// bump:lambda=3,count=decaying,tau=2000calls          the same for traffic of any speed: in calls of all keys
/// bump:lambda=10;"GET /":min=0.5           with another minimum probability for one key
/// bump:lambda=10;"GET /":min=0.5,count=none,share=0.01   a constant, up to 4 times its recorded share of calls
/// bucket:capacity=50,rate=2                by key; tokens, and tokens per second
/// bucket:capacity=50,rate=2;"GET /":rate=9 with other parameters for one key, which inherits the rest
/// ```
///
/// In a quoted key `\"` is a quote and `\\` a backslash.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Config {
    /// Keep everything.
    Always,
    /// Keep nothing.
    Never,
    /// Keep a fixed share.
    Ratio(Ratio),
    /// Keep the first of each n calls.
    EveryNth(NonZeroU64),
    /// Bump, per key.
    Bump(PerKey<Bump>),
    /// Token bucket, per key.
    TokenBucket(PerKey<TokenBucket>),
}

impl From<Ratio> for Config {
    fn from(ratio: Ratio) -> Self {
        Config::Ratio(ratio)
    }
}

impl From<Bump> for Config {
    fn from(bump: Bump) -> Self {
        Config::Bump(PerKey::new(bump))
    }
}

impl From<TokenBucket> for Config {
    fn from(bucket: TokenBucket) -> Self {
        Config::TokenBucket(PerKey::new(bucket))
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Config::Always => f.write_str("always"),
            Config::Never => f.write_str("never"),
            Config::Ratio(ratio) => write!(f, "ratio:{}", ratio.probability()),
            Config::EveryNth(n) => write!(f, "every:{n}"),
            Config::Bump(bump) => write_per_key(f, "bump", bump),
            Config::TokenBucket(bucket) => write_per_key(f, "bucket", bucket),
        }
    }
}

fn write_per_key<P: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    per_key: &PerKey<P>,
) -> fmt::Result {
    write!(f, "{name}:{}", per_key.default())?;
    for (key, parameters) in per_key.overrides() {
        f.write_str(";\"")?;
        for c in key.chars() {
            if matches!(c, '"' | '\\') {
                f.write_str("\\")?;
            }
            write!(f, "{c}")?;
        }
        write!(f, "\":{parameters:#}")?;
    }
    Ok(())
}

/// As in a config: `lambda=10,min=0.01,window=1s`. The alternate form `{:#}` prints every
/// parameter, so that none is inherited.
impl fmt::Display for Bump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lambda={},min={}", self.lambda(), self.minimum())?;
        match self.count() {
            Count::Tumbling { window, shifted } => {
                write!(f, ",window={window}")?;
                if shifted || f.alternate() {
                    write!(f, ",shift={}", if shifted { "on" } else { "off" })?;
                }
            }
            Count::Decaying { half_life } => write!(f, ",count=decaying,tau={half_life}")?,
            Count::Paced { half_life } => write!(f, ",count=decaying,tau={half_life}calls")?,
            Count::Uncounted => f.write_str(",count=none")?,
        }
        if let Some(share) = self.share() {
            write!(f, ",share={share}")?;
        }
        if self.exponent() != Bump::EXPONENT_DEFAULT || f.alternate() {
            write!(f, ",exponent={}", self.exponent())?;
        }
        Ok(())
    }
}

/// As in a config: `capacity=50,rate=2`.
impl fmt::Display for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "capacity={},rate={}", self.capacity(), self.rate())
    }
}

#[cfg(test)]
mod tests;
