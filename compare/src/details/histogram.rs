//! Histograms of both classes on one axis.

use serde::Serialize;

use super::Compared;

/// The bins of a histogram of numbers that are not few and whole.
const BINS: usize = 24;
/// Positive values that differ by this factor are drawn on a logarithmic axis.
const LOG_MIN: f64 = 100.0;
/// The same for positive values of which few are much larger than the others.
const LOG_TAIL_MIN: f64 = 10.0;
/// The share of each class beyond which values count for the outermost bins.
const OUTSIDE: f64 = 0.005;

/// The values of both classes, in common bins.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Histogram {
    /// The edges of the bins: one more than there are bins. Empty without values.
    pub edges: Vec<f64>,
    /// The share of the good and of the bad class's values in each bin.
    pub shares: [Vec<f64>; 2],
    /// True if each bin is wider than the one before by the same factor.
    pub log: bool,
    /// True if the outermost bins also count values beyond them.
    pub clipped: bool,
    /// The share of the good and of the bad class without a value.
    pub missing: [f64; 2],
}

impl Histogram {
    pub(super) fn new(compared: &Compared<'_>, values: &[f64]) -> Self {
        let mut of: [Vec<f64>; 2] = Default::default();
        for (head, &value) in compared.heads.iter().zip(values) {
            if value.is_finite() {
                of[head.class.index()].push(value);
            }
        }
        of.iter_mut().for_each(|values| values.sort_unstable_by(f64::total_cmp));
        let (edges, log, clipped) = bins(&of);
        let bins = edges.len().saturating_sub(1);
        let mut shares = [vec![0.0; bins], vec![0.0; bins]];
        let (mut known, mut all) = ([0.0; 2], [0.0; 2]);
        for (at, (head, &value)) in compared.heads.iter().zip(values).enumerate() {
            let (class, weight) = (head.class.index(), compared.weight(at));
            all[class] += weight;
            if value.is_finite() && bins > 0 {
                let bin = edges.partition_point(|&edge| edge <= value).clamp(1, bins) - 1;
                shares[class][bin] += weight;
                known[class] += weight;
            }
        }
        let part = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
        for (shares, known) in shares.iter_mut().zip(known) {
            shares.iter_mut().for_each(|share| *share = part(*share, known));
        }
        let missing = [0, 1].map(|class| part(all[class] - known[class], all[class]).max(0.0));
        Histogram { edges, shares, log, clipped, missing }
    }
}

/// Edges of bins for these sorted values.
fn bins(of: &[Vec<f64>; 2]) -> (Vec<f64>, bool, bool) {
    let ends = |beyond: f64| {
        let ends = of.iter().filter(|values| !values.is_empty()).map(|values| {
            let skipped = ((values.len() as f64 * beyond) as usize).min((values.len() - 1) / 2);
            (values[skipped], values[values.len() - 1 - skipped])
        });
        ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    };
    let Some((least, most)) = ends(0.0) else { return (Vec::new(), false, false) };
    let is_whole = of.iter().flatten().all(|value| value.fract() == 0.0);
    if is_whole && most - least < BINS as f64 && most.abs() < 1e9 {
        let bins = (most - least) as usize + 1;
        return ((0..=bins).map(|bin| least - 0.5 + bin as f64).collect(), false, false);
    }
    let place = |bin: usize| bin as f64 / BINS as f64;
    if least > 0.0 && most / least >= LOG_MIN {
        let step = (most / least).ln();
        return ((0..=BINS).map(|bin| least * (step * place(bin)).exp()).collect(), true, false);
    }
    let (mut from, mut to) = ends(OUTSIDE).unwrap_or((least, most));
    if most - least <= 2.0 * (to - from) {
        (from, to) = (least, most);
    } else if let Some((from, to)) = heavy_tail(of, most) {
        let step = (to / from).ln();
        return ((0..=BINS).map(|bin| from * (step * place(bin)).exp()).collect(), true, least < from);
    }
    if to - from <= f64::EPSILON * 64.0 * from.abs().max(to.abs()) {
        let half = from.abs().max(to.abs()).max(1e-9) * 0.05;
        (from, to) = (from - half, to + half);
    }
    let edge = |bin: usize| from + (to - from) * place(bin);
    let edges: Vec<f64> = (0..=BINS).map(edge).collect();
    // The range of huge values is infinite.
    if !edges.iter().all(|edge| edge.is_finite()) {
        return (Vec::new(), false, false);
    }
    (edges, false, least < from || most > to)
}

