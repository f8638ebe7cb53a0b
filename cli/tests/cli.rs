//! The binary as a user runs it: what it prints, where, and with which exit code it ends.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use astracer_samplers::parameters::Parameters;
use serde_json::Value;

#[path = "cli/causality.rs"]
mod causality;
#[path = "cli/closed.rs"]
mod closed;
#[path = "cli/compare.rs"]
mod compare;
#[path = "cli/compare_logs.rs"]
mod compare_logs;
#[path = "cli/compare_reproductions.rs"]
mod compare_reproductions;
#[path = "cli/conflicts.rs"]
mod conflicts;
#[path = "cli/convert.rs"]
mod convert;
#[cfg(unix)]
#[path = "cli/documents.rs"]
mod documents;
#[path = "cli/drill.rs"]
mod drill;
#[path = "cli/figures.rs"]
mod figures;
#[path = "cli/foreign.rs"]
mod foreign;
#[path = "cli/forward.rs"]
mod forward;
#[path = "cli/merged.rs"]
mod merged;
#[path = "cli/options.rs"]
mod options;
#[path = "cli/order.rs"]
mod order;
#[path = "cli/outputs.rs"]
mod outputs;
#[path = "cli/paths.rs"]
mod paths;
#[path = "cli/query.rs"]
mod query;
#[path = "cli/recorded.rs"]
mod recorded;
#[path = "cli/seeds.rs"]
mod seeds;
#[cfg(unix)]
#[path = "cli/special_files.rs"]
mod special_files;
#[path = "cli/spool.rs"]
mod spool;
#[path = "cli/tuned.rs"]
mod tuned;
#[path = "cli/warnings.rs"]
mod warnings;
#[path = "cli/weights.rs"]
mod weights;
#[path = "cli/wire.rs"]
mod wire;

/// Two traces: one with a child, one whose root lasts 8 ms.
const TWO_TRACES: &str = r#"{"a":"00000000000000010000000000000011","b":1000,"e":1010,"d":"read(1001)","r":"s","p":[]}
{"a":"00000000000000010000000000000012","b":1002,"e":1006,"d":"send","r":"s","p":["00000000000000010000000000000011"]}
{"a":"00000000000000020000000000000021","b":2000,"e":2008,"d":"read(1002)","r":"s","p":[]}
"#;

fn workload(name: &str) -> String {
    format!("{}/../workloads/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A file that is removed at the end of its test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("astracer-cli-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a writable temporary folder");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn run(args: &[&str]) -> Output {
    run_with_input(args, "")
}

fn run_with_input(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_astracer"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that refuses its arguments does not read.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("the binary ends")
}

#[track_caller]
fn success(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // On a busy machine a command may run for the ten seconds after which it reports progress.
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(notes.lines().all(|line| line.starts_with("progress: ")), "no notes beside a pipe: {notes}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// A report with its wrapped lines joined again.
fn unwrapped(text: &str) -> String {
    text.replace("\n  ", " ")
}

#[track_caller]
fn failure(output: &Output, code: i32, says: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    for part in says {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn inspect_shows_what_is_there_and_what_was_folded() {
    let text = success(&run_with_input(&["inspect", "-"], TWO_TRACES));
    let expected = "\
- (htrace, 1 file)
2 traces, 3 spans, 2 functions, 2 call trees, 298 B
from 1970-01-01T00:00:01.000Z over 1.0 s (2.0 traces/s); 184 B as OTLP

                         call           most   mean     sd
root     traces  share  trees  spans  in 1 s     ms     ms
read(*)       2   100%      2      3       1  9.000  1.000

function, times in ms  spans   mean     sd  median    p75    p95    max
read(*)                    2  9.000  1.000   9.000  9.500  9.900  10.00
send                       1  4.000      0   4.000  4.000  4.000  4.000

ids: 2 names folded into 1, 2 of them into read(*); --names raw keeps them apart
Where the time goes: astracer critical-path -
";
    assert_eq!(text, expected);
}

#[test]
fn inspect_shows_names_that_are_empty() {
    let nameless = TWO_TRACES.replace("read(1001)", "");
    let text = success(&run_with_input(&["inspect", "-"], &nameless));
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("(unnamed) ")).collect();
    // Once as a root and once as a function.
    assert_eq!(rows.len(), 2, "{text}");
    let json = success(&run_with_input(&["inspect", "-", "--json", "--sort", "name"], &nameless));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["roots"][0]["name"], &json["functions"][0]["name"]), (&"".into(), &"".into()));
}

#[test]
fn names_can_stay_raw_and_rules_be_set() {
    let text = success(&run_with_input(&["inspect", "-", "--names", "raw"], TWO_TRACES));
    assert!(text.contains("read(1001)") && !text.contains("folded"), "{text}");
    let text = success(&run_with_input(&["inspect", "-", "--fold", "digits=5"], TWO_TRACES));
    assert!(text.contains("read(1001)"), "{text}");
}

#[test]
fn inspect_sorts_by_any_column_and_cuts() {
    let text = success(&run_with_input(&["inspect", "-", "--sort", "name", "--top", "1"], TWO_TRACES));
    assert!(text.contains("2 functions") && !text.contains("send "), "{text}");
    let json = success(&run_with_input(&["inspect", "-", "--sort", "max", "--json"], TWO_TRACES));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["functions"][0]["name"], "read(*)");
    assert_eq!(json["functions"][1]["max_ms"], 4.0);
    assert_eq!(json["input"]["files"][0]["format"], "htrace");
    let path = workload("hdfs_raw_roots.tar.xz");
    for (column, first) in [("trees", "DFSOutputStream#close"), ("traces", "DFSOutputStream#writeChunk")] {
        let json = success(&run(&["inspect", &path, "--sort", column, "--json"]));
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["roots"][0]["name"], first, "{column}");
    }
}

