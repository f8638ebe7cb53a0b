//! The mix of request types: shares that differ between the classes.
//!
//! Without weights the test is Pearson's chi-square test of homogeneity. Shares of weighted samples
//! have other variances, and of each type another one: 30 traces of weight 80 say less than 2,400
//! of weight 1. Then the statistic Σ (q - q')² / p, of shares q and q' in both classes and p in
//! both together, is the sum of squares of normal numbers with different variances λ. By the
//! second-order correction of J. N. K. Rao and A. J. Scott ("On Chi-Squared Tests for Multiway
//! Contingency Tables with Cell Proportions Estimated from Survey Data", Annals of Statistics 12,
//! 1984), it is compared with Σλ² / Σλ times chi-square with (Σλ)² / Σλ² degrees of freedom. With
//! equal weights these are Pearson's numbers.

use serde::Serialize;

use super::instances::Head;
use super::moments::weight_at;

/// The types of requests in both classes.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Mix {
    /// The p-value of a chi-square test of homogeneity, with weights by the second-order correction
    /// of Rao and Scott; `None` with a single type.
    pub p: Option<f64>,
    /// True if the mix differs: p < 0.05.
    pub differs: bool,
    /// The types, the most frequent first.
    pub types: Vec<TypeRow>,
}

/// One type of requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TypeRow {
    /// Its name.
    pub name: String,
    /// The number of good and bad instances.
    pub instances: [u64; 2],
    /// Its share of the good and of the bad class, weighted, 0 to 1.
    pub shares: [f64; 2],
}

/// The mix of these instances.
pub fn mix(heads: &[Head], types: &[String], weights: Option<&[f64]>) -> Mix {
    let mut rows: Vec<TypeRow> = types
        .iter()
        .map(|name| TypeRow { name: name.clone(), instances: [0; 2], shares: [0.0; 2] })
        .collect();
    let mut cells = vec![[Cell::default(); 2]; types.len()];
    for (at, head) in heads.iter().enumerate() {
        let (of_type, class) = (head.stratum as usize, head.class.index());
        rows[of_type].instances[class] += 1;
        cells[of_type][class].add(Cell::of(weight_at(weights, at)));
    }
    let p = chi_square(&cells);
    let all = total(&cells);
    for (row, cell) in rows.iter_mut().zip(&cells) {
        row.shares =
            [0, 1].map(|class| if all[class].sum > 0.0 { cell[class].sum / all[class].sum } else { 0.0 });
    }
    rows.sort_by(|a, b| {
        let count = |row: &TypeRow| row.instances[0] + row.instances[1];
        count(b).cmp(&count(a)).then_with(|| a.name.cmp(&b.name))
    });
    Mix { p, differs: p.is_some_and(|p| p < super::ranking::LEVEL), types: rows }
}

/// Expected counts below this are pooled with other rare types (W. Cochran's rule of 5). Of unequal
/// weights, counts are effective ones.
const EXPECTED_MIN: f64 = 5.0;

/// The weights of a type's instances in one class.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// Σw.
    sum: f64,
    /// Σw².
    square: f64,
}

impl Cell {
    fn of(weight: f64) -> Self {
        Self { sum: weight, square: weight * weight }
    }

    fn add(&mut self, other: Self) {
        self.sum += other.sum;
        self.square += other.square;
    }

    /// The mean weight, if each instance counts by its weight. Without instances that of `all`.
    fn weight(&self, all: &Self) -> f64 {
        let known = if self.sum > 0.0 { self } else { all };
        known.square / known.sum
    }
}

fn total(cells: &[[Cell; 2]]) -> [Cell; 2] {
    let mut all = [Cell::default(); 2];
    cells.iter().for_each(|cell| all.iter_mut().zip(cell).for_each(|(all, own)| all.add(*own)));
    all
}

/// The share of a type in both classes together, by their effective numbers.
fn pooled(cell: &[Cell; 2], all: &[Cell; 2]) -> f64 {
    let numbers = all.map(|class| class.sum * class.sum / class.square);
    let share = |class: usize| numbers[class] * cell[class].sum / all[class].sum;
    (share(0) + share(1)) / (numbers[0] + numbers[1])
}

