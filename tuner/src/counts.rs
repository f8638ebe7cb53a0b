//! Accuracy of counts by weight: functions and roots, as estimated and as calibrated to the roots' exact
//! numbers.
//!
//! A trace kept with probability p represents 1 / p traces (Horvitz and Thompson). The record table knows the
//! exact number of each root's traces; calibrated weights are those of each root, scaled so that they add up
//! to it.

use crate::score::Reference;
use crate::workload::Workload;

/// One run's estimates.
#[derive(Clone, Debug)]
pub(crate) struct Estimates {
    /// By function: the squares of the relative errors of estimated counts.
    pub(crate) functions: Vec<f64>,
    /// The same with calibrated weights.
    pub(crate) calibrated: Vec<f64>,
    /// By key, for the number of traces.
    pub(crate) roots: Vec<f64>,
    /// SS from weighted means and deviations, ms.
    pub(crate) ss_ms: f64,
}

/// Estimates from the traces kept, each with its weight.
pub(crate) fn estimates(workload: &Workload, reference: &Reference, kept: &[(usize, f64)]) -> Estimates {
    let arrivals = workload.arrivals();
    let mut exact = vec![0.0; workload.keys().len()];
    arrivals.iter().for_each(|arrival| exact[arrival.key as usize] += 1.0);
    let mut by_key = vec![0.0; exact.len()];
    for &(arrival, weight) in kept {
        by_key[arrivals[arrival].key as usize] += weight;
    }
    // Count, deviation and squared deviation by weight, and the calibrated count.
    let mut sums = vec![[0.0; 4]; workload.functions().len()];
    for &(arrival, weight) in kept {
        let key = arrivals[arrival].key as usize;
        let calibrated = weight * exact[key] / by_key[key];
        for calls in workload.calls(arrival) {
            let count = f64::from(calls.count);
            let values = [
                weight * count,
                weight * calls.deviation,
                weight * calls.deviation_squared,
                calibrated * count,
            ];
            sums[calls.function as usize].iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    let error = |estimate: f64, exact: f64| if exact > 0.0 { (estimate / exact - 1.0).powi(2) } else { 0.0 };
    let known = || workload.functions().iter().zip(&sums).filter(|(function, _)| function.count > 0);
    let moments = sums.iter().map(|&[count, deviation, squared, _]| {
        let mean = deviation / count;
        (count > 0.0).then(|| (mean, (squared / count - mean * mean).max(0.0).sqrt()))
    });
    Estimates {
        functions: known().map(|(function, sums)| error(sums[0], function.count as f64)).collect(),
        calibrated: known().map(|(function, sums)| error(sums[3], function.count as f64)).collect(),
        roots: by_key
            .iter()
            .zip(&exact)
            .filter(|(_, exact)| **exact > 0.0)
            .map(|(b, e)| error(*b, *e))
            .collect(),
        ss_ms: reference.distance(workload, moments),
    }
}

/// The mean over functions (or roots) of the root of their mean square over several runs.
pub(crate) fn root_mean_square<'e>(runs: impl Iterator<Item = &'e [f64]> + Clone) -> f64 {
    let (count, len) = (runs.clone().count().max(1), runs.clone().next().map_or(0, <[f64]>::len));
    let root = |place: usize| (runs.clone().map(|run| run[place]).sum::<f64>() / count as f64).sqrt();
    (0..len).map(root).sum::<f64>() / len.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic;

    /// Every second trace with weight 2: by hand, from the calls themselves.
    #[test]
    fn weights_estimate_and_calibration_makes_roots_exact() {
        let workload = synthetic(1000, 1);
        let reference = Reference::new(&workload);
        let all: Vec<(usize, f64)> = (0..1000).map(|arrival| (arrival, 1.0)).collect();
        let exact = estimates(&workload, &reference, &all);
        assert!(exact.ss_ms < 1e-9, "{}", exact.ss_ms);
        for errors in [&exact.functions, &exact.calibrated, &exact.roots] {
            assert!(errors.iter().all(|&error| error < 1e-20), "{errors:?}");
        }
        let half: Vec<(usize, f64)> = (0..1000).step_by(2).map(|arrival| (arrival, 2.0)).collect();
        let found = estimates(&workload, &reference, &half);
        let store =
            workload.functions().iter().position(|function| &*function.name == "store").expect("known");
        let kept: u32 = (0..1000)
            .step_by(2)
            .flat_map(|arrival| workload.calls(arrival))
            .filter(|calls| calls.function as usize == store)
            .map(|calls| calls.count)
            .sum();
        let expected = (2.0 * f64::from(kept) / workload.functions()[store].count as f64 - 1.0).powi(2);
        assert!((found.functions[store] - expected).abs() < 1e-12);
        // "quiet" is a root whose traces have one call of that function each: calibrated, it is exact.
        let quiet =
            workload.functions().iter().position(|function| &*function.name == "quiet").expect("known");
        assert!(found.calibrated[quiet] < 1e-20 && found.functions[quiet] > 0.0, "{found:?}");
    }

    #[test]
    fn errors_are_roots_of_mean_squares() {
        let runs = [vec![0.09, 0.0], vec![0.07, 0.16]];
        // sqrt(0.08) and sqrt(0.08).
        assert!((root_mean_square(runs.iter().map(Vec::as_slice)) - 0.08f64.sqrt()).abs() < 1e-12);
    }
}
