//! The traces that a sampler keeps: the files of `--kept`, and the recording of `--kept-out`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use astracer_model::ids::TraceId;
use astracer_model::sink::{Content, Record};
use astracer_model::span::Span;
use astracer_model::value::{Attribute, Value};
use astracer_model::{Format, Problem, Sink};
use astracer_recording::convert::Converter;
use astracer_recording::weight::ADJUSTED_COUNT;
use astracer_recording::{Recording, source};
use astracer_samplers::tracestate::OtMember;
use astracer_samplers::{Probability, Threshold};
use astracer_tuner::tail::Outcomes;
use astracer_tuner::{Candidate, Draw, Stop, Workload};

use super::Evaluate;
use crate::failure::Failure;
use crate::load;
use crate::outputs::Output;
use crate::source::Source;

/// The place of the seed in the name of `--kept`.
const SEED: &str = "{seed}";
/// The most files that `--kept` writes.
const KEPT_FILES_MAX: u64 = 1000;
/// Marks a span that no trace of the recording has.
const NONE: u32 = u32::MAX;

/// The trace of each span, in the order in which spans are read.
pub(super) struct Owners {
    ids: Vec<TraceId>,
    of_spans: Vec<u32>,
}

impl Owners {
    pub(super) fn of(recording: &Recording) -> Self {
        let mut of_spans = vec![NONE; recording.index_end()];
        let mut ids = Vec::with_capacity(recording.trace_count());
        for trace in recording.traces() {
            trace.spans().for_each(|span| of_spans[span.index() as usize] = ids.len() as u32);
            ids.push(trace.id());
        }
        Self { ids, of_spans }
    }
}

/// A kept trace's statement about its weight.
#[derive(Clone, Copy, Debug)]
enum Kept {
    /// The number of traces that it stands for.
    Weight(f64),
    /// The sampler gives no weight.
    Unknown,
    /// Kept late, beside those that a weight speaks for.
    Late,
}

/// The files of `--kept`: one for each seed if the name has `{seed}`.
pub(super) fn of_seeds(args: &Evaluate, path: &Path) -> Result<Vec<PathBuf>, Failure> {
    match path.to_str().filter(|name| name.contains(SEED)) {
        Some(_) if args.seeds > KEPT_FILES_MAX => Err(Failure::Usage(format!(
            "--kept with {SEED}: {} seeds are too many files; use --seeds {KEPT_FILES_MAX} or fewer",
            args.seeds
        ))),
        Some(name) => {
            let of = |index: u64| name.replace(SEED, &args.seed.wrapping_add(index).to_string()).into();
            Ok((0..args.seeds).map(of).collect())
        }
        None => Ok(vec![path.to_path_buf()]),
    }
}

/// Refuses recordings that can be read only once, and the output of the table.
pub(super) fn check(output: &Output, paths: &[PathBuf]) -> Result<(), Failure> {
    if output.is_standard() {
        let message = "--kept-out: standard output has the table; name a file";
        return Err(Failure::Usage(message.to_owned()));
    }
    match paths.iter().find(|path| load::is_read_once(path)) {
        None => Ok(()),
        Some(_) => Err(Failure::Usage(
            "--kept-out reads the recording twice, which is impossible for a pipe or standard input; write the \
             recording to a file first"
                .to_owned(),
        )),
    }
}

/// Writes the spans of the traces that a sampler keeps, with their thresholds, as OTLP JSON lines.
/// Returns the numbers of traces and spans.
pub(super) fn write(
    output: &Output,
    source: &Source,
    owners: &Owners,
    (workload, outcomes): (&Workload, Option<&Outcomes>),
    (sampler, draw): (&Candidate, &Draw),
    stop: Stop<'_>,
) -> Result<(u64, u64), Failure> {
    let mut kept: HashMap<TraceId, Kept> = HashMap::new();
    for id in outcomes.iter().flat_map(|outcomes| outcomes.kept(workload, sampler, draw)) {
        kept.insert(id, Kept::Late);
    }
    let keep = |arrival, weight: Option<f64>| {
        kept.insert(workload.trace_id(arrival), weight.map_or(Kept::Unknown, Kept::Weight));
    };
    if !sampler.replay(workload, draw, stop, keep) {
        return Err(Failure::Interrupted);
    }
    let by_trace: Vec<Option<Kept>> = owners.ids.iter().map(|id| kept.get(id).copied()).collect();
    let traces = by_trace.iter().flatten().count() as u64;
    let target = output.open()?;
    let converter = Converter::new(Format::OtlpJson, target.writer()?)
        .ok_or_else(|| Failure::Job("OTLP JSON cannot be written".to_owned()))?
        .stop_when(|| stop.is_asked());
    let mut writer = Writer { converter, owners, by_trace, next: 0 };
    for path in &source.paths {
        source::read(path, &source.reading.options(), &mut writer)
            .map_err(|error| Failure::Job(error.to_string()))?;
    }
    if stop.is_asked() {
        return Err(Failure::Interrupted);
    }
    let seen = writer.next;
    // A full disk ends the reading early, too.
    let converted = writer.converter.finish().map_err(|error| output.failure(&error))?;
    if seen != owners.of_spans.len() {
        return Err(Failure::Job("--kept-out: the recording changed while it was read twice".to_owned()));
    }
    target.complete()?;
    Ok((traces, converted.spans))
}

struct Writer<'w> {
    converter: Converter<'w>,
    owners: &'w Owners,
    by_trace: Vec<Option<Kept>>,
    /// The number of the next span.
    next: usize,
}

impl Sink for Writer<'_> {
    fn span(&mut self, mut span: Span<'_>, record: Record<'_>) {
        let owner = self.owners.of_spans.get(self.next).copied().unwrap_or(NONE);
        self.next += 1;
        let Some(kept) = self.by_trace.get(owner as usize).copied().flatten() else { return };
        match kept {
            Kept::Weight(weight) => state(&mut span, Some(weight)),
            Kept::Unknown => state(&mut span, None),
            Kept::Late => span.attributes.push(Attribute::new(ADJUSTED_COUNT, Value::Int(0))),
        }
        self.converter.span(span, record);
    }

    fn file(&mut self, file: &Arc<str>, content: Content) {
        self.converter.file(file, content);
    }

    fn document(&mut self) {
        self.converter.document();
    }

    // Problems were told when the recording was read first.
    fn problem(&mut self, _: Problem) {}

    fn skipped(&mut self, _: &Arc<str>, _: &str) {}

    fn stopped(&self) -> bool {
        self.converter.stopped()
    }
}

/// Puts the threshold of a weight, beside one that the recording was sampled by before, into a
/// span's tracestate; without a weight there is none. A trace that had been kept late before stands
/// for no other. The random number that was compared is not that of the replay.
fn state(span: &mut Span<'_>, weight: Option<f64>) {
    let state = span.trace_state.clone();
    let mut member = OtMember::of(&state).unwrap_or_default();
    let is_late = |attribute: &Attribute<'_>| {
        attribute.key == ADJUSTED_COUNT && matches!(attribute.value, Value::Int(0) | Value::Double(0.0))
    };
    let before = match member.threshold {
        None if span.attributes.iter().any(is_late) => return,
        threshold => threshold.map_or(1.0, Threshold::adjusted_count),
    };
    let probability = weight.map(|weight| (1.0 / (weight * before)).clamp(f64::MIN_POSITIVE, 1.0));
    member.threshold = probability.and_then(Probability::new).map(Threshold::from_probability);
    member.randomness = None;
    if let Ok(written) = member.write_to(&state) {
        span.trace_state = written.into();
    }
}
