//! Policies at the end of a trace: large numbers, and many keys.

use std::collections::HashSet;

use astracer_samplers::Nanos;
use astracer_samplers::tail::{
    Condition, Decided, KeyNumber, Limits, Policy, Severity, TailSampler, Trace, Value,
};

fn condition(text: &str) -> Condition {
    match text.parse::<Policy>() {
        Ok(Policy::Attribute(condition)) => condition,
        other => panic!("{text}: {other:?}"),
    }
}

/// Ids of 64 bits are more than a double tells apart: the one that is asked for is kept, and its neighbours are not.
#[test]
fn whole_numbers_are_compared_digit_by_digit() {
    const ID: i64 = 1_234_567_890_123_456_789;
    let (equal, greater) = (condition(&format!("attr:id={ID}")), condition(&format!("attr:id>{ID}")));
    for (id, order) in [(ID - 1, -1), (ID, 0), (ID + 1, 1)] {
        let text = id.to_string();
        for value in [Value::Int(id), Value::Text(&text)] {
            assert_eq!(equal.holds(value), order == 0, "{value:?}");
            assert_eq!(greater.holds(value), order > 0, "{value:?}");
        }
    }
    // Beyond 64 bits, as those of u128 fields are: texts.
    let large = condition("attr:id=170141183460469231731687303715884105727");
    assert!(large.holds(Value::Text("170141183460469231731687303715884105727")));
    assert!(!large.holds(Value::Text("170141183460469231731687303715884105726")));
}

/// "Keys beyond the first 1,000 are one": the first thousand have records of their own, whatever they are called.
#[test]
fn the_first_thousand_keys_have_records() {
    for names in 0..200 {
        let sampler = TailSampler::new(&"error".parse().unwrap(), Limits::default());
        let keys: Vec<_> = (0..1_000).map(|key| sampler.key(&format!("GET /{names}/{key}"))).collect();
        let others = keys.iter().filter(|key| **key == KeyNumber::OTHERS).count();
        assert_eq!(others, 0, "{names}");
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 1_000);
    }
}

/// A second is no whole number of thirds in ns: whatever the rate, a trace a time has room in a burst of one.
#[test]
fn a_budget_of_any_rate_keeps_something() {
    for tenths in 1..2_000_u64 {
        let rate = tenths as f64 / 10.0;
        let sampler =
            TailSampler::new(&format!("error(traces={rate},burst=1)").parse().unwrap(), Limits::default());
        let failed = |at| Trace {
            key: KeyNumber::OTHERS,
            now: Nanos::new(at),
            duration: Nanos::ZERO,
            severity: Severity::Error,
            shape: 0,
            bytes: 1,
            view: &(),
        };
        let period = (1e9 / rate).ceil() as u64;
        let kept = (0..10).filter(|n| sampler.decide(&failed(1_000 + n * period)) == Decided::Kept(0));
        assert_eq!(kept.count(), 10, "{rate} a second");
    }
}
