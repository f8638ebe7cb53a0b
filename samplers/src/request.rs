//! What a sampler is asked.

use crate::nanos::Nanos;
use crate::randomness::Randomness;

/// A question: is this trace, about to begin, to be kept?
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What calls are counted by: the root's name, its template, or more.
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
