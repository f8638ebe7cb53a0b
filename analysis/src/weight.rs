//! The number of traces that a kept trace stands for.

use astracer_recording::recording::{Recording, TraceView};
use astracer_samplers::tracestate::OtMember;

/// The attribute by which a span of a trace that was kept late says that it stands for no call. It
/// has no threshold.
pub const ADJUSTED_COUNT: &str = "sampler.adjusted_count";

/// The adjusted count of a trace: 1 / probability, by the threshold `ot=th` in the tracestate of
/// its root, else of its first span that has one; 0 if it has none and was kept late, which is
/// known if [`ADJUSTED_COUNT`] was kept as a span's own label. `None` if there is neither, or if
/// tracestates were not kept: such a trace counts as one, which is right only if everything was
/// kept.
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
