//! The sampler: one type for every kind of sampling.

use crate::bump::{Bump, BumpPolicy, Count, Curves, Tumbling};
use crate::cap::{Cap, Caps, Meter};
use crate::config::Config;
use crate::decision::{Decision, Reason};
use crate::every_nth::EveryNth;
use crate::fixed::Fixed;
use crate::nanos::Nanos;
use crate::per_key::PerKey;
use crate::policy::NEVER;
use crate::probability::Probability;
use crate::randomness::Randomness;
use crate::request::Request;
use crate::sync::Arc;
use crate::table::{Capped, ImageError, KeyState, Limits, Restored, Snapshot, Table};
use crate::tail::Boosting;
use crate::threshold::Threshold;
use crate::token_bucket::TokenBucket;

/// Decides for each trace whether it is kept.
///
/// # Consistency
///
/// Any number of threads may call [`Sampler::decide`] at once.
///
/// - *A decision is one atomic step.* Overlapping calls of one key have an order, and each sees all
///   calls before it. No two take the same token, and no two see the same bump count where that
///   count is exact.
/// - *A bump count is exact* up to 4096 times [`Limits::shards`] calls in a window. Beyond that,
///   threads add their calls in batches: the count is right to one part in 1024, and f(x) to 0.3 %
///   for an exponent of 2. A tumbling count stops at the first x whose f(x) is at most the minimum,
///   because larger counts change nothing; from there on, calls write no memory that other threads
///   read. A decaying count never stops. A thread whose `now` is behind sees a larger decaying
///   count, and keeps less.
/// - *A key that has a record is found* until it loses the record. A key gets its record at its
///   first call, which takes a lock; two first calls at once get the same record.
/// - *Threads' clocks may differ.* A call whose `now` is behind by up to a minute is counted in the
///   window (or by the bucket) that other threads have reached; nothing is undone. A `now` further
///   back means that the clock was set back, and records begin anew.
/// - *Every call is counted once.* When no call is in progress, [`Sampler::snapshot`] is exact, for
///   each key and in total. During calls, each of its numbers is one that held at some moment, and
///   the total never falls. There is one exception by key: a thread may be suspended inside
///   `decide` for longer than an eighth of [`Limits::idle`] while its key loses the record to
///   another key. Its call is then counted for the other key; the total is exact even so.
#[derive(Debug)]
pub struct Sampler {
    config: Config,
    limits: Limits,
    cap: Cap,
    /// The cap of the kinds without a table; tables hold their own copy.
    capped: Option<Capped>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Always or ratio, with a record for each key: used only if the cap is by key.
    Fixed(Table<Fixed>),
    Always,
    Never,
    Ratio(Threshold),
    EveryNth(EveryNth),
    /// All counts are tumbling.
    Bump(Table<Tumbling>),
    /// At least one count is decaying or absent, or was before a change of parameters.
    AnyBump(Table<BumpPolicy>),
    TokenBucket(Table<TokenBucket>),
}

/// Whether all of these counts are tumbling.
fn tumble(config: &PerKey<Bump>) -> bool {
    config.all().all(|bump| matches!(bump.count(), Count::Tumbling { .. }))
}

fn tumbling(curves: &Curves, shards: u32) -> impl Fn(&Bump) -> Tumbling {
    move |bump| match bump.count() {
        Count::Tumbling { window, .. } => Tumbling::new(bump, window, curves, shards),
        // Not reached: the caller checks that all counts are tumbling.
        Count::Decaying { half_life } => Tumbling::new(bump, half_life, curves, shards),
        Count::Paced { .. } | Count::Uncounted => Tumbling::new(bump, Bump::WINDOW_DEFAULT, curves, shards),
    }
}

/// The fixed threshold of a config that has one.
fn fixed(config: &Config) -> Option<PerKey<Fixed>> {
    match config {
        Config::Always => Some(PerKey::new(Fixed::ALWAYS)),
        Config::Ratio(ratio) => Some(PerKey::new(Fixed::ratio(ratio.threshold()))),
        _ => None,
    }
}

