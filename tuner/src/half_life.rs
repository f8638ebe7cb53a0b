//! Half-lives of counts, by either of two clocks.

use astracer_samplers::{Count, Nanos};
use serde::Serialize;

/// The pace's time that stands for one call, ns.
pub(crate) const CALL_NS: f64 = 1e6;

/// The clock that a half-life is measured by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Clock {
    /// Calls of all keys, at their slow rate: what is kept does not depend on the speed of traffic.
    #[default]
    Calls,
    /// Seconds: a burst is short by it, however many calls it has.
    Seconds,
}

/// A half-life, by either clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub enum HalfLife {
    /// In calls of all keys.
    #[serde(rename = "half_life_calls")]
    Calls(f64),
    /// In seconds.
    #[serde(rename = "half_life_s")]
    Seconds(f64),
}

impl HalfLife {
    /// The half-life of this length in the clock's time, ns.
    pub(crate) fn of_ns(clock: Clock, ns: f64) -> Self {
        match clock {
            Clock::Calls => Self::Calls((ns / CALL_NS).round().max(1.0)),
            Clock::Seconds => Self::Seconds(ns / 1e9),
        }
    }

    /// Its length in the clock's time, ns; see `Draw::timed`.
    pub(crate) fn ns(self) -> f64 {
        match self {
            Self::Calls(calls) => calls * CALL_NS,
            Self::Seconds(seconds) => seconds * 1e9,
        }
    }

    pub(crate) fn clock(self) -> Clock {
        match self {
            Self::Calls(_) => Clock::Calls,
            Self::Seconds(_) => Clock::Seconds,
        }
    }

    pub(crate) fn count(self) -> Count {
        match self {
            Self::Calls(calls) => Count::Paced { half_life: calls.round() as u64 },
            Self::Seconds(seconds) => {
                Count::Decaying { half_life: Nanos::new((seconds * 1e9).round() as u64) }
            }
        }
    }
}
