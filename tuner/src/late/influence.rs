//! The influence of each trace on what a sample says about functions.

use crate::stop::Stop;
use crate::workload::Workload;

/// The weight of counts beside means and deviations. Without counts their errors are ten times as
/// large; a weight of 1 makes them 15 to 45 % smaller still, and dist/entropy up to twice as large.
const COUNTS: f64 = 0.1;

/// The squared influence of each trace on the means and deviations of functions and, with the
/// weight [`COUNTS`], on their counts, each as a share of that of all traces. `None` if asked to
/// stop.
///
/// For a function with count c, mean m and deviation s in all, and x calls in the trace with sums y
/// and z of durations and their squares: ((y - x m) / c)^2, plus
/// ((z - 2 m y + x m^2 - x s^2) / (2 s c))^2 where s is not 0; and (x / c)^2 for counts.
pub(super) fn influence(workload: &Workload, stop: Stop<'_>) -> Option<Vec<f64>> {
    let mut pulse = stop.pulse();
    let (mut of_durations, mut of_counts) = (Vec::new(), Vec::new());
    for arrival in 0..workload.arrivals().len() {
        let (mut durations, mut counts) = (0.0, 0.0);
        for calls in workload.calls(arrival) {
            let function = &workload.functions()[calls.function as usize];
            let (all, sd) = (function.count as f64, function.duration_ms.sd);
            let own = f64::from(calls.count);
            durations += (calls.deviation / all).powi(2);
            if sd > 0.0 {
                durations += ((calls.deviation_squared - own * sd * sd) / (2.0 * sd * all)).powi(2);
            }
            counts += (own / all).powi(2);
        }
        of_durations.push(durations);
        of_counts.push(counts);
        if pulse.stopped_after(1 + workload.calls(arrival).len()) {
            return None;
        }
    }
    let share = |of: &[f64]| 1.0 / of.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let (durations, counts) = (share(&of_durations), COUNTS * share(&of_counts));
    Some(of_durations.iter().zip(&of_counts).map(|(i, j)| i * durations + j * counts).collect())
}
