//! The result of a comparison in sentences, for the terminal and the page.

use astracer_report::numbers::{count, measure, signed};

use super::comparison::{Comparison, Verdict, Weights};
use super::presence::INSTANCES_MIN as PRESENCE_MIN;
use super::typed::VALUES_MIN;

/// The share of a class's weight with which one instance nearly decides.
const HEAVIEST_MAX: f64 = 0.5;

/// The classes: how many instances there are, and how they count.
pub fn classes(comparison: &Comparison) -> String {
    let [good, bad] = comparison.instances.map(count);
    let weights = match comparison.weights {
        Weights::Equal => "",
        Weights::Thresholds => ", weighted by their sampling thresholds",
        Weights::Unknown => {
            ", each counted once: the weights of some are unknown or 0, so this is about what was kept"
        }
    };
    format!("{good} good and {bad} bad {}{weights}", comparison.noun)
}

/// The metric in both classes, and its difference.
pub fn metric(comparison: &Comparison) -> String {
    let metric = &comparison.metric;
    let error = metric.error_95.map_or_else(String::new, |error| format!(" ± {}", measure(error)));
    format!(
        "{}: good {}, bad {}, difference {}{error} (95%)",
        metric.name,
        measure(metric.means[0]),
        measure(metric.means[1]),
        signed(metric.difference),
    )
}

/// The weights of `--weight-step`, if given.
pub fn tail_weights(comparison: &Comparison) -> Option<String> {
    let step = comparison.tail?;
    Some(format!(
        "--weight-step: the weight of a trace doubles with each {} of the metric, up to 1,024",
        measure(step)
    ))
}

/// The placebos that differ, if there are any: good stretches as long as the bad one, `length_ns`.
pub fn placebos(comparison: &Comparison, length_ns: u64) -> Option<String> {
    let placebos = comparison.placebos.as_ref()?;
    let length = format!("{} s", measure(length_ns as f64 / 1e9));
    Some(match placebos.windows.len() {
        0 => format!("no placebo: no other stretch of {length} has good {}", comparison.noun),
        all => format!(
            "placebos: {} of {} good stretches of {length} in its place differ, too",
            count(placebos.significant as u64),
            count(all as u64),
        ),
    })
}

/// A warning if means are a poor summary of the metric.
pub fn tail(comparison: &Comparison) -> Option<String> {
    let [good, bad] = comparison.metric.heavy_tail.map(|share| format!("{:.1}%", share * 100.0));
    comparison.metric.is_heavy.then(|| {
        format!("heavy tail: {good} of good and {bad} of bad are outside mean ± 3 sd (normal: 0.27%)")
    })
}

/// The certainty of the differences: by several runs, and against chance.
pub fn verdict(comparison: &Comparison, paper: bool) -> Vec<String> {
    if paper {
        return vec![format!(
            "{} of {} features differ (p < 0.05 / features, the paper's test)",
            count(comparison.significant as u64),
            count(comparison.tested as u64)
        )];
    }
    let by_runs = match comparison.verdict {
        Verdict::Unconfirmed if comparison.is_split => {
            "unconfirmed: good and bad are parts of the same recordings, which show what goes together, not \
             what causes it"
                .to_owned()
        }
        Verdict::Unconfirmed => "unconfirmed: one good run cannot tell a change from the difference between \
                                 two runs; several settle it (--good A --good B --bad C)"
            .to_owned(),
        Verdict::Confirmed => format!(
            "confirmed: {} by at least 3 times more than good runs differ",
            plural(comparison.confirmed, "variable differs", "variables differ")
        ),
        Verdict::WithinRuns => "within runs: good runs differ from each other about as much".to_owned(),
    };
    let n = comparison.significant;
    if comparison.tested == 0 {
        return vec![nothing_tested(comparison)];
    }
    let unsure = match comparison.unsure {
        0 => String::new(),
        unsure => format!(
            "{}, but 1 to 5 of 100 permutations do as well; more {} settle it",
            plural(unsure, "variable may differ", "variables may differ"),
            comparison.noun
        ),
    };
    let by_chance = match (comparison.has_chances, n) {
        (true, 0) if comparison.unsure > 0 => unsure,
        (true, 0) => "no single variable differs beyond chance: permuted labels differ as much".to_owned(),
        (true, n) => format!(
            "{} significantly (permutation test, 1% level)",
            plural(n, "variable differs", "variables differ")
        ),
        (false, n) => format!(
            "{} by Bonferroni's bound over {} features",
            plural(n, "variable differs", "variables differ"),
            count(comparison.tested as u64)
        ),
    };
    let mut verdict = vec![by_runs, by_chance];
    verdict.extend((comparison.tested_values == 0).then(|| too_few(comparison)));
    verdict
}

fn nothing_tested(comparison: &Comparison) -> String {
    let least = comparison.instances.into_iter().min().unwrap_or(0);
    let noun = comparison.noun;
    if least < PRESENCE_MIN {
        let [good, bad] = comparison.instances.map(count);
        return format!(
            "nothing was tested: a test needs {PRESENCE_MIN} {noun} of each class, and {good} are good and {bad} bad"
        );
    }
    if least >= VALUES_MIN {
        return format!(
            "nothing was tested: nothing varies, or no type of request has {VALUES_MIN} values of each class"
        );
    }
    let [good, bad] = comparison.instances.map(count);
    format!(
        "nothing was tested: times and counts need {VALUES_MIN} values of each class within a type of request, and \
         {good} {noun} are good and {bad} bad; no event is in some of them only"
    )
}

/// Presence is tested with fewer traces than times and counts.
fn too_few(comparison: &Comparison) -> String {
    let [good, bad] = comparison.instances.map(count);
    format!(
        "only presence was tested: times and counts need {VALUES_MIN} values of each class within a type of \
         request, and {good} {} are good and {bad} bad",
        comparison.noun
    )
}

/// The parts that were left out, by reason, and oddities.
pub fn notes(comparison: &Comparison) -> Vec<String> {
    let (left_out, gaps) = (&comparison.left_out, comparison.negative_gaps);
    let mut notes = Vec::new();
    for (class, share) in ["good", "bad"].into_iter().zip(comparison.heaviest) {
        if share > HEAVIEST_MAX && comparison.weights == Weights::Thresholds {
            notes.push(format!(
                "one {class} instance has {:.0}% of the weight of its class, which it nearly decides alone",
                share * 100.0
            ));
        }
    }
    if left_out.variables > 0 {
        let values = count(left_out.variables);
        notes.push(format!("left out: {values} values of variables beyond --variables-max"));
    }
    if gaps > 0 {
        let gaps = plural(gaps as usize, "gap is", "gaps are");
        notes.push(format!("{gaps} below 0 ms, because children took longer than their parents"));
    }
    if left_out.not_finite > 0 {
        let values = count(left_out.not_finite);
        notes.push(format!("left out: {values} values that are not finite numbers"));
    }
    notes
}

/// A chance, which is at least 1 in 201.
pub fn chance(chance: f64) -> String {
    if chance < 0.01 { "<1%".to_owned() } else { format!("{:.0}%", chance * 100.0) }
}

/// A p-value: the smallest ones are only said to be small.
pub fn p(p: f64) -> String {
    if p < 0.00005 { "p < 0.00005".to_owned() } else { format!("p = {p:.4}") }
}

pub(crate) fn plural(n: usize, one: &str, more: &str) -> String {
    format!("{} {}", count(n as u64), if n == 1 { one } else { more })
}
