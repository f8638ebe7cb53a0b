//! No result depends on the order in which a file has its spans.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use astracer_critical_path::{Analyser, By, Method, PathKinds, Profiler, Rule, Skew};
use astracer_model::sink::{Content, Record, Sink};
use astracer_model::{Place, Problem, Span};
use astracer_recording::recording::{Intake, Keep};
use astracer_recording::source;
use astracer_samplers::Config;
use astracer_testing::{SplitMix, size};
use astracer_tuner::tune::{Options, PerKeyUse};
use astracer_tuner::{Candidate, Draw, Evaluator, Grouping, Inspection, Limits, Stop, Workload, tune};
use serde_json::{Value, json};

/// The spans of one file, with their records.
struct Spans {
    file: Arc<str>,
    content: Content,
    spans: Vec<(Span<'static>, Vec<u8>, Place)>,
}

/// Collects spans by file, up to a number of traces.
#[derive(Default)]
struct Files {
    files: Vec<Spans>,
    traces: std::collections::HashSet<u128>,
    traces_max: usize,
}

impl Sink for Files {
    fn span(&mut self, span: Span<'_>, record: Record<'_>) {
        let id = span.trace_id.0;
        if self.traces.len() >= self.traces_max && !self.traces.contains(&id) {
            return;
        }
        self.traces.insert(id);
        if let Some(file) = self.files.last_mut() {
            file.spans.push((span.into_owned(), record.bytes.to_vec(), record.place.clone()));
        }
    }

    fn file(&mut self, file: &Arc<str>, content: Content) {
        self.files.push(Spans { file: Arc::clone(file), content, spans: Vec::new() });
    }

    fn problem(&mut self, _: Problem) {}

    fn skipped(&mut self, _: &Arc<str>, _: &str) {}
}

/// Everything that the commands report about these spans.
fn report(files: &[Spans]) -> Value {
    let mut intake = Intake::new(Keep::default());
    for file in files {
        intake.file(&file.file, file.content);
        for (span, bytes, place) in &file.spans {
            intake.span(span.clone(), Record { bytes, place });
        }
    }
    let recording = intake.finish();
    let problems: BTreeMap<_, _> =
        recording.problems().counts().map(|(kind, count)| (kind.slug(), count)).collect();
    let traces: Vec<_> = recording
        .traces()
        .map(|trace| (trace.id().to_string(), trace.root().id().to_string(), trace.span_count()))
        .collect();
    let inspection = Inspection::new(&recording, Stop::never()).expect("not stopped");
    let mut paths = Vec::new();
    for rule in Rule::ALL {
        for skew in [Skew::Shift, Skew::Clip] {
            let mut analyser = Analyser::new(Method { rule, skew });
            let mut kinds = PathKinds::default();
            let mut profilers = [By::Function, By::Service, By::Path].map(|by| Profiler::new(&recording, by));
            for trace in recording.traces() {
                let traced = analyser.trace(&recording, trace);
                kinds.add(&traced);
                profilers.iter_mut().for_each(|profiler| profiler.add(&traced, Some(1.0)));
            }
            let profiles = profilers.map(|profiler| profiler.finish(&[50.0, 99.0]));
            paths.push(json!([format!("{rule} {skew:?}"), kinds.count(), profiles]));
        }
    }
    let key = Grouping::default();
    let workload = Workload::new(&recording, &key);
    let third = NonZeroU64::new(3).expect("not zero");
    let samplers = [Config::Always, Config::EveryNth(third)].map(Candidate::Ours);
    let draws = [Draw::recorded(1), Draw::recorded(2)];
    let evaluator = Evaluator::new(&workload);
    let evaluation = evaluator.evaluate(&samplers, &draws, &key, Stop::never(), || {}).expect("not stopped");
    let limits = Limits { size_min: 0.0, size_max: 0.5, ..Limits::default() };
    let options = Options {
        limits,
        draws: 2,
        starts: 1,
        iterations: 10,
        replays: 0,
        per_key: PerKeyUse::Never,
        ..Options::default()
    };
    let mut tuning = tune(&workload, &options, Stop::never(), &|_| {});
    tuning.seconds = 0.0;
    json!({
        "tuning": tuning,
        "problems": problems,
        "traces": traces,
        "inspection": inspection,
        "paths": paths,
        "evaluation": evaluation,
    })
}

/// The place of the first difference, and both values.
fn difference(a: &Value, b: &Value) -> Option<String> {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => a.iter().find_map(|(key, value)| {
            difference(value, b.get(key).unwrap_or(&Value::Null)).map(|rest| format!("/{key}{rest}"))
        }),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            (0..a.len()).find_map(|at| difference(&a[at], &b[at]).map(|rest| format!("/{at}{rest}")))
        }
        _ => (a != b).then(|| format!(": {a} and {b}")),
    }
}

fn recordings() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    for folder in ["workloads", "formats/tests/data", "critical-path/tests/data"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|extension| extension != "md") {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}

#[test]
fn no_result_depends_on_the_order_of_spans() {
    let seed = astracer_testing::number("ASTRACER_SEED").unwrap_or(36);
    let mut random = SplitMix::new(seed);
    for path in recordings() {
        let mut files = Files { traces_max: size(60, 5_000) as usize, ..Files::default() };
        if source::read(&path, &source::Options::default(), &mut files).is_err() {
            continue;
        }
        let mut files = files.files;
        let expected = report(&files);
        for round in 0..size(1, 5) {
            for Spans { spans, .. } in &mut files {
                for at in (1..spans.len()).rev() {
                    spans.swap(at, random.index(at + 1));
                }
            }
            let found = report(&files);
            if let Some(difference) = difference(&expected, &found) {
                panic!("{}: round {round}, seed {seed}: {difference}", path.display());
            }
        }
    }
}