#[test]
fn evaluate_prints_one_json_object_with_a_row_for_each_sampler_and_seed() {
    let path = workload("hdfs_raw_roots.tar.xz");
    let json =
        success(&run(&["evaluate", &path, "--json", "--seeds", "2", "--sampler", "bump:lambda=10,min=0.01"]));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["workload"]["traces"], 30_777);
    let rows = json["rows"].as_array().expect("rows");
    let named: Vec<_> =
        rows.iter().map(|row| (row["sampler"].as_str().expect("text"), &row["seed"])).collect();
    let bump = "bump:lambda=10,min=0.01,window=1s";
    let samplers = ["always", "ratio:0.1", "ratio:0.01", bump];
    let expected: Vec<(&str, u64)> = samplers.iter().flat_map(|name| [(*name, 1), (*name, 2)]).collect();
    assert_eq!(named.len(), expected.len());
    assert!(
        named.iter().zip(&expected).all(|(found, wanted)| found.0 == wanted.0 && found.1 == wanted.1),
        "{named:?}"
    );
    let keys = "traces spans bytes tfcr functions functions_all call_trees call_trees_all ss_ms entropy_bits dist_over_entropy";
    for row in rows {
        for key in keys.split(' ') {
            assert!(row[key].is_number(), "{key} of {row}");
        }
    }
    let mean =
        rows[6]["ss_ms"].as_f64().expect("number") / 2.0 + rows[7]["ss_ms"].as_f64().expect("number") / 2.0;
    let summary = &json["summary"][3];
    assert_eq!((&summary["sampler"], &summary["seeds"]), (&Value::from(bump), &Value::from(2)));
    assert!((summary["mean"]["ss_ms"].as_f64().expect("number") - mean).abs() < 1e-9);
    assert!(summary["sd"]["ss_ms"].as_f64().expect("number") > 0.0);
}

#[test]
fn evaluate_is_the_same_each_time_and_names_what_it_keeps() {
    let path = workload("hdfs_raw_roots.tar.xz");
    let kept = Scratch::new("kept", "");
    let args = [
        "evaluate",
        &path,
        "--json",
        "--seeds",
        "3",
        "--sampler",
        "bucket:capacity=5,rate=1.5",
        "--kept",
        kept.path(),
    ];
    let (first, second) = (success(&run(&args)), success(&run(&args)));
    assert_eq!(first, second);
    let json: Value = serde_json::from_str(&first).expect("JSON");
    let row = json["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .find(|row| row["sampler"].as_str().is_some_and(|name| name.starts_with("bucket")));
    let ids = std::fs::read_to_string(kept.path()).expect("written");
    assert_eq!(Value::from(ids.lines().count()), row.expect("the bucket's row")["traces"]);
    assert!(ids.lines().all(|id| id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit())));
}

