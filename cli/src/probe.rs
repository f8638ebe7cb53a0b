//! Reads a recording up to its first span or problem.

use std::path::Path;
use std::sync::Arc;

use astracer_model::sink::Record;
use astracer_model::{Problem, Sink, Span};
use astracer_recording::source;
use astracer_tuner::Stop;

/// True if this file would be read as a recording when its folder is read.
pub(crate) fn is_recording(path: &Path) -> bool {
    first(path, &source::Options::default(), Stop::never()).is_ok()
}

/// Reads until the first span or problem.
pub(crate) fn first(
    path: &Path,
    options: &source::Options,
    stop: Stop<'_>,
) -> Result<(), source::SourceError> {
    struct First<'s> {
        found: bool,
        stop: Stop<'s>,
    }

    impl Sink for First<'_> {
        fn span(&mut self, _span: Span<'_>, _record: Record<'_>) {
            self.found = true;
        }

        fn problem(&mut self, _problem: Problem) {
            self.found = true;
        }

        fn skipped(&mut self, _file: &Arc<str>, _reason: &str) {}

        fn stopped(&self) -> bool {
            self.found || self.stop.is_asked()
        }
    }

    source::read(path, options, &mut First { found: false, stop }).map(drop)
}
