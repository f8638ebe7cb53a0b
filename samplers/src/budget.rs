//! A budget in bytes: one factor on all probabilities, adjusted toward a target after each
//! interval.
//!
//! Probabilities that a tuner found fit the traffic of its recording. With slower or busier traffic
//! the kept bytes differ, and the factor corrects them. It changes at most twofold per interval, so
//! that one odd interval cannot drop or keep everything. No key's probability falls below its
//! floor: a rare key stays visible, and the target is missed instead.
//!
//! Like the rest of this crate it has no clock. A caller measures the bytes exported in an
//! interval, gets the factor from the [`Controller`], and gives the scaled config to the sampler
//! ([`Sampler::reconfigured`](crate::Sampler::reconfigured)).

use crate::bump::Bump;
use crate::config::Config;
use crate::config_error::ConfigError;
use crate::nanos::Nanos;
use crate::per_key::PerKey;
use crate::probability::Probability;
use crate::ratio::Ratio;

/// The factor changes by at most this ratio per interval, up or down.
const STEP_MAX: f64 = 2.0;
/// The factor stays between 1 / `FACTOR_MAX` and `FACTOR_MAX`. Further out, nearly all
/// probabilities are 1 or at their floors, and a factor that kept moving would need as long to come
/// back.
const FACTOR_MAX: f64 = 1024.0;

/// A target in bytes per second, the interval at which the factor changes, and the floors of
/// probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    bytes_per_second: f64,
    interval: Nanos,
    floors: PerKey<Probability>,
}

impl Budget {
    /// The interval if none is given.
    pub const INTERVAL_DEFAULT: Nanos = Nanos::from_secs(60);
    /// The shortest interval: shorter ones have too few traces to steer by.
    pub const INTERVAL_MIN: Nanos = Nanos::from_secs(1);

    /// A budget without floors.
    ///
    /// # Errors
    ///
    /// If the target is not above 0 and finite.
    pub fn new(bytes_per_second: f64) -> Result<Self, ConfigError> {
        if !bytes_per_second.is_finite() || bytes_per_second <= 0.0 {
            return Err(ConfigError::out_of_range(
                format!("budget={bytes_per_second}"),
                "a budget must be a finite number of bytes per second, above 0, such as 50000",
            ));
        }
        let floors = PerKey::new(Probability::ZERO);
        Ok(Budget { bytes_per_second, interval: Self::INTERVAL_DEFAULT, floors })
    }

    /// Sets the interval at which the factor changes; raised to [`Budget::INTERVAL_MIN`] if it is
    /// shorter.
    #[must_use]
    pub fn with_interval(self, interval: Nanos) -> Self {
        Budget { interval: interval.max(Self::INTERVAL_MIN), ..self }
    }

    /// Sets the floor of all keys without their own.
    #[must_use]
    pub fn with_floor(self, floor: Probability) -> Self {
        let of_keys = self.floors.overrides().map(|(key, own)| (key.to_owned(), *own));
        let floors = of_keys.fold(PerKey::new(floor), |floors, (key, own)| floors.with_override(key, own));
        Budget { floors, ..self }
    }

    /// Sets the floor of one key. For bump only: a ratio does not look at keys.
    #[must_use]
    pub fn with_key_floor(self, key: impl Into<String>, floor: Probability) -> Self {
        Budget { floors: self.floors.with_override(key, floor), ..self }
    }

    /// The target, in bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes_per_second
    }

    /// The interval at which the factor changes.
    pub fn interval(&self) -> Nanos {
        self.interval
    }

    /// The floors, by key.
    pub fn floors(&self) -> &PerKey<Probability> {
        &self.floors
    }
}

/// Adjusts the factor on all probabilities toward a [`Budget`].
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    budget: Budget,
    factor: f64,
}

impl Controller {
    /// Starts with a factor of 1.
    pub fn new(budget: Budget) -> Self {
        Controller { budget, factor: 1.0 }
    }

    /// Keeps the factor, with another budget.
    #[must_use]
    pub fn with_budget(self, budget: Budget) -> Self {
        Controller { budget, ..self }
    }

    /// The budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The factor on all probabilities.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Adjusts the factor after an interval of `seconds` in which `kept_bytes` were kept, and
    /// returns it for the next interval. An interval of length zero changes nothing.
    pub fn after(&mut self, kept_bytes: f64, seconds: f64) -> f64 {
        if seconds > 0.0 && kept_bytes >= 0.0 {
            // With no bytes kept the quotient is infinite, and the step is the largest.
            let step = (self.budget.bytes_per_second * seconds / kept_bytes).clamp(1.0 / STEP_MAX, STEP_MAX);
            self.factor = (self.factor * step).clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
        }
        self.factor
    }