#[test]
fn baselines_keep_as_much_as_the_sampler_that_they_are_compared_with() {
    let path = workload("hdfs_raw_roots.tar.xz");
    let args = [
        "evaluate",
        &path,
        "--json",
        "--seeds",
        "3",
        "--sampler",
        "bump:lambda=10,min=0.01",
        "--baselines",
        "ratio",
        "brave",
    ];
    let json: Value = serde_json::from_str(&success(&run(&args))).expect("JSON");
    let size = |name: &str| {
        let mut rows = json["summary"].as_array().expect("rows").iter().rev();
        let row = rows.find(|row| row["sampler"].as_str().is_some_and(|sampler| sampler.starts_with(name)));
        row.unwrap_or_else(|| panic!("no {name} in {json}"))["mean"]["tfcr"].as_f64().expect("a number")
    };
    let bump = size("bump:");
    for baseline in ["ratio:", "brave:"] {
        assert!((size(baseline) / bump - 1.0).abs() < 0.02, "{baseline} {} {bump}", size(baseline));
    }
    let unknown = run(&["evaluate", &path, "--baselines", "nobody"]);
    failure(&unknown, 2, &["'nobody' is not a baseline", "jaeger"]);
}

#[test]
fn a_key_of_the_whole_tree_has_more_keys_than_names() {
    let json =
        success(&run_with_input(&["evaluate", "-", "--json", "--key", "tree", "--seeds", "1"], TWO_TRACES));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json["workload"]["key"], &json["workload"]["keys"]),
        (&Value::from("tree"), &Value::from(2))
    );
}

#[test]
fn the_table_is_for_people() {
    let text = success(&run_with_input(&["evaluate", "-", "--seeds", "1"], TWO_TRACES));
    for part in
        ["functions", "entropy", "always", "ratio:0.1", "bump:lambda=10", "bucket:capacity=50", "one replay"]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn tune_writes_the_file_that_a_service_loads_and_says_how_good_it_is() {
    let path = workload("hdfs_raw_roots.tar.xz");
    let file = Scratch::new("tuned.toml", "");
    let short =
        ["--starts", "2", "--iterations", "60", "--window", "0.5", "--seed", "7", "--per-key", "never"];
    let tune = |more: &[&str]| {
        let args = ["tune", &path, "--out", file.path()]
            .iter()
            .chain(&short)
            .chain(more)
            .copied()
            .collect::<Vec<_>>();
        success(&run(&args))
    };
    let json: Value = serde_json::from_str(&tune(&["--json"])).expect("JSON");
    let text = std::fs::read_to_string(file.path()).expect("written");
    let loaded: Parameters = text.parse().expect("a parameters file");
    let number = |key: &str| json["parameters"][key].as_f64().expect("a number");
    let (lambda, min) = (number("lambda"), number("min"));
    assert_eq!(
        loaded.config,
        // Half a second of the 30,777 calls in 26.1 s.
        format!("bump:lambda={lambda},min={min},count=decaying,tau=589calls,exponent={}", number("exponent"))
            .parse()
            .expect("a sampler")
    );
    assert_eq!(
        (&json["sampler"], &json["feasible"], &json["seed"]),
        (&"bump".into(), &true.into(), &7.into())
    );
    assert!(json["score"]["tfcr"].as_f64().expect("a number") <= 0.1);
    // With a fixed half-life the search reaches about two thirds of the equal share's figure.
    let (found, equal) = (&json["score"]["dist_over_entropy"], &json["baseline"]["dist_over_entropy"]);
    assert!(found.as_f64().expect("a number") < 0.7 * equal.as_f64().expect("a number"), "{found} {equal}");

    let table = tune(&[]);
    for part in ["dist/entropy", "Means of 96 replays", "equal share", "wrote ", "OTEL_TRACES_SAMPLER="] {
        assert!(table.contains(part), "{part:?} is not in {table}");
    }
    let verbose = tune(&["--verbose"]);
    for part in ["key, on other blocks", "90% of", "path kinds", "seed 7"] {
        assert!(verbose.contains(part) && !table.contains(part), "{part:?} is not in {verbose}");
    }
    assert_eq!(std::fs::read_to_string(file.path()).expect("written"), text, "the same seed finds the same");
    assert!(text.contains("seed 7"), "{text}");
}

#[test]
fn what_is_not_feasible_is_said_and_nothing_is_written() {
    // With this window the first calls of each second alone are more than a tenth of the bytes.
    let path = workload("hdfs_client_ops.tar.xz");
    let file = std::env::temp_dir().join(format!("astracer-cli-{}-none.toml", std::process::id()));
    let out = file.to_str().expect("UTF-8");
    let short =
        ["--sampler", "bump-tumbling", "--window", "1", "--starts", "1", "--iterations", "20", "--out", out];
    let output = run(&[["tune", &path].as_slice(), &short].concat());
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("no parameters meet the limits"), "{error}");
    assert!(!file.exists());
    failure(&run(&["tune", &path, "--key", "tree"]), 2, &["--key tree", "name+ATTRIBUTE"]);
}

