//! Policies at the end of a trace.

use astracer_samplers::tail::{
    Condition, Decided, Ended, Histogram, KeyNumber, Limits, ProvisionalMode, Rule, Severity, Tail,
    TailSampler, Trace, Value, View,
};
use astracer_samplers::{Nanos, Randomness};
use astracer_testing::SplitMix;

const SECOND: u64 = 1_000_000_000;

fn sampler(policies: &str) -> TailSampler {
    TailSampler::new(&policies.parse().unwrap(), Limits::single_threaded())
}

fn trace(key: KeyNumber, now: u64) -> Trace<'static> {
    Trace {
        key,
        now: Nanos::new(now),
        duration: Nanos::from_millis(1),
        severity: Severity::Fine,
        shape: 1,
        bytes: 1_000,
        view: &(),
    }
}

fn ended(now: u64, duration: u64) -> Ended {
    Ended { now: Nanos::new(now), duration: Nanos::new(duration), is_error: false, is_recorded: false }
}

fn failed(now: u64) -> Trace<'static> {
    Trace { severity: Severity::Error, ..trace(KeyNumber::OTHERS, now) }
}

/// A randomness outside the share that is always recorded.
const UNLUCKY: u64 = 1;

#[test]
fn texts_are_read_and_written() {
    for text in [
        "",
        "error",
        "error,slow:p99,slow:500ms,odd,attr:http.response.status_code>=500",
        "error:warn,slow:p99.9,own:checkout",
        "error(traces=10,burst=5,key_traces=2,key_burst=1),odd",
        "attr:user=\"a, (b) \\\"c\\\" \\\\\",attr:x!=y,attr:n<=-1.5",
        "attr:empty=\"\"(traces=1,burst=1)",
        "error()",
        "error:any,error(traces=4,burst=1,replicas=4)",
    ] {
        let tail: Tail = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(tail.to_string(), text);
        assert_eq!(tail.to_string().parse(), Ok(tail));
    }
    // Read to six digits after the point.
    assert_eq!("slow:p99.1234567".parse::<Tail>(), "slow:p99.123457".parse());
    assert_eq!(" error , odd ".parse::<Tail>().unwrap().to_string(), "error,odd");
}

#[test]
fn texts_that_are_no_policies_are_refused_with_advice() {
    for (text, advice) in [
        ("errors", "use policies such as error,"),
        ("slow", "slow:p99"),
        ("slow:99", "slow:p99"),
        ("slow:p49", "p50 to p99.99"),
        // 0.14 * 100 is not exactly 14.
        ("slow:p14", "`p14` is out of range"),
        ("slow:p100", "p50 to p99.99"),
        ("slow:pNaN", "p50 to p99.99"),
        ("attr:x", "a name, a sign and a value"),
        ("attr:=5", "a word such as"),
        ("attr:x<abc", "needs a number on its right"),
        ("attr:x=\"abc", "ends with a quote"),
        // Without quotes, the policy after the comma would become part of the value.
        ("attr:x=a(b,error", "in quotes"),
        ("attr:x=a\"b,error", "in quotes"),
        ("attr:x==5", "in quotes"),
        ("attr:x= 5", "in quotes"),
        ("attr:x=,error", "in quotes"),
        ("own:", "use policies such as"),
        ("error(traces)", "traces=100"),
        ("error(traces=10", "use policies such as"),
        ("error:bad", "error:warn"),
        (&"odd,".repeat(65), "at most 64"),
    ] {
        let error = text.parse::<Tail>().expect_err(text).to_string();
        assert!(error.contains(advice), "{text}: {error}");
    }
}

#[test]
fn the_default_budget_is_the_documented_one() {
    let told = Rule::BUDGET_DEFAULT.parse().unwrap();
    assert_eq!("error".parse::<Rule>().unwrap().budget, told);
}

