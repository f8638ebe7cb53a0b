//! Computes by how much to shift times so that a recording ends now.

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
            "--shift-to-now reads the recording twice, which is impossible for a pipe or standard input";
        return Err(Failure::Usage(format!("{reason}; write the recording to a file first")));
    }
    let mut latest = Latest { ns: None, stop };
    for path in paths {
        source::read(path, options, &mut latest).map_err(|error| Failure::Job(error.to_string()))?;
    }
    let latest = latest.ns.unwrap_or(now_ns);
    i64::try_from(i128::from(now_ns) - i128::from(latest)).map_err(|_| {
        let end = load::utc(latest);
        Failure::Job(format!(
            "--shift-to-now: the last span ends at {end}, too far from now to shift; omit the option"
        ))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Such times were once left unshifted without an error.
    #[test]
    fn times_that_no_number_moves_are_an_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("w.json");
        let moved = |end: u64| {
            let ids = format!(r#""traceId":"{:032x}","spanId":"{:016x}""#, 1, 1);
            let span = format!(r#"{{{ids},"name":"n","startTimeUnixNano":"1","endTimeUnixNano":"{end}"}}"#);
            let json = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{span}]}}]}}]}}"#);
            std::fs::write(&path, json).expect("a writable folder");
            to_end_at(std::slice::from_ref(&path), &Options::default(), 1_000, Stop::never())
        };
        assert!(matches!(moved(1_500), Ok(-500)));
        for end in [u64::MAX, 1_000 + (1 << 63) + 1] {
            let result = moved(end);
            let Err(Failure::Job(text)) = result else { panic!("{end}: {result:?}") };
            assert!(text.contains("--shift-to-now"), "{text}");
        }
        assert!(matches!(moved(1_000 + (1 << 63)), Ok(i64::MIN)));
    }
}