#[test]
fn a_bad_line_is_named_and_the_rest_is_used_unless_strict() {
    let lines = TWO_TRACES.replace("\"b\":1002,", "\"b\":oops,");
    let file = Scratch::new("bad.json", &lines);
    let text = success(&run(&["inspect", file.path()]));
    assert!(text.contains("2 traces, 2 spans"), "{text}");
    assert!(text.contains("problem: bad record: 1\n"), "{text}");
    assert!(text.contains(":2 (byte "), "{text}");
    let strict = run(&["inspect", file.path(), "--strict"]);
    failure(&strict, 1, &["bad record: ", "bad.json:2 (byte ", "--strict"]);
}

#[test]
fn what_can_not_be_done_is_said_with_a_remedy() {
    failure(&run(&["inspect", "no/such/file"]), 1, &["no/such/file", "does not exist"]);
    failure(&run_with_input(&["inspect", "-"], "just text\n"), 1, &["no traces", "htrace"]);
    let kept = ["evaluate", "-", "--kept", "ids.txt"];
    failure(&run_with_input(&kept, TWO_TRACES), 2, &["--kept", "exactly one --sampler"]);
    let folder = std::env::temp_dir();
    let kept = ["evaluate", "-", "--sampler", "always", "--kept", folder.to_str().expect("UTF-8")];
    failure(&run_with_input(&kept, TWO_TRACES), 1, &["cannot write"]);
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_right() {
    failure(&run(&["evaluate"]), 2, &["<RECORDING>"]);
    failure(&run(&["evaluate", "x", "--sampler", "bump:lambda=nan"]), 2, &["lambda"]);
    failure(&run(&["evaluate", "x", "--key", "root"]), 2, &["name+ATTRIBUTE"]);
    failure(&run(&["evaluate", "x", "--seeds", "0"]), 2, &["--seeds"]);
    failure(&run(&["inspect", "x", "--sort", "size"]), 2, &["p95"]);
    failure(&run(&["inspect", "x", "--format", "xml"]), 2, &["otlp-json"]);
    failure(&run(&["inspect", "x", "--fold", "words"]), 2, &["digits=N"]);
}

#[test]
fn help_has_examples_and_exit_codes() {
    let text = success(&run(&["--help"]));
    assert!(text.contains("Exit codes:") && text.contains("130"), "{text}");
    for command in ["inspect", "evaluate"] {
        let text = success(&run(&[command, "--help"]));
        assert!(text.contains("Examples:\n  astracer "), "{text}");
    }
}

#[test]
fn a_bomb_is_cut_off_at_the_limit_that_was_set() {
    let path = workload("dfsioe_write.tar.xz");
    let text = success(&run(&["inspect", &path, "--expanded-max", "1MB"]));
    assert!(text.contains("problem: is over a limit: 1\n"), "{text}");
    failure(
        &run(&["inspect", &path, "--expanded-max", "1MB", "--strict"]),
        1,
        &["over a limit", "more than 1000000 bytes"],
    );
}

/// The message names the option, and the spans before the limit are there.
#[test]
fn a_record_over_the_limit_is_named_with_the_option_that_raises_it() {
    let spans = (1..=100).map(|id| format!(r#"{{"traceId":"{id:032x}","spanId":"{id:016x}","name":"n"}}"#));
    let spans = spans.collect::<Vec<_>>().join(",\n");
    let json = format!("{{\"resourceSpans\":[{{\"scopeSpans\":[{{\"spans\":[\n{spans}]}}]}}]}}");
    let text = success(&run_with_input(&["inspect", "-", "--record-max", "4KB"], &json));
    assert!(text.contains("problem: is over a limit: 1\n  (raise the limit with --record-max)\n"), "{text}");
    let kept = text.lines().find_map(|line| line.split(" traces, ").next()?.parse::<u64>().ok());
    assert!(kept.is_some_and(|kept| kept > 40 && kept < 60), "{text}");
    let strict = ["inspect", "-", "--record-max", "4KB", "--strict"];
    failure(
        &run_with_input(&strict, &json),
        1,
        &["record longer than 4000 bytes; raise the limit with --record"],
    );
    assert!(success(&run_with_input(&["inspect", "-"], &json)).contains("100 traces"));
    // An archive bomb whose first span is longer than the limit on expanded bytes.
    let folder = outputs::Folder::new("expanded");
    let (long, packed) = (folder.file("long.json", &format!("{json}\n").repeat(100)), folder.join("long.gz"));
    assert!(run(&["convert", &long, &packed]).status.success());
    let output = run(&["inspect", &packed, "--expanded-max", "30"]);
    failure(&output, 1, &["is over a limit: ", "raise the limit with --expanded-max"]);
    // No option raises the limit on nesting.
    let value = format!("{}{{}}{}", r#"{"arrayValue":{"values":["#.repeat(100), "]}}".repeat(100));
    let ids = format!(r#""traceId":"{:032x}","spanId":"{:016x}""#, 1, 1);
    let span = format!(r#"{{{ids},"name":"n","attributes":[{{"key":"k","value":{value}}}]}}"#);
    let deep = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{span}]}}]}}]}}"#);
    let output = run_with_input(&["inspect", "-"], &deep);
    failure(&output, 1, &["is over a limit: standard input:1", "nested too deeply"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("raise the limit"), "{output:?}");
    // Words in a file name must not be taken for a limit. A limit is reported although its problem
    // is not among the examples.
    let file = Scratch::new("longer than others.json", &deep);
    let output = run(&["inspect", file.path()]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("raise the limit"), "{output:?}");
    let hidden = format!("{deep}\n").repeat(5) + &json.replace('\n', "");
    let text = success(&run_with_input(&["inspect", "-", "--record-max", "6KB"], &hidden));
    assert!(text.contains("problem: is over a limit: 6\n  (raise the limit with --record-max)\n"), "{text}");
}