#[test]
fn the_first_policy_with_budget_keeps() {
    let sampler = sampler("error(traces=1,burst=1),slow:500us,odd");
    let key = sampler.key("GET /");
    let decide = |severity, millis, now| {
        sampler.decide(&Trace { severity, duration: Nanos::from_millis(millis), ..trace(key, now) })
    };
    assert_eq!(decide(Severity::Error, 1, 0), Decided::Kept(0));
    assert_eq!(
        decide(Severity::Error, 1, 1),
        Decided::Kept(1),
        "the budget for errors is used up, but the trace is slow as well"
    );
    assert_eq!(decide(Severity::Error, 0, 2), Decided::Refused(0));
    assert_eq!(
        decide(Severity::Warning, 0, 3),
        Decided::Unwanted,
        "the shape was noted with the first trace"
    );
    let counts = sampler.counts();
    let of = |at: usize| (counts[at].kept, counts[at].kept_bytes, counts[at].refused);
    assert_eq!((of(0), of(1), of(2)), ((1, 1_000, 2), (1, 1_000, 0), (0, 0, 0)));
}

#[test]
fn warnings_count_where_they_are_asked_for() {
    for (policies, severity, kept) in [
        ("error", Severity::Warning, false),
        ("error:warn", Severity::Warning, true),
        ("error:warn", Severity::Error, true),
        ("error:warn", Severity::Fine, false),
    ] {
        let decided = sampler(policies).decide(&Trace { severity, ..trace(KeyNumber::OTHERS, 0) });
        assert_eq!(decided == Decided::Kept(0), kept, "{policies}, {severity:?}");
    }
}

/// The published bound: at most min(burst + rate W, keys (key_burst + key_rate W)) traces in any
/// interval, and the same for bytes.
#[test]
fn a_policy_keeps_no_more_than_its_worst_case() {
    let sampler = sampler("error(traces=20,burst=30,key_traces=4,key_burst=5,bytes=10000,bytes_burst=20000)");
    let keys: Vec<_> = (0..6).map(|key| sampler.key(&format!("key {key}"))).collect();
    let mut kept: Vec<(u64, KeyNumber, u64)> = Vec::new();
    let mut now = 0;
    for step in 0..40_000_u64 {
        // Bursts and pauses, of one key and of all.
        now += if step % 5_000 == 0 { 20 * SECOND } else { (step * 7_919) % 2_000_000 };
        let key = keys[(step / 1_000 % 6) as usize * usize::from(step % 3 == 0)];
        let bytes = 100 + step % 900;
        let trace = Trace { key, bytes, now: Nanos::new(now), ..failed(now) };
        if sampler.decide(&trace) == Decided::Kept(0) {
            kept.push((now, key, bytes));
        }
    }
    assert!(kept.len() > 300, "{}", kept.len());
    for from in 0..kept.len() {
        let (mut traces, mut bytes, mut of_key) = (0.0, 0.0, 0.0);
        for (at, key, size) in kept[from..].iter().take(300) {
            traces += 1.0;
            bytes += *size as f64;
            of_key += f64::from(u8::from(*key == kept[from].1));
            let seconds = (at - kept[from].0) as f64 / 1e9;
            assert!(traces <= 30.0 + 20.0 * seconds + 1e-6, "{traces} traces in {seconds} s");
            assert!(bytes <= 20_000.0 + 10_000.0 * seconds + 1e-3, "{bytes} bytes in {seconds} s");
            assert!(of_key <= 5.0 + 4.0 * seconds + 1e-6, "{of_key} traces of a key in {seconds} s");
        }
    }
}

/// If one allowance refuses a trace, the others get their units back.
#[test]
fn a_trace_that_is_refused_takes_nothing() {
    let sampler = sampler("error(traces=1,burst=1,key_traces=1,key_burst=1,bytes=1,bytes_burst=100)");
    let large = Trace { bytes: 101, ..failed(0) };
    for _ in 0..100 {
        assert_eq!(sampler.decide(&large), Decided::Refused(0));
    }
    assert_eq!(sampler.decide(&Trace { bytes: 100, ..failed(0) }), Decided::Kept(0));
}

