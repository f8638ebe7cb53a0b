//! Properties that all baselines share: their text form, and keys.

use super::*;

#[test]
fn every_kind_survives_printing() {
    let specs = all();
    assert_eq!(specs.len(), 15);
    for spec in specs {
        let text = spec.to_string();
        assert_eq!(text.parse::<BaselineSpec>(), Ok(spec.clone()), "{text}");
        assert_eq!(spec.kind().name.parse::<BaselineSpec>(), Ok(spec), "defaults of {text}");
    }
    for text in [
        "ratio:0.1",
        "every:10",
        "dynsampler-avg:goal=7.5,period=30s",
        "dynsampler-windowed:goal=100,period=0.5s,lookback=30s",
        "grafana-diversity:p=0.05,interval=900s",
        "jaeger-adaptive:target=1,period=60s,buckets=3,initial=0.001,lower=60s",
        "xray:rate=0,reservoir=1",
    ] {
        assert_eq!(text.parse::<BaselineSpec>().map(|spec| spec.to_string()).as_deref(), Ok(text));
    }
    let reordered = "xray:reservoir=2".parse::<BaselineSpec>().map(|spec| spec.to_string());
    assert_eq!(reordered.as_deref(), Ok("xray:rate=0.05,reservoir=2"));
}

#[test]
fn what_is_not_a_baseline_is_refused_with_a_hint() {
    let check = |text: &str, hint: &str| {
        let error = text.parse::<BaselineSpec>().expect_err(text).to_string();
        assert!(error.contains(hint), "{text}: {error}");
    };
    check("", "use one of ratio, every,");
    check("braves:rate=1", "use one of");
    check("brave:", "brave:rate=10");
    check("brave:5", "brave:rate=10");
    check("brave:rate=1.5", "a whole number from 1 to 2147483647");
    check("brave:rate=0", "from 1");
    check("brave:rate=5,rate=6", "twice");
    check("ratio:rate=0.1", "ratio:0.1");
    check("ratio:1.1", "to 1");
    check("ratio:NaN", "a number");
    check("dynsampler-avg:period=30", "30s");
    check("grafana-diversity:interval=900", "30s");
    check("dynsampler-avg:goal=inf", "a number");
    check("waterfill:rate=-1", "a number");
}

#[test]
fn times_are_shortened_to_fit_a_recording() {
    let check = |text: &str, recording_s: f64, expected: &str| {
        let spec: BaselineSpec = text.parse().expect(text);
        assert_eq!(spec.quickened_for(recording_s).to_string(), expected);
    };
    check("dynsampler-avg", 300.0, "dynsampler-avg:goal=10,period=30s");
    check("dynsampler-avg", 299.0, "dynsampler-avg:goal=10,period=15s");
    check("dynsampler-windowed", 20.0, "dynsampler-windowed:goal=100,period=0.05s,lookback=1.5s");
    check("waterfill", 6.2, "waterfill:rate=10,bucket=0.5s");
    check("brave", 1.0, "brave:rate=10");
    // Its interval is what it promises.
    check("grafana-diversity", 20.0, "grafana-diversity:p=0.1,interval=900s");
    // No divisor fits a recording of length zero.
    check("dynsampler-avg", 0.0, "dynsampler-avg:goal=10,period=30s");
    check("dynsampler-avg", 1e-3, "dynsampler-avg:goal=10,period=0.001s");
}

#[test]
fn keys_are_ordered_by_the_bytes_of_their_names() {
    let keys = Keys::new(["b", "a", "aa", "Z"]);
    assert_eq!([0, 1, 2, 3].map(|key| keys.place(key)), [3, 1, 2, 0]);
}
