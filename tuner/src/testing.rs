//! Workloads for tests.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use astracer_model::problem::Place;
use astracer_model::sink::{Record, Sink};
use astracer_model::{Span, SpanId, TraceId, UnixNanos};
use astracer_recording::recording::{Intake, Keep, Recording};
use astracer_recording::source;
use astracer_samplers::{Config, Template};

use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::key::Grouping;
use crate::names::NameFolding;
use crate::random::Random;
use crate::replay::Decided;
use crate::stop::Stop;
use crate::workload::Workload;

/// One of the repository's recordings, with ids in names folded.
pub(crate) fn recorded(name: &str) -> Workload {
    let folding = RefCell::new(NameFolding::new(Template::default()));
    let mut intake = Intake::new(Keep::default()).rename_with(|raw, out| folding.borrow_mut().fold(raw, out));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads").join(name).with_extension("tar.xz");
    source::read(&path, &source::Options::default(), &mut intake).expect("a recording");
    Workload::new(&intake.finish(), &Grouping::default())
}

/// One minute of a service with a busy root, a quiet one and one with a single trace. Durations
/// have heavy tails, traces of the busy root have several shapes, and two roots call one of the
/// functions.
pub(crate) fn synthetic(traces: u64, seed: u64) -> Workload {
    Workload::new(&synthetic_recording(traces, seed), &Grouping::default())
}

/// The recording behind [`synthetic`].
pub(crate) fn synthetic_recording(traces: u64, seed: u64) -> Recording {
    let mut random = Random::new(seed, 0);
    let mut spans = Spans { intake: Intake::new(Keep::default()), next: 1 };
    for trace in 0..traces {
        let at_ns = (random.uniform() * 60e9) as u64;
        // At least 1 ms, about 2 ms on average, and occasionally a hundred times as much.
        let mut duration = || 1e6 * (1.0 - random.uniform()).powf(-0.7);
        let root = duration();
        if trace == traces / 2 {
            spans.add(trace, None, "once", at_ns, root * 30.0);
        } else if trace % 20 == 7 {
            let parent = spans.add(trace, None, "quiet", at_ns, root * 10.0);
            spans.add(trace, Some(parent), "store", at_ns, duration());
        } else {
            let parent = spans.add(trace, None, "busy", at_ns, root);
            for _ in 0..trace % 3 {
                spans.add(trace, Some(parent), "lookup", at_ns, duration() * 0.1);
            }
            if trace % 50 == 3 {
                spans.add(trace, Some(parent), "store", at_ns, duration());
            }
            if trace % (traces / 3) == 11 {
                spans.add(trace, Some(parent), "retry", at_ns, duration() * 5.0);
            }
        }
    }
    spans.intake.finish()
}

/// Traces of two calls, one trace per second. In all of them the inner call takes 1 ms, except in
/// the middle one, where it takes 10 s more.
pub(crate) fn heavy_tailed(traces: u64) -> Workload {
    let mut spans = Spans { intake: Intake::new(Keep::default()), next: 1 };
    for trace in 0..traces {
        let at_ns = trace * 1_000_000_000;
        let inner_ms = if trace == traces / 2 { 10_001.0 } else { 1.0 };
        let parent = spans.add(trace, None, "call", at_ns, 2e6);
        spans.add(trace, Some(parent), "read", at_ns, inner_ms * 1e6);
    }
    Workload::new(&spans.intake.finish(), &Grouping::default())
}

/// A loop of traces with two calls each, 0.2 ms apart, which begins after three seconds. Only its
/// first trace calls a function of 10 s.
pub(crate) fn late_loop(traces: u64) -> Workload {
    let mut spans = Spans { intake: Intake::new(Keep::default()), next: 1 };
    spans.add(traces, None, "start", 0, 1e6);
    for trace in 0..traces {
        let at_ns = 3_000_000_000 + trace * 200_000;
        let (inner, inner_ns) =
            if trace == 0 { ("block", 10e9) } else { ("read", (1 + trace % 7) as f64 * 1e6) };
        let parent = spans.add(trace, None, "call", at_ns, 2e6);
        spans.add(trace, Some(parent), inner, at_ns, inner_ns);
    }
    Workload::new(&spans.intake.finish(), &Grouping::default())
}

/// Traces of one call, a millisecond apart: each name once, and then names at random.
pub(crate) fn many_names(names: u32, traces: u32, seed: u64) -> Workload {
    let mut random = Random::new(seed, 0);
    let mut spans = Spans { intake: Intake::new(Keep::default()), next: 1 };
    for trace in 0..traces {
        let name = if trace < names { trace } else { random.below(names) };
        let at_ns = u64::from(trace) * 1_000_000;
        spans.add(u64::from(trace), None, &in_letters(name), at_ns, 1e6 * (1.0 + random.uniform()));
    }
    Workload::new(&spans.intake.finish(), &Grouping::default())
}

/// Traces of one call, spread over `seconds`. Most have names that occur only for a sixteenth of
/// the time; the others have any name.
pub(crate) fn waves(names: u32, traces: u32, seconds: u32, seed: u64) -> Workload {
    let mut random = Random::new(seed, 0);
    let mut spans = Spans { intake: Intake::new(Keep::default()), next: 1 };
    for trace in 0..traces {
        let wave = (f64::from(trace) / f64::from(traces) * f64::from(names)) as u32;
        let name =
            if random.uniform() < 0.95 { wave + random.below(names / 16) } else { random.below(names) };
        let at_ns = (f64::from(trace) / f64::from(traces) * f64::from(seconds) * 1e9) as u64;
        spans.add(u64::from(trace), None, &in_letters(name % names), at_ns, 1e6);
    }
    Workload::new(&spans.intake.finish(), &Grouping::default())
}

/// A number as a name of letters, because long numbers in names would be folded as ids.
fn in_letters(name: u32) -> String {
    (0..4).map(|place| char::from(b'g' + (name / 20u32.pow(place) % 20) as u8)).collect()
}

struct Spans {
    intake: Intake<'static>,
    next: u64,
}

impl Spans {
    fn add(
        &mut self,
        trace: u64,
        parent: Option<SpanId>,
        name: &str,
        at_ns: u64,
        duration_ns: f64,
    ) -> SpanId {
        let id = SpanId(self.next);
        self.next += 1;
        let span = Span {
            trace_id: TraceId(u128::from(trace + 1)),
            span_id: id,
            parents: parent.into_iter().collect(),
            name: name.into(),
            start: Some(UnixNanos(at_ns)),
            end: Some(UnixNanos(at_ns + duration_ns as u64)),
            ..Span::default()
        };
        let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
        self.intake.span(span, Record { bytes: &vec![b'x'; 80 + name.len()], place: &place });
        id
    }
}

/// The probabilities of all arrivals, the bytes kept, and all bytes.
pub(crate) fn kept_by_chance(workload: &Workload, config: &Config) -> (Vec<f64>, f64, f64) {
    let (mut chances, mut kept, mut all) = (Vec::new(), 0.0, 0.0);
    let of = |decided: Decided| {
        let (bytes, p) = (workload.arrivals()[decided.arrival].bytes as f64, 1.0 / decided.weight().unwrap());
        chances.push(p);
        (kept, all) = (kept + bytes * p, all + bytes);
    };
    Candidate::from(config.clone()).decide_each(workload, &Draw::recorded(1), Stop::never(), of);
    (chances, kept, all)
}