impl Kind {
    fn new(config: &Config, limits: Limits, capped: Option<Capped>) -> Self {
        let shards = limits.shards();
        let by_key = capped.as_ref().is_some_and(|capped| capped.caps.by_key());
        match config {
            Config::Always | Config::Ratio(_) if by_key => {
                let fixed = fixed(config).unwrap_or_else(|| PerKey::new(Fixed::ALWAYS));
                Kind::Fixed(Table::new(&fixed, Fixed::clone, limits).with_cap(capped))
            }
            Config::Always => Kind::Always,
            Config::Never => Kind::Never,
            Config::Ratio(ratio) => Kind::Ratio(ratio.threshold()),
            Config::EveryNth(n) => Kind::EveryNth(EveryNth::new(*n)),
            Config::Bump(bump) => {
                let curves = Curves::new(bump.all());
                if tumble(bump) {
                    Kind::Bump(Table::new(bump, tumbling(&curves, shards), limits).with_cap(capped))
                } else {
                    let policy = |bump: &Bump| BumpPolicy::new(bump, &curves, shards);
                    Kind::AnyBump(Table::new(bump, policy, limits).with_cap(capped))
                }
            }
            Config::TokenBucket(bucket) => {
                Kind::TokenBucket(Table::new(bucket, TokenBucket::clone, limits).with_cap(capped))
            }
        }
    }

    /// The same kind with other parameters, continuing from this one's state; `None` if the kind
    /// changes.
    fn reconfigured(
        &self,
        config: &Config,
        limits: Limits,
        capped: Option<Capped>,
        now: Nanos,
    ) -> Option<Self> {
        let shards = limits.shards();
        match (self, config) {
            (Kind::Bump(table), Config::Bump(bump)) if tumble(bump) => {
                let curves = Curves::new(bump.all());
                Some(Kind::Bump(table.reconfigured(bump, tumbling(&curves, shards), capped, now)?))
            }
            (Kind::Bump(table), Config::Bump(bump)) => {
                let curves = Curves::new(bump.all());
                let policy = |bump: &Bump| BumpPolicy::new(bump, &curves, shards);
                let carried = BumpPolicy::carried_from_tumbling;
                Some(Kind::AnyBump(table.converted(bump, policy, carried, capped, now)?))
            }
            // Stays `AnyBump` even if all counts are tumbling from now on: keys keep their state,
            // and each decision costs the few instructions of the match on the count.
            (Kind::AnyBump(table), Config::Bump(bump)) => {
                let curves = Curves::new(bump.all());
                let policy = |bump: &Bump| BumpPolicy::new(bump, &curves, shards);
                Some(Kind::AnyBump(table.reconfigured(bump, policy, capped, now)?))
            }
            (Kind::TokenBucket(table), Config::TokenBucket(bucket)) => {
                Some(Kind::TokenBucket(table.reconfigured(bucket, TokenBucket::clone, capped, now)?))
            }
            (Kind::Fixed(table), Config::Always | Config::Ratio(_)) => {
                Some(Kind::Fixed(table.reconfigured(&fixed(config)?, Fixed::clone, capped, now)?))
            }
            _ => None,
        }
    }
}

/// An operator's decision in place of the sampler's.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Override {
    /// Keep every trace, with probability 1.
    Keep,
    /// Keep this share of traces.
    Ratio(Probability),
    /// Drop every trace.
    Drop,
}

impl Override {
    fn threshold(self) -> u64 {
        match self {
            Override::Keep => 0,
            Override::Ratio(Probability::ZERO) | Override::Drop => NEVER,
            Override::Ratio(probability) => Threshold::from_probability(probability).get(),
        }
    }
}

impl Sampler {
    /// A sampler with the default limits.
    pub fn new(config: &Config) -> Self {
        Self::with_limits(config, Limits::default())
    }

