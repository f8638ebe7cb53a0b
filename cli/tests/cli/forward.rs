//! Messages and exit codes of `astracer receive` and `astracer spool drain` when acknowledged spans
//! are lost or not passed on.

use std::fs;
use std::path::Path;
use std::process::Command;

use astracer_exporters::spool::{Folder, Settings, Spool};
use astracer_testing::{Answer, Server, wait_until};
use serde_json::Value;

use crate::options::{Codes, RECEIVE, REFUSED};
use crate::spool::two_spans;
use crate::wire::Receiver;
use crate::{Scratch, TWO_TRACES, failure, run, success, unwrapped};

const RECEIVE_TLS: &[&str] =
    &["receive", "--out", "received", "--otlp", "127.0.0.1:0", "--tls-key", "nowhere"];

/// Options of a receiver, beside those of its files.
pub(crate) const OPTIONS: &[(&[&str], &str, Codes)] = &[
    (RECEIVE, "--message-max", REFUSED),
    (RECEIVE, "--rotate-age", REFUSED),
    (RECEIVE, "--forward", REFUSED),
    // It requires --forward.
    (RECEIVE, "--spool", REFUSED),
    (RECEIVE, "--cors", REFUSED),
    (RECEIVE, "--token-file", [1, 2, 1, 1, 1, 2, 1, 1, 1, 1]),
    (RECEIVE_TLS, "--tls-cert", [1, 2, 1, 1, 1, 2, 1, 1, 1, 1]),
    // They require --tls-cert.
    (RECEIVE, "--tls-key", REFUSED),
    (RECEIVE, "--client-ca", REFUSED),
    (RECEIVE, "--metrics-addr", REFUSED),
];

/// A server that answers every request with this status.
fn server(status: u16) -> Server {
    let answer = Answer::status(status).with_header("content-type", "application/json").with_body("{}");
    Server::new([]).then(answer)
}

/// A spool with a dead letter of two spans for each reason.
fn dead_letters(path: &Path, reasons: &[&str]) {
    let (mut spool, _) =
        Spool::open(Folder::create(path).expect("a folder"), Settings::default()).expect("a spool");
    for (trace, reason) in (1..).zip(reasons) {
        spool.append_dead(0, 0, 2, &two_spans(trace), reason);
    }
}

#[test]
fn dead_letters_are_sent_again_by_reason_or_all() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    dead_letters(folder.path(), &["HTTP 401: token", "HTTP 400: no", "HTTP 401: token"]);
    let dir = folder.path().to_str().expect("UTF-8");
    let (server, refusing) = (server(200), server(400));
    let drain = |to: &Server, more: &[&str]| {
        let url = to.url("otlp+http");
        let output = run(&[&["spool", "drain", dir, "--to", &url][..], more].concat());
        (output.status.code(), unwrapped(&String::from_utf8_lossy(&output.stdout)))
    };
    let (code, text) = drain(&server, &[]);
    assert_eq!((code, server.requests().len()), (Some(1), 0), "{text}");
    assert!(text.contains("dead letters: 6 spans"), "{text}");
    let (code, text) = drain(&server, &["--dead=401"]);
    // Both letters are joined in one request.
    assert_eq!((code, server.requests().len()), (Some(1), 1), "{text}");
    assert!(text.contains("sent again: 4 dead spans") && text.contains("dead letters: 2 spans"), "{text}");
    // A letter that is refused again is a dead letter again.
    let (code, text) = drain(&refusing, &["--dead"]);
    assert_eq!((code, refusing.requests().len()), (Some(1), 1), "{text}");
    assert!(text.contains("dead letters: 2 spans"), "{text}");
    let (code, text) = drain(&server, &["--dead"]);
    assert_eq!((code, server.requests().len()), (Some(0), 2), "{text}");
    let found = success(&run(&["spool", "inspect", dir, "--json"]));
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!((&found["dead_letter_spans"], &found["pending_spans"]), (&0.into(), &0.into()));
}

#[cfg(unix)]
#[test]
fn a_receiver_says_what_was_not_passed_on_and_ends_with_1() {
    let recording = Scratch::new("refused-forward.json", TWO_TRACES);
    let backend = server(400);
    let receiver = Receiver::start("refused", &["--forward", &backend.url("otlp+http")]);
    success(&run(&["send", recording.path(), "--to", &format!("otlp://{}", receiver.address)]));
    wait_until("the spans are passed on", || !backend.requests().is_empty());
    let (output, told, folder) = receiver.ended_by("-INT");
    let spool = folder.spool();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["forwarded"]["dead_letters"], 3, "{report}");
    assert!(
        told.contains("not everything was passed on") && told.contains("3 spans are dead letters"),
        "{told}"
    );
    // The next run says so from its start, and while it runs.
    let receiver = Receiver::start("refused", &["--forward", &backend.url("otlp+http")]);
    let (output, told, _folder) = receiver.ended_by("-TERM");
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("not passed on: the spool") && told.contains("3 spans are dead letters"), "{told}");
    drop(spool);
}

