//! `astracer compare` on recordings whose classes differ plainly: the first rows, the words
//! and the exit code that a person would give.

use std::path::PathBuf;

use serde_json::Value;

use crate::compare;
use crate::run;

fn data(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/compare");
    folder.join(name).to_str().expect("UTF-8").to_owned()
}

/// Arguments with the names of files in the folder of recordings, as the command gets them.
fn arguments(text: &str) -> Vec<String> {
    let is_file = |word: &str| [".xz", ".jsonl", ".log"].iter().any(|end| word.ends_with(end));
    let word = |word: &str| if is_file(word) { data(word) } else { word.to_owned() };
    std::iter::once("compare".to_owned()).chain(text.split(' ').map(word)).collect()
}

/// The exit code, standard output and standard error.
fn result(text: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let args = arguments(text);
    let args: Vec<&str> = args.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let output = run(&args);
    let text =
        |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).split_whitespace().collect::<Vec<_>>().join(" ");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Rows as (variable, feature, good mean, bad mean), with the rows that each explains behind it.
fn rows(text: &str) -> Vec<(String, String, f64, f64)> {
    let args = arguments(text);
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["--json"]).collect();
    let found: Value = serde_json::from_slice(&run(&args).stdout).expect("JSON");
    let row = |row: &Value| {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let mean = |class: usize| row["means"][class].as_f64().unwrap_or(f64::NAN);
        (text("variable"), text("feature"), mean(0), mean(1))
    };
    compare::rows(&found).iter().map(row).collect()
}

#[track_caller]
fn first(text: &str, variable: &str, feature: &str, good: f64, bad: f64) {
    let rows = rows(text);
    let (name, of, from, to) = rows.first().expect("a row");
    assert_eq!((name.as_str(), of.as_str()), (variable, feature), "{rows:?}");
    let is_near = |found: f64, wanted: f64| (found - wanted).abs() <= 0.05 * wanted.abs().max(0.02);
    assert!(is_near(*from, good) && is_near(*to, bad), "{rows:?}");
}

/// The expected shares and counts are those with which the recordings were made.
#[test]
fn a_plain_difference_is_the_first_row() {
    first("cerr0.json.xz cerr1.json.xz", "pay charge error", "Present", 0.0, 1.0);
    first("cerr0.json.xz cerr99.json.xz", "pay charge error", "Present", 0.0, 0.97);
    first("new1.json.xz new2.json.xz", "cart cache.lookup", "Present", 0.0, 1.0);
    first("const_diff.jsonl", "a", "Count", 1.0, 2.0);
    first("v1.json.xz v2.json.xz", "cart SELECT cart", "Count", 1.0, 2.0);
    first("ok0.json.xz slow.json.xz", "cart GET /cart own ms", "Min", 4.24, 14.64);
    let customer = "tenant1000.json.xz --bad-slowest 5%";
    first(customer, "cart customer.id=c-0042", "Present", 0.001, 0.96);
    let region = rows("cerr0.json.xz cerr1.json.xz");
    assert!(region.iter().any(|(name, ..)| name == "pay cloud.region=eu"), "{region:?}");
}

/// It plays no part whether the root or a child has the attributes.
#[test]
fn attributes_of_roots_and_of_children_differ_alike() {
    let of = |file: &str| {
        let all = rows(&format!("{file} --bad-errors"));
        all.into_iter().take(4).map(|(name, ..)| name).collect::<Vec<_>>()
    };
    let root = of("attr_root.json.xz");
    assert_eq!(
        root,
        ["pay app.version=1.4.2", "pay app.version=1.4.1", "pay user.type=enterprise", "pay user.type=free"]
    );
    assert_eq!(of("attr_child.json.xz"), root);
    // Both together are in 14 % of good traces, as 0.4 of 0.4 are, and in nearly all bad ones.
    let (_, text, _) = result("attr_child.json.xz --bad-errors", &[]);
    assert!(text.contains("pay app.version=1.4.2 and pay user.type=enterprise"), "{text}");
}

#[test]
fn three_times_slower_and_thirty_percent_errors_end_a_build() {
    let slow = "--good one0.json.xz --good one1.json.xz --good one2.json.xz --bad one_slow.json.xz";
    let failing = "--good ok0.json.xz --good ok1.json.xz --good ok2.json.xz --bad fails.json.xz";
    for (args, variable) in [(slow, "job job ms"), (failing, "cart GET /cart error")] {
        let (code, _, says) = result(args, &["--fail-on", "confirmed"]);
        assert!(code == Some(1) && says.contains(variable), "{says}");
    }
    first(slow, "job job ms", "Min", 10.2, 30.2);
    let (code, ..) = result(slow, &["--fail-on", "confirmed", "--at-least", "1s,500%"]);
    assert_eq!(code, Some(0), "19.98 ms are less than 1 s");
    let (code, ..) = result(
        "--good ok0.json.xz --good ok1.json.xz --bad ok2.json.xz",
        &["--fail-on", "confirmed", "--at-least", "10%"],
    );
    assert_eq!(code, Some(0), "good runs do not differ");
}

#[test]
fn a_verdict_says_what_was_and_was_not_tested() {
    let (code, text, _) = result("few.json.xz --bad-above 1s", &[]);
    assert!(code == Some(0) && text.contains("nothing was tested: times and counts need 5 values"), "{text}");
    assert!(!text.contains("beyond chance"), "{text}");
    let (code, text, _) = result("t1.json.xz t2.json.xz", &[]);
    assert!(
        code == Some(0) && text.contains("side by side") && text.contains("cart SELECT cart ms"),
        "{text}"
    );
}

#[test]
fn logs_alone_are_compared() {
    let (code, text, _) = result("log4j_a.log log4j_b.log", &[]);
    assert!(
        code == Some(0) && text.contains("side by side") && text.contains("no variable differs"),
        "{text}"
    );
    let (code, text, _) = result("log4j_a.log log4j_b.log --instance time:500ms", &[]);
    assert!(code == Some(0) && text.contains("2 good and 2 bad stretches of time"), "{text}");
    let (code, text, _) = result("log4j_a.log rustlog.jsonl", &[]);
    assert!(code == Some(0) && text.contains("log shop::api done count 0 1.000"), "{text}");
    let (code, text, _) = result("rustlog.jsonl rustlog.jsonl", &[]);
    assert!(code == Some(0) && text.contains("an instance is a file"), "{text}");
    let (code, _, says) = result("rustlog.jsonl rustlog.jsonl --instance request_id", &[]);
    assert!(code == Some(1) && says.contains("'r1' is in both classes"), "{says}");
}

#[test]
fn a_fault_in_a_file_costs_no_more_than_its_value_or_line() {
    for (file, wanted) in [
        ("nan.jsonl", "left out: 40 values that are not finite numbers"),
        ("null.jsonl", "left out: 40 values that are not finite numbers"),
        ("trunc.jsonl", "skipped: 1 line without an instance"),
    ] {
        let (code, text, _) = result(file, &[]);
        assert!(code == Some(0) && text.contains(wanted), "{text}");
        assert!(text.contains("10 good and 10 bad instances"), "{text}");
    }
    let (code, _, says) = result("dupid.jsonl", &[]);
    assert!(code == Some(1) && says.contains("'x' is in both classes"), "{says}");
}
