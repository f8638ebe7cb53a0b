use std::sync::Arc;

use astracer_model::problem::Place;
use astracer_model::sink::{Record, Sink};
use astracer_model::span::Resource;
use astracer_model::{Span, SpanId, Status, TraceId, UnixNanos};
use astracer_recording::recording::{Intake, Keep, Recording};

use super::*;

/// A span of a test: service, name, the place of its parent, duration, whether it failed.
type Call = (&'static str, &'static str, Option<usize>, u64, bool);

fn recording(traces: &[(u64, &[Call])]) -> Recording {
    let mut intake = Intake::new(Keep::default());
    let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
    let mut next = 1;
    for (trace, (at, calls)) in (1..).zip(traces) {
        let first = next;
        for &(service, name, parent, duration, is_failed) in *calls {
            let span = Span {
                trace_id: TraceId(trace),
                span_id: SpanId(next),
                parents: parent.map(|parent| SpanId(first + parent as u64)).into_iter().collect(),
                name: name.into(),
                resource: Arc::new(Resource::service(service)),
                start: Some(UnixNanos(*at)),
                end: Some(UnixNanos(at + duration)),
                status: if is_failed { Status::Error } else { Status::Unset },
                ..Span::default()
            };
            next += 1;
            intake.span(span, Record { bytes: b"x", place: &place });
        }
    }
    intake.finish()
}

const GOOD: &[Call] = &[
    ("shop", "get", None, 10, false),
    ("db", "read", Some(0), 5, false),
    ("cache", "read", Some(0), 5, false),
];
const SWAPPED: &[Call] = &[
    ("shop", "get", None, 10, false),
    ("cache", "read", Some(0), 5, false),
    ("db", "read", Some(0), 5, false),
];
const FAILED: &[Call] = &[
    ("shop", "get", None, 10, true),
    ("db", "read", Some(0), 5, true),
    ("cache", "read", Some(0), 5, false),
];
const NO_DB: &[Call] = &[("shop", "get", None, 10, false), ("cache", "read", Some(0), 5, false)];
const RARE: &[Call] = &[("shop", "list", None, 10, false)];

/// 20 good traces, one rare one, two of them without the database; during the fault of "db" from
/// 100 to 200, two failed traces and two without the database.
fn example() -> (Recording, Vec<Fault>) {
    let mut traces: Vec<(u64, &[Call])> = (0..18).map(|at| (at, GOOD)).collect();
    traces.extend([(18, SWAPPED), (19, NO_DB), (20, NO_DB), (21, RARE)]);
    traces.extend([(100, FAILED), (101, FAILED), (102, NO_DB), (199, NO_DB)]);
    let fault = |name: &str, from, to, service: &str| Fault {
        name: name.to_owned(),
        from: UnixNanos(from),
        to: UnixNanos(to),
        service: service.to_owned(),
        operation: None,
    };
    (recording(&traces), vec![fault("db down", 100, 200, "db"), fault("elsewhere", 300, 400, "db")])
}

/// All expected values are counted by hand from [`example`].
#[test]
fn an_example_by_hand() {
    let (recording, faults) = example();
    let board = Scoreboard::new(&recording, &faults, Stop::never()).unwrap();
    let whole = board.whole();
    assert_eq!((whole.traces, whole.entries, whole.anomalous, whole.rare), (26, 2, 2, 1));
    // With database (the order of parallel calls does not matter), without it, and the rare one.
    assert_eq!(whole.paths, 3);
    // Good, failed, without database, rare.
    assert_eq!(whole.shapes, 4);
    // Start to end of four operations; end of "get" to the start of two; start to failure and
    // failure to end of two.
    assert_eq!(whole.event_pairs, 4 + 2 + 4);
    assert_eq!((whole.faults, &whole.faults_without_traces[..]), (1, &["elsewhere".to_owned()][..]));

    // One good, one failed and one without the database during the fault.
    let scores = board.scores([0, 22, 24, 24]);
    assert_eq!(scores.traces, 3.0 / 26.0);
    assert_eq!((scores.entries, scores.paths, scores.shapes), (0.5, 2.0 / 3.0, 0.75));
    assert_eq!(scores.event_pairs, 9.0 / 10.0);
    assert_eq!((scores.anomalous_kept, scores.anomalous), (0.5, 1.0 / 3.0));
    assert_eq!((scores.rare, scores.common), (0.0, 2.0 / 3.0));
    assert!((scores.entropy_bits - 3f64.log2()).abs() < 1e-12);
    assert_eq!(scores.traces_per_shape, 1.0);
    // Ochiai: db 1/sqrt(1*2), shop and cache 1/sqrt(1*3).
    assert_eq!((scores.top_1, scores.top_3, scores.mrr), (1.0, 1.0, 1.0));

    // All three services take part in the only trace, so each has rank 2.
    let scores = board.scores([22]);
    assert_eq!((scores.top_1, scores.top_3, scores.mrr), (0.0, 1.0, 0.5));
    // Without a failed trace there is nothing to rank.
    assert_eq!(board.scores([0, 24]).mrr, 0.0);
    assert_eq!(board.scores([]), Scores::default());
}

/// A fault at a service looks for services; with an operation, it looks for that.
#[test]
fn an_operation_is_ranked_among_operations() {
    let (recording, mut faults) = example();
    faults[0].operation = Some("read".to_owned());
    let board = Scoreboard::new(&recording, &faults, Stop::never()).unwrap();
    assert_eq!(board.scores([0, 22, 24]).mrr, 1.0);
    faults[0].operation = Some("write".to_owned());
    assert_eq!(Scoreboard::new(&recording, &faults, Stop::never()).unwrap().whole().faults, 0);
}

/// Slow roots and paths that no normal trace takes are suspect, too.
#[test]
fn slow_traces_and_new_paths_are_suspect() {
    const SLOW: &[Call] = &[("shop", "get", None, 11, false), ("cache", "read", Some(0), 5, false)];
    const NEW: &[Call] = &[("shop", "get", None, 10, false), ("cache", "write", Some(0), 5, false)];
    let mut traces: Vec<(u64, &[Call])> = (0..20).map(|at| (at, NO_DB)).collect();
    traces.extend([(100, SLOW), (101, NEW), (102, NO_DB), (200, SLOW)]);
    let fault = Fault {
        name: "slow".to_owned(),
        from: UnixNanos(100),
        to: UnixNanos(200),
        service: "cache".to_owned(),
        operation: None,
    };
    let board = Scoreboard::new(&recording(&traces), &[fault], Stop::never()).unwrap();
    // The last starts after the fault, so it is normal, and the slowest of its path: the 99th
    // percentile of 21.
    assert_eq!(board.whole().anomalous, 1);
    assert_eq!(board.scores([21]).anomalous_kept, 1.0);
}
