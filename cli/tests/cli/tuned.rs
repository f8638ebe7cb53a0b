//! Parts of a parameters file that `tune` writes besides the sampler: caps, policies, and figures
//! of the recording.

use crate::{Scratch, run, success, unwrapped};

/// The key has fewer than the hundred calls that slow:p99 needs, but the file has its duration: 12
/// of 90 traces last 1.6 ms.
#[test]
fn thresholds_of_a_file_stay_with_equal_policies_of_options() {
    let input = Scratch::new("slow.jsonl", &spans(90, 100, |_| ("a".to_owned(), false)));
    let file = Scratch::new(
        "slow.toml",
        "version = 5\n[never]\n[tail]\npolicies = [\"slow:p99\"]\n[tail.slow_from.p99]\na = \"1550us\"\n",
    );
    let args = ["evaluate", input.path(), "--parameters", file.path(), "--seeds", "1", "--json"];
    for (policies, slow) in [("slow:p99", 12.0), ("error,slow:p99", 12.0), ("slow:p95", 0.0)] {
        let tail = ["--tail", policies, "--provisional", "always"];
        let text = success(&run(&[&args[..], &tail].concat()));
        let found = serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
        let of_never = |tail: &&serde_json::Value| tail["sampler"] == "never";
        let never = found["tail"].as_array().expect("an array").iter().find(of_never).expect("never");
        assert_eq!(never["traces"]["mean"].as_f64(), Some(slow), "{policies}: {never}");
    }
}

/// A service with one request a second records every dropped trace, one with a thousand those of
/// armed keys.
#[test]
fn tune_records_all_dropped_traces_where_they_are_few() {
    for (apart_ms, mode) in [(1_000, "always"), (1, "armed")] {
        let text = spans(2_000, apart_ms, |n| ("a".to_owned(), n % 500 == 250));
        let input = Scratch::new("few.jsonl", &text);
        let out = Scratch::new("few.toml", "");
        let args = ["tune", input.path(), "--one-key", "--tail", "error", "--out", out.path()];
        let text = unwrapped(&success(&run(&[&args[..], &["--verbose"]].concat())));
        let file = std::fs::read_to_string(out.path()).expect("a file");
        assert!(file.contains(&format!("provisional = \"{mode}\"")), "{file}");
        if mode == "always" {
            let says = "With all dropped traces recorded (1.00 spans/s, provisional = \"always\"), the policies keep";
            assert!(text.contains(says), "{text}");
        }
        let given = [&args[..], &["--provisional", "never"]].concat();
        assert!(!success(&run(&given)).contains("dropped traces recorded"));
    }
}

#[test]
fn a_file_that_no_longer_fits_is_named() {
    let text = |name: &str| spans(2_000, 10, |n| (format!("{name}{}", n % 3), false));
    let input = Scratch::new("fits.jsonl", &text("GET /a"));
    let out = Scratch::new("fits.toml", "");
    success(&run(&["tune", input.path(), "--per-key", "always", "--one-key", "--out", out.path()]));
    let fits =
        |input: &Scratch| unwrapped(&success(&run(&["inspect", input.path(), "--parameters", out.path()])));
    let same = fits(&input);
    assert!(same.contains("3 of 3 keys of") && same.contains("Keys and size fit."), "{same}");
    let renamed = Scratch::new("renamed.jsonl", &text("GET /v2/a"));
    let says = fits(&renamed);
    assert!(says.contains("0 of 3 keys of") && says.contains("all routes renamed?"), "{says}");
}

