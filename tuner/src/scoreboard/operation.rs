//! Operations of spans.

use astracer_recording::intern::Symbol;
use astracer_recording::recording::{Recording, SpanView};

use super::Fault;

/// Service and name of a span.
pub(super) type Operation = (Symbol, Symbol);

/// Whether an operation is the one at fault, or one of the service at fault if that is all that is
/// known.
pub(super) fn is_at_fault(recording: &Recording, fault: &Fault, (service, name): Operation) -> bool {
    recording.services().name(service) == fault.service
        && fault.operation.as_deref().is_none_or(|wanted| recording.names().name(name) == wanted)
}

pub(super) fn operation(span: SpanView<'_>) -> Operation {
    (span.service_symbol(), span.name_symbol())
}