#[test]
fn slow_is_what_few_of_the_keys_own_roots_are() {
    let sampler = sampler("slow:p99()");
    let (fast, slow) = (sampler.key("fast"), sampler.key("slow"));
    let mut random = SplitMix::new(1);
    let mut kept = [0_u64; 2];
    for call in 0..100_000_u64 {
        let (at, key, base) = if call % 2 == 0 { (0, fast, 1_000_000) } else { (1, slow, 1_000_000_000) };
        let duration = base + random.below(base);
        let now = call * 1_000_000;
        if call == 150 {
            let decided = sampler.decide(&Trace { duration: Nanos::new(u64::MAX), ..trace(key, now) });
            assert_eq!(decided, Decided::Unwanted, "75 calls are too few for a p99");
        }
        let trace = Trace { duration: Nanos::new(duration), ..trace(key, now) };
        kept[at] += u64::from(sampler.decide(&trace) == Decided::Kept(0));
        sampler.count(key, 0, &ended(now, duration));
    }
    for kept in kept {
        // The quantile is known to half a percent of its value, the range of one in a hundred of
        // these durations.
        assert!((350..=900).contains(&kept), "{kept} of 50,000");
    }
}

/// A service whose responses become slower for good counts as slow by its earlier durations for
/// minutes, and not forever.
#[test]
fn the_durations_behind_quantiles_are_of_the_last_minutes() {
    let sampler = sampler("slow:p90()");
    let key = sampler.key("GET /");
    let mut now = 0;
    let mut roots = |number: u64, millis: u64| {
        let mut slow = 0;
        for _ in 0..number {
            now += 50_000_000;
            let trace = Trace { duration: Nanos::from_millis(millis), ..trace(key, now) };
            slow += u64::from(sampler.decide(&trace) == Decided::Kept(0));
            sampler.count(key, 0, &ended(now, millis * 1_000_000));
        }
        slow
    };
    // Twenty per second: for an hour, then for ten minutes; after that none is slow.
    assert_eq!(roots(72_000, 10), 0);
    assert!(roots(12_000, 20) > 500);
    assert_eq!(roots(12_000, 20), 0);
    let outcomes = sampler.outcomes();
    assert_eq!(outcomes[0].calls, 96_000, "all roots are counted, however old");
    assert_eq!(outcomes[0].durations.sum_seconds(), 72_000.0 * 0.01 + 24_000.0 * 0.02);
}

#[test]
fn a_shape_is_odd_once_an_hour_and_in_each_key() {
    let sampler = sampler("odd()");
    let (one, other) = (sampler.key("one"), sampler.key("other"));
    let is_odd = |key, shape, minutes: u64| {
        sampler.decide(&Trace { shape, ..trace(key, minutes * 60 * SECOND) }) == Decided::Kept(0)
    };
    assert!(is_odd(one, 1, 0));
    assert!(!is_odd(one, 1, 1));
    assert!(is_odd(one, 2, 1));
    assert!(is_odd(other, 1, 1));
    // A shape seen repeatedly stays known; after an hour without it, it is new.
    assert!(!is_odd(one, 1, 59) && !is_odd(one, 1, 110));
    assert!(is_odd(other, 1, 110));
    // The clock is set back by three hours, which makes nothing odd.
    let sampler = self::sampler("odd()");
    let decide = |minutes: u64| sampler.decide(&trace(KeyNumber::OTHERS, minutes * 60 * SECOND));
    assert_eq!((decide(200), decide(20)), (Decided::Kept(0), Decided::Unwanted));
}

/// An endless stream of new shapes evicts earlier ones, and takes no more memory.
#[test]
fn a_flood_of_shapes_is_counted() {
    let sampler = sampler("odd()");
    for shape in 0..100_000_u64 {
        sampler.decide(&Trace {
            shape: shape.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ..trace(KeyNumber::OTHERS, 0)
        });
    }
    let forgotten = sampler.shapes_forgotten();
    assert_eq!(sampler.counts()[0].kept, 100_000);
    assert!((80_000..100_000).contains(&forgotten), "{forgotten}");
}