/// The ends of a logarithmic axis for values of which few are much larger than the others and none
/// is below 0. Zeros, and the smallest values, count for the first bin.
fn heavy_tail(of: &[Vec<f64>; 2], most: f64) -> Option<(f64, f64)> {
    let smallest = |values: &Vec<f64>| {
        let positive = &values[values.partition_point(|&value| value <= 0.0)..];
        let is_usable = values.first().is_none_or(|&least| least >= 0.0) && positive.len() * 2 > values.len();
        is_usable.then(|| positive.get((positive.len() as f64 * OUTSIDE) as usize).copied()).flatten()
    };
    let mut from = f64::INFINITY;
    for values in of.iter().filter(|values| !values.is_empty()) {
        from = from.min(smallest(values)?);
    }
    (most / from >= LOG_TAIL_MIN).then_some((from, most))
}

#[cfg(test)]
mod tests {
    use super::super::super::instances::{Class, Head};
    use super::super::super::sample::Sample;
    use super::super::tests::{heads, no_features};
    use super::*;

    fn histogram(good: &[f64], bad: &[f64], weights: Option<&[f64]>) -> Histogram {
        let heads: Vec<Head> = heads(good.len(), bad.len());
        assert!(heads.iter().any(|head| head.class == Class::Bad));
        let sample: Sample = no_features(&heads);
        let compared = Compared { sample: &sample, heads: &heads, types: &[], weights };
        Histogram::new(&compared, &[good, bad].concat())
    }

    #[test]
    fn few_whole_numbers_have_a_bin_each() {
        let got = histogram(&[1.0, 1.0, 3.0, f64::NAN], &[2.0, 3.0], None);
        assert_eq!(got.edges, [0.5, 1.5, 2.5, 3.5]);
        assert_eq!(got.shares, [vec![2.0 / 3.0, 0.0, 1.0 / 3.0], vec![0.0, 0.5, 0.5]]);
        assert_eq!((got.missing, got.log, got.clipped), ([0.25, 0.0], false, false));
    }

    #[test]
    fn weights_count() {
        let got = histogram(&[1.0, 2.0], &[1.0, 2.0], Some(&[1.0, 3.0, 1.0, 1.0]));
        assert_eq!(got.shares, [vec![0.25, 0.75], vec![0.5, 0.5]]);
    }

    #[test]
    fn wide_ranges_are_logarithmic_and_outliers_are_in_the_last_bin() {
        let got = histogram(&[0.5, 5.0, 50.5], &[500.5], None);
        assert!(got.log && got.edges.first() == Some(&0.5), "{got:?}");
        assert!((got.edges[BINS] - 500.5).abs() < 1e-9, "{got:?}");
        let mut many: Vec<f64> = (0..999).map(|n| f64::from(n) / 7.0 - 1.0).collect();
        many.push(1e6);
        let got = histogram(&many, &[0.5], None);
        assert!(got.clipped && got.edges[BINS] < 142.0, "{got:?}");
        assert!((got.shares[0].iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    /// 1,000 values up to 2 and one of 50: on a linear axis all but one are in the first bin.
    #[test]
    fn a_heavy_tail_is_logarithmic() {
        let mut many: Vec<f64> = (0..1_000).map(|n| 1.0 + f64::from(n) / 1_000.0).collect();
        many.push(50.0);
        let got = histogram(&many, &[1.5], None);
        assert!(got.log && (got.edges[BINS] - 50.0).abs() < 1e-9, "{got:?}");
        let filled = got.shares[0].iter().filter(|&&share| share > 0.0).count();
        assert!(filled >= 5, "{got:?}");
        many[0] = 0.0;
        let got = histogram(&many, &[1.5], None);
        assert!(got.log && got.clipped && got.edges[0] > 0.9, "{got:?}");
    }

    #[test]
    fn values_without_a_range_are_drawn_all_the_same() {
        assert_eq!(histogram(&[f64::NAN], &[f64::NAN], None).edges, [0.0; 0]);
        assert_eq!(histogram(&[f64::MAX], &[f64::MIN], None).edges, [0.0; 0]);
        let got = histogram(&[0.1, 0.1], &[0.1], None);
        assert!(got.edges[0] < 0.1 && got.edges[BINS] > 0.1, "{got:?}");
    }
}
