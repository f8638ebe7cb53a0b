//! The first screen of `astracer compare`.

use std::fmt::Write as _;

use astracer_analysis::compare::comparison::{Comparison, Row, Verdict, Weights};
use astracer_analysis::compare::ranking::LEVEL;
use astracer_report::numbers::{measure, signed};

use super::{Compare, TOP_DEFAULT};
use crate::load::Input;
use crate::output::{self, count, percent};

/// Services on the screen.
const SERVICES_SHOWN: usize = 5;
/// Types of requests on the screen, if their mix differs.
const TYPES_SHOWN: usize = 5;

pub(super) fn screen(args: &Compare, inputs: &[Input], comparison: &Comparison) -> String {
    let mut text = head(args, comparison);
    text.push_str(&variables(args, comparison));
    text.push_str(&services(comparison));
    text.push_str(&mix(comparison));
    text.push_str(&notes(comparison));
    inputs.iter().for_each(|input| text.push_str(&input.footing()));
    text
}

/// The lines above the tables: classes, metric, and how certain the result is.
fn head(args: &Compare, comparison: &Comparison) -> String {
    let [good, bad] = comparison.instances;
    let mut text = format!("{} good and {} bad traces", count(good), count(bad));
    match comparison.weights {
        Weights::Equal => {}
        Weights::Thresholds => text.push_str(", weighted by their sampling thresholds"),
        Weights::Unknown => text.push_str(
            ", each counted once: the weights of some are unknown or 0, so this is about what was kept",
        ),
    }
    text.push('\n');
    if let Some(step) = comparison.tail {
        let _ = writeln!(
            text,
            "--tail: the weight of a trace doubles with each {} of the metric, up to 1,024",
            measure(step)
        );
    }
    let metric = &comparison.metric;
    let error = metric.error_95.map_or_else(String::new, |error| format!(" ± {}", measure(error)));
    let _ = writeln!(
        text,
        "metric: good {}, bad {}, difference {}{error} (95%)",
        measure(metric.means[0]),
        measure(metric.means[1]),
        signed(metric.difference),
    );
    if metric.is_heavy {
        let [good, bad] = metric.heavy_tail.map(percent);
        let _ = writeln!(
            text,
            "heavy tail: {good} of good and {bad} of bad are outside mean ± 3 sd (normal: 0.27%)"
        );
        if comparison.tail.is_none() {
            let _ =
                writeln!(text, "            means say little then; --tail H lets large values count more");
        }
    }
    let found = count(comparison.significant as u64);
    let _ = match (comparison.verdict, args.paper) {
        (_, true) => writeln!(
            text,
            "{found} of {} features differ (p < 0.05 / features, the paper's test)",
            count(comparison.tested as u64)
        ),
        (Verdict::Unconfirmed, _) => writeln!(
            text,
            "unconfirmed: one good run cannot tell a change from the difference between two runs; \
             several settle it (--good A --good B --bad C)"
        ),
        (Verdict::Confirmed, _) => writeln!(
            text,
            "confirmed: {} by at least 3 times more than good runs differ",
            plural(comparison.confirmed, "variable differs", "variables differ")
        ),
        (Verdict::WithinRuns, _) => {
            writeln!(text, "within runs: good runs differ from each other about as much")
        }
    };
    if !args.paper {
        let _ = match (comparison.has_chances, comparison.significant) {
            (true, 0) => writeln!(text, "within chance: labels dealt at random differ as much"),
            (true, n) => writeln!(
                text,
                "{} than labels dealt at random do in 95% of draws",
                plural(n, "variable differs more", "variables differ more")
            ),
            (false, n) => writeln!(
                text,
                "{} by Bonferroni's bound over {} features",
                plural(n, "variable differs", "variables differ"),
                count(comparison.tested as u64)
            ),
        };
    }
    if let Some(placebos) = &comparison.placebos {
        let length = args.classes.window().map_or(0, |window| window.end - window.start);
        let _ = match placebos.windows.len() {
            0 => writeln!(text, "no placebo: no other stretch of {} has good traces", seconds(length)),
            all => writeln!(
                text,
                "placebos: {} of {} good stretches of {} in its place differ, too",
                count(placebos.significant as u64),
                count(all as u64),
                seconds(length)
            ),
        };
    }
    text.push('\n');
    text
}

fn seconds(nanos: u64) -> String {
    format!("{} s", measure(nanos as f64 / 1e9))
}

