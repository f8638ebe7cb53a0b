//! Pseudorandom numbers that stay the same from release to release.

/// SplitMix64: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators",
/// OOPSLA 2014. The same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        SplitMix(seed)
    }

    /// The next 64 random bits.
    #[allow(clippy::should_implement_trait, reason = "an iterator would never end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`, which is at least 1. Small numbers are favoured by at most
    /// `end / 2^64`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// An index of a slice of this length, which is at least 1.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True once in `n` calls in the mean.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.index(n) == 0
    }

    /// One of `all`, which is not empty.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    /// A number from 0 up to, but not including, 1, with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// SplitMix64's output function: spreads the bits of a state or of an id over the whole word.
pub fn mix(state: u64) -> u64 {
    let word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the seed 1234567, as Vigna's C reference implementation prints them.
    #[test]
    fn numbers_are_those_of_the_reference() {
        let mut random = SplitMix::new(1_234_567);
        let numbers = [(); 3].map(|()| random.next());
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn units_lie_between_0_and_1() {
        let mut random = SplitMix::new(1);
        let mean = (0..10_000).map(|_| random.unit()).sum::<f64>() / 1e4;
        // The standard error of the mean is sqrt(1/12/10^4) = 0.003.
        assert!((mean - 0.5).abs() < 0.015, "{mean}");
    }
}
