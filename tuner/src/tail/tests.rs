//! Replays worked out by hand, of a few traces with decisive outcomes.

use std::sync::Arc;

use astracer_model::problem::Place;
use astracer_model::sink::{Record, Sink};
use astracer_model::value::Attribute;
use astracer_model::{Span, SpanId, TraceId, UnixNanos};
use astracer_recording::recording::{Intake, Keep};
use astracer_samplers::Config;
use astracer_samplers::tail::ProvisionalMode;

use super::*;
use crate::key::Grouping;

/// A trace: its start and duration in ms, whether a child fails, and the child's attribute `code`.
type Given = (u64, u64, bool, &'static str);

fn recording(traces: &[Given]) -> Recording {
    recording_of(traces, &[1; 64])
}

/// Each trace has the given number of calls of `query`.
fn recording_of(traces: &[Given], calls: &[u64]) -> Recording {
    let keep = Keep { own_labels: vec!["code".to_owned()], ..Keep::default() };
    let mut intake = Intake::new(keep);
    let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
    for ((&(start_ms, ms, is_failed, code), number), calls) in traces.iter().zip(1u64..).zip(calls) {
        let span = |id: u64, parent: Option<u64>, name: &'static str| Span {
            trace_id: TraceId(u128::from(number)),
            span_id: SpanId(1_000 * number + id),
            parents: parent.into_iter().map(|id| SpanId(1_000 * number + id)).collect(),
            name: name.into(),
            start: Some(UnixNanos(1_000_000_000 + start_ms * 1_000_000)),
            end: Some(UnixNanos(1_000_000_000 + (start_ms + ms) * 1_000_000)),
            ..Span::default()
        };
        intake.span(span(0, None, "GET"), Record { bytes: &[0; 60], place: &place });
        for call in 1..=*calls {
            let child = Span {
                status: if is_failed { Status::Error } else { Status::Unset },
                attributes: vec![Attribute { key: "code".into(), value: code.into() }],
                ..span(call, Some(0), "query")
            };
            intake.span(child, Record { bytes: &[0; 40], place: &place });
        }
    }
    intake.finish()
}

fn replayed(traces: &[Given], head: &str, tail: &Tail) -> TailSummary {
    replayed_of(&recording(traces), head, tail)
}

fn replayed_of(recording: &Recording, head: &str, tail: &Tail) -> TailSummary {
    let workload = Workload::new(recording, &Grouping::default());
    let outcomes = Outcomes::new(recording, tail, Stop::never()).expect("not stopped");
    let head: Config = head.parse().expect("a sampler");
    let draws = [Draw::recorded(1)];
    outcomes.replay(&workload, &head.into(), &draws, Stop::never()).expect("not stopped")
}

fn tail(text: &str) -> Tail {
    text.parse::<Tail>().expect("policies").with_provisional(ProvisionalMode::Always)
}

fn kept(summary: &TailSummary) -> Vec<(f64, f64)> {
    summary.policies.iter().map(|policy| (policy.kept.mean, policy.refused.mean)).collect()
}

/// The first policy that matches a trace keeps it. Each trace has 100 of 400 bytes.
#[test]
fn policies_keep_traces_in_their_order() {
    let traces = [(0, 5, false, "200"), (10, 5, true, "500"), (20, 50, false, "200"), (30, 50, true, "503")];
    let summary = replayed(&traces, "never", &tail("error,slow:20ms,attr:code>=500"));
    assert_eq!(kept(&summary), [(2.0, 0.0), (1.0, 0.0), (0.0, 0.0)]);
    assert_eq!((summary.head.mean, summary.tail.mean, summary.traces.mean), (0.0, 0.75, 3.0));
    assert_eq!((summary.recorded.mean, summary.errors, summary.errors_kept.mean), (4.0, 2, 2.0));
    let summary = replayed(&traces, "never", &tail("attr:code>=503,attr:code=500"));
    assert_eq!(kept(&summary), [(1.0, 0.0), (1.0, 0.0)]);
    // Only the first trace has a call tree that is odd.
    assert_eq!(kept(&replayed(&traces, "never", &tail("odd"))), [(1.0, 0.0)]);
    // Policies do not keep traces that the sampler kept.
    let summary = replayed(&traces, "always", &tail("error"));
    assert_eq!((summary.head.mean, summary.tail.mean, summary.recorded.mean), (1.0, 0.0, 0.0));
    assert_eq!(summary.errors_kept.mean, 2.0);
}

