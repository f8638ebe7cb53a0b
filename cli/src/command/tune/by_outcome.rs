//! The screen of strata: what they keep, beside the sampler that decides at the start.

use std::path::Path;

use astracer_report::numbers::three;
use astracer_samplers::Cap;
use astracer_samplers::strata::Record;
use astracer_tuner::held_out::{HeldOut, Replayed};
use astracer_tuner::tail::TailSummary;
use astracer_tuner::tune::{Later, SLOWER, StrataTuning};
use serde::Serialize;

use super::Report;
use super::table::{self, Read};
use crate::load::Input;
use crate::{output, tail};

/// The processor time that recording a span takes beyond dropping it, us (docs/results/spans.md).
const RECORDING_US: f64 = 0.096;
/// The strata found, and how they do on other recordings.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    strata: usize,
    record: String,
    #[serde(flatten)]
    pub(super) tuning: StrataTuning,
    pub(super) validated: Vec<HeldOut>,
    /// The traces that the policies of `--tail` keep beside the strata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policies: Option<TailSummary>,
}

impl Found {
    pub(super) fn new(tuning: StrataTuning) -> Self {
        Found {
            strata: tuning.late.strata.probabilities().map(|(_, strata)| strata.len()).sum(),
            record: recorded(tuning.late.strata.record()),
            tuning,
            validated: Vec::new(),
            policies: None,
        }
    }
}