/// logrotate's `copytruncate`.
#[cfg(unix)]
#[test]
fn a_recording_that_somebody_shortens_is_noticed() {
    let recording = Scratch::new("shortened.json", TWO_TRACES);
    let receiver = Receiver::start("shortened", &[]);
    let send = || success(&run(&["send", recording.path(), "--to", &format!("otlp://{}", receiver.address)]));
    send();
    let first = Path::new(receiver.path()).join("traces-00000001.jsonl");
    let file = fs::OpenOptions::new().write(true).open(first).expect("the first file");
    file.set_len(0).expect("shortened");
    send();
    let inspected = success(&run(&["inspect", receiver.path(), "--json"]));
    assert!(inspected.contains("\"spans\": 3"), "{inspected}");
    let (output, told, _folder) = receiver.ended_by("-INT");
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("3 spans acknowledged but lost") && told.contains("shortened"), "{told}");
}

/// SIGXFSZ ended the receiver. Now a file that may not grow gives way to the next, and so does a
/// segment of the spool.
#[cfg(unix)]
#[test]
fn a_limit_on_the_size_of_files_costs_nothing() {
    let span = |id: u32| {
        format!(
            r#"{{"traceId":"{id:032x}","spanId":"{id:016x}","name":"{}","startTimeUnixNano":"1","endTimeUnixNano":"2"}}"#,
            "x".repeat(1_000)
        )
    };
    let spans = (1..=300).map(span).collect::<Vec<_>>().join(",");
    let recording = Scratch::new(
        "limited.json",
        &format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{spans}]}}]}}]}}"#),
    );
    let mut command = Command::new("sh");
    // Blocks of 512 or 1,024 bytes.
    command.args(["-c", r#"ulimit -f 100; exec "$0" "$@""#, env!("CARGO_BIN_EXE_astracer")]);
    let receiver = Receiver::start_by(command, "limited", &["--forward", "otlp://127.0.0.1:1"]);
    let url = format!("otlp://{}", receiver.address);
    success(&run(&["send", recording.path(), "--to", &url, "--batch", "10"]));
    let (received, folder) = receiver.stop();
    let _spool = folder.spool();
    assert_eq!((&received["spans"], &received["forwarded"]["waiting"]), (&300.into(), &300.into()));
    let files = fs::read_dir(folder.path()).expect("a folder").count();
    assert!(files > 2, "{files} files");
    let inspected = success(&run(&["inspect", folder.path().to_str().expect("UTF-8"), "--json"]));
    assert!(inspected.contains("\"spans\": 300"), "{inspected}");
}

#[test]
fn one_folder_is_not_recording_and_spool() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out");
    let spool = folder.path().join("x").join("..").join("out");
    fs::create_dir(folder.path().join("x")).expect("a folder");
    let args = ["receive", "--otlp", "127.0.0.1:0", "--forward", "otlp://127.0.0.1:1", "--out"];
    for spool in [&out, &spool] {
        let output =
            run(&[&args[..], &[out.to_str().expect("UTF-8"), "--spool", spool.to_str().expect("UTF-8")]]
                .concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("also the folder of --out"), "{error}");
    }
    assert!(!out.exists());
}

/// A folder cannot be made where a file is; the disk has enough space.
#[test]
fn a_file_is_no_spool() {
    let (out, file) =
        (tempfile::tempdir().expect("a temporary folder"), Scratch::new("spool", "not a spool"));
    let below = format!("{}/spool", file.path());
    let args = ["receive", "--otlp", "127.0.0.1:0", "--forward", "otlp://127.0.0.1:1", "--out"];
    for spool in [file.path(), &below] {
        let output = run(&[&args[..], &[out.path().to_str().expect("UTF-8"), "--spool", spool]].concat());
        failure(&output, 1, &["a file is where a folder should be: choose another path"]);
    }
}