/// Trace 3 ends before trace 2 does.
#[test]
fn kept_traces_are_named_in_the_order_of_their_ends() {
    let traces = [(0, 5, false, "200"), (10, 90, true, "500"), (20, 50, false, "200"), (30, 5, false, "200")];
    let recording = recording(&traces);
    let workload = Workload::new(&recording, &Grouping::default());
    let outcomes = Outcomes::new(&recording, &tail("error,slow:20ms"), Stop::never()).expect("not stopped");
    let kept = |head: &str| {
        let head: Config = head.parse().expect("a sampler");
        outcomes.kept(&workload, &head.into(), &Draw::recorded(1))
    };
    assert_eq!(kept("never"), [TraceId(3), TraceId(2)]);
    assert_eq!(kept("always"), []);
}

#[test]
fn budgets_and_arming_bound_what_is_kept() {
    let failing: Vec<Given> = (0..40).map(|number| (number, 1, true, "500")).collect();
    let summary = replayed(&failing, "never", &tail("error(traces=1,burst=3)"));
    // A burst of three, plus a thousandth of a trace per millisecond.
    assert_eq!((kept(&summary), summary.errors_refused.mean), (vec![(3.0, 37.0)], 37.0));
    let summary = replayed(&failing, "never", &tail("error").with_provisional(ProvisionalMode::Never));
    assert_eq!((summary.errors_not_recorded.mean, summary.errors_kept.mean), (40.0, 0.0));
    // A key's first 16 roots are recorded. After ten quiet seconds the key is no longer armed.
    let mut later: Vec<Given> = (0..40).map(|number| (number, 1, false, "200")).collect();
    later.push((20_000, 1, true, "500"));
    later.push((20_010, 1, true, "500"));
    let summary = replayed(&later, "never", &tail("error").with_provisional(ProvisionalMode::Armed));
    assert!((16.0..19.0).contains(&summary.recorded.mean), "{summary:?}");
    assert_eq!((summary.errors_not_recorded.mean, summary.errors_kept.mean), (1.0, 1.0));
    // The same for slow roots: the first one after the quiet time arms the key.
    let slow: Vec<Given> =
        later.iter().map(|&(at, ..)| (at, if at < 20_000 { 1 } else { 5 }, false, "200")).collect();
    let not_recorded =
        |policies: Tail| replayed(&slow, "never", &policies).slow_not_recorded.map(|slow| slow.mean);
    assert_eq!(not_recorded(tail("slow:3ms").with_provisional(ProvisionalMode::Armed)), Some(1.0));
    assert_eq!(not_recorded(tail("slow:3ms").with_provisional(ProvisionalMode::Never)), Some(2.0));
    assert_eq!(not_recorded(tail("error")), None);
}

/// A ring with capacity for four traces: the oldest ordinary trace is evicted first, and failed
/// ones stay.
#[test]
fn a_full_ring_gives_up_ended_ordinary_traces_and_newcomers() {
    let traces = [(0, 1_000, true, "500"), (10, 2_000, false, "200"), (1_500, 1_000, true, "500")];
    let workload = Workload::new(&recording(&traces), &Grouping::default());
    let [bytes, of_second] = [0, 1].map(|arrival| workload.arrivals()[arrival].otlp_bytes as usize);
    assert!(of_second <= bytes);
    let with = |traces: &[Given]| {
        let tail = tail("slow:500ms(traces=0.001,burst=1)").with_ring_bytes(4 * bytes);
        replayed(traces, "never", &tail.with_hold(Nanos::ZERO))
    };
    // The first is kept when it ends and leaves the ring; the second is not evicted for others.
    let summary = with(&traces);
    assert_eq!((summary.given_up.mean, summary.ring_peak_bytes.mean), (0.0, (bytes + of_second) as f64));
    assert_eq!((kept(&summary), summary.errors_refused.mean), (vec![(1.0, 2.0)], 1.0));
    // The fifth trace does not fit, because the four before it are open.
    let five = [0, 1, 2, 3, 4].map(|at| (at, 1_000, at == 0, "500"));
    let summary = with(&five);
    assert_eq!((summary.given_up.mean, summary.errors_given_up.mean), (1.0, 0.0));
    assert_eq!((kept(&summary), summary.errors_kept.mean), (vec![(1.0, 3.0)], 1.0));
    // A steady load of twice the ring's capacity: half of the traces finish.
    let steady: Vec<Given> = (0..64).map(|at| (at * 125, 1_000, false, "500")).collect();
    let summary = replayed(&steady, "never", &tail("slow:500ms()").with_ring_bytes(4 * of_second));
    assert_eq!((kept(&summary), summary.given_up.mean), (vec![(32.0, 0.0)], 32.0));
    assert_eq!(summary.slow_not_recorded.map(|slow| slow.mean), Some(0.0), "all keys were armed");
    // Ended traces are evicted before open ones, even if these are older, so a slow trace reaches
    // its end.
    let slow = [0, 10, 20, 30, 40, 50].map(|at| (at, if at == 0 { 1_000 } else { 1 }, false, "200"));
    let summary = replayed(&slow, "never", &tail("slow:500ms").with_ring_bytes(4 * bytes));
    assert_eq!((kept(&summary), summary.given_up.mean), (vec![(1.0, 0.0)], 0.0));
    // Ended traces that were not kept stay for a while. Their release does not count as an
    // eviction.
    let three = [(0, 1, false, "200"), (10, 1, false, "200"), (20, 1, false, "200")];
    let held = |hold: Nanos| replayed(&three, "never", &tail("error").with_hold(hold)).ring_peak_bytes.mean;
    assert_eq!((held(Nanos::ZERO), held(Nanos::from_secs(1))), (of_second as f64, 3.0 * of_second as f64));
}

