//! Changes of the rules while they are at work: parameters, the cap, overrides, dry runs. And what the rules have done, key
//! by key.

mod counts;
mod spending;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astracer_samplers::{Cap, Config, Nanos, Sampler};

pub(crate) use self::counts::Carried;
pub use self::counts::KeyStats;
pub(crate) use self::spending::{Spending, Spent};
use crate::decider::Decider;
use crate::rules::Rules;

/// The state that changes need. Decisions do not look at it.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    carried: Mutex<Carried>,
    /// Of a service with a budget. Taken before `carried`.
    spending: Option<Mutex<Spending>>,
}

impl Steering {
    pub(crate) fn new(spending: Option<Spending>) -> Self {
        Steering { carried: Mutex::default(), spending: spending.map(Mutex::new) }
    }

    fn lock(&self) -> MutexGuard<'_, Carried> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the rules: one change at a time, and decisions see all of it or nothing.
    pub(crate) fn change<T>(
        &self,
        decider: &Decider,
        change: impl FnOnce(&mut Rules, &mut Carried, Nanos) -> T,
    ) -> T {
        let mut carried = self.lock();
        let mut rules = Rules::clone(&decider.rules().load());
        let now = decider.now();
        rules.overrides.retain(|_, forced| now < forced.until);
        let result = change(&mut rules, &mut carried, now);
        decider.rules().store(rules.ready());
        carried.fold();
        result
    }

    /// Replaces the sampler, scaled to the budget if there is one.
    pub(crate) fn set_sampler(&self, decider: &Decider, config: &Config) {
        self.tune(decider, self.spending(), config, None);
    }

    /// Replaces the cap by what `change` makes of it.
    pub(crate) fn set_cap(&self, decider: &Decider, change: impl FnOnce(&Cap) -> Cap) {
        self.replace(decider, |sampler| (sampler.config().clone(), change(sampler.cap())));
    }

    /// Replaces the sampler, scaled to the budget if there is one, and the cap if another one is given. Whoever has the budget keeps it until
    /// that is done, lest a change that came first be the last one.
    fn tune(
        &self,
        decider: &Decider,
        mut spending: Option<MutexGuard<'_, Spending>>,
        config: &Config,
        cap: Option<&Cap>,
    ) {
        let scaled = spending.as_mut().and_then(|spending| spending.tune(config));
        let config = scaled.unwrap_or_else(|| config.clone());
        self.replace(decider, |sampler| (config, *cap.unwrap_or(sampler.cap())));
    }

    /// The factor on all probabilities; `None` without a budget.
    pub(crate) fn budget_factor(&self) -> Option<f64> {
        self.spending()?.factor()
    }

    /// Moves the factor on all probabilities, if the budget's interval is over.
    pub(crate) fn spend(&self, decider: &Decider) {
        let mut spending = self.spending();
        let scaled = spending.as_mut().and_then(|spending| spending.interval_over(decider.now()));
        if let Some(scaled) = scaled {
            self.replace(decider, |sampler| (scaled, *sampler.cap()));
        }
    }

    fn spending(&self) -> Option<MutexGuard<'_, Spending>> {
        Some(self.spending.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the sampler by one with the config and the cap that `change` makes of those at work.
    fn replace(&self, decider: &Decider, change: impl FnOnce(&Sampler) -> (Config, Cap)) {
        self.change(decider, |rules, carried, now| {
            let (config, cap) = change(&rules.sampler);
            let next = match rules.sampler.reconfigured(&config, &cap, now) {
                Some(next) => next,
                None => {
                    carried.retire(Arc::clone(&rules.sampler));
                    rules.sampler.replaced(&config, &cap)
                }
            };
            rules.sampler = Arc::new(next);
        });
    }

    /// Replaces sampler, cap and budget by those of a parameters file's text.
    #[cfg(feature = "parameters")]
    pub(crate) fn set_parameters(&self, decider: &Decider, text: &str) -> Result<(), SteerError> {
        use astracer_samplers::parameters::Parameters;
        let parameters =
            text.parse::<Parameters>().map_err(|error| SteerError::new(error.line(), error.to_string()))?;
        if !decider.key().is_rule(&parameters.key) {
            let message =
                "the key rule is not the one that the service was started with; restart it to change keys";
            return Err(SteerError::new(None, message));
        }
        if decider.random() != parameters.random {
            let message = "`random` is not as the service was started with; restart it to change randomness";
            return Err(SteerError::new(None, message));
        }
        if !decider.is_tail(&parameters.tail) {
            let message = "`[tail]` is not as the service was started with; restart it to change policies";
            return Err(SteerError::new(None, message));
        }
        let mut spending = self.spending();
        match (&mut spending, parameters.budget) {
            (Some(spending), budget) => spending.set_budget(budget),
            (None, None) => {}
            (None, Some(_)) => {
                let message = "a budget begins with the service; restart it with one";
                return Err(SteerError::new(None, message));
            }
        }
        self.tune(decider, spending, &parameters.config, Some(&parameters.cap));
        Ok(())
    }

    /// Removes overrides whose time is over, so that decisions need not look for them.
    pub(crate) fn forget_expired(&self, decider: &Decider) {
        let rules = decider.rules().load();
        if rules.overrides.is_empty() {
            return;
        }
        let now = decider.now();
        if rules.overrides.values().any(|forced| now >= forced.until) {
            self.change(decider, |_, _, _| ());
        }
    }

    pub(crate) fn keys(&self, decider: &Decider) -> Vec<KeyStats> {
        let mut carried = self.lock();
        carried.fold();
        counts::by_key(&carried, &decider.sampler(), decider.now())
    }
}

impl SteerError {
    pub(crate) fn new(line: Option<usize>, message: impl Into<String>) -> Self {
        SteerError { line, message: message.into() }
    }
}

/// A change that was refused: all goes on as before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SteerError {
    line: Option<usize>,
    message: String,
}

impl SteerError {
    /// The line of the parameters file at fault, from 1.
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for SteerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SteerError {}
