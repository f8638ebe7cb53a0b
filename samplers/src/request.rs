//! The question put to a sampler.

use crate::nanos::Nanos;
use crate::randomness::Randomness;

/// A trace that is about to begin: keep it or drop it?
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The text by which calls are counted; see [`KeyRule`](crate::KeyRule).
    pub key: &'a str,
    /// The trace's randomness.
    pub randomness: Randomness,
    /// The current time on the caller's monotonic clock.
    pub now: Nanos,
}

impl<'a> Request<'a> {
    /// A request with these values.
    pub const fn new(key: &'a str, randomness: Randomness, now: Nanos) -> Self {
        Request { key, randomness, now }
    }
}
