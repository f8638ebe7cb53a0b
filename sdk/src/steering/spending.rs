//! A budget at work: the bytes that were exported, and the factor that follows from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use astracer_samplers::{Budget, Config, Controller, Nanos};

/// Bytes that were handed to the exporter since it was last asked, as OTLP protobuf.
#[derive(Debug, Default)]
pub(crate) struct Spent(AtomicU64);

impl Spent {
    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// A budget with its state.
#[derive(Debug)]
pub(crate) struct Spending {
    /// `None` after a parameters file without a budget was taken over, where the code has none.
    controller: Option<Controller>,
    /// That of the code, which holds where a parameters file has none.
    #[cfg_attr(not(feature = "parameters"), allow(dead_code, reason = "files of parameters cannot be read"))]
    own: Option<Budget>,
    /// The sampler's config as it was given.
    tuned: Config,
    spent: Arc<Spent>,
    /// The beginning of this interval.
    since: Nanos,
}

impl Spending {
    /// A budget, and that of the code.
    pub(crate) fn new((budget, own): (Budget, Option<Budget>), tuned: Config, now: Nanos) -> Self {
        Spending { controller: Some(Controller::new(budget)), own, tuned, spent: Arc::default(), since: now }
    }

    /// The count that the exporter's side adds to.
    pub(crate) fn spent(&self) -> Arc<Spent> {
        Arc::clone(&self.spent)
    }

    pub(super) fn factor(&self) -> Option<f64> {
        self.controller.as_ref().map(Controller::factor)
    }

    /// Takes another config; returns it scaled, if it can be.
    pub(super) fn tune(&mut self, config: &Config) -> Option<Config> {
        self.tuned = config.clone();
        self.controller.as_ref()?.config(config)
    }

    /// Takes the budget of a parameters file, or else that of the code. It begins with the factor that was reached, since the
    /// traffic is the same.
    #[cfg(feature = "parameters")]
    pub(super) fn set_budget(&mut self, budget: Option<Budget>) {
        self.controller = budget.or_else(|| self.own.clone()).map(|budget| match self.controller.take() {
            Some(controller) => controller.with_budget(budget),
            None => Controller::new(budget),
        });
    }

    /// The config for the next interval, if this one is over and the factor has changed.
    pub(super) fn interval_over(&mut self, now: Nanos) -> Option<Config> {
        let controller = self.controller.as_mut()?;
        let passed = now.saturating_sub(self.since);
        if passed < controller.budget().interval() {
            return None;
        }
        self.since = now;
        let (before, bytes) = (controller.factor(), self.spent.take());
        let factor = controller.after(bytes as f64, passed.get() as f64 / 1e9);
        if factor == before { None } else { controller.config(&self.tuned) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 100 bytes a second over ten seconds; three times as many halve the factor twice, none doubles it.
    #[test]
    fn the_factor_follows_the_bytes_of_each_interval() {
        let budget = Budget::new(100.0).unwrap().with_interval(Nanos::from_secs(10));
        let config: Config = "ratio:0.4".parse().unwrap();
        let mut spending = Spending::new((budget, None), config, Nanos::from_secs(5));
        let spent = spending.spent();
        let after = |spending: &mut Spending, secs: u64| {
            spending.interval_over(Nanos::from_secs(secs)).map(|config| config.to_string())
        };
        spent.add(3_000);
        assert_eq!(after(&mut spending, 14), None, "the interval is not over");
        assert_eq!(after(&mut spending, 15).as_deref(), Some("ratio:0.2"));
        assert_eq!(after(&mut spending, 16), None);
        spent.add(1_500);
        // Of 15 seconds.
        assert_eq!(after(&mut spending, 30), None, "as many as wanted");
        assert_eq!(after(&mut spending, 40).as_deref(), Some("ratio:0.4"));
        let other: Config = "ratio:0.1".parse().unwrap();
        spent.add(4_000);
        assert_eq!(after(&mut spending, 50).as_deref(), Some("ratio:0.2"));
        assert_eq!(spending.tune(&other).map(|config| config.to_string()).as_deref(), Some("ratio:0.05"));
        assert_eq!((&spending.tuned, spending.factor()), (&other, Some(0.5)));
        assert_eq!(spending.tune(&Config::Always), None);
    }
}
