//! The question that a sampler is asked.

use crate::nanos::Nanos;
use crate::randomness::Randomness;

/// A question: is this trace, about to begin, to be kept?
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The text that calls are counted by; see [`KeyRule`](crate::KeyRule).
    pub key: &'a str,
    /// The trace's randomness.
    pub randomness: Randomness,
    /// The caller's monotonic clock.
    pub now: Nanos,
}

impl<'a> Request<'a> {
    /// A request.
    pub const fn new(key: &'a str, randomness: Randomness, now: Nanos) -> Self {
        Request { key, randomness, now }
    }
}