/// As in a service, a trace takes at most a quarter of the ring, but at least the size of its root
/// (here half of the trace). That much of it is kept, and no other trace is evicted for it.
#[test]
fn a_trace_that_is_larger_than_the_ring_is_cut() {
    let traces = [(0, 1_000, true, "500"), (10, 1_000, true, "500")];
    let workload = Workload::new(&recording(&traces), &Grouping::default());
    let bytes = workload.arrivals()[0].otlp_bytes as usize;
    for (ring, size) in
        [(bytes, bytes / 2), (3 * bytes, 3 * bytes / 4), (4 * bytes, bytes), (40 * bytes, bytes)]
    {
        let summary = replayed(&traces, "never", &tail("error").with_ring_bytes(ring));
        assert_eq!((kept(&summary), summary.given_up.mean), (vec![(2.0, 0.0)], 0.0), "{ring}");
        assert_eq!(summary.policies[0].kept_otlp_bytes.mean, 2.0 * size as f64);
        assert_eq!(summary.ring_peak_bytes.mean, 2.0 * size as f64);
        assert!((summary.tail.mean - size as f64 / bytes as f64).abs() < 0.01, "{}", summary.tail.mean);
    }
    // Half of the 20,001 spans are over the limit.
    let large = recording_of(&traces, &[20_000, 1]);
    let workload = Workload::new(&large, &Grouping::default());
    let all: Vec<_> = workload.arrivals().iter().map(|arrival| arrival.otlp_bytes as f64).collect();
    let summary = replayed_of(&large, "never", &tail("error()"));
    let kept = summary.policies[0].kept_otlp_bytes.mean - all[1];
    assert!((0.49..0.51).contains(&(kept / all[0])), "{kept} of {all:?}");
}

/// As in a service, an ordinary trace is then evicted at once, and the root of a failed one stays
/// until it ends.
#[test]
fn a_ring_without_room_for_a_root_holds_none() {
    let traces = [(0, 1_000, true, "500"), (10, 1_000, false, "200")];
    let workload = Workload::new(&recording(&traces), &Grouping::default());
    let root = (workload.arrivals()[0].otlp_bytes / 2) as f64;
    for ring in [0, 3, 4 * workload.arrivals()[0].otlp_bytes as usize] {
        let summary = replayed(&traces, "never", &tail("error,slow:500ms").with_ring_bytes(ring));
        let (ordinary, size) = if ring <= 3 { (0.0, root) } else { (1.0, 2.0 * root) };
        assert_eq!(kept(&summary), [(1.0, 0.0), (ordinary, 0.0)], "{ring}");
        assert_eq!((summary.given_up.mean, summary.errors_given_up.mean), (1.0 - ordinary, 0.0), "{ring}");
        assert!((summary.policies[0].kept_otlp_bytes.mean - size).abs() <= 1.0, "{ring}: {summary:?}");
        assert_eq!(summary.ring_peak_bytes.mean > 0.0, ring > 3);
    }
}

/// As in a service, loops of different lengths have the same shape; having no calls at all is a
/// different one.
#[test]
fn loops_of_different_lengths_are_one_shape() {
    let traces: Vec<Given> = (0..5).map(|number| (10 * number, 1, false, "200")).collect();
    let recording = recording_of(&traces, &[1, 2, 3, 0, 0]);
    assert_eq!(Workload::new(&recording, &Grouping::default()).call_trees(), 4);
    assert_eq!(kept(&replayed_of(&recording, "never", &tail("odd"))), [(2.0, 0.0)]);
}

#[test]
fn it_stops_when_asked() {
    let recording = recording(&[(0, 1, true, "500")]);
    let workload = Workload::new(&recording, &Grouping::default());
    let outcomes = Outcomes::new(&recording, &tail("error"), Stop::never()).expect("not stopped");
    let head = Candidate::from(Config::Never);
    let stop = Stop::when(&|| true);
    assert_eq!(outcomes.replay(&workload, &head, &[Draw::recorded(1)], stop), None);
}
