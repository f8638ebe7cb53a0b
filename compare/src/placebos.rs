//! Placebos: stretches of good time in the place of the bad one.
//!
//! Traces that follow each other share caches, neighbours and load, so any stretch of time differs
//! from the rest more than permuted labels do. Each placebo is as long as the bad window and
//! is compared with the good traces outside it. A difference that placebos show too does not
//! come from the fault.

use std::ops::Range;

use astracer_recording::stop::Pulse;
use serde::Serialize;

use super::chance::Chance;
use super::instances::{Class, Head};
use super::ranking::{LEVEL, Score, rank};
use super::sample::{Column, Sample, column_feature};
use super::typed::{Conditions, Part, Sums, VALUES_MIN};

/// The most placebos: those nearest to the bad window.
pub const PLACEBOS_MAX: usize = 20;

/// Stretches of good time, each compared with the other good traces.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Placebos {
    /// The number of stretches with a significant variable.
    pub significant: usize,
    /// The stretches, by time.
    pub windows: Vec<Placebo>,
    /// The largest |t| of each variable's features in any stretch, by the variable's number.
    #[serde(skip)]
    largest: Vec<f64>,
}

/// One stretch of good time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Placebo {
    /// Its start, nanoseconds since the epoch.
    pub start_ns: u64,
    /// Its traces.
    pub traces: u64,
    /// The number of variables that differ significantly, counted as those of the bad window.
    pub significant: usize,
    /// The variable with the largest |t|, and that |t|.
    pub first: Option<(String, f64)>,
}

/// The settings of the comparison that placebos repeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings<'a> {
    pub(super) types: usize,
    pub(super) conditions: &'a Conditions,
    pub(super) score: Score,
    /// Draws of permuted labels and their seed; `None` for Bonferroni's bound alone.
    pub(super) seed: Option<u64>,
}

impl Placebos {
    /// Compares each placebo of `window` (nanoseconds since the epoch). `parts` are all instances.
    /// `None` if `pulse` stopped the work.
    pub(super) fn new(
        sample: &Sample,
        heads: &[Head],
        parts: &[Part],
        window: &Range<u64>,
        settings: &Settings<'_>,
        pulse: &mut Pulse<'_>,
    ) -> Option<Self> {
        let of = |class| heads.iter().filter(move |head| head.class == class);
        let least = (of(Class::Bad).count() as u64 / 4).max(VALUES_MIN);
        let good: Vec<Part> =
            parts.iter().copied().filter(|part| heads[part.at].class == Class::Good).collect();
        let starts: Vec<u64> = good.iter().map(|part| heads[part.at].start_ns).collect();
        let mut all =
            Placebos { significant: 0, windows: Vec::new(), largest: vec![0.0; sample.variables.len()] };
        for placebo in windows(&starts, window, least) {
            let group = |part: &Part| u32::from(placebo.contains(&heads[part.at].start_ns));
            let parts: Vec<Part> = good.iter().map(|part| Part { group: group(part), ..*part }).collect();
            let traces = parts.iter().filter(|part| part.group == 1).count() as u64;
            all.add(sample, &parts, placebo.start, traces, settings, pulse)?;
        }
        all.windows.sort_by_key(|placebo| placebo.start_ns);
        Some(all)
    }

    fn add(
        &mut self,
        sample: &Sample,
        parts: &[Part],
        start_ns: u64,
        traces: u64,
        settings: &Settings<'_>,
        pulse: &mut Pulse<'_>,
    ) -> Option<()> {
        let tests = Sums::new(sample, parts, settings.types, 2).tested(0, 1, settings.conditions);
        for tested in &tests {
            let (variable, _) = column_feature(&sample.variables, tested.column);
            let largest = &mut self.largest[variable as usize];
            *largest = largest.max(tested.test.t.abs());
        }
        let ranked = rank(&tests, &sample.variables, settings.score, None, false, |_| false);
        let significant = match settings.seed {
            // Without a lead nothing can be significant.
            Some(seed) if !ranked.is_empty() => {
                let chance = Chance::new(sample, parts, settings.types, seed, pulse)?;
                let is_rare = |column: Column| chance.of(column).is_none_or(|chance| chance <= LEVEL);
                ranked.iter().filter(|ranked| is_rare(ranked.column)).count()
            }
            _ => ranked.len(),
        };
        self.significant += usize::from(significant > 0);
        let first = ranked.into_iter().next().map(|first| (first.variable, first.test.t.abs()));
        self.windows.push(Placebo { start_ns, traces, significant, first });
        (!pulse.stopped()).then_some(())
    }

