//! The sampler: one type for all of them.

use crate::bump::{Bump, BumpPolicy, Count, Curves, Tumbling};
use crate::config::Config;
use crate::decision::{Decision, Reason};
use crate::every_nth::EveryNth;
use crate::per_key::PerKey;
use crate::request::Request;
use crate::table::{Limits, Snapshot, Table};
use crate::threshold::Threshold;
use crate::token_bucket::TokenBucket;

/// Decides for each trace whether it is kept.
///
/// # Consistency
///
/// Any number of threads may decide at once.
///
/// - *A decision is one atomic step.* Calls of one key that overlap have an order, and each sees all before it: no
///   two take the same token, and no two the same count of bump, where that is exact.
/// - *A bump count is exact* up to 4096 times [`Limits::shards`] calls in a window. Beyond, threads add their calls in batches: the count is then right to one in 1024, and f(x) to 0.3 %. It stops
///   where it no longer matters, at the x whose f(x) is not above the minimum; from there on calls write no memory
///   that other threads read.
///   A decaying count never stops; a thread whose `now` is behind sees a larger count, and keeps less.
/// - *A key that has a record is found*, unless it loses it. A key gets its record by its first call, which takes a
///   lock; two first calls at once get the same one.
/// - *Time may differ between threads.* A call whose `now` is behind by up to a minute is counted in the window (or
///   by the bucket) that others have reached; nothing is undone. A `now` further back is a clock that was set back,
///   and records begin anew.
/// - *Every call is counted once.* When no call is in progress, [`Sampler::snapshot`] is exact: for each key, and in
///   sum. During calls, each of its numbers is one that held at some moment, and the sum never falls. A thread that is
///   suspended inside `decide` for longer than an eighth of [`Limits::idle`], while its key leaves and another takes
///   the record, may be counted for that other key; the sum is exact even then.
#[derive(Debug)]
pub struct Sampler {
    config: Config,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Always,
    Never,
    Ratio(Threshold),
    EveryNth(EveryNth),
    /// All counts tumble.
    Bump(Table<Tumbling>),
    /// Some decay.
    AnyBump(Table<BumpPolicy>),
    TokenBucket(Table<TokenBucket>),
}

impl Kind {
    fn bump(config: &PerKey<Bump>, limits: Limits) -> Self {
        let (curves, shards) = (Curves::new(config.all()), limits.shards());
        if config.all().all(|bump| matches!(bump.count(), Count::Tumbling { .. })) {
            let policy = |bump: &Bump| match bump.count() {
                Count::Tumbling { window, .. } => Tumbling::new(bump, window, &curves, shards),
                // There is none.
                Count::Decaying { half_life } => Tumbling::new(bump, half_life, &curves, shards),
            };
            Kind::Bump(Table::new(config, policy, limits))
        } else {
            Kind::AnyBump(Table::new(config, |bump| BumpPolicy::new(bump, &curves, shards), limits))
        }
    }
}

impl Sampler {
    /// A sampler with the default limits.
    pub fn new(config: &Config) -> Self {
        Self::with_limits(config, Limits::default())
    }

    /// A sampler with these limits on its record table. All of its memory is taken here.
    pub fn with_limits(config: &Config, limits: Limits) -> Self {
        let kind = match config {
            Config::Always => Kind::Always,
            Config::Never => Kind::Never,
            Config::Ratio(ratio) => Kind::Ratio(ratio.threshold()),
            Config::EveryNth(n) => Kind::EveryNth(EveryNth::new(*n)),
            Config::Bump(bump) => Kind::bump(bump, limits),
            Config::TokenBucket(bucket) => Kind::TokenBucket(Table::new(bucket, TokenBucket::clone, limits)),
        };
        Sampler { config: config.clone(), kind }
    }

    /// A sampler of the same config and limits that has seen no call: cheaper than a new one, for replays.
    #[must_use]
    pub fn fresh(&self) -> Self {
        let kind = match &self.kind {
            Kind::Always => Kind::Always,
            Kind::Never => Kind::Never,
            Kind::Ratio(threshold) => Kind::Ratio(*threshold),
            Kind::EveryNth(every) => Kind::EveryNth(every.fresh()),
            Kind::Bump(table) => Kind::Bump(table.fresh()),
            Kind::AnyBump(table) => Kind::AnyBump(table.fresh()),
            Kind::TokenBucket(table) => Kind::TokenBucket(table.fresh()),
        };
        Sampler { config: self.config.clone(), kind }
    }

    /// The config that the sampler was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Decides whether a trace is kept.
    #[inline]
    pub fn decide(&self, request: &Request<'_>) -> Decision {
        match &self.kind {
            Kind::Bump(table) => table.decide(request),
            Kind::AnyBump(table) => decide_apart(table, request),
            Kind::TokenBucket(table) => table.decide(request),
            Kind::Ratio(threshold) => Decision {
                keep: threshold.keeps(request.randomness),
                threshold: Some(*threshold),
                reason: Reason::Ratio,
            },
            Kind::Always => {
                Decision { keep: true, threshold: Some(Threshold::ALWAYS), reason: Reason::Always }
            }
            Kind::Never => Decision { keep: false, threshold: None, reason: Reason::Never },
            Kind::EveryNth(every) => {
                Decision { keep: every.keeps_next(), threshold: None, reason: Reason::EveryNth }
            }
        }
    }

    /// The counts by key, of a sampler that decides by key; `None` of others, which remember nothing.
    pub fn snapshot(&self) -> Option<Snapshot> {
        match &self.kind {
            Kind::Bump(table) => Some(table.snapshot()),
            Kind::AnyBump(table) => Some(table.snapshot()),
            Kind::TokenBucket(table) => Some(table.snapshot()),
            Kind::Always | Kind::Never | Kind::Ratio(_) | Kind::EveryNth(_) => None,
        }
    }
}

/// Not inlined, so that it takes no registers from the tables that are.
#[inline(never)]
fn decide_apart(table: &Table<BumpPolicy>, request: &Request<'_>) -> Decision {
    table.decide(request)
}
