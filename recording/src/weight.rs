//! The weight of a kept trace: the number of traces that it stands for.

use crate::recording::{Recording, TraceView};
use astracer_samplers::tracestate::OtMember;

/// The attribute that marks the spans of a trace kept late. Its value is 0: such a trace stands for
/// no call, and has no threshold.
pub const ADJUSTED_COUNT: &str = "sampler.adjusted_count";

/// The adjusted count of a trace, 1 / probability. It is taken from the threshold `ot=th` in the
/// tracestate of the root, or of the first span that has one. It is 0 for a trace without a
/// threshold that was kept late, which is known only if [`ADJUSTED_COUNT`] was kept as a span's own
/// label.
///
/// `None` if neither is known, or if tracestates were not kept. Such a trace counts as one, which
/// is right only if everything was kept.
pub fn adjusted_count(recording: &Recording, trace: TraceView<'_>) -> Option<f64> {
    let by_threshold = std::iter::once(trace.root()).chain(trace.spans()).find_map(|span| {
        let state = span.trace_state().filter(|state| !state.is_empty())?;
        OtMember::of(state).ok()?.threshold.map(|threshold| threshold.adjusted_count())
    });
    by_threshold.or_else(|| is_late(recording, trace).then_some(0.0))
}

fn is_late(recording: &Recording, trace: TraceView<'_>) -> bool {
    let place = recording.own_label_keys().iter().position(|key| key == ADJUSTED_COUNT);
    let count = place.zip(trace.root().label_symbol()).and_then(|(place, set)| {
        recording.label_values(set).nth(recording.label_keys().len() + place).flatten()
    });
    count.and_then(|count| count.parse().ok()) == Some(0.0)
}