#[test]
fn conditions_compare_numbers_as_numbers() {
    struct One(Value<'static>);
    impl View for One {
        fn any_attribute(&self, name: &str, test: &mut dyn FnMut(Value<'_>) -> bool) -> bool {
            name == "n" && test(self.0)
        }
    }
    for (condition, value, holds) in [
        ("attr:n>=500", Value::Int(500), true),
        ("attr:n>=500", Value::Int(499), false),
        ("attr:n>=500", Value::Text("503"), true),
        ("attr:n>=500", Value::Text("no"), false),
        ("attr:n!=500", Value::Text("no"), true),
        ("attr:n<0.5", Value::Float(0.25), true),
        ("attr:n<0.5", Value::Float(f64::NAN), false),
        ("attr:n=true", Value::Bool(true), true),
        ("attr:n=true", Value::Text("true"), true),
        ("attr:n=GET", Value::Text("GET"), true),
        ("attr:n=GET", Value::Text("get"), false),
        ("attr:n=9007199254740993", Value::Int(9_007_199_254_740_992), false),
        ("attr:n>9007199254740992", Value::Int(9_007_199_254_740_993), true),
        ("attr:m=1", Value::Int(1), false),
    ] {
        let decided = sampler(condition).decide(&Trace { view: &One(value), ..trace(KeyNumber::OTHERS, 0) });
        assert_eq!(decided == Decided::Kept(0), holds, "{condition} of {value:?}");
    }
    assert!(Condition::new("a b", astracer_samplers::tail::Comparison::Equal, "1").is_err());
}

#[test]
fn a_key_is_armed_by_its_first_roots_and_by_what_goes_wrong() {
    let sampler = sampler("error,slow:1s");
    let key = sampler.key("GET /");
    let is_recorded = |randomness: u64, now| {
        sampler.is_recorded(key, Randomness::from_trace_id(u128::from(randomness)), Nanos::new(now))
    };
    assert_eq!((0..100).filter(|_| is_recorded(UNLUCKY, 0)).count(), 16, "the first roots");
    assert!(is_recorded(1_024, 0), "the share that is always recorded");
    let count = |is_error, duration, now| sampler.count(key, 0, &Ended { is_error, ..ended(now, duration) });
    count(false, SECOND, 0);
    assert!(!is_recorded(UNLUCKY, 1));
    count(true, 1, SECOND);
    assert!(is_recorded(UNLUCKY, 10 * SECOND) && !is_recorded(UNLUCKY, 11 * SECOND + 1));
    count(false, SECOND + 1, 20 * SECOND);
    assert!(is_recorded(UNLUCKY, 29 * SECOND) && !is_recorded(UNLUCKY, 31 * SECOND));
    assert!(sampler.arm(Some("GET /"), Nanos::from_secs(100), Nanos::from_secs(60)));
    assert!(is_recorded(UNLUCKY, 159 * SECOND) && !is_recorded(UNLUCKY, 161 * SECOND));
    assert!(!sampler.arm(Some("GET /never-seen"), Nanos::ZERO, Nanos::from_secs(60)));
    // The clock is set back by a day: the key does not stay armed for a day.
    sampler.arm(None, Nanos::from_secs(90_000), Nanos::from_secs(60));
    assert!(!is_recorded(UNLUCKY, 200 * SECOND));
    count(true, 1, 200 * SECOND);
    assert!(is_recorded(UNLUCKY, 201 * SECOND) && !is_recorded(UNLUCKY, 211 * SECOND));
    let outcomes = &sampler.outcomes()[0];
    assert_eq!((outcomes.calls, outcomes.errors, outcomes.missed_errors, outcomes.missed_slow), (4, 2, 2, 1));
}

/// A key of any length takes bounded memory: long keys with the same beginning share a record.
#[test]
fn long_keys_are_told_apart_by_their_beginning() {
    // The 256th byte is in the middle of a character.
    let long = |end: &str| format!("{}ä{end}", "x".repeat(255));
    let tail: Tail = "error".parse().unwrap();
    let tail =
        tail.with_provisional(ProvisionalMode::Never).with_provisional_of(long("a"), ProvisionalMode::Always);
    let sampler = TailSampler::new(&tail, Limits::default());
    let key = sampler.key(&long(&"b".repeat(1_000_000)));
    assert_eq!(key, sampler.key(&long("c")));
    assert_eq!(sampler.key_text(key), Some(&*"x".repeat(255)));
    assert_eq!(sampler.provisional(key), ProvisionalMode::Always);
    assert!(sampler.arm(Some(&long("d")), Nanos::ZERO, Nanos::from_secs(1)));
    assert_ne!(key, sampler.key(&"x".repeat(254)));
}

#[test]
fn never_and_always_are_by_key() {
    let tail: Tail = "error".parse().unwrap();
    let tail =
        tail.with_provisional(ProvisionalMode::Never).with_provisional_of("vip", ProvisionalMode::Always);
    let sampler = TailSampler::new(&tail, Limits::default());
    let is_recorded = |key| sampler.is_recorded(sampler.key(key), Randomness::MIN, Nanos::ZERO);
    assert_eq!((is_recorded("vip"), is_recorded("other")), (true, false));
    assert!(sampler.set_provisional("other", ProvisionalMode::Always));
    assert!(is_recorded("other") && !sampler.set_provisional("unknown", ProvisionalMode::Always));
}

/// A flood of other keys does not take the records of keys that the settings name.
#[test]
fn a_key_with_settings_of_its_own_has_a_record_whoever_comes_first() {
    let tail: Tail = "error".parse().unwrap();
    let tail =
        tail.with_provisional(ProvisionalMode::Never).with_provisional_of("vip", ProvisionalMode::Always);
    let sampler = TailSampler::new(&tail, Limits::single_threaded().with_keys(10));
    (0..100).for_each(|number| _ = sampler.key(&format!("flood {number}")));
    let vip = sampler.key("vip");
    assert_eq!((sampler.provisional(vip), sampler.key_text(vip)), (ProvisionalMode::Always, Some("vip")));
    assert!(sampler.outcomes().is_empty(), "it has no calls");
}

#[test]
fn keys_are_bounded_and_the_rest_is_counted_as_one() {
    let tail: Tail = "error".parse().unwrap();
    let sampler = TailSampler::new(&tail, Limits::default().with_keys(10));
    for round in 0..3 {
        for key in 0..1_000 {
            let key = sampler.key(&format!("key {key}"));
            sampler.count(key, round, &ended(0, 5));
        }
    }
    let outcomes = sampler.outcomes();
    assert_eq!(outcomes.iter().map(|outcomes| outcomes.calls).sum::<u64>(), 3_000);
    assert!((8..=11).contains(&outcomes.len()), "{}", outcomes.len());
    assert_eq!(outcomes.last().unwrap().key, None);
    assert!(outcomes[..outcomes.len() - 1].iter().all(|outcomes| outcomes.calls == 3));
}

/// Threads count roots concurrently, and none is lost.
#[test]
fn threads_count_exactly() {
    let sampler = sampler("error,slow:p99");
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let sampler = &sampler;
            scope.spawn(move || {
                for call in 0..5_000_u64 {
                    let key = sampler.key(&format!("key {}", call % 7));
                    let ended = Ended { is_error: call % 10 == 0, ..ended(call, 1 + call) };
                    sampler.count(key, thread, &ended);
                }
            });
        }
    });
    let outcomes = sampler.outcomes();
    assert_eq!(outcomes.len(), 7);
    assert_eq!(
        outcomes.iter().map(|key| (key.calls, key.errors)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
        (20_000, 2_000)
    );
}

