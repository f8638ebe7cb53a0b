//! Changes parameters, cap, overrides and dry runs while decisions are made, and reports the counts
//! of each key.

mod budget_control;
mod counts;

use std::num::NonZeroU32;
use std::sync::Arc;

use astracer_samplers::strata::Strata;
use astracer_samplers::{Cap, Config, Nanos, Probability, shown_key};
#[cfg(feature = "parameters")]
use astracer_samplers::{RandomSource, parameters::Parameters, strata::StrataSampler, tail::Tail};

pub(crate) use self::budget_control::BudgetControl;
pub(crate) use self::counts::CarriedCounts;
pub use self::counts::KeyStats;
use crate::decider::Decider;
#[cfg(feature = "parameters")]
use crate::fault::SteerError;
use crate::rules::Rules;
#[cfg(feature = "parameters")]
use crate::secret::secret;
use astracer_spans::export::QueueProgress;
#[cfg(feature = "parameters")]
use astracer_spans::panics::warn;
use astracer_spans::sync::{Mutex, MutexGuard, lock};

#[derive(Debug)]
pub(crate) struct Steering {
    pub(crate) decider: Arc<Decider>,
    /// The cap set through the builder or the handle, which applies if a parameters file has none.
    /// The lock is held throughout a change of sampler or cap, so such changes run one at a time.
    /// Locked before the others.
    own_cap: Mutex<Cap>,
    /// The strata set through the builder, which apply if a parameters file has none.
    #[cfg_attr(not(feature = "parameters"), expect(dead_code, reason = "only a file replaces strata"))]
    own_strata: Option<Strata>,
    carried: Mutex<CarriedCounts>,
    /// Present only with a budget. Locked before `carried`.
    budget_control: Option<Mutex<BudgetControl>>,
    /// The share of roots that was kept of the recording that the parameters come from.
    recorded_kept: Mutex<Option<Probability>>,
}

impl Steering {
    pub(crate) fn new(
        decider: Arc<Decider>,
        budget_control: Option<BudgetControl>,
        (own_cap, own_strata): (Cap, Option<Strata>),
        recorded_kept: Option<Probability>,
    ) -> Self {
        Steering {
            decider,
            own_cap: Mutex::new(own_cap),
            own_strata,
            carried: Mutex::default(),
            budget_control: budget_control.map(Mutex::new),
            recorded_kept: Mutex::new(recorded_kept),
        }
    }

    pub(crate) fn recorded_kept(&self) -> Option<f64> {
        lock(&self.recorded_kept).map(Probability::get)
    }

