//! Every option of every command with unreasonable values: each has the expected exit code, and the
//! recording stays unchanged.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use crate::outputs::Folder;
use crate::tuned::spans;
use crate::{Scratch, TWO_TRACES, failure, run, success, unwrapped};
use crate::{drill, forward, merged, order, query};

/// Exit codes for each of [`VALUES`]; [`SKIP`] where the command would wait for a signal.
pub(crate) type Codes = [i32; VALUES.len()];

/// The recording that every command reads; as a value, an output that equals an input.
pub(crate) const INPUT: &str = "w.jsonl";
const VALUES: [&str; 10] = ["0", "-1", "NaN", "1e300", "1e-300", "", INPUT, "nowhere/x", "/dev/full", "-"];
const SKIP: i32 = -1;

/// All values are refused: none is valid as this number, duration, share, size, name or rule.
pub(crate) const REFUSED: Codes = [2; 10];
/// A number that may be 0.
pub(crate) const FROM_0: Codes = [0, 2, 2, 2, 2, 2, 2, 2, 2, 2];
/// A file to write. The first five values are file names in the working folder, except for the one
/// that looks like an option.
const FILE: Codes = [0, 2, 0, 0, 0, 2, 2, 1, 1, 2];
/// A recording to read; `-` is the standard input.
pub(crate) const RECORDING: Codes = [1, 2, 1, 1, 1, 2, 0, 1, 1, 0];
/// A file of labelled faults, which none of the values is.
const LABELS: Codes = [1, 2, 1, 1, 1, 2, 1, 1, 1, 1];
/// The output of `convert`, which may be `-`.
const CONVERTED: Codes = [0, 2, 0, 0, 0, 2, 2, 1, 1, 0];

const INSPECT: &[&str] = &["inspect", INPUT];
const EVALUATE: &[&str] = &["evaluate", INPUT, "--sampler", "always", "--seeds", "1"];
const EVALUATE_TAIL: &[&str] = &["evaluate", INPUT, "--sampler", "always", "--seeds", "1", "--tail", "error"];
const BOARD: &[&str] = &["evaluate", INPUT, "--baselines", "every", "--scoreboard", "faults.csv"];
const COUNTS: &[&str] =
    &["evaluate", INPUT, "--sampler", "always", "--seeds", "1", "--counts", "counts.jsonl"];
const BASELINES: &[&str] = &["evaluate", INPUT, "--seeds", "1", "--baselines", "ratio"];
const TUNE: &[&str] = &[
    "tune",
    INPUT,
    "--size-max",
    "100%",
    "--starts",
    "1",
    "--iterations",
    "10",
    "--one-key",
    "--out",
    "new.toml",
];
/// `TUNE` without the option that is tested.
const TUNE_DEFAULT: &[&str] = &["tune", INPUT, "--one-key"];
const TUNE_TAIL: &[&str] = &["tune", INPUT, "--one-key", "--size-max", "100%", "--tail", "error"];
const TUNE_LATE: &[&str] = &["tune", INPUT, "--late"];
const EVENTS: &[&str] = &["events", INPUT, "--trace", "1"];
const CONVERT: &[&str] = &["convert", INPUT, "new.json"];
const SEND: &[&str] = &["send", INPUT, "--to", "otlp://127.0.0.1:1"];
pub(crate) const RECEIVE: &[&str] = &["receive", "--out", "received", "--otlp", "127.0.0.1:0"];

const DRAIN: &[&str] = &["spool", "drain", "nowhere", "--to", "otlp://127.0.0.1:1"];
/// The folder of a spool; no value is one.
const FOLDER: Codes = [1, 2, 1, 1, 1, 2, 1, 1, 1, 1];

const PATHS: &[&str] = &["critical-path", INPUT];
/// One good and one bad trace, which are too few: a valid option ends with 1.
const COMPARE: &[&str] = &["compare", INPUT, "--bad-slowest", "50%"];
const COMPARE_ONE: &[&str] = &["compare", INPUT];
const COMPARE_FAIL: &[&str] = &["compare", INPUT, "--bad-slowest", "50%", "--fail-on", "significant"];
/// A number that may be 0, before a comparison that has too few traces.
const COMPARED_FROM_0: Codes = [1, 2, 2, 2, 2, 2, 2, 2, 2, 2];
/// A file or a text, before such a comparison; neither may be empty.
const COMPARED_TEXT: Codes = [1, 2, 1, 1, 1, 2, 1, 1, 1, 1];
/// A name that no root has.
const TEXT: Codes = [1, 2, 1, 1, 1, 1, 1, 1, 1, 1];

