//! Division by an invariant number: a multiplication in place of the processor's division
//! instruction.
//!
//! Source: Granlund and Montgomery, "Division by Invariant Integers using Multiplication" (1994),
//! figure 4.1.

/// Divides exactly by the number that it was built for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    magic: u64,
    shift_first: u32,
    shift_last: u32,
}

impl Divisor {
    /// `divisor` must not be 0; 0 is treated as 1.
    pub(crate) const fn new(divisor: u64) -> Self {
        let divisor = if divisor == 0 { 1 } else { divisor };
        // ceil(log2(divisor))
        let bits = u64::BITS - (divisor - 1).leading_zeros();
        let power = 1u128 << bits;
        let magic = ((power - divisor as u128) << 64) / divisor as u128 + 1;
        Divisor {
            magic: magic as u64,
            shift_first: if bits > 1 { 1 } else { bits },
            shift_last: bits.saturating_sub(1),
        }
    }

    /// `dividend` / divisor, rounded down.
    #[inline]
    pub(crate) const fn quotient(self, dividend: u64) -> u64 {
        let high = ((self.magic as u128 * dividend as u128) >> 64) as u64;
        (high + ((dividend - high) >> self.shift_first)) >> self.shift_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_division(dividend: u64, divisor in 1u64..) {
            prop_assert_eq!(Divisor::new(divisor).quotient(dividend), dividend / divisor);
        }

        /// Multiples and their neighbours, where a wrong magic number shows first.
        #[test]
        fn equals_division_around_multiples(factor in 0u64..1 << 32, divisor in 1u64..1 << 32, delta in -1i64..=1) {
            let dividend = (factor * divisor).saturating_add_signed(delta);
            prop_assert_eq!(Divisor::new(divisor).quotient(dividend), dividend / divisor);
        }
    }

    #[test]
    fn equals_division_at_the_ends() {
        for divisor in [1, 2, 3, 1_000_000, 1_000_000_000, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, u64::MAX] {
            for dividend in [0, 1, 2, divisor - 1, divisor, divisor.saturating_add(1), u64::MAX - 1, u64::MAX]
            {
                assert_eq!(
                    Divisor::new(divisor).quotient(dividend),
                    dividend / divisor,
                    "{dividend} / {divisor}"
                );
            }
        }
    }
}