/// The contents of the screen.
pub(super) struct Shown<'a> {
    pub(super) input: &'a Input,
    pub(super) key: &'a str,
    pub(super) read: &'a Read,
    pub(super) found: &'a Found,
    /// The sampler that was searched for, and its replays.
    pub(super) head: Option<(String, &'a Replayed)>,
    pub(super) best_baseline: Option<(String, &'a Replayed)>,
    /// The option with which the file decides at the start.
    pub(super) choice: Option<String>,
    /// Sentences about the keys that were tried.
    pub(super) keys: Vec<String>,
    pub(super) warnings: Vec<String>,
    pub(super) out: Option<&'a Path>,
    pub(super) page: Option<&'a Path>,
    /// Whether everything is shown, and not only as much as a screen has lines for.
    pub(super) verbose: bool,
}

/// The strata that are written, and the sampler that decides at the start beside them.
pub(super) fn beside_the_start(report: &Report<'_>, found: &Found, verbose: bool) -> String {
    let tuning = report.tuning;
    let name = format!("at the start ({})", tuning.sampler_name());
    let text = render(Shown {
        input: report.input,
        key: &report.key,
        read: &report.read,
        found,
        head: tuning.replayed.as_ref().map(|replayed| (name, replayed)),
        best_baseline: report.best_baseline.as_ref().map(|(name, of)| (table::best_baseline(name), of)),
        choice: Some("--no-late writes the sampler that decides at the start.\n".to_owned()),
        keys: table::keys_tried(report),
        warnings: report.general.clone(),
        out: report.out,
        page: report.report,
        verbose,
    });
    if !verbose {
        return text;
    }
    let of_start = table::needed(report).into_iter().filter(|warning| !report.general.contains(warning));
    let of_start: String = of_start.map(|warning| table::warning_line(&warning)).collect();
    text + "\nThe sampler that decides at the start:\n" + &of_start + &table::details(report)
}

fn recorded(record: Record) -> String {
    match record {
        Record::All => "all".to_owned(),
        Record::Times(times) => times.to_string(),
    }
}

pub(super) fn render(shown: Shown<'_>) -> String {
    let tuning = &shown.found.tuning;
    let functions = format!("functions\nof {}", output::count(shown.read.functions));
    let header = [
        "",
        "traces\nkept",
        "bytes\nkept",
        &functions,
        "dist/entropy by\nweights (95%)",
        "as\ncounted",
        "count\nerror",
    ];
    let is_alone = shown.head.is_none();
    let head = shown.head.unwrap_or_else(|| ("head sampler alone".to_owned(), &tuning.head));
    let own = std::iter::once(("by outcome", &tuning.replayed));
    let rows = own
        .chain(tuning.replayed_capped.as_ref().map(|of| ("under the cap", of)))
        .chain([(&*head.0, head.1), ("equal share", &tuning.share)])
        .chain(shown.best_baseline.as_ref().map(|(name, of)| (&**name, *of)));
    let table = output::table(&header, rows.map(|(name, of)| cells(name, of)));
    let start = table::heading(shown.input, shown.read, shown.key) + &table;
    let warnings = shown.warnings.into_iter().chain(shown.input.warnings());
    let of_loop = tuning.loop_share.filter(|share| is_alone && *share < 1.0).map(of_loop);
    let mut warnings = of_loop.into_iter().chain(warnings).map(|warning| table::warning_line(&warning));
    let mut all = sentences(shown.found);
    all.splice(1..1, warnings.next().into_iter().chain(shown.choice));
    all.extend(shown.keys.into_iter().chain(warnings));
    let mut end: String = tuning.bounds.as_ref().map(table::cap).into_iter().collect();
    if let Some(out) = shown.out.map(output::shown) {
        end += &format!(
            "\nwrote {out}: {}. To use it, start the service with\n  OTEL_TRACES_SAMPLER=astracer_file \
             OTEL_TRACES_SAMPLER_ARG={out}\n",
            match shown.found.strata {
                1 => "1 stratum".to_owned(),
                strata => format!("{} strata", output::count(strata as u64)),
            }
        );
    }
    if let Some(page) = shown.page {
        end += &format!("wrote {}: open it in a browser\n", output::shown(page));
    }
    match shown.verbose {
        true => output::prose(&(start + &all.concat() + &end)),
        false => table::on_screen(&start, all, [], &end),
    }
}

fn cells(name: &str, replayed: &Replayed) -> Vec<String> {
    let found = replayed.by_weights();
    let [low, high] = found.mean_interval.map(three);
    vec![
        name.to_owned(),
        output::whole(replayed.traces.mean),
        output::percent(replayed.tfcr.mean),
        output::rounded(replayed.functions.mean),
        match found.mean.is_finite() {
            true => format!("{} ({low} to {high})", three(found.mean)),
            false => "-".to_owned(),
        },
        three(replayed.dist_over_entropy.mean),
        replayed.counts.map_or_else(|| "-".to_owned(), |counts| output::percent(counts.functions)),
    ]
}

/// The warning about a loop, if no sampler that counts is beside the strata.
fn of_loop(share: f64) -> String {
    format!(
        "one key has {} of the bytes, as in a loop, whose first calls matter: without --late, the file counts them \
         and may keep far better samples",
        output::percent(share)
    )
}

fn sentences(found: &Found) -> Vec<String> {
    let tuning = &found.tuning;
    let mut all = vec![format!(
        "Means of {} replays at jitters of 0, 5 and 50 ms. Less dist/entropy is better.\nAs counted, what is \
         slow or rare has too many traces: read it by its weights.\n",
        tuning.replayed.replays
    )];
    if tuning.replayed.traces.mean < 1.0 {
        all.push(table::warning_line("less than one trace of this recording is kept; raise --size-max"));
    }
    if tuning.replayed.by_weights().mean > tuning.head.by_weights().mean {
        all.push(
            "The head sampler alone has less here: --no-late writes a sampler that decides at the start.\n"
                .to_owned(),
        );
    }
    let later = |later: &Later| {
        let [low, high] = later.interval;
        format!("{:.2} of an equal share ({low:.2} to {high:.2})", later.ratio)
    };
    match &tuning.later {
        Some(own) => all.push(format!("On each half, fitted on the other: {}.\n", later(own))),
        None => all.push(
            "Not tried on time that the strata were not fitted on: too few traces, too few of them kept, or all.\n"
                .to_owned(),
        ),
    }
    let how = match tuning.late.strata.record() {
        Record::All => String::new(),
        Record::Times(times) => format!(" ({times} x the head sampler's)"),
    };
    let ms = tuning.recorded_per_second * RECORDING_US / 1e3;
    let ms = if ms < 0.1 { "< 0.1".to_owned() } else { three(ms) };
    let by_policies =
        found.policies.as_ref().filter(|_| tuning.recorded < 1.0).map_or_else(String::new, |of| {
            format!(
                "; for the policies, up to {} of the traces",
                output::percent(
                    (of.recorded.mean + of.head_traces.mean) * tuning.kept / tuning.replayed.traces.mean
                )
            )
        });
    all.push(format!(
        "Recorded: {} of the spans{how}, {} a second ({ms} ms of processor time){by_policies}.\n",
        output::percent(tuning.recorded),
        output::rounded(tuning.recorded_per_second),
    ));
    if tuning.odd.traces > 0 {
        all.push(format!(
            "Failed, or slowest 1% of their key: {} of {} kept (equal share: {}).\n",
            output::percent(tuning.odd.kept),
            output::count(tuning.odd.traces),
            output::percent(tuning.odd.kept_by_share),
        ));
    }
    if let Some(other) = &tuning.other_kind {
        let which = if tuning.by_kind { "Without" } else { "With" };
        all.push(format!("{which} kinds of trees: {:.2} of an equal share on halves.\n", other.ratio));
    }
    for there in &found.validated {
        let name = output::escaped(&there.name).into_owned();
        let share =
            there.replayed_share.map_or_else(|| "-".to_owned(), |share| three(share.dist_over_entropy.mean));
        all.push(format!(
            "On {name}: dist/entropy by weights {} (equal share {share}), {} of bytes.\n",
            three(there.replayed.by_weights().mean),
            output::percent(there.replayed.tfcr.mean)
        ));
    }
    all.extend(found.policies.as_ref().map(tail::in_short));
    if tuning.left_out > 0 {
        all.push(format!(
            "{} are too many or too rare to have strata in the file: new keys share a quarter of the size.\n",
            output::plural(tuning.left_out as u64, "key")
        ));
    }
    if let Some(growth) = tuning.growth.as_ref().filter(|_| tuning.slower.is_finite()) {
        let without = if tuning.cap == Cap::none() { "" } else { " without the cap" };
        let steered = if tuning.slower > 1.05 { ", for three hours" } else { "" };
        all.push(format!(
            "Kept bytes{without} x {:.1} if any operation became {} times as frequent (all x {:.1}), x {:.1} if all \
             requests took {SLOWER} times as long{steered}.\n",
            growth.kept_bytes, growth.calls, growth.bytes, tuning.slower
        ));
    }
    all
}
