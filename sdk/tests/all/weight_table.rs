//! Weights under combinations: each sampler x cap x budget x override x parent x late policy. The
//! sum of the weights, averaged over many runs, is the number of roots.

use std::sync::Mutex;
use std::time::Duration;

use astracer_samplers::{Nanos, Probability};
use astracer_sdk::{Budget, Override, ParentDecision, ProvisionalMode, Tail};
use astracer_testing::{SplitMix, size};
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use tracing::dispatcher::with_default;
use tracing::{error, info_span};

use crate::late_weights::{Seeded, adjusted_count};
use crate::support::{TIMEOUT, World, sampling};

const SAMPLERS: [&str; 3] = ["always", "ratio:0.4", "bump:lambda=8,min=0.1,window=1s"];
/// Buckets that settle above empty at 200 roots per second. One that is empty writes no weights.
const CAPS: [&str; 5] = [
    "",
    "traces=20,burst=32",
    "key_traces=10,key_burst=32",
    "bytes=3000,bytes_burst=3000",
    "key_bytes=2000,key_bytes_burst=2000",
];
const PARENTS: [Option<ParentDecision>; 4] = [
    None,
    Some(ParentDecision::Respect),
    Some(ParentDecision::RespectWithinCap),
    Some(ParentDecision::Ignore),
];

const ROOTS: u64 = 300;
const STEP: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug)]
struct Row {
    sampler: &'static str,
    cap: &'static str,
    has_budget: bool,
    has_override: bool,
    /// The roots have a parent in another process, which kept half of the traces.
    parents: Option<ParentDecision>,
    is_late: bool,
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for sampler in SAMPLERS {
        for cap in CAPS {
            for parents in PARENTS {
                for bits in 0..8 {
                    let [has_budget, has_override, is_late] = [1, 2, 4].map(|bit| bits & bit != 0);
                    rows.push(Row { sampler, cap, has_budget, has_override, parents, is_late });
                }
            }
        }
    }
    rows
}

impl Row {
    /// The sum of the weights of one run, and of the calls in lost traces.
    fn sum(self, seed: u64) -> f64 {
        let World { dispatch, collector, handle, clock, .. } = sampling(self.sampler, |builder| {
            let mut builder = builder
                .with_cap(self.cap.parse().unwrap())
                .with_parent_decision(self.parents.unwrap_or_default())
                .with_id_generator(Seeded::new(seed));
            if self.has_budget {
                let floor = Probability::new(0.05).unwrap();
                let budget = Budget::new(3_000.0).unwrap().with_interval(Nanos::new(250_000_000));
                builder = builder.with_budget(budget.with_floor(floor));
            }
            if self.is_late {
                let tail: Tail = "error()".parse().unwrap();
                builder = builder.with_tail(tail.with_provisional(ProvisionalMode::Always));
            }
            builder
        });
        if self.has_override {
            let share = Override::Ratio(Probability::new(0.6).unwrap());
            handle.override_key("b", share, Duration::from_secs(3_600)).unwrap();
        }
        let mut random = SplitMix::new(!seed);
        for number in 0..ROOTS {
            let trace_id = (u128::from(random.next()) << 64) | u128::from(random.next());
            // th:8 keeps the upper half of 56 bits.
            let flags = TraceFlags::new(2 | u8::from(trace_id & (1 << 55) != 0));
            let state: TraceState = "ot=th:8".parse().unwrap();
            let parent = SpanContext::new(TraceId::from(trace_id), SpanId::from(7), flags, true, state);
            let fails = random.below(20) == 0;
            with_default(&dispatch, || {
                let _parent = self.parents.map(|_| Context::new().with_remote_span_context(parent).attach());
                let root = if number % 3 == 0 { info_span!("b") } else { info_span!("a") };
                root.in_scope(|| {
                    if fails {
                        error!("no price");
                    }
                });
            });
            clock.advance(STEP);
            if self.has_budget && number % 50 == 49 {
                // An error only tells of the traces over the cap on bytes.
                let _ = handle.flush(TIMEOUT);
                handle.look_at_parameters();
            }
        }
        let _ = handle.flush(TIMEOUT);
        // The cap on bytes comes too late for weights, so the calls that it refuses are counted.
        collector.spans().iter().map(adjusted_count).sum::<f64>() + handle.stats().calls_lost as f64
    }
}

/// Whether the mean of the sums over these runs is within three standard errors of the roots. Says
/// by how much it is off otherwise.
fn check(row: Row, seeds: std::ops::Range<u64>) -> Result<(), String> {
    let runs = (seeds.end - seeds.start) as f64;
    let sums: Vec<f64> = seeds.map(|seed| row.sum(seed)).collect();
    let mean = sums.iter().sum::<f64>() / runs;
    let variance = sums.iter().map(|sum| (sum - mean).powi(2)).sum::<f64>() / (runs - 1.0);
    let error = (variance / runs).sqrt();
    let is_right = (mean - ROOTS as f64).abs() <= 3.0 * error + 1e-9;
    is_right.then_some(()).ok_or_else(|| format!("{mean:.1} +- {error:.2} for {ROOTS}: {row:?}"))
}

/// One or two of 480 rows are off by more than three standard errors by chance, and a few more
/// because a few weights of up to 64 calls are not normally distributed. So a row that is off must
/// be right over five times as many runs of other seeds.
#[test]
fn weights_add_up_to_the_roots_in_each_combination() {
    let runs = size(24, 200);
    // A stride without a common factor with the sides of the table.
    let chosen = rows().into_iter().zip(0_u64..).step_by(size(13, 1) as usize);
    let next = Mutex::new(chosen);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some((row, number)) = next.lock().unwrap().next() else { return };
                    let first = number << 32;
                    let checked = check(row, first..first + runs).or_else(|off| {
                        eprintln!("again: {off}");
                        check(row, first + runs..first + 6 * runs)
                    });
                    wrong.lock().unwrap().extend(checked.err());
                }
            });
        }
    });
    assert_eq!(*wrong.lock().unwrap(), [""; 0]);
}

/// Samplers without probabilities write no weight, so that a reader knows that it is unknown.
#[test]
fn a_weight_that_is_unknown_is_not_written() {
    for sampler in ["bucket:capacity=20,rate=20", "every:3"] {
        for cap in CAPS {
            let world = sampling(sampler, |builder| builder.with_cap(cap.parse().unwrap()));
            world.inside(|| (0..100).for_each(|_| info_span!("a").in_scope(|| ())));
            let _ = world.handle.flush(TIMEOUT);
            let spans = world.collector.spans();
            let has_weight = |state: &TraceState| state.header().contains("th:");
            assert!(!spans.is_empty());
            assert!(!spans.iter().any(|span| has_weight(span.span_context.trace_state())), "{sampler} {cap}");
        }
    }
}