    /// The largest |t| of any feature of the variable of this column; `None` without placebos.
    pub fn largest(&self, column: Column, sample: &Sample) -> Option<f64> {
        if self.windows.is_empty() {
            return None;
        }
        let (variable, _) = column_feature(&sample.variables, column);
        self.largest.get(variable as usize).copied()
    }
}

/// Stretches as long as `window` that tile the time before and after it, the nearest first. Each
/// has at least `least` of the good traces that start at these times, and as many are outside it.
fn windows(good: &[u64], window: &Range<u64>, least: u64) -> Vec<Range<u64>> {
    let length = window.end.saturating_sub(window.start);
    let mut starts = good.to_vec();
    starts.sort_unstable();
    let (Some(&first), Some(&last), true) = (starts.first(), starts.last(), length > 0) else {
        return Vec::new();
    };
    let count = |range: &Range<u64>| {
        let before = |time| starts.partition_point(|&start| start < time);
        (before(range.end) - before(range.start)) as u64
    };
    let is_large = |range: &Range<u64>| {
        let inside = count(range);
        inside >= least && starts.len() as u64 - inside >= least
    };
    // Steps over empty time in one go, since good traces may be years away.
    let before = std::iter::successors(Some(window.start), |&end| {
        let latest = starts[..starts.partition_point(|&start| start < end)].last()?;
        Some(end - (end - 1 - latest) / length * length).and_then(|end| end.checked_sub(length))
    });
    let after = std::iter::successors(Some(window.end), |&start| {
        let end = start.checked_add(length)?;
        let next = starts.get(starts.partition_point(|&own| own < end))?;
        start.checked_add((next - start) / length * length)
    });
    let before = before.skip(1).take_while(|&start| start.saturating_add(length) > first);
    let after = after.take_while(|&start| start <= last);
    let range = |start: u64| start..start.saturating_add(length);
    let (mut before, mut after) = (before.map(range), after.map(range));
    let mut found = Vec::new();
    loop {
        let pair = [before.find(|range| is_large(range)), after.find(|range| is_large(range))];
        if pair == [None, None] || found.len() >= PLACEBOS_MAX {
            found.truncate(PLACEBOS_MAX);
            return found;
        }
        found.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placebos_tile_the_time_around_the_window() {
        // A trace at each of 0, 1, ..., 99, and the bad window is 50..60.
        let good: Vec<u64> = (0..100).filter(|time| !(50..60).contains(time)).collect();
        let found = windows(&good, &(50..60), 5);
        assert_eq!(found[..4], [40..50, 60..70, 30..40, 70..80]);
        assert_eq!(found.len(), 9, "{found:?}");
        assert_eq!(windows(&good, &(50..60), 11), [], "each has ten traces");
        assert_eq!(windows(&good, &(50..50), 5), [], "no length");
        assert_eq!(windows(&[], &(50..60), 5), []);
    }

    #[test]
    fn empty_time_is_stepped_over() {
        let year = 365 * 86_400_000_000_000u64;
        let good: Vec<u64> = (0..10).chain(50 * year..50 * year + 10).collect();
        let found = windows(&good, &(25 * year..25 * year + 10), 5);
        // Tiles are multiples of 10 from the window, which is a multiple of 10.
        assert_eq!(found, [0..10, 50 * year..50 * year + 10]);
        assert_eq!(windows(&good, &(u64::MAX - 5..u64::MAX), 1).len(), 4);
        assert!(windows(&[0, u64::MAX], &(5..7), 1).len() <= 2);
    }
}
