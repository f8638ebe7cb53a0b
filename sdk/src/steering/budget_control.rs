//! A budget in effect: the exported bytes, and the factor that follows from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use astracer_samplers::{Budget, Config, Controller, Nanos};

use astracer_spans::export::QueueProgress;

#[derive(Debug)]
pub(crate) struct BudgetControl {
    /// `None` after a parameters file without a budget took effect, if the code sets none either.
    controller: Option<Controller>,
    /// The budget set in code, which applies if a parameters file has none.
    #[cfg_attr(not(feature = "parameters"), allow(dead_code, reason = "parameters files are not read"))]
    own: Option<Budget>,
    tuned: Config,
    /// Bytes handed to the exporter in this interval, as OTLP protobuf. Relaxed: the counter guards
    /// no other data, and a swap loses no bytes.
    exported_bytes: Arc<AtomicU64>,
    /// The start of this interval; `None` if the next call starts one.
    since: Option<Nanos>,
    progress: QueueProgress,
}

impl BudgetControl {
    /// Starts with a budget; `own` is the one set in code.
    pub(crate) fn new((budget, own): (Budget, Option<Budget>), tuned: &Config, now: Nanos) -> Self {
        let controller = Some(Controller::new(budget));
        BudgetControl {
            controller,
            own,
            tuned: tuned.clone(),
            exported_bytes: Arc::default(),
            since: Some(now),
            progress: QueueProgress::default(),
        }
    }