#[test]
fn slow_is_longer_than_the_time_that_is_given() {
    let sampler = sampler("slow:1s()");
    let of = |nanos| Trace { duration: Nanos::new(nanos), ..trace(KeyNumber::OTHERS, 0) };
    assert_eq!(sampler.decide(&of(SECOND)), Decided::Unwanted);
    assert_eq!(sampler.decide(&of(SECOND + 1)), Decided::Kept(0));
}

#[test]
fn the_first_policy_without_a_budget_is_named() {
    let sampler = sampler("error(traces=1,burst=1),slow:1ms(traces=1,burst=1)");
    let trace = Trace { duration: Nanos::from_millis(2), ..failed(0) };
    let decided: Vec<_> = (0..3).map(|_| sampler.decide(&trace)).collect();
    assert_eq!(decided, [Decided::Kept(0), Decided::Kept(1), Decided::Refused(0)]);
}

#[test]
fn a_key_is_armed_for_an_hour_at_most() {
    let sampler = sampler("error");
    let key = sampler.key("GET /");
    let is_recorded = |seconds| {
        sampler.is_recorded(key, Randomness::from_trace_id(u128::from(UNLUCKY)), Nanos::from_secs(seconds))
    };
    assert_eq!((0..20).filter(|_| is_recorded(0)).count(), 16, "the first roots");
    sampler.arm(Some("GET /"), Nanos::ZERO, Nanos::from_secs(7_200));
    assert_eq!([0, 1, 3_599, 3_600, 3_601].map(is_recorded), [true, true, true, false, false]);
}

