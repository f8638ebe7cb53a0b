//! Counts the evaluations of all threads, and reports them to the caller now and then.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Progress, Stage};

/// The number of evaluations between two reports to the caller.
const TELL_EVERY: u64 = 16;

pub(super) struct Watch<'p> {
    progress: &'p (dyn Fn(Progress) + Sync),
    evaluations: AtomicU64,
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    evaluations_max: u64,
    best: Option<f64>,
}

impl<'p> Watch<'p> {
    pub(super) fn new(progress: &'p (dyn Fn(Progress) + Sync)) -> Self {
        let state = State { stage: Stage::Summing, evaluations_max: 0, best: None };
        Self { progress, evaluations: AtomicU64::new(0), state: Mutex::new(state) }
    }

    /// Begins a stage.
    pub(super) fn begin(&self, stage: Stage, evaluations_max: u64) {
        self.evaluations.store(0, Ordering::Relaxed);
        // Ignores poisoning: a panic of the caller's callback in another thread should not end this
        // search too.
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        (state.stage, state.evaluations_max) = (stage, evaluations_max);
        (self.progress)(Progress { stage, evaluations: 0, evaluations_max, best: state.best });
    }

    /// Counts an evaluation (or a replay). `best` is the best value that its search has seen.
    pub(super) fn evaluated(&self, best: Option<f64>) {
        let evaluations = self.evaluations.fetch_add(1, Ordering::Relaxed) + 1;
        if !evaluations.is_multiple_of(TELL_EVERY) {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(best) = best {
            state.best = Some(state.best.map_or(best, |old| old.min(best)));
        }
        let State { stage, evaluations_max, best } = *state;
        (self.progress)(Progress { stage, evaluations, evaluations_max, best });
    }
}