    /// The counter to which the exporter's side adds.
    pub(crate) fn exported_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.exported_bytes)
    }

    pub(super) fn factor(&self) -> Option<f64> {
        self.controller.as_ref().map(Controller::factor)
    }

    #[cfg(feature = "parameters")]
    pub(super) fn tuned(&self) -> &Config {
        &self.tuned
    }

    #[cfg(feature = "parameters")]
    pub(super) fn bytes_per_second(&self) -> Option<f64> {
        self.controller.as_ref().map(|controller| controller.budget().bytes_per_second())
    }

    /// Takes another config; returns it scaled, if it can be. Bytes exported under a config that
    /// cannot be scaled belong to no interval.
    pub(super) fn tune(&mut self, config: &Config) -> Option<Config> {
        let tuned = std::mem::replace(&mut self.tuned, config.clone());
        let controller = self.controller.as_ref()?;
        if controller.config(&tuned).is_none() {
            self.since = None;
        }
        controller.config(config)
    }

    /// Takes the budget of a parameters file, or otherwise the one set in code. The factor carries
    /// over, since the traffic is the same. If there was no budget before, a new interval starts.
    #[cfg(feature = "parameters")]
    pub(super) fn set_budget(&mut self, budget: Option<Budget>) {
        if self.controller.is_none() {
            self.since = None;
        }
        self.controller = budget.or_else(|| self.own.clone()).map(|budget| match self.controller.take() {
            Some(controller) => controller.with_budget(budget),
            None => Controller::new(budget),
        });
    }

    /// The config for the next interval, if this interval is over and the factor has changed.
    ///
    /// The factor does not change while it scales nothing: bytes that do not depend on it would
    /// drive it to a limit. Nor does it rise while earlier kept spans still wait or are shed: an
    /// exporter that waits for its server receives few bytes, however many spans are kept.
    pub(super) fn interval_over(
        &mut self,
        now: Nanos,
        progress: impl FnOnce() -> QueueProgress,
    ) -> Option<Config> {
        let controller = self.controller.as_mut()?;
        let Some(since) = self.since else {
            self.since = Some(now);
            self.progress = progress();
            self.exported_bytes.store(0, Ordering::Relaxed);
            return None;
        };
        let passed = now.saturating_sub(since);
        if passed < controller.budget().interval() {
            return None;
        }
        self.since = Some(now);
        let progress = progress();
        let is_held_up = progress.is_held_up(&std::mem::replace(&mut self.progress, progress));
        let (before, bytes) = (controller.factor(), self.exported_bytes.swap(0, Ordering::Relaxed) as f64);
        let secs = passed.get() as f64 / 1e9;
        controller.config(&self.tuned)?;
        if is_held_up && bytes <= controller.budget().bytes_per_second() * secs {
            return None;
        }
        let factor = controller.after(bytes, secs);
        if factor == before { None } else { controller.config(&self.tuned) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked by hand: 100 bytes per second over ten seconds. Three times as much halves the factor
    /// twice; no bytes double it.
    #[test]
    fn the_factor_follows_the_bytes_of_each_interval() {
        let budget = Budget::new(100.0).unwrap().with_interval(Nanos::from_secs(10));
        let config: Config = "ratio:0.4".parse().unwrap();
        let mut budget_control = BudgetControl::new((budget, None), &config, Nanos::from_secs(5));
        let exported_bytes = budget_control.exported_bytes();
        let after = |budget_control: &mut BudgetControl, secs: u64| {
            budget_control
                .interval_over(Nanos::from_secs(secs), QueueProgress::default)
                .map(|config| config.to_string())
        };
        exported_bytes.fetch_add(3_000, Ordering::Relaxed);
        assert_eq!(after(&mut budget_control, 14), None, "the interval is not over");
        assert_eq!(after(&mut budget_control, 15).as_deref(), Some("ratio:0.2"));
        assert_eq!(after(&mut budget_control, 16), None);
        exported_bytes.fetch_add(1_500, Ordering::Relaxed);
        // Over 15 seconds.
        assert_eq!(after(&mut budget_control, 30), None, "exactly on target");
        assert_eq!(after(&mut budget_control, 40).as_deref(), Some("ratio:0.4"));
        let other: Config = "ratio:0.1".parse().unwrap();
        exported_bytes.fetch_add(4_000, Ordering::Relaxed);
        assert_eq!(after(&mut budget_control, 50).as_deref(), Some("ratio:0.2"));
        assert_eq!(
            budget_control.tune(&other).map(|config| config.to_string()).as_deref(),
            Some("ratio:0.05")
        );
        assert_eq!((&budget_control.tuned, budget_control.factor()), (&other, Some(0.5)));
        assert_eq!(budget_control.tune(&Config::Always), None);
    }

    fn budget_control_of(text: &str) -> BudgetControl {
        let budget = Budget::new(100.0).unwrap().with_interval(Nanos::from_secs(10));
        BudgetControl::new((budget, None), &text.parse().unwrap(), Nanos::from_secs(5))
    }

    /// The bytes of a sampler that no factor scales tell nothing about the probabilities of the
    /// sampler before it or after it.
    #[test]
    fn the_factor_stays_while_there_is_nothing_to_scale() {
        let ratio: Config = "ratio:0.4".parse().unwrap();
        for (other, bytes) in [(Config::Never, 0), (Config::Always, 1_000_000)] {
            let mut budget_control = budget_control_of("ratio:0.4");
            assert_eq!(budget_control.tune(&other), None);
            for second in 6..106 {
                budget_control.exported_bytes().fetch_add(bytes, Ordering::Relaxed);
                assert_eq!(
                    budget_control.interval_over(Nanos::from_secs(second), QueueProgress::default),
                    None
                );
            }
            assert_eq!(budget_control.factor(), Some(1.0), "{other}");
            // In the middle of an interval, to which those bytes do not belong.
            budget_control.exported_bytes().fetch_add(bytes, Ordering::Relaxed);
            assert_eq!(budget_control.tune(&ratio), Some(ratio.clone()));
            for second in 106..116 {
                budget_control.exported_bytes().fetch_add(100, Ordering::Relaxed);
                assert_eq!(
                    budget_control.interval_over(Nanos::from_secs(second), QueueProgress::default),
                    None,
                    "{other} at {second}"
                );
            }
            budget_control.exported_bytes().fetch_add(100, Ordering::Relaxed);
            assert_eq!(budget_control.interval_over(Nanos::from_secs(116), QueueProgress::default), None);
            assert_eq!(budget_control.factor(), Some(1.0), "{other}");
            budget_control.exported_bytes().fetch_add(2_000, Ordering::Relaxed);
            assert!(budget_control.interval_over(Nanos::from_secs(126), QueueProgress::default).is_some());
            assert_eq!(budget_control.factor(), Some(0.5), "{other}");
        }
    }

    /// Some of batches 0 to 4 wait. Until everything that waited at the start of an interval is
    /// exported, few bytes mean nothing.
    #[test]
    fn the_factor_does_not_rise_while_spans_wait_or_are_shed() {
        let mut budget_control = budget_control_of("ratio:0.4");
        for (second, progress, bytes, factor) in [
            (15, (u64::MAX, 0, 0), 2_000, 0.5),
            (25, (2, 5, 0), 500, 1.0),
            (35, (4, 9, 0), 500, 1.0),
            (45, (4, 20, 0), 2_000, 0.5),
            (55, (25, 30, 7), 500, 0.5),
            (65, (31, 32, 7), 500, 1.0),
            (75, (32, 32, 7), 2_000, 0.5),
            (85, (u64::MAX, 32, 7), 500, 1.0),
        ] {
            let (outstanding, next, shed) = progress;
            budget_control.exported_bytes().fetch_add(bytes, Ordering::Relaxed);
            let _ = budget_control.interval_over(Nanos::from_secs(second), || QueueProgress {
                outstanding,
                next,
                shed,
            });
            assert_eq!(budget_control.factor(), Some(factor), "{second} s");
        }
    }

    #[test]
    #[cfg(feature = "parameters")]
    fn a_budget_that_comes_back_begins_with_an_interval_of_its_own() {
        let mut budget_control = budget_control_of("ratio:0.4");
        let budget = budget_control.controller.as_ref().map(|controller| controller.budget().clone());
        budget_control.set_budget(None);
        budget_control.exported_bytes().fetch_add(1_000_000, Ordering::Relaxed);
        assert_eq!(budget_control.interval_over(Nanos::from_secs(100), QueueProgress::default), None);
        budget_control.set_budget(budget.clone());
        assert_eq!(budget_control.interval_over(Nanos::from_secs(101), QueueProgress::default), None);
        assert_eq!(budget_control.factor(), Some(1.0));
        // Another budget continues in the running interval.
        budget_control.set_budget(budget);
        budget_control.exported_bytes().fetch_add(2_000, Ordering::Relaxed);
        assert!(budget_control.interval_over(Nanos::from_secs(111), QueueProgress::default).is_some());
        assert_eq!(budget_control.factor(), Some(0.5));
    }
}