/// Runs a command whose output nobody reads.
#[cfg(unix)]
fn unread(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    drop(child.stdout.take());
    child.wait_with_output().expect("the binary ends")
}

#[cfg(unix)]
#[test]
fn a_closed_output_is_not_an_error() {
    let path = workload("hdfs_raw_roots.tar.xz");
    let output = unread(Command::new(env!("CARGO_BIN_EXE_astracer")).args(["inspect", &path]));
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(0), ""));
}

/// Checks on traces that were not tuned on, and the page.
#[test]
fn tune_checks_itself_and_writes_a_page() {
    let (path, other) = (workload("hdfs_client_ops.tar.xz"), workload("hdfs_client_ops_seed2.tar.xz"));
    let (file, page) = (Scratch::new("checked.toml", ""), Scratch::new("checked.html", ""));
    let short = ["--starts", "2", "--iterations", "60", "--window", "3", "--json", "--out", file.path()];
    let tune = |more: &[&str]| {
        let args = ["tune", &path].iter().chain(&short).chain(more).copied().collect::<Vec<_>>();
        serde_json::from_str::<Value>(&success(&run(&args))).expect("JSON")
    };
    let mean = |of: &Value| of["dist_over_entropy"]["mean"].as_f64().expect("a mean");
    let json = tune(&["--validate", &other, "--split", "50%", "--report", page.path()]);
    assert!(mean(&json["held_out"]["replayed"]) > 0.0);
    assert_eq!(json["validated"][0]["name"], other.as_str());
    assert!(mean(&json["validated"][0]["tuned_there"]) > 0.0);
    assert_eq!(json["keys"]["keys"][0]["key"], "name");
    assert!(json["score"]["latency"].as_f64().is_some_and(|latency| latency > 0.0 && latency < 1.0));
    let html = std::fs::read_to_string(page.path()).expect("written");
    for part in ["Checks on traces that were not tuned on", "jaeger-adaptive", "Which key to use", "</html>"]
    {
        assert!(html.contains(part), "{part}");
    }

    // The file contains exactly the keys that are reported.
    let json = tune(&["--per-key", "always", "--one-key"]);
    let text = std::fs::read_to_string(file.path()).expect("written");
    let loaded: Parameters = text.parse().expect("a parameters file");
    let count = |field: &str| json[field].as_array().expect("a list").len();
    let overrides = count("per_root") + count("bounded");
    assert!(overrides > 5);
    assert_eq!(loaded.config.to_string().matches("lambda=").count(), 1 + overrides, "{text}");
}

