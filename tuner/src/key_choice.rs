//! Chooses a key: the name, the name with attributes, or the whole call tree.

use std::borrow::Cow;

use astracer_report::numbers::{fixed, is_above};
use serde::Serialize;

use crate::key::Grouping;
use crate::stop::Stop;
use crate::tune::{KEYS_TRIED_MAX, KeyTrial, Options, Progress, try_key};
use crate::workload::Workload;

/// A more complicated key is advised only if it is better by this share.
const GAIN_MIN: f64 = 0.1;
/// Starts and iterations of the search for each key.
const STARTS: u32 = 1;
const ITERATIONS: u64 = 120;
const PER_KEY_ITERATIONS: u64 = 1_000;
/// Each key may take this share of the time allowed.
const TIME_SHARE: f64 = 0.1;

/// The figures of each key, and which key to use.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KeyChoice {
    /// The keys tried, in the order given.
    pub keys: Vec<KeyRow>,
    /// The advised key as an index into `keys`; `None` if none is feasible.
    pub advised: Option<usize>,
    /// The reason, in a sentence or two.
    pub because: String,
}

/// The figures of one key.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KeyRow {
    /// The rule that makes the keys.
    pub key: String,
    /// The number of keys that occur.
    pub keys: u64,
    /// Whether a service knows this key when a trace begins.
    pub known_at_start: bool,
    /// Whether the limits can be met.
    pub feasible: bool,
    /// The value of the objective relative to an equal share of the same size, on blocks of time
    /// that were not tuned on.
    pub value: f64,
    /// dist/entropy there, of the sampler that would be deployed.
    pub dist_over_entropy: f64,
    /// dist/entropy of an equal share of everything of the same size.
    pub baseline: f64,
    /// Share of the bytes.
    pub size: f64,
    /// Call trees found.
    pub call_trees: f64,
    /// Call trees found by that equal share.
    pub baseline_call_trees: f64,
}

