//! The wall clock, which tests replace.

use std::fmt::Debug;
use std::time::SystemTime;

/// Provides the current time.
pub trait Clock: Send + Sync + Debug {
    /// Returns the current time.
    fn now(&self) -> SystemTime;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
