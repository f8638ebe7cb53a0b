//! A good and a bad instance that are like most of their class.

use serde::Serialize;

use super::super::instances::Class;
use super::super::moments::Moments;
use super::Compared;

/// The ranked variables in which an instance should be like its class.
const VARIABLES: usize = 5;

/// A good and a bad instance of one type, near the means of their classes in the metric and in the
/// first ranked variables.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Typical {
    /// Their type.
    pub r#type: String,
    /// Their ids.
    pub ids: [String; 2],
    /// Their metrics.
    pub metrics: [f64; 2],
    /// Their values of the first ranked variables, as many as [`super::Details::variables`]; `None`
    /// where missing.
    pub values: Vec<[Option<f64>; 2]>,
    /// Their places among all instances.
    #[serde(skip)]
    pub places: [usize; 2],
}

/// Finds a typical instance of each class. `None` if no type has instances of both.
pub(super) fn typical(compared: &Compared<'_>, metric: &[f64], columns: &[Vec<f64>]) -> Option<Typical> {
    let stratum = telling_type(compared, columns.first().map_or(metric, Vec::as_slice))?;
    let looked_at: Vec<&[f64]> =
        std::iter::once(metric).chain(columns.iter().take(VARIABLES).map(Vec::as_slice)).collect();
    let places = [Class::Good, Class::Bad].map(|class| {
        let members: Vec<usize> = (0..compared.heads.len())
            .filter(|&at| compared.heads[at].stratum == stratum && compared.heads[at].class == class)
            .collect();
        let moments: Vec<Moments> = looked_at
            .iter()
            .map(|values| {
                let mut moments = Moments::default();
                members.iter().for_each(|&at| moments.add(values[at], 1.0));
                moments
            })
            .collect();
        let distance = |at: usize| -> f64 {
            let off = |(values, moments): (&&[f64], &Moments)| {
                let spread = moments.deviation().max(moments.mean().abs() * 1e-3).max(f64::MIN_POSITIVE);
                let off = (values[at] - moments.mean()).abs() / spread;
                // A missing value is far from the mean if most others have one.
                let present = moments.n() as f64 / members.len() as f64;
                if off.is_finite() { off } else { 3.0 * present }
            };
            looked_at.iter().zip(&moments).map(off).sum()
        };
        members.iter().copied().min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then(a.cmp(&b)))
    });
    let [Some(good), Some(bad)] = places else { return None };
    let value = |value: f64| value.is_finite().then_some(value);
    Some(Typical {
        r#type: compared.types[stratum as usize].clone(),
        ids: [good, bad].map(|at| compared.heads[at].id.clone()),
        metrics: [good, bad].map(|at| metric[at]),
        values: columns.iter().map(|of| [good, bad].map(|at| value(of[at]))).collect(),
        places: [good, bad],
    })
}

/// The type in which these values differ most, times its bad instances; without values, the type
/// with the most bad instances.
fn telling_type(compared: &Compared<'_>, values: &[f64]) -> Option<u32> {
    let mut counts = vec![[0u64; 2]; compared.types.len()];
    let mut moments = vec![[Moments::default(); 2]; compared.types.len()];
    for (head, &value) in compared.heads.iter().zip(values) {
        let (stratum, class) = (head.stratum as usize, head.class.index());
        counts[stratum][class] += 1;
        moments[stratum][class].add(value, 1.0);
    }
    let weight = |place: usize| {
        let [good, bad] = &moments[place];
        let difference = (bad.mean() - good.mean()).abs();
        let bads = counts[place][1] as f64;
        (if difference.is_finite() { difference * bads } else { 0.0 }, bads)
    };
    let has_both = |&place: &usize| counts[place].iter().all(|&n| n > 0);
    let places = (0..compared.types.len()).filter(has_both);
    let best = places.max_by(|&a, &b| {
        let (one, other) = (weight(a), weight(b));
        let by_size = one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1));
        // The first name decides between equal types.
        by_size.then_with(|| compared.types[b].cmp(&compared.types[a]))
    });
    best.map(|place| place as u32)
}