    /// A sampler whose record table has these limits. The table's memory is allocated here.
    pub fn with_limits(config: &Config, limits: Limits) -> Self {
        Self::with_cap(config, limits, &Cap::none())
    }

    /// A sampler whose kept traces are bounded by this process's share of the cap. The cap's bounds
    /// on bytes are not enforced here; see [`Meter`](crate::Meter).
    ///
    /// Allowances by key work with bump, token bucket, ratio and always. Every n-th and never do
    /// not look at keys.
    pub fn with_cap(config: &Config, limits: Limits, cap: &Cap) -> Self {
        let caps = Caps::new(cap);
        let capped = (!caps.is_none()).then_some(Capped { caps, all: Arc::default(), new: Arc::default() });
        Self::made(config, limits, cap, capped)
    }

    fn made(config: &Config, limits: Limits, cap: &Cap, capped: Option<Capped>) -> Self {
        let kind = Kind::new(config, limits, capped.clone());
        Sampler { config: config.clone(), limits, cap: *cap, capped, kind }
    }

    /// A sampler with other parameters that continues from this one's state: counts of calls, keys
    /// and the cap's credit stay. A key's bump count starts over if any of its parameters other
    /// than the minimum has changed. Both samplers may be used at once; each sees the calls that
    /// the other counts.
    ///
    /// `None` if the new sampler is of another kind (bump, token bucket, fixed share), for which
    /// the state would have another meaning, or if more keys have had their own parameters than a
    /// table remembers (20,000). Use [`Sampler::replaced`] then.
    #[must_use]
    pub fn reconfigured(&self, config: &Config, cap: &Cap, now: Nanos) -> Option<Self> {
        let capped = self.capped_by(cap);
        let kind = self.kind.reconfigured(config, self.limits, capped.clone(), now)?;
        self.take_over(capped.as_ref(), now);
        Some(Sampler { config: config.clone(), limits: self.limits, cap: *cap, capped, kind })
    }

    /// A sampler with other parameters, the same limits and no state from earlier calls, except for
    /// the cap's credit over all traces.
    #[must_use]
    pub fn replaced(&self, config: &Config, cap: &Cap, now: Nanos) -> Self {
        let next = Self::made(config, self.limits, cap, self.capped_by(cap));
        self.take_over(next.capped.as_ref(), now);
        next
    }

    /// Another cap, with this one's meter for all traces.
    fn capped_by(&self, cap: &Cap) -> Option<Capped> {
        let caps = Caps::new(cap);
        let all = self.capped.as_ref().map(|capped| Arc::clone(&capped.all)).unwrap_or_default();
        let new = self.capped.as_ref().map(|capped| Arc::clone(&capped.new)).unwrap_or_default();
        (!caps.is_none()).then_some(Capped { caps, all, new })
    }

    /// Starts the next sampler's cap. Called as late as possible, because this sampler's cap is in
    /// use until then.
    fn take_over(&self, next: Option<&Capped>, now: Nanos) {
        if let Some(next) = next {
            let old = self.capped.as_ref().map(|capped| &capped.caps);
            next.caps.take_over(old, &next.all, now);
            next.caps.take_over_new(old, &next.new, now);
        }
    }

    /// A sampler with the same config and limits that has seen no call. Cheaper than building a new
    /// one, for replays.
    #[must_use]
    pub fn fresh(&self) -> Self {
        let fresh = |capped: &Capped| Capped { caps: capped.caps, all: Arc::default(), new: Arc::default() };
        let capped = self.capped.as_ref().map(fresh);
        let kind = match &self.kind {
            Kind::Always => Kind::Always,
            Kind::Never => Kind::Never,
            Kind::Ratio(threshold) => Kind::Ratio(*threshold),
            Kind::EveryNth(every) => Kind::EveryNth(every.fresh()),
            Kind::Fixed(table) => Kind::Fixed(table.fresh(capped.clone())),
            Kind::Bump(table) => Kind::Bump(table.fresh(capped.clone())),
            Kind::AnyBump(table) => Kind::AnyBump(table.fresh(capped.clone())),
            Kind::TokenBucket(table) => Kind::TokenBucket(table.fresh(capped.clone())),
        };
        Sampler { config: self.config.clone(), capped, kind, ..*self }
    }

