//! Random numbers for unit tests.

use crate::Randomness;

/// SplitMix64 (Steele, Lea and Flood, 2014): the same numbers for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn randomness(&mut self) -> Randomness {
        Randomness::from_low_bits(self.next() >> 8)
    }
}