fn plural(n: usize, one: &str, more: &str) -> String {
    format!("{} {}", count(n as u64), if n == 1 { one } else { more })
}

fn variables(args: &Compare, comparison: &Comparison) -> String {
    let all = comparison.ranked.len();
    if all == 0 {
        return "no variable differs\n\n".to_owned();
    }
    let shown = match args.top.unwrap_or(TOP_DEFAULT) {
        0 => all,
        top => top.min(all),
    };
    let has_runs = comparison.ranked.iter().any(|row| row.null_ratio.is_some());
    let mut header = vec!["variable", "feature", "good", "bad", "difference\n± 95%"];
    if comparison.has_chances {
        header.push("chance");
    }
    if has_runs {
        header.push("null\nratio");
    }
    // Placebos are made with --bad-time, which has no runs.
    let has_placebos = comparison.ranked.iter().any(|row| row.placebo_t.is_some());
    if has_placebos {
        header.extend(["|t|", "placebo\n|t|"]);
    }
    let row = |row: &Row| {
        let test = &row.ranked.test;
        let mut cells = vec![
            row.ranked.variable.clone(),
            row.ranked.feature.to_string(),
            measure(test.means[0]),
            measure(test.means[1]),
            format!("{} ± {}", signed(row.difference), measure(row.error_95)),
        ];
        if comparison.has_chances {
            cells.push(row.chance.map_or_else(|| "-".to_owned(), chance));
        }
        if has_runs {
            let ratio = row.null_ratio.map_or_else(|| "-".to_owned(), measure);
            cells.push(format!("{ratio}{}", if row.confirmed { "*" } else { "" }));
        }
        if has_placebos {
            cells.push(measure(test.t.abs()));
            cells.push(row.placebo_t.map_or_else(|| "-".to_owned(), measure));
        }
        cells
    };
    let mut text = output::table(&header, comparison.ranked[..shown].iter().map(row));
    if has_runs && comparison.confirmed > 0 {
        text.pop();
        text.push_str("* confirmed\n\n");
    }
    if all > shown {
        text.pop();
        let _ = writeln!(text, "... {} more: --top 0 shows all\n", count((all - shown) as u64));
    }
    text
}

/// A chance, which is at least 1 in 201.
fn chance(chance: f64) -> String {
    if chance < 0.01 { "<1%".to_owned() } else { format!("{:.0}%", chance * 100.0) }
}

fn services(comparison: &Comparison) -> String {
    if comparison.services.len() < 2 {
        return String::new();
    }
    let rows = comparison
        .services
        .iter()
        .take(SERVICES_SHOWN)
        .map(|row| vec![row.service.clone(), count(row.variables), measure(row.t)]);
    output::table(&["service", "variables", "largest |t|"], rows)
}

fn mix(comparison: &Comparison) -> String {
    let mix = &comparison.mix;
    if !mix.differs {
        return String::new();
    }
    let p = mix.p.unwrap_or(1.0);
    let mut types: Vec<_> = mix.types.iter().collect();
    types.sort_by(|a, b| {
        let change = |shares: [f64; 2]| (shares[0] - shares[1]).abs();
        change(b.shares).total_cmp(&change(a.shares)).then_with(|| a.name.cmp(&b.name))
    });
    let rows = types
        .iter()
        .take(TYPES_SHOWN)
        .map(|row| vec![row.name.clone(), percent(row.shares[0]), percent(row.shares[1])]);
    let p = if p < LEVEL / 1e3 { "p < 0.00005".to_owned() } else { format!("p = {p:.4}") };
    format!("the mix of requests differs ({p}):\n{}", output::table(&["type", "good", "bad"], rows))
}

fn notes(comparison: &Comparison) -> String {
    let mut text = String::new();
    let left_out = &comparison.left_out;
    if left_out.variables > 0 {
        let _ = writeln!(
            text,
            "left out: {} values of variables beyond --variables-max",
            count(left_out.variables)
        );
    }
    if comparison.negative_gaps > 0 {
        let gaps = comparison.negative_gaps as usize;
        let _ = writeln!(
            text,
            "{} below 0 ms, because children took longer than their parents",
            plural(gaps, "gap is", "gaps are")
        );
    }
    if left_out.not_finite > 0 {
        let _ = writeln!(text, "left out: {} values that are no finite numbers", count(left_out.not_finite));
    }
    text
}
