//! Grafana Adaptive Traces' diversity policy: one trace of each fingerprint in an interval, beside
//! an even share.
//!
//! Source: the page "Use diversity sampling" of Grafana Cloud's documentation (public preview, read
//! on 2026-11-30). The policy retains at least one trace of each fingerprint every 15 minutes, and
//! is meant to supplement a probabilistic policy. A fingerprint is made of attributes of server and
//! consumer spans, such as `service.name`, `http.route` and `http.response.status_code`. The code
//! is not public, so there are no golden vectors: the tests are computed by hand.
//!
//! Here a trace has one fingerprint, its key; in the original each of its server spans may add
//! one. A trace that the probability keeps counts, too, so that a fingerprint gets a further trace
//! only where its last kept one began an interval ago. The page leaves both open; with this reading
//! the policy takes least, and more is left to the probability.
//!
//! A trace that only the interval keeps has no weight, and the others' 1/p is too high where the
//! policy keeps some of the same kind.
//!
//! Grafana's volumetric policy, which gives each group a rate of its own so that the total meets a
//! goal, is not here: its formula is not published, and by its description it does what
//! `dynsampler-windowed` and `waterfill` do.

use super::kind::{Kind, Parameter, Unit};
use super::ticks::nanos;
use super::{Baseline, Call, Keys};

pub(super) static DIVERSITY: Kind = Kind {
    name: "grafana-diversity",
    about: "a trace of each key in an interval, and a fixed share of all",
    source: "Use diversity sampling, Grafana Cloud documentation, Adaptive Traces, public preview of 2026-11",
    bias: "what only the interval keeps has no weight; with many keys, the interval alone is the whole size",
    parameters: &[
        Parameter { name: "p", unit: Unit::Number, default: 0.1, min: 0.0, max: 1.0 },
        Parameter { name: "interval", unit: Unit::Guarantee, default: 900.0, min: 1e-3, max: 1e9 },
    ],
    larger_keeps_more: true,
    build: |values, keys| Box::new(Diversity::new(values[0], values[1], keys)),
};

struct Diversity {
    probability: f64,
    interval_ns: u64,
    /// For each key, when its last kept trace began.
    kept_at_ns: Vec<Option<u64>>,
}

impl Diversity {
    fn new(probability: f64, interval_s: f64, keys: &Keys) -> Self {
        Self { probability, interval_ns: nanos(interval_s), kept_at_ns: vec![None; keys.count()] }
    }
}

impl Baseline for Diversity {
    fn keeps(&mut self, call: Call) -> bool {
        let last_ns = &mut self.kept_at_ns[call.key as usize];
        let is_due = last_ns.is_none_or(|last_ns| call.at_ns.saturating_sub(last_ns) >= self.interval_ns);
        let keep = is_due || call.uniform < self.probability;
        if keep {
            *last_ns = Some(call.at_ns);
        }
        keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row is a key, a time in minutes, a random draw, and whether the trace is kept.
    #[track_caller]
    fn check(rows: &[(u32, f64, f64, bool)]) {
        let mut policy = Diversity::new(0.01, 900.0, &Keys::new(["a", "b"]));
        for &(key, at_min, uniform, kept) in rows {
            let call = Call { key, at_ns: (at_min * 60e9) as u64, uniform };
            assert_eq!(policy.keeps(call), kept, "key {key} at {at_min} min");
        }
    }

    #[test]
    fn each_key_is_kept_once_in_an_interval() {
        check(&[
            (0, 0.0, 0.5, true),
            (0, 1.0, 0.5, false),
            (1, 2.0, 0.5, true),
            (0, 14.99, 0.5, false),
            (0, 15.0, 0.5, true),
            (1, 16.0, 0.5, false),
            (0, 16.0, 0.5, false),
            (1, 17.0, 0.5, true),
        ]);
    }

    #[test]
    fn what_the_probability_keeps_counts_for_the_interval() {
        check(&[
            (0, 0.0, 0.5, true),
            (0, 10.0, 0.009, true),
            (0, 15.0, 0.5, false),
            (0, 24.9, 0.01, false),
            (0, 25.0, 0.5, true),
        ]);
    }
}
