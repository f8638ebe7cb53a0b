//! The mix of request types: shares that differ between the classes.

use serde::Serialize;

use super::instances::Head;
use super::moments::weight_at;

/// The types of requests in both classes.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Mix {
    /// The p-value of a chi-square test of homogeneity; `None` with a single type.
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
    let mut all = [0.0; 2];
    for (at, head) in heads.iter().enumerate() {
        let (row, class) = (&mut rows[head.stratum as usize], head.class.index());
        let weight = weight_at(weights, at);
        row.instances[class] += 1;
        row.shares[class] += weight;
        all[class] += weight;
    }
    let p = chi_square(&rows);
    for row in &mut rows {
        row.shares = [0, 1].map(|class| if all[class] > 0.0 { row.shares[class] / all[class] } else { 0.0 });
    }
    rows.sort_by(|a, b| {
        let count = |row: &TypeRow| row.instances[0] + row.instances[1];
        count(b).cmp(&count(a)).then_with(|| a.name.cmp(&b.name))
    });
    Mix { p, differs: p.is_some_and(|p| p < super::ranking::LEVEL), types: rows }
}

/// Expected counts below this are pooled with other rare types (W. Cochran's rule of 5).
const EXPECTED_MIN: f64 = 5.0;

fn chi_square(rows: &[TypeRow]) -> Option<f64> {
    let mut all = [0.0; 2];
    for row in rows {
        all.iter_mut().zip(row.instances).for_each(|(all, n)| *all += n as f64);
    }
    let sum = all[0] + all[1];
    let least = all[0].min(all[1]) / sum;
    let is_rare = |row: &&TypeRow| (row.instances[0] + row.instances[1]) as f64 * least < EXPECTED_MIN;
    let mut cells: Vec<[f64; 2]> =
        rows.iter().filter(|row| !is_rare(row)).map(|row| row.instances.map(|n| n as f64)).collect();
    let rare = rows.iter().filter(is_rare).fold([0.0; 2], |sum: [f64; 2], row| {
        [sum[0] + row.instances[0] as f64, sum[1] + row.instances[1] as f64]
    });
    if (rare[0] + rare[1]) * least >= EXPECTED_MIN {
        cells.push(rare);
    }
    if cells.len() < 2 {
        return None;
    }
    let mut counted = [0.0; 2];
    cells.iter().for_each(|cell| counted.iter_mut().zip(cell).for_each(|(all, n)| *all += n));
    let sum = counted[0] + counted[1];
    let part = |cell: &[f64; 2]| {
        (0..2)
            .map(|class| {
                let expected = (cell[0] + cell[1]) * counted[class] / sum;
                (cell[class] - expected).powi(2) / expected
            })
            .sum::<f64>()
    };
    let statistic: f64 = cells.iter().map(part).sum();
    Some(upper_gamma((cells.len() - 1) as f64 / 2.0, statistic / 2.0))
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
        let row = |name: &str, instances| TypeRow { name: name.to_owned(), instances, shares: [0.0; 2] };
        let p = chi_square(&[row("a", [30, 20]), row("b", [10, 40])]).expect("two types");
        assert!((p - 4.46e-5).abs() < 2e-7, "{p}");
        assert_eq!(chi_square(&[row("a", [30, 20])]), None);
        // Three rare types are one.
        assert_eq!(chi_square(&[row("a", [30, 20]), row("b", [1, 0]), row("c", [0, 1])]), None);
    }
}
