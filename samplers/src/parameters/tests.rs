//! Round trips, and files that are refused with the line at fault.

use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;
use crate::{Bump, Count, Nanos, Probability, RandomSource, Ratio, Template, TokenBucket};

const TUNED: &str = r#"# Made by hand.
version = 1

[key]
names = "template"
attributes = ["http.route"]

[bump]
lambda = 0.6437
min = 0.00004095
window = "259ms"

[bump.root."GET /orders"]
lambda = 3.0
"#;

fn bump(lambda: f64, min: f64, ms: u64) -> Bump {
    Bump::new(lambda, Probability::new(min).unwrap(), Nanos::from_millis(ms)).unwrap()
}

#[test]
fn reads_what_the_documentation_shows() {
    let found: Parameters = TUNED.parse().unwrap();
    let config =
        PerKey::new(bump(0.6437, 4.095e-5, 259)).with_override("GET /orders", bump(3.0, 4.095e-5, 259));
    assert_eq!(found.config, Config::Bump(config));
    assert_eq!((found.key.to_string(), found.random), ("name+http.route".into(), RandomSource::Independent));
}

fn decaying(ms: u64) -> Bump {
    bump(3.0, 0.25, 1).with_count(Count::Decaying { half_life: Nanos::from_millis(ms) }).unwrap()
}

#[test]
fn probabilities_of_single_keys_and_decaying_counts_are_read() {
    let text = "version = 2\n[bump]\nlambda = 3\nmin = 0.25\ntau = \"250ms\"\nexponent = 0.5\n\
                [bump.min_by_key]\n\"GET /\" = 0.5\nx = 1.0\n[bump.root.y]\nwindow = \"1s\"\n";
    let default = decaying(250).with_exponent(0.5).unwrap();
    let expected = PerKey::new(default.clone())
        .with_override("GET /", default.clone().with_minimum(Probability::new(0.5).unwrap()))
        .with_override("x", default.clone().with_minimum(Probability::ONE))
        .with_override("y", bump(3.0, 0.25, 1000).with_exponent(0.5).unwrap());
    let found: Parameters = text.parse().unwrap();
    assert_eq!(found.config, Config::Bump(expected));
    refused(&text.replace("x = 1.0", "x = 1.5"), Some(9), "from 0 to 1");
    refused(&text.replace("root.y", "root.x"), Some(9), "its own table");
    refused(&text.replace("exponent = 0.5", "exponent = 0.01"), Some(6), "exponent");
    refused(&text.replace("250ms", "1us"), Some(5), "millisecond");
    refused(&text.replace("250ms", "often"), Some(5), "tau");
    refused(&text.replace("window = \"1s\"", "count = \"tumbling\"\ntau = \"1s\""), Some(12), "tumbling");
    refused(&text.replace("[bump.min_by_key]", "window = \"1s\"\n[bump.min_by_key]"), Some(7), "no window");
}

#[test]
fn too_many_keys_and_too_long_files_are_refused() {
    let roots =
        |keys: usize| (0..keys).map(|key| format!("[bump.root.{key}]\nmin = 0.1\n")).collect::<String>();
    let minima = (0..4_000).map(|key| format!("m{key} = 0.5\n")).collect::<String>();
    let file = |keys| format!("version = 2\n[bump]\nlambda = 1\n[bump.min_by_key]\n{minima}{}", roots(keys));
    assert!(file(6_000).parse::<Parameters>().is_ok());
    // The last root's header: four lines, 4,000 probabilities, and two lines for each root before
    // it.
    refused(&file(6_001), Some(4 + 4_000 + 2 * 6_000 + 1), "at most 10000");
    let buckets = (0..10_001).map(|key| format!("[bucket.root.{key}]\nrate = 1\n")).collect::<String>();
    refused(
        &format!("version = 2\n[bucket]\ncapacity = 1\nrate = 1\n{buckets}"),
        Some(20_005),
        "at most 10000",
    );
    refused(&format!("version = 2\n[always]\n{}", "# \n".repeat(1 << 20)), None, "2097152");
}

