use super::*;
use crate::nanos::Nanos;
use crate::probability::Probability;
use proptest::prelude::*;

/// The text parses, and prints as `printed`, which parses to the same config.
#[track_caller]
fn check(text: &str, printed: &str) -> Config {
    let config: Config = text.parse().unwrap();
    assert_eq!(config.to_string(), printed);
    assert_eq!(printed.parse::<Config>().unwrap(), config);
    config
}

#[test]
fn reads_and_prints_every_sampler() {
    assert_eq!(check("always", "always"), Config::Always);
    assert_eq!(check(" never\n", "never"), Config::Never);
    check("ratio:0.10", "ratio:0.1");
    check("ratio:1e-3", "ratio:0.001");
    assert_eq!(check("every:10", "every:10"), Config::EveryNth(NonZeroU64::new(10).unwrap()));
    check("bump:lambda=10,min=0.01,window=1s", "bump:lambda=10,min=0.01,window=1s");
    check("bump:lambda=10", "bump:lambda=10,min=0,window=1s");
    check("bump:window=0.5s,shift=on,lambda=2.5", "bump:lambda=2.5,min=0,window=500ms,shift=on");
    check("bump:lambda=10,shift=off", "bump:lambda=10,min=0,window=1s");
    check("bucket:rate=0.25,capacity=1.5", "bucket:capacity=1.5,rate=0.25");
}

