//! The numbers of stratified randomness: a scrambled net.
//!
//! The counter's bits are reversed, so that the lowest one comes first (van der Corput's sequence),
//! and then scrambled by a triangular hash, in which each bit depends on itself and on the bits
//! below it only. So the first j bits of a number are a permutation of the counter's last j bits,
//! and the permutation depends on the counter's other bits (a nested scramble: A. Owen, "Randomly
//! permuted (t,m,s)-nets and (t,s)-sequences", 1995; by hashing: S. Laine and T. Karras,
//! "Stratified sampling for stochastic transparency", 2011).
//!
//! Multiples of the golden ratio count a little more exactly over any stretch of calls, but they
//! resonate: the multiples of a Fibonacci number of calls hardly move, so a kind of call that comes
//! every 144th time may never be kept.

/// The constants of N. Vegdahl, "Owen scrambling based dithered blue-noise sampling" (2022). They
/// are even, which makes the step below invertible and triangular.
const EVEN: [u64; 4] = [0x6c50_b47c, 0xb82f_1e52, 0xc7af_e638, 0x8d22_f6e6];
/// 2^64 divided by the golden ratio, and another odd number.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
const ODD_2: u64 = 0x632b_e59b_d9b4_e019;

/// The number at place `counter` of the sequence that begins at `start`, which is random.
///
/// - Each single number is uniform over the starts, so thresholds stay true.
/// - Of the 2^j numbers at the places from m 2^j to (m + 1) 2^j - 1, one begins with each
///   combination of j bits. The number of them below a bound is off by less than 1.
/// - Which place has which combination is chosen anew for each m. So a kind of call that comes
///   every n-th time is missed no more often than with independent numbers, for every n.
///
/// Only the high 32 bits are this good: the low ones change little from place to place.
#[inline]
pub const fn net(start: u64, counter: u64) -> u64 {
    let mut bits = counter.reverse_bits().wrapping_add(start);
    let mut round = 0;
    while round < EVEN.len() {
        bits ^= bits.wrapping_mul(EVEN[round]);
        bits = bits.wrapping_mul(ODD).wrapping_add(ODD_2);
        round += 1;
    }
    bits
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use astracer_testing::SplitMix;

    /// A number as a share of all numbers.
    fn unit(value: u64) -> f64 {
        (value >> 11) as f64 / (1u64 << 53) as f64
    }

    fn starts(seed: u64) -> impl Iterator<Item = u64> {
        let mut random = SplitMix::new(seed);
        std::iter::repeat_with(move || random.next())
    }

    #[test]
    fn an_aligned_block_has_each_combination_of_first_bits_once() {
        for start in starts(1).take(20) {
            for bits in 1..=12u32 {
                for block in [0, 1, 6, 1_000_003u64] {
                    let mut seen = vec![false; 1 << bits];
                    for place in 0..1u64 << bits {
                        let first = net(start, (block << bits) + place) >> (u64::BITS - bits);
                        assert!(
                            !std::mem::replace(&mut seen[first as usize], true),
                            "{start} {bits} {block}"
                        );
                    }
                }
            }
        }
    }

    /// 4,000 starts in 16 cells: a mean of 250 with a standard deviation of 15.3.
    #[test]
    fn the_number_at_each_place_is_uniform() {
        for place in [0, 1, 7, 1 << 20] {
            let mut cells = [0i32; 16];
            starts(2).take(4_000).for_each(|start| cells[(net(start, place) >> 60) as usize] += 1);
            assert!(cells.iter().all(|cell| (cell - 250).abs() < 5 * 16), "{place}: {cells:?}");
        }
    }

    /// The places at which two neighbouring blocks of 8 have the first number below 1/8: 64
    /// combinations, 6,400 starts. The sum of squares has 63 degrees of freedom, so a mean of 63
    /// and a standard deviation of 11.2.
    #[test]
    fn neighbouring_blocks_are_scrambled_independently() {
        let mut cells = [0f64; 64];
        for start in starts(3).take(6_400) {
            let place = |block: u64| (0..8).find(|place| net(start, 8 * block + place) >> 61 == 0).unwrap();
            cells[(8 * place(4) + place(5)) as usize] += 1.0;
        }
        let squares: f64 = cells.iter().map(|cell| (cell - 100.0).powi(2) / 100.0).sum();
        assert!(squares < 63.0 + 4.0 * 11.2, "{squares}: {cells:?}");
    }

    /// The share of sequences that keep none of a kind of call which is every `period`-th call of a
    /// key. The kind has 3 / p calls, so independent numbers miss all of them with probability (1 -
    /// p)^(3 / p).
    fn missed(period: u64, p: f64, starts: &[(u64, u64)], number: impl Fn(u64, u64) -> u64) -> f64 {
        let calls = (3.0 / p).round() as u64;
        let missed = starts.iter().filter(|&&(start, first)| {
            (0..calls).all(|call| unit(number(start, first % period + call * period)) >= p)
        });
        missed.count() as f64 / starts.len() as f64
    }

    /// Each period from 2 to 1,000, within four standard errors. On the scale of arcsines of roots
    /// the standard error of a share of n is 1 / (2 sqrt(n)), and small shares are nearly normal.
    /// The smaller p is, the more calls are needed, so there are fewer sequences.
    #[test]
    fn no_period_is_missed_more_often_than_by_independent_numbers() {
        for (p, sequences) in [(0.5f64, 400), (0.3, 400), (0.1, 400), (0.0721, 400), (0.01, 200), (0.001, 50)]
        {
            let starts: Vec<_> = starts(5).zip(starts(6)).take(sequences).collect();
            let independent: f64 = (1.0 - p).powf((3.0 / p).round());
            let error = 0.5 / (sequences as f64).sqrt();
            let mut all = 0.0;
            for period in 2..=1_000 {
                let missed = missed(period, p, &starts, net);
                let off = missed.sqrt().asin() - independent.sqrt().asin();
                assert!(off <= 4.0 * error, "p {p}, period {period}: {missed} missed of {independent}");
                all += missed / 999.0;
            }
            assert!((all - independent).abs() < 0.2 * independent, "p {p}: {all} of {independent}");
        }
        // The golden ratio misses such kinds: the test would notice.
        let starts: Vec<_> = starts(7).take(200).map(|start| (start, start >> 32)).collect();
        let golden = |start: u64, counter: u64| start.wrapping_add(counter.wrapping_mul(ODD));
        let missed = [144, 233].map(|period| missed(period, 0.1, &starts, golden));
        assert!(missed[0] > 0.4 && missed[1] > 0.6, "{missed:?}");
    }

    /// The standard error of a key's count, after its first calls and over later stretches,
    /// against that of multiples of the golden ratio. Independent numbers are off by 15 of 3,000
    /// calls at p = 0.1, and these by less than 1.
    #[test]
    fn counts_are_nearly_as_exact_as_with_the_golden_ratio() {
        let golden = |start: u64, counter: u64| start.wrapping_add(counter.wrapping_mul(ODD));
        let error = |number: &dyn Fn(u64, u64) -> u64, calls: u64, p: f64, is_later: bool| {
            let square = |start: u64| {
                let first = if is_later { start >> 52 } else { 0 };
                let kept = (first..first + calls).filter(|&counter| unit(number(start, counter)) < p);
                (kept.count() as f64 - calls as f64 * p).powi(2)
            };
            (starts(11).take(300).map(square).sum::<f64>() / 300.0).sqrt()
        };
        let (mut of_net, mut of_golden) = (0.0, 0.0);
        for calls in [30, 300, 3_000] {
            for p in [0.01, 0.0721, 0.1, 0.3, 0.5] {
                let [own, other] =
                    [&net as &dyn Fn(u64, u64) -> u64, &golden].map(|number| error(number, calls, p, false));
                assert!(own <= 1.5 * other, "{calls} calls, p {p}: {own} against {other}");
                of_net += error(&net, calls, p, true);
                of_golden += error(&golden, calls, p, true);
            }
        }
        assert!(of_net <= 1.5 * of_golden, "later stretches: {of_net} against {of_golden}");
    }
}
