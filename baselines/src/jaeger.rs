//! Jaeger: a probability for each operation, with a guaranteed lower bound.
//!
//! Sources: github.com/uber/jaeger-client-go 2.30.0 (the samplers of the client) and
//! github.com/jaegertracing/jaeger, `internal/sampling/samplingstrategy/adaptive` (the collector,
//! commit 1121478).
//!
//! A trace that the probability kept is tagged `sampler.type=probabilistic`, one that only the
//! lower bound kept `lowerbound`; both get the probability as `sampler.param`. For the first kind
//! alone the weight 1/p is true. Who weights both kinds counts rare operations up to 1/p times too
//! often, who counts lower-bound traces once counts them too seldom: the trace does not say how
//! many it stands for.

mod adaptive;
mod guaranteed;

pub(super) use adaptive::KIND as ADAPTIVE;
pub(super) use guaranteed::KIND as GUARANTEED;

/// The number of operations that a client holds samplers for; others have the default probability
/// and no lower bound.
const OPERATIONS_MAX: usize = 2000;

/// The probability and the lower bound of one operation
/// (`GuaranteedThroughputProbabilisticSampler`).
#[derive(Clone, Debug)]
struct LowerBound {
    credits_per_ns: f64,
    balance: f64,
    balance_max: f64,
    last_ns: u64,
}

/// Why a trace is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeepReason {
    Probability,
    LowerBound,
}

impl LowerBound {
    /// At least one trace in each `interval_s`. The balance starts full, as in 2.30.0; in an
    /// earlier version it started at random, so that half of the rare operations stayed unseen.
    fn every(interval_s: f64, now_ns: u64) -> Self {
        let credits_per_s = 1.0 / interval_s;
        let balance_max = credits_per_s.max(1.0);
        Self { credits_per_ns: credits_per_s / 1e9, balance: balance_max, balance_max, last_ns: now_ns }
    }

    /// Takes a credit if there is one.
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

    /// Whom the trace is kept by. A trace that the probability keeps uses up a credit too.
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
