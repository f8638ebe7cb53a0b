//! Strata in a service: what is kept, with which weight, and that the weights are true.

use std::collections::BTreeMap;
use std::time::Duration;

use astracer_samplers::Nanos;
use astracer_sdk::strata::{Record, Strata, Stratum};
use astracer_sdk::{
    Allowance, Builder, Cap, DroppedSpans, Key, Probability, ProvisionalMode, SpanLimits, Tail,
};
use astracer_testing::{SplitMix, reason, size, wait_until};
use opentelemetry::{KeyValue, SpanId};
use opentelemetry_sdk::Resource;
use tracing::dispatcher::with_default;
use tracing::{error, info_span};

use crate::late_weights::{Seeded, adjusted_count};
use crate::support::{TIMEOUT, World, current, sampling};

fn p(value: f64) -> Probability {
    Probability::new(value).expect("a probability")
}

fn stratum(text: &str) -> Stratum {
    text.parse().expect("a stratum")
}

/// The kinds of requests: name, share in a thousand, duration in us, whether it fails.
const KINDS: [(&str, u64, u64, bool); 5] = [
    ("common", 900, 1_500, false),
    ("common", 20, 1_500, true),
    ("common", 10, 300_000, false),
    ("slow", 60, 70_000, false),
    ("rare", 10, 5_000, false),
];

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    exact: f64,
    kept: u64,
    weight: f64,
    variance: f64,
}

/// Requests that come before those that are added up. A new key's first traces are kept by chance
/// and rarely, so that a sum that has one of them is far off.
const FIRST: u64 = 1_000;

/// Sends requests of drawn kinds, one each 10 ms, and adds up what is exported by kind, except the
/// [`FIRST`].
fn run(seed: u64, requests: u64, with: impl FnOnce(Builder) -> Builder) -> (Vec<Sum>, BTreeMap<String, u64>) {
    let ids = Seeded::new(seed);
    let World { dispatch, collector, handle, clock, .. } = sampling("ratio:0.1", |builder| {
        with(builder)
            .with_id_generator(ids)
            .with_dropped_spans(DroppedSpans::Visible)
            .with_span_limits(SpanLimits::default())
    });
    let mut random = SplitMix::new(seed + 1);
    let mut sums = vec![Sum::default(); KINDS.len()];
    let mut reasons = BTreeMap::new();
    for number in 0..requests {
        let mut drawn = random.below(1_000);
        let kind = KINDS.iter().position(|(_, share, ..)| {
            let is_it = drawn < *share;
            drawn = drawn.saturating_sub(*share);
            is_it
        });
        let kind = kind.expect("the shares are a thousand");
        let (name, _, micros, fails) = KINDS[kind];
        with_default(&dispatch, || {
            info_span!("request", otel.name = name, kind).in_scope(|| {
                info_span!("query").in_scope(|| {
                    if fails {
                        error!("no price");
                    }
                });
                clock.advance(Duration::from_micros(micros));
            });
        });
        clock.advance(Duration::from_millis(10).saturating_sub(Duration::from_micros(micros)));
        sums[kind].exact += f64::from(u8::from(number >= FIRST));
        if number % 500 == 499 {
            handle.flush(TIMEOUT).expect("exported");
            if number < FIRST {
                collector.take();
            }
            for root in collector.take().iter().filter(|span| span.parent_span_id == SpanId::INVALID) {
                let kind = astracer_testing::attribute(root, "kind").expect("its kind");
                let kind: usize = kind.as_str().parse().expect("a number");
                let weight = adjusted_count(root);
                let sum = &mut sums[kind];
                sum.kept += 1;
                sum.weight += weight;
                sum.variance += weight * (weight - 1.0).max(0.0);
                *reasons.entry(reason(root).unwrap_or_default()).or_default() += 1;
            }
        }
    }
    (sums, reasons)
}

fn plain() -> Strata {
    Strata::new(p(0.1)).expect("a size")
}

