//! By how much times move for a recording to end now.

use std::path::PathBuf;
use std::sync::Arc;

use astracer_model::sink::Record;
use astracer_model::{Problem, Sink, Span};
use astracer_recording::source::{self, Options};
use astracer_tuner::Stop;

use crate::failure::Failure;
use crate::load;

/// Nanoseconds to add to each time, so that the latest end becomes `now_ns`.
pub(super) fn to_end_at(
    paths: &[PathBuf],
    options: &Options,
    now_ns: u64,
    stop: Stop<'_>,
) -> Result<i64, Failure> {
    if paths.iter().any(|path| load::is_read_once(path)) {
        let reason =
            "--shift-to-now reads the recording twice, which a pipe or standard input does not allow";
        return Err(Failure::Job(format!("{reason}; write it to a file first")));
    }
    let mut latest = Latest { ns: None, stop };
    for path in paths {
        source::read(path, options, &mut latest).map_err(|error| Failure::Job(error.to_string()))?;
    }
    let latest = latest.ns.unwrap_or(now_ns);
    Ok(i64::try_from(i128::from(now_ns) - i128::from(latest)).unwrap_or(0))
}

struct Latest<'s> {
    ns: Option<u64>,
    stop: Stop<'s>,
}

impl Sink for Latest<'_> {
    fn span(&mut self, span: Span<'_>, _record: Record<'_>) {
        self.ns = self.ns.max(span.end.or(span.start).map(|time| time.0));
    }

    fn problem(&mut self, _problem: Problem) {}

    fn skipped(&mut self, _file: &Arc<str>, _reason: &str) {}

    fn stopped(&self) -> bool {
        self.stop.is_asked()
    }
}
