//! Standard output that cannot be written, is full, or has no reader.

use std::process::Command;

use crate::outputs::Folder;
use crate::spool::damaged;
use crate::{TWO_TRACES, failure, unread};

/// Commands that print a result, in a folder with the recording `w.jsonl`.
const PRINTING: &[&[&str]] = &[
    &["--help"],
    &["inspect", "--help"],
    &["--version"],
    &["inspect", "w.jsonl"],
    &["inspect", "w.jsonl", "--json"],
    &["evaluate", "w.jsonl", "--sampler", "always", "--seeds", "1"],
    &["tune", "--size-max", "100%", "w.jsonl", "--json"],
    &["critical-path", "w.jsonl"],
    &["events", "w.jsonl", "--trace", "1"],
    &["events", "w.jsonl", "--trace", "1", "--dot"],
    &["convert", "w.jsonl", "-"],
    &["convert", "w.jsonl", "-", "--to", "jaeger-json"],
    &["convert", "w.jsonl", "out.jsonl", "--json"],
    &["spool", "inspect", "spool"],
];

fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.file("w.jsonl", TWO_TRACES);
    damaged(folder.join("spool").as_ref());
    folder
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_takes_nothing_is_an_error() {
    let folder = folder("closed");
    for redirection in ["1</dev/null", ">/dev/full", ">&-", "<&- >&-"] {
        for args in PRINTING {
            let output = Command::new("sh")
                .args(["-c", &format!("exec \"$@\" {redirection}"), "sh", env!("CARGO_BIN_EXE_astracer")])
                .args(*args)
                .current_dir(folder.join("."))
                .output()
                .expect("a shell");
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{args:?} {redirection}: {text}");
            assert!(text.contains("cannot write to standard output: "), "{args:?} {redirection}: {text}");
        }
    }
}

/// The names of a closed output lead to the null device.
#[cfg(target_os = "linux")]
#[test]
fn a_closed_output_is_closed_under_its_names() {
    let folder = folder("names");
    for command in ["convert w.jsonl /dev/stdout", "critical-path w.jsonl --html /dev/fd/1 --json"] {
        let script = format!("exec \"$0\" {command} >&-");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_astracer")]).current_dir(folder.join("."));
        failure(&shell.output().expect("a shell"), 1, &["cannot write", "it is closed"]);
    }
}

/// Python's `subprocess.DEVNULL` and daemons open `/dev/null` for reading and writing, as Rust does
/// in place of a closed descriptor.
#[cfg(target_os = "linux")]
#[test]
fn the_null_device_is_no_closed_output() {
    let folder = folder("null");
    for redirection in [">/dev/null", "1<>/dev/null", "<&- 1<>/dev/null 2>&-"] {
        for args in [&["--help"][..], &["inspect", "w.jsonl"]] {
            let script = format!("exec \"$@\" {redirection}");
            let command = ["-c", &script, "sh", env!("CARGO_BIN_EXE_astracer")];
            let status = Command::new("sh").args(command).args(args).current_dir(folder.join(".")).status();
            assert_eq!(status.expect("a shell").code(), Some(0), "{args:?} {redirection}");
        }
    }
}

/// Only `convert` used to check: `inspect w.jsonl >> w.jsonl` wrote its table behind the traces.
#[cfg(target_os = "linux")]
#[test]
fn nothing_is_printed_into_what_is_read() {
    let folder = folder("printed");
    std::os::unix::fs::symlink(folder.join("w.jsonl"), folder.join("soft")).expect("symbolic links");
    let send = &["send", "w.jsonl", "--to", "otlp://127.0.0.1:1", "--wait", "0"][..];
    let compare = &["critical-path", "spool/../w.jsonl", "--json"][..];
    for args in PRINTING.iter().filter(|args| args.contains(&"w.jsonl")).chain([&send, &compare]) {
        for redirection in [">>w.jsonl", "1<>soft"] {
            let script = format!("exec \"$@\" {redirection} <w.jsonl");
            let command = ["-c", &script, "sh", env!("CARGO_BIN_EXE_astracer")];
            let mut shell = Command::new("sh");
            shell.args(command).args(*args).current_dir(folder.join("."));
            let output = shell.output().expect("a shell");
            failure(&output, 2, &["standard output is"]);
            let content = std::fs::read_to_string(folder.join("w.jsonl")).expect("it is there");
            assert_eq!(content, TWO_TRACES, "{args:?} {redirection}");
        }
    }
}

/// A closed pipe is not an error, and does not hide other failures.
#[cfg(target_os = "linux")]
#[test]
fn what_failed_counts_though_nobody_reads() {
    let folder = folder("unread");
    let cases: &[(&[&str], &str)] = &[
        (&["inspect", "w.jsonl"], ""),
        (&["spool", "verify", "spool"], "damaged place"),
        (&["evaluate", "w.jsonl", "--sampler", "always", "--kept", "/dev/full"], "cannot write /dev/full"),
        (&["critical-path", "w.jsonl", "--html", "/dev/full"], "cannot write /dev/full"),
        (&["critical-path", "w.jsonl", "--html", "/dev/full", "--json"], "cannot write /dev/full"),
        (&["events", "w.jsonl", "--trace", "1", "--html", "/dev/full"], "cannot write /dev/full"),
        (&["tune", "--size-max", "100%", "w.jsonl", "--report", "/dev/full"], "cannot write /dev/full"),
        (&["tune", "--size-max", "1%", "--per-key", "never", "w.jsonl"], "no parameters meet the limits"),
    ];
    for (args, says) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_astracer"));
        let output = unread(command.args(*args).current_dir(folder.join(".")));
        match *says {
            "" => assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]), "{args:?}"),
            says => failure(&output, 1, &[says]),
        }
    }
}