    /// The record table as bytes, for [`Sampler::restore`] in a later process. `None` for samplers
    /// that do not decide by key. `stamp` is the caller's to choose, for example the wall-clock
    /// time at `now`.
    pub fn image(&self, now: Nanos, stamp: u64) -> Option<Vec<u8>> {
        let config = self.config.to_string();
        match &self.kind {
            Kind::Bump(table) => Some(table.image(&config, now, stamp)),
            Kind::AnyBump(table) => Some(table.image(&config, now, stamp)),
            Kind::TokenBucket(table) => Some(table.image(&config, now, stamp)),
            Kind::Fixed(table) => Some(table.image(&config, now, stamp)),
            Kind::Always | Kind::Never | Kind::Ratio(_) | Kind::EveryNth(_) => None,
        }
    }

    /// Restores keys and their states from an image that a sampler with the same config made. Call
    /// it before the first decision; from then on, `now` must continue from [`Restored::now`].
    /// Counts of calls start at zero.
    ///
    /// # Errors
    ///
    /// If the bytes are not such an image, or are damaged. Nothing is restored then.
    pub fn restore(&self, image: &[u8]) -> Result<Restored, ImageError> {
        let config = self.config.to_string();
        match &self.kind {
            Kind::Bump(table) => table.restore(&config, image),
            Kind::AnyBump(table) => table.restore(&config, image),
            Kind::TokenBucket(table) => table.restore(&config, image),
            Kind::Fixed(table) => table.restore(&config, image),
            Kind::Always | Kind::Never | Kind::Ratio(_) | Kind::EveryNth(_) => Err(ImageError::NO_KEYS),
        }
    }

    /// The limits of the record table.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The cap over all processes, of which this one uses its share.
    pub fn cap(&self) -> &Cap {
        &self.cap
    }

    /// The config that the sampler was built with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Decides whether a trace is kept.
    #[inline]
    pub fn decide(&self, request: &Request<'_>) -> Decision {
        let decision = match &self.kind {
            Kind::Bump(table) => return table.decide(request),
            Kind::AnyBump(table) => return decide_apart(table, request),
            Kind::TokenBucket(table) => return table.decide(request),
            Kind::Fixed(table) => return table.decide(request),
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
        };
        self.admit(decision, request)
    }

    /// Counts a call that strata decide about later, and returns the threshold with which this
    /// sampler would have kept it, whatever the cap; `None` if it does not decide by chance. The
    /// call counts as dropped here.
    pub fn count(&self, request: &Request<'_>) -> Option<Threshold> {
        match &self.kind {
            Kind::Bump(table) => table.count(request),
            Kind::AnyBump(table) => table.count(request),
            Kind::TokenBucket(table) => table.count(request),
            Kind::Fixed(table) => table.count(request),
            Kind::Ratio(threshold) => Some(*threshold),
            Kind::Always => Some(Threshold::ALWAYS),
            Kind::Never | Kind::EveryNth(_) => None,
        }
    }

    /// Decides by an override instead. The cap still applies, and the call is counted as usual.
    pub fn decide_by(&self, by: Override, request: &Request<'_>) -> Decision {
        let threshold = by.threshold();
        match &self.kind {
            Kind::Bump(table) => table.decide_by(threshold, request),
            Kind::AnyBump(table) => table.decide_by(threshold, request),
            Kind::TokenBucket(table) => table.decide_by(threshold, request),
            Kind::Fixed(table) => table.decide_by(threshold, request),
            Kind::Ratio(_) | Kind::Always | Kind::Never | Kind::EveryNth(_) => {
                self.admit(Decision::by_override(threshold, request.randomness), request)
            }
        }
    }

