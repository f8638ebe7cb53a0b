//! Decisions by outcome beside those when a trace starts.

use astracer_report::chart::shares;
use astracer_report::numbers::{count, percent, three, whole};
use astracer_report::page::table;
use astracer_samplers::strata::Record;
use maud::{Markup, html};

use super::samplers::interval;
use crate::held_out::Replayed;
use crate::tune::{StrataTuning, Tuning};

pub(super) fn beside_the_start(strata: &StrataTuning, tuning: &Tuning) -> Markup {
    let record = match strata.late.strata.record() {
        Record::All => "all traces".to_owned(),
        Record::Times(times) => format!("{times} times as many traces as the sampler would keep"),
    };
    let row = |name: &str, of: &Replayed| {
        let by_weights = of.by_weights();
        html! {
            tr {
                td.name { (name) } td { (whole(of.traces.mean)) } td { (percent(of.tfcr.mean)) }
                td { (three(by_weights.mean)) " (" (interval(by_weights.mean_interval)) ")" }
                td { (three(of.dist_over_entropy.mean)) }
                td { @if let Some(counts) = of.counts { (percent(counts.functions)) } @else { "-" } }
            }
        }
    };
    let bar = |name: &str, tone: &'static str, share: f64| (name.to_owned(), tone, share, percent(share));
    let bars = [bar("kept", "ours", strata.odd.kept), bar("share", "soft", strata.odd.kept_by_share)];
    let bars = bars.each_ref().map(|(name, tone, share, text)| (name.as_str(), *tone, *share, text.clone()));
    html! {
        h2 { "Decided at the end" }
        p.note {
            "The file records " (record) " and decides when the root of a trace has ended, by key, octave of the duration and outcome. "
            "Read the sample by its weights: as counted, what is slow or rare has too many traces."
        }
        (table("Decided at the end and at the start", &html! {
            tr { th { "decided" } th { "traces" } th { "bytes" } th { "dist/entropy by weights" } th { "as counted" } th { "error of counts" } }
            (row("at the end, by outcome", &strata.replayed))
            @if let Some(capped) = &strata.replayed_capped { (row("the same under the cap", capped)) }
            @if let Some(replayed) = &tuning.replayed { (row(&format!("at the start ({})", tuning.sampler_name()), replayed)) }
            (row("equal share", &strata.share))
        }))
        @if strata.odd.traces > 0 {
            div.row {
                div.name { b { "Slow and failed traces" } span { (count(strata.odd.traces)) } }
                (shares("Slow and failed traces kept", &bars))
                div.say { span { "kept of those that failed or took longer than 99 % of their key's, and by an equal share" } }
            }
        }
        p.note {
            "Recorded: " (percent(strata.recorded)) " of the spans, " (whole(strata.recorded_per_second)) " a second."
        }
    }
}