#[test]
fn overrides_inherit_what_they_do_not_name() {
    let config = check(
        r#"bucket:capacity=50,rate=2;"GET /":rate=9;"a\"\\;,=b":capacity=1"#,
        r#"bucket:capacity=50,rate=2;"GET /":capacity=50,rate=9;"a\"\\;,=b":capacity=1,rate=2"#,
    );
    let Config::TokenBucket(buckets) = config else { panic!("{config}") };
    assert_eq!(buckets.of("GET /"), &TokenBucket::new(50.0, 9.0).unwrap());
    assert_eq!(buckets.of(r#"a"\;,=b"#), &TokenBucket::new(1.0, 2.0).unwrap());
    assert_eq!(buckets.of("other"), buckets.default());
    let config = check(
        r#"bump:lambda=10,min=0.01,window=2s,shift=on;"x":lambda=3;"y":min=1,window=1s"#,
        r#"bump:lambda=10,min=0.01,window=2s,shift=on;"x":lambda=3,min=0.01,window=2s,shift=on,exponent=2;"y":lambda=10,min=1,window=1s,shift=on,exponent=2"#,
    );
    let Config::Bump(bumps) = config else { panic!("{config}") };
    let x = Bump::new(3.0, Probability::new(0.01).unwrap(), Nanos::from_secs(2)).unwrap().shifted(true);
    assert_eq!(bumps.of("x"), &x);
}

#[test]
fn no_count_is_inherited_and_can_be_left() {
    check(
        r#"bump:lambda=0,min=0.1,count=none;"a":min=0.5;"b":tau=2s;"c":lambda=1,window=1s"#,
        concat!(
            r#"bump:lambda=0,min=0.1,count=none"#,
            r#";"a":lambda=0,min=0.5,count=none,exponent=2"#,
            r#";"b":lambda=0,min=0.1,count=decaying,tau=2s,exponent=2"#,
            r#";"c":lambda=1,min=0.1,window=1s,shift=off,exponent=2"#,
        ),
    );
    for part in ["window=1s", "shift=on", "tau=1s"] {
        let error = format!("bump:lambda=0,count=none,{part}").parse::<Config>().unwrap_err();
        assert!(error.to_string().contains("nothing is counted"), "{error}");
    }
}

#[test]
fn a_decaying_count_is_inherited_and_can_be_left() {
    check("bump:lambda=3,tau=1500ms", "bump:lambda=3,min=0,count=decaying,tau=1500ms");
    check(
        "bump:lambda=3,count=decaying,exponent=0.7",
        "bump:lambda=3,min=0,count=decaying,tau=1s,exponent=0.7",
    );
    check("bump:lambda=3,count=tumbling,exponent=1", "bump:lambda=3,min=0,window=1s,exponent=1");
    check(
        r#"bump:lambda=3,tau=2s,exponent=1;"a":min=0.5;"b":tau=3s;"c":window=4s;"d":count=tumbling,exponent=2"#,
        concat!(
            r#"bump:lambda=3,min=0,count=decaying,tau=2s,exponent=1"#,
            r#";"a":lambda=3,min=0.5,count=decaying,tau=2s,exponent=1"#,
            r#";"b":lambda=3,min=0,count=decaying,tau=3s,exponent=1"#,
            r#";"c":lambda=3,min=0,window=4s,shift=off,exponent=1"#,
            r#";"d":lambda=3,min=0,window=1s,shift=off,exponent=2"#,
        ),
    );
    for (text, message) in [
        ("bump:lambda=3,tau=1s,window=1s", "unknown parameter `window`: a decaying count has no window"),
        (
            "bump:lambda=3,count=decaying,window=1s",
            "unknown parameter `window`: a decaying count has no window",
        ),
        (
            "bump:lambda=3,count=decaying,shift=on",
            "unknown parameter `shift`: a decaying count has no window",
        ),
        ("bump:lambda=3,count=tumbling,tau=1s", "unknown parameter `tau`"),
        (
            "bump:lambda=3,count=rolling",
            "cannot read `count=rolling`: write count=tumbling, count=decaying or count=none",
        ),
        ("bump:lambda=3,tau=0.9ms", "`tau=900us` is out of range: tau must last at least a millisecond"),
        ("bump:lambda=3,tau=1", "cannot read `tau=1`: write a number with a unit"),
        ("bump:lambda=3,exponent=0", "`exponent=0` is out of range"),
        ("bump:lambda=3,exponent=nan", "`exponent=NaN` is out of range"),
        ("bump:lambda=3,exponent=11", "`exponent=11` is out of range"),
    ] {
        let error = text.parse::<Config>().unwrap_err().to_string();
        assert!(error.starts_with(message), "{text}: {error}");
    }
}

#[test]
fn keys_with_parameters_of_their_own_are_bounded() {
    let text = |keys: usize| {
        (0..keys).fold("bump:lambda=1".to_owned(), |text, key| text + &format!(";\"{key}\":min=0"))
    };
    assert!(text(10_000).parse::<Config>().is_ok());
    let error = text(10_001).parse::<Config>().unwrap_err();
    assert!(error.is_out_of_range() && error.to_string().contains("at most 10000 keys"), "{error}");
}

#[test]
fn an_override_can_switch_the_shift_off() {
    check(
        r#"bump:lambda=1,shift=on;"x":shift=off"#,
        r#"bump:lambda=1,min=0,window=1s,shift=on;"x":lambda=1,min=0,window=1s,shift=off,exponent=2"#,
    );
}

/// Each error names the part at fault.
#[test]
fn errors_name_the_part_and_the_remedy() {
    for (text, message) in [
        ("", "unknown sampler ``: use one of `bump:"),
        ("Bump:lambda=1", "unknown sampler `Bump`: use one of"),
        ("always:1", "unknown parameter `1`: `always` has no parameters; write always"),
        ("never:", "unknown parameter ``: `never` has no parameters"),
        ("ratio", "`ratio` is missing: give a share, such as ratio:0.1"),
        ("ratio:x", "cannot read `x`: write a number, for example ratio:0.1"),
        ("ratio:2", "`2` is out of range: a probability must be from 0 to 1"),
        ("ratio:nan", "`nan` is out of range: a probability"),
        (
            "ratio:0",
            "`0` is out of range: a ratio is at least 2^-56; to keep nothing, use the sampler `never`",
        ),
        ("every", "`every` is missing: give a number, such as every:10"),
        ("every:0", "cannot read `0`: use a whole number from 1"),
        ("every:1.5", "cannot read `1.5`: use a whole number"),
        ("bump", "`lambda` is missing: give a lambda, such as bump:lambda=10"),
        ("bump:", "`lambda` is missing"),
        ("bump:min=0.1", "`lambda` is missing"),
        ("bump:10", "cannot read `10`: write parameters as name=value"),
        ("bump:lambda=ten", "cannot read `lambda=ten`: write a number, for example lambda=10"),
        ("bump:lambda=NaN", "`lambda=NaN` is out of range: lambda must be a finite number"),
        ("bump:lambda=inf", "`lambda=inf` is out of range: lambda"),
        ("bump:lambda=-1", "`lambda=-1` is out of range: lambda"),
        ("bump:lambda=1,min=1.5", "`min=1.5` is out of range: a probability must be from 0 to 1"),
        ("bump:lambda=1,window=1", "cannot read `window=1`: write a number with a unit (h, m, s"),
        ("bump:lambda=1,window=0s", "`window=0s` is out of range: a window must last at least a millisecond"),
        ("bump:lambda=1,window=999999ns", "`window=999999ns` is out of range"),
        ("bump:lambda=1,shift=yes", "cannot read `shift=yes`: write shift=on or shift=off"),
        ("bump:lambda=1,lambda=2", "`lambda` is given twice: give each parameter once"),
        ("bump:lambda=1,rate=2", "unknown parameter `rate`: use lambda, min, window, shift"),
        ("bump:lambda=1,", "cannot read ``: write parameters as name=value"),
        ("bucket", "`capacity` is missing: give both, such as bucket:capacity=50,rate=2"),
        ("bucket:capacity=5", "`rate` is missing"),
        ("bucket:capacity=0,rate=1", "`capacity=0` is out of range: a bucket must hold at least one token"),
        ("bucket:capacity=0.9,rate=1", "`capacity=0.9` is out of range"),
        ("bucket:capacity=inf,rate=1", "`capacity=inf` is out of range"),
        ("bucket:capacity=1,rate=0", "`rate=0` is out of range: the rate must be a finite number"),
        ("bucket:capacity=1,rate=-1", "`rate=-1` is out of range"),
        ("bucket:capacity=1,rate=inf", "`rate=inf` is out of range"),
        ("bucket:capacity=1,rate=NaN", "`rate=NaN` is out of range"),
        (
            "bucket:capacity=10,rate=1e-10",
            "`capacity=10,rate=0.0000000001` is out of range: this bucket would take more",
        ),
        ("bucket:capacity=1,rate=1,lambda=1", "unknown parameter `lambda`: use capacity, rate"),
        ("bucket:capacity=1,rate=1;x:rate=2", "cannot read `x:rate=2`: after `;` write a quoted key"),
        ("bucket:capacity=1,rate=1;\"x\"rate=2", "cannot read `\"x\"rate=2`: after `;`"),
        ("bucket:capacity=1,rate=1;\"x", "cannot read `\"x`: after `;`"),
        ("bucket:capacity=1,rate=1;\"x\\n\":rate=2", "cannot read `\"x\\n\":rate=2`: after `;`"),
        ("bucket:capacity=1,rate=1;", "cannot read ``: after `;`"),
        ("bucket:capacity=1,rate=1;\"x\":rate=0", "`rate=0` is out of range"),
        ("bucket:capacity=1,rate=1;\"x\":rate=2;\"x\":rate=3", "`x` is given twice: give each key once"),
    ] {
        let error = text.parse::<Config>().unwrap_err();
        assert!(error.to_string().starts_with(message), "{text}: {error}");
        assert!(error.to_string().contains(error.part()) && error.to_string().ends_with(error.remedy()));
    }
}

#[test]
fn errors_can_be_told_apart() {
    let error = |text: &str| text.parse::<Config>().unwrap_err();
    assert!(error("x").is_unknown_sampler() && !error("x").is_missing());
    assert!(error("bump:lambda=1,x=2").is_unknown_parameter() && !error("bump").is_unknown_parameter());
    assert!(error("bump").is_missing() && !error("x").is_out_of_range());
    assert!(error("ratio:2").is_out_of_range() && !error("ratio:2").is_unknown_sampler());
}

proptest! {
    #[test]
    fn bump_round_trips(
        lambda in 0.0..1e300, min in 0.0..=1.0, window in 1_000_000u64.., shift: bool, key in ".*", other: f64,
    ) {
        let bump = Bump::new(lambda, Probability::new(min).unwrap(), Nanos::new(window)).unwrap().shifted(shift);
        let mut bumps = PerKey::new(bump.clone());
        if let Ok(other) = Bump::new(other, Probability::ONE, Nanos::from_secs(1)) {
            bumps = bumps.with_override(key, other);
        }
        let config = Config::Bump(bumps);
        prop_assert_eq!(config.to_string().parse::<Config>().unwrap(), config);
    }

    #[test]
    fn bucket_round_trips(capacity in 1.0..1e6, rate in 1e-3..1e12, key in ".*") {
        let bucket = TokenBucket::new(capacity, rate).unwrap();
        let config = Config::TokenBucket(PerKey::new(bucket.clone()).with_override(key, bucket));
        prop_assert_eq!(config.to_string().parse::<Config>().unwrap(), config);
    }

    #[test]
    fn no_text_makes_it_panic(text in "(bump|bucket|ratio|every|always):?[a-z=,;:\"\\\\0-9.é-]*") {
        let _ = text.parse::<Config>();
    }
}