fn chi_square(types: &[[Cell; 2]]) -> Option<f64> {
    let all = total(types);
    let is_rare = |cell: &&[Cell; 2]| {
        let share = pooled(cell, &all);
        let expected = |class: usize| share * all[class].sum / cell[class].weight(&all[class]);
        expected(0).min(expected(1)) < EXPECTED_MIN
    };
    let mut cells: Vec<[Cell; 2]> = types.iter().filter(|cell| !is_rare(cell)).copied().collect();
    let rare = total(&types.iter().filter(is_rare).copied().collect::<Vec<_>>());
    if !is_rare(&&rare) {
        cells.push(rare);
    }
    if cells.len() < 2 {
        return None;
    }
    let all = total(&cells);
    // With r the variance of a type's difference by its share p, and C = Σpr, Σλ is Σr - C, and Σλ²
    // is Σr² - 2 Σpr² + C².
    let (mut statistic, mut of_r, mut of_square, mut of_both, mut mean) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for cell in &cells {
        let share = pooled(cell, &all);
        let r: f64 = (0..2).map(|class: usize| cell[class].weight(&all[class]) / all[class].sum).sum();
        statistic += (cell[0].sum / all[0].sum - cell[1].sum / all[1].sum).powi(2) / share;
        of_r += r;
        of_square += r * r;
        of_both += share * r * r;
        mean += share * r;
    }
    let (first, second) = (of_r - mean, of_square - 2.0 * of_both + mean * mean);
    Some(upper_gamma(first * first / second / 2.0, statistic * first / second / 2.0))
}

/// The regularised upper incomplete gamma function Q(a, x): the tail of chi-square with 2a degrees
/// of freedom at 2x. By its series or continued fraction (DLMF 8.7.1 and 8.9.2).
fn upper_gamma(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    let front = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-16 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return 1.0 - front * sum;
    }
    let tiny = 1e-300;
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / tiny, 1.0 / b);
    let mut h = d;
    for n in 1..10_000 {
        let an = -f64::from(n) * (f64::from(n) - a);
        b += 2.0;
        d = 1.0 / (an * d + b);
        c = b + an / c;
        let change = d * c;
        h *= change;
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * h
}

/// ln Γ(a), by Stirling's series far from 0.
fn ln_gamma(a: f64) -> f64 {
    let (mut at, mut product) = (a, 1.0f64);
    while at < 15.0 {
        product *= at;
        at += 1.0;
    }
    let inverse = 1.0 / at;
    let square = inverse * inverse;
    let series =
        inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1_260.0 - square / 1_680.0)));
    (at - 0.5) * at.ln() - at + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - product.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(n: u32, weight: f64) -> Cell {
        Cell { sum: f64::from(n) * weight, square: f64::from(n) * weight * weight }
    }

    /// One class has 20 and 20 traces of weight 1, the other 14 and 6 of weight 4. As for counts, p
    /// is 34/60, and chi-square .2² / (34/60 x 26/60 x (1/40 + 1/20)) = 2.17 with one degree of
    /// freedom: p = 0.141. Sums of weights, 56 and 24, would give 0.032.
    #[test]
    fn weights_add_nothing_to_the_numbers() {
        let row = |good: u32, bad: u32| [counted(good, 1.0), counted(bad, 4.0)];
        let p = chi_square(&[row(20, 14), row(20, 6)]).expect("two types");
        assert!((p - 0.1406).abs() < 1e-4, "{p}");
    }

    /// The first type has 10 of 40 traces and 20 of weight 1, the second 30 and 20 of weight 4. The
    /// shares .25 and .2 have with 40 and 100²/340 effective traces p = .229 together. The variance
    /// of their difference is p(1 - p) ((1 - p)(1/40 + 1/100) + p (1/40 + 4/100)), by which .05² is
    /// 0.338: p = 0.561. The traces as counted would differ (p = 0.021).
    #[test]
    fn each_type_has_the_variance_of_its_weights() {
        let rows = [[counted(10, 1.0), counted(20, 1.0)], [counted(30, 1.0), counted(20, 4.0)]];
        let p = chi_square(&rows).expect("two types");
        assert!((p - 0.5607).abs() < 2e-4, "{p}");
    }

    /// From the printed tables of chi-square: 5 % and 0.1 %.
    #[test]
    fn tails_are_those_of_the_tables() {
        for (df, five, one_tenth) in
            [(1.0, 3.841, 10.828), (2.0, 5.991, 13.816), (10.0, 18.307, 29.588), (100.0, 124.342, 149.449)]
        {
            assert!((upper_gamma(df / 2.0, five / 2.0) - 0.05).abs() < 3e-5, "{df}");
            assert!((upper_gamma(df / 2.0, one_tenth / 2.0) - 0.001).abs() < 1e-6, "{df}");
        }
    }

    /// 30 and 20 of one type, 10 and 40 of the other: expected 20 and 30 each, so chi-square is
    /// 100/20 + 100/30 + 100/20 + 100/30 = 50/3 with one degree of freedom, p = 4.46e-5.
    #[test]
    fn a_changed_mix_is_a_finding() {
        let row = |counts: [u32; 2]| counts.map(|n| counted(n, 1.0));
        let p = chi_square(&[row([30, 20]), row([10, 40])]).expect("two types");
        assert!((p - 4.46e-5).abs() < 2e-7, "{p}");
        assert_eq!(chi_square(&[row([30, 20])]), None);
        // Three rare types are one.
        assert_eq!(chi_square(&[row([30, 20]), row([1, 0]), row([0, 1])]), None);
    }
}
