//! All measures of parameters, whichever of them was made small.

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::RootParameters;
use crate::bucket::BucketReplay;
use crate::expect::{BumpPoint, Expectation, Expected};
use crate::space::{Parameters, bucket_of};
use crate::workload::Workload;

/// The score of parameters, latencies included: in expectation for bump, exactly for the bucket. `None` if a sampler
/// does not allow them.
pub(super) fn measure(
    workload: &Workload,
    common: &Parameters,
    per_root: &[RootParameters],
) -> Option<Expected> {
    let own: HashMap<&str, &Parameters> =
        per_root.iter().map(|root| (root.key.as_str(), &root.parameters)).collect();
    let names = workload.keys().names();
    let of_key: Vec<&Parameters> = names.map(|name| own.get(name).copied().unwrap_or(common)).collect();
    match common {
        Parameters::Bump { .. } => bump(workload, &of_key),
        Parameters::Bucket { .. } => {
            let buckets = of_key.iter().map(|parameters| bucket_of(parameters).ok());
            let buckets = buckets.collect::<Option<Vec<_>>>()?;
            Some(BucketReplay::new(workload).expected(|key| &buckets[key], true))
        }
    }
}

fn bump(workload: &Workload, of_key: &[&Parameters]) -> Option<Expected> {
    let window_ns = |parameters: &&Parameters| match **parameters {
        Parameters::Bump { window_s, .. } => NonZeroU64::new((window_s * 1e9).round() as u64),
        Parameters::Bucket { .. } => None,
    };
    let mut windows = of_key.iter().map(window_ns).collect::<Option<Vec<_>>>()?;
    windows.sort_unstable();
    windows.dedup();
    let point = |parameters: &&Parameters| match **parameters {
        Parameters::Bump { lambda, min, .. } => {
            let window = windows.binary_search(&window_ns(parameters)?).ok()?;
            Some(BumpPoint { lambda, minimum: min, window })
        }
        Parameters::Bucket { .. } => None,
    };
    let points = of_key.iter().map(point).collect::<Option<Vec<_>>>()?;
    let expectation = Expectation::with_windows(workload, &windows, true);
    Some(expectation.bump(|key| points[key], &mut expectation.scratch()))
}
