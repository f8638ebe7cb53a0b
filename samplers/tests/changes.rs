//! Changes of bump's parameters while a sampler is in use: which counts continue.

use astracer_samplers::{
    Budget, Bump, Cap, Config, Controller, Count, Decision, Limits, Nanos, PerKey, Probability, Reason,
    Request, Sampler, Threshold,
};
use astracer_testing::SplitMix;

use crate::common::{Draw as _, call, sampler, unlucky};

/// A budget changes the minimum after each interval. If counts started over each time, all keys'
/// first calls would be kept again, and no factor could bring that down.
#[test]
fn a_budgets_factor_leaves_counts_alone() {
    let now = Nanos::from_millis(50);
    for text in [
        "bump:lambda=2,min=0.5,window=1h",
        "bump:lambda=2,min=0.5,window=1h,shift=on",
        "bump:lambda=2,min=0.5,count=decaying,tau=60s",
        "bump:lambda=2,min=0.5,window=1h;\"b\":min=0.4,count=decaying,tau=60s;\"c\":count=none",
    ] {
        let mut sampler = sampler(text);
        let tuned = sampler.config().clone();
        for millis in 0..20 {
            let _ = (call(&sampler, "a", millis), call(&sampler, "b", millis));
        }
        let mut controller = Controller::new(Budget::new(1.0).unwrap());
        // Too much, too much, too little: down to a quarter, then up again.
        for bytes in [2.0, 2.0, 0.5] {
            controller.after(bytes, 1.0);
            let config = controller.config(&tuned).unwrap();
            sampler = sampler.reconfigured(&config, sampler.cap(), now).unwrap();
            for key in ["a", "b"] {
                let decision = unlucky(&sampler, key, 50);
                assert!(!decision.keep, "{key} of {text}, factor {}", controller.factor());
                let p = decision.threshold.unwrap().probability().get();
                // f(20) is 0.01; a tumbling count stops where f falls below the minimum, f(3) =
                // 0.36.
                assert!(p <= 0.5 * controller.factor().max(0.72), "{key} of {text}: {p}");
            }
        }
    }
}

/// One key gets a count of another kind, or the last such key loses it: all others continue, with
/// their caps.
#[test]
fn a_kind_of_count_for_one_key_leaves_the_others_alone() {
    for others in ["\"z\":min=0.5,count=none", "\"z\":min=0.5,count=decaying,tau=1s"] {
        for cap in ["", "key_traces=0.001,key_burst=20"] {
            let config =
                |others: &str| format!("bump:lambda=9,min=0,window=1h;{others}").parse::<Config>().unwrap();
            let cap: Cap = if cap.is_empty() { Cap::none() } else { cap.parse().unwrap() };
            let (plain, beside) = (config("\"z\":min=0.5"), config(others));
            let old = Sampler::with_cap(&plain, Limits::single_threaded(), &cap);
            for _ in 0..30 {
                let _ = (call(&old, "a", 0), call(&old, "z", 0));
            }
            let before = unlucky(&old, "a", 0);
            let now = Nanos::from_millis(5);
            let next = old.reconfigured(&beside, &cap, now).unwrap();
            let after = unlucky(&next, "a", 5);
            assert!(!after.keep && after.reason == before.reason, "{others}");
            // Calls with high randomness have used up the key's burst.
            assert_eq!(call(&next, "a", 5).keep, cap.is_none(), "{others}");
            assert_eq!(next.snapshot(), old.snapshot(), "one table");
            let back = next.reconfigured(&plain, &cap, now).unwrap();
            assert!(!unlucky(&back, "a", 5).keep, "{others}");
            assert_eq!(back.snapshot().unwrap().keys[0].counts.seen(), 34);
        }
    }
}

/// The overflow record belongs to no key, so its windows have no shift.
const SHARED: &str = "shared";

/// The last count of a key, as a floating-point number.
struct Plain {
    key: &'static str,
    bump: Bump,
    count: f64,
    at: Nanos,
}

impl Plain {
    /// The count that a call at `now` finds.
    fn count(&self, now: Nanos) -> f64 {
        match self.bump.count() {
            Count::Tumbling { shifted, .. } => {
                let bump = self.bump.clone().shifted(shifted && self.key != SHARED);
                let number = |at| bump.window_number(self.key, at);
                if number(self.at) == number(now) { self.count } else { 0.0 }
            }
            Count::Decaying { half_life } => {
                let passed = now.saturating_sub(self.at).get() as f64 / half_life.get() as f64;
                let count = self.count * (-passed).exp2();
                if count < (-24f64).exp2() { 0.0 } else { count }
            }
            _ => 0.0,
        }
    }

