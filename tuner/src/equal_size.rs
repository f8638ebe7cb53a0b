//! Finds the parameter with which a baseline keeps a wanted share of the bytes.

use rayon::prelude::*;

use astracer_baselines::{BaselineSpec, Keys};

use crate::draw::Draw;
use crate::replay::replay_baseline;
use crate::stop::Stop;
use crate::workload::Workload;

/// A size is met if its relative error is at most this.
const TOLERANCE: f64 = 0.01;
/// Samplers are compared if the relative error of their sizes is at most this, because a search
/// over few draws may find nothing nearer.
pub(crate) const COMPARABLE: f64 = 0.05;

/// The most parameters that one search tries. Growing factors cross the widest range in 12 steps.
/// Bisecting the logarithm of what remains, down to neighbours of four digits, takes 20.
const TRIES_MAX: u32 = 40;
/// The smallest knob tried; multiplying and dividing by factors never reaches 0.
const KNOB_MIN: f64 = 1e-9;

/// The parameters with which a baseline came nearest to the wanted size.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EqualSize {
    /// The baseline with these parameters.
    pub spec: BaselineSpec,
    /// The wanted share of the bytes, 0 to 1.
    pub wanted_tfcr: f64,
    /// The kept share of the bytes, as the mean over the draws.
    pub tfcr: f64,
    /// The number of parameters tried.
    pub tries: u32,
}

impl EqualSize {
    fn is_met(&self) -> bool {
        self.error() <= TOLERANCE * self.wanted_tfcr
    }

    /// Whether the size is near enough to compare the baseline with others of the wanted size.
    pub fn is_comparable(&self) -> bool {
        self.error() <= COMPARABLE * self.wanted_tfcr
    }

    fn error(&self) -> f64 {
        (self.tfcr - self.wanted_tfcr).abs()
    }
}

/// Turns a baseline's knob until it keeps a wanted share of the bytes, as the mean over some draws.
/// All other parameters stay as they are. `None` if asked to stop.
///
/// The knob moves by growing factors until one value keeps too much and another too little. Then
/// the interval between them is bisected (by ratio) until the size is met or no value of four
/// digits lies in between. Some baselines have steps (whole numbers) or reach only some sizes (a
/// lower bound, an initial period that keeps everything). With few draws, the size may also not
/// grow monotonically with the knob. The result is the nearest size seen, and says how near it is.
pub fn at_equal_size(
    workload: &Workload,
    spec: &BaselineSpec,
    wanted_tfcr: f64,
    draws: &[Draw],
    stop: Stop<'_>,
) -> Option<EqualSize> {
    let mut search = Search::new(workload, spec, wanted_tfcr, (draws, stop));
    search.run()?;
    Some(search.best)
}

struct Search<'w> {
    workload: &'w Workload,
    keys: Keys,
    draws: &'w [Draw],
    stop: Stop<'w>,
    bytes: f64,
    best: EqualSize,
}

impl<'w> Search<'w> {
    fn new(
        workload: &'w Workload,
        spec: &BaselineSpec,
        wanted_tfcr: f64,
        (draws, stop): (&'w [Draw], Stop<'w>),
    ) -> Self {
        let bytes = workload.arrivals().iter().map(|arrival| arrival.bytes as f64).sum();
        let best = EqualSize { spec: spec.clone(), wanted_tfcr, tfcr: f64::INFINITY, tries: 0 };
        Self { workload, keys: Keys::new(workload.keys().names()), draws, stop, bytes, best }
    }

    fn run(&mut self) -> Option<()> {
        let (least, greatest) = self.best.spec.knob_range();
        let whole = self.best.spec.knob_is_whole();
        let larger_keeps_more = self.best.spec.kind().larger_keeps_more;
        let mut knob = self.best.spec.knob().max(KNOB_MIN);
        // The nearest knobs so far that keep too little and too much.
        let (mut too_little, mut too_much): (Option<f64>, Option<f64>) = (None, None);
        let mut factor = 2.0_f64;
        for _ in 0..TRIES_MAX {
            let keeps_too_much = self.try_knob(knob)?;
            if self.best.is_met() {
                return Some(());
            }
            *(if keeps_too_much { &mut too_much } else { &mut too_little }) = Some(knob);
            let next = match (too_little, too_much) {
                (Some(below), Some(above)) => (below * above).sqrt(),
                _ => {
                    let grow = keeps_too_much != larger_keeps_more;
                    let moved = if grow { knob * factor } else { knob / factor };
                    factor *= 2.0;
                    moved.clamp(least.max(KNOB_MIN), greatest)
                }
            };
            let next = if whole { next.round() } else { to_four_digits(next) };
            if Some(next) == too_little || Some(next) == too_much {
                return Some(());
            }
            knob = next;
        }
        Some(())
    }

    /// Replays with this knob. Returns whether it keeps more than wanted.
    fn try_knob(&mut self, knob: f64) -> Option<bool> {
        let spec = self.best.spec.with_knob(knob);
        let kept = |draw: &Draw| {
            let (mut bytes, arrivals) = (0, self.workload.arrivals());
            let mut baseline = spec.build(&self.keys);
            let keep = |index: usize| bytes += arrivals[index].bytes;
            replay_baseline(self.workload, baseline.as_mut(), draw, self.stop, keep).then_some(bytes)
        };
        let bytes: u64 = self.draws.par_iter().map(kept).sum::<Option<u64>>()?;
        let tfcr = if self.bytes == 0.0 { 0.0 } else { bytes as f64 / self.bytes / self.draws.len() as f64 };
        let tried = EqualSize { spec, tfcr, tries: self.best.tries + 1, ..self.best };
        let keeps_too_much = tfcr > self.best.wanted_tfcr;
        if tried.error() < self.best.error() {
            self.best = tried;
        } else {
            self.best.tries += 1;
        }
        Some(keeps_too_much)
    }
}

/// Rounds to four digits, which people can read and type. A finer step would change the size by
/// only a small part of the tolerance.
fn to_four_digits(value: f64) -> f64 {
    // A formatted number always parses; the fallback only satisfies the type.
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests;
