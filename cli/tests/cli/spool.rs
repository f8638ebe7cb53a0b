//! `astracer spool`, and `astracer send` to servers that hang or refuse.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use astracer_exporters::spool::{Folder, Settings, Spool};
use astracer_model::{Span, SpanId, TraceId};
use astracer_testing::{Answer, Server};
use serde_json::Value;

use crate::{Scratch, TWO_TRACES, run, success};

/// A server that answers every request with this body as OTLP in JSON.
fn server(body: &str) -> Server {
    Server::new([]).then(Answer::status(200).with_header("content-type", "application/json").with_body(body))
}

/// Checks the exit code and the message of a command that also prints a result.
#[track_caller]
fn failure(output: &Output, code: i32, says: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    says.iter().for_each(|part| assert!(error.contains(part), "{part:?} is not in {error:?}"));
}

fn send(url: &str, input: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_astracer"));
    command.args(["send", input, "--to", url, "--wait", "1"]).envs(variables.iter().copied());
    command.output().expect("the binary starts")
}

/// Errors used to recommend OTEL_EXPORTER_OTLP_HEADERS, which was not read.
#[test]
fn send_reads_the_variables_that_its_errors_recommend() {
    let input = Scratch::new("variables.json", TWO_TRACES);
    let server = server("{}");
    let url = server.url("otlp+http").replace("://", "://me:secret@");
    let variables =
        [("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue%20one"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "HTTP/JSON")];
    let output = send(&url, input.path(), &variables);
    let text = success(&output);
    let request = server.request(0);
    assert_eq!(request.header("x-tenant"), Some("blue one"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert!(text.contains("//***@") && !text.contains("secret"), "{text}");
    let wrong = send(&url, input.path(), &[("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")]);
    failure(&wrong, 1, &["OTEL_EXPORTER_OTLP_TIMEOUT", "milliseconds", "//***@"]);
    assert!(!String::from_utf8_lossy(&wrong.stderr).contains("secret"));
}

/// A server that answered, even with a refusal, is retried.
#[test]
fn a_server_that_is_busy_from_the_first_request_on_is_waited_for() {
    let input = Scratch::new("busy.json", TWO_TRACES);
    let server = server("{}");
    server.push(Answer::status(503));
    let url = server.url("otlp+http");
    let text = success(&run(&["send", input.path(), "--to", &url, "--wait", "60"]));
    assert!(text.contains("3 spans accepted") && server.requests().len() > 1, "{text}");
}

/// Rejected spans used to leave exit code 0.
#[test]
fn rejected_spans_are_a_failure() {
    let input = Scratch::new("rejected.json", TWO_TRACES);
    let server = server(r#"{"partialSuccess":{"rejectedSpans":"1","errorMessage":"no"}}"#);
    let output = send(&server.url("otlp+http"), input.path(), &[]);
    failure(&output, 1, &["the server rejected 1 span"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("the server says: no"));
}

/// Ctrl-C used to take as long as the request's timeout, and to end with exit code 1.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_send_to_a_server_that_hangs() {
    use std::io::Read as _;

    let input = Scratch::new("hangs.json", TWO_TRACES);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("otlp+http://{}", listener.local_addr().expect("an address"));
    let child = Command::new(env!("CARGO_BIN_EXE_astracer"))
        .args(["send", input.path(), "--to", &url])
        // If Ctrl-C had no effect, this test would take an hour.
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let (mut stream, _) = listener.accept().expect("a connection");
    stream.read_exact(&mut [0]).expect("a request begins");
    let killed =
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
    assert!(killed.success());
    let output = child.wait_with_output().expect("it ends");
    failure(&output, 130, &["0 spans accepted so far", "interrupted"]);
}

/// The records stay for the next run of the same command, and it says how many.
#[cfg(unix)]
#[test]
fn a_signal_ends_a_drain_and_it_says_what_is_left() {
    use std::io::Read as _;

    for signal in ["-INT", "-TERM"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        drop(spool(folder.path()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let child = Command::new(env!("CARGO_BIN_EXE_astracer"))
            .args(["spool", "drain", folder.path().to_str().expect("UTF-8"), "--to"])
            .arg(format!("otlp+http://{}", listener.local_addr().expect("an address")))
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.read_exact(&mut [0]).expect("a request begins");
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(killed.expect("kill is there").success());
        let output = child.wait_with_output().expect("it ends");
        failure(&output, 130, &["interrupted"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("still waiting in the spool: 6 spans; the same command sends them"), "{text}");
    }
}

/// An OTLP request with two spans of a trace.
pub(crate) fn two_spans(trace: u128) -> Vec<u8> {
    let span =
        |id| Span { trace_id: TraceId(trace), span_id: SpanId(id), name: "work".into(), ..Span::default() };
    let mut body = Vec::new();
    astracer_formats::otlp_proto::write_request(&mut body, &[span(1), span(2)]);
    body
}

/// An open spool of three records with two spans each, from 1970: they are sent however old they
/// are.
fn spool(path: &Path) -> Spool {
    let folder = Folder::create(path).expect("a folder");
    let (mut spool, _) = Spool::open(folder, Settings::default()).expect("a spool");
    for trace in 1..=3 {
        spool.append(0, 0, 2, &two_spans(trace)).expect("room");
    }
    spool
}

/// Changes one byte of the second record.
fn damage(path: &Path) {
    let file = path.join("live-00000001.seg");
    let mut bytes = std::fs::read(&file).expect("a segment");
    let third = (bytes.len() - 80) / 3;
    bytes[80 + third + 60] ^= 1;
    std::fs::write(&file, bytes).expect("written");
}

/// A spool with a damaged record.
pub(crate) fn damaged(path: &Path) {
    drop(spool(path));
    damage(path);
}

#[test]
fn a_spool_is_looked_at_checked_and_drained() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().to_str().expect("UTF-8");
    let spool = spool(folder.path());
    failure(&run(&["spool", "inspect", dir]), 1, &["in use by another process"]);
    drop(spool);
    let found = success(&run(&["spool", "inspect", dir, "--json"]));
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!((&found["pending_records"], &found["pending_spans"]), (&3.into(), &6.into()));
    success(&run(&["spool", "verify", dir]));
    failure(
        &run(&["spool", "drain", dir, "--to", "otlp://127.0.0.1:1", "--wait", "0"]),
        1,
        &["6 spans still waiting"],
    );
    let found: Value =
        serde_json::from_str(&success(&run(&["spool", "inspect", dir, "--json"]))).expect("JSON");
    assert_eq!(found["pending_spans"], 6);
    damage(folder.path());
    failure(&run(&["spool", "verify", dir]), 1, &["1 damaged place"]);
    let server = server("{}");
    let output = run(&["spool", "drain", dir, "--to", &server.url("otlp+http")]);
    failure(&output, 1, &["some spans were not accepted"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("4 spans accepted") && text.contains("lost (damaged): 2 spans"), "{text}");
    assert_eq!(server.requests().len(), 1, "waiting records are joined");
    failure(&run(&["spool", "verify", "/nowhere"]), 1, &["/nowhere", "pass the folder of a spool"]);
}

/// A login page also answers 200. It once passed for a success, and the spool was empty afterwards.
#[test]
fn a_drain_to_a_login_page_keeps_everything() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    drop(spool(folder.path()));
    let server = server("<html>Log in</html>");
    let dir = folder.path().to_str().expect("UTF-8");
    let output = run(&["spool", "drain", dir, "--to", &server.url("otlp+http"), "--wait", "1"]);
    failure(&output, 1, &["HTTP 200: <html>Log in</html>", "6 spans still waiting in the spool"]);
}

/// A folder that is no spool, for example of recordings, stays unchanged.
#[test]
fn a_folder_without_a_spool_is_left_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("traces.jsonl"), TWO_TRACES).expect("written");
    let dir = folder.path().to_str().expect("UTF-8");
    for args in [
        &["spool", "inspect", dir][..],
        &["spool", "verify", dir],
        &["spool", "drain", dir, "--to", "otlp://127.0.0.1:1", "--wait", "0"],
    ] {
        failure(&run(args), 1, &["it contains no spool", "pass the folder of a spool"]);
        assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 1, "{args:?}");
    }
}

/// The `--resume` file records which spans were sent, and by how much they were shifted.
#[test]
fn a_note_that_does_not_fit_is_refused() {
    let input = Scratch::new("noted.json", TWO_TRACES);
    let url = server("{}").url("otlp+http");
    let note =
        |spans: u32| format!(r#"{{"to":"{url}","paths":["{}"],"spans":{spans},"shift_ns":0}}"#, input.path());
    let file = Scratch::new("note.json", &note(1));
    let args = ["send", input.path(), "--to", &url, "--resume", file.path()];
    let output = run(&[&args[..], &["--shift-to-now"]].concat());
    failure(&output, 2, &["an upload without --shift-to-now"]);
    std::fs::write(file.path(), note(9)).expect("written");
    let output = run(&args);
    failure(&output, 1, &["fewer than --resume counts", "pass another --resume"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("to continue"));
    assert_eq!(std::fs::read_to_string(file.path()).expect("it stays"), note(9));
    std::fs::write(file.path(), note(1)).expect("written");
    assert!(success(&run(&args)).contains("skipped, because an earlier run sent them: 1 span"));
}

/// The `--resume` file counts spans from the beginning, so it cannot count a request in which one
/// was lost.
#[test]
fn a_span_that_is_too_large_is_lost_each_time() {
    let long = "x".repeat(5_000_000);
    let span = |id: u32, name: &str| {
        format!(
            r#"{{"traceId":"{id:032x}","spanId":"{id:016x}","name":"{name}","startTimeUnixNano":"1","endTimeUnixNano":"2"}}"#
        )
    };
    let spans = [span(1, "a"), span(2, &long), span(3, "c")].join(",");
    let input = Scratch::new(
        "large.json",
        &format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{spans}]}}]}}]}}"#),
    );
    let note = Scratch::new("large-note.json", "");
    std::fs::remove_file(note.path()).expect("it is there");
    let url = server("{}").url("otlp+http");
    for _ in 0..2 {
        let output = run(&["send", input.path(), "--to", &url, "--resume", note.path()]);
        failure(&output, 1, &["exceeds the size limit", "does not count the last 2 spans"]);
    }
}

#[cfg(unix)]
#[test]
fn a_note_behind_a_link_is_removed_at_the_end() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let input = Scratch::new("linked.json", TWO_TRACES);
    let (note, link) = (folder.path().join("note.json"), folder.path().join("link.json"));
    let url = server("{}").url("otlp+http");
    let text = format!(r#"{{"to":"{url}","paths":["{}"],"spans":1,"shift_ns":0}}"#, input.path());
    std::fs::write(&note, text).expect("written");
    std::os::unix::fs::symlink(&note, &link).expect("a link");
    success(&run(&["send", input.path(), "--to", &url, "--resume", link.to_str().expect("UTF-8")]));
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
}
