//! The guarantees of samplers on any text: configs, the tracestate, names.

use astracer_baselines::BaselineSpec;
use astracer_samplers::parameters::Parameters;
use astracer_samplers::tracestate::OtMember;
use astracer_samplers::{Config, Limits, Nanos, Randomness, Request, Sampler, Template};

/// A config that can be parsed prints as a text that parses to the same config. Its sampler decides
/// at any time and counts each call.
pub(super) fn check_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let config: Config = match text.parse() {
        Ok(config) => config,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let printed = config.to_string();
    assert_eq!(printed.parse(), Ok(config.clone()), "{printed}");
    decide(&config, &text);
}

/// A file that can be parsed prints as a text that parses to the same parameters, and its sampler
/// decides.
pub(super) fn check_parameters(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let parameters: Parameters = match text.parse() {
        Ok(parameters) => parameters,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let printed = parameters.to_string();
    assert_eq!(printed.parse(), Ok(parameters.clone()), "{printed}");
    decide(&parameters.config, &text);
}

/// A baseline that can be parsed prints as a text that parses to the same baseline.
pub(super) fn check_baseline(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match text.parse::<BaselineSpec>() {
        Ok(spec) => {
            let printed = spec.to_string();
            assert_eq!(
                printed.parse::<BaselineSpec>().map(|spec| spec.to_string()),
                Ok(printed.clone()),
                "{printed}"
            );
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Decides for a few more keys than the limit, at times that jump forwards and backwards.
fn decide(config: &Config, text: &str) {
    const KEYS: u32 = 2;
    let limits = Limits::single_threaded().with_keys(KEYS).with_idle(Nanos::new(1));
    let sampler = Sampler::with_limits(config, limits);
    let moments = [0, 1, u64::MAX, 999_999_999, 1_000_000_000, u64::MAX - 1, text.len() as u64, 1 << 63];
    let mut calls = 0;
    for (number, &now) in moments.iter().enumerate() {
        for key in ["", "GET /", text] {
            let randomness = if number % 2 == 0 { Randomness::MIN } else { Randomness::MAX };
            let decision = sampler.decide(&Request::new(key, randomness, Nanos::new(now)));
            if let Some(threshold) = decision.threshold {
                assert_eq!(decision.keep, threshold.keeps(randomness), "a threshold is true or absent");
            }
            calls += 1;
        }
    }
    if let Some(snapshot) = sampler.snapshot() {
        assert!(snapshot.keys.len() <= KEYS as usize);
        let of_keys: u64 = snapshot.keys.iter().map(|key| key.counts.seen()).sum();
        assert_eq!(
            of_keys + snapshot.overflow.seen() + snapshot.evicted.seen(),
            calls,
            "each call is counted once"
        );
    }
}

/// A member that can be parsed can be written into its tracestate, parses to the same member again,
/// and displaces no other member.
pub(super) fn check_tracestate(data: &[u8]) {
    let tracestate = String::from_utf8_lossy(data);
    if let Ok(member) = OtMember::parse(&tracestate) {
        let printed = member.to_string();
        // If a member consists only of malformed thresholds, its text is empty, and the tracestate
        // has no such member.
        if !printed.is_empty() {
            assert_eq!(OtMember::parse(&printed), Ok(member.clone()), "{printed}");
        }
    }
    let member = match OtMember::of(&tracestate) {
        Ok(member) => member,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let Ok(written) = member.write_to(&tracestate) else { return };
    assert_eq!(OtMember::of(&written), Ok(member.clone()), "{written}");
    assert_eq!(member.write_to(&written), Ok(written.clone()), "the second time");
    let others = |text: &str| -> Vec<String> {
        let members = text.split(',').map(|member| member.trim_matches([' ', '\t']).to_owned());
        members.filter(|member| !member.is_empty() && !member.starts_with("ot=")).collect()
    };
    let (before, after) = (others(&tracestate), others(&written));
    assert!(before.starts_with(&after), "the others stay, in their order: {before:?}, {after:?}");
    assert!(after.len() == before.len() || after.len() >= 31, "the others stay: {before:?}, {after:?}");
}

/// A template is not longer than its name, and is its own template.
pub(super) fn check_name(data: &[u8]) {
    let name = String::from_utf8_lossy(data);
    for template in [Template::default(), Template::default().digits(Some(1)).hex(Some(1)), Template::RAW] {
        let mut folded = String::new();
        if !template.fold(&name, &mut folded) {
            assert_eq!(folded, "", "an unfolded name writes nothing");
            continue;
        }
        assert!(folded.len() <= name.len(), "{folded}");
        assert_ne!(folded, name);
        let mut again = String::new();
        assert!(!template.fold(&folded, &mut again), "{folded} becomes {again}");
    }
}
