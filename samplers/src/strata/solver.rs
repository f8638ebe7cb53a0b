//! Adapts what strata keep to the traffic, off the path of requests.

use super::sampler::{SOLVE_AFTER, StrataSampler};
use super::state::PART_BITS;
use super::table::{Decaying, Moment, Record};
use crate::nanos::Nanos;
use crate::sync::Ordering;

/// The share of the kept bytes that new keys may take together.
const NEW_SHARE: f64 = 0.25;
/// The number of traces between two solutions.
const SOLVE_EVERY: u64 = 128;
/// The least time between two solutions.
const SOLVE_INTERVAL: Nanos = Nanos::from_millis(100);
/// Lambda is corrected by at most this factor, up or down.
const CORRECTION_MAX: f64 = 2.0;
/// The excess is left alone down to this part of what is wanted. Counts change between two
/// solutions, above all at the start, and a bound that hardly binds would follow them.
const STEERED_BELOW: f64 = 0.95;
/// At most this much time counts between two solutions, in seconds: what a pause hides is unknown.
const PAUSE_MAX: f64 = 300.0;

impl StrataSampler {
    /// Adapts lambda, and the probability of new keys, to the traffic so far. Call it at any time,
    /// off the path of requests: it does nothing if too little has changed, and otherwise takes up
    /// to a millisecond.
    pub fn solve(&self, now: Nanos) {
        let traces = self.state.traces.load(Ordering::Relaxed);
        let (solved, solved_at) =
            (self.state.solved.load(Ordering::Relaxed), self.state.solved_at.load(Ordering::Relaxed));
        let parts = |number: u64| number << PART_BITS;
        let is_due = if solved == 0 {
            traces >= parts(SOLVE_AFTER)
        } else {
            traces.wrapping_sub(solved) >= parts(SOLVE_EVERY)
                && now.get().abs_diff(solved_at) >= SOLVE_INTERVAL.get()
        };
        // Only the caller that changes the number solves.
        if !is_due
            || self
                .state
                .solved
                .compare_exchange(solved, traces, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        self.state.solved_at.store(now.get(), Ordering::Relaxed);
        let moment = self.moment(traces);
        let seconds = if solved == 0 { 0.0 } else { now.get().abs_diff(solved_at) as f64 / 1e9 };
        let sums = Sums::new(self, moment);
        self.steer(&sums, traces.wrapping_sub(solved) as f64, seconds.min(PAUSE_MAX));
        let factor = self.state.factor.get();
        let share = (self.strata.size.get() * factor).min(1.0);
        let of = |sum: &Decaying| f64::from(sum.get(moment));
        let (new, unfitted) = (of(&self.state.new.bytes), of(&self.state.unfitted));
        let all = bytes(&sums.fitted) + unfitted + new;
        if new > 0.0 {
            self.state.new_p.set((NEW_SHARE * share * all / new).min(1.0));
        }
        // The others share the rest of what new keys take.
        let share = share * all - self.state.new_p.get() * new;
        let share = (share / (all - new).max(1.0)).clamp(0.0, 1.0);
        if self.strata.lambda.is_some() {
            return;
        }
        let kept = share * bytes(&sums.unfitted);
        let Some(lambda) = lambda(&sums.unfitted, kept, self.floor * factor) else { return };
        // A stratum's count has decayed since its last trace, so the sum above is not quite what is
        // kept. The rest is corrected by what was.
        let (wanted, expected) = (share * unfitted, of(&self.state.expected));
        let elapsed = (traces.wrapping_sub(solved) >> PART_BITS) as f64 / f64::from(self.strata.half_life);
        if solved > 0 && wanted > 0.0 && expected > 0.0 {
            let change = (wanted / expected).powf(elapsed.min(1.0));
            let correction = self.state.correction.get() * change;
            self.state.correction.set(correction.clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX));
        }
        self.state.lambda.set(lambda * self.state.correction.get());
    }

    /// Bounds strata whose probabilities come from the parameters, if over an hour these keep more
    /// than the size of their bytes, or if a budget lowers it. Requests that become slower than
    /// recorded move to strata with higher probabilities. Only strata with many traces reach the
    /// bound, as with lambda, so what is rare stays whole.
    fn steer(&self, sums: &Sums, traces: f64, seconds: f64) {
        let fitted = bytes(&sums.fitted);
        if fitted <= 0.0 {
            return;
        }
        let size = self.strata.size.get();
        let wanted = sums.wanted;
        let share = self.state.steered.share((wanted * traces, fitted * traces), seconds, size);
        let factor = self.state.factor.get();
        // An hour of slow requests is not paid for by the next one.
        let kept = factor.min(1.0) * (wanted * size / share).max(fitted * size).min(wanted);
        let ceiling = match kept < STEERED_BELOW * wanted {
            true => lambda(&sums.fitted, kept, self.bounded(factor)),
            false => None,
        };
        self.state.ceiling.set(ceiling.unwrap_or(f64::INFINITY));
    }
}

/// Counts of a stratum.
#[derive(Clone, Copy, Debug)]
struct Counted {
    count: f64,
    bytes: f64,
    /// The probability that it has at most: that of being recorded, or of the parameters.
    most: f64,
}

fn bytes(strata: &[Counted]) -> f64 {
    strata.iter().map(|of| of.bytes).sum()
}

/// The strata with traces of late, by whether the parameters give them a probability.
struct Sums {
    fitted: Vec<Counted>,
    unfitted: Vec<Counted>,
    /// The bytes that the parameters would keep of the former, without a budget.
    wanted: f64,
}

impl Sums {
    fn new(sampler: &StrataSampler, moment: Moment) -> Self {
        let mut sums = Sums { fitted: Vec::new(), unfitted: Vec::new(), wanted: 0.0 };
        let factor = sampler.state.factor.get();
        let counted = |record: &Record, p: f64| Counted {
            count: record.count.get(moment).into(),
            bytes: record.bytes.get(moment).into(),
            most: p.min(record.most().into()),
        };
        for record in sampler.state.records.records() {
            match record.fitted(sampler.number) {
                Some(Some(p)) => {
                    let p = f64::from(p);
                    let own = counted(record, p);
                    sums.wanted += own.bytes * own.most;
                    sums.fitted.push(counted(record, if p < 1.0 { p * factor } else { p }));
                }
                Some(None) => sums.unfitted.push(counted(record, 1.0)),
                None => {}
            }
        }
        // Traces without a record of their own are mostly of strata that are in no file.
        sums.unfitted.extend(sampler.state.others.iter().map(|record| counted(record, 1.0)));
        sums.fitted.retain(|of| of.count > 0.0);
        sums.unfitted.retain(|of| of.count > 0.0);
        sums
    }
}

/// The lambda with which strata of these counts keep this many bytes; `None` without strata.
fn lambda(strata: &[Counted], wanted: f64, floor: f64) -> Option<f64> {
    let most = strata.iter().map(|of| of.count).reduce(f64::max)?;
    let kept = |lambda: f64| -> f64 {
        strata.iter().map(|of| of.bytes * (lambda / of.count).max(floor).min(of.most)).sum()
    };
    // Halvings of the logarithm, to within a millionth of a millionth.
    let (mut low, mut high) = ((1e-6f64).ln(), most.max(1.0).ln());
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if kept(middle.exp()) > wanted { high = middle } else { low = middle }
    }
    Some(high.exp())
}
