//! `order --merged` on logs alone, whose records are printed while they are read.

use std::fs;

use crate::options::{Codes, INPUT, REFUSED};
use crate::outputs::Folder;
use crate::{failure, run, run_with_input, success};

const MERGED: &[&str] = &["order", INPUT, "--merged"];

/// 0 is now.
const TIME: Codes = [1, 2, 2, 2, 2, 2, 2, 2, 2, 2];

/// Rows of the table of options. The recording has spans only, so an accepted value ends with 1.
pub(crate) const OPTIONS: &[(&[&str], &str, Codes)] = &[
    (MERGED, "--level", REFUSED),
    (MERGED, "--grep", [1, 2, 1, 1, 1, 1, 1, 1, 1, 1]),
    (MERGED, "--trace", REFUSED),
    (MERGED, "--since", TIME),
    (MERGED, "--until", TIME),
];

/// The printed lines without the times' dates and zones, and standard error.
fn merged(folder: &Folder, more: &[&str]) -> (Vec<String>, String) {
    let output = run(&[&["order", &folder.join(""), "--merged"], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines = text.lines().map(|line| line.replace("2026-05-14T09:", "").replace("Z local", "")).collect();
    (lines, String::from_utf8(output.stderr).expect("UTF-8"))
}

/// Writes files and checks the merged log.
#[track_caller]
fn check(name: &str, files: &[(&str, &str)], expected: &[&str], notes: &[&str]) {
    let folder = Folder::new(name);
    for (file, content) in files {
        folder.file(file, content);
    }
    let (lines, says) = merged(&folder, &[]);
    assert_eq!(lines, expected);
    assert!(notes.iter().all(|note| says.contains(note)) && says.is_empty() == notes.is_empty(), "{says}");
}

/// The files of a rotation are one log, oldest first, though all times are equal.
#[test]
fn rotated_files_are_one_log() {
    let line = |number| format!("2026-05-14 09:00:00.000 INFO a: line {number}\n");
    check(
        "merged-rotation",
        &[("app.log", &(line(4) + &line(5))), ("app.log.1", &(line(2) + &line(3))), ("app.log.2", &line(1))],
        &[
            "  00:00.000 app | INFO a: line 1",
            "  00:00.000 app | INFO a: line 2",
            "  00:00.000 app | INFO a: line 3",
            "  00:00.000 app | INFO a: line 4",
            "  00:00.000 app | INFO a: line 5",
        ],
        &[],
    );
}

#[test]
fn one_wrong_time_moves_no_other_record() {
    check(
        "merged-outlier",
        &[
            (
                "a.log",
                "2026-05-14 09:00:00.000 INFO a: 1\n2066-10-24 23:45:52.000 INFO a: 2\n\
                 2026-05-14 09:00:02.000 INFO a: 3\n2026-05-14 09:00:04.000 INFO a: 4\n",
            ),
            ("b.log", "2026-05-14 09:00:01.000 INFO b: 1\n2026-05-14 09:00:03.000 INFO b: 2\n"),
        ],
        &[
            "  00:00.000 a | INFO a: 1",
            "  2066-10-24T23:45:52.000 a | INFO a: 2",
            "? 00:01.000 b | INFO b: 1",
            "? 00:02.000 a | INFO a: 3",
            "? 00:03.000 b | INFO b: 2",
            "? 00:04.000 a | INFO a: 4",
        ],
        &["a.log:2", "2066-10-24T23:45:52.000Z is out of order beside 2026-05-14T09:00:00.000Z"],
    );
}

/// The clock of `a` was set back after its second record, which the lines' order shows.
#[test]
fn a_clock_that_was_set_back_is_named() {
    check(
        "merged-step",
        &[
            (
                "a.log",
                "2026-05-14 09:00:30.000 INFO a: 1\n2026-05-14 09:00:31.000 INFO a: 2\n\
                 2026-05-14 09:00:02.000 INFO a: 3\n2026-05-14 09:00:03.000 INFO a: 4\n",
            ),
            ("b.log", "2026-05-14 09:00:01.000 INFO b: 1\n2026-05-14 09:00:02.500 INFO b: 2\n"),
        ],
        &[
            "  00:01.000 b | INFO b: 1",
            "? 00:30.000 a | INFO a: 1",
            "  00:31.000 a | INFO a: 2",
            "  00:02.000 a | INFO a: 3",
            "? 00:02.500 b | INFO b: 2",
            "? 00:03.000 a | INFO a: 4",
        ],
        &["a.log:1", "2026-05-14T09:00:30.000Z is out of order beside 2026-05-14T09:00:02.000Z"],
    );
}

#[test]
fn a_file_of_two_hosts_is_two_streams() {
    let record = |host: &str, number: u32, second: u32| {
        format!(
            "{{\"host.name\":\"{host}\",\"level\":\"info\",\"msg\":\"{host} {number}\",\
             \"time\":\"2026-05-14T09:00:0{second}.000Z\"}}\n"
        )
    };
    let all = [record("x", 1, 1), record("x", 2, 2), record("y", 1, 1), record("y", 2, 2)].concat();
    check(
        "merged-hosts",
        &[("all.json", &all)],
        &[
            "  00:01.000Z x all | INFO x 1",
            "? 00:01.000Z y all | INFO y 1",
            "? 00:02.000Z x all | INFO x 2",
            "? 00:02.000Z y all | INFO y 2",
        ],
        &[
            "all.json is sorted, because several processes wrote it or its times step back often (first in line 3)",
        ],
    );
}

/// A panic between records of JSON, and a banner before the first time.
#[test]
fn lines_without_a_time_stay_with_their_record() {
    check(
        "merged-lines",
        &[
            (
                "panic.log",
                "{\"time\":\"2026-05-14T09:00:01Z\",\"level\":\"info\",\"msg\":\"json\",\"n\":1}\npanic: runtime error\n\n\
                 goroutine 1 [running]:\n{\"time\":\"2026-05-14T09:00:02Z\",\"level\":\"error\",\"msg\":\"json2\"}\n",
            ),
            ("pre.log", "Welcome to app 1.2\n\n2026-05-14 09:00:00.000 INFO a: 1\n"),
            // The name states the date.
            ("only-2026-05-14.log", "09:00:03.123 [main] INFO a.b.C -- m0\n"),
        ],
        &[
            "  00:00.000 pre | INFO a: 1",
            "Welcome to app 1.2",
            "? 00:01.000 panic | INFO json n=1",
            "panic: runtime error",
            "",
            "goroutine 1 [running]:",
            "  00:02.000 panic | ERROR json2",
            "? 00:03.123 only | INFO a.b.C: m0",
        ],
        &[],
    );
}

const LOG: &str = "2026-05-14 09:00:00.000 DEBUG a: one\n2026-05-14 09:00:01.000 WARN a: two\n  further\n\
    2026-05-14 09:00:02.000 ERROR a: three 1a1afe878b33e968617959ce3f1f65a8\n";

#[test]
fn records_are_chosen_by_severity_text_trace_and_time() {
    let folder = Folder::new("merged-filters");
    folder.file("a.log", LOG);
    for (args, messages) in [
        (&["--level", "warn"][..], &["two", "three"][..]),
        (&["--grep", "furth|one"], &["one", "two"]),
        (&["--trace", "1A1AFE87-8b33-e968-6179-59ce3f1f65a8"], &["three"]),
        // The low half in decimal: 0x617959ce3f1f65a8.
        (&["--trace", "7023743836218156456"], &["three"]),
        (&["--since", "2026-05-14T09:00:01Z", "--until", "2026-05-14 09:00:01"], &["two"]),
        (&["--since", "2026-05-15"], &[]),
    ] {
        let (lines, _) = merged(&folder, args);
        let found = lines.iter().filter_map(|line| line.split("a: ").nth(1)?.split(' ').next());
        assert_eq!(found.collect::<Vec<_>>(), messages, "{args:?}");
    }
}

#[test]
fn json_lines_have_the_parts_of_a_record() {
    let folder = Folder::new("merged-jsonl");
    let log = r#"{"time":"2026-05-14T09:00:01Z","level":"warn","msg":"a","n":1,"trace_id":"1a1afe878b33e968617959ce3f1f65a8"}"#;
    let file = folder.file("a.json", &format!("{log}\n"));
    let text = success(&run(&["order", &file, "--merged=jsonl"]));
    let record: serde_json::Value = serde_json::from_str(text.trim_end()).expect("one JSON object");
    let expected = serde_json::json!({
        "time": "2026-05-14T09:00:01.000Z", "host": "local", "process": "a", "severity": "warn", "order": "after",
        "message": "a", "file": file, "line": 1, "attributes": { "n": 1 },
        "trace_id": "1a1afe878b33e968617959ce3f1f65a8",
    });
    assert_eq!(record, expected);
    failure(&run(&["order", &file, "--merged=xml"]), 2, &["--merged"]);
}

/// Standard input is a log too; a file counts once, by whatever name; hidden files do not count.
#[test]
fn a_file_is_read_once_and_standard_input_too() {
    let folder = Folder::new("merged-once");
    let file = folder.file("a.log", "2026-05-14 09:00:00.000 INFO a: one\n");
    folder.file(".hidden.log", LOG);
    fs::create_dir(folder.join("b")).expect("a folder");
    folder.file("b/b.log", "2026-05-14 09:00:02.000 INFO b: three\n");
    let again = folder.join("b/../a.log");
    let args = ["order", &file, &again, &folder.join(""), "-", "--merged"];
    let text = success(&run_with_input(&args, "2026-05-14 09:00:01.000 INFO c: two\n"));
    let messages: Vec<_> = text.lines().filter_map(|line| line.split(": ").nth(1)).collect();
    assert_eq!(messages, ["one", "two", "three"], "{text}");
}

#[test]
fn colours_are_for_terminals_and_may_be_refused() {
    let folder = Folder::new("merged-colours");
    let file = folder.file("a.log", LOG);
    let run = |variables: &[(&str, &str)]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_astracer"));
        command.args(["order", &file, "--merged"]).env_remove("NO_COLOR");
        command.envs(variables.iter().copied()).output().expect("it runs").stdout
    };
    let red = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).contains("\u{1b}[31mERROR");
    assert!(!red(run(&[])) && red(run(&[("CLICOLOR_FORCE", "1")])));
    assert!(!red(run(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")])));
}

/// Records are printed while they are written, also after the file was shortened.
#[cfg(unix)]
#[test]
fn logs_are_followed_until_a_signal() {
    use std::io::{BufRead as _, Write as _};
    let folder = Folder::new("merged-follow");
    let (a, b) = (folder.file("a.log", "2026-05-14 09:00:00.000 INFO a: one\n"), folder.file("b.log", ""));
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_astracer"))
        .args(["order", &a, "--merged", "--follow"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = std::io::BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || lines.next().expect("a line").expect("UTF-8");
    assert!(next().ends_with("INFO a: one"));
    let mut log = fs::File::options().append(true).open(&a).expect("the log");
    // Half of a line is not printed.
    log.write_all(b"2026-05-14 09:00:01.000 INFO a: t").expect("written");
    log.write_all(b"wo\n").expect("written");
    assert!(next().ends_with("INFO a: two"));
    fs::write(&a, "2026-05-14 09:00:02.000 INFO a: 3\n").expect("written");
    assert!(next().ends_with("INFO a: 3"));
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill is there").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    failure(&run(&["order", &a, &b, "--merged", "--follow", "--strict"]), 2, &["--follow takes logs alone"]);
}