    fn call(&mut self, now: Nanos, decision: &Decision) -> Result<(), String> {
        let count = self.count(now);
        let expected = self.bump.probability(count);
        let found = decision.threshold.map(Threshold::probability).map_or(f64::NAN, Probability::get);
        let exact = Some(Threshold::from_probability(expected)) == decision.threshold;
        let is_decaying = matches!(self.bump.count(), Count::Decaying { .. });
        let near = is_decaying && (found / expected.get() - 1.0).abs() < 1e-3;
        if !exact && !near {
            return Err(format!("{} of {:?}: {found}, {expected} by {count}", self.key, self.bump));
        }
        // A tumbling count stops where it has no further effect.
        let stops = !is_decaying && count > 0.0 && expected == self.bump.minimum();
        (self.count, self.at) = (if stops { count } else { count + 1.0 }, now);
        Ok(())
    }

    /// Counts continue if only the minimum changes.
    fn change(&mut self, bump: &Bump, now: Nanos) {
        (self.count, self.at) = (self.count(now), now);
        if self.bump.clone().with_minimum(bump.minimum()) != *bump {
            self.count = 0.0;
        }
        self.bump = bump.clone();
    }
}

fn parameters(random: &mut SplitMix, tumbling_only: bool) -> Bump {
    let lambda = random.one_of(&[0.0, 0.5, 2.0, 6.0]);
    let window = Nanos::from_secs(1 + random.below(3));
    let count = match random.below(if tumbling_only { 2 } else { 4 }) {
        0 => Count::Tumbling { window, shifted: false },
        1 => Count::Tumbling { window, shifted: true },
        2 => Count::Decaying { half_life: window },
        _ => Count::Uncounted,
    };
    let bump = Bump::new(lambda, minimum(random), Nanos::from_secs(1)).unwrap();
    bump.with_count(count).unwrap().with_exponent(random.one_of(&[1.0, 2.0])).unwrap()
}

fn minimum(random: &mut SplitMix) -> Probability {
    Probability::new(random.one_of(&[0.001, 0.02, 0.1, 0.5, 1.0])).unwrap()
}

/// Random calls and changes, compared with counts in floating point.
#[test]
fn random_changes_are_those_of_plain_counts() {
    for seed in 0..100 {
        if let Err(error) = run_at_random(seed) {
            panic!("seed {seed}: {error}");
        }
    }
}

fn run_at_random(seed: u64) -> Result<(), String> {
    let mut random = SplitMix::new(seed);
    let tumbling_only = seed.is_multiple_of(2);
    let mut config = PerKey::new(parameters(&mut random, tumbling_only));
    // The last two keys find no free record.
    let limits = Limits::single_threaded().with_keys(3);
    let mut sampler = Sampler::with_limits(&Config::Bump(config.clone()), limits);
    let plain = |key| Plain { key, bump: config.of(key).clone(), count: 0.0, at: Nanos::ZERO };
    let mut keys = ["a", "b", "c", SHARED].map(plain);
    let names = ["a", "b", "c", "more", "and more"];
    let mut now = Nanos::from_secs(100);
    for step in 0..400 {
        now = now.saturating_add(Nanos::from_millis(random.below(200)));
        let chosen = if step < names.len() { step } else { random.below(8) as usize };
        if let Some(name) = names.get(chosen) {
            let decision = sampler.decide(&Request::new(name, random.randomness(), now));
            if (chosen >= 3) != (decision.reason == Reason::Overflow) {
                return Err(format!("{name}: {:?}", decision.reason));
            }
            keys[chosen.min(3)].call(now, &decision)?;
            continue;
        }
        config = changed(&config, &mut random, tumbling_only);
        sampler = sampler.reconfigured(&Config::Bump(config.clone()), &Cap::none(), now).ok_or("a kind")?;
        for key in &mut keys {
            key.change(config.of(key.key), now);
        }
    }
    Ok(())
}

/// All minimums times a factor, as a budget does; or other parameters for one key, or for all
/// others.
fn changed(config: &PerKey<Bump>, random: &mut SplitMix, tumbling_only: bool) -> PerKey<Bump> {
    let factor = [0.5, 0.9, 1.5][random.below(3) as usize];
    let change = random.below(6);
    let scaled = |bump: &Bump| {
        let scaled = (bump.minimum().get() * factor).clamp(0.001, 1.0);
        bump.clone().with_minimum(Probability::new(scaled).unwrap())
    };
    let default = match change {
        0..3 => scaled(config.default()),
        3 => parameters(random, tumbling_only),
        _ => config.default().clone(),
    };
    // A key that loses its own parameters gets the defaults.
    let given_up = if change == 4 { "b" } else { "none" };
    let kept = config.overrides().filter(|(key, _)| *key != given_up);
    let next = kept.fold(PerKey::new(default), |next, (key, bump)| {
        next.with_override(key, if change < 3 { scaled(bump) } else { bump.clone() })
    });
    match change {
        5 => next.with_override(["a", "b", "c"][random.below(3) as usize], parameters(random, tumbling_only)),
        _ => next,
    }
}
