//! Zipkin Brave's rate limit: a number of traces per second, spread over tenths of a second.
//!
//! Source: `brave.sampler.RateLimitingSampler`, github.com/openzipkin/brave 5.x (commit 2f8fb1f).
//! Golden vectors: `RateLimitingSamplerTest`.
//!
//! Rates below 10 per second keep the first traces of each second. From 10 on, each tenth of a
//! second gets a tenth of the rate, plus what earlier tenths left unused; the first tenth also gets
//! the remainder of the division. A second starts with the first arrival after the end of the
//! previous one.
//!
//! Keys are ignored. No weight is recorded, because none would be unbiased. The start of a burst is
//! kept and the rest is not, so calls that usually follow another call are rarely seen. The
//! original rounds down the number of tenths left. So, except in the first tenth and at the very
//! start of the others, it is one tenth ahead of its documented schedule.

use super::kind::{Kind, Parameter, Unit};
use super::{Baseline, Call};

const SECOND_NS: u64 = 1_000_000_000;
const TENTHS: u64 = 10;

pub(super) static KIND: Kind = Kind {
    name: "brave",
    about: "traces per second over all keys, spread over tenths of a second",
    source: "RateLimitingSampler, github.com/openzipkin/brave, commit 2f8fb1f",
    bias: "keeps what comes first in each tenth; no weight is recorded, because none would be unbiased",
    parameters: &[Parameter {
        name: "rate",
        unit: Unit::Whole,
        default: 10.0,
        min: 1.0,
        max: 2_147_483_647.0,
    }],
    larger_keeps_more: true,
    build: |values, _| Box::new(RateLimit::new(values[0] as u64)),
};

struct RateLimit {
    per_second: u64,
    second_ends_ns: Option<u64>,
    kept: u64,
}

impl RateLimit {
    fn new(per_second: u64) -> Self {
        Self { per_second, second_ends_ns: None, kept: 0 }
    }

    /// The number of traces that may have been kept by now, with `left_ns` (above 0) of the second
    /// left.
    fn allowed(&self, left_ns: u64) -> u64 {
        if self.per_second < TENTHS {
            return self.per_second;
        }
        let tenth_ns = SECOND_NS / TENTHS;
        let tenth = match left_ns > SECOND_NS - tenth_ns {
            true => 0,
            false => TENTHS - (left_ns / tenth_ns).max(1),
        };
        self.per_second % TENTHS + self.per_second / TENTHS * (tenth + 1)
    }
}

impl Baseline for RateLimit {
    fn keeps(&mut self, call: Call) -> bool {
        let mut second_ends_ns = *self.second_ends_ns.get_or_insert(call.at_ns.saturating_add(SECOND_NS));
        if call.at_ns >= second_ends_ns {
            second_ends_ns = call.at_ns.saturating_add(SECOND_NS);
            (self.second_ends_ns, self.kept) = (Some(second_ends_ns), 0);
        }
        let keep = self.kept < self.allowed(second_ends_ns - call.at_ns);
        self.kept += u64::from(keep);
        keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row is a time in tenths of a second, the number of calls at that time, and how many of
    /// them must be kept.
    #[track_caller]
    fn check(rate: u64, rows: &[(f64, usize, usize)]) {
        let mut sampler = RateLimit::new(rate);
        for &(at_tenths, calls, kept) in rows {
            let at_ns = (at_tenths * 1e8) as u64;
            let keeps = |_: &usize| sampler.keeps(Call { key: 0, at_ns, uniform: 0.0 });
            assert_eq!((0..calls).filter(keeps).count(), kept, "rate {rate}, at {at_tenths} tenths");
        }
    }

    #[test]
    fn keeps_what_the_original_keeps() {
        check(2, &[(0.0, 3, 2)]); // samplesOnlySpecifiedNumber
        check(10, &[(0.0, 2, 1), (1.0, 2, 1), (9.0, 9, 8), (10.0, 2, 1)]); // resetsAfterASecond
        check(10, &[(0.0, 1, 1), (0.000_001, 1, 0), (1.0, 2, 1), (10.0, 2, 1)]); // worksWithEdgeCases
        check(11, &[(0.0, 3, 2), (9.0, 12, 9)]); // allowsOddRates
        check(2, &[(0.0, 1, 1), (5.0, 1, 1), (7.5, 1, 0), (10.0, 1, 1)]); // worksOnRollover
        for reservoir in [1, 10, 100] {
            check(reservoir, &[(0.0, 1, 1), (9.999, 1000, reservoir as usize - 1)]); // retainsPerSampleRate
        }
    }

    /// The documentation's example: of 103 per second, 13 in the first tenth, 10 more in the
    /// second, and 103 by the last. But with 8.9 tenths left the original counts 8, and also allows
    /// the 10 for the third; with 1.9 left it allows all.
    #[test]
    fn the_remainder_belongs_to_the_first_tenth() {
        check(
            103,
            &[(0.0, 50, 13), (0.999, 50, 0), (1.0, 50, 10), (2.0, 50, 10), (8.0, 200, 60), (9.0, 50, 10)],
        );
        check(103, &[(0.0, 50, 13), (1.1, 50, 20), (1.999, 50, 0), (8.1, 200, 70), (9.5, 50, 0)]);
    }

    /// `resetsAfterALongGap`: no credit is saved up.
    #[test]
    fn a_second_starts_with_the_first_arrival_after_the_last_ones_end() {
        check(10, &[(0.0, 1, 1), (1e9, 2, 1), (1e9 + 1.0, 2, 1), (1e9 + 5.0, 9, 4)]);
    }
}