fn fitted() -> Strata {
    [("common", "0", 0.05), ("common", "0e", 0.5), ("common", "8", 1.0), ("slow", "6", 0.3)]
        .iter()
        .fold(plain(), |all, (key, text, value)| all.with_probability(*key, stratum(text), p(*value)))
}

/// The sums of weights are within four standard errors of the exact counts, for each kind of
/// request, in every combination of what is recorded, cap, policies and probabilities. Numbers are
/// spread over each stratum, so the true errors are smaller.
#[test]
fn sums_of_weights_are_exact_totals() {
    let requests = size(6_000, 60_000);
    let mut seed = 100;
    for record in [Record::All, Record::DEFAULT, Record::Times(2.0)] {
        for cap in [None, Some(20.0)] {
            for policies in ["", "error()", "error(traces=1),slow:50ms(traces=1)"] {
                for strata in [plain(), fitted()] {
                    seed += 1;
                    let strata = strata.with_record(record).expect("a multiple");
                    let (sums, reasons) = run(seed, requests, |builder| {
                        let builder = builder.with_strata(strata.clone());
                        let builder = match cap {
                            Some(rate) => {
                                let traces = Allowance::new(rate, 2.0 * rate).ok();
                                let mut cap = Cap::none();
                                cap.traces = traces;
                                builder.with_cap(cap)
                            }
                            None => builder,
                        };
                        match policies {
                            "" => builder,
                            text => builder.with_tail(text.parse().expect("policies")),
                        }
                    });
                    for (sum, kind) in sums.iter().zip(KINDS) {
                        let error = sum.variance.sqrt();
                        let off = (sum.weight - sum.exact).abs();
                        // Too few give no estimate of the error, and so do single dropped ones.
                        assert!(
                            off <= 4.0 * error + 4.0 || sum.kept < 40,
                            "seed {seed}, {record:?}, cap {cap:?}, {policies}, {kind:?}: {sum:?}; {reasons:?}"
                        );
                    }
                    assert!(reasons.contains_key("stratum"), "{reasons:?}");
                }
            }
        }
    }
}

/// All is recorded: what the file says is certain is kept, whatever else happens.
#[test]
fn a_stratum_of_probability_one_is_kept_whole() {
    let strata = fitted().with_record(Record::All).expect("all");
    let (sums, _) = run(7, 3_000, |builder| builder.with_strata(strata));
    let slow = sums[2];
    assert_eq!((slow.kept as f64, slow.weight), (slow.exact, slow.exact), "{slow:?}");
    let common = sums[0];
    let share = common.kept as f64 / common.exact;
    assert!((0.04..0.06).contains(&share), "{share}");
}

/// The key of strata may have attributes that the root gets while it runs, after those of the key
/// at the start. The resource has what a root lacks.
#[test]
fn strata_know_attributes_that_are_recorded_until_the_end() {
    let strata = [("root;host=a;code=500", 1.0), ("root;host=a;code=200", 0.1)]
        .iter()
        .fold(plain(), |all, (key, value)| all.with_probability(*key, stratum("0"), p(*value)));
    let strata = strata.with_record(Record::All).expect("all");
    let key = Key::default().with_attribute("host").with_attribute_at_end("code");
    let resource = Resource::builder_empty().with_attribute(KeyValue::new("host", "a")).build();
    let World { dispatch, collector, handle, clock, .. } =
        sampling("ratio:0.1", |builder| builder.with_strata(strata).with_key(key).with_resource(resource));
    for number in 0..2_000 {
        with_default(&dispatch, || {
            let root = info_span!("root", code = 200);
            root.in_scope(|| clock.advance(Duration::from_micros(1_500)));
            root.record("code", if number % 20 == 0 { 500 } else { 200 });
        });
    }
    handle.flush(TIMEOUT).expect("exported");
    let mut kept: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    for root in collector.take() {
        let code = astracer_testing::attribute(&root, "code").expect("its code").as_str().into_owned();
        let (count, weight) = kept.entry(code).or_default();
        (*count, *weight) = (*count + 1, adjusted_count(&root));
    }
    assert_eq!(kept["500"], (100, 1.0));
    let (common, weight) = kept["200"];
    assert!((185..=195).contains(&common) && (weight - 10.0).abs() < 1e-3, "{common} {weight}");
}

