//! The policies at work.

use super::Tail;
use super::arming::ProvisionalMode;
use super::budget::{self, Meters};
use super::exemplars::Exemplar;
use super::keys::{ARMED_MAX, KeyNumber, KeyOutcomes, Keys, Shape};
use super::policy::{Policy, Rule, Severity, Slow, Value};
use super::shapes::Shapes;
use crate::cap::Cap;
use crate::nanos::Nanos;
use crate::randomness::Randomness;
use crate::sync::{AtomicU64, Ordering};

/// The time for which a key stays armed after something went wrong in it.
const ARMED: Nanos = Nanos::from_secs(10);
/// The first roots of a key, which are recorded.
const FIRST: u64 = 16;
/// One dropped root of this number is recorded in any case.
const SHARE: u64 = 1_024;

/// The bounds of a [`TailSampler`]'s memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Keys with a record of their own, beside those that the settings name; each takes up to 6 kB
    /// for each shard that counts it.
    pub keys: usize,
    /// Parts into which counts are split, so that threads do not meet; rounded up to a power of
    /// two.
    pub shards: usize,
    /// Shapes that are remembered for an hour, eight bytes each.
    pub shapes: usize,
}

impl Default for Limits {
    /// 1,000 keys, 4 shards, 16,384 shapes.
    fn default() -> Self {
        Limits { keys: 1_000, shards: 4, shapes: 16_384 }
    }
}

impl Limits {
    /// For a replay in one thread: as the default, with one shard.
    pub fn single_threaded() -> Self {
        Limits { shards: 1, ..Self::default() }
    }

    /// The number of keys with a record of their own.
    #[must_use]
    pub fn with_keys(self, keys: usize) -> Self {
        Limits { keys, ..self }
    }
}

/// The end of a local root, of a trace that was kept, recorded or neither.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    /// The time.
    pub now: Nanos,
    /// The root's duration.
    pub duration: Nanos,
    /// Whether an error was seen.
    pub is_error: bool,
    /// Whether the trace was recorded, so that a policy may keep it, or is kept.
    pub is_recorded: bool,
}

/// The content of a recorded trace, as far as policies ask.
pub trait View {
    /// Whether a span has an attribute of this name with a value that passes the test.
    fn any_attribute(&self, name: &str, test: &mut dyn FnMut(Value<'_>) -> bool) -> bool;

    /// Whether the caller's own function of this name wants the trace.
    fn own(&self, name: &str) -> bool {
        let _ = name;
        false
    }
}

/// A trace of nothing that policies could look at.
impl View for () {
    fn any_attribute(&self, _: &str, _: &mut dyn FnMut(Value<'_>) -> bool) -> bool {
        false
    }
}

/// A recorded trace whose local root has ended.
pub struct Trace<'a> {
    /// The root's key.
    pub key: KeyNumber,
    /// The time.
    pub now: Nanos,
    /// The root's duration.
    pub duration: Nanos,
    /// The worst that was seen.
    pub severity: Severity,
    /// A hash of the call tree: the names of the spans as a tree.
    pub shape: u64,
    /// The bytes that it takes, of the budgets.
    pub bytes: u64,
    /// The spans.
    pub view: &'a dyn View,
}

/// The decision about a recorded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decided {
    /// The policy at this place keeps it.
    Kept(usize),
    /// The policy at this place was the first to want it, and none that did had budget left.
    Refused(usize),
    /// No policy wants it.
    Unwanted,
}

/// Counts of one policy since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyCounts {
    /// The policy, as text.
    pub policy: String,
    /// Its budget, as text; empty if it is not bounded.
    pub budget: String,
    /// Traces that it kept.
    pub kept: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Times that it wanted a trace when its budget was used up. A held trace is put to it again
    /// after a late child in which something worse was seen, and when its root ends late.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct Counts {
    kept: AtomicU64,
    kept_bytes: AtomicU64,
    refused: AtomicU64,
}

/// A policy with all that it needs to be asked.
#[derive(Debug)]
struct PolicyState {
    rule: Rule,
    /// This process's share of the rule's.
    budget: Cap,
    /// Its place among the quantiles.
    quantile: usize,
    meters: Meters,
    counts: Counts,
}

/// Policies with their state: asked when a local root begins and when it ends, from any number of
/// threads.
#[derive(Debug)]
pub struct TailSampler {
    policies: Box<[PolicyState]>,
    keys: Keys,
    /// `None` if no policy needs them.
    shapes: Option<Shapes>,
    /// The shortest duration that a policy without a quantile takes for slow.
    slow_than: Nanos,
}