#[test]
fn only_what_was_not_recorded_is_missed() {
    for is_recorded in [false, true] {
        let sampler = sampler("error,slow:1s");
        let key = sampler.key("GET /");
        sampler.count(key, 0, &Ended { is_error: true, is_recorded, ..ended(0, 2 * SECOND) });
        let outcomes = &sampler.outcomes()[0];
        let missed = u64::from(!is_recorded);
        assert_eq!((outcomes.missed_errors, outcomes.missed_slow), (missed, missed));
    }
}

/// Just after a new generation of durations begins, a quantile is that of the previous one.
#[test]
fn a_quantile_is_known_when_its_durations_are_exchanged() {
    let sampler = sampler("slow:p90()");
    let key = sampler.key("GET /");
    for second in 0..520 {
        sampler.count(key, 0, &ended(second * SECOND, 10_000_000));
    }
    let slow = Trace { duration: Nanos::from_secs(1), ..trace(key, 520 * SECOND) };
    assert_eq!(sampler.decide(&slow), Decided::Kept(0));
}

#[test]
fn roots_before_a_long_rest_stay_counted() {
    let sampler = sampler("error");
    let key = sampler.key("GET /");
    for second in [0, 1_000, 1_001, 9_000] {
        sampler.count(key, 0, &ended(second * SECOND, 1));
    }
    assert_eq!(sampler.outcomes()[0].calls, 4);
}

#[test]
fn a_shape_that_makes_room_within_its_hour_is_counted() {
    for (second, forgotten) in [(3_599, 1), (3_600, 0)] {
        let mut limits = Limits::single_threaded();
        limits.shapes = 8;
        let sampler = TailSampler::new(&"odd()".parse().unwrap(), limits);
        let at = |shape, second| Trace { shape, ..trace(KeyNumber::OTHERS, second * SECOND) };
        (1..=8).for_each(|shape| assert_eq!(sampler.decide(&at(shape << 40, 0)), Decided::Kept(0)));
        assert_eq!(sampler.decide(&at(9 << 40, second)), Decided::Kept(0));
        assert_eq!(sampler.shapes_forgotten(), forgotten, "{second}");
    }
}

#[test]
fn a_histogram_tells_how_many_are_at_most_this_long() {
    let mut histogram = Histogram::default();
    (0..10).for_each(|_| histogram.record(Nanos::from_millis(1)));
    histogram.record(Nanos::from_secs(1));
    let counted = [Nanos::new(500_000), Nanos::from_millis(10), Nanos::from_secs(2)];
    assert_eq!(counted.map(|duration| histogram.count_up_to(duration)), [0, 10, 11]);
}

/// Each further error extends the time, counted from the last one.
#[test]
fn a_key_is_armed_from_its_last_error_on() {
    let sampler = sampler("error");
    let key = sampler.key("GET /");
    let is_recorded =
        |nanos| sampler.is_recorded(key, Randomness::from_trace_id(u128::from(UNLUCKY)), Nanos::new(nanos));
    (0..16).for_each(|_| assert!(is_recorded(0)));
    for millis in [0, 4_500, 5_000] {
        sampler.count(key, 0, &Ended { is_error: true, ..ended(millis * 1_000_000, 1) });
    }
    assert_eq!([15 * SECOND - 1, 15 * SECOND].map(is_recorded), [true, false]);
}

