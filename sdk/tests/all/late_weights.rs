//! Weights of traces that are kept late: a backend that adds up adjusted counts, as the Collector's
//! spanmetrics connector does, gets the number of errors right.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use astracer_sdk::{DroppedSpans, ProvisionalMode, SpanLimits};
use astracer_testing::{SplitMix, attribute, reason, size};
use opentelemetry::trace::Status;
use opentelemetry::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, SpanData};
use tracing::dispatcher::with_default;
use tracing::{error, info_span};

use crate::support::{TIMEOUT, World, sampling};

/// Trace ids from a fixed seed, so that the test gives the same result each time.
#[derive(Debug)]
pub(crate) struct Seeded(std::sync::Mutex<SplitMix>, AtomicU64);

impl Seeded {
    pub(crate) fn new(seed: u64) -> Self {
        Seeded(std::sync::Mutex::new(SplitMix::new(seed)), AtomicU64::new(1))
    }
}

impl IdGenerator for Seeded {
    fn new_trace_id(&self) -> TraceId {
        let mut random = self.0.lock().expect("no panic");
        let half = |random: &mut SplitMix| u128::from(random.next());
        TraceId::from(half(&mut random) << 64 | half(&mut random))
    }

    fn new_span_id(&self) -> SpanId {
        SpanId::from(self.1.fetch_add(1, Ordering::Relaxed))
    }
}

/// The adjusted count of a span, by the tracestate alone and by the specification's words: the
/// threshold has 14 hexadecimal digits, with zeros left out at the end. One without a threshold, as
/// the connector counts; but 0 if docs/backends.md's filter leaves the span out.
pub(crate) fn adjusted_count(span: &SpanData) -> f64 {
    if attribute(span, "sampler.adjusted_count") == Some(&opentelemetry::Value::F64(0.0)) {
        return 0.0;
    }
    let state = span.span_context.trace_state().header();
    let th = state.split_once("th:").map(|(_, rest)| rest.split([';', ',']).next().unwrap_or_default());
    th.map_or(1.0, |th| {
        let rejected = u64::from_str_radix(&format!("{th:0<14}"), 16).expect("hexadecimal digits");
        2_f64.powi(56) / (2_f64.powi(56) - rejected as f64)
    })
}

/// The sums of adjusted counts: of roots with an error, of slow ones, and of all.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    errors: f64,
    slow: f64,
    all: f64,
}

struct Case {
    sampler: &'static str,
    policies: &'static str,
    mode: ProvisionalMode,
}

const REQUESTS: u64 = 100_000;

/// Sends requests, one a millisecond. One in twenty fails and one in fifty is slow, by a draw of
/// its own. Returns the exact counts, and those that a backend finds.
fn run(case: &Case, requests: u64) -> (Sums, Sums, BTreeMap<String, u64>) {
    let seed = 39;
    let ids = Seeded::new(seed);
    let tail = case.policies.parse::<astracer_sdk::Tail>().expect("policies").with_provisional(case.mode);
    let World { dispatch, collector, handle, clock, .. } = sampling(case.sampler, |builder| {
        builder
            .with_tail(tail)
            .with_id_generator(ids)
            .with_dropped_spans(DroppedSpans::Visible)
            .with_span_limits(SpanLimits::default())
    });
    let mut random = SplitMix::new(seed + 1);
    let (mut exact, mut found) = (Sums::default(), Sums::default());
    let mut reasons = BTreeMap::new();
    for number in 0..requests {
        let (fails, is_slow) = (random.below(20) == 0, random.below(50) == 0);
        with_default(&dispatch, || {
            info_span!("GET /orders/{id}").in_scope(|| {
                info_span!("query").in_scope(|| {
                    if fails {
                        error!("no price");
                    }
                });
                clock.advance(Duration::from_micros(if is_slow { 900 } else { 100 }));
            });
        });
        clock.advance(Duration::from_micros(if is_slow { 100 } else { 900 }));
        exact.errors += f64::from(u8::from(fails));
        exact.slow += f64::from(u8::from(is_slow));
        exact.all += 1.0;
        if number % 1_000 == 999 {
            handle.flush(TIMEOUT).expect("exported");
            let spans = collector.take();
            let roots = spans.iter().filter(|span| span.parent_span_id == SpanId::INVALID);
            for root in roots {
                let weight = adjusted_count(root);
                let failed = spans.iter().any(|span| {
                    span.span_context.trace_id() == root.span_context.trace_id()
                        && matches!(span.status, Status::Error { .. })
                });
                let took = root.end_time.duration_since(root.start_time).expect("a duration");
                found.errors += if failed { weight } else { 0.0 };
                found.slow += if took > Duration::from_micros(500) { weight } else { 0.0 };
                found.all += weight;
                *reasons.entry(reason(root).unwrap_or_default()).or_default() += 1;
            }
        }
    }
    (exact, found, reasons)
}

#[track_caller]
fn assert_near(found: f64, exact: f64, percent: f64, what: &str) {
    let off = (found / exact - 1.0) * 100.0;
    assert!(off.abs() <= percent, "{what}: {found:.0} for {exact:.0}, {off:+.2} %");
}

/// Without a limit each error and each slow request is kept, so their sums are exact, whatever the
/// head sampler.
#[test]
fn all_errors_kept_count_as_one_each() {
    for sampler in ["ratio:0.1", "never", "every:7", "bump:lambda=10,min=0.01,window=1s"] {
        let case = Case { sampler, policies: "error(),slow:500us()", mode: ProvisionalMode::Always };
        let (exact, found, _) = run(&case, size(20_000, REQUESTS));
        assert_near(found.errors, exact.errors, 1e-9, sampler);
        assert_near(found.slow, exact.slow, 1e-9, sampler);
    }
}

/// A budget that holds fewer than half of the errors: the thresholds rise, the sums stay. The
/// bounds are of three standard deviations or less; without weights the errors of the head sampler
/// alone would be counted ten times and the others once.
#[test]
fn a_budget_raises_thresholds_and_sums_stay_right() {
    let case = Case {
        sampler: "ratio:0.2",
        policies: "error(traces=40,burst=80),slow:500us()",
        mode: ProvisionalMode::Always,
    };
    let (exact, found, reasons) = run(&case, REQUESTS);
    assert!(exact.errors > 4_500.0 && reasons["error"] < 4_100, "{reasons:?}");
    assert_near(found.errors, exact.errors, 2.0, "errors");
    assert_near(found.slow, exact.slow, 1e-9, "slow ones");
    assert_near(found.all, exact.all, 2.0, "all");
}

/// Keys that are armed record their traces, and others do not: a head-kept error counts as one only
/// while it would have been recorded otherwise. A trace recorded because of its randomness has no
/// weight.
#[test]
fn traces_that_are_recorded_at_times_count_right() {
    let case = Case { sampler: "ratio:0.2", policies: "error()", mode: ProvisionalMode::Armed };
    let (exact, found, _) = run(&case, REQUESTS);
    assert_near(found.errors, exact.errors, 2.0, "errors");
    assert_near(found.all, exact.all, 2.0, "all");
}
