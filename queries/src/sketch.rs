//! Quantiles with a relative error of 1 %, from sketches that can be merged: Masson, Rim, Lee,
//! "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees", 2019.

use std::collections::BTreeMap;

use crate::wire::{Reader, Writer};

/// The ratio of a bin's bounds, for which every value is within 1 % of the bin's middle.
const GAMMA: f64 = 1.01 / 0.99;
/// Bins of one sign that have values. Values below them share the lowest bin.
const BINS: usize = 4096;
/// A weight of 1 in the bins' fixed-point numbers, whose sums do not depend on the order.
const ONE: f64 = (1_u64 << 32) as f64;

/// Counts of values in bins of geometric width.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sketch {
    positive: BTreeMap<i32, u128>,
    negative: BTreeMap<i32, u128>,
    zero: u128,
    /// The weight of infinite values: negative ones and positive ones.
    infinite: [u128; 2],
    /// The least and the greatest finite value.
    range: Option<(f64, f64)>,
}

impl Sketch {
    /// Adds a value of a weight.
    pub(crate) fn add(&mut self, value: f64, weight: f64) {
        let weight = (weight * ONE).round() as u128;
        if value.is_infinite() {
            let side = &mut self.infinite[usize::from(value > 0.0)];
            *side = side.saturating_add(weight);
            return;
        }
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
        for (side, more) in self.infinite.iter_mut().zip(other.infinite) {
            *side = side.saturating_add(scaled(more));
        }
        if let Some((low, high)) = other.range {
            self.widen(low, high);
        }
    }

    /// The value below which the share `quantile` of the weight lies. Between two values it is
    /// interpolated, as `inspect` does: Hyndman and Fan's definition 7, "Sample Quantiles in
    /// Statistical Packages", 1996.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<f64> {
        let all = self.all();
        // Kept late, every value stands for none.
        if all == 0 {
            return None;
        }
        let place = quantile * (all.saturating_sub(ONE as u128)) as f64 / ONE;
        let (below, part) = (place.floor(), place.fract());
        let lower = self.at(below)?;
        if part == 0.0 {
            return Some(lower);
        }
        let upper = self.at(below + 1.0)?;
        // Between two infinities there is no way.
        Some(if lower == upper { lower } else { lower + part * (upper - lower) })
    }

    fn all(&self) -> u128 {
        let others = self.positive.values().chain(self.negative.values()).chain(&self.infinite);
        others.fold(self.zero, |sum, &weight| sum.saturating_add(weight))
    }

    /// The weight of all values.
    pub(crate) fn weight(&self) -> f64 {
        self.all() as f64 / ONE
    }

    /// The value at a rank, from 0.
    fn at(&self, rank: f64) -> Option<f64> {
        let rank = (rank * ONE) as u128;
        let (low, high) = self.range.unwrap_or_default();
        let middle = |bin: i32| (2.0 * GAMMA.powi(bin) / (GAMMA + 1.0)).min(f64::MAX);
        let negative = self.negative.iter().rev().map(|(&bin, &weight)| (-middle(bin), weight));
        let positive = self.positive.iter().map(|(&bin, &weight)| (middle(bin), weight));
        let finite = negative.chain([(0.0, self.zero)]).chain(positive);
        let finite = finite.map(|(value, weight)| (value.clamp(low, high), weight));
        let ends = [(f64::NEG_INFINITY, self.infinite[0]), (f64::INFINITY, self.infinite[1])];
        let mut before = 0_u128;
        let mut last = None;
        for (value, weight) in ends[..1].iter().copied().chain(finite).chain(ends[1..].iter().copied()) {
            before = before.saturating_add(weight);
            if weight > 0 {
                last = Some(value);
            }
            if before > rank {
                break;
            }
        }
        last
    }

    pub(crate) fn size(&self) -> usize {
        28 + 8 * (self.positive.len() + self.negative.len())
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
        self.infinite.iter().for_each(|&weight| out.wide(weight));
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
        sketch.infinite = [from.wide()?, from.wide()?];
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

/// Folds the lowest bins into one while there are too many. The result does not depend on the
/// order: all below the highest bins end in the lowest of those.
fn collapse(side: &mut BTreeMap<i32, u128>) {
    while side.len() > BINS {
        let Some((_, weight)) = side.pop_first() else { return };
        if let Some(mut lowest) = side.first_entry() {
            *lowest.get_mut() = lowest.get().saturating_add(weight);
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
            let place = quantile * (values.len() - 1) as f64;
            let [below, above] = [place.floor(), place.ceil()].map(|at| values[at as usize]);
            let exact = below + place.fract() * (above - below);
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
        assert!(sketch.positive.len() <= BINS);
        assert_eq!(sketch.quantile(1.0).map(|value| (value / 1e297).round()), Some(100.0));
    }
}
