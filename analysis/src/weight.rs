//! The number of traces that a kept trace stands for.

use astracer_recording::recording::TraceView;
use astracer_samplers::tracestate::OtMember;

/// The adjusted count of a trace: 1 / probability, by the threshold `ot=th` in the tracestate of its root, else of its
/// first span that has one. `None` if there is no threshold, or if tracestates were not kept: such a trace counts as
/// one, which is right only if everything was kept.
pub fn adjusted_count(trace: TraceView<'_>) -> Option<f64> {
    std::iter::once(trace.root()).chain(trace.spans()).find_map(|span| {
        let state = span.trace_state().filter(|state| !state.is_empty())?;
        OtMember::of(state).ok()?.threshold.map(|threshold| threshold.adjusted_count())
    })
}