/// Arguments before the option, the option (empty for a positional argument), and the exit codes.
const TABLE: &[(&[&str], &str, Codes)] = &[
    (&["inspect"], "", RECORDING),
    (INSPECT, "--format", REFUSED),
    (INSPECT, "--expanded-max", REFUSED),
    (INSPECT, "--record-max", REFUSED),
    (INSPECT, "--names", REFUSED),
    (INSPECT, "--fold", REFUSED),
    (INSPECT, "--sort", REFUSED),
    (INSPECT, "--top", FROM_0),
    (INSPECT, "--parameters", [1, 2, 1, 1, 1, 2, 1, 1, 1, 1]),
    (&["evaluate", "--seeds", "1"], "", RECORDING),
    (EVALUATE, "--format", REFUSED),
    (EVALUATE, "--expanded-max", REFUSED),
    (EVALUATE, "--record-max", REFUSED),
    (EVALUATE, "--names", REFUSED),
    (EVALUATE, "--fold", REFUSED),
    (EVALUATE, "--sampler", REFUSED),
    (EVALUATE, "--seed", FROM_0),
    (EVALUATE, "--seeds", REFUSED),
    (EVALUATE, "--parameters", [1, 2, 1, 1, 1, 2, 1, 1, 1, 1]),
    (EVALUATE, "--jitter", FROM_0),
    (EVALUATE, "--baselines", REFUSED),
    (BASELINES, "--size", REFUSED),
    (EVALUATE, "--key", REFUSED),
    (EVALUATE, "--kept", FILE),
    (EVALUATE, "--kept-out", FILE),
    (EVALUATE, "--counts", FILE),
    (EVALUATE, "--scoreboard", LABELS),
    (BOARD, "--baseline-keys", REFUSED),
    (COUNTS, "--interval", REFUSED),
    (EVALUATE, "--random", REFUSED),
    (EVALUATE, "--cap", REFUSED),
    (EVALUATE, "--tail", REFUSED),
    (EVALUATE_TAIL, "--provisional", REFUSED),
    (EVALUATE_TAIL, "--ring", REFUSED),
    (EVALUATE_TAIL, "--hold", FROM_0),
    (&["tune", "--size-max", "100%", "--starts", "1", "--iterations", "10", "--one-key"], "", RECORDING),
    (TUNE, "--format", REFUSED),
    (TUNE, "--expanded-max", REFUSED),
    (TUNE, "--record-max", REFUSED),
    (TUNE, "--names", REFUSED),
    (TUNE, "--fold", REFUSED),
    (TUNE, "--sampler", REFUSED),
    (TUNE, "--objective", REFUSED),
    (TUNE, "--risk", REFUSED),
    (TUNE, "--random", REFUSED),
    (TUNE, "--per-key", REFUSED),
    (TUNE, "--min-kept", [0, 2, 2, 2, 0, 2, 2, 2, 2, 2]),
    (TUNE, "--key", REFUSED),
    (TUNE, "--split", REFUSED),
    (TUNE, "--validate", RECORDING),
    (TUNE_DEFAULT, "--size-max", REFUSED),
    (TUNE, "--size-min", REFUSED),
    (TUNE, "--traces-per-second", REFUSED),
    (TUNE, "--bytes-per-second", REFUSED),
    (TUNE, "--cap", REFUSED),
    (TUNE, "--tail", REFUSED),
    (TUNE_LATE, "--record", REFUSED),
    (TUNE_LATE, "--kinds", REFUSED),
    (TUNE_TAIL, "--provisional", REFUSED),
    (TUNE_TAIL, "--ring", REFUSED),
    (TUNE_TAIL, "--hold", FROM_0),
    (TUNE, "--window", REFUSED),
    (TUNE, "--seed", FROM_0),
    (TUNE_DEFAULT, "--starts", REFUSED),
    (TUNE_DEFAULT, "--iterations", REFUSED),
    (TUNE, "--replays", REFUSED),
    (TUNE, "--time", REFUSED),
    (TUNE, "--report", FILE),
    (
        &["tune", INPUT, "--size-max", "100%", "--starts", "1", "--iterations", "10", "--one-key"],
        "--out",
        FILE,
    ),
    (&["critical-path"], "", RECORDING),
    (PATHS, "--format", REFUSED),
    (PATHS, "--expanded-max", REFUSED),
    (PATHS, "--record-max", REFUSED),
    (PATHS, "--names", REFUSED),
    (PATHS, "--fold", REFUSED),
    (PATHS, "--root", TEXT),
    (PATHS, "--by", REFUSED),
    (PATHS, "--rule", REFUSED),
    (PATHS, "--skew", REFUSED),
    (PATHS, "--speedup", REFUSED),
    (PATHS, "--compare", RECORDING),
    (PATHS, "--percentiles", [0, 2, 2, 2, 0, 2, 2, 2, 2, 2]),
    // 1e300 is a valid hexadecimal id, but no trace has it.
    (PATHS, "--trace", [1, 2, 2, 1, 2, 2, 2, 2, 2, 2]),
    (PATHS, "--top", FROM_0),
    (PATHS, "--segments", FILE),
    (PATHS, "--folded", FILE),
    (PATHS, "--html", FILE),
    (&["events", "--trace", "1"], "", RECORDING),
    (EVENTS, "--format", REFUSED),
    (EVENTS, "--expanded-max", REFUSED),
    (EVENTS, "--record-max", REFUSED),
    (EVENTS, "--names", REFUSED),
    (EVENTS, "--fold", REFUSED),
    (EVENTS, "--top", FROM_0),
    (&["events", INPUT], "--trace", [1, 2, 2, 1, 2, 2, 2, 2, 2, 2]),
    (EVENTS, "--rule", REFUSED),
    (EVENTS, "--html", FILE),
    (&["convert", INPUT], "", CONVERTED),
    (CONVERT, "--format", REFUSED),
    (CONVERT, "--expanded-max", REFUSED),
    (CONVERT, "--record-max", REFUSED),
    (CONVERT, "--to", REFUSED),
    (SEND, "--format", REFUSED),
    (SEND, "--wait", [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]),
    (RECEIVE, "--client-share", REFUSED),
    (RECEIVE, "--connections", REFUSED),
    (RECEIVE, "--idle-timeout", REFUSED),
    (RECEIVE, "--arrival-timeout", REFUSED),
    (SEND, "--expanded-max", REFUSED),
    (SEND, "--record-max", REFUSED),
    (&["send", INPUT], "--to", REFUSED),
    (SEND, "--rate", REFUSED),
    (SEND, "--batch", REFUSED),
    // Nothing listens, so no value can succeed.
    (SEND, "--resume", [1, 2, 1, 1, 1, 2, 2, 1, 1, 2]),
    (&["send", "--to", "otlp://127.0.0.1:1"], "", [1, 2, 1, 1, 1, 2, 1, 1, 1, 1]),
    (&["receive", "--otlp", "127.0.0.1:0"], "--out", [SKIP, 2, SKIP, SKIP, SKIP, 2, 1, SKIP, 1, SKIP]),
    (&["receive", "--out", "received"], "--otlp", REFUSED),
    (RECEIVE, "--rotate", REFUSED),
    (RECEIVE, "--total-max", REFUSED),
    (RECEIVE, "--dead-max", REFUSED),
    (RECEIVE, "--host", [SKIP, 2, SKIP, SKIP, SKIP, SKIP, SKIP, SKIP, SKIP, SKIP]),
    (&["compare"], "", REFUSED),
    (&["compare", "--bad", INPUT], "--good", COMPARED_TEXT),
    (&["compare", "--good", INPUT], "--bad", COMPARED_TEXT),
    (COMPARE_ONE, "--bad-time", REFUSED),
    (COMPARE_ONE, "--bad-slowest", REFUSED),
    (COMPARE_ONE, "--bad-above", COMPARED_FROM_0),
    (COMPARE_ONE, "--bad-where", REFUSED),
    (COMPARE_ONE, "--bad-ids", COMPARED_TEXT),
    (COMPARE, "--good-ids", COMPARED_TEXT),
    (COMPARE, "--near", COMPARED_FROM_0),
    (COMPARE, "--root", TEXT),
    (COMPARE, "--where", REFUSED),
    (COMPARE_ONE, "--explain", COMPARED_TEXT),
    (COMPARE, "--instance", [1, 2, 1, 1, 1, 2, 1, 1, 2, 1]),
    (COMPARE, "--format", REFUSED),
    (COMPARE, "--expanded-max", REFUSED),
    (COMPARE, "--record-max", REFUSED),
    (COMPARE, "--names", REFUSED),
    (COMPARE, "--fold", REFUSED),
    (COMPARE, "--layout", REFUSED),
    (COMPARE, "--layouts", REFUSED),
    (COMPARE, "--log-zone", REFUSED),
    (COMPARE, "--metric", REFUSED),
    (COMPARE, "--metrics", [1, 2, 1, 1, 1, 2, 1, 1, 1, 1]),
    (COMPARE, "--key", REFUSED),
    (COMPARE, "--ignore", [0, 2, 0, 0, 0, 2, 0, 0, 0, 0]),
    (COMPARE, "--weight-step", REFUSED),
    (COMPARE, "--variables-max", REFUSED),
    (COMPARE, "--seed", FROM_0),
    (COMPARE, "--split-min", REFUSED),
    (COMPARE, "--focus", [0, 2, 2, 2, 0, 2, 2, 2, 2, 2]),
    (COMPARE, "--top", FROM_0),
    (COMPARE, "--fail-on", REFUSED),
    (COMPARE, "--html", [1, 2, 1, 1, 1, 2, 2, 1, 1, 2]),
    (COMPARE_FAIL, "--at-least", COMPARED_FROM_0),
    (&["spool", "inspect"], "", FOLDER),
    (&["spool", "verify"], "", FOLDER),
    (&["spool", "audit"], "", FOLDER),
    (&["spool", "drain", "--to", "otlp://127.0.0.1:1"], "", FOLDER),
    (&["spool", "drain", "nowhere"], "--to", REFUSED),
    (DRAIN, "--dead", REFUSED),
    (DRAIN, "--wait", [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]),
];

