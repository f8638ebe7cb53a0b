//! Losses: the parts of a span that a format cannot represent.
//!
//! Next to its writer, each writable format has a function that computes the losses of a span
//! without writing it. Everything that is not reported as lost is unchanged when the text is read
//! again.

use astracer_model::Format;
use astracer_model::span::Span;

use super::loss::Found;
pub use super::loss::Loss;
use super::{htrace, jaeger_json, otlp, zipkin_json};

/// The number of spans affected by each kind of loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    spans: [u64; Loss::ALL.len()],
}

impl Losses {
    /// Counts the losses of a span in `format`. A format without a writer has no losses.
    pub fn count(&mut self, format: Format, span: &Span<'_>) {
        let mut found = Found::default();
        match format {
            Format::JaegerJson => jaeger_json::losses(span, &mut found),
            Format::ZipkinJson => zipkin_json::losses(span, &mut found),
            Format::HTrace => htrace::losses(span, &mut found),
            Format::OtlpJson | Format::OtlpProto => otlp::losses(span, &mut found),
            Format::NezhaCsv | Format::XTraceJson => {}
        }
        for loss in found.iter() {
            self.spans[loss as usize] += 1;
        }
    }

    /// The kinds that occurred, each with the number of affected spans.
    pub fn counts(&self) -> impl Iterator<Item = (Loss, u64)> + '_ {
        let counts = Loss::ALL.iter().map(|&loss| (loss, self.spans[loss as usize]));
        counts.filter(|&(_, spans)| spans > 0)
    }

    /// Returns true if nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.counts().next().is_none()
    }
}

#[cfg(test)]
mod tests;
