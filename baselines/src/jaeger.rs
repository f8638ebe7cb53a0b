//! Jaeger: a probability for each operation, with a guaranteed lower bound.
//!
//! Sources: github.com/uber/jaeger-client-go 2.30.0 (the samplers of the client) and
//! github.com/jaegertracing/jaeger, `internal/sampling/samplingstrategy/adaptive` (the collector,
//! commit 1121478).
//!
//! A trace kept by the probability is tagged `sampler.type=probabilistic`; one kept only by the
//! lower bound is tagged `lowerbound`. Both get the probability as `sampler.param`. The weight 1/p
//! is unbiased only for the first kind. Applying it to both overestimates rare operations by up to
//! 1/p. Counting lower-bound traces once underestimates them: such a trace does not record how many
//! it stands for.

mod adaptive;
mod guaranteed;

pub(super) use adaptive::KIND as ADAPTIVE;
pub(super) use guaranteed::KIND as GUARANTEED;

/// The number of operations for which a client has samplers; others have the default probability
/// and no lower bound.
const OPERATIONS_MAX: usize = 2000;

/// The lower bound of one operation, as a credit balance
/// (`GuaranteedThroughputProbabilisticSampler`).
#[derive(Clone, Debug)]
struct LowerBound {
    credits_per_ns: f64,
    balance: f64,
    balance_max: f64,
    last_ns: u64,
}

/// The reason why a trace is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeepReason {
    Probability,
    LowerBound,
}

impl LowerBound {
    /// At least one trace in each `interval_s`. The balance starts full, as in 2.30.0. An earlier
    /// version started it at random, so that half of the rare operations were never seen.
    fn every(interval_s: f64, now_ns: u64) -> Self {
        let credits_per_s = 1.0 / interval_s;
        let balance_max = credits_per_s.max(1.0);
        Self { credits_per_ns: credits_per_s / 1e9, balance: balance_max, balance_max, last_ns: now_ns }
    }

    /// Takes a credit, if there is one.
    fn take(&mut self, now_ns: u64) -> bool {
        let since_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
        self.balance = (self.balance + since_ns as f64 * self.credits_per_ns).min(self.balance_max);
        let enough = self.balance >= 1.0;
        if enough {
            self.balance -= 1.0;
        }
        enough
    }

    /// The reason to keep the trace, or `None`. A trace that the probability keeps also uses up a
    /// credit.
    fn decide(&mut self, probability: f64, uniform: f64, now_ns: u64) -> Option<KeepReason> {
        let credit = self.take(now_ns);
        if uniform < probability {
            Some(KeepReason::Probability)
        } else {
            credit.then_some(KeepReason::LowerBound)
        }
    }
}

#[cfg(test)]
mod tests;