    /// Decides with the raised probability of a boost. The cap still applies, and the call is
    /// counted as usual. Samplers that do not decide by chance (always, never, every n-th, token
    /// bucket) decide as without a boost.
    pub fn decide_boosted(&self, boosting: &Boosting<'_>, request: &Request<'_>) -> Decision {
        match &self.kind {
            Kind::Bump(table) => table.decide_boosted(boosting, request),
            Kind::AnyBump(table) => table.decide_boosted(boosting, request),
            Kind::Fixed(table) => table.decide_boosted(boosting, request),
            Kind::Ratio(threshold) => {
                let Request { randomness, now, .. } = *request;
                let keep = threshold.keeps(randomness);
                let own = Decision { keep, threshold: Some(*threshold), reason: Reason::Ratio };
                self.admit(boosting.raise(own, randomness, now), request)
            }
            Kind::Always | Kind::Never | Kind::EveryNth(_) | Kind::TokenBucket(_) => self.decide(request),
        }
    }

    /// Applies the cap's allowance for all traces to a trace that a parent's decision keeps, with a
    /// meter of its own for such traces. The call is not counted. `decision` has the parent's
    /// threshold, if it is known; that of the result is at least as high.
    pub fn admit_followed(
        &self,
        meter: &Meter,
        decision: Decision,
        randomness: Randomness,
        now: Nanos,
    ) -> Decision {
        match &self.capped {
            Some(Capped { caps, .. }) if decision.keep => caps.admit(meter, None, decision, randomness, now),
            _ => decision,
        }
    }

    /// Applies the cap to a decision that no table made.
    #[inline]
    fn admit(&self, decision: Decision, request: &Request<'_>) -> Decision {
        match &self.capped {
            Some(Capped { caps, all, .. }) if decision.keep => {
                caps.admit(all, None, decision, request.randomness, request.now)
            }
            _ => decision,
        }
    }

    /// The state of each key as a call at `now` would find it. `None` for samplers that do not
    /// decide by key.
    pub fn states(&self, now: Nanos) -> Option<Vec<KeyState>> {
        match &self.kind {
            Kind::Bump(table) => Some(table.states(now)),
            Kind::AnyBump(table) => Some(table.states(now)),
            Kind::TokenBucket(table) => Some(table.states(now)),
            Kind::Fixed(table) => Some(table.states(now)),
            Kind::Always | Kind::Never | Kind::Ratio(_) | Kind::EveryNth(_) => None,
        }
    }

    /// The unused part of the cap's credit over all traces, from 0 to 1. `None` without such a cap.
    pub fn cap_level(&self, now: Nanos) -> Option<f64> {
        let allowance = self.cap.own_share().traces?;
        Some(self.capped.as_ref()?.all.level(&allowance, now))
    }

    /// Whether only calls of this sampler can change its counts: every sampler that it was
    /// [reconfigured](Self::reconfigured) from, or to, has been dropped.
    pub fn is_alone(&mut self) -> bool {
        match &mut self.kind {
            Kind::Bump(table) => table.is_alone(),
            Kind::AnyBump(table) => table.is_alone(),
            Kind::TokenBucket(table) => table.is_alone(),
            Kind::Fixed(table) => table.is_alone(),
            Kind::Always | Kind::Never | Kind::Ratio(_) | Kind::EveryNth(_) => true,
        }
    }

    /// The counts by key. `None` for samplers that do not decide by key, which keep no counts.
    pub fn snapshot(&self) -> Option<Snapshot> {
        match &self.kind {
            Kind::Bump(table) => Some(table.snapshot()),
            Kind::AnyBump(table) => Some(table.snapshot()),
            Kind::TokenBucket(table) => Some(table.snapshot()),
            Kind::Fixed(table) => Some(table.snapshot()),
            Kind::Always | Kind::Never | Kind::Ratio(_) | Kind::EveryNth(_) => None,
        }
    }
}

/// Not inlined, so that it takes no registers from the table types that are.
#[inline(never)]
fn decide_apart(table: &Table<BumpPolicy>, request: &Request<'_>) -> Decision {
    table.decide(request)
}
