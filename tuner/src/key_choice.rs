//! Chooses a key: the name, the name with attributes, or the whole call tree.

use std::borrow::Cow;

use astracer_report::numbers::is_above;
use serde::Serialize;

use crate::key::Grouping;
use crate::stop::Stop;
use crate::tune::{KEYS_TRIED_MAX, Options, Progress, Sums, Tuning, search, search_and_keep};
use crate::workload::Workload;

/// A more complicated key is advised only if it is better by this share.
const GAIN_MIN: f64 = 0.1;
/// Starts and iterations of the search for each key.
const STARTS: u32 = 2;
const ITERATIONS: u64 = 120;
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
    /// The value of the objective.
    pub value: f64,
    /// dist/entropy.
    pub dist_over_entropy: f64,
    /// dist/entropy of an equal share of everything, as large as the limits allow.
    pub baseline: f64,
    /// Share of the bytes.
    pub size: f64,
    /// Call trees found.
    pub call_trees: f64,
    /// Call trees found by an equal share of everything, as large as the limits allow.
    pub baseline_call_trees: f64,
}

/// Tunes briefly with each key. `candidates` are the same recording grouped by different keys,
/// simplest first. The iterator is advanced one candidate at a time, and each owned workload is
/// dropped before the next is requested. A borrowed workload is searched last, and its sums are
/// returned, because the search that follows can reuse them.
pub fn choose_key<'w>(
    candidates: impl IntoIterator<Item = (Grouping, Cow<'w, Workload>)>,
    options: &Options,
    stop: Stop<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> (KeyChoice, Option<Sums<'w>>) {
    let quick = Options {
        starts: STARTS,
        iterations: ITERATIONS,
        time_max: options.time_max.map(|time| time.mul_f64(TIME_SHARE)),
        ..options.search_only()
    };
    // A key for which there was no time gets no row, because it may well meet the limits. Neither
    // does a key with thousands of values: most of them hardly occur, and 100,000 call trees would
    // take a gigabyte.
    let row = |rule: &Grouping, workload: &Workload, tuning: &Tuning| {
        (!tuning.found_nothing_in_time()).then(|| KeyRow::new(rule, workload, tuning))
    };
    let is_many = |workload: &Workload| workload.keys().len() > KEYS_TRIED_MAX;
    let (mut rows, mut borrowed): (Vec<Option<KeyRow>>, _) = (Vec::new(), None);
    for (rule, workload) in candidates {
        rows.push(match workload {
            Cow::Owned(workload) if !is_many(&workload) => {
                row(&rule, &workload, &search(&workload, &quick, stop, progress))
            }
            Cow::Borrowed(workload) if !is_many(workload) => {
                borrowed = Some((rows.len(), rule, workload));
                None
            }
            _ => None,
        });
    }
    let sums = borrowed.and_then(|(place, rule, workload)| {
        let (tuning, sums) = search_and_keep(workload, &quick, stop, progress);
        rows[place] = row(&rule, workload, &tuning);
        sums
    });
    let keys: Vec<KeyRow> = rows.into_iter().flatten().collect();
    let advised = advise(&keys);
    (KeyChoice { because: because(&keys, advised), keys, advised }, sums)
}

impl KeyRow {
    fn new(rule: &Grouping, workload: &Workload, tuning: &Tuning) -> Self {
        let mut seen = vec![false; workload.keys().len()];
        workload.arrivals().iter().for_each(|arrival| seen[arrival.key as usize] = true);
        Self {
            key: rule.to_string(),
            keys: seen.into_iter().filter(|&seen| seen).count() as u64,
            known_at_start: *rule != Grouping::Tree,
            feasible: tuning.feasible,
            value: tuning.value,
            dist_over_entropy: tuning.score.dist_over_entropy,
            baseline: tuning.baseline.dist_over_entropy,
            size: tuning.score.tfcr,
            call_trees: tuning.score.call_trees,
            baseline_call_trees: tuning.baseline.call_trees,
        }
    }
}

/// The first usable key, unless a later one is better by [`GAIN_MIN`].
fn advise(keys: &[KeyRow]) -> Option<usize> {
    let usable = keys.iter().enumerate().filter(|(_, row)| row.feasible && row.known_at_start);
    usable.fold(None, |best: Option<usize>, (place, row)| match best {
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
    let mut text = format!("{} reaches dist/entropy {:.3}", advised.key, advised.dist_over_entropy);
    for row in keys.iter().filter(|row| row.key != advised.key) {
        if row.feasible {
            text += &format!(", {} {:.3}", row.key, row.dist_over_entropy);
        } else {
            text += &format!(", {} cannot meet the limits", row.key);
        }
    }
    text += &format!("; an equal share of everything {:.3}", advised.baseline);
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
    use crate::limits::Limits;
    use crate::space::Tunable;
    use crate::testing::synthetic;
    use crate::tune::{PerKeyUse, search_with};

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
        assert_eq!(advise(rows), advised);
        let text = because(rows, advised);
        assert!(text.contains(says), "{text}");
    }

    /// A search that reuses the sums of the chosen key finds the same as one without them, and
    /// builds its own if the limits differ. Rows are in the order of the candidates, although the
    /// chosen key is searched last.
    #[test]
    fn the_sums_of_the_chosen_key_serve_the_search() {
        let (workload, other) = (synthetic(1000, 1), synthetic(800, 2));
        for sampler in [Tunable::Bump, Tunable::Bucket] {
            let options = Options {
                sampler,
                starts: 2,
                iterations: 30,
                per_key: PerKeyUse::Never,
                ..Options::default()
            };
            let quiet: &(dyn Fn(Progress) + Sync) = &|_| {};
            let choose = || {
                let name: Grouping = "name".parse().expect("a key");
                let service: Grouping = "name+service.name".parse().expect("a key");
                let candidates = [(name, Cow::Borrowed(&workload)), (service, Cow::Owned(other.clone()))];
                choose_key(candidates, &options, Stop::never(), quiet)
            };
            let (choice, sums) = choose();
            let keys: Vec<&str> = choice.keys.iter().map(|row| row.key.as_str()).collect();
            assert_eq!(keys, ["name", "name+service.name"]);
            assert!(sums.is_some());
            let tighter = Limits { size_max: 0.05, ..options.limits };
            for limits in [options.limits, tighter] {
                let options = Options { limits, ..options.clone() };
                let found = |sums| {
                    let tuning = search_with(sums, &workload, &options, Stop::never(), quiet);
                    format!("{:?} {:?} {:?}", tuning.score, tuning.front, tuning.starts)
                };
                assert_eq!(found(choose().1), found(None), "{limits:?}");
            }
        }
    }

    #[test]
    fn the_simplest_key_serves_unless_another_is_clearly_better() {
        let name = || row("name", true, 10.0);
        check(&[name(), row("name+a", true, 9.5)], Some(0), "name reaches dist/entropy 10.000, name+a 9.500");
        check(&[name(), row("name+a", true, 8.0)], Some(1), "name+a reaches dist/entropy 8.000");
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
