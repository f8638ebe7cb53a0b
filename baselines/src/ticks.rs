//! A periodic timer in recorded time.

/// Counts the ticks that pass between calls. Tick `n` falls `n` periods after the first call, as
/// for a timer that was started just before the first trace.
#[derive(Clone, Debug)]
pub(super) struct Ticks {
    period_ns: u64,
    next_ns: Option<u64>,
}

impl Ticks {
    /// A timer that ticks every `period_s` seconds.
    pub(super) fn every(period_s: f64) -> Self {
        Self { period_ns: nanos(period_s), next_ns: None }
    }

    /// The number of ticks since the last call, including one at exactly this time.
    pub(super) fn passed(&mut self, at_ns: u64) -> u64 {
        let next_ns = self.next_ns.get_or_insert(at_ns.saturating_add(self.period_ns));
        let Some(late_ns) = at_ns.checked_sub(*next_ns) else { return 0 };
        let passed = late_ns / self.period_ns + 1;
        *next_ns = next_ns.saturating_add(passed.saturating_mul(self.period_ns));
        passed
    }

    /// Sets the next tick to one period after `at_ns`.
    pub(super) fn restart(&mut self, at_ns: u64) {
        self.next_ns = Some(at_ns.saturating_add(self.period_ns));
    }
}

/// Seconds as whole nanoseconds, at least one.
pub(super) fn nanos(seconds: f64) -> u64 {
    ((seconds * 1e9).round() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_fall_each_period_after_the_first_call() {
        let mut ticks = Ticks::every(1e-8);
        let passed = [3, 12, 13, 14, 32, 33, 53, 54].map(|at_ns| (at_ns, ticks.passed(at_ns)));
        assert_eq!(passed, [(3, 0), (12, 0), (13, 1), (14, 0), (32, 1), (33, 1), (53, 2), (54, 0)]);
        ticks.restart(55);
        assert_eq!([64, 65, u64::MAX].map(|at_ns| ticks.passed(at_ns)), [0, 1, (u64::MAX - 75) / 10 + 1]);
    }
}
