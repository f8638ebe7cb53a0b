//! Durations in OpenTelemetry's exponential histogram (data model, "ExponentialHistogram"): bucket
//! i of scale s counts durations in (b^i, b^(i+1)] seconds, for b = 2^(2^-s). The scale starts fine
//! and falls as the range of the data grows.

use crate::nanos::Nanos;

/// The greatest number of buckets, as in OpenTelemetry's SDKs by default.
const BUCKETS: usize = 160;
const SCALE_MAX: i32 = 20;

/// A histogram of durations. Counts are exact, and each duration is known to a few percent.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    scale: i32,
    /// The index of the first bucket.
    first: i32,
    /// The number of buckets in use, from the first on.
    used: usize,
    buckets: [u64; BUCKETS],
    zeros: u64,
    count: u64,
    /// In nanoseconds.
    sum: u128,
    min: Nanos,
    max: Nanos,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            scale: SCALE_MAX,
            first: 0,
            used: 0,
            buckets: [0; BUCKETS],
            zeros: 0,
            count: 0,
            sum: 0,
            min: Nanos::new(u64::MAX),
            max: Nanos::ZERO,
        }
    }
}

/// 2 to the power of a small exponent.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1_023 + i64::from(exponent)) as u64) << MANTISSA_BITS)
}

/// The number of fraction bits of a double.
const MANTISSA_BITS: u32 = 52;
const MANTISSA: u64 = (1 << MANTISSA_BITS) - 1;
/// The finest scale at which a bucket is found by comparison. Finer scales are rare: there, the
/// longest of the durations in 160 buckets is at most 1.54 times the shortest.
const COMPARED_SCALE: u32 = 7;
const BOUNDS: usize = 1 << COMPARED_SCALE;

/// The lower bounds of the buckets between 1 and 2 at that scale, as fractions of doubles, rounded
/// down.
static BOUND_FRACTIONS: [u64; BOUNDS] = bound_fractions();
/// For each of 2 * `BOUNDS` equal parts between 1 and 2, the number of bounds below its start. The
/// distance between bounds is more than the width of a part, by a factor of at least 2 ln 2, so at
/// most one bound lies within a part.
static BOUNDS_BELOW: [u8; 2 * BOUNDS] = bounds_below();

const fn bound_fractions() -> [u64; BOUNDS] {
    // 62 bits after the point: ten more than a double has, to absorb the rounding of each step.
    const POINT: u32 = 62;
    let mut fractions = [0; BOUNDS];
    let mut bound = 0;
    while bound < BOUNDS {
        let (mut root, mut product, mut bit) = (2_u128 << POINT, 1_u128 << POINT, BOUNDS >> 1);
        while bit > 0 {
            root = (root << POINT).isqrt();
            if bound & bit != 0 {
                product = (product * root) >> POINT;
            }
            bit >>= 1;
        }
        fractions[bound] = (product >> (POINT - MANTISSA_BITS)) as u64 & MANTISSA;
        bound += 1;
    }
    fractions
}

const fn bounds_below() -> [u8; 2 * BOUNDS] {
    let fractions = bound_fractions();
    let mut below = [0; 2 * BOUNDS];
    let (mut part, mut bound) = (0, 0);
    while part < 2 * BOUNDS {
        let start = (part as u64) << (MANTISSA_BITS - COMPARED_SCALE - 1);
        while bound < BOUNDS && fractions[bound] < start {
            bound += 1;
        }
        below[part] = bound as u8;
        part += 1;
    }
    below
}

/// The bucket of a number of seconds above 0.
#[inline]
fn index(seconds: f64, scale: i32) -> i32 {
    if scale > COMPARED_SCALE as i32 {
        return index_by_logarithm(seconds, scale);
    }
    let bits = seconds.to_bits();
    let octave = (bits >> MANTISSA_BITS) as i32 - 1_023;
    let fraction = bits & MANTISSA;
    let below = BOUNDS_BELOW[(fraction >> (MANTISSA_BITS - COMPARED_SCALE - 1)) as usize] as usize;
    // A number equal to a bound belongs to the bucket that ends there.
    let is_above = BOUND_FRACTIONS.get(below).is_some_and(|bound| *bound < fraction);
    let finest = (octave << COMPARED_SCALE) + (below as i32 + i32::from(is_above)) - 1;
    // Each bucket of a coarser scale consists of two of the next finer one.
    finest >> (COMPARED_SCALE as i32 - scale)
}