/// The cap is in the file unless it is refused, and nothing new is kept beyond it.
#[test]
fn tune_writes_a_cap_and_prints_the_bill() {
    let input = Scratch::new("bill.jsonl", &spans(2_000, 10, |n| (format!("GET /a{}", n % 3), false)));
    let out = Scratch::new("bill.toml", "");
    let args = ["tune", input.path(), "--per-key", "always", "--one-key", "--out", out.path()];
    let file = || std::fs::read_to_string(out.path()).expect("a file");
    let text = unwrapped(&success(&run(&args)));
    assert!(text.contains("Cap: 3 x the busiest minute, at most "), "{text}");
    let args = [&args[..], &["--verbose"]].concat();
    let text = unwrapped(&success(&run(&args)));
    assert!(text.contains("if every third call had its own name: kept bytes x 0.9"), "{text}");
    assert!(file().contains("[cap]\ntraces = ") && file().contains("\nnew_traces = "), "{}", file());
    let text = unwrapped(&success(&run(&[&args[..], &["--no-cap"]].concat())));
    assert!(!text.contains("Cap:") && text.contains("had its own name: kept bytes x 4.0"), "{text}");
    assert!(!file().contains("[cap]"), "{}", file());
}

/// However much there is to say, a cap that was not asked for is on the screen of at most 21 lines.
#[test]
fn a_full_screen_has_the_line_of_the_cap() {
    let input =
        Scratch::new("full.jsonl", &spans(400, 50, |n| (format!("GET /a{}", n * n % 13), n % 50 == 25)));
    let out = Scratch::new("full.toml", "");
    let mut args =
        vec!["tune", input.path(), "--one-key", "--size-max", "50%", "--no-late", "--out", out.path()];
    for _ in 0..3 {
        args.extend(["--validate", input.path()]);
    }
    let text = success(&run(&args));
    assert!(text.contains("\nCap: 3 x the busiest minute, at most "), "{text}");
    assert!(text.contains("more notes: see --verbose") && text.lines().count() <= 21, "{text}");
}

