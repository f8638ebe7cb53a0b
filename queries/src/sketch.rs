//! Quantiles with a relative error of 1 %, from sketches that can be merged: Masson, Rim, Lee,
//! "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees", 2019.

use std::collections::BTreeMap;

use crate::wire::{Reader, Writer};

/// The ratio of a bin's bounds, for which every value is within 1 % of the bin's middle.
const GAMMA: f64 = 1.01 / 0.99;
/// Bins of one sign: from the largest down to 10^-35 of it. Smaller values share the lowest bin.
const BINS: i32 = 4096;
/// A weight of 1 in the bins' fixed-point numbers, whose sums do not depend on the order.
const ONE: f64 = (1_u64 << 32) as f64;

/// Counts of values in bins of geometric width.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sketch {
    positive: BTreeMap<i32, u128>,
    negative: BTreeMap<i32, u128>,
    zero: u128,
    range: Option<(f64, f64)>,
}

impl Sketch {
    /// Adds a finite value of a weight.
    pub(crate) fn add(&mut self, value: f64, weight: f64) {
        let weight = (weight * ONE).round() as u128;
        let side = match value {
            value if value > 0.0 => &mut self.positive,
            value if value < 0.0 => &mut self.negative,
            _ => {
                self.zero = self.zero.saturating_add(weight);
                self.widen(value, value);
                return;
            }
        };
        let bin = (value.abs().ln() / GAMMA.ln()).ceil() as i32;
        add_to(side, bin, weight);
        collapse(side);
        self.widen(value, value);
    }

    fn widen(&mut self, low: f64, high: f64) {
        self.range = Some(self.range.map_or((low, high), |(least, most)| (least.min(low), most.max(high))));
    }

    /// Adds another sketch, each value `times` times.
    pub(crate) fn merge(&mut self, other: &Sketch, times: f64) {
        let scaled =
            |weight: u128| if times == 1.0 { weight } else { (weight as f64 * times).round() as u128 };
        for (side, bins) in [(&mut self.positive, &other.positive), (&mut self.negative, &other.negative)] {
            for (&bin, &weight) in bins {
                add_to(side, bin, scaled(weight));
            }
            collapse(side);
        }
        self.zero = self.zero.saturating_add(scaled(other.zero));
        if let Some((low, high)) = other.range {
            self.widen(low, high);
        }
    }

    /// The value below which the share `quantile` of the weight lies.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<f64> {
        let (low, high) = self.range?;
        let all = self
            .positive
            .values()
            .chain(self.negative.values())
            .fold(self.zero, |sum, &weight| sum.saturating_add(weight));
        // Kept late, every value stands for none.
        if all == 0 {
            return None;
        }
        let rank = (quantile * (all.saturating_sub(ONE as u128)) as f64) as u128;
        let middle = |bin: i32| 2.0 * GAMMA.powi(bin) / (GAMMA + 1.0);
        let negative = self.negative.iter().rev().map(|(&bin, &weight)| (-middle(bin), weight));
        let positive = self.positive.iter().map(|(&bin, &weight)| (middle(bin), weight));
        let mut before = 0_u128;
        for (value, weight) in negative.chain([(0.0, self.zero)]).chain(positive) {
            before = before.saturating_add(weight);
            if before > rank {
                return Some(value.clamp(low, high));
            }
        }
        Some(high)
    }

    pub(crate) fn size(&self) -> usize {
        24 + 8 * (self.positive.len() + self.negative.len())
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        for side in [&self.positive, &self.negative] {
            out.number(side.len() as u64);
            for (&bin, &weight) in side {
                out.signed(bin.into());
                out.wide(weight);
            }
        }
        out.wide(self.zero);
        out.byte(u8::from(self.range.is_some()));
        if let Some((low, high)) = self.range {
            out.float(low);
            out.float(high);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Option<Sketch> {
        let mut sketch = Sketch::default();
        for side in [&mut sketch.positive, &mut sketch.negative] {
            for _ in 0..from.count(BINS as u64)? {
                let bin = i32::try_from(from.signed()?).ok().filter(|bin| bin.abs() < 100_000)?;
                add_to(side, bin, from.wide()?);
            }
            collapse(side);
        }
        sketch.zero = from.wide()?;
        if from.flag()? {
            let (low, high) = (from.float()?, from.float()?);
            if !low.is_finite() || !high.is_finite() || low > high {
                return None;
            }
            sketch.range = Some((low, high));
        } else if sketch.zero != 0 || !sketch.positive.is_empty() || !sketch.negative.is_empty() {
            return None;
        }
        Some(sketch)
    }
}

fn add_to(side: &mut BTreeMap<i32, u128>, bin: i32, weight: u128) {
    let count = side.entry(bin).or_default();
    *count = count.saturating_add(weight);
}

/// Folds bins far below the highest into one. The result depends only on the values, because the
/// highest bin never falls.
fn collapse(side: &mut BTreeMap<i32, u128>) {
    let (Some((&first, _)), Some((&last, _))) = (side.first_key_value(), side.last_key_value()) else {
        return;
    };
    let lowest = last.saturating_sub(BINS - 1);
    if first < lowest {
        let kept = side.split_off(&lowest);
        let folded = std::mem::replace(side, kept);
        for weight in folded.into_values() {
            add_to(side, lowest, weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values over twelve orders of magnitude, of both signs; the truth is the sorted list.
    #[test]
    fn quantiles_are_within_one_percent() {
        let mut random = 1_u64;
        let mut values: Vec<f64> = (0..20_000)
            .map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let unit = (random >> 11) as f64 / (1_u64 << 53) as f64;
                10_f64.powf(unit * 12.0) * if random & (1 << 10) == 0 { 1.0 } else { -1.0 }
            })
            .collect();
        let mut parts = [Sketch::default(), Sketch::default(), Sketch::default()];
        for (index, &value) in values.iter().enumerate() {
            parts[index % 3].add(value, 1.0);
        }
        let mut sketch = Sketch::default();
        parts.iter().for_each(|part| sketch.merge(part, 1.0));
        values.sort_by(f64::total_cmp);
        for quantile in [0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = values[(quantile * (values.len() - 1) as f64) as usize];
            let found = sketch.quantile(quantile).unwrap();
            assert!((found - exact).abs() <= 0.0100001 * exact.abs(), "{quantile}: {found} for {exact}");
        }
        let mut out = Writer::default();
        sketch.encode(&mut out);
        let bytes = out.into_bytes();
        let copy = Sketch::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(copy.quantile(0.7), sketch.quantile(0.7));
    }

    #[test]
    fn weights_count_and_few_bins_remain() {
        let mut sketch = Sketch::default();
        assert_eq!(sketch.quantile(0.5), None);
        sketch.add(1.0, 1.0);
        sketch.add(100.0, 99.0);
        assert_eq!(sketch.quantile(0.5).map(f64::round), Some(100.0));
        for exponent in -300..300 {
            sketch.add(10_f64.powi(exponent), 1.0);
        }
        assert!(sketch.positive.len() <= BINS as usize);
        assert_eq!(sketch.quantile(1.0).map(|value| (value / 1e297).round()), Some(100.0));
    }
}
