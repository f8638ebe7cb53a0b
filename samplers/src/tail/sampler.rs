//! Applies the policies to traces.

use super::Tail;
use super::arming::ProvisionalMode;
use super::boost::{Boost, Boosting};
use super::exemplars::Exemplar;
use super::keys::{ARMED_MAX, KeyNumber, KeyOutcomes, Keys, Record, Shape};
use super::policy::{Policy, Rule, Severity, Slow, Value};
use super::shapes::Shapes;
use crate::cap::meters::{self, Meters};
use crate::cap::{Cap, Meter};
use crate::nanos::Nanos;
use crate::randomness::Randomness;
use crate::sync::{AtomicU64, Ordering};
use crate::threshold::Threshold;

/// The time for which a key stays armed after something went wrong in it.
const ARMED: Nanos = Nanos::from_secs(10);
/// The number of a key's first roots that are recorded.
const FIRST: u64 = 16;
/// One dropped root in this many is always recorded.
const SHARE: u64 = 1_024;

/// The limits of a [`TailSampler`]'s memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The number of keys with a record of their own, in addition to the keys that the settings
    /// name. Each takes up to 6 kB in each shard that counts it.
    pub keys: usize,
    /// The number of parts into which counts are split, so that threads do not contend; rounded up
    /// to a power of two.
    pub shards: usize,
    /// The number of shapes that are remembered for an hour, at eight bytes each.
    pub shapes: usize,
}

impl Default for Limits {
    /// 1,000 keys, 4 shards, 16,384 shapes.
    fn default() -> Self {
        Limits { keys: 1_000, shards: 4, shapes: 16_384 }
    }
}

impl Limits {
    /// For a replay in one thread: the default with one shard.
    pub fn single_threaded() -> Self {
        Limits { shards: 1, ..Self::default() }
    }

    /// Sets the number of keys with a record of their own.
    #[must_use]
    pub fn with_keys(self, keys: usize) -> Self {
        Limits { keys, ..self }
    }
}

/// The end of a local root, whether its trace was kept by the sampler, recorded provisionally, or
/// neither.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    /// The current time.
    pub now: Nanos,
    /// The root's duration.
    pub duration: Nanos,
    /// Whether an error was seen.
    pub is_error: bool,
    /// Whether the trace is kept, or recorded so that a policy may keep it.
    pub is_recorded: bool,
}

/// A recorded trace as the policies see it.
pub trait View {
    /// Whether a span has an attribute with this name whose value passes the test.
    fn any_attribute(&self, name: &str, test: &mut dyn FnMut(Value<'_>) -> bool) -> bool;

    /// Whether the caller's own function with this name wants the trace.
    fn own(&self, name: &str) -> bool {
        let _ = name;
        false
    }
}

/// A trace without attributes.
impl View for () {
    fn any_attribute(&self, _: &str, _: &mut dyn FnMut(Value<'_>) -> bool) -> bool {
        false
    }
}

/// A recorded trace to decide about.
pub struct Trace<'a> {
    /// The root's key.
    pub key: KeyNumber,
    /// The current time.
    pub now: Nanos,
    /// The root's duration; its age if it is still open.
    pub duration: Nanos,
    /// The worst outcome that was seen.
    pub severity: Severity,
    /// A hash of the call tree, made of the spans' names.
    pub shape: u64,
    /// The bytes that the trace counts toward the budgets.
    pub bytes: u64,
    /// The spans.
    pub view: &'a dyn View,
}

/// The decision about a recorded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decided {
    /// The policy at this index keeps the trace.
    Kept(usize),
    /// The policy at this index was the first to want the trace, but no policy that wanted it had
    /// budget left.
    Refused(usize),
    /// No policy wants the trace.
    Unwanted,
}

/// The reason for recording a dropped trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// The trace is not recorded.
    No,
    /// All traces of the key are recorded at present.
    ByKey,
    /// The trace belongs to the share of traces, chosen by their randomness, that is recorded in
    /// any key.
    ByShare,
}

/// The counts of one policy since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyCounts {
    /// The policy, as text.
    pub policy: String,
    /// Its budget, as text; empty if it is unbounded.
    pub budget: String,
    /// The number of traces that it kept.
    pub kept: u64,
    /// The bytes of those traces.
    pub kept_bytes: u64,
    /// The number of times that it wanted a trace without having budget left. A held trace counts
    /// again if the policies decide again: after a late child with a worse outcome, and when its
    /// root ends late.
    pub refused: u64,
}