/// As [`index`], at any scale.
#[cold]
fn index_by_logarithm(seconds: f64, scale: i32) -> i32 {
    // Powers of two have exact logarithms, so the bounds of coarse buckets are exact.
    let steps = seconds.log2() * power_of_two(scale);
    // Durations of 64-bit nanoseconds are between 2^-30 and 2^35 seconds: below 2^26 steps at the
    // finest scale.
    steps.ceil() as i32 - 1
}

impl Histogram {
    /// Counts a duration.
    #[inline]
    pub fn record(&mut self, duration: Nanos) {
        self.count += 1;
        self.sum += u128::from(duration.get());
        self.min = self.min.min(duration);
        self.max = self.max.max(duration);
        if duration == Nanos::ZERO {
            self.zeros += 1;
            return;
        }
        let at = index(duration.as_secs_f64(), self.scale);
        // For a bucket below the first, the subtraction wraps around to a large number.
        let place = at.wrapping_sub(self.first) as u32 as usize;
        match self.buckets[..self.used].get_mut(place) {
            Some(bucket) => *bucket += 1,
            None => self.add(at, 1),
        }
    }

    /// Adds to a bucket of the present scale.
    #[cold]
    fn add(&mut self, mut at: i32, count: u64) {
        if self.used == 0 {
            (self.first, self.used) = (at, 1);
        } else if at < self.first || at >= self.first + self.used as i32 {
            at >>= self.merge_for(at);
            let below = (self.first - at).max(0) as usize;
            if below > 0 {
                self.buckets.copy_within(..self.used, below);
                self.buckets[..below].fill(0);
                self.first = at;
                self.used += below;
            }
            self.used = self.used.max((at - self.first) as usize + 1);
        }
        self.buckets[(at - self.first) as usize] += count;
    }

    /// Lowers the scale until this bucket fits in with those in use; returns by how much.
    fn merge_for(&mut self, at: i32) -> u32 {
        let (mut low, mut high) = (self.first.min(at), (self.first + self.used as i32 - 1).max(at));
        let mut steps = 0;
        while (high - low) as usize >= BUCKETS {
            (low, high) = (low >> 1, high >> 1);
            steps += 1;
        }
        self.lower(steps);
        steps
    }

    fn lower(&mut self, steps: u32) {
        if steps == 0 {
            return;
        }
        let old = std::mem::replace(&mut self.buckets, [0; BUCKETS]);
        let first = self.first >> steps;
        for (at, count) in old.iter().enumerate().take(self.used) {
            let bucket = ((self.first + at as i32) >> steps) - first;
            self.buckets[bucket as usize] += count;
        }
        self.used =
            (((self.first + self.used as i32 - 1) >> steps) - first) as usize + usize::from(self.used > 0);
        self.first = first;
        self.scale -= steps as i32;
    }

    /// Adds all durations of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.zeros += other.zeros;
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        if other.used == 0 {
            return;
        }
        if self.used == 0 {
            self.scale = other.scale;
        }
        self.lower((self.scale - other.scale).max(0) as u32);
        for (at, &count) in other.buckets[..other.used].iter().enumerate().filter(|(_, count)| **count > 0) {
            // The scale may fall while buckets are added.
            let steps = (other.scale - self.scale) as u32;
            self.add((other.first + at as i32) >> steps, count);
        }
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number of durations equal to 0.
    pub fn zeros(&self) -> u64 {
        self.zeros
    }

    /// The sum of all durations, in seconds.
    pub fn sum_seconds(&self) -> f64 {
        self.sum as f64 / 1e9
    }

    /// The shortest duration; `None` if the histogram is empty.
    pub fn min(&self) -> Option<Nanos> {
        (self.count > 0).then_some(self.min)
    }