#[test]
fn each_sampler_survives_printing() {
    let bucket = |capacity, rate| TokenBucket::new(capacity, rate).unwrap();
    for config in [
        Config::Always,
        Config::Never,
        Config::EveryNth(NonZeroU64::new(10).unwrap()),
        Ratio::new(Probability::new(0.1).unwrap()).unwrap().into(),
        bump(10.0, 0.0, 1000).shifted(true).into(),
        decaying(250).with_exponent(0.7).unwrap().into(),
        Config::Bump(
            PerKey::new(decaying(250))
                .with_override("a", decaying(250).with_minimum(Probability::ONE))
                .with_override("b", decaying(251))
                .with_override("c", bump(10.0, 0.25, 1000)),
        ),
        Config::Bump(
            PerKey::new(bump(1e-7, 1.0, 60_000)).with_override("a \"b\" \\ \n\u{7f}é", bump(1e20, 0.5, 1)),
        ),
        bucket(1.0, 1e-6).into(),
        Config::TokenBucket(
            PerKey::new(bucket(50.0, 2.0))
                .with_override("", bucket(1.5, 2.0))
                .with_override("x.y", bucket(9.0, 1e9)),
        ),
    ] {
        let parameters = Parameters {
            key: KeyRule::new(Template::RAW).with_attribute("http.route").with_attribute("a\"b"),
            random: RandomSource::Stratified,
            ..Parameters::new(config)
        };
        let text = parameters.to_string();
        assert_eq!(text.parse::<Parameters>().as_ref(), Ok(&parameters), "{text}");
    }
}

/// TOML only requires integers up to 2^63 - 1.
#[test]
fn the_largest_numbers_survive_printing() {
    for number in [i64::MAX.unsigned_abs(), 1 << 63, u64::MAX] {
        let parameters = Parameters {
            tail: Tail::default().with_ring_bytes(usize::try_from(number).unwrap_or(usize::MAX)),
            ..Parameters::new(Config::EveryNth(NonZeroU64::new(number).unwrap()))
        };
        let text = parameters.to_string();
        assert_eq!(text.parse::<Parameters>().as_ref(), Ok(&parameters), "{text}");
    }
}

#[test]
fn constant_probabilities_take_a_line_each() {
    let text = "version = 2\n[bump]\nlambda = 3.0\ntau = \"2s\"\n\
                [bump.min_by_key]\nb = 0.5\n[bump.probability_by_key]\na = 0.25\nc = 1.0\n\
                [bump.root.d]\ncount = \"none\"\nmin = 0.125\n";
    let parameters: Parameters = text.parse().unwrap();
    let Config::Bump(keyed) = &parameters.config else { panic!("{parameters}") };
    let constant = |p: f64| bump(0.0, p, 1000).with_count(crate::Count::Uncounted).unwrap();
    assert_eq!((keyed.of("a"), keyed.of("c")), (&constant(0.25), &constant(1.0)));
    assert_eq!(keyed.of("b"), &keyed.default().clone().with_minimum(Probability::new(0.5).unwrap()));
    assert_eq!(keyed.of("d").count(), crate::Count::Uncounted);
    let written = parameters.to_string();
    assert!(written.contains("[bump.probability_by_key]\n\"a\" = 0.25\n\"c\" = 1.0\n"), "{written}");
    assert_eq!(written.parse::<Parameters>().as_ref(), Ok(&parameters), "{written}");
    for table in ["[bump.root.a]\nlambda = 1.0\n", "[bump.min_by_key]\na = 0.5\n"] {
        let text = format!("version = 2\n[bump]\nlambda = 1.0\n{table}[bump.probability_by_key]\na = 0.25\n");
        refused(&text, Some(7), "give it once");
    }
}

