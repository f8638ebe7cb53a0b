//! The losses of a conversion, for JSON output.

use astracer_formats::losses::Losses;
use serde::Serialize;

/// One kind of loss, and how many spans it affected.
#[derive(Serialize)]
pub(crate) struct LossCount {
    kind: &'static str,
    describe: &'static str,
    spans: u64,
}

pub(crate) fn counts(losses: &Losses) -> Vec<LossCount> {
    let counts = losses.counts();
    counts.map(|(loss, spans)| LossCount { kind: loss.slug(), describe: loss.describe(), spans }).collect()
}