/// A trace that a policy keeps counts once, although its stratum would have kept it by chance.
#[test]
fn a_policy_without_bounds_gives_its_traces_the_weight_one() {
    let strata = fitted().with_record(Record::All).expect("all");
    let tail = "error()".parse::<Tail>().expect("a policy").with_provisional(ProvisionalMode::Always);
    let (sums, reasons) = run(8, 3_000, |builder| builder.with_strata(strata).with_tail(tail));
    let errors = sums[1];
    assert_eq!((errors.kept as f64, errors.weight), (errors.exact, errors.exact), "{errors:?} {reasons:?}");
    assert!(reasons["error"] > 0 && reasons["stratum"] > 0, "{reasons:?}");
}

/// A trace recorded by chance is kept with p: the threshold says so, and the randomness reaches it.
#[test]
fn threshold_and_randomness_are_of_all_traces() {
    let World { dispatch, collector, handle, clock, .. } =
        sampling("bump:lambda=0,min=0.1,window=1s", |builder| {
            builder.with_strata(fitted().with_record(Record::Times(5.0)).expect("5"))
        });
    for _ in 0..2_000 {
        with_default(&dispatch, || {
            info_span!("common").in_scope(|| clock.advance(Duration::from_micros(1_500)));
        });
    }
    handle.flush(TIMEOUT).expect("exported");
    let spans = collector.take();
    assert!((60..140).contains(&spans.len()), "{}", spans.len());
    let keys = handle.keys();
    let key = keys.iter().find(|key| key.key.as_deref() == Some("common")).expect("a key");
    assert_eq!((key.seen, key.kept, key.kept_late), (2_000, 0, spans.len() as u64), "{keys:?}");
    for span in &spans {
        let state = span.span_context.trace_state().header();
        let hex = |name: &str| {
            let (_, rest) = state.split_once(name).unwrap_or_else(|| panic!("no {name} in {state}"));
            let digits = rest.split([';', ',']).next().unwrap_or_default();
            u64::from_str_radix(&format!("{digits:0<14}"), 16).expect("hexadecimal")
        };
        let (threshold, randomness) = (hex("th:"), hex("rv:"));
        assert!(randomness >= threshold, "{state}");
        let kept = 1.0 - threshold as f64 / 2f64.powi(56);
        assert!((kept - 0.05).abs() < 1e-6, "{state}: {kept}");
        assert!(!span.span_context.is_sampled());
    }
}

/// The default is 30 s with strata, whatever else is set.
#[test]
fn ended_traces_are_held_for_as_long_as_asked() {
    let given = Tail::default();
    let error: Tail = "error()".parse().expect("a policy");
    for (tail, seconds) in [
        (given.clone(), 30),
        (given.clone().with_ring_bytes(1 << 20), 30),
        (given.clone().with_hold(Nanos::from_secs(2)), 2),
        (given.with_hold(Nanos::from_secs(60)), 60),
        (error, 30),
    ] {
        let strata = plain().with_probability("root", stratum("0"), p(1e-9));
        let strata = strata.with_record(Record::All).expect("all");
        let World { dispatch, handle, clock, .. } =
            sampling("never", |builder| builder.with_strata(strata).with_tail(tail.clone()));
        let trace = || {
            let within = || (clock.advance(Duration::from_micros(1_500)), current().trace_id()).1;
            with_default(&dispatch, || info_span!("root").in_scope(within))
        };
        let (first, _) = (trace(), trace());
        clock.advance(Duration::from_secs(seconds - 1));
        assert!(handle.keep(first), "{seconds} s: {tail:?}");
        clock.advance(Duration::from_secs(1));
        wait_until("the other one has left", || handle.stats().tail.spans_held == 0);
    }
}