    /// Changes the rules. Changes run one at a time, and a decision sees either all of a change or
    /// nothing of it.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Rules, &mut CarriedCounts, Nanos) -> T) -> T {
        let (decider, mut carried) = (&self.decider, lock(&self.carried));
        let mut rules = Rules::clone(&decider.rules.load());
        let now = decider.now();
        rules.overrides.retain(|_, forced| now < forced.until);
        let result = change(&mut rules, &mut carried, now);
        let rules = rules.ready();
        decider.prepare(&rules);
        decider.rules.store(rules);
        carried.fold();
        result
    }

    pub(crate) fn set_sampler(&self, config: &Config) {
        let _one_at_a_time = lock(&self.own_cap);
        self.tune(config, None);
    }

    pub(crate) fn set_cap(&self, cap: &Cap) {
        let mut own = lock(&self.own_cap);
        *own = *cap;
        self.replace(None, Some(cap));
    }

    /// Replaces the number of processes that share the cap, both in the cap in use and in the one
    /// set in code.
    pub(crate) fn set_replicas(&self, replicas: NonZeroU32) {
        let mut own = lock(&self.own_cap);
        *own = own.with_replicas(replicas);
        let cap = self.decider.sampler().cap().with_replicas(replicas);
        self.replace(None, Some(&cap));
    }

    /// Replaces the sampler, scaled to the budget if there is one, and the cap if one is given.
    fn tune(&self, config: &Config, cap: Option<&Cap>) {
        let mut budget_control = self.budget_control();
        let scaled = budget_control.as_mut().and_then(|budget_control| budget_control.tune(config));
        self.replace(Some(scaled.as_ref().unwrap_or(config)), cap);
    }

    pub(crate) fn budget_factor(&self) -> Option<f64> {
        self.budget_control()?.factor()
    }

    pub(crate) fn control_budget(&self, progress: impl FnOnce() -> QueueProgress) {
        let mut budget_control = self.budget_control();
        let scaled = budget_control
            .as_mut()
            .and_then(|budget_control| budget_control.interval_over(self.decider.now(), progress));
        if let Some(scaled) = scaled {
            if let (Some(strata), Some(factor)) =
                (self.decider.strata.get(), budget_control.as_ref().and_then(|control| control.factor()))
            {
                strata.scale(factor);
            }
            self.replace(Some(&scaled), None);
        }
    }

    fn budget_control(&self) -> Option<MutexGuard<'_, BudgetControl>> {
        self.budget_control.as_ref().map(lock)
    }

    fn replace(&self, config: Option<&Config>, cap: Option<&Cap>) {
        self.change(|rules, carried, now| {
            let cap = cap.unwrap_or(rules.sampler.cap());
            let config = config.unwrap_or(rules.sampler.config());
            let next = match rules.sampler.reconfigured(config, cap, now) {
                Some(next) => next,
                None => {
                    carried.retire(Arc::clone(&rules.sampler));
                    rules.sampler.replaced(config, cap, now)
                }
            };
            if let Some(strata) = rules.strata.as_ref().filter(|_| cap != rules.sampler.cap()) {
                rules.strata = Some(Arc::new(strata.reconfigured(strata.strata().clone(), cap)));
            }
            rules.sampler = Arc::new(next);
        });
    }

    /// Replaces the strata. Their counts continue.
    #[cfg(feature = "parameters")]
    fn set_strata(&self, strata: Option<Strata>, cap: &Cap) {
        self.change(|rules, _, _| {
            rules.strata = strata.map(|strata| match &rules.strata {
                Some(old) if *old.strata() == strata => Arc::clone(old),
                Some(old) => Arc::new(old.reconfigured(strata, cap)),
                None => Arc::new(StrataSampler::new(strata, cap, secret())),
            });
        });
    }

    /// Replaces sampler, cap and budget by those of a parameters file's text. If the text has no
    /// cap or budget, the one set in code applies. Returns a report of what changed, if anything
    /// did.
    ///
    /// A refusal changes nothing: all parts that were fixed at the start are compared first.
    #[cfg(feature = "parameters")]
    pub(crate) fn set_parameters(&self, text: &str) -> Result<Option<String>, SteerError> {
        let Parameters { config, key, random, cap, tail, budget, strata, recorded_kept, comments: _ } =
            text.parse()?;
        // Held until the whole file is applied, so that changes come one at a time.
        let own_cap = lock(&self.own_cap);
        let (before, decider) = (self.in_use(), &self.decider);
        let fixed = [
            (
                decider.key.starts_like(&key),
                "the key rule differs from the one at the service's start; restart it to change keys",
            ),
            (
                decider.stratified.is_some() == (random == RandomSource::Stratified),
                "`random` differs from its value at the service's start; restart it to change randomness",
            ),
            (
                // A file without policies changes nothing.
                tail == Tail::default() || decider.policies.contains(&tail),
                "`[tail]` differs from its value at the service's start; restart it to change policies",
            ),
            (
                strata.is_none() || decider.tail.is_some(),
                "the service was started without `[strata]` or policies; restart it with one of them",
            ),
            (
                strata.is_none() || decider.key.ends_like(&key),
                "the key's attributes at the end (`at_end`) differ from those at the service's start; restart \
                 it to change keys",
            ),
            (
                budget.is_none() || self.budget_control.is_some(),
                "the service was started without a budget; restart it with one",
            ),
        ];
        if let Some((_, differs)) = fixed.into_iter().find(|(is_same, _)| !is_same) {
            return Err(SteerError::new(differs));
        }
        if let Some(mut control) = self.budget_control() {
            control.set_budget(budget);
        }
        *lock(&self.recorded_kept) = recorded_kept;
        let cap = if cap.is_none() { &*own_cap } else { &cap };
        self.set_strata(strata.or_else(|| self.own_strata.clone()), cap);
        self.tune(&config, Some(cap));
        let now = self.in_use();
        Ok((before != now).then(|| format!("new parameters: {now}; before: {before}")))
    }

    #[cfg(feature = "parameters")]
    fn in_use(&self) -> String {
        let sampler = self.decider.sampler();
        let (config, budget) = match self.budget_control() {
            Some(control) => (control.tuned.clone(), control.bytes_per_second()),
            None => (sampler.config().clone(), None),
        };
        let budget =
            budget.map(|budget| format!(", budget {budget:.0} bytes per second")).unwrap_or_default();
        let cap = if sampler.cap().is_none() { String::new() } else { format!(", cap {}", sampler.cap()) };
        let strata = match self.decider.strata.get() {
            Some(strata) => format!(", strata of {} keys", strata.strata().probabilities().count()),
            None => String::new(),
        };
        format!("{config}{budget}{cap}{strata}")
    }

    pub(crate) fn forget_expired(&self) {
        let rules = self.decider.rules.load();
        if rules.overrides.is_empty() {
            return;
        }
        let now = self.decider.now();
        if rules.overrides.values().any(|forced| now >= forced.until) {
            self.change(|_, _, _| ());
        }
    }

    pub(crate) fn keys(&self) -> Vec<KeyStats> {
        let mut carried = lock(&self.carried);
        carried.fold();
        let mut keys = counts::by_key(&carried, &self.decider.sampler(), self.decider.now());
        let late = self.decider.tail.as_ref().map(|tail| tail.kept_late()).unwrap_or_default();
        for (key, kept) in late {
            let key = key.as_deref().map(shown_key);
            let named = keys.partition_point(|stats| stats.key.is_some());
            let place = keys[..named].binary_search_by(|stats| stats.key.as_deref().cmp(&key.as_deref()));
            // A key that the sampler has no record of counts with the others, which come last.
            if let Some(stats) = keys.get_mut(place.unwrap_or(named)) {
                stats.kept_late += kept;
            }
        }
        keys
    }
}

/// Emits one event about parameters that took effect. Call it without a lock.
#[cfg(feature = "parameters")]
pub(crate) fn tell(news: &str) {
    warn(|| tracing::info!(target: "astracer", parent: None, "{news}"));
}
