//! Changes parameters, cap, overrides and dry runs while decisions are made, and reports the counts
//! of each key.

mod budget_control;
mod counts;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(feature = "parameters")]
use astracer_samplers::tail::Tail;
#[cfg(feature = "parameters")]
use astracer_samplers::{Budget, KeyRule, RandomSource};
use astracer_samplers::{Cap, Config, Nanos};

pub(crate) use self::budget_control::{BudgetControl, ExportedBytes};
pub(crate) use self::counts::CarriedCounts;
pub use self::counts::KeyStats;
use crate::decider::Decider;
#[cfg(feature = "parameters")]
use crate::parameters;
use crate::rules::Rules;
use astracer_spans::export::QueueProgress;
use astracer_spans::panics::warn;

/// The state that changes need. Decisions do not read it.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    /// The cap set through the builder or the handle, which applies if a parameters file has none.
    /// The lock is held throughout a change of sampler or cap, so such changes run one at a time.
    /// Locked before the others.
    own_cap: Mutex<Cap>,
    carried: Mutex<CarriedCounts>,
    /// Present only with a budget. Locked before `carried`.
    budget_control: Option<Mutex<BudgetControl>>,
}

impl Steering {
    pub(crate) fn new(budget_control: Option<BudgetControl>, own_cap: Cap) -> Self {
        Steering {
            own_cap: Mutex::new(own_cap),
            carried: Mutex::default(),
            budget_control: budget_control.map(Mutex::new),
        }
    }

    fn own_cap(&self) -> MutexGuard<'_, Cap> {
        self.own_cap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, CarriedCounts> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the rules. Changes run one at a time, and a decision sees either all of a change or
    /// nothing of it.
    pub(crate) fn change<T>(
        &self,
        decider: &Decider,
        change: impl FnOnce(&mut Rules, &mut CarriedCounts, Nanos) -> T,
    ) -> T {
        let mut carried = self.lock();
        let mut rules = Rules::clone(&decider.rules().load());
        let now = decider.now();
        rules.overrides.retain(|_, forced| now < forced.until);
        let result = change(&mut rules, &mut carried, now);
        let rules = rules.ready();
        decider.prepare(&rules);
        decider.rules().store(rules);
        carried.fold();
        result
    }

    /// Replaces the sampler.
    pub(crate) fn set_sampler(&self, decider: &Decider, config: &Config) {
        let _one_at_a_time = self.own_cap();
        self.tune(decider, config, None);
    }

    /// Replaces the cap.
    pub(crate) fn set_cap(&self, decider: &Decider, cap: &Cap) {
        let mut own = self.own_cap();
        *own = *cap;
        self.replace(decider, None, Some(cap));
    }

    /// Replaces the number of processes that share the cap, both in the cap in use and in the one
    /// set in code.
    pub(crate) fn set_replicas(&self, decider: &Decider, replicas: NonZeroU32) {
        let mut own = self.own_cap();
        *own = own.with_replicas(replicas);
        let cap = decider.sampler().cap().with_replicas(replicas);
        self.replace(decider, None, Some(&cap));
    }

    /// Replaces the sampler, scaled to the budget if there is one, and the cap if one is given.
    fn tune(&self, decider: &Decider, config: &Config, cap: Option<&Cap>) {
        let mut budget_control = self.budget_control();
        let scaled = budget_control.as_mut().and_then(|budget_control| budget_control.tune(config));
        self.replace(decider, Some(scaled.as_ref().unwrap_or(config)), cap);
    }

    /// The factor on all probabilities; `None` without a budget.
    pub(crate) fn budget_factor(&self) -> Option<f64> {
        self.budget_control()?.factor()
    }

    /// Updates the factor on all probabilities if the budget's interval is over.
    pub(crate) fn control_budget(&self, decider: &Decider, progress: impl FnOnce() -> QueueProgress) {
        let mut budget_control = self.budget_control();
        let scaled = budget_control
            .as_mut()
            .and_then(|budget_control| budget_control.interval_over(decider.now(), progress));
        if let Some(scaled) = scaled {
            self.replace(decider, Some(&scaled), None);
        }
    }