/// The rows of all commands; some are beside their command's other tests.
fn rows() -> impl Iterator<Item = &'static (&'static [&'static str], &'static str, Codes)> {
    TABLE
        .iter()
        .chain(query::OPTIONS)
        .chain(order::OPTIONS)
        .chain(merged::OPTIONS)
        .chain(drill::OPTIONS)
        .chain(forward::OPTIONS)
}

/// Options without a value.
const FLAGS: &[&str] = &[
    "--all",
    "--ids",
    "--strict",
    "--json",
    "--spans",
    "--weights",
    "--dot",
    "--help",
    "--one-key",
    "--no-cap",
    "--late",
    "--no-late",
    "--or-equal",
    "--verbose",
    "--shift-to-now",
    "--zstd",
    "--assume-runs",
    "--bad-errors",
    "--paper",
    "--explain",
    "--no-remote-returns",
    "--why",
    "--logs",
    "--merged",
    "--follow",
    "--raw-times",
    "--drop-cycles",
];

fn run_in(folder: &Folder, args: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_astracer"))
        .args(args)
        .current_dir(folder.join(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that refuses its arguments does not read.
    let _ = child.stdin.take().expect("piped").write_all(TWO_TRACES.as_bytes());
    child.wait_with_output().expect("the binary ends")
}

#[cfg(target_os = "linux")]
#[test]
fn every_option_has_an_answer_to_every_value() {
    let mut wrong = Vec::new();
    for (before, option, codes) in rows() {
        for (value, code) in VALUES.iter().zip(codes).filter(|&(_, &code)| code != SKIP) {
            let folder = Folder::new("options");
            let recording = folder.file(INPUT, TWO_TRACES);
            let option = Some(*option).filter(|option| !option.is_empty());
            let args: Vec<&str> = before.iter().copied().chain(option).chain([*value]).collect();
            let output = run_in(&folder, &args);
            let error = String::from_utf8_lossy(&output.stderr);
            if output.status.code() != Some(*code) {
                wrong.push(format!("{args:?} ended with {:?}, not {code}: {error}", output.status));
            }
            if *code != 0 && !(error.starts_with("error: ") || error.starts_with("astracer: ")) {
                wrong.push(format!("{args:?} says no reason: {error:?}"));
            }
            if fs::read_to_string(&recording).ok().as_deref() != Some(TWO_TRACES) {
                wrong.push(format!("{args:?} changed the recording"));
            }
            if folder.names().iter().any(|name| name.contains("partial")) {
                wrong.push(format!("{args:?} left {:?}", folder.names()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// All subcommands of a command, each with its full path.
fn commands(words: &[&str]) -> Vec<Vec<String>> {
    let help = success(&run(&[words, &["--help"]].concat()));
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    // Continuation lines of descriptions are indented further.
    let lines = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split_whitespace().next());
    let below = |name: &str| words.iter().chain([&name]).map(|word| (*word).to_owned()).collect();
    names.filter(|&name| name != "help").map(below).collect()
}

/// Compares the table with the options in the help, so that a new option needs a row.
#[test]
fn the_table_has_every_option_of_every_command() {
    let mut missing = BTreeSet::new();
    let mut commands = commands(&[]);
    while let Some(command) = commands.pop() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let below = self::commands(&words);
        if !below.is_empty() {
            commands.extend(below);
            continue;
        }
        let help = success(&run(&[&words[..], &["--help"]].concat()));
        let options = help.lines().filter_map(|line| {
            let line = line.trim_start();
            let long = line.split_whitespace().find(|word| word.starts_with("--"));
            long.filter(|_| line.starts_with('-'))
        });
        for option in options.filter_map(|option| option.split(['[', ',', '.']).next()) {
            let known =
                |(before, known, _): &(&[&str], &str, Codes)| before.starts_with(&words) && *known == option;
            if !rows().any(known) && !FLAGS.contains(&option) {
                missing.insert(format!("{} {option}", words.join(" ")));
            }
        }
    }
    assert!(missing.is_empty(), "add to TABLE or FLAGS: {missing:?}");
}

/// Two traces at the same time and a cap of one: only one is kept.
#[test]
fn evaluate_and_tune_show_what_a_cap_does() {
    let input = Scratch::new("capped.json", TWO_TRACES);
    let ids = Scratch::new("capped.txt", "");
    let cap = "traces=0.001,burst=1";
    let args = ["evaluate", input.path(), "--sampler", "always", "--cap", cap, "--kept", ids.path()];
    let text = success(&run(&args));
    assert!(text.contains("always under traces=0.001,"), "{text}");
    assert_eq!(std::fs::read_to_string(ids.path()).expect("written").lines().count(), 1);
    let out = Scratch::new("capped.toml", "");
    let tune = ["tune", input.path(), "--size-max", "100%", "--per-key", "never"];
    let text = success(&run(&[&tune[..], &["--cap", cap, "--out", out.path()]].concat()));
    assert!(text.contains("\nunder the cap  "), "{text}");
    let file = std::fs::read_to_string(out.path()).expect("written");
    assert!(file.contains("[cap]\ntraces = 0.001\nburst = 1"), "{file}");
    // Without --cap, the cap in the file applies.
    let text = success(&run(&["evaluate", input.path(), "--parameters", out.path()]));
    assert!(text.contains("\n+ cap traces=0.001,burst=1  "), "{text}");
    failure(&run(&["evaluate", input.path(), "--cap", "traces"]), 2, &["--cap", "traces=100"]);
}

/// A key falls back to attributes of the resource. Policies see only attributes of spans, as in a
/// service.
#[test]
fn policies_do_not_see_the_attributes_of_resources() {
    let attribute = |key: &str| format!(r#"[{{"key":"{key}","value":{{"stringValue":"x"}}}}]"#);
    let span = format!(
        r#"{{"traceId":"{0:032x}","spanId":"{0:016x}","name":"a","startTimeUnixNano":"1000","endTimeUnixNano":"2000","attributes":{1}}}"#,
        7,
        attribute("code")
    );
    let text = format!(
        r#"{{"resourceSpans":[{{"resource":{{"attributes":{}}},"scopeSpans":[{{"spans":[{span}]}}]}}]}}"#,
        attribute("env")
    );
    let input = Scratch::new("resource.json", &text);
    let ids = Scratch::new("resource.txt", "");
    for (policy, key, kept) in [("attr:env=x", "name+env", 0), ("attr:code=x", "name+code", 1)] {
        let tail = ["--tail", policy, "--provisional", "always", "--sampler", "never", "--seeds", "1"];
        let args = ["evaluate", input.path(), "--key", key, "--kept", ids.path()];
        let printed = success(&run(&[&args, &tail[..]].concat()));
        assert_eq!(std::fs::read_to_string(ids.path()).unwrap(), format!("{:016x}\n", 7).repeat(kept));
        let row = printed.lines().find(|line| line.starts_with(policy)).expect("a row for the policy");
        assert_eq!(row.split_whitespace().nth(1), Some(&*kept.to_string()), "{printed}");
        assert!(printed.contains(", 1 key by name+"), "{printed}");
    }
}

/// Otherwise a misspelled attribute would only be noticed in production.
#[test]
fn attributes_missing_from_a_recording_are_reported() {
    let input = Scratch::new("absent.json", TWO_TRACES);
    let out = Scratch::new("absent.toml", "");
    for args in [
        &["evaluate", input.path(), "--seeds", "1"][..],
        &["tune", input.path(), "--size-max=100%", "--per-key=never", "--iterations=4", "--out", out.path()],
    ] {
        let text = success(&run(args));
        assert!(!text.contains("attribute"), "{text}");
        let asked = ["--key", "name+http.rout", "--tail", "attr:cod>=500"];
        let text = unwrapped(&success(&run(&[args, &asked].concat())));
        for says in [
            "warning: key attribute http.rout is on no root span or resource",
            "warning: policy attribute cod is on no span in this recording",
        ] {
            assert!(text.contains(says), "{says}: {text}");
        }
    }
}

/// The exporter adds these attributes after the policies have decided.
#[test]
fn attributes_that_only_the_exporter_adds_are_reported() {
    let input = Scratch::new(
        "added.json",
        &TWO_TRACES.replace(r#""d":"send""#, r#""d":"send","n":{"thread.name":"x"}"#),
    );
    let out = Scratch::new("added.toml", "");
    for args in [
        &["evaluate", input.path(), "--seeds", "1"][..],
        &["tune", input.path(), "--size-max=100%", "--per-key=never", "--iterations=4", "--out", out.path()],
    ] {
        let text = success(&run(&[args, &["--tail", "error,attr:code=x,attr:thread.name=x"]].concat()));
        let text = unwrapped(&text);
        let says = "warning: policy attribute thread.name is added at export";
        assert_eq!(text.matches(says).count(), 1, "{text}");
    }
}

/// All samplers of a table are replayed with the same randomness and policies. Policies that are
/// code of the service cannot be replayed.
#[test]
fn parts_of_parameters_files_that_are_not_replayed_are_reported() {
    let input = Scratch::new("parts.json", TWO_TRACES);
    let file = |name: &str, random: &str, policies: &str| {
        let text = format!(
            "version = 4\nrandom = \"{random}\"\n[ratio]\nprobability = 0.5\n[tail]\npolicies = [{policies}]\n"
        );
        Scratch::new(name, &text)
    };
    let one = file("one.toml", "stratified", "\"error\", \"own:mine\"");
    let other = file("other.toml", "independent", "\"odd\"");
    let args = ["evaluate", input.path(), "--seeds", "1", "--parameters", one.path()];
    let own = "the policy own:mine of ";
    let text = success(&run(&args));
    assert!(text.contains(own) && !text.contains("randomness"), "{text}");
    let both = [&args[..], &["--parameters", other.path()]].concat();
    let text = unwrapped(&success(&run(&both)));
    for says in
        [own, "replayed with stratified randomness, as in ", "are replayed with all samplers, although"]
    {
        assert!(text.contains(says), "{says}: {text}");
    }
    // No warning if options choose the randomness and the policies.
    let text = success(&run(&[&both[..], &["--random", "independent", "--tail", "error"]].concat()));
    assert!(!text.contains("warning"), "{text}");
}

/// Both traces begin at the same time, so the first half of the time has none.
#[test]
fn a_split_that_leaves_nothing_to_tune_on_is_named() {
    let input = Scratch::new("split.json", &TWO_TRACES.replace("\"b\":2000", "\"b\":1000"));
    let out = Scratch::new("split.toml", "");
    let args = ["tune", input.path(), "--size-max", "100%", "--split", "50%", "--out", out.path()];
    let output = run(&args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("no trace begins in the part of the recording that --split leaves"), "{error}");
}

/// Traces of one span each, `apart_ms` apart; every second one failed.
fn failing(traces: u64, apart_ms: u64) -> String {
    spans(traces, apart_ms, |n| ("a".to_owned(), !n.is_multiple_of(2)))
}

/// A limit per second covers the sampler and the policies together, like the limit on the share of
/// the bytes.
#[test]
fn limits_by_second_hold_with_policies_too() {
    let around_span = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[]}]}]}"#.len();
    // Recordings of 40 s and of 0.2 s, which counts as one second. The policy keeps a dozen traces
    // of the second, which is within its limits.
    for (traces, apart_ms, seconds, limits) in
        [(400, 100, 39.9, ["7", "1500"]), (200, 1, 1.0, ["40", "6800"])]
    {
        let text = failing(traces, apart_ms);
        let bytes = text.lines().map(|line| line.len() - around_span).sum::<usize>() as f64;
        let input = Scratch::new("by-second.jsonl", &text);
        let out = Scratch::new("by-second.toml", "");
        for (limit, value) in ["--traces-per-second", "--bytes-per-second"].into_iter().zip(limits) {
            let args =
                ["tune", input.path(), "--size-max", "100%", "--one-key", "--json", "--out", out.path()];
            let tail = ["--tail", "error", "--provisional", "always", limit, value];
            let text = success(&run(&[&args[..], &tail].concat()));
            let found = serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
            let mean = |name: &str| found["tail"][name]["mean"].as_f64().expect(name);
            let together = match limit {
                "--traces-per-second" => (mean("head_traces") + mean("traces")) / seconds,
                _ => (mean("head") + mean("tail")) * bytes / seconds,
            };
            let most = 1.05 * value.parse::<f64>().expect("a number");
            let warnings = found["warnings"].to_string();
            assert!(together < most || warnings.contains("together keep"), "{limit}: {together}, {warnings}");
            assert!(together < 1.5 * most, "{limit}: {together}");
        }
    }
}

/// The limit per second is a fiftieth of the default --size-max, and so below the default
/// --size-min of a tenth.
#[test]
fn a_limit_by_second_leaves_room_for_the_least_size() {
    let input = Scratch::new("by-second-only.jsonl", &failing(4000, 10));
    let out = Scratch::new("by-second-only.toml", "");
    let args =
        ["tune", input.path(), "--one-key", "--traces-per-second", "0.2", "--json", "--out", out.path()];
    let found: serde_json::Value = serde_json::from_str(&success(&run(&args))).expect("JSON");
    let share = found["baseline"]["tfcr"].as_f64().expect("a number");
    assert!(share < 0.01, "an equal share within the limit: {share}");
}

/// A bump keeps the first trace of each name, here 35 % of all. The policy keeps a tenth beside an
/// equal share of a half, but nearly a fifth beside the bump. That leaves a second search less than
/// 35 %.
#[test]
fn parameters_stand_though_a_second_search_behind_policies_finds_none() {
    let letters = |n: u64| (0..4).map(|place| char::from(b'g' + (n / 20u64.pow(place) % 20) as u8)).collect();
    let of = |n: u64| match n % 20 {
        0..7 => (letters(n), false),
        rest => ("busy".to_owned(), rest < 11),
    };
    let input = Scratch::new("second.jsonl", &spans(1000, 100, of));
    let out = Scratch::new("second.toml", "");
    let args =
        ["tune", input.path(), "--size-max", "50%", "--one-key", "--per-key", "never", "--tail", "error"];
    let text = success(&run(&[&args[..], &["--provisional", "always", "--out", out.path()]].concat()));
    assert!(unwrapped(&text).contains("together keep"), "{text}");
    assert!(std::fs::read_to_string(out.path()).expect("written").contains("[bump]"));
}