#[test]
fn what_no_service_can_use_is_refused_before_the_work() {
    let path = workload("hdfs_raw_roots.tar.xz");
    failure(&run(&["tune", &path, "--key", "tree"]), 2, &["--key tree"]);
    failure(&run(&["tune", &path, "--split", "100%"]), 2, &["leaves nothing"]);
}

/// The columns of a line, all of whose characters are narrow.
fn columns(line: &str) -> usize {
    line.chars().count()
}

#[test]
fn screens_fit_80_columns_and_tune_21_lines() {
    let out = Scratch::new("screens.toml", "");
    let quick = ["--starts", "1", "--iterations", "12", "--one-key", "--replays", "24", "--per-key", "never"];
    let tune = [&["tune"][..], &quick, &["--out", out.path()]].concat();
    let other = workload("hdfs_client_ops_seed2.tar.xz");
    let checks = ["--split", "60%", "--validate", &other, "--tail", "error,slow:p99"];
    let screen = |command: &[&str], name: &str| {
        let text = success(&run(&[command, &[&workload(name)]].concat()));
        let wide: Vec<&str> = text.lines().filter(|line| columns(line) > 80).collect();
        assert!(wide.is_empty(), "{command:?} {name}: {wide:#?}");
        text
    };
    let percentiles = "1,10,25,50,75,90,95,99,99.9,99.99";
    for name in ["hdfs_raw_roots.tar.xz", "hdfs_client_ops.tar.xz", "dfsioe_write.tar.xz"] {
        screen(&["inspect", "--top", "0"], name);
        screen(&["critical-path", "--top", "0", "--by", "path", "--percentiles", percentiles], name);
        screen(&["critical-path", "--compare", &other], name);
        let text = screen(&tune, name);
        assert!(text.lines().count() <= 21, "{name}: {text}");
    }
    let name = "hdfs_client_ops.tar.xz";
    screen(&["evaluate", "--seeds", "2", "--verbose", "--baselines", "ratio", "--size", "5%"], name);
    screen(&[&tune[..], &["--verbose"]].concat(), name);
    let text = screen(&[&tune[..], &checks].concat(), name);
    assert!(text.lines().count() <= 21, "{text}");
}

#[test]
fn help_of_every_command_has_examples() {
    let spool = ["inspect", "verify", "drain"].map(|action| format!("spool {action}"));
    let commands = [
        "",
        "inspect",
        "evaluate",
        "tune",
        "critical-path",
        "events",
        "convert",
        "receive",
        "send",
        "drill",
        "spool",
    ];
    for command in commands.into_iter().chain(spool.iter().map(String::as_str)) {
        let command: Vec<&str> = command.split_whitespace().collect();
        let text = success(&run(&[&command[..], &["--help"]].concat()));
        assert!(text.contains("Examples:") && text.lines().all(|line| columns(line) <= 80), "{text}");
    }
}