    /// The longest duration; `None` if the histogram is empty.
    pub fn max(&self) -> Option<Nanos> {
        (self.count > 0).then_some(self.max)
    }

    /// The scale.
    pub fn scale(&self) -> i32 {
        self.scale
    }

    /// The index of the first bucket, and the counts from there on.
    pub fn buckets(&self) -> (i32, &[u64]) {
        (self.first, &self.buckets[..self.used])
    }

    /// The lower bound of a bucket, which is the upper bound of the one before.
    fn bound(&self, bucket: usize) -> Nanos {
        let exponent = f64::from(self.first + bucket as i32) * power_of_two(-self.scale);
        Nanos::new((exponent.exp2() * 1e9) as u64)
    }

    /// The duration that this share of all durations does not exceed. Durations are taken to be
    /// spread evenly over their bucket, so the error is below the bucket's width. `None` if the
    /// histogram is empty.
    pub fn quantile(&self, quantile: f64) -> Option<Nanos> {
        let max = self.max()?;
        let rank = ((quantile.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = self.zeros;
        if seen >= rank {
            return Some(Nanos::ZERO);
        }
        for (bucket, count) in self.buckets[..self.used].iter().enumerate() {
            if seen + count >= rank {
                let (low, high) = (self.bound(bucket).get(), self.bound(bucket + 1).get());
                let part = (rank - seen) as f64 / *count as f64;
                let found = Nanos::new(low + (high.saturating_sub(low) as f64 * part) as u64);
                return Some(found.clamp(self.min, max));
            }
            seen += count;
        }
        Some(max)
    }

    /// The number of durations that are certain to be at most this long: those in buckets that end
    /// at or below it.
    pub fn count_up_to(&self, duration: Nanos) -> u64 {
        if self.count > 0 && duration >= self.max {
            return self.count;
        }
        let ends = |bucket: &usize| self.bound(*bucket + 1) <= duration;
        let within: u64 = (0..self.used).take_while(ends).map(|bucket| self.buckets[bucket]).sum();
        self.zeros + within
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use astracer_testing::SplitMix;

    use super::*;

    fn of(durations: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        durations.iter().for_each(|&duration| histogram.record(Nanos::new(duration)));
        histogram
    }

    /// From the data model: at scale 0 bucket 0 is (1, 2] seconds, bucket -1 is (0.5, 1].
    #[test]
    fn bounds_are_those_of_the_data_model() {
        for (seconds, scale, bucket) in [
            (1.0, 0, -1),
            (2.0, 0, 0),
            (1.5, 0, 0),
            (4.0, 0, 1),
            (4.000_001, 0, 2),
            (2.0, 1, 1),
            (2.0, -1, 0),
            (0.5, 3, -9),
        ] {
            assert_eq!(index(seconds, scale), bucket, "{seconds} at {scale}");
        }
    }

    /// Compared with the logarithm, except so close to a bound that its rounding decides.
    #[test]
    fn buckets_are_the_same_by_comparing_and_by_logarithm() {
        let mut random = SplitMix::new(3);
        let check = |nanos: u64| {
            let seconds = Nanos::new(nanos).as_secs_f64();
            for scale in -10..=COMPARED_SCALE as i32 {
                let steps = seconds.log2() * power_of_two(scale);
                let (compared, by_logarithm) = (index(seconds, scale), index_by_logarithm(seconds, scale));
                let is_close = (steps - steps.round()).abs() < 1e-9;
                assert!(
                    compared == by_logarithm || is_close && (compared - by_logarithm).abs() == 1,
                    "{nanos} ns at {scale}: {compared}, {by_logarithm}"
                );
            }
        };
        (0..100_000).for_each(|_| check((random.next() >> (random.next() % 60)).max(1)));
        for octave in -29..=33 {
            for bound in 0..BOUNDS {
                let at = f64::from(octave) + bound as f64 / BOUNDS as f64;
                let nanos = (at.exp2() * 1e9) as u64;
                (nanos.max(2) - 1..=nanos + 1).for_each(check);
            }
        }
    }

    /// Each bound is the greatest double below the square root of the bound at twice its index,
    /// which is equally exact.
    #[test]
    fn bounds_to_compare_with_are_exact() {
        let of = |bound: usize| u128::from(BOUND_FRACTIONS[bound] | 1 << MANTISSA_BITS);
        for bound in 0..BOUNDS {
            let square = match 2 * bound {
                even if even < BOUNDS => of(even),
                even => 2 * of(even - BOUNDS),
            };
            let (low, high) =
                (square << MANTISSA_BITS, (square + if 2 * bound < BOUNDS { 1 } else { 2 }) << MANTISSA_BITS);
            assert!(of(bound).pow(2) < high && (of(bound) + 1).pow(2) > low, "{bound}");
        }
        // A power of two ends its bucket at any scale; the next double is in the following bucket.
        for octave in -30..=33 {
            let seconds = f64::from(octave).exp2();
            for scale in 0..=COMPARED_SCALE as i32 {
                assert_eq!(index(seconds, scale), (octave << scale) - 1);
                assert_eq!(index(seconds.next_up(), scale), octave << scale);
            }
        }
    }

    #[test]
    fn any_durations_fit_and_are_counted() {
        let histogram = of(&[0, 1, u64::MAX, 1_000_000_000]);
        assert_eq!((histogram.count(), histogram.zeros()), (4, 1));
        assert_eq!(histogram.buckets().1.iter().sum::<u64>(), 3);
        // 64 octaves in 160 buckets: two buckets for each.
        assert_eq!(histogram.scale(), 1);
        assert_eq!((histogram.min(), histogram.max()), (Some(Nanos::ZERO), Some(Nanos::new(u64::MAX))));
    }

    /// Five octaves of 32 buckets each fit, one bucket more does not.
    #[test]
    fn the_scale_falls_when_all_buckets_are_taken() {
        let histogram = of(&[1_001_000_000, 32_000_000_000]);
        assert_eq!((histogram.scale(), histogram.buckets().0, histogram.buckets().1.len()), (5, 0, BUCKETS));
        let histogram = of(&[1_001_000_000, 32_001_000_000]);
        assert_eq!((histogram.scale(), histogram.buckets().1.len()), (4, BUCKETS / 2 + 1));
    }

    /// Compared with all durations, sorted.
    #[test]
    fn quantiles_are_wrong_by_less_than_a_bucket() {
        let mut random = SplitMix::new(7);
        for spread in [2_u64, 1_000, 1_000_000, 1_000_000_000_000] {
            let mut durations: Vec<u64> = (0..5_000).map(|_| 1 + random.next() % spread).collect();
            let histogram = of(&durations);
            durations.sort_unstable();
            let width = 2_f64.powf(2_f64.powi(-histogram.scale()));
            for quantile in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let rank = ((quantile * 5_000.0_f64).ceil() as usize).max(1);
                let (exact, found) = (durations[rank - 1], histogram.quantile(quantile).unwrap().get());
                // The bounds are computed in doubles: right to a nanosecond.
                let (low, high) = (exact as f64 / width - 1.0, exact as f64 * width + 1.0);
                assert!(
                    (low..=high).contains(&(found as f64)),
                    "{spread}, {quantile}: {found}, exact {exact}"
                );
            }
        }
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let mut random = SplitMix::new(11);
        for _ in 0..50 {
            let durations: Vec<u64> = (0..200).map(|_| random.next() >> (4 + random.next() % 60)).collect();
            let (left, right) = durations.split_at((random.next() % 200) as usize);
            let (mut merged, right) = (of(left), of(right));
            merged.merge(&right);
            let whole = of(&durations);
            assert_eq!(merged.count(), whole.count());
            assert_eq!(merged.sum_seconds(), whole.sum_seconds());
            // The order of arrival affects how far the scale fell, by at most one step.
            let mut coarser = (merged.clone(), whole.clone());
            let scale = merged.scale().min(whole.scale()) - 1;
            coarser.0.lower((merged.scale() - scale) as u32);
            coarser.1.lower((whole.scale() - scale) as u32);
            assert_eq!(coarser.0.buckets(), coarser.1.buckets());
        }
    }
}
