//! The rules by which local roots are decided: the sampler, an operator's overrides, and a dry run
//! beside them.

use std::collections::BTreeMap;
use std::sync::Arc;

use astracer_samplers::strata::StrataSampler;
use astracer_samplers::tail::Boosting;
use astracer_samplers::{Config, Decision, Nanos, Override, Reason, Request, Sampler};

use astracer_spans::sync::statics::{AtomicU64, Ordering};

/// Everything that a decision depends on. Immutable: changes replace it as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) sampler: Arc<Sampler>,
    /// Strata that decide once a trace has ended; the sampler then says what is recorded.
    pub(crate) strata: Option<Arc<StrataSampler>>,
    pub(crate) overrides: BTreeMap<String, Forced>,
    pub(crate) dry_run: Option<Arc<DryRun>>,
    is_plain: bool,
    /// Whether decisions need the time at which they are made instead of the root's start time. A
    /// cap needs it, because its bound is defined on the clock's readings.
    pub(crate) is_capped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Forced {
    pub(crate) by: Override,
    pub(crate) until: Nanos,
}

/// Another sampler, asked about the same roots without effect.
#[derive(Debug)]
pub(crate) struct DryRun {
    pub(crate) sampler: Sampler,
    /// Indexed by the real decision, then by the dry run's; 0: dropped, 1: kept.
    decided: [[AtomicU64; 2]; 2],
}

impl DryRun {
    pub(crate) fn new(sampler: Sampler) -> Self {
        DryRun { sampler, decided: Default::default() }
    }

    pub(crate) fn stats(&self) -> DryRunStats {
        let read = |real: usize, other: usize| self.decided[real][other].load(Ordering::Relaxed);
        DryRunStats {
            sampler: self.sampler.config().clone(),
            both_dropped: read(0, 0),
            only_kept_here: read(0, 1),
            only_kept_really: read(1, 0),
            both_kept: read(1, 1),
        }
    }
}

/// The decisions of a dry run beside the real ones: see
/// [`Handle::dry_run`](crate::Handle::dry_run).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DryRunStats {
    /// The sampler of the dry run.
    pub sampler: Config,
    /// Roots that both samplers drop.
    pub both_dropped: u64,
    /// Roots that only the sampler of the dry run would keep.
    pub only_kept_here: u64,
    /// Roots that only the sampler in use keeps.
    pub only_kept_really: u64,
    /// Roots that both samplers keep.
    pub both_kept: u64,
}

impl DryRunStats {
    /// Roots seen since the dry run began.
    pub fn seen(&self) -> u64 {
        self.both_dropped + self.only_kept_here + self.kept_really()
    }

    /// Roots that the sampler of the dry run would have kept.
    pub fn kept_here(&self) -> u64 {
        self.only_kept_here + self.both_kept
    }

    /// Roots that the sampler in use has kept.
    pub fn kept_really(&self) -> u64 {
        self.only_kept_really + self.both_kept
    }
}

impl Rules {
    pub(crate) fn new(sampler: Arc<Sampler>) -> Self {
        let overrides = BTreeMap::new();
        Rules { sampler, strata: None, overrides, dry_run: None, is_plain: true, is_capped: false }.ready()
    }

    /// Updates the derived fields. Call it after each change of the others.
    pub(crate) fn ready(mut self) -> Self {
        self.is_plain = self.overrides.is_empty() && self.dry_run.is_none();
        self.is_capped = !self.sampler.cap().is_none();
        self
    }

    /// `boosting` is the boost of the key that is in progress. An operator's override goes before
    /// it.
    #[inline]
    pub(crate) fn decide(&self, request: &Request<'_>, boosting: Option<Boosting<'_>>) -> Decision {
        match boosting {
            None if self.is_plain => self.sampler.decide(request),
            boosting => self.decide_specially(request, boosting),
        }
    }

    /// As [`Rules::decide`], for a root whose trace this process can record. With strata, the
    /// decision is to drop it for now, and its threshold is that with which it is recorded. An
    /// override or a boost decides alone, so that the traces that it keeps are whole in all
    /// processes.
    #[inline]
    pub(crate) fn decide_recording(&self, request: &Request<'_>, boosting: Option<Boosting<'_>>) -> Decision {
        match &self.strata {
            Some(strata) if boosting.is_none() && self.forced(request).is_none() => {
                let recorded = strata.strata().recorded(self.sampler.count(request));
                Decision { keep: false, threshold: recorded, reason: Reason::Strata }
            }
            _ => self.decide(request, boosting),
        }
    }

    /// The override of the request's key that holds now.
    fn forced(&self, request: &Request<'_>) -> Option<&Forced> {
        self.overrides.get(request.key).filter(|forced| request.now < forced.until)
    }

    #[cold]
    fn decide_specially(&self, request: &Request<'_>, boosting: Option<Boosting<'_>>) -> Decision {
        let decision = match (self.forced(request), boosting) {
            (Some(forced), _) => self.sampler.decide_by(forced.by, request),
            (None, Some(boosting)) => self.sampler.decide_boosted(&boosting, request),
            (None, None) => self.sampler.decide(request),
        };
        if let Some(dry_run) = &self.dry_run {
            let other = dry_run.sampler.decide(request);
            dry_run.decided[usize::from(decision.keep)][usize::from(other.keep)]
                .fetch_add(1, Ordering::Relaxed);
        }
        decision
    }
}