    fn budget_control(&self) -> Option<MutexGuard<'_, BudgetControl>> {
        Some(self.budget_control.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the sampler, the cap or both; `None` keeps the current one.
    fn replace(&self, decider: &Decider, config: Option<&Config>, cap: Option<&Cap>) {
        self.change(decider, |rules, carried, now| {
            let cap = cap.unwrap_or(rules.sampler.cap());
            let config = config.unwrap_or(rules.sampler.config());
            let next = match rules.sampler.reconfigured(config, cap, now) {
                Some(next) => next,
                None => {
                    carried.retire(Arc::clone(&rules.sampler));
                    rules.sampler.replaced(config, cap, now)
                }
            };
            rules.sampler = Arc::new(next);
        });
    }

    /// Replaces sampler, cap and budget by those of a parameters file's text. If the text has no
    /// cap or budget, the one set in code applies.
    /// Returns what changed, if anything did.
    #[cfg(feature = "parameters")]
    pub(crate) fn set_parameters(
        &self,
        decider: &Decider,
        text: &str,
    ) -> Result<Option<NewParameters>, SteerError> {
        let own_cap = self.own_cap();
        let old = self.in_use(decider);
        let mut running = Running { steering: self, decider, own_cap };
        parameters::apply(text, &mut running)
            .map_err(|refusal| SteerError::new(refusal.line, refusal.message))?;
        let new = self.in_use(decider);
        Ok((old != new).then_some(NewParameters { old, new }))
    }

    /// Sampler, budget and cap as text.
    #[cfg(feature = "parameters")]
    fn in_use(&self, decider: &Decider) -> String {
        let sampler = decider.sampler();
        let (config, budget) = match self.budget_control() {
            Some(control) => (control.tuned().clone(), control.bytes_per_second()),
            None => (sampler.config().clone(), None),
        };
        let budget =
            budget.map(|budget| format!(", budget {budget:.0} bytes per second")).unwrap_or_default();
        let cap = if sampler.cap().is_none() { String::new() } else { format!(", cap {}", sampler.cap()) };
        format!("{config}{budget}{cap}")
    }

    /// Removes expired overrides, so that decisions no longer look them up.
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

/// The parameters before and after a change by a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "parameters"), allow(dead_code, reason = "parameters files are not read"))]
pub(crate) struct NewParameters {
    old: String,
    new: String,
}

impl NewParameters {
    /// Emits one event. Call it without a lock.
    pub(crate) fn tell(&self) {
        let NewParameters { old, new } = self;
        warn(|| tracing::info!(target: "astracer", parent: None, "new parameters: {new}; before: {old}"));
    }
}

/// A service that runs: what its start has fixed is refused.
#[cfg(feature = "parameters")]
struct Running<'s> {
    steering: &'s Steering,
    decider: &'s Decider,
    /// Held until the whole file is applied, so that changes come one at a time.
    own_cap: MutexGuard<'s, Cap>,
}

#[cfg(feature = "parameters")]
impl parameters::Target for Running<'_> {
    fn set_key(&mut self, key: KeyRule) -> Result<(), &'static str> {
        let differs = "the key rule differs from the one at the service's start; restart it to change keys";
        if self.decider.key().is_rule(&key) { Ok(()) } else { Err(differs) }
    }

    fn set_random(&mut self, random: RandomSource) -> Result<(), &'static str> {
        let differs =
            "`random` differs from its value at the service's start; restart it to change randomness";
        if self.decider.random() == random { Ok(()) } else { Err(differs) }
    }

    fn set_tail(&mut self, tail: Tail) -> Result<(), &'static str> {
        let differs = "`[tail]` differs from its value at the service's start; restart it to change policies";
        if self.decider.is_tail(&tail) { Ok(()) } else { Err(differs) }
    }

    fn set_budget(&mut self, budget: Option<Budget>) -> Result<(), &'static str> {
        match (self.steering.budget_control(), budget) {
            (Some(mut control), budget) => control.set_budget(budget),
            (None, None) => {}
            (None, Some(_)) => return Err("the service was started without a budget; restart it with one"),
        }
        Ok(())
    }

    fn set_sampler(&mut self, sampler: &Config, cap: &Cap) {
        let cap = if cap.is_none() { &*self.own_cap } else { cap };
        self.steering.tune(self.decider, sampler, Some(cap));
    }
}

impl SteerError {
    pub(crate) fn new(line: Option<usize>, message: impl Into<String>) -> Self {
        SteerError { line, message: message.into() }
    }
}

/// A change that was refused; the previous settings stay in effect.
#[derive(Clone, PartialEq, Eq)]
pub struct SteerError {
    line: Option<usize>,
    message: String,
}

impl SteerError {
    /// The line of the parameters file at fault, counted from 1.
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for SteerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The same text as `Display`: a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for SteerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for SteerError {}
