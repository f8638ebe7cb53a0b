//! `astracer convert`.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::{Scratch, TWO_TRACES, failure, run, run_with_input, success, workload};

#[test]
fn traces_go_to_standard_output_and_notes_beside_it() {
    let output = run_with_input(&["convert", "-", "-"], TWO_TRACES);
    assert!(output.status.success());
    let lines: Value = serde_json::from_slice(&output.stdout).expect("one line of OTLP JSON");
    assert_eq!(lines["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().map(Vec::len), Some(3));
    let notes = String::from_utf8_lossy(&output.stderr);
    assert_eq!(notes, "- (htrace, 1 file)\nwrote 3 spans as otlp-json to -\n");
}

#[test]
fn what_the_format_can_not_hold_is_counted() {
    let zipkin = r#"[{"traceId":"1","id":"1","timestamp":1000001,"duration":5,"shared":true},
        {"traceId":"1","id":"2","timestamp":1000000,"duration":1000}]"#;
    let output = run_with_input(&["convert", "-", "-", "--to", "htrace"], zipkin);
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(
        notes.contains(
            "lost in htrace: time truncated to the format's unit (milliseconds or microseconds) (1 span)"
        ),
        "{notes}"
    );
    let target = Scratch::new("losses.json", "");
    let json = success(&run_with_input(&["convert", "-", target.path(), "--to", "htrace", "--json"], zipkin));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["spans"], 2);
    assert_eq!(json["input"]["files"][0]["format"], "zipkin-json");
    let losses: Vec<_> = json["losses"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|loss| (&loss["kind"], &loss["spans"]))
        .collect();
    assert_eq!(losses, [(&"time_precision".into(), &1.into()), (&"shared".into(), &1.into())]);
    assert_eq!(fs::read_to_string(target.path()).expect("written").lines().count(), 2);
}

#[test]
fn a_recording_keeps_its_figures_through_every_format() {
    let path = workload("hdfs_raw_roots.tar.xz");
    let figures = |path: &str| {
        let json = success(&run(&["inspect", path, "--json"]));
        let json: Value = serde_json::from_str(&json).expect("JSON");
        ["traces", "spans", "call_trees", "start_unix_ns", "end_unix_ns", "functions"]
            .map(|key| json[key].to_string())
    };
    let expected = figures(&path);
    assert_eq!(expected[..2], ["30777", "72433"]);
    for format in ["otlp-json", "jaeger-json", "htrace"] {
        let target = Scratch::new(&format!("{format}.json"), "");
        let output = run(&["convert", &path, target.path(), "--to", format]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(figures(target.path()) == expected, "{format}");
    }
}

#[test]
fn a_conversion_that_fails_leaves_the_file_alone() {
    let target = Scratch::new("old.json", "as it was");
    failure(&run_with_input(&["convert", "-", target.path()], "no traces"), 1, &["no traces in"]);
    let broken = format!("{TWO_TRACES}{{\"a\":7}}\n");
    let args = ["convert", "-", target.path(), "--strict"];
    failure(&run_with_input(&args, &broken), 1, &["bad record", "omit --strict to use the rest"]);
    assert_eq!(fs::read_to_string(target.path()).expect("still there"), "as it was");
    failure(&run(&["convert", target.path(), target.path()]), 2, &["is the input"]);
    failure(
        &run(&["convert", &workload("README.md"), "/nowhere/x"]),
        1,
        &["/nowhere/x", "choose another file for OUT"],
    );
    failure(
        &run(&["convert", "-", "-", "--to", "nezha-csv"]),
        2,
        &["can be read but not written: use otlp-json"],
    );
    let folder = std::path::Path::new(target.path()).parent().expect("a folder");
    let left = fs::read_dir(folder).expect("readable").filter_map(Result::ok);
    let left: Vec<_> =
        left.filter(|entry| entry.file_name().to_string_lossy().contains("old.json.")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The magic numbers are those of RFC 1952 and RFC 8878.
#[test]
fn outputs_are_compressed_by_their_names() {
    let input = Scratch::new("packed.json", TWO_TRACES);
    let plain = Scratch::new("packed-plain.jsonl", "");
    success(&run(&["convert", input.path(), plain.path(), "--json"]));
    let plain = fs::read_to_string(plain.path()).expect("written");
    for (name, magic) in [("packed.jsonl.gz", &b"\x1f\x8b"[..]), ("packed.jsonl.zst", b"\x28\xb5\x2f\xfd")] {
        let target = Scratch::new(name, "old");
        success(&run(&["convert", input.path(), target.path(), "--json"]));
        assert!(fs::read(target.path()).expect("written").starts_with(magic), "{name}");
        let again = run(&["convert", target.path(), "-"]);
        assert!(again.status.success(), "{name}");
        assert_eq!(String::from_utf8_lossy(&again.stdout), plain, "{name}");
        let kept = ["evaluate", input.path(), "--sampler", "always", "--kept", target.path()];
        success(&run(&kept));
        assert!(fs::read(target.path()).expect("written").starts_with(magic), "{name}");
        failure(&run(&["tune", input.path(), "--out", target.path()]), 2, &["without .gz or .zst"]);
    }
}

/// `run.jsonl.xz` used to be written as plain text without a warning, so nothing that trusts the
/// name could unpack it.
#[test]
fn names_of_other_compressions_are_refused() {
    let input = Scratch::new("promise.json", TWO_TRACES);
    let folder = std::path::Path::new(input.path()).parent().expect("a folder");
    for name in ["promise.jsonl.xz", "promise.json.BZ2", "promise.tar", "promise.tgz", "promise.zip"] {
        let target = folder.join(name);
        let target_path = target.to_str().expect("a name in Unicode");
        for args in [
            &["convert", input.path(), target_path][..],
            &["tune", input.path(), "--out", target_path],
            &["critical-path", input.path(), "--folded", target_path],
        ] {
            failure(&run(args), 2, &[name, "only .gz and .zst can be written"]);
        }
        assert!(!target.exists(), "{name}");
    }
}

/// `astracer convert FILE /dev/stdout > out` was refused as an output that is also standard output.
#[cfg(target_os = "linux")]
#[test]
fn standard_output_may_be_a_file_by_its_name() {
    let recording = Scratch::new("named-stdout.json", TWO_TRACES);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("out.jsonl");
    let mut file = fs::File::create(&path).expect("a file");
    std::io::Write::write_all(&mut file, b"\n").expect("a line before it");
    let mut command = Command::new(env!("CARGO_BIN_EXE_astracer"));
    let status = command.args(["convert", recording.path(), "/dev/stdout"]).stdout(file).status();
    assert!(status.expect("the binary starts").success());
    let text = fs::read_to_string(&path).expect("text");
    assert!(text.starts_with("\n{\"resourceSpans\"") && text.ends_with('\n'), "{text}");
}