/// Above 64 MiB, 891,700 dead letters were thrown away, and nothing said so afterwards.
#[test]
fn dead_letters_that_were_thrown_away_stay_counted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = Settings::default().with_dead_letter_bytes(400).with_segment_bytes(1);
    let (mut spool, _) =
        Spool::open(Folder::create(folder.path()).expect("a folder"), settings).expect("a spool");
    (1..=5).for_each(|trace| spool.append_dead(0, 0, 2, &two_spans(trace), "HTTP 400: no"));
    let ledger = spool.ledger();
    drop(spool);
    assert!(ledger.thrown_away > 0 && ledger.is_balanced(), "{ledger:?}");
    let dir = folder.path().to_str().expect("UTF-8");
    let thrown = format!("{} acknowledged spans lost for good", ledger.thrown_away);
    let server = server(200);
    let url = server.url("otlp+http");
    for args in [
        &["spool", "inspect", dir][..],
        &["spool", "verify", dir],
        &["spool", "audit", dir],
        &["spool", "drain", dir, "--to", &url, "--dead"],
        &["spool", "audit", dir],
    ] {
        let output = run(args);
        let (text, error) =
            (String::from_utf8_lossy(&output.stdout), unwrapped(&String::from_utf8_lossy(&output.stderr)));
        assert_eq!(output.status.code(), Some(1), "{args:?} {text} {error}");
        assert!(error.contains(&thrown), "{args:?} {error}");
    }
    let found = run(&["spool", "audit", dir, "--json"]);
    let found: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    let sums = &found["ledger"];
    // The letters that were kept came again, and were accepted.
    assert_eq!((&sums["dead"], &sums["waiting"]), (&0.into(), &0.into()), "{found}");
    assert_eq!(sums["passed_on"], sums["queued_again"], "{found}");
    assert_eq!(sums["thrown_away"], ledger.thrown_away, "{found}");
}

/// Segments are gone, and the cursor stays: all outputs say so.
#[cfg(unix)]
#[test]
fn all_outputs_agree_on_what_is_gone() {
    let recording = Scratch::new("gone.json", TWO_TRACES);
    let receiver = Receiver::start("gone", &["--forward", "otlp://127.0.0.1:1"]);
    success(&run(&["send", recording.path(), "--to", &format!("otlp://{}", receiver.address)]));
    let (_, told, folder) = receiver.ended_by("-INT");
    assert!(
        told.contains("spans begin to wait in the spool") && told.contains("no server listens"),
        "{told}"
    );
    let spool = folder.spool();
    let dir = spool.path().to_str().expect("UTF-8");
    let inspected = success(&run(&["spool", "inspect", dir, "--json"]));
    let inspected: Value = serde_json::from_str(&inspected).expect("JSON");
    assert!(
        inspected["last_failure"]["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("no server listens")),
        "{inspected}"
    );
    success(&run(&["spool", "audit", dir]));
    fs::remove_file(spool.path().join("live-00000001.seg")).expect("a segment");
    let output = run(&["spool", "audit", dir]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(1) && text.contains("3  without an end"), "{text}");
    let receiver = Receiver::start("gone", &["--forward", "otlp://127.0.0.1:1"]);
    let (output, told, _folder) = receiver.ended_by("-INT");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.code() == Some(1) && told.contains("3 spans lost (damaged)"), "{told}");
    let forwarded = &report["forwarded"];
    assert_eq!((&forwarded["lost"], &forwarded["ledger"]["damaged"]), (&3.into(), &3.into()), "{report}");
    drop(spool);
}

/// A pipe, a link to nothing or a folder in the place of a file.
#[cfg(unix)]
#[test]
fn special_files_in_a_spool_are_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    dead_letters(folder.path(), &["HTTP 400: no"]);
    let dir = folder.path().to_str().expect("UTF-8");
    let segment = folder.path().join("live-00000009.seg");
    let pipe = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
    pipe(&segment);
    std::os::unix::fs::symlink("/nonexistent/x", folder.path().join("live-00000010.seg")).expect("a link");
    let text = success(&run(&["spool", "verify", dir]));
    for name in ["live-00000009.seg", "live-00000010.seg"] {
        assert!(text.contains(&format!("note: {name}")) && text.contains("left alone"), "{text}");
    }
    let receiver = Receiver::start("special", &["--forward", "otlp://127.0.0.1:1", "--spool", dir]);
    let (_, told, _folder) = receiver.ended_by("-INT");
    assert!(told.contains("live-00000010.seg: not part of the spool, left alone"), "{told}");
    let cursor = folder.path().join("cursor");
    for make in [&pipe as &dyn Fn(&Path), &|path| fs::create_dir(path).expect("a folder")] {
        fs::remove_file(&cursor).expect("a file");
        make(&cursor);
        let output = run(&["spool", "verify", dir]);
        let error = unwrapped(&String::from_utf8_lossy(&output.stderr));
        assert!(error.contains("cursor: is a") && error.contains("move it away"), "{error}");
        let out = folder.path().join("out");
        let args =
            ["receive", "--otlp", "127.0.0.1:0", "--forward", "otlp://127.0.0.1:1", "--spool", dir, "--out"];
        let output = run(&[&args[..], &[out.to_str().expect("UTF-8")]].concat());
        let error = unwrapped(&String::from_utf8_lossy(&output.stderr));
        assert!(output.status.code() == Some(1) && error.contains("cursor: is a"), "{error}");
    }
}
