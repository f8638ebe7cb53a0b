//! Parameters of single keys with the names of their keys.

use super::RootParameters;
use crate::per_key;
use crate::workload::Workload;

/// The parameters found, each with its key's name and share of the workload's calls.
pub(super) fn named<'w>(
    workload: &'w Workload,
    found: &'w per_key::Found,
) -> impl Iterator<Item = RootParameters> + use<'w> {
    let names: Vec<&str> = workload.keys().names().collect();
    let (calls, all) = (workload.traces_by_key(), workload.arrivals().len() as f64);
    found.keys.iter().map(move |&(key, parameters)| RootParameters {
        key: names[key].to_owned(),
        parameters,
        share: f64::from(calls[key]) / all,
    })
}