/// The quantile is one of the key's own durations, which is not above itself.
#[test]
fn a_root_as_long_as_the_quantile_is_not_slow() {
    let sampler = sampler("slow:p90");
    let key = sampler.key("GET /");
    for call in 0..1_000 {
        sampler.count(key, 0, &ended(call, 10_000_000));
    }
    assert_eq!(sampler.outcomes()[0].missed_slow, 0);
    sampler.count(key, 0, &ended(1_000, 10_000_001));
    assert_eq!(sampler.outcomes()[0].missed_slow, 1);
}

/// The same holds for the cap of a head sampler.
#[test]
fn replicas_share_a_budget() {
    let sampler = sampler("error(traces=8,burst=8,bytes=8000,bytes_burst=16000,replicas=4)");
    let decided = [0, 0, 0, 1, 1].map(|second| sampler.decide(&failed(second * SECOND)));
    use Decided::{Kept, Refused};
    assert_eq!(decided, [Kept(0), Kept(0), Refused(0), Kept(0), Kept(0)]);
    assert!(
        !sampler.may_follow(0, KeyNumber::OTHERS, 3_000, Nanos::new(SECOND)),
        "4,000 of 6,000 bytes are used"
    );
}

#[test]
fn a_key_has_its_own_budget_of_bytes() {
    let sampler = sampler("error(key_bytes=1,key_bytes_burst=1500)");
    let (one, other) = (sampler.key("one"), sampler.key("other"));
    let decided = [one, one, other].map(|key| sampler.decide(&Trace { key, ..failed(0) }));
    assert_eq!(decided, [Decided::Kept(0), Decided::Refused(0), Decided::Kept(0)]);
}

/// One call in 1.25 s: the 256th comes after 320 s, when the first five minutes are over. Later
/// durations count as they come.
#[test]
fn durations_are_exchanged_after_five_minutes() {
    let sampler = sampler("slow:p90()");
    let key = sampler.key("GET /");
    for call in 1..=384_u64 {
        let millis = if call <= 256 { 10 } else { 20 };
        sampler.count(key, 0, &ended(call * 1_250_000_000, millis * 1_000_000));
    }
    let between = Trace { duration: Nanos::from_millis(15), ..trace(key, 480 * SECOND) };
    assert_eq!(sampler.decide(&between), Decided::Unwanted, "a third of the calls took longer");
}

/// After a pause of ten minutes a key has no quantile until it has enough calls again.
#[test]
fn durations_before_a_long_rest_are_no_part_of_quantiles() {
    for (second, known) in [(599, true), (600, false)] {
        let sampler = sampler("slow:p90()");
        let key = sampler.key("GET /");
        (1..=255).for_each(|call| sampler.count(key, 0, &ended(call, 10_000_000)));
        sampler.count(key, 0, &ended(second * SECOND, 10_000_000));
        let slow = Trace { duration: Nanos::from_secs(1), ..trace(key, second * SECOND) };
        assert_eq!(sampler.decide(&slow) == Decided::Kept(0), known, "{second}");
    }
}

/// Durations from before the clock was set back are replaced like any others.
#[test]
fn durations_are_exchanged_where_the_clock_was_set_back() {
    let sampler = sampler("slow:p50()");
    let key = sampler.key("GET /");
    let call = |second: u64, millis: u64| {
        sampler.count(key, 0, &ended(second * 1_000_000_000, millis * 1_000_000));
    };
    (0..50_000).for_each(|_| call(100_000, 10));
    // More than ten minutes, with longer calls in the second part.
    (0..3_000).for_each(|at| call(10 + at, 50));
    let slow = |millis: u64| {
        let trace = Trace { duration: Nanos::from_millis(millis), ..trace(key, 3_010_000_000_000) };
        sampler.decide(&trace) == Decided::Kept(0)
    };
    assert!(!slow(40) && slow(60), "half of the last calls take 50 ms");
}