    /// A probability times the factor: at most 1, and not below the floor unless the probability
    /// itself is.
    fn scaled(&self, probability: Probability, floor: Probability) -> Probability {
        let least = floor.get().min(probability.get());
        let scaled = (probability.get() * self.factor).clamp(least, 1.0);
        Probability::new(scaled).unwrap_or(probability)
    }

    /// The config with its probabilities scaled: bump's minimum (or constant) ones, or a ratio's.
    /// `None` for samplers without such probabilities.
    #[must_use]
    pub fn config(&self, tuned: &Config) -> Option<Config> {
        match tuned {
            Config::Bump(tuned) => Some(Config::Bump(self.bump(tuned))),
            Config::Ratio(ratio) => {
                let scaled = self.scaled(ratio.probability(), *self.budget.floors.default());
                Ratio::new(scaled).ok().map(Config::Ratio)
            }
            _ => None,
        }
    }

    fn bump(&self, tuned: &PerKey<Bump>) -> PerKey<Bump> {
        let scaled =
            |bump: &Bump, floor: &Probability| bump.clone().with_minimum(self.scaled(bump.minimum(), *floor));
        let floors = &self.budget.floors;
        let default = scaled(tuned.default(), floors.default());
        // A key that has a floor but no parameters of its own gets the default parameters, held
        // above its floor.
        let floored = floors.overrides().map(|(key, _)| (key, tuned.of(key)));
        floored.chain(tuned.overrides()).fold(PerKey::new(default), |config, (key, bump)| {
            config.with_override(key, scaled(bump, floors.of(key)))
        })
    }
}

#[cfg(test)]
mod tests {
    use astracer_testing::SplitMix;

    use super::*;
    use crate::{Config, Limits, Nanos, Randomness, Request, Sampler};

    const INTERVAL_S: u64 = 300;
    const INTERVALS: u64 = 24 * 3600 / INTERVAL_S;