/// One call in 20 takes 100 ms longer, which no head sampler can foresee. The strata that
/// `tune --late` writes are those that `evaluate` replays.
#[test]
fn strata_are_fitted_written_and_replayed() {
    let slow = |(n, line): (usize, &str)| {
        let mut line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let end = &mut line["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["endTimeUnixNano"];
        let end_ns: u64 = end.as_str().expect("text").parse().expect("a time");
        *end = (end_ns + if n % 20 == 7 { 100_000_000 + n as u64 * 10_000 } else { 0 }).to_string().into();
        format!("{line}\n")
    };
    let text = spans(3_000, 10, |n| (format!("GET /{}", ["a", "b", "c"][n as usize % 3]), n % 500 == 250));
    let input = Scratch::new("strata.jsonl", &text.lines().enumerate().map(slow).collect::<String>());
    let out = Scratch::new("strata.toml", "");
    let args = ["tune", input.path(), "--late", "--out", out.path()];
    assert!(success(&run(&args)).lines().count() <= 21);
    let text = unwrapped(&success(&run(&[&args[..], &["--verbose"]].concat())));
    for says in ["read it by its weights", "Recorded: 100% of the spans, 100.0 a second", "Cap: 3 x"] {
        assert!(text.contains(says), "{says}: {text}");
    }
    // Each key has 50 slow calls of 1,000, so 99 % of its durations are below that of the tenth
    // slowest: of these 30 and the 6 failures, nearly all slow ones are kept.
    assert!(text.contains("Failed, or slowest 1% of their key: 69.4% of 36 kept"), "{text}");
    let file = std::fs::read_to_string(out.path()).expect("a file");
    assert!(file.contains("[strata]\nsize = 0.1\nrecord = \"all\"\n"), "{file}");
    // Octaves 6 and 7 are 64 to 256 ms.
    for line in ["[strata.p.\"GET /b\"]\n\"0\" = 0.0", "\"6\" = ", "\"7\" = "] {
        assert!(file.contains(line), "{line}: {file}");
    }
    let found: serde_json::Value = serde_json::from_str(&success(&run(&[
        "evaluate",
        input.path(),
        "--parameters",
        out.path(),
        "--seeds",
        "6",
        "--json",
    ])))
    .expect("JSON");
    let of = |sampler: &str| {
        let mut all = found["summary"].as_array().expect("an array").iter();
        all.find(|row| row["sampler"].as_str().expect("text").starts_with(sampler)).expect("a row").clone()
    };
    let number = |row: &serde_json::Value, name: &str| row[name].as_f64().expect("a number");
    let (strata, share) = (of("strata:size=0.1,record=all"), of("ratio:0.1"));
    let kept = number(&strata["mean"], "tfcr");
    assert!((0.09..0.11).contains(&kept), "{kept}");
    let [by_weights, of_share] = [&strata, &share].map(|row| number(row, "dist_over_entropy_by_weights"));
    assert!(by_weights < 0.5 * of_share, "{by_weights}, and of an equal share {of_share}");
    let table =
        unwrapped(&success(&run(&["evaluate", input.path(), "--parameters", out.path(), "--seeds", "1"])));
    assert!(table.contains("Samples by strata are read by weights."), "{table}");
    // It is the default where it is better, unless something else is asked for.
    let plain = ["tune", input.path(), "--one-key", "--iterations", "50", "--out", out.path()];
    let text = unwrapped(&success(&run(&plain)));
    for says in ["by outcome", "at the start (", "--no-late writes the sampler that decides at the start"] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert_eq!(std::fs::read_to_string(out.path()).expect("a file"), file);
    for other in [&["--no-late"][..], &["--per-key", "never"], &["--sampler", "bucket"]] {
        let text = success(&run(&[&plain[..], other].concat()));
        let file = std::fs::read_to_string(out.path()).expect("a file");
        assert!(!text.contains("at the start (") && !file.contains("[strata]"), "{other:?}: {text}");
    }
    // Under a cap of one trace a second, 30 traces and a burst are left.
    let text = unwrapped(&success(&run(&[&args[..], &["--cap", "traces=1,burst=5"]].concat())));
    let capped = text.lines().find(|line| line.trim_start().starts_with("under the cap")).expect("a row");
    let kept: u64 = capped.split_whitespace().nth(3).and_then(|kept| kept.parse().ok()).expect("a number");
    assert!((20..60).contains(&kept), "{capped}");
    // Given ways to record, and no cap.
    let given = ["--record", "3", "--kinds", "never", "--no-cap", "--verbose"];
    let text = unwrapped(&success(&run(&[&args[..], &given].concat())));
    assert!(text.contains("of the spans (3 x the head sampler's)") && !text.contains("Cap:"), "{text}");
    let file = std::fs::read_to_string(out.path()).expect("a file");
    assert!(file.contains("record = 3.0\n") && !file.contains("[cap]"), "{file}");
}

/// Strata leave room for policies, and are within limits per second: 100 traces a second, of which
/// one in 500 fails.
#[test]
fn strata_share_the_limits_with_policies() {
    let text = spans(3_000, 10, |n| (format!("GET /{}", ["a", "b", "c"][n as usize % 3]), n % 500 == 250));
    let input = Scratch::new("together.jsonl", &text);
    let out = Scratch::new("together.toml", "");
    let of = |more: &[&str]| -> serde_json::Value {
        let args = ["tune", input.path(), "--late", "--json", "--out", out.path()];
        serde_json::from_str(&success(&run(&[&args[..], more].concat()))).expect("JSON")
    };
    let kept =
        |found: &serde_json::Value, name: &str| found["replayed"][name]["mean"].as_f64().expect("a mean");
    let found = of(&["--tail", "slow:1ms()", "--size-max", "90%"]);
    let policies = |name: &str| found["policies"][name]["mean"].as_f64().expect("a mean");
    let together = kept(&found, "tfcr") + policies("tail");
    assert!(policies("traces") > 0.0 && together <= 0.92, "{found}");
    let file = std::fs::read_to_string(out.path()).expect("a file");
    assert!(file.contains("[strata]") && file.contains("policies = [\"slow:1ms()\"]"), "{file}");
    // Ten traces a second in 30 s, and a twentieth of the bytes.
    let all = kept(&of(&["--size-max", "50%"]), "tfcr");
    assert!((0.45..0.52).contains(&all), "{all}");
    let found = of(&["--size-max", "50%", "--traces-per-second", "10"]);
    assert!((270.0..=306.0).contains(&kept(&found, "traces")), "{found}");
    let output = run(&["tune", input.path(), "--late", "--tail", "slow:1ns()", "--out", out.path()]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && error.contains("give the policies smaller budgets"),
        "{error}"
    );
}

/// The scoreboard has the baselines once more by each key that a sampler of whole traces may have:
/// three names, of which calls that fail have keys of their own, and one shape.
#[test]
fn baselines_by_other_keys_are_rows_of_the_scoreboard() {
    let text = spans(600, 10, |n| (format!("GET /{}", ["a", "b", "c"][n as usize % 3]), n % 50 == 25));
    let input = Scratch::new("board.jsonl", &text);
    let faults = "fault,from,to,service\nf,1970-01-01T00:00:01Z,1970-01-01T00:00:05Z,shop\n";
    let faults = Scratch::new("faults.csv", faults);
    let args = ["evaluate", input.path(), "--sampler", "ratio:0.2", "--seeds", "2", "--baselines", "every"];
    let args = [&args[..], &["--scoreboard", faults.path()]].concat();
    let keys = ["--baseline-keys", "outcome:name,tree"];
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&success(&run(&[args, &["--json"]].concat()))).expect("JSON")
    };
    let rows = |json: serde_json::Value| json["scoreboard"]["rows"].as_array().expect("rows").clone();
    let (without, with) = (rows(json(&args)), rows(json(&[&args[..], &keys].concat())));
    let keys_of: Vec<_> = with.iter().filter_map(|row| row["key"].as_str()).collect();
    assert_eq!((keys_of, with.len()), (vec!["outcome:name", "tree"], without.len() + 2));
    for row in with.iter().rev().take(2) {
        let (size_error, traces) = (&row["size_error"], &row["mean"]["traces"]);
        assert!(size_error.as_f64().expect("a number") < 0.2, "{row}");
        assert!((0.15..0.25).contains(&traces.as_f64().expect("a share")), "{row}");
    }
    let text = success(&run(&[&args[..], &keys].concat()));
    assert!(text.contains("outcome:name: every") && text.contains("tree: every"), "{text}");
}

