//! Errors of counts that are estimated by weights, for functions and roots, with and without
//! calibration to the roots' exact counts.
//!
//! A trace kept with probability p represents 1 / p traces (Horvitz and Thompson). The record table
//! knows the exact number of traces of each root. Calibration scales the weights of each root so
//! that they add up to this number.

use crate::score::Reference;
use crate::workload::Workload;

/// Relative errors below this are rounding errors of sums of some millions of weights.
const ROUNDING: f64 = 1e-12;

/// The errors of one run's estimates.
#[derive(Clone, Debug)]
pub(crate) struct Estimates {
    /// Squared relative errors of the estimated number of calls, by function.
    pub(crate) functions: Vec<f64>,
    /// The same with calibrated weights.
    pub(crate) calibrated: Vec<f64>,
    /// Squared relative errors of the estimated number of traces, by key.
    pub(crate) roots: Vec<f64>,
    /// SS from weighted means and standard deviations, ms.
    pub(crate) ss_ms: f64,
}

/// Estimates from the kept traces and their weights.
pub(crate) fn estimates(workload: &Workload, reference: &Reference, kept: &[(usize, f64)]) -> Estimates {
    let arrivals = workload.arrivals();
    let exact = &reference.traces_by_key;
    let mut by_key = vec![0.0; exact.len()];
    for &(arrival, weight) in kept {
        by_key[arrivals[arrival].key as usize] += weight;
    }
    // For each function: its weighted count, deviation and squared deviation, and its calibrated
    // count.
    let mut sums = vec![[0.0; 4]; workload.functions().len()];
    for &(arrival, weight) in kept {
        let key = arrivals[arrival].key as usize;
        let calibrated = weight * f64::from(exact[key]) / by_key[key];
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
    let error = |estimate: f64, exact: f64| {
        let relative = if exact > 0.0 { estimate / exact - 1.0 } else { 0.0 };
        if relative.abs() < ROUNDING { 0.0 } else { relative.powi(2) }
    };
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
            .zip(exact)
            .filter(|(_, exact)| **exact > 0)
            .map(|(&estimate, &exact)| error(estimate, f64::from(exact)))
            .collect(),
        ss_ms: reference.distance(workload, moments),
    }
}

/// Squared relative errors by function (or root), summed over several runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct MeanSquares {
    sums: Vec<f64>,
    runs: f64,
}

impl MeanSquares {
    pub(crate) fn add(&mut self, run: &[f64]) {
        self.sums.resize(run.len(), 0.0);
        self.sums.iter_mut().zip(run).for_each(|(sum, square)| *sum += square);
        self.runs += 1.0;
    }

    /// The root mean square over the runs, averaged over functions (or roots).
    pub(crate) fn mean_root(&self) -> f64 {
        let roots = self.sums.iter().map(|sum| (sum / self.runs).sqrt());
        roots.sum::<f64>() / self.sums.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use astracer_samplers::{Config, RandomSource};

    use super::*;
    use crate::candidate::Candidate;
    use crate::draw::Draw;
    use crate::stop::Stop;
    use crate::testing::{recorded, synthetic};

    /// Every second trace with weight 2, compared with a calculation from the calls themselves.
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
        // Every trace of the root "quiet" has exactly one call of the function "quiet", so its
        // calibrated count is exact.
        let quiet =
            workload.functions().iter().position(|function| &*function.name == "quiet").expect("known");
        assert!(found.calibrated[quiet] == 0.0 && found.functions[quiet] > 0.0, "{found:?}");
        // Recalculates the errors of all keys that have a trace.
        let of = |key: u32, every: usize| {
            let traces = workload.arrivals().iter().step_by(every).filter(|arrival| arrival.key == key);
            every as f64 * traces.count() as f64
        };
        let keys = (0..workload.keys().len() as u32).filter(|&key| of(key, 1) > 0.0);
        let roots: Vec<f64> = keys.map(|key| (of(key, 2) / of(key, 1) - 1.0).powi(2)).collect();
        assert_eq!(found.roots, roots);
    }

    #[test]
    fn errors_are_roots_of_mean_squares() {
        let mut squares = MeanSquares::default();
        squares.add(&[0.09, 0.0]);
        squares.add(&[0.07, 0.16]);
        // Both roots are sqrt(0.08).
        assert!((squares.mean_root() - 0.08f64.sqrt()).abs() < 1e-12);
    }

    /// Over 200 seeds of recorded traffic, on draws of phase and jitter, the means of summed
    /// weights equal the exact counts.
    ///
    /// The bound: the mean of 200 runs is approximately normal (each root and function here is kept
    /// at least dozens of times), and its standard error is the runs' standard deviation divided by
    /// sqrt(200). There are some 115 counts in each of four cases. A given one lies beyond 4.5
    /// standard errors with probability 7e-6, and any of the 460 with probability 3e-3. The
    /// standard deviation is estimated from the runs. For independent traces there is a second
    /// estimate, the root of the sum of c^2 w (w - 1) over the kept traces (Horvitz and Thompson
    /// 1952); the larger of the two is used.
    #[test]
    fn true_weights_have_no_bias() {
        const SEEDS: usize = 200;
        let workload = recorded("hdfs_client_ops");
        let roots = workload.keys().len();
        let mut exact = vec![0.0; roots];
        workload.arrivals().iter().for_each(|arrival| exact[arrival.key as usize] += 1.0);
        exact.extend(workload.functions().iter().map(|function| function.count as f64));
        let per_key = "bump:lambda=0.1,min=0.08,count=decaying,tau=250ms,exponent=2.5;\
                       \"client:stat\":lambda=0,min=0.03,count=none;\"client:concat\":lambda=0,min=0.9,count=none";
        for sampler in ["bump:lambda=0.3,min=0.05,window=1s", per_key] {
            let candidate = Candidate::from(sampler.parse::<Config>().expect(sampler));
            for random in [RandomSource::Independent, RandomSource::Stratified] {
                let mut sums = vec![(0.0, 0.0, 0.0); exact.len()];
                for draw in Draw::unseen(SEEDS, 4_000, random) {
                    let (mut run, mut variances) = (vec![0.0; exact.len()], vec![0.0; exact.len()]);
                    let mut add = |place: usize, count: f64, weight: f64| {
                        run[place] += count * weight;
                        variances[place] += count * count * weight * (weight - 1.0);
                    };
                    let finished = candidate.replay(&workload, &draw, Stop::never(), |arrival, weight| {
                        let weight = weight.expect("decided by chance");
                        add(workload.arrivals()[arrival].key as usize, 1.0, weight);
                        for calls in workload.calls(arrival) {
                            add(roots + calls.function as usize, f64::from(calls.count), weight);
                        }
                    });
                    assert!(finished);
                    for ((sum, run), variance) in sums.iter_mut().zip(&run).zip(&variances) {
                        *sum = (sum.0 + run, sum.1 + run * run, sum.2 + variance);
                    }
                }
                for ((&exact, &(sum, squares, variance)), place) in exact.iter().zip(&sums).zip(0..) {
                    let seeds = SEEDS as f64;
                    let mean = sum / seeds;
                    let of_runs = (squares / seeds - mean * mean).max(0.0) * seeds / (seeds - 1.0);
                    let by_formula = if random == RandomSource::Independent { variance / seeds } else { 0.0 };
                    let error = (of_runs.max(by_formula) / seeds).sqrt();
                    let off = (mean - exact).abs();
                    let what = format!("{sampler}, {random:?}, number {place}: {mean}, should be {exact}");
                    assert!(off <= 4.5 * error + 1e-6 * exact, "{what} within {error}");
                }
            }
        }
    }
}
