//! Compares a recording with the one that a parameters file comes from.

use std::collections::HashSet;

use astracer_samplers::Config;
use astracer_samplers::parameters::Parameters;
use astracer_samplers::strata::Strata;
use serde::Serialize;

use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::statistics::MeanSd;
use crate::stop::Stop;
use crate::workload::Workload;

/// One draw for each jitter.
const DRAWS: usize = 3;
/// A size that is off by this factor does not fit.
const OFF: f64 = 1.5;

/// The fit of a parameters file to a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Fit {
    /// Keys that the file names.
    pub keys: u64,
    /// Keys of the file that the recording has.
    pub keys_seen: u64,
    /// The share of traces whose key the file names.
    pub named: f64,
    /// The share of traces that the file's sampler and cap keep.
    pub kept: f64,
    /// The share that they kept of the recording that the file comes from.
    pub recorded_kept: Option<f64>,
}

impl Fit {
    /// Replays the file's sampler. The workload must have the file's keys. `None` if asked to stop,
    /// or without traces.
    pub fn new(workload: &Workload, parameters: &Parameters, stop: Stop<'_>) -> Option<Self> {
        // Strata have keys of the roots' ends, and the sampler those of their starts.
        let at_end = parameters.key.attributes_at_end().len() > 0;
        let mut keys: HashSet<&str> = match &parameters.config {
            _ if at_end => HashSet::new(),
            Config::Bump(bump) => bump.overrides().map(|(key, _)| key).collect(),
            Config::TokenBucket(bucket) => bucket.overrides().map(|(key, _)| key).collect(),
            _ => HashSet::new(),
        };
        let strata = parameters.strata.iter().flat_map(Strata::probabilities);
        keys.extend(strata.map(|(key, _)| key));
        let mut traces = vec![0; workload.end_keys().len()];
        workload.arrivals().iter().for_each(|arrival| traces[arrival.end_key as usize] += 1);
        let calls = workload.end_keys().names().zip(traces);
        let seen: Vec<u32> =
            calls.filter(|(key, calls)| *calls > 0 && keys.contains(key)).map(|(_, calls)| calls).collect();
        let traces = workload.arrivals().len() as f64;
        let candidate =
            Candidate::of_file(parameters.config.clone(), parameters.strata.as_ref(), parameters.cap);
        let kept = Draw::unseen(DRAWS, 1, parameters.random).into_iter().map(|draw| {
            let mut kept = 0u64;
            candidate.replay(workload, &draw, stop, |_, _| kept += 1).then_some(kept as f64 / traces)
        });
        let kept: Vec<f64> = kept.collect::<Option<_>>()?;
        (traces > 0.0).then(|| Self {
            keys: keys.len() as u64,
            keys_seen: seen.len() as u64,
            // A sum of nothing is -0.
            named: (seen.into_iter().map(f64::from).sum::<f64>() / traces).abs(),
            kept: MeanSd::of(kept.into_iter()).mean,
            recorded_kept: parameters.recorded_kept.map(|kept| kept.get()),
        })
    }

    /// The share kept as a multiple of that of the file's recording, if the file has it.
    pub fn size(&self) -> Option<f64> {
        self.recorded_kept.filter(|&recorded| recorded > 0.0).map(|recorded| self.kept / recorded)
    }

    /// A sentence on why the file does not fit, if it does not.
    pub fn problem(&self) -> Option<&'static str> {
        if self.keys > 0 && self.keys_seen == 0 {
            return Some(
                "the recording has none of the file's keys: all routes renamed? Tune on this recording",
            );
        }
        let is_off = self.size().is_some_and(|size| !(1.0 / OFF..=OFF).contains(&size));
        is_off.then_some("the size is off by more than 1.5: tune on this recording")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic;

    /// The synthetic workload has the keys busy, quiet and once. 100 of 1,000 replays are a tenth.
    #[test]
    fn a_file_fits_its_own_recording_and_no_renamed_one() {
        let workload = synthetic(2000, 1);
        let fit = |text: &str| {
            let parameters: Parameters = text.parse().expect("parameters");
            Fit::new(&workload, &parameters, Stop::never()).expect("not stopped")
        };
        let of = |first: &str, second: &str, recorded: f64| {
            fit(&format!(
                "version = 5\nrandom = \"stratified\"\n[bump]\nlambda = 0.0\nmin = 0.1\ncount = \"none\"\n\
                 [bump.probability_by_key]\n{first} = 0.1\n{second} = 0.1\n[recorded]\nkept = {recorded}\n"
            ))
        };
        let same = of("busy", "quiet", 0.1);
        assert_eq!((same.keys, same.keys_seen, same.problem()), (2, 2, None));
        assert!((same.named - 1999.0 / 2000.0).abs() < 1e-9 && (same.kept - 0.1).abs() < 0.005, "{same:?}");
        let renamed = of("busy2", "quiet2", 0.1);
        assert_eq!((renamed.keys_seen, renamed.named), (0, 0.0));
        assert!(renamed.problem().expect("one").contains("all routes renamed?"));
        assert!(of("busy", "quiet", 0.06).problem().expect("one").contains("off by more than 1.5"));
        assert!(of("busy", "quiet", 0.07).problem().is_none());
        assert_eq!(fit("version = 1\n[ratio]\nprobability = 0.5\n").size(), None);
        // Strata keep less than their head records, and name keys of their own.
        let strata = fit(
            "version = 6\n[ratio]\nprobability = 0.5\n[strata]\nsize = 0.1\nrecord = \"all\"\n[strata.p.busy]\n\"-1\" = 0.1\n",
        );
        assert_eq!((strata.keys, strata.keys_seen), (1, 1));
        assert!(strata.kept < 0.2, "{strata:?}");
        let none = fit("version = 2\n[bump]\nlambda = 0.0\nmin = 0.1\ncount = \"none\"\n");
        assert!(none.named.is_sign_positive());
    }
}
