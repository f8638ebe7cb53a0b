//! The wall clock, which tests replace.

use std::fmt::Debug;
use std::time::SystemTime;

/// Says what time it is.
pub trait Clock: Send + Sync + Debug {
    /// Now.
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
