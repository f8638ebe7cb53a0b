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
    /// Not scaled.
    pub(super) tuned: Config,
    /// Bytes handed to the exporter in this interval, as OTLP protobuf. Relaxed: the counter guards
    /// no other data, and a swap loses no bytes.
    exported_bytes: Arc<AtomicU64>,
    /// The start of this interval; `None` if the next call starts one.
    since: Option<Nanos>,
    /// At the start of this interval.
    progress: QueueProgress,
}

impl BudgetControl {
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

    pub(crate) fn exported_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.exported_bytes)
    }

    pub(super) fn factor(&self) -> Option<f64> {
        self.controller.as_ref().map(Controller::factor)
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

    /// 100 bytes per second over ten seconds, from second 5 on.
    fn of_ratio() -> BudgetControl {
        let budget = Budget::new(100.0).unwrap().with_interval(Nanos::from_secs(10));
        BudgetControl::new((budget, None), &"ratio:0.4".parse().unwrap(), Nanos::from_secs(5))
    }

    /// Exports bytes until this second. Returns the next config.
    fn export(control: &mut BudgetControl, bytes: u64, second: u64) -> Option<String> {
        control.exported_bytes().fetch_add(bytes, Ordering::Relaxed);
        let config = control.interval_over(Nanos::from_secs(second), QueueProgress::default);
        config.map(|config| config.to_string())
    }

    /// Worked by hand. Three times as much halves the factor twice; no bytes double it.
    #[test]
    fn the_factor_follows_the_bytes_of_each_interval() {
        let mut control = of_ratio();
        for (bytes, second, expected) in [
            (3_000, 14, None), // The interval is not over.
            (0, 15, Some("ratio:0.2")),
            (0, 16, None),
            (1_500, 30, None), // Over 15 seconds: exactly on target.
            (0, 40, Some("ratio:0.4")),
            (4_000, 50, Some("ratio:0.2")),
        ] {
            assert_eq!(export(&mut control, bytes, second).as_deref(), expected, "{second} s");
        }
        let other: Config = "ratio:0.1".parse().unwrap();
        assert_eq!(control.tune(&other).unwrap().to_string(), "ratio:0.05");
        assert_eq!((&control.tuned, control.factor()), (&other, Some(0.5)));
        assert_eq!(control.tune(&Config::Always), None);
    }

    /// The bytes of a sampler that no factor scales say nothing about the probabilities of the
    /// sampler before it or after it.
    #[test]
    fn the_factor_stays_while_there_is_nothing_to_scale() {
        let ratio: Config = "ratio:0.4".parse().unwrap();
        for (other, bytes) in [(Config::Never, 0), (Config::Always, 1_000_000)] {
            let mut control = of_ratio();
            assert_eq!(control.tune(&other), None);
            assert!((6..106).all(|second| export(&mut control, bytes, second).is_none()));
            assert_eq!(control.factor(), Some(1.0), "{other}");
            // In the middle of an interval, to which those bytes do not belong.
            control.exported_bytes().fetch_add(bytes, Ordering::Relaxed);
            assert_eq!(control.tune(&ratio), Some(ratio.clone()));
            assert!((106..117).all(|second| export(&mut control, 100, second).is_none()), "{other}");
            assert_eq!(control.factor(), Some(1.0), "{other}");
            assert_eq!(export(&mut control, 2_000, 126).as_deref(), Some("ratio:0.2"), "{other}");
        }
    }

    /// Some of batches 0 to 4 wait. Until everything that waited at the start of an interval is
    /// exported, few bytes mean nothing.
    #[test]
    fn the_factor_does_not_rise_while_spans_wait_or_are_shed() {
        let mut control = of_ratio();
        for (second, (outstanding, next, shed), bytes, factor) in [
            (15, (u64::MAX, 0, 0), 2_000, 0.5),
            (25, (2, 5, 0), 500, 1.0),
            (35, (4, 9, 0), 500, 1.0),
            (45, (4, 20, 0), 2_000, 0.5),
            (55, (25, 30, 7), 500, 0.5),
            (65, (31, 32, 7), 500, 1.0),
            (75, (32, 32, 7), 2_000, 0.5),
            (85, (u64::MAX, 32, 7), 500, 1.0),
        ] {
            control.exported_bytes().fetch_add(bytes, Ordering::Relaxed);
            let progress = || QueueProgress { outstanding, next, shed };
            let _ = control.interval_over(Nanos::from_secs(second), progress);
            assert_eq!(control.factor(), Some(factor), "{second} s");
        }
    }

    #[test]
    #[cfg(feature = "parameters")]
    fn a_budget_that_comes_back_begins_with_an_interval_of_its_own() {
        let mut control = of_ratio();
        let budget = control.controller.as_ref().map(|controller| controller.budget().clone());
        control.set_budget(None);
        assert_eq!(export(&mut control, 1_000_000, 100), None);
        control.set_budget(budget.clone());
        assert_eq!(export(&mut control, 0, 101), None);
        assert_eq!(control.factor(), Some(1.0));
        // Another budget continues in the running interval.
        control.set_budget(budget);
        assert_eq!(export(&mut control, 2_000, 111).as_deref(), Some("ratio:0.2"));
    }
}
