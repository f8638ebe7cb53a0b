//! Parts of a parameters file that `tune` writes besides the sampler: caps, policies, and figures
//! of the recording.

use crate::options::spans;
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