/// In 6 s, Jaeger's rates do not change once in their 60 s; as in `tune`, they are shortened unless
/// they were given.
#[test]
fn baselines_without_parameters_get_times_that_suit_the_recording() {
    let input = Scratch::new("short.jsonl", &spans(600, 10, |n| (format!("f{}", n % 3), false)));
    let warnings = |baseline: &str| {
        let args =
            ["evaluate", input.path(), "--seeds", "2", "--size", "20%", "--json", "--baselines", baseline];
        let json: serde_json::Value = serde_json::from_str(&success(&run(&args))).expect("JSON");
        json["warnings"].to_string()
    };
    assert_eq!(warnings("jaeger-adaptive"), "null");
    let given = warnings("jaeger-adaptive:period=60s");
    let hint = "`--baselines jaeger-adaptive` shortens them";
    assert!(given.contains("cannot keep 20.00% of the bytes") && given.contains(hint), "{given}");
}

/// Traces of one span each, `apart_ms` apart. `of` gives the name and whether the span failed.
pub(crate) fn spans(traces: u64, apart_ms: u64, of: impl Fn(u64) -> (String, bool)) -> String {
    let line = |n: u64| {
        let (name, has_failed) = of(n);
        let (start, status) = (n * apart_ms * 1_000_000, if has_failed { "{\"code\":2}" } else { "{}" });
        let end = start + 1_000_000 + n % 7 * 100_000;
        format!(
            "{{\"resourceSpans\":[{{\"scopeSpans\":[{{\"spans\":[{{\"traceId\":\"{:032x}\",\"spanId\":\"{:016x}\",\
             \"name\":\"{name}\",\"startTimeUnixNano\":\"{start}\",\"endTimeUnixNano\":\"{end}\",\"status\":{status}}}]}}]}}]}}\n",
            n + 1,
            n + 1
        )
    };
    (0..traces).map(line).collect()
}