#[test]
fn recorded_shares_take_a_line_each() {
    let text = "version = 5\n[bump]\nlambda = 3.0\ntau = \"2s\"\n\
                [bump.probability_by_key]\na = 0.25\nc = 1.0\n[bump.share_by_key]\na = 0.5\nc = 1e-6\n";
    let parameters: Parameters = text.parse().unwrap();
    let Config::Bump(keyed) = &parameters.config else { panic!("{parameters}") };
    assert_eq!(keyed.of("c").share(), Probability::new(1e-6));
    assert_eq!(keyed.default().share(), None);
    let written = parameters.to_string();
    assert!(written.starts_with("version = 5\n"), "{written}");
    assert!(written.contains("[bump.share_by_key]\n\"a\" = 0.5\n\"c\" = 1e-6\n"), "{written}");
    assert_eq!(written.parse::<Parameters>().as_ref(), Ok(&parameters), "{written}");
    let printed = parameters.config.to_string();
    assert_eq!(printed.parse::<Config>().as_ref(), Ok(&parameters.config), "{printed}");
    refused(&text.replace("[bump.share_by_key]\na", "[bump.share_by_key]\nb"), Some(9), "probability_by_key");
    refused(&text.replace("= 0.5", "= 1.5"), Some(9), "from 0 to 1");
    refused("version = 5\n[bump]\nlambda = 1.0\nshare = 0.5\n", Some(4), "count = \"none\"");
    // A minimum with a half-life in calls has a knee too.
    let minimum = "version = 5\n[bump]\nlambda = 3.0\ntau = \"2000calls\"\n[bump.min_by_key]\na = 1.0\n\
                   [bump.share_by_key]\na = 0.5\n";
    let parameters: Parameters = minimum.parse().unwrap();
    let Config::Bump(keyed) = &parameters.config else { panic!("{parameters}") };
    assert_eq!(keyed.of("a").share(), Probability::new(0.5));
    let written = parameters.to_string();
    assert!(
        written.contains("[bump.min_by_key]\n\"a\" = 1.0\n\n[bump.share_by_key]\n\"a\" = 0.5\n"),
        "{written}"
    );
    assert_eq!(written.parse::<Parameters>().as_ref(), Ok(&parameters), "{written}");
    refused(&minimum.replace("2000calls", "2s"), Some(8), "min_by_key");
    let alone = "version = 5\n[bump]\nlambda = 1.0\ncount = \"none\"\nshare = 0.5\n";
    let alone: Parameters = alone.parse().unwrap();
    assert_eq!(alone.to_string().parse(), Ok(alone));
    let error = "bump:lambda=1,share=0.1".parse::<Config>().unwrap_err().to_string();
    assert!(error.contains("count=none"), "{error}");
}

#[test]
fn half_lives_may_be_calls() {
    let text = "version = 5\n[bump]\nlambda = 3.0\ntau = \"2000calls\"\n[bump.min_by_key]\na = 0.5\n\
                [bump.root.b]\ntau = \"1s\"\n";
    let parameters: Parameters = text.parse().unwrap();
    let Config::Bump(keyed) = &parameters.config else { panic!("{parameters}") };
    let counts = ["", "a", "b"].map(|key| keyed.of(key).count());
    let paced = crate::Count::Paced { half_life: 2_000 };
    assert_eq!(counts, [paced, paced, crate::Count::Decaying { half_life: Nanos::from_secs(1) }]);
    let written = parameters.to_string();
    assert!(written.starts_with("version = 5\n") && written.contains("tau = \"2000calls\""), "{written}");
    assert_eq!(written.parse::<Parameters>().as_ref(), Ok(&parameters), "{written}");
    let printed = parameters.config.to_string();
    assert_eq!(printed.parse::<Config>().as_ref(), Ok(&parameters.config), "{printed}");
    refused(&text.replace("2000calls", "0calls"), Some(4), "a billion calls");
    refused(&text.replace("2000calls", "2kcalls"), Some(4), "2000calls");
    refused(&text.replace("= \"1s\"", "= \"1\""), Some(8), "with a unit");
}

#[test]
fn comments_are_written_line_by_line_and_not_read() {
    let comments =
        vec!["tuned on a.tar.xz,\nseed 1".to_owned(), "a\u{1b}b\u{202e}c".to_owned(), String::new()];
    let parameters = Parameters { comments, ..Parameters::new(Config::Always) };
    let text = parameters.to_string();
    assert!(text.starts_with("# tuned on a.tar.xz,\n# seed 1\n# a b c\n"), "{text}");
    let back: Parameters = text.parse().unwrap();
    assert_eq!(back, Parameters::new(Config::Always));
}