    /// A day with three keys, whose traffic grows tenfold at noon. From the fifth interval after a
    /// step on, the bytes of each interval are near the budget and their mean is within 5 % of it.
    /// The rare key never falls below its floor.
    #[test]
    fn a_day_with_a_tenfold_step_keeps_its_budget() {
        let text = r#"bump:lambda=0,min=0.1,count=none;"rare":min=0.5;"hot":min=0.02"#;
        let tuned = text.parse::<Config>().unwrap();
        let floor = |p: f64| Probability::new(p).unwrap();
        // Calls per interval before noon, and bytes per call.
        let keys = [("hot", 3000u64, 500.0), ("other", 400, 2_000.0), ("rare", 10, 1_000.0)];
        let expected = 3000.0 * 0.02 * 500.0 + 400.0 * 0.1 * 2_000.0 + 10.0 * 0.5 * 1_000.0;
        let budget = Budget::new(expected / INTERVAL_S as f64).unwrap().with_key_floor("rare", floor(0.4));
        let mut budget = Controller::new(budget.with_floor(floor(0.001)));
        let (mut random, mut factors) = (SplitMix::new(5), Vec::new());
        let (mut settled, mut rare) = ((0, 0.0), (0, 0));
        for interval in 0..INTERVALS {
            let config = budget.config(&tuned).unwrap();
            let sampler = Sampler::with_limits(&config, Limits::single_threaded());
            let busy = if interval >= INTERVALS / 2 { 10 } else { 1 };
            let mut kept_bytes = 0.0;
            for (key, calls, bytes) in keys {
                for _ in 0..calls * busy {
                    let now = Nanos::from_secs(interval * INTERVAL_S);
                    let request = Request::new(key, Randomness::from_low_bits(random.next()), now);
                    let keep = sampler.decide(&request).keep;
                    kept_bytes += if keep { bytes } else { 0.0 };
                    if key == "rare" {
                        rare = (rare.0 + u64::from(keep), rare.1 + 1);
                    }
                }
            }
            let before = budget.factor();
            let after = budget.after(kept_bytes, INTERVAL_S as f64);
            assert!((0.5..=2.0).contains(&(after / before)), "interval {interval}: {before} to {after}");
            factors.push(after);
            // The rare key's floor alone takes 3.5 % of the budget after the step.
            let since_step = interval % (INTERVALS / 2);
            if since_step >= 5 {
                // Before noon some 40 traces make up four fifths of the bytes: four standard
                // deviations, of the interval and of the one that its factor comes from, are 70 %.
                let off = (kept_bytes / expected - 1.0).abs();
                assert!(off < 0.7, "interval {interval}: {off} off the budget");
                settled = (settled.0 + 1, settled.1 + kept_bytes);
            }
        }
        assert_eq!(settled.0, INTERVALS - 10);
        let mean = settled.1 / settled.0 as f64;
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean}, should be {expected}");
        let (early, late) = (factors[20], factors[INTERVALS as usize - 1]);
        assert!((0.5..2.0).contains(&early) && (0.04..0.12).contains(&late), "{early} {late}");
        // 31,680 calls of the rare key at a probability of at least 0.4: four standard errors are
        // 0.011.
        assert!(rare.0 as f64 / rare.1 as f64 > 0.4 - 0.011, "{rare:?}");
    }

    #[test]
    fn the_factor_moves_at_most_twofold_and_stays_within_bounds() {
        let mut budget = Controller::new(Budget::new(100.0).unwrap());
        assert_eq!(budget.after(1000.0, 10.0), 1.0);
        assert_eq!(budget.after(0.0, 10.0), 2.0);
        assert_eq!(budget.after(1e9, 10.0), 1.0);
        assert_eq!(budget.after(1250.0, 10.0), 0.8);
        assert_eq!(budget.after(5.0, 0.0), 0.8, "an interval of length zero");
        assert_eq!(budget.after(f64::NAN, 1.0), 0.8);
        (0..100).for_each(|_| _ = budget.after(f64::INFINITY, 1.0));
        assert_eq!(budget.factor(), 1.0 / FACTOR_MAX);
        (0..100).for_each(|_| _ = budget.after(0.0, 1.0));
        assert_eq!(budget.factor(), FACTOR_MAX);
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Budget::new(wrong).is_err());
        }
    }

    #[test]
    fn floors_hold_and_nothing_is_above_one() {
        let p = |p: f64| Probability::new(p).unwrap();
        let mut budget = Controller::new(Budget::new(1.0).unwrap());
        budget.after(10.0, 5.0);
        assert_eq!(budget.factor(), 0.5);
        assert_eq!(budget.scaled(p(0.4), p(0.1)), p(0.2));
        assert_eq!(budget.scaled(p(0.4), p(0.3)), p(0.3));
        assert_eq!(budget.scaled(p(0.1), p(0.3)), p(0.1), "a floor does not raise a probability");
        (0..3).for_each(|_| _ = budget.after(0.0, 1.0));
        assert_eq!(budget.scaled(p(0.4), p(0.1)), Probability::ONE);
    }

    #[test]
    fn samplers_with_probabilities_are_scaled() {
        let p = |p: f64| Probability::new(p).unwrap();
        let budget = Budget::new(1.0).unwrap().with_key_floor("a", p(0.3)).with_floor(p(0.2));
        assert_eq!((budget.floors().of("a"), budget.floors().of("b")), (&p(0.3), &p(0.2)));
        let mut controller = Controller::new(budget);
        controller.after(2.0, 1.0);
        let scaled =
            |text: &str| controller.config(&text.parse::<Config>().unwrap()).map(|config| config.to_string());
        assert_eq!(scaled("ratio:0.5").as_deref(), Some("ratio:0.25"));
        assert_eq!(scaled("ratio:0.25").as_deref(), Some("ratio:0.2"));
        let bump = scaled(r#"bump:lambda=3,min=0.8,window=1s;"a":min=0.5"#).unwrap();
        assert!(bump.contains("lambda=3,min=0.4") && bump.contains("min=0.3"), "{bump}");
        for other in ["always", "never", "every:3", "bucket:capacity=1,rate=1"] {
            assert_eq!(scaled(other), None, "{other}");
        }
    }

    /// A floor holds for each key that has one, whether or not the tuner gave that key parameters
    /// of its own.
    #[test]
    fn a_key_with_a_floor_needs_no_parameters_of_its_own() {
        let p = |p: f64| Probability::new(p).unwrap();
        let budget = Budget::new(1.0).unwrap().with_key_floor("GET /checkout", p(0.05)).with_floor(p(0.001));
        let mut controller = Controller::new(budget);
        (0..9).for_each(|_| _ = controller.after(1e9, 1.0));
        for text in ["bump:lambda=0,min=0.5", "bump:lambda=0,min=0.5,count=none;\"hot\":min=0.5"] {
            let tuned = text.parse::<Config>().unwrap();
            let Some(Config::Bump(scaled)) = controller.config(&tuned) else { panic!("no bump") };
            assert_eq!(scaled.of("GET /checkout").minimum(), p(0.05), "{text}");
            assert_eq!(scaled.of("others").minimum(), p(0.001), "{text}");
            assert_eq!(scaled.of("GET /checkout").count(), scaled.default().count(), "{text}");
        }
    }
}