/// Relaxed everywhere: each count is only read for statistics, and publishes no other memory.
#[derive(Debug, Default)]
struct Counts {
    kept: AtomicU64,
    kept_bytes: AtomicU64,
    refused: AtomicU64,
}

/// A policy with its state.
#[derive(Debug)]
struct PolicyState {
    rule: Rule,
    /// This process's share of the rule's budget.
    budget: Cap,
    /// The index of the policy's quantile, if it has one.
    quantile: usize,
    meters: Meters,
    counts: Counts,
}

impl PolicyState {
    /// The least threshold with which the trace fits into the policy's budget.
    fn threshold(&self, of_key: &Meters, trace: &Trace<'_>) -> Option<u64> {
        meters::threshold(&self.budget, &self.meters, of_key, trace.bytes, trace.now)
    }
}

/// The lower of two thresholds, of which each may be missing.
fn lower(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// Policies with their state. Called when a local root begins and when it ends, from any number of
/// threads.
#[derive(Debug)]
pub struct TailSampler {
    policies: Box<[PolicyState]>,
    keys: Keys,
    /// `None` if no policy uses shapes.
    shapes: Option<Shapes>,
    /// The shortest duration above which a policy without a quantile calls a root slow.
    slow_than: Nanos,
    boosts: Option<Boosts>,
}

/// The boosts of all keys.
#[derive(Debug)]
struct Boosts {
    boost: Boost,
    meter: Meter,
    begun: AtomicU64,
}

impl Boosts {
    fn begin(&self, record: &Record, now: Nanos) {
        if record.boost(&self.boost, now) {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl TailSampler {
    /// A sampler for these settings. The caller implements the ring and its hold time.
    pub fn new(tail: &Tail, limits: Limits) -> Self {
        let mut quantiles = Vec::new();
        let policies: Box<[_]> = tail
            .rules
            .iter()
            .map(|rule| {
                let quantile = quantiles.len();
                if let Policy::Slow(Slow::Quantile(of)) = rule.policy {
                    quantiles.push(of);
                }
                PolicyState {
                    rule: rule.clone(),
                    budget: rule.budget.own_share(),
                    quantile,
                    meters: Meters::default(),
                    counts: Counts::default(),
                }
            })
            .collect();
        let slow_than = tail.rules.iter().filter_map(|rule| match rule.policy {
            Policy::Slow(Slow::Than(duration)) => Some(duration),
            _ => None,
        });
        let is_odd = tail.rules.iter().any(|rule| rule.policy == Policy::Odd);
        let shape = Shape {
            shards: limits.shards.max(1),
            quantiles: quantiles.into(),
            rules: policies.len(),
            slow_from: Shape::slow_from(&tail.slow_from),
        };
        TailSampler {
            slow_than: slow_than.min().unwrap_or(Nanos::new(u64::MAX)),
            policies,
            keys: Keys::new(limits.keys, shape, tail.provisional, &tail.provisional_by_key),
            shapes: is_odd.then(|| Shapes::new(limits.shapes)),
            boosts: tail.boost.map(|boost| Boosts {
                boost,
                meter: Meter::default(),
                begun: AtomicU64::new(0),
            }),
        }
    }

    /// The number of a key.
    #[inline]
    pub fn key(&self, key: &str) -> KeyNumber {
        self.keys.number(key)
    }

    /// Whether some policy with a quantile does not know yet from which duration roots of this key
    /// are slow, because the key has had too few calls.
    pub fn lacks_quantile(&self, key: KeyNumber) -> bool {
        let record = self.keys.record(key);
        (0..self.keys.shape().quantiles.len()).any(|at| record.slow_from(at) == Nanos::new(u64::MAX))
    }

    /// The key with this number; `None` for the number that all keys without a record share.
    pub fn key_text(&self, key: KeyNumber) -> Option<&str> {
        self.keys.record(key).key()
    }

    /// Which dropped traces of this key are recorded.
    #[inline]
    pub fn provisional(&self, key: KeyNumber) -> ProvisionalMode {
        self.keys.record(key).mode()
    }

    /// Whether to record a dropped trace whose root has this key.
    #[inline]
    pub fn is_recorded(&self, key: KeyNumber, randomness: Randomness, now: Nanos) -> bool {
        self.recording(key, randomness, now) != Recording::No
    }

    /// As [`TailSampler::is_recorded`], with whether the trace's own randomness is the reason.
    #[inline]
    pub fn recording(&self, key: KeyNumber, randomness: Randomness, now: Nanos) -> Recording {
        let record = self.keys.record(key);
        let is_by_key = match record.mode() {
            ProvisionalMode::Never => return Recording::No,
            ProvisionalMode::Always => return Recording::ByKey,
            ProvisionalMode::Armed if record.is_armed(now) => true,
            // This tests the low bits; the head sampler dropped the trace by the high ones.
            ProvisionalMode::Armed if randomness.get().is_multiple_of(SHARE) => {
                if record.would_be_early(FIRST) {
                    return Recording::ByKey;
                }
                return Recording::ByShare;
            }
            ProvisionalMode::Armed => record.is_early(FIRST),
        };
        if is_by_key { Recording::ByKey } else { Recording::No }
    }

    /// Whether a trace of this key would be recorded whatever its randomness, if the head sampler
    /// dropped it.
    pub fn would_record(&self, key: KeyNumber, now: Nanos) -> bool {
        let record = self.keys.record(key);
        match record.mode() {
            ProvisionalMode::Never => false,
            ProvisionalMode::Always => true,
            ProvisionalMode::Armed => record.is_armed(now) || record.would_be_early(FIRST),
        }
    }

    /// The boost that is in progress for this key, for
    /// [`Sampler::decide_boosted`](crate::Sampler::decide_boosted).
    #[inline]
    pub fn boosting(&self, key: KeyNumber, now: Nanos) -> Option<Boosting<'_>> {
        let boosts = self.boosts.as_ref()?;
        let is_boosted = self.keys.record(key).is_boosted(now);
        is_boosted.then_some(Boosting { boost: &boosts.boost, meter: &boosts.meter })
    }

    /// Begins a boost of this key, because a part of one of its traces went wrong elsewhere. Does
    /// nothing without boosts in the settings, or while the key rests from an earlier boost.
    pub fn boost(&self, key: KeyNumber, now: Nanos) {
        if let Some(boosts) = &self.boosts {
            boosts.begin(self.keys.record(key), now);
        }
    }

    /// Whether the settings have boosts.
    pub fn boosts_keys(&self) -> bool {
        self.boosts.is_some()
    }

    /// The number of boosts that have begun.
    pub fn boosts_begun(&self) -> u64 {
        self.boosts.as_ref().map_or(0, |boosts| boosts.begun.load(Ordering::Relaxed))
    }

    /// Counts the end of a root. If something went wrong, arms the key, and begins a boost of it.
    /// `shard` should differ between threads, so that they do not contend.
    pub fn count(&self, key: KeyNumber, shard: usize, ended: &Ended) {
        self.count_when(key, shard, ended, || ended.now);
    }

    /// As [`TailSampler::count`], with a function in place of [`Ended::now`]. The clock is read
    /// only if the root went wrong, and for some of the other calls. Returns whether the root is a
    /// reason for a boost.
    #[inline]
    pub fn count_when(&self, key: KeyNumber, shard: usize, ended: &Ended, now: impl Fn() -> Nanos) -> bool {
        let record = self.keys.record(key);
        let shape = self.keys.shape();
        let is_slow = || {
            ended.duration > self.slow_than
                || (0..shape.quantiles.len()).any(|at| ended.duration > record.slow_from(at))
        };
        let mut seems_slow = is_slow();
        let known = (ended.is_error || seems_slow).then(&now);
        if let Some(now) = known.filter(|_| seems_slow) {
            // The threshold may come from durations that are hours old.
            record.renew(shape, now);
            seems_slow = is_slow();
        }
        if let Some(now) = known.filter(|_| ended.is_error || seems_slow) {
            record.arm(now.saturating_add(ARMED));
        }
        let is_reason = known.is_some() && self.is_reason_to_boost(record, ended);
        if let (Some(now), Some(boosts), true) = (known, &self.boosts, is_reason) {
            boosts.begin(record, now);
        }
        let now = || known.unwrap_or_else(&now);
        record.count(shard, ended, seems_slow, shape, now);
        is_reason
    }

    /// One healthy root in a hundred is above its key's p99. That alone would begin a boost
    /// whenever the key may have one, so a root must take twice as long.
    #[cold]
    fn is_reason_to_boost(&self, record: &Record, ended: &Ended) -> bool {
        let is_far_above = |at| ended.duration.get() / 2 >= record.slow_from(at).get();
        ended.is_error
            || ended.duration > self.slow_than
            || (0..self.keys.shape().quantiles.len()).any(is_far_above)
    }

    /// Arms a key, and begins a boost of it, because of an error in a trace whose root is open or
    /// has already ended.
    pub fn note_error(&self, key: KeyNumber, now: Nanos) {
        self.keys.record(key).arm(now.saturating_add(ARMED));
        self.boost(key, now);
    }

    /// Notes a trace that has just been kept, for any reason, as an exemplar of its key's
    /// durations.
    pub fn note_kept(&self, key: KeyNumber, shard: usize, exemplar: Exemplar, now: Nanos) {
        self.keys.record(key).note_kept(shard, exemplar, now);
    }

    /// Counts a root whose trace was dropped first, and is kept by its stratum, a policy or a
    /// request.
    pub fn note_kept_late(&self, key: KeyNumber) {
        self.keys.record(key).note_kept_late();
    }

    /// The keys with traces that were kept late, cut after 256 bytes, and the numbers of these;
    /// `None` for all keys without a record.
    pub fn kept_late(&self) -> Vec<(Option<String>, u64)> {
        self.keys.kept_late()
    }

    /// Lets the policies decide about a recorded trace, in their order, as if its randomness were
    /// the highest: a policy's budget admits the trace while it lasts.
    pub fn decide(&self, trace: &Trace<'_>) -> Decided {
        self.decide_by_chance(trace, Randomness::MAX).0
    }

    /// Lets the policies decide about a recorded trace with this randomness, in their order.
    ///
    /// A budget that is less than half full admits only traces of high randomness: see
    /// [`TailSampler::threshold`], which is returned too if the trace's randomness reaches it. The
    /// trace is then kept with that threshold. Otherwise a kept trace has no true threshold.
    pub fn decide_by_chance(
        &self,
        trace: &Trace<'_>,
        randomness: Randomness,
    ) -> (Decided, Option<Threshold>) {
        let record = self.keys.record(trace.key);
        let (mut decided, mut least) = (Decided::Unwanted, None);
        // Noted once, before any policy decides: otherwise a trace that an earlier policy keeps
        // would leave its shape odd.
        let is_odd =
            self.shapes.as_ref().is_some_and(|shapes| shapes.is_new(trace.key.0, trace.shape, trace.now));
        for (at, state) in self.policies.iter().enumerate() {
            let is_kept = matches!(decided, Decided::Kept(_));
            let is_by_outcome = state.rule.policy.is_by_outcome();
            // Once the trace is kept, a later policy matters only for the threshold.
            if is_kept && (!is_by_outcome || least == Some(0))
                || !self.is_wanted(state, record, trace, is_odd)
            {
                continue;
            }
            let of_key = record.meters.get(at).unwrap_or(&state.meters);
            if is_by_outcome {
                least = lower(least, state.threshold(of_key, trace));
            }
            if is_kept {
                continue;
            }
            let meters = (&state.meters, of_key);
            // Thinning early is of use only for a threshold.
            let randomness = if is_by_outcome { randomness } else { Randomness::MAX };
            if meters::admit(&state.budget, meters, trace.bytes, randomness, trace.now) {
                state.counts.kept.fetch_add(1, Ordering::Relaxed);
                state.counts.kept_bytes.fetch_add(trace.bytes, Ordering::Relaxed);
                decided = Decided::Kept(at);
                continue;
            }
            state.counts.refused.fetch_add(1, Ordering::Relaxed);
            if decided == Decided::Unwanted {
                decided = Decided::Refused(at);
            }
        }
        let threshold = least.and_then(Threshold::new).filter(|least| least.keeps(randomness));
        (decided, threshold)
    }

    /// The least threshold with which a policy would keep this trace if the head sampler had
    /// dropped it, among the policies that decide by outcome alone: errors, durations and
    /// attributes. `None` if none of them wants the trace or has budget left.
    ///
    /// It depends on the trace's outcome and on earlier traces, not on its randomness. So a trace
    /// that is recorded in any case is exported exactly if its randomness reaches this threshold or
    /// the head sampler's: the lower of the two is its true one.
    pub fn threshold(&self, trace: &Trace<'_>) -> Option<Threshold> {
        let record = self.keys.record(trace.key);
        let mut least = None;
        for (at, state) in self.policies.iter().enumerate() {
            if state.rule.policy.is_by_outcome() && self.is_wanted(state, record, trace, false) {
                let of_key = record.meters.get(at).unwrap_or(&state.meters);
                least = lower(least, state.threshold(of_key, trace));
            }
        }
        least.and_then(Threshold::new)
    }

    /// Whether some policy decides by outcome alone, so that [`TailSampler::threshold`] may have a
    /// result.
    pub fn decides_by_outcome(&self) -> bool {
        self.rules().any(|rule| rule.policy.is_by_outcome())
    }

    fn is_wanted(&self, state: &PolicyState, record: &Record, trace: &Trace<'_>, is_odd: bool) -> bool {
        match &state.rule.policy {
            Policy::Error(severity) => trace.severity >= *severity,
            Policy::Slow(Slow::Than(duration)) => trace.duration > *duration,
            Policy::Slow(Slow::Quantile(_)) => {
                let is_slow = || trace.duration > record.slow_from(state.quantile);
                // A trace with an open root has not been counted, so its key's threshold may be
                // old.
                is_slow() && {
                    record.renew(self.keys.shape(), trace.now);
                    is_slow()
                }
            }
            Policy::Odd => is_odd,
            Policy::Attribute(condition) => {
                trace.view.any_attribute(condition.name(), &mut |value| condition.holds(value))
            }
            Policy::Own(name) => trace.view.own(name),
        }
    }

    /// Whether another span of this size may be kept with its trace, which the policy at this index
    /// kept. Takes the bytes from the rest of that policy's budget.
    pub fn may_follow(&self, policy: usize, key: KeyNumber, bytes: u64, now: Nanos) -> bool {
        let Some(state) = self.policies.get(policy) else { return false };
        let of_key = self.keys.record(key).meters.get(policy).unwrap_or(&state.meters);
        let may = meters::admit_bytes(&state.budget, &state.meters, of_key, bytes, now);
        if may {
            state.counts.kept_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        may
    }

    /// The policies, in their order.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.policies.iter().map(|state| &state.rule)
    }

    /// Whether a policy wants traces of this severity.
    pub fn wants(&self, severity: Severity) -> bool {
        self.rules().any(|rule| matches!(rule.policy, Policy::Error(least) if severity >= least))
    }

    /// Arms a key for at most an hour; with `None`, all known keys. Returns whether the key is
    /// known.
    pub fn arm(&self, key: Option<&str>, now: Nanos, lasting: Nanos) -> bool {
        let until = now.saturating_add(lasting.min(Nanos::new(ARMED_MAX)));
        match key {
            Some(key) => self.keys.find(key).map(|record| record.arm_by_hand(until)).is_some(),
            None => {
                self.keys.each(|record| record.arm_by_hand(until));
                true
            }
        }
    }

    /// Changes which dropped traces of a key are recorded. Returns whether the key is known.
    pub fn set_provisional(&self, key: &str, provisional: ProvisionalMode) -> bool {
        self.keys.find(key).map(|record| record.set_mode(provisional)).is_some()
    }

    /// Outcomes by key, of all roots since the start.
    pub fn outcomes(&self) -> Vec<KeyOutcomes> {
        self.keys.outcomes()
    }

    /// Counts of the policies, in their order.
    pub fn counts(&self) -> Vec<PolicyCounts> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let of = |PolicyState { rule, counts, .. }: &PolicyState| PolicyCounts {
            policy: rule.policy.to_string(),
            budget: rule.budget.to_string(),
            kept: read(&counts.kept),
            kept_bytes: read(&counts.kept_bytes),
            refused: read(&counts.refused),
        };
        self.policies.iter().map(of).collect()
    }

    /// The number of shapes that were evicted within their hour because the table was full. Such a
    /// shape is odd when it comes again.
    pub fn shapes_forgotten(&self) -> u64 {
        self.shapes.as_ref().map_or(0, Shapes::given_up)
    }
}