impl TailSampler {
    /// The policies of these settings. The ring and its time are the caller's to keep.
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
        let shape =
            Shape { shards: limits.shards.max(1), quantiles: quantiles.into(), rules: policies.len() };
        TailSampler {
            slow_than: slow_than.min().unwrap_or(Nanos::new(u64::MAX)),
            policies,
            keys: Keys::new(limits.keys, shape, tail.provisional, &tail.provisional_by_key),
            shapes: is_odd.then(|| Shapes::new(limits.shapes)),
        }
    }

    /// The number of a key.
    #[inline]
    pub fn key(&self, key: &str) -> KeyNumber {
        self.keys.number(key)
    }

    /// The key of a number; `None` for all keys without a record.
    pub fn key_text(&self, key: KeyNumber) -> Option<&str> {
        self.keys.record(key).key()
    }

    /// Which dropped traces of this key are recorded.
    #[inline]
    pub fn provisional(&self, key: KeyNumber) -> ProvisionalMode {
        self.keys.record(key).mode()
    }

    /// Whether a dropped trace that begins with a root of this key is recorded.
    #[inline]
    pub fn is_recorded(&self, key: KeyNumber, randomness: Randomness, now: Nanos) -> bool {
        let record = self.keys.record(key);
        match record.mode() {
            ProvisionalMode::Never => false,
            ProvisionalMode::Always => true,
            ProvisionalMode::Armed => {
                // A head sampler drops by the high bits; these are the low ones.
                record.is_armed(now) || randomness.get().is_multiple_of(SHARE) || record.is_early(FIRST)
            }
        }
    }

    /// Counts the end of a root, and arms its key if something went wrong. `shard` spreads threads.
    pub fn count(&self, key: KeyNumber, shard: usize, ended: &Ended) {
        self.count_when(key, shard, ended, || ended.now);
    }

    /// As [`TailSampler::count`], with a function in the place of [`Ended::now`]: the time is asked
    /// for if the root went wrong, and once in a while.
    #[inline]
    pub fn count_when(&self, key: KeyNumber, shard: usize, ended: &Ended, now: impl Fn() -> Nanos) {
        let record = self.keys.record(key);
        let shape = self.keys.shape();
        let is_slow = || {
            ended.duration > self.slow_than
                || (0..shape.quantiles.len()).any(|at| ended.duration > record.slow_from(at))
        };
        let mut seems_slow = is_slow();
        let known = (ended.is_error || seems_slow).then(&now);
        if let Some(now) = known.filter(|_| seems_slow) {
            // By durations of hours ago, perhaps.
            record.renew(shape, now);
            seems_slow = is_slow();
        }
        if let Some(now) = known.filter(|_| ended.is_error || seems_slow) {
            record.arm(now.saturating_add(ARMED));
        }
        let now = || known.unwrap_or_else(&now);
        record.count(shard, ended, seems_slow, shape, now);
    }

    /// Arms a key in which an error was seen while the root is open, or after its end.
    pub fn note_error(&self, key: KeyNumber, now: Nanos) {
        self.keys.record(key).arm(now.saturating_add(ARMED));
    }

    /// Notes a trace that is kept now, by whomever, as an exemplar of its key's durations.
    pub fn note_kept(&self, key: KeyNumber, shard: usize, exemplar: Exemplar, now: Nanos) {
        self.keys.record(key).note_kept(shard, exemplar, now);
    }

    /// Puts a recorded trace to the policies, in their order.
    pub fn decide(&self, trace: &Trace<'_>) -> Decided {
        let record = self.keys.record(trace.key);
        let mut refused = None;
        // Noted once, whoever asks: else a trace that an earlier policy keeps would leave its shape
        // odd.
        let is_odd =
            self.shapes.as_ref().is_some_and(|shapes| shapes.is_new(trace.key.0, trace.shape, trace.now));
        for (at, state) in self.policies.iter().enumerate() {
            let wants = match &state.rule.policy {
                Policy::Error(severity) => trace.severity >= *severity,
                Policy::Slow(Slow::Than(duration)) => trace.duration > *duration,
                Policy::Slow(Slow::Quantile(_)) => {
                    let is_slow = || trace.duration > record.slow_from(state.quantile);
                    // A trace whose root is open was not counted: its key may have rested.
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
            };
            if !wants {
                continue;
            }
            let of_key = record.meters.get(at).unwrap_or(&state.meters);
            if budget::admit(&state.budget, &state.meters, of_key, trace.bytes, trace.now) {
                state.counts.kept.fetch_add(1, Ordering::Relaxed);
                state.counts.kept_bytes.fetch_add(trace.bytes, Ordering::Relaxed);
                return Decided::Kept(at);
            }
            state.counts.refused.fetch_add(1, Ordering::Relaxed);
            refused = refused.or(Some(at));
        }
        refused.map_or(Decided::Unwanted, Decided::Refused)
    }

    /// Whether a span of these bytes may follow a trace that the policy at this place kept: it has
    /// the rest of the budget.
    pub fn may_follow(&self, policy: usize, key: KeyNumber, bytes: u64, now: Nanos) -> bool {
        let Some(state) = self.policies.get(policy) else { return false };
        let of_key = self.keys.record(key).meters.get(policy).unwrap_or(&state.meters);
        let may = budget::admit_bytes(&state.budget, &state.meters, of_key, bytes, now);
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

    /// Arms a key for at most an hour; `None`: all keys that are known. Returns whether the key is
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

    /// Changes how dropped traces of a key are recorded. Returns whether the key is known.
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

    /// Shapes that were forgotten within their hour because the table was full: they are odd when
    /// they come again.
    pub fn shapes_forgotten(&self) -> u64 {
        self.shapes.as_ref().map_or(0, Shapes::given_up)
    }
}
