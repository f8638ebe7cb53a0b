//! The guarantees of the readers of logs on any input: they do not panic; each record is at the
//! place that it states; no byte of lines belongs to two records; no line is lost; and the records
//! can be joined.

use std::sync::Arc;

use super::reader::is_record;
use astracer_formats::{Limits, logs};
use astracer_model::log::{LogFormat, LogRecord};
use astracer_model::problem::Problem;
use astracer_model::sink::{Record, Sink, Wants};
use astracer_model::span::Span;
use astracer_recording::recording::{Intake, Keep};

/// Small enough for mutated seeds to exceed them.
const LIMITS: Limits = Limits { record_bytes_max: 16 << 10, nesting_max: 40 };

pub(super) fn check_lines(data: &[u8]) {
    let options = logs::Options::default();
    let Some(format) = logs::detect(data, &options) else {
        assert!(logs::refusal(data, "input", &options).contains("a layout to begin with: '"));
        return;
    };
    // Times in letters of strftime, which the scanner does not know.
    let layouts = vec!["%.1p %j/%Y %H%M%S: %m".parse().expect("a layout")];
    let given = logs::Options { layouts, ..logs::Options::default() };
    logs::read(format, &mut &*data, &"input".into(), &LIMITS, &given, &mut Nothing);
    // Such text is converted while it is read, and places are those of the converted text.
    if data.starts_with(&[0xff, 0xfe]) || data.starts_with(&[0xfe, 0xff]) {
        logs::read(format, &mut &*data, &"input".into(), &LIMITS, &options, &mut Nothing);
        return;
    }
    let with_feeds: Vec<u8>;
    let mut shown = data;
    if !data.contains(&b'\n') && format != LogFormat::JsonDocuments {
        with_feeds = data.iter().map(|&byte| if byte == b'\r' { b'\n' } else { byte }).collect();
        shown = &with_feeds;
    }
    let (lines, is_whole) = check(format, data, shown);
    let is_text = !matches!(
        format,
        LogFormat::OtlpJson | LogFormat::OtlpProto | LogFormat::NezhaCsv | LogFormat::JsonDocuments
    );
    if is_text && is_whole && lines > 0 {
        let feeds = shown.iter().filter(|&&byte| byte == b'\n').count() as u64;
        assert_eq!(lines, feeds + u64::from(!shown.ends_with(b"\n")), "lines of records");
    }
}

/// A sink for input whose places are not those of the data.
struct Nothing;

impl Sink for Nothing {
    fn span(&mut self, _: Span<'_>, _: Record<'_>) {}

    fn wants(&self) -> Wants {
        Wants { logs: true, ..Wants::default() }
    }

    fn problem(&mut self, _: Problem) {}

    fn skipped(&mut self, _: &Arc<str>, _: &str) {}
}

pub(super) fn check_otlp(data: &[u8]) {
    check(LogFormat::OtlpJson, data, data);
    check(LogFormat::OtlpProto, data, data);
}

pub(super) fn check_csv(data: &[u8]) {
    check(LogFormat::NezhaCsv, data, data);
}

/// Places are those of `shown`. Returns the lines in records, and true if no record was too long.
fn check(format: LogFormat, data: &[u8], shown: &[u8]) -> (u64, bool) {
    let mut checked = Checked {
        data: shown,
        intake: Intake::new(Keep { logs: true, ..Keep::default() }),
        end: 0,
        count: 0,
        is_whole: true,
    };
    let (file, options) = (Arc::from("input"), logs::Options::default());
    let reading = logs::read(format, &mut &*data, &file, &LIMITS, &options, &mut checked);
    let is_whole = checked.is_whole;
    let count = checked.count;
    assert_eq!(checked.intake.finish().logs().len(), count, "records of the recording");
    (reading.lines, is_whole)
}

struct Checked<'d> {
    data: &'d [u8],
    intake: Intake<'d>,
    /// The end of the last record.
    end: usize,
    count: usize,
    is_whole: bool,
}

impl Sink for Checked<'_> {
    fn span(&mut self, _: Span<'_>, _: Record<'_>) {}

    fn wants(&self) -> Wants {
        Wants { logs: true, ..Wants::default() }
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
        self.is_whole &= problem.limit.is_none();
        self.intake.problem(problem);
    }

    fn skipped(&mut self, _: &Arc<str>, _: &str) {}
}
