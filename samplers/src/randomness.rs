//! The 56 random bits that a decision compares with a threshold.

use crate::mix::mix;

/// A trace's randomness `R`: 56 bits, the same for every span of the trace.
///
/// It is the tracestate's `rv` if there is one, otherwise the last seven bytes of a randomly
/// generated trace id (W3C Trace Context level 2, "random trace id").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Randomness(u64);

impl Randomness {
    /// The number of bits.
    pub const BITS: u32 = 56;
    /// The least value: kept only by [`Threshold::ALWAYS`](crate::Threshold::ALWAYS).
    pub const MIN: Randomness = Randomness(0);
    /// The greatest value: kept by every threshold.
    pub const MAX: Randomness = Randomness((1 << Self::BITS) - 1);

    /// The low 56 bits of `bits`; the high 8 are ignored.
    pub const fn from_low_bits(bits: u64) -> Self {
        Randomness(bits & Self::MAX.0)
    }

    /// The last seven bytes of a trace id.
    pub const fn from_trace_id(trace_id: u128) -> Self {
        Self::from_low_bits(trace_id as u64)
    }

    /// A hash of a trace id, for a decision that must not depend on the one by the id's own bytes.
    /// Each `purpose` has an independent value.
    pub const fn hashed(trace_id: u128, purpose: u64) -> Self {
        let high = mix((trace_id >> 64) as u64 ^ mix(purpose));
        Self::from_low_bits(mix(trace_id as u64 ^ high))
    }

    /// The value, below 2^56.
    pub const fn get(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_last_seven_bytes_of_a_trace_id() {
        let id = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff;
        assert_eq!(Randomness::from_trace_id(id).get(), 0x99_aabb_ccdd_eeff);
        assert_eq!(Randomness::from_low_bits(u64::MAX), Randomness::MAX);
        assert_eq!(Randomness::MAX.get(), 0xff_ffff_ffff_ffff);
    }
}
