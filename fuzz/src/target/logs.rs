//! The guarantees of the readers of logs on any input: they do not panic; each record is at the
//! place that it states; no byte of lines belongs to two records; and the records can be joined.

use std::sync::Arc;

use super::reader::is_record;
use astracer_formats::{Limits, logs};
use astracer_model::log::{LogFormat, LogRecord};
use astracer_model::problem::Problem;
use astracer_model::sink::{Record, Sink};
use astracer_model::span::Span;
use astracer_recording::recording::{Intake, Keep};

/// Small enough for mutated seeds to exceed them.
const LIMITS: Limits = Limits { record_bytes_max: 16 << 10, nesting_max: 40 };

pub(super) fn check_lines(data: &[u8]) {
    let options = logs::Options::default();
    let formats = [LogFormat::JsonLines, LogFormat::TracingText, LogFormat::Layout];
    for format in logs::detect(data, &options).into_iter().chain(formats) {
        check(format, data);
    }
}

pub(super) fn check_otlp(data: &[u8]) {
    check(LogFormat::OtlpJson, data);
    check(LogFormat::OtlpProto, data);
}

pub(super) fn check_csv(data: &[u8]) {
    check(LogFormat::NezhaCsv, data);
}

fn check(format: LogFormat, data: &[u8]) {
    let mut checked =
        Checked { data, intake: Intake::new(Keep { logs: true, ..Keep::default() }), end: 0, count: 0 };
    let (file, options) = (Arc::from("input"), logs::Options::default());
    logs::read(format, &mut &*data, &file, &LIMITS, &options, &mut checked);
    let count = checked.count;
    assert_eq!(checked.intake.finish().logs().len(), count, "records of the recording");
}

struct Checked<'d> {
    data: &'d [u8],
    intake: Intake<'d>,
    /// The end of the last record.
    end: usize,
    count: usize,
}

impl Sink for Checked<'_> {
    fn span(&mut self, _: Span<'_>, _: Record<'_>) {}

    fn wants_logs(&self) -> bool {
        true
    }

    fn log(&mut self, log: LogRecord<'_>, record: Record<'_>) {
        let start = usize::try_from(record.place.byte).expect("an offset into the input");
        assert!(start >= self.end, "the record at {} overlaps another", record.place);
        self.end = start + record.bytes.len();
        assert!(self.data.get(start..self.end).is_some_and(|found| is_record(found, record.bytes)));
        let line = 1 + self.data[..start].iter().filter(|&&byte| byte == b'\n').count();
        // Protobuf has no lines.
        assert!(record.place.line == 0 || record.place.line == line as u64, "the line of {}", record.place);
        self.count += 1;
        self.intake.log(log, record);
    }

    fn problem(&mut self, problem: Problem) {
        assert!(
            problem.place.byte <= self.data.len() as u64,
            "a problem lies behind the end: {}",
            problem.place
        );
        self.intake.problem(problem);
    }

    fn skipped(&mut self, _: &Arc<str>, _: &str) {}
}