/// The file may be shown on a terminal, and compared with another by eye.
#[test]
fn names_that_act_on_a_terminal_are_written_as_escapes() {
    let name = "a\u{1b}[31m\u{202e}b\u{200b}\u{e0041}\nc";
    let key = "name".parse::<KeyRule>().unwrap().with_attribute(name);
    let parameters = Parameters { key, ..Parameters::new(Config::Always) };
    let text = parameters.to_string();
    assert!(text.contains(r#"["a\u001B[31m\u202Eb\u200B\U000E0041\u000Ac"]"#), "{text}");
    assert_eq!(text.parse::<Parameters>(), Ok(parameters));
}

#[track_caller]
fn refused(text: &str, line: Option<usize>, says: &str) {
    let error = text.parse::<Parameters>().expect_err(text);
    assert_eq!(error.line(), line, "{text}\n{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn what_is_not_known_is_refused_with_its_line() {
    refused(&TUNED.replace("lambda = 3.0", "lamda = 3.0"), Some(14), "lamda");
    refused(&TUNED.replace("min = ", "minimum = "), Some(10), "minimum");
    refused(&TUNED.replace("[key]", "[keys]"), Some(4), "keys");
    refused(&TUNED.replace("attributes", "attribute"), Some(6), "attribute");
    refused(&TUNED.replace("\"template\"", "\"folded\""), Some(5), "folded");
    refused(&TUNED.replace("version = 1", "version = 7"), Some(2), "version 7");
    refused(&TUNED.replace("version = 1", "version = 0"), Some(2), "version 0");
    refused(&TUNED.replace("version = 1", ""), Some(1), "version");
    refused(&TUNED.replace("lambda = 0.6437\n", ""), Some(8), "lambda");
    refused(&TUNED.replace("0.6437", "\"much\""), Some(9), "invalid type");
    refused("version = 1\n[bump\n", Some(2), "");
    refused("", Some(1), "version");
    let random = TUNED.replace("version = 1", "version = 2").replace("[key]", "random = \"even\"\n[key]");
    refused(&random, Some(4), "stratified");
}

#[test]
fn values_that_a_sampler_cannot_have_are_refused_with_their_line() {
    refused(&TUNED.replace("0.6437", "-1"), Some(9), "lambda");
    refused(&TUNED.replace("0.6437", "nan"), Some(9), "lambda");
    refused(&TUNED.replace("0.00004095", "1.5"), Some(10), "from 0 to 1");
    refused(&TUNED.replace("259ms", "259"), Some(11), "a window");
    refused(&TUNED.replace("259ms", "1us"), Some(11), "millisecond");
    refused(&TUNED.replace("lambda = 3.0", "lambda = inf"), Some(14), "lambda");
    refused("version = 1\n[bucket]\ncapacity = 0.5\nrate = 1", Some(3), "capacity");
    refused("version = 1\n[bucket]\ncapacity = 5\nrate = 0", Some(4), "rate");
    refused("version = 1\n[bucket]\ncapacity = 5\nrate = 1\n[bucket.root.x]\nrate = -1\n", Some(6), "rate");
    refused("version = 1\n[ratio]\nprobability = 2\n", Some(3), "from 0 to 1");
    refused("version = 1\n[every]\nn = 0\n", Some(3), "");
    refused("version = 1\n", None, "one sampler");
    refused("version = 1\n[always]\n[never]\n", None, "not several");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".*") {
        let _ = text.parse::<Parameters>();
    }

    #[test]
    fn any_key_and_number_survive(key in ".*", lambda in 0.0..1e300f64, min in 0.0..=1.0f64, ms in 1u64..1_000_000) {
        let config = PerKey::new(bump(1.0, 0.1, 500)).with_override(key, bump(lambda, min, ms));
        let parameters = Parameters::new(Config::Bump(config));
        let text = parameters.to_string();
        prop_assert_eq!(text.parse::<Parameters>(), Ok(parameters), "{}", text);
    }
}

#[test]
fn a_cap_is_read_and_written() {
    let text = "version = 3\n[ratio]\nprobability = 0.5\n[cap]\ntraces = 100.0\nkey_traces = 8\nkey_burst = 4\nbytes = 1e6\nreplicas = 4\n";
    let parameters: Parameters = text.parse().unwrap();
    assert_eq!(
        parameters.cap.to_string(),
        "traces=100,burst=25,key_traces=8,key_burst=4,bytes=1000000,bytes_burst=250000,replicas=4"
    );
    let written = parameters.to_string();
    assert!(written.starts_with("version = 3\n"), "{written}");
    assert_eq!(written.parse::<Parameters>().unwrap(), parameters);
    // A file without a cap has the version that older readers know.
    let plain = Parameters { cap: Cap::none(), ..parameters };
    assert!(plain.to_string().starts_with("version = 2\n"));
    for (cap, line) in
        [("traces = 0", 3), ("burst = 3", 3), ("spans = 3", 4), ("traces = 1\nreplicas = 0", 5)]
    {
        refused(&format!("version = 3\n[always]\n[cap]\n{cap}\n"), Some(line), "");
    }
}

#[test]
fn policies_are_read_and_written() {
    let text = "version = 4\n[always]\n[tail]\npolicies = [\"error,odd(traces=5)\", \"slow:p99\"]\nprovisional = \"always\"\n\
                hold = \"500ms\"\n[tail.provisional_by_key]\n\"GET /\" = \"never\"\n";
    let parameters: Parameters = text.parse().unwrap();
    assert_eq!(parameters.tail.to_string(), "error,odd(traces=5,burst=1.25),slow:p99");
    let written = parameters.to_string();
    assert!(written.starts_with("version = 4\n"), "{written}");
    assert_eq!(written.parse::<Parameters>().unwrap(), parameters);
    for (tail, line, says) in [
        ("policies = [\"errors\"]", 4, "error,slow:p99"),
        ("policies = [\n\"odd\",\n\"slow:x\"]", 6, "slow:p99"),
        ("policies = []\nhold = \"2\"", 5, "2s"),
        ("policies = []\nprovisional = \"maybe\"", 5, "never, armed or always"),
        ("policies = []\nring = 5", 5, "ring"),
        ("hold = \"2s\"", 3, "policies"),
    ] {
        refused(&format!("version = 4\n[always]\n[tail]\n{tail}\n"), Some(line), says);
    }
}

#[test]
fn a_budget_is_read_and_written() {
    let text = "version = 4\n[ratio]\nprobability = 0.5\n[budget]\nbytes = 50000\ninterval = \"5m\"\nfloor = 0.001\n\
                [budget.floor_by_key]\n\"GET /\" = 0.25\n";
    let parameters: Parameters = text.parse().unwrap();
    let p = |p: f64| Probability::new(p).unwrap();
    let budget = Budget::new(50_000.0).unwrap().with_interval(Nanos::from_secs(300));
    let budget = budget.with_floor(p(0.001)).with_key_floor("GET /", p(0.25));
    assert_eq!(parameters.budget.as_ref(), Some(&budget));
    let written = parameters.to_string();
    assert!(written.starts_with("version = 4\n"), "{written}");
    assert_eq!(written.parse(), Ok(parameters));
    for (budget, line) in [
        ("bytes = 0", 4),
        ("interval = \"60s\"", 3),
        ("bytes = 1\ninterval = \"10ms\"", 5),
        ("bytes = 1\nfloor = 2.0", 5),
        ("bytes = 1\n[budget.floor_by_key]\na = -0.5", 6),
    ] {
        refused(&format!("version = 4\n[always]\n[budget]\n{budget}\n"), Some(line), "");
    }
}

#[test]
fn durations_learnt_for_quantiles_take_a_line_each() {
    let text = "version = 5\n[ratio]\nprobability = 0.1\n[tail]\npolicies = [\"slow:p99\", \"slow:p99.9\"]\n\
                [tail.slow_from.p99]\n\"GET /a\" = \"120ms\"\nb = \"1s\"\n[tail.slow_from.\"p99.9\"]\nb = \"5s\"\n";
    let parameters: Parameters = text.parse().unwrap();
    let found: Vec<String> = parameters
        .tail
        .slow_from
        .iter()
        .map(|slow| format!("{} {} {}", slow.quantile, slow.key, slow.from))
        .collect();
    assert_eq!(found, ["p99 GET /a 120ms", "p99 b 1s", "p99.9 b 5s"]);
    let written = parameters.to_string();
    assert!(
        written.starts_with("version = 5\n") && written.contains("[tail.slow_from.\"p99.9\"]"),
        "{written}"
    );
    assert_eq!(written.parse::<Parameters>().as_ref(), Ok(&parameters), "{written}");
    refused(&text.replace("120ms", "soon"), Some(7), "120ms");
    refused(&text.replace("slow_from.p99]", "slow_from.p20]"), Some(6), "p99");
}

#[test]
fn figures_of_the_recording_and_new_keys_are_read_and_written() {
    let text = "version = 5\n[ratio]\nprobability = 0.5\n[cap]\nnew_traces = 2.5\nnew_burst = 64\n\
                [recorded]\nkept = 0.098\n";
    let parameters: Parameters = text.parse().unwrap();
    assert_eq!(parameters.recorded_kept, Probability::new(0.098));
    let allowance = parameters.cap.new_traces.unwrap();
    assert_eq!((allowance.rate(), allowance.burst()), (2.5, 64.0));
    let written = parameters.to_string();
    assert!(
        written.contains("version = 5\n") && written.contains("\n[recorded]\nkept = 0.098\n"),
        "{written}"
    );
    assert_eq!(written.parse::<Parameters>().unwrap(), parameters);
    refused("version = 5\n[ratio]\nprobability = 0.5\n[recorded]\nkept = 1.5\n", Some(5), "");
    // A policy has no new keys of its own.
    let text = "version = 4\n[always]\n[tail]\npolicies = [\"error(new_traces=1)\"]\n";
    refused(text, Some(4), "new_traces");
}

/// Strata are written in version 6, and read back the same.
#[test]
fn strata_are_read_and_written() {
    let text = "version = 6\n[key]\nat_end = [\"http.response.status_code\"]\n[ratio]\nprobability = 0.1\n\
                [strata]\nsize = 0.1\nrecord = 3.5\nkind = true\nhalf_life = \"500calls\"\nlambda = 2.5\n[strata.p.\"a b\"]\n\"7\" = 0.5\n\"-1e:ab\" = 1.0\n";
    let parameters: Parameters = text.parse().unwrap();
    let strata = parameters.strata.clone().unwrap();
    assert!(strata.is_by_kind());
    assert_eq!(parameters.key.to_string(), "name+end:http.response.status_code");
    assert_eq!(strata.record(), Record::Times(3.5));
    assert_eq!(strata.floor().get(), 0.0125);
    assert_eq!(strata.probability("a b", "-1e:ab".parse().unwrap()), Some(Probability::ONE));
    let written = parameters.to_string();
    assert!(written.starts_with("version = 6\n"), "{written}");
    assert_eq!(written.parse::<Parameters>().as_ref(), Ok(&parameters), "{written}");
    let all = "version = 6\n[bucket]\ncapacity = 1\nrate = 1\n[strata]\nsize = 0.1\nrecord = \"all\"\nfloor = 0.05\n\
               [budget]\nbytes = 5.0\n";
    let all: Parameters = all.parse().unwrap();
    assert_eq!(all.budget.as_ref().unwrap().interval(), Nanos::from_secs(3_600));
    assert_eq!(all.to_string().parse::<Parameters>().as_ref(), Ok(&all));
}

#[test]
fn strata_that_cannot_be_are_refused_with_their_line() {
    let file = |lines: &str| format!("version = 6\n[ratio]\nprobability = 0.1\n[strata]\n{lines}\n");
    refused(&file("size = 0.0"), Some(5), "share of the bytes above 0");
    refused(&file("size = 0.1\nrecord = 0.5"), Some(6), "from 1 on");
    refused(&file("size = 0.1\nrecord = \"some\""), Some(6), "\"all\"");
    refused(&file("size = 0.1\nhalf_life = \"2s\""), Some(6), "2000calls");
    refused(&file("size = 0.1\nhalf_life = \"0calls\""), Some(6), "at least one");
    refused(&file("size = 0.1\nlambda = 0"), Some(6), "lambda");
    refused(&file("size = 0.1\nsise = 0"), Some(6), "sise");
    refused(&file("size = 0.1\n[strata.p.a]\n\"41\" = 0.5"), Some(7), "from -1 to 40");
    refused(&file("size = 0.1\nfloor = 0.2"), Some(6), "at most the size");
    refused(&file("size = 0.1\n[strata.p.a]\n\"4:ab\" = 0.5"), Some(7), "only with kind = true");
    refused(&file("size = 0.1\n[strata.p.a]\n\"4\" = 0.5\n\"04\" = 0.5"), Some(8), "from -1 to 40");
    refused(&file("size = 0.1\n[strata.p.a]\n\"4\" = 1.5"), Some(7), "from 0 to 1");
    refused(&file("size = 0.1\n[strata.p.a]\n\"4\" = 0.0"), Some(7), "above 0");
    refused(&file("size = 0.1\n[budget]\nbytes = 1.0\ninterval = \"60s\""), Some(8), "1h");
    let bucket = "version = 6\n[bucket]\ncapacity = 1\nrate = 1\n[strata]\nsize = 0.1\n";
    refused(bucket, Some(6), "record = \"all\"");
    let at_end = "version = 6\n[key]\nat_end = [\"a\"]\n[ratio]\nprobability = 0.1\n";
    refused(at_end, Some(3), "add [strata]");
    for key in ["attributes = [\"a\"]\nat_end = [\"a\"]", "at_end = [\"\"]", "attributes = [\"a\", \"a\"]"] {
        let line = key.lines().count() + 2;
        let text = format!("version = 6\n[key]\n{key}\n[ratio]\nprobability = 0.1\n[strata]\nsize = 0.1\n");
        refused(&text, Some(line), "each may be given once");
    }
}

/// Readers of older versions refuse these tables, so a file with one of them and an older version
/// would work with some readers only.
#[test]
fn a_table_that_is_newer_than_the_file_is_refused() {
    let own = "[bump]\nlambda = 3.0\n[bump.probability_by_key]\na = 0.5\n";
    for (before, table, line, since) in [
        ("[bump]\nlambda = 3.0\n", "bump.min_by_key", "a = 0.5", 2),
        ("[bump]\nlambda = 3.0\n", "bump.probability_by_key", "a = 0.5", 2),
        ("[always]\n", "cap", "traces = 1.0", 3),
        ("[always]\n", "tail", "policies = [\"error\"]", 4),
        ("[always]\n", "budget", "bytes = 1e6", 4),
        (own, "bump.share_by_key", "a = 0.5", 5),
        ("[never]\n[tail]\npolicies = [\"slow:p99\"]\n", "tail.slow_from", "p99 = { a = \"1s\" }", 5),
        ("[always]\n", "recorded", "kept = 0.1", 5),
        ("[ratio]\nprobability = 0.1\n", "strata", "size = 0.1", 6),
    ] {
        let file = |version: u32| format!("version = {version}\n{before}[{table}]\n{line}\n");
        assert!(file(since).parse::<Parameters>().is_ok(), "{}", file(since));
        // A table of keys has the place of its first key.
        let keys = usize::from(table.contains('.'));
        let place = file(since).lines().count() - 1 + keys;
        let says = format!(
            "[{table}] came with version {since} of the format, and this file has version {}",
            since - 1
        );
        refused(&file(since - 1), Some(place), &says);
    }
}

/// The same for single lines, whatever else the file has: one edit of the version is enough.
#[test]
fn a_line_that_is_newer_than_the_file_is_refused() {
    let root = "[bump]\nlambda = 3.0\n[bump.root.a]\n";
    for (before, line, part, since) in [
        ("[always]\n[key]\n", "names = \"digits=4\"", "a template with rules", 2),
        ("[bump]\nlambda = 3.0\n", "count = \"tumbling\"", "count", 2),
        ("[bump]\nlambda = 3.0\n", "tau = \"2s\"", "tau", 2),
        ("[bump]\nlambda = 3.0\n", "exponent = 1.5", "exponent", 2),
        (root, "exponent = 1.5", "exponent", 2),
        ("[bump]\nlambda = 3.0\n", "tau = \"2000calls\"", "tau in calls", 5),
        (root, "tau = \"2000calls\"", "tau in calls", 5),
        ("[bump]\nlambda = 3.0\ncount = \"none\"\n", "share = 0.5", "share", 5),
        ("[bump]\nlambda = 3.0\n[bump.root.a]\ncount = \"none\"\n", "share = 0.5", "share", 5),
        ("[always]\n[cap]\n", "new_traces = 1.0", "new_traces", 5),
        ("[always]\n[cap]\nnew_traces = 2.0\n", "new_burst = 3.0", "new_traces", 5),
        ("[always]\n[tail]\npolicies = [\"error\"]\n", "boost = \"on\"", "boost", 5),
    ] {
        let file = |version: u32| format!("version = {version}\n{before}{line}\n");
        assert!(file(since).parse::<Parameters>().is_ok(), "{}", file(since));
        let place = file(since).lines().position(|line| line.starts_with(part.split(' ').next().unwrap()));
        let place = place.map_or(file(since).lines().count(), |place| place + 1);
        for version in 1..since {
            let says = format!(
                "{part} came with version {since} of the format, and this file has version {version}"
            );
            refused(&file(version), Some(place), &says);
        }
    }
    let random = "version = 1\nrandom = \"independent\"\n[always]\n";
    refused(random, Some(2), "random came with version 2 of the format, and this file has version 1");
    let at_end = "version = 5\n[key]\nat_end = [\"a\"]\n[always]\n";
    refused(at_end, Some(3), "at_end came with version 6 of the format, and this file has version 5");
    let both = "version = 3\n[always]\n[tail]\npolicies = [\"error\"]\nboost = \"on\"\n";
    refused(both, Some(5), "write version = 5");
}
