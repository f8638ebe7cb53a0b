//! `astracer receive` and `astracer send` with each other.

use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use serde_json::Value;

use crate::{Scratch, TWO_TRACES, failure, run, success, workload};

/// A receiver on a free port.
pub(crate) struct Receiver {
    child: Running,
    stderr: BufReader<ChildStderr>,
    pub(crate) address: String,
    folder: Folder,
}

/// A process that is killed at the end of its test, even if the test fails.
struct Running(Option<Child>);

impl Running {
    fn id(&self) -> u32 {
        self.0.as_ref().expect("it was not waited for").id()
    }

    fn wait(mut self) -> Output {
        let child = self.0.take().expect("it was not waited for");
        child.wait_with_output().expect("it ends")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A folder that is removed at the end of its test.
pub(crate) struct Folder(std::path::PathBuf);

impl Folder {
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }

    /// The default spool of a receiver with this folder.
    pub(crate) fn spool(&self) -> Folder {
        Folder(self.0.with_extension("spool"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn signal_to(pid: u32, signal: &str) {
    let killed = Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill is there");
    assert!(killed.success());
}

impl Receiver {
    pub(crate) fn start(name: &str, more: &[&str]) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_astracer")), name, more)
    }

    /// With default signal handling, as a shell starts it: under nohup the tests would inherit an
    /// ignored SIGHUP.
    #[cfg(target_os = "linux")]
    fn start_with_a_terminal(name: &str) -> Self {
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(env!("CARGO_BIN_EXE_astracer"));
        Self::start_by(command, name, &[])
    }

    /// `command` is the binary, or a program that replaces itself by it.
    pub(crate) fn start_by(mut command: Command, name: &str, more: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("astracer-cli-{}-{name}", std::process::id()));
        let mut child = command
            .args(["receive", "--otlp", "127.0.0.1:0", "--json", "--out"])
            .arg(&folder)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("it says where it listens");
        let address =
            line.strip_prefix("listening on ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
        let address = address.to_owned();
        Self { child: Running(Some(child)), stderr, address, folder: Folder(folder) }
    }

    pub(crate) fn path(&self) -> &str {
        self.folder.0.to_str().expect("UTF-8")
    }

    fn signal(&self, signal: &str) {
        signal_to(self.child.id(), signal);
    }

    /// True if SIGHUP, the lowest bit, is in this signal set of the process.
    #[cfg(target_os = "linux")]
    fn has_hang_up_in(&self, set: &str) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let mask = status.lines().find_map(|line| line.strip_prefix(set)).expect("the set is told");
        u64::from_str_radix(mask.trim(), 16).expect("a mask") & 1 == 1
    }

    /// Sends Ctrl-C, and returns what the receiver prints.
    pub(crate) fn stop(self) -> (Value, Folder) {
        self.stop_by("-INT")
    }

    /// Sends a signal; returns the result and the text on standard error.
    pub(crate) fn ended_by(self, signal: &str) -> (Output, String, Folder) {
        let Self { child, mut stderr, folder, .. } = self;
        signal_to(child.id(), signal);
        let mut told = String::new();
        stderr.read_to_string(&mut told).expect("UTF-8");
        (child.wait(), told, folder)
    }

    fn stop_by(self, signal: &str) -> (Value, Folder) {
        let Self { child, stderr, folder, .. } = self;
        // A closed standard error must not change the outcome.
        drop(stderr);
        signal_to(child.id(), signal);
        let output = child.wait();
        assert!(output.status.success(), "{:?}", output.status);
        (serde_json::from_slice(&output.stdout).expect("JSON"), folder)
    }
}

fn figures(path: &str) -> [String; 6] {
    let json: Value = serde_json::from_str(&success(&run(&["inspect", path, "--json"]))).expect("JSON");
    ["traces", "spans", "call_trees", "start_unix_ns", "end_unix_ns", "functions"]
        .map(|key| json[key].to_string())
}

#[cfg(unix)]
#[test]
fn a_recording_sent_is_received_whole() {
    let path = workload("hdfs_raw_roots.tar.xz");
    for (scheme, more) in [("otlp", &[][..]), ("otlp+http", &["--zstd", "--rotate", "100KB"][..])] {
        let receiver = Receiver::start(scheme, more);
        let url = format!("{scheme}://{}", receiver.address);
        let sent = success(&run(&["send", &path, "--to", &url, "--batch", "4000", "--json"]));
        let sent: Value = serde_json::from_str(&sent).expect("JSON");
        assert_eq!((&sent["accepted"], &sent["rejected"]), (&72_433.into(), &0.into()));
        let (received, folder) = receiver.stop();
        assert_eq!((&received["spans"], &received["rejected"]), (&72_433.into(), &0.into()));
        assert_eq!(received["refused"].as_array().map(Vec::len), Some(0));
        let files = fs::read_dir(&folder.0).expect("a folder");
        let bytes = files.map(|file| file.and_then(|file| file.metadata()).expect("a file").len());
        assert_eq!(received["bytes"], bytes.sum::<u64>(), "of complete files");
        assert!(figures(folder.0.to_str().expect("UTF-8")) == figures(&path), "{scheme}");
    }
}

#[cfg(unix)]
#[test]
fn times_can_move_to_now() {
    let recording = Scratch::new("shift.json", TWO_TRACES);
    let receiver = Receiver::start("shift", &[]);
    let url = format!("otlp+http://{}", receiver.address);
    let sent = success(&run(&["send", recording.path(), "--to", &url, "--shift-to-now", "--json"]));
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    let shift = sent["shifted_by_ns"].as_i64().expect("a number");
    // Between the day this was written and the last time that the format can hold.
    assert!(shift > 1_700_000_000_000_000_000, "{shift}");
    let (_, folder) = receiver.stop();
    let before = figures(recording.path()).map(|text| text.parse::<i64>().unwrap_or(0));
    let after = figures(folder.0.to_str().expect("UTF-8")).map(|text| text.parse::<i64>().unwrap_or(0));
    assert_eq!((after[3] - before[3], after[4] - before[4]), (shift, shift));
    let once: &[&str] = if cfg!(unix) { &["-", "/dev/null"] } else { &["-"] };
    for input in once {
        failure(
            &run(&["send", input, "--to", &url, "--shift-to-now"]),
            2,
            &["impossible for a pipe or standard input", "to a file first"],
        );
    }
}

#[cfg(unix)]
#[test]
fn a_sending_that_broke_off_goes_on() {
    let path = workload("hdfs_raw_roots.tar.xz");
    let note = Scratch::new("resume.json", "");
    fs::remove_file(note.path()).expect("it was there");
    // First a limit that only a part fits, then a larger one with the same files.
    let receiver = Receiver::start("resume", &["--total-max", "2MB"]);
    let url = format!("otlp+http://{}", receiver.address);
    let args =
        ["send", &path, "--to", &url, "--batch", "1000", "--wait", "1", "--resume", note.path(), "--json"];
    failure(&run(&args), 1, &["accepted so far; repeat the command to continue"]);
    let (first, folder) = receiver.stop();
    let first = first["spans"].as_u64().expect("a number");
    assert!(first > 0 && first < 72_433 && first.is_multiple_of(1000), "{first}");
    let noted: Value = serde_json::from_str(&fs::read_to_string(note.path()).expect("a note")).expect("JSON");
    assert_eq!(noted["spans"], first);
    let other = ["send", &path, "--to", "otlp://127.0.0.1:1", "--resume", note.path()];
    failure(&run(&other), 1, &["belongs to a different upload"]);

    let mut again = Command::new(env!("CARGO_BIN_EXE_astracer"))
        .args(["receive", "--json", "--otlp"])
        .arg(url.trim_start_matches("otlp+http://"))
        .arg("--out")
        .arg(&folder.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut line = String::new();
    let mut stderr = BufReader::new(again.stderr.take().expect("piped"));
    stderr.read_line(&mut line).expect("it says where it listens");
    let address = url.trim_start_matches("otlp+http://").to_owned();
    let receiver = Receiver { child: Running(Some(again)), stderr, address, folder };
    let sent: Value = serde_json::from_str(&success(&run(&args))).expect("JSON");
    assert_eq!((&sent["resumed_behind"], &sent["accepted"]), (&first.into(), &(72_433 - first).into()));
    assert!(!std::path::Path::new(note.path()).exists());
    let figures_now = figures(receiver.path());
    let (_, _folder) = receiver.stop();
    assert!(figures_now == figures(&path));
}

/// A note that can't be kept is found before the first span is sent, and no other file is read for
/// one.
#[cfg(unix)]
#[test]
fn a_note_of_a_sending_is_a_small_file_that_can_be_written() {
    let recording = Scratch::new("noted.json", TWO_TRACES);
    let receiver = Receiver::start("noted", &[]);
    let url = format!("otlp+http://{}", receiver.address);
    let send = |note: &str| run(&["send", recording.path(), "--to", &url, "--resume", note]);
    failure(&send("/nowhere/note"), 1, &["cannot write /nowhere/note", "choose another file for --resume"]);
    failure(&send("/dev/zero"), 1, &["cannot write /dev/zero: it is a device or a pipe"]);
    failure(&send(recording.path()), 2, &["is the input", "choose another file"]);
    let large = Scratch::new("large-note.json", &" ".repeat(2 << 20));
    failure(&send(large.path()), 1, &["too large for a --resume file"]);
    let (received, _folder) = receiver.stop();
    assert_eq!(received["spans"], 0);
}

/// As the end of the terminal, or of an SSH session, is told.
#[cfg(target_os = "linux")]
#[test]
fn the_end_of_the_terminal_ends_a_recording_in_order() {
    let recording = Scratch::new("hang-up.json", TWO_TRACES);
    for signal in ["-HUP", "-TERM"] {
        let receiver = Receiver::start_with_a_terminal(&format!("ended-by{signal}"));
        let url = format!("otlp://{}", receiver.address);
        success(&run(&["send", recording.path(), "--to", &url, "--json"]));
        let (received, folder) = receiver.stop_by(signal);
        assert_eq!(received["spans"], 3, "{signal}");
        assert!(figures(folder.0.to_str().expect("UTF-8")) == figures(recording.path()), "{signal}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn nohup_lets_a_recording_outlive_the_terminal() {
    let plain = Receiver::start_with_a_terminal("plain");
    assert!(plain.has_hang_up_in("SigCgt:") && !plain.has_hang_up_in("SigIgn:"));
    plain.stop();

    let mut command = Command::new("nohup");
    // nohup prints a message if its input is a terminal.
    command.arg(env!("CARGO_BIN_EXE_astracer")).stdin(Stdio::null());
    let receiver = Receiver::start_by(command, "nohup", &[]);
    assert!(receiver.has_hang_up_in("SigIgn:") && !receiver.has_hang_up_in("SigCgt:"));
    receiver.signal("-HUP");
    let recording = Scratch::new("nohup.json", TWO_TRACES);
    let url = format!("otlp://{}", receiver.address);
    success(&run(&["send", recording.path(), "--to", &url, "--json"]));
    let (received, _folder) = receiver.stop();
    assert_eq!(received["spans"], 3);
}

#[test]
fn servers_that_are_not_there_are_named_with_what_to_do() {
    let recording = Scratch::new("nobody.json", TWO_TRACES);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = listener.local_addr().expect("an address").to_string();
    failure(&run(&["receive", "--otlp", &taken, "--out", recording.path()]), 1, &[recording.path()]);
    let folder = Folder(std::env::temp_dir().join(format!("astracer-cli-{}-taken", std::process::id())));
    let out = folder.0.to_str().expect("UTF-8");
    failure(&run(&["receive", "--otlp", &taken, "--out", out]), 1, &["can't listen on", "--otlp"]);
    failure(
        &run(&["send", recording.path(), "--to", "http://x"]),
        2,
        &["invalid server address", "otlp+http://HOST:PORT"],
    );
    // Nothing listens on a port that was just given back.
    drop(listener);
    let url = format!("zipkin://{taken}");
    failure(
        &run(&["send", recording.path(), "--to", &url]),
        1,
        &["no server listens", "0 spans accepted so far"],
    );
}

/// A receiver that stands before a backend: what it passes on survives the backend's absence and
/// its own end.
#[cfg(unix)]
#[test]
fn a_receiver_passes_spans_on_through_its_spool() {
    let recording = Scratch::new("forward.json", TWO_TRACES);
    let backend = Receiver::start("backend", &[]);
    let url = format!("otlp://{}", backend.address);
    let first = Receiver::start("forwarding", &["--forward", &url, "--rotate-age", "3600"]);
    success(&run(&["send", recording.path(), "--to", &format!("otlp+http://{}", first.address)]));
    let (report, folder) = first.stop();
    assert_eq!(report["forwarded"]["accepted"].as_u64(), Some(3), "{report}");
    assert_eq!(report["forwarded"]["waiting"].as_u64(), Some(0), "{report}");
    let spool = folder.spool();
    let (_, _backend) = backend.stop();

    // Nothing listens there any more: the next spans wait on disk, and `spool drain` sends them
    // elsewhere.
    let second = Receiver::start("forwarding", &["--forward", &url]);
    success(&run(&["send", recording.path(), "--to", &format!("otlp://{}", second.address)]));
    let (report, _folder) = second.stop();
    assert_eq!(report["forwarded"]["waiting"].as_u64(), Some(3), "{report}");
    let backend = Receiver::start("backend again", &[]);
    let url = format!("otlp+http://{}", backend.address);
    let drained = success(&run(&["spool", "drain", spool.0.to_str().expect("UTF-8"), "--to", &url]));
    assert!(drained.contains("3 spans accepted"), "{drained}");
    let (received, _folder) = backend.stop();
    assert_eq!(received["spans"], 3);
}

/// Posts JSON over HTTP/1.1; returns true if it was accepted.
#[cfg(unix)]
fn is_accepted(address: &str, path: &str, body: &Value) -> bool {
    use std::io::Write as _;
    let mut stream = std::net::TcpStream::connect(address).expect("the receiver listens");
    let body = body.to_string();
    let head = "host: localhost\r\nconnection: close\r\ncontent-type: application/json";
    write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.starts_with("HTTP/1.1 200")
}

/// Acknowledged logs and traces are in the files even if the receiver is killed, and `compare` and
/// `inspect` read the folder as it is.
#[cfg(unix)]
#[test]
fn logs_outlive_a_receiver_that_is_killed_and_tell_good_from_bad() {
    const SPANS_START_NS: u64 = 1_800_000_000_000_000_000;
    let receiver = Receiver::start("logs", &[]);
    let resource =
        serde_json::json!({"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]});
    let (mut spans, mut records) = (0, 0);
    for number in 1..=12_u64 {
        let (trace_id, span_id) = (format!("{number:032x}"), format!("{number:016x}"));
        let is_bad = number > 6;
        let start = SPANS_START_NS + number * 1_000_000_000;
        let end = start + if is_bad { 200_000_000 } else { 20_000_000 } + number;
        let span = serde_json::json!({"traceId": trace_id, "spanId": span_id, "name": "buy",
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": end.to_string()});
        let request = serde_json::json!({"resourceSpans": [
            {"resource": resource, "scopeSpans": [{"spans": [span]}]}]});
        spans += u64::from(is_accepted(&receiver.address, "/v1/traces", &request));
        // One or two retries of good requests, five or six of bad ones.
        for retry in 0..1 + number % 2 + if is_bad { 4 } else { 0 } {
            let log = serde_json::json!({"traceId": trace_id, "spanId": span_id,
                "timeUnixNano": (start + 1_000_000 * (retry + 1)).to_string(),
                "body": {"stringValue": format!("retry {retry} of the order")}});
            let request = serde_json::json!({"resourceLogs": [
                {"resource": resource, "scopeLogs": [{"scope": {"name": "db"}, "logRecords": [log]}]}]});
            records += u64::from(is_accepted(&receiver.address, "/v1/logs", &request));
        }
    }
    receiver.signal("-KILL");
    let Receiver { child, folder, .. } = receiver;
    drop(child);
    assert_eq!((spans, records), (12, 42));
    let path = folder.0.to_str().expect("UTF-8");
    let inspected = success(&run(&["inspect", path]));
    assert!(inspected.contains("not read: 1 file of OTLP logs or metrics"), "{inspected}");
    assert!(!inspected.contains("logs-00000001"), "{inspected}");
    let compared = success(&run(&["compare", path, "--bad-above", "100ms", "--json"]));
    let compared: Value = serde_json::from_str(&compared).expect("JSON");
    let files = compared["inputs"][0]["files"].as_array().expect("a list");
    let count = |key: &str| files.iter().filter_map(|file| file[key].as_u64()).sum::<u64>();
    assert_eq!((count("spans"), count("log_records")), (12, 42), "{files:?}");
    assert_eq!(compared["instances"], serde_json::json!([6, 6]));
    let first = compared["ranked"][0]["variable"].as_str().unwrap_or_default();
    assert!(first.contains("log db") && first.contains("retry"), "{}", compared["ranked"]);
}

/// Issue: a name instead of an address was refused.
#[test]
fn an_address_may_be_a_name() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port();
    let folder = Folder(std::env::temp_dir().join(format!("astracer-cli-{}-name", std::process::id())));
    let out = folder.0.to_str().expect("UTF-8");
    let address = format!("localhost:{port}");
    // The name is understood: the port is taken.
    failure(
        &run(&["receive", "--otlp", &address, "--out", out]),
        1,
        &[&format!("can't listen on 127.0.0.1:{port}")],
    );
}
