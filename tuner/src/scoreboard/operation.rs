//! Operations of spans.

use astracer_recording::intern::Symbol;
use astracer_recording::recording::SpanView;

/// Service and name of a span.
pub(super) type Operation = (Symbol, Symbol);

pub(super) fn operation(span: SpanView<'_>) -> Operation {
    (span.service_symbol(), span.name_symbol())
}