/// Tries each key as it would be deployed: tuned briefly on half of the blocks of time, and
/// replayed on the others. `candidates` are the same recording grouped by different keys, simplest
/// first. The iterator is advanced one candidate at a time, and each owned workload is dropped
/// before the next is requested. `current` is the key that is used otherwise.
pub fn choose_key<'w>(
    candidates: impl IntoIterator<Item = (Grouping, Cow<'w, Workload>)>,
    current: &Grouping,
    options: &Options,
    stop: Stop<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> KeyChoice {
    let quick = Options {
        starts: STARTS,
        iterations: ITERATIONS,
        per_key_iterations: PER_KEY_ITERATIONS,
        time_max: options.time_max.map(|time| time.mul_f64(TIME_SHARE)),
        compare: false,
        split: None,
        ..options.clone()
    };
    // A key for which there was no time gets no row, because it may well meet the limits. Neither
    // does a key with thousands of values: most of them hardly occur, and 100,000 call trees would
    // take a gigabyte.
    let row = |(rule, workload): (Grouping, Cow<'w, Workload>)| {
        if workload.keys().len() > KEYS_TRIED_MAX {
            return None;
        }
        try_key(&workload, &quick, stop, progress).map(|trial| KeyRow::new(&rule, &workload, &trial))
    };
    let keys: Vec<KeyRow> = candidates.into_iter().filter_map(row).collect();
    let advised = advise(&keys, &current.to_string());
    KeyChoice { because: because(&keys, advised), keys, advised }
}

impl KeyRow {
    fn new(rule: &Grouping, workload: &Workload, trial: &KeyTrial) -> Self {
        let mut seen = vec![false; workload.keys().len()];
        workload.arrivals().iter().for_each(|arrival| seen[arrival.key as usize] = true);
        let KeyTrial { replayed, share, value, is_feasible } = trial;
        Self {
            key: rule.to_string(),
            keys: seen.into_iter().filter(|&seen| seen).count() as u64,
            known_at_start: matches!(rule, Grouping::Key(_)),
            feasible: *is_feasible,
            value: *value,
            dist_over_entropy: replayed.dist_over_entropy.mean,
            baseline: share.dist_over_entropy,
            size: replayed.tfcr.mean,
            call_trees: replayed.call_trees.mean,
            baseline_call_trees: share.call_trees,
        }
    }
}

/// The current key, or else the first usable one, unless another is better by [`GAIN_MIN`].
fn advise(keys: &[KeyRow], current: &str) -> Option<usize> {
    let is_usable = |row: &KeyRow| row.feasible && row.known_at_start;
    let current = keys.iter().position(|row| row.key == current && is_usable(row));
    let usable = keys.iter().enumerate().filter(|(_, row)| is_usable(row));
    usable.fold(current, |best: Option<usize>, (place, row)| match best {
        None => Some(place),
        // With equal values, 0 or infinity, this is false.
        Some(best) if row.value < keys[best].value * (1.0 - GAIN_MIN) => Some(place),
        best => best,
    })
}

fn because(keys: &[KeyRow], advised: Option<usize>) -> String {
    if keys.is_empty() {
        return "no time was left to try keys".to_owned();
    }
    let Some(advised) = advised.map(|advised| &keys[advised]) else {
        return "no key that is known when a trace begins can meet the limits".to_owned();
    };
    let mut text = format!("{} reaches dist/entropy {}", advised.key, fixed(advised.dist_over_entropy));
    for row in keys.iter().filter(|row| row.key != advised.key) {
        if row.feasible {
            text += &format!(", {} {}", row.key, fixed(row.dist_over_entropy));
        } else {
            text += &format!(", {} cannot meet the limits", row.key);
        }
    }
    text += &format!("; an equal share of everything {}", fixed(advised.baseline));
    if advised.keys == 1 {
        text += ". All traces have the same key, so the sampler cannot tell common ones from rare ones";
    }
    if is_above(advised.baseline_call_trees, advised.call_trees, 1) {
        text += &format!(
            ". With the key {} the sampler finds fewer call trees than an equal share ({:.1} and {:.1})",
            advised.key, advised.call_trees, advised.baseline_call_trees
        );
    }
    // Both are 0 if all traces of a recording are alike.
    if is_above(advised.dist_over_entropy, advised.baseline, 3) {
        text += &format!(
            ". With the key {} the sampler is worse than an equal share, because the key does not tell apart",
            advised.key
        );
        text += " the traces that matter; choose attributes that do";
    }
    if let Some(tree) = keys.iter().find(|row| !row.known_at_start && row.feasible)
        && tree.value < advised.value * (1.0 - GAIN_MIN)
    {
        text += ". The call tree is not known when a trace begins, but shows what a better key could gain";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Tunable;
    use crate::testing::synthetic;
    use crate::tune::PerKeyUse;

    fn row(key: &str, feasible: bool, value: f64) -> KeyRow {
        KeyRow {
            key: key.into(),
            keys: 1,
            known_at_start: key != "tree",
            feasible,
            value,
            dist_over_entropy: value,
            baseline: 20.0,
            size: 0.1,
            call_trees: 9.0,
            baseline_call_trees: 8.0,
        }
    }

    #[track_caller]
    fn check(rows: &[KeyRow], advised: Option<usize>, says: &str) {
        assert_eq!(advise(rows, "name"), advised);
        let text = because(rows, advised);
        assert!(text.contains(says), "{text}");
    }

    /// The current key stays if another is like it; so does a lone key of equal traces.
    #[test]
    fn the_current_key_stays_among_equals() {
        let (workload, alike) = (synthetic(4000, 1), crate::testing::many_names(1, 4000, 2));
        let options = Options { per_key: PerKeyUse::Auto, replays: 24, ..Options::default() };
        let key = |text: &str| -> Grouping { text.parse().expect("a key") };
        for sampler in [Tunable::Bump, Tunable::Bucket] {
            let options = Options { sampler, ..options.clone() };
            let candidates =
                [(key("name"), Cow::Borrowed(&workload)), (key("name+a"), Cow::Borrowed(&workload))];
            let current = key("name+a");
            let choice = choose_key(candidates, &current, &options, Stop::never(), &|_| {});
            // Equal keys: the current one stays.
            assert_eq!((choice.keys.len(), choice.advised), (2, Some(1)), "{choice:?}");
            assert_eq!(choice.keys[0].value, choice.keys[1].value);
        }
        assert_eq!(
            choose_key([(key("name"), Cow::Owned(alike))], &key("name"), &options, Stop::never(), &|_| {})
                .advised,
            Some(0)
        );
    }

    #[test]
    fn the_simplest_key_serves_unless_another_is_clearly_better() {
        let name = || row("name", true, 10.0);
        check(&[name(), row("name+a", true, 9.5)], Some(0), "name reaches dist/entropy 10.000, name+a 9.500");
        check(&[name(), row("name+a", true, 8.0)], Some(1), "name+a reaches dist/entropy 8.000");
        // A key that was asked for stays unless another is clearly better.
        assert_eq!(advise(&[name(), row("name+a", true, 10.5)], "name+a"), Some(1));
        assert_eq!(advise(&[name(), row("name+a", true, 11.5)], "name+a"), Some(0));
        check(&[name(), row("name+a", false, 1.0)], Some(0), "equal share of everything 20");
        check(&[name(), row("tree", true, 1.0)], Some(0), "call tree");
        check(&[row("name", true, 30.0), row("tree", true, 29.0)], Some(0), "worse than an equal share");
        let alike = because(&[KeyRow { baseline: 0.0, ..row("name", true, 0.0) }], Some(0));
        assert!(!alike.contains("worse than an equal share"), "{alike}");
        check(&[name(), row("tree", false, 1.0)], Some(0), "tree cannot meet the limits");
        check(&[name()], Some(0), "All traces have the same key");
        let misses = KeyRow { call_trees: 7.0, ..name() };
        check(&[misses], Some(0), "finds fewer call trees than an equal share (7.0 and 8.0)");
        // Sums of expectations are a little off where all are found.
        let all =
            KeyRow { call_trees: 100.0 - 1e-12, baseline_call_trees: 100.0, ..row("name", true, 1e-14) };
        let alike = because(&[KeyRow { baseline: 0.0, ..all }], Some(0));
        assert!(!alike.contains("worse") && !alike.contains("fewer"), "{alike}");
        for value in [0.0, f64::INFINITY] {
            check(&[row("name", true, value), row("name+a", true, value)], Some(0), "name reaches");
        }
        check(&[row("name", true, f64::INFINITY), row("name+a", true, 9.0)], Some(1), "name+a reaches");
        check(&[], None, "no time");
        check(&[row("name", false, 1.0), row("tree", true, 1.0)], None, "no key");
        check(&[row("name", false, 1.0), row("name+a", true, 9.0)], Some(1), "name+a");
    }
}
