//! No command overwrites its input, loses an older file, or leaves half of a new one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{TWO_TRACES, failure, run, success, workload};

/// A folder that is removed at the end of its test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("astracer-cli-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a writable temporary folder");
        Self(path)
    }

    pub(crate) fn join(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Writes a file into it.
    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        let path = self.join(name);
        fs::write(&path, content).expect("a writable folder");
        path
    }

    /// The names of all entries, including hidden ones.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a folder").map(|entry| entry.expect("an entry"));
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Every option that names an output, with the rest of its command line. `{}` is the file.
const WRITING: &[(&str, &[&str])] = &[
    ("convert", &["convert", "w.jsonl", "{}"]),
    ("kept", &["evaluate", "w.jsonl", "--sampler", "always", "--kept", "{}"]),
    ("kept recording", &["evaluate", "w.jsonl", "--sampler", "always", "--kept-out", "{}"]),
    ("counts", &["evaluate", "w.jsonl", "--sampler", "always", "--counts", "{}"]),
    ("out", &["tune", "--size-max", "100%", "w.jsonl", "--out", "{}"]),
    ("report", &["tune", "--size-max", "100%", "w.jsonl", "--out", "fresh.toml", "--report", "{}"]),
    ("validated", &["tune", "--size-max", "100%", "other.jsonl", "--validate", "w.jsonl", "--out", "{}"]),
    ("segments", &["critical-path", "w.jsonl", "--segments", "{}"]),
    ("folded", &["critical-path", "w.jsonl", "--folded", "{}"]),
    ("html", &["critical-path", "w.jsonl", "--html", "{}"]),
    ("compared", &["critical-path", "other.jsonl", "--compare", "w.jsonl", "--html", "{}"]),
    ("events", &["events", "w.jsonl", "--trace", "1", "--html", "{}"]),
    ("in a folder", &["tune", "--size-max", "100%", "folder", "--out", "{}"]),
    ("in a folder", &["evaluate", "folder", "--sampler", "always", "--kept", "{}"]),
];

fn in_folder(folder: &Folder, args: &[&str], file: &str) -> Vec<String> {
    let names = ["w.jsonl", "other.jsonl", "folder", "fresh.toml"];
    let place = |&arg: &&str| match arg {
        "{}" => file.to_owned(),
        name if names.contains(&name) => folder.join(name),
        other => other.to_owned(),
    };
    args.iter().map(place).collect()
}

#[cfg(unix)]
#[test]
fn no_output_is_an_input_under_any_name() {
    for (option, args) in WRITING {
        let folder = Folder::new("same");
        let recording = folder.file("w.jsonl", TWO_TRACES);
        folder.file("other.jsonl", TWO_TRACES);
        fs::create_dir(folder.join("folder")).expect("a new folder");
        fs::hard_link(&recording, folder.join("folder/inside.jsonl")).expect("hard links");
        fs::hard_link(&recording, folder.join("hard.jsonl")).expect("hard links");
        std::os::unix::fs::symlink(&recording, folder.join("soft.jsonl")).expect("symbolic links");
        let roundabout = folder.join("folder/../w.jsonl");
        for name in [&recording, &folder.join("hard.jsonl"), &folder.join("soft.jsonl"), &roundabout] {
            let args = in_folder(&folder, args, name);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            failure(&run(&args), 2, &["is the input", "would be overwritten", "choose another"]);
            assert_eq!(fs::read_to_string(&recording).expect("it is there"), TWO_TRACES, "{option} {name}");
        }
        let names = ["folder", "hard.jsonl", "other.jsonl", "soft.jsonl", "w.jsonl"];
        assert_eq!(folder.names(), names, "{option}");
    }
}

/// Linux allows names that are not Unicode, which JSON cannot hold. The result of `tune` used to be
/// lost because of one.
#[cfg(target_os = "linux")]
#[test]
fn a_name_that_is_not_unicode_is_written_and_reported() {
    use std::os::unix::ffi::OsStringExt as _;

    let folder = Folder::new("bytes");
    let recording = folder.file("w.jsonl", TWO_TRACES);
    let name = |end: &[u8]| [folder.join("n").as_bytes(), b"\xff", end].concat();
    let (out, page) = (name(b".toml"), name(b".html"));
    let output = Command::new(env!("CARGO_BIN_EXE_astracer"))
        .args(["tune", &recording, "--size-max", "100%", "--json", "--out"])
        .arg(std::ffi::OsString::from_vec(out))
        .arg("--report")
        .arg(std::ffi::OsString::from_vec(page))
        .output()
        .expect("the binary starts");
    let json: Value = serde_json::from_str(&success(&output)).expect("JSON");
    let told = [&json["out"], &json["report"]].map(|path| path.as_str().expect("a path").to_owned());
    assert_eq!(told, [".toml", ".html"].map(|end| folder.join("n") + "\u{fffd}" + end));
    assert_eq!(folder.names(), ["n\u{fffd}.html", "n\u{fffd}.toml", "w.jsonl"]);
}

/// Parameters files are inputs too.
#[test]
fn no_output_is_a_parameters_file() {
    const PARAMETERS: &str = "version = 2\n[ratio]\nprobability = 0.5\n";
    let folder = Folder::new("parameters");
    let (recording, file) = (folder.file("w.jsonl", TWO_TRACES), folder.file("p.toml", PARAMETERS));
    for option in ["--kept", "--counts"] {
        let args = ["evaluate", &recording, "--parameters", &file, option, &file];
        failure(&run(&args), 2, &[option, "is the input", "would be overwritten", "choose another"]);
        assert_eq!(fs::read_to_string(&file).expect("it is there"), PARAMETERS, "{option}");
    }
    assert_eq!(folder.names(), ["p.toml", "w.jsonl"]);
}

/// The standard output of a test is a pipe without a path of its own, like a shell's `>(...)`.
#[cfg(target_os = "linux")]
#[test]
fn an_output_may_be_a_pipe() {
    let folder = Folder::new("pipe");
    let recording = folder.file("w.jsonl", TWO_TRACES);
    for target in ["/dev/stdout", "/proc/self/fd/1"] {
        let args = ["evaluate", &recording, "--sampler", "always", "--seeds", "1", "--kept", target];
        let text = success(&run(&args));
        assert!(text.contains("0000000000000001\n"), "{text}");
        let output = run(&["convert", &recording, target]);
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("resourceSpans"));
    }
}

/// The parameters file is written as soon as parameters are found and again with all warnings, but
/// into a pipe only once.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_gets_one_parameters_file() {
    let folder = Folder::new("one-text");
    let recording = folder.file("w.jsonl", TWO_TRACES);
    let text = success(&run(&["tune", &recording, "--size-max", "100%", "--out", "/dev/stdout"]));
    assert_eq!(text.matches("\nversion = ").count(), 1, "{text}");
}

/// A reader would get both outputs mixed, and a named pipe ends with the first of them.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_takes_one_output_and_is_no_input() {
    let folder = Folder::new("one-pipe");
    let recording = folder.file("w.jsonl", TWO_TRACES);
    let (one, other) = ("/dev/stdout", "/proc/self/fd/1");
    for args in [
        &["tune", &recording, "--size-max", "100%", "--out", one, "--report", other][..],
        &["critical-path", &recording, "--segments", one, "--folded", other],
    ] {
        failure(&run(args), 2, &["also the file of --", ", and a pipe can take only one of them"]);
    }
    failure(
        &run(&["convert", one, other]),
        2,
        &["is the input /dev/stdout, and a pipe can take only one of them"],
    );
    // Any number of outputs may go to a device.
    let args = ["critical-path", &recording, "--segments", "/dev/null", "--folded", "/dev/null"];
    success(&run(&args));
}

#[test]
fn two_outputs_are_two_files() {
    let folder = Folder::new("twice");
    let recording = folder.file("w.jsonl", TWO_TRACES);
    let file = folder.join("same");
    for other in [file.clone(), folder.join("./same"), folder.join("../") + &folder.join("same")[5..]] {
        if !Path::new(&other).parent().is_some_and(Path::exists) {
            continue;
        }
        let args = ["tune", &recording, "--out", &file, "--report", &other];
        failure(&run(&args), 2, &["--report", "also the file of --out"]);
        assert_eq!(folder.names(), ["w.jsonl"]);
    }
}

#[test]
fn an_output_that_can_not_be_written_is_found_before_the_work() {
    let folder = Folder::new("unwritable");
    folder.file("w.jsonl", TWO_TRACES);
    folder.file("other.jsonl", TWO_TRACES);
    fs::create_dir(folder.join("folder")).expect("a new folder");
    folder.file("folder/w.jsonl", TWO_TRACES);
    folder.file("file", "");
    for (option, args) in WRITING {
        for (target, reason) in [
            ("nowhere/x", "No such file"),
            ("folder", "it is a folder"),
            ("file/x", "Not a directory"),
            ("new/", "it names a folder"),
        ] {
            let args = in_folder(&folder, args, &folder.join(target));
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            failure(&run(&args), 1, &["cannot write", reason, "choose another file for"]);
        }
        assert_eq!(folder.names(), ["file", "folder", "other.jsonl", "w.jsonl"], "{option}");
    }
    // An unreadable validation recording is also found before minutes of tuning.
    let (recording, out) = (folder.join("w.jsonl"), folder.join("new.toml"));
    for (other, reason) in [("nowhere", "does not exist"), ("file", "no traces in")] {
        let args = ["tune", &recording, "--out", &out, "--validate", &folder.join(other)];
        failure(&run(&args), 1, &[reason]);
    }
    assert_eq!(folder.names(), ["file", "folder", "other.jsonl", "w.jsonl"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_an_error_and_leaves_nothing() {
    let folder = Folder::new("full");
    for name in ["w.jsonl", "other.jsonl"] {
        folder.file(name, TWO_TRACES);
    }
    fs::create_dir(folder.join("folder")).expect("a new folder");
    folder.file("folder/w.jsonl", TWO_TRACES);
    for (option, args) in WRITING {
        let args = in_folder(&folder, args, "/dev/full");
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = run(&args);
        assert_eq!(output.status.code(), Some(1), "{option}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("cannot write /dev/full: No space left"), "{option}: {error}");
        let _ = fs::remove_file(folder.join("fresh.toml"));
        assert_eq!(folder.names(), ["folder", "other.jsonl", "w.jsonl"], "{option}");
    }
    // More than a buffer, so that the error ends the reading.
    let recording = workload("hdfs_client_ops.tar.xz");
    let large = ["evaluate", &recording, "--sampler", "ratio:0.1", "--kept-out", "/dev/full"];
    let error = String::from_utf8_lossy(&run(&large).stderr).into_owned();
    assert!(error.contains("cannot write /dev/full: No space left"), "{error}");
    // The screen names only files that were written.
    let output = run(&["tune", &recording, "--late", "--out", "/dev/full"]);
    assert!(!String::from_utf8_lossy(&output.stdout).contains("wrote"));
}

/// If the page cannot be written, the parameters and the table are still there.
#[cfg(target_os = "linux")]
#[test]
fn a_late_error_loses_no_parameters_and_no_table() {
    let folder = Folder::new("late");
    let (recording, out) = (folder.file("w.jsonl", TWO_TRACES), folder.join("p.toml"));
    let tune = ["tune", &recording, "--size-max", "100%", "--per-key", "never"];
    let output = run(&[&tune[..], &["--out", &out, "--report", "/dev/full"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        text.contains("dist/ent") && text.contains("wrote ") && !text.contains("wrote /dev/full"),
        "{text}"
    );
    assert!(error.contains("cannot write /dev/full"), "{error}");
    assert!(fs::read_to_string(&out).expect("it is there").contains("lambda"));
    // If the disk fills up meanwhile, the file is lost but the table has the parameters.
    let output = run(&[&tune[..], &["--out", "/dev/full"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("bump:lambda=") && !text.contains("wrote"), "{text}");
    assert!(error.contains("cannot write /dev/full"), "{error}");
    let other = folder.join("other");
    for (args, shown) in [
        (
            &["evaluate", &recording, "--sampler", "always", "--kept", "/dev/full", "--counts", &other][..],
            "dist/ent",
        ),
        (
            &["evaluate", &recording, "--sampler", "always", "--counts", "/dev/full", "--json"],
            "\"dist_over_entropy\"",
        ),
        (&["critical-path", &recording, "--segments", "/dev/full", "--folded", &other], "times in ms"),
        (&["critical-path", &recording, "--folded", "/dev/full", "--html", &other], "times in ms"),
        (&["critical-path", &recording, "--html", "/dev/full", "--json"], "\"path_kinds\""),
        (&["events", &recording, "--trace", "1", "--html", "/dev/full"], "ms to the"),
        (&["events", &recording, "--trace", "1", "--html", "/dev/full", "--dot"], "digraph"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let (text, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(shown) && !text.contains("wrote /dev/full"), "{args:?}: {text}");
        assert!(error.contains("cannot write /dev/full"), "{args:?}: {error}");
        // The other file is complete.
        assert_eq!(Path::new(&other).exists(), args.contains(&&*other), "{args:?}");
        let _ = fs::remove_file(&other);
    }
}

#[cfg(unix)]
#[test]
fn a_file_keeps_its_permissions_and_links_stay_links() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = Folder::new("permissions");
    let recording = folder.file("w.jsonl", TWO_TRACES);
    let old = folder.file("old.jsonl", "old");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).expect("our file");
    let link = folder.join("link.jsonl");
    std::os::unix::fs::symlink(&old, &link).expect("symbolic links");
    assert!(run(&["convert", &recording, &link]).status.success());
    assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
    assert!(fs::read_to_string(&old).expect("it is there").contains("resourceSpans"));
    assert_eq!(fs::metadata(&old).expect("it is there").permissions().mode() & 0o777, 0o640);
    assert_eq!(folder.names(), ["link.jsonl", "old.jsonl", "w.jsonl"]);
}

#[test]
fn a_conversion_does_not_land_where_it_would_be_read_again() {
    let folder = Folder::new("doubled");
    folder.file("w.jsonl", TWO_TRACES);
    let (input, out) = (folder.join(""), folder.join("out.json"));
    failure(
        &run(&["convert", &input, &out]),
        2,
        &["is inside the input folder", "twice", "choose a file outside"],
    );
    assert_eq!(folder.names(), ["w.jsonl"]);
}

/// The reader follows links.
#[cfg(unix)]
#[test]
fn a_conversion_does_not_land_behind_a_link_of_the_folder_that_is_read() {
    use std::os::unix::fs::symlink;

    let folder = Folder::new("linked");
    for name in ["read", "read/deeper", "linked", "linked/deeper"] {
        fs::create_dir(folder.join(name)).expect("a new folder");
    }
    folder.file("read/w.jsonl", TWO_TRACES);
    symlink("../../linked", folder.join("read/deeper/link")).expect("symbolic links");
    symlink("../later.json", folder.join("read/later.json")).expect("symbolic links");
    symlink("..", folder.join("read/circle.jsonl")).expect("symbolic links");
    let input = folder.join("read");
    for name in ["linked/out.json", "linked/deeper/out.json", "later.json"] {
        let out = folder.join(name);
        failure(&run(&["convert", &input, &out]), 2, &["is inside the input folder", "twice"]);
        assert!(!Path::new(&out).exists(), "{name}");
    }
    fs::remove_file(folder.join("read/circle.jsonl")).expect("ours");
    assert!(run(&["convert", &input, &folder.join("out.json")]).status.success());
}

/// `tune .` writes its parameters into the folder that it reads, and finds them there in the next
/// run.
#[test]
fn what_is_no_recording_can_be_written_into_the_folder_that_is_read() {
    let folder = Folder::new("here");
    folder.file("w.jsonl", TWO_TRACES);
    let (input, out) = (folder.join(""), folder.join("astracer.toml"));
    for _ in 0..2 {
        success(&run(&["tune", &input, "--size-max", "100%", "--out", &out, "--iterations", "10"]));
        assert_eq!(folder.names(), ["astracer.toml", "w.jsonl"]);
    }
}

/// A log that collects the output of many runs keeps what earlier runs wrote.
#[cfg(target_os = "linux")]
#[test]
fn an_output_does_not_replace_the_file_of_standard_error() {
    let folder = Folder::new("log");
    let (recording, log) = (folder.file("w.jsonl", TWO_TRACES), folder.file("log", "before\n"));
    for target in ["/dev/stderr", "/proc/self/fd/2", &log] {
        let end = fs::OpenOptions::new().append(true).open(&log).expect("it is there");
        let output = Command::new(env!("CARGO_BIN_EXE_astracer"))
            .args(["convert", &recording, target])
            .stderr(end)
            .output()
            .expect("the binary starts");
        assert_eq!(output.status.code(), Some(2), "{target}");
        let text = fs::read_to_string(&log).expect("it is there");
        assert!(text.starts_with("before\n") && text.ends_with("choose another file\n"), "{text}");
    }
}

#[test]
fn a_dash_is_no_file() {
    for args in [
        &["tune", "x", "--out", "-"][..],
        &["tune", "x", "--report", "-"],
        &["evaluate", "x", "--sampler", "always", "--kept", "-"],
    ] {
        failure(&run(args), 2, &["needs a file, not '-'"]);
    }
}

#[cfg(unix)]
#[test]
fn a_conversion_to_the_file_that_it_reads_does_not_grow_without_end() {
    let folder = Folder::new("grows");
    let recording = folder.file("w.jsonl", TWO_TRACES);
    let end = fs::OpenOptions::new().append(true).open(&recording).expect("it is there");
    let output = Command::new(env!("CARGO_BIN_EXE_astracer"))
        .args(["convert", &recording, "-"])
        .stdout(end)
        .output()
        .expect("the binary starts");
    failure(&output, 2, &["standard output is the input file, which would grow forever"]);
    assert_eq!(fs::read_to_string(&recording).expect("it is there"), TWO_TRACES);
}

#[test]
fn an_evaluation_is_not_printed_into_the_parameters_that_it_reads() {
    let folder = Folder::new("prints");
    let recording = folder.file("w.jsonl", TWO_TRACES);
    let parameters = folder.join("p.toml");
    success(&run(&["tune", &recording, "--size-max", "100%", "--out", &parameters]));
    let before = fs::read_to_string(&parameters).expect("written");
    let end = fs::OpenOptions::new().append(true).open(&parameters).expect("it is there");
    let output = Command::new(env!("CARGO_BIN_EXE_astracer"))
        .args(["evaluate", &recording, "--parameters", &parameters])
        .stdout(end)
        .output()
        .expect("the binary starts");
    failure(&output, 2, &["standard output is the input file", "would be damaged"]);
    assert_eq!(fs::read_to_string(&parameters).expect("it is there"), before);
}

/// Starts a command that blocks, and ends it with one signal once `is_waiting` returns true.
#[cfg(unix)]
fn ended_by(signal: &str, args: &[&str], mut is_waiting: impl FnMut() -> bool) {
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    let mut child = Command::new(env!("CARGO_BIN_EXE_astracer"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let until = |what: &str, is_so: &mut dyn FnMut() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(60), "{what}: {args:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("it does not begin", &mut is_waiting);
    #[cfg(target_os = "linux")]
    {
        let status = format!("/proc/{}/status", child.id());
        let caught = || {
            let status = fs::read_to_string(&status).unwrap_or_default();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
            // SIGINT is 2 and SIGTERM 15.
            u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 0x4002 == 0x4002)
        };
        until("it does not catch signals", &mut || caught());
    }
    // Give the command time to get from installing its handler to blocking.
    std::thread::sleep(Duration::from_millis(300));
    let killed = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(killed.expect("kill is there").success());
    until("still running", &mut || child.try_wait().expect("a child").is_some());
    failure(&child.wait_with_output().expect("a child"), 130, &["astracer: interrupted\n"]);
}

/// One Ctrl-C ends a command that waits for input, and removes its unfinished file.
#[cfg(unix)]
#[test]
fn an_interruption_ends_a_command_that_waits_for_its_input() {
    let folder = Folder::new("waits-for-input");
    let out = folder.join("out.jsonl");
    let partial = || folder.names().iter().any(|name| name.ends_with(".partial"));
    ended_by("-INT", &["convert", "-", &out], partial);
    for args in [
        &["inspect", "-"][..],
        &["inspect", "-", "--weights"],
        &["tune", "-", "--out", &out],
        &["send", "-", "--to", "otlp+http://127.0.0.1:1"],
    ] {
        ended_by("-TERM", args, || true);
    }
    assert_eq!(folder.names(), [""; 0]);
}

/// The same after parameters were found, whose file stays.
#[cfg(unix)]
#[test]
fn an_interruption_ends_a_tuning_that_waits_for_a_validation() {
    let folder = Folder::new("waits-for-validation");
    let (recording, out) = (folder.file("w.jsonl", TWO_TRACES), folder.join("found.toml"));
    let is_found = || folder.names().iter().any(|name| name == "found.toml");
    let few = ["--size-max", "100%", "--iterations", "4", "--starts", "1", "--one-key", "--per-key", "never"];
    let args = [&["tune", &recording, "--validate", "-", "--out", &out], &few[..]].concat();
    ended_by("-TERM", &args, is_found);
    assert_eq!(folder.names(), ["found.toml", "w.jsonl"]);
}

/// The same while a pipe has no reader.
#[cfg(unix)]
#[test]
fn an_interruption_ends_a_command_at_a_pipe_without_another_end() {
    let folder = Folder::new("waits-for-pipe");
    let (recording, pipe) = (folder.file("w.jsonl", TWO_TRACES), folder.join("pipe"));
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo is there").success());
    for args in [
        &["inspect", &pipe][..],
        &["convert", &recording, &pipe],
        &["evaluate", &recording, "--seeds", "1", "--sampler", "always", "--kept", &pipe],
        &["evaluate", &recording, "--parameters", &pipe],
    ] {
        ended_by("-TERM", args, || true);
    }
    assert_eq!(folder.names(), ["pipe", "w.jsonl"]);
}

/// The first Ctrl-C ends a command that only has to print, here because its reader stopped reading.
#[cfg(unix)]
#[test]
fn an_interruption_ends_a_long_table_at_once() {
    use std::fmt::Write as _;

    let folder = Folder::new("long-table");
    // Larger than the buffer of a pipe. Names of letters, because digits would be folded.
    let letter = |number: usize| char::from(b'g' + (number % 20) as u8);
    let spans = (1..=8_000usize).fold(String::new(), |mut spans, span| {
        let name: String = (0..4).map(|place| letter(span / 20usize.pow(place))).collect();
        let _ =
            writeln!(spans, r#"{{"a":"{span:016x}{span:016x}","b":1,"e":2,"d":"{name}","r":"s","p":[]}}"#);
        spans
    });
    let recording = folder.file("w.jsonl", &spans);
    ended_while_printing("-INT", &["inspect", &recording, "--top", "0"]);
}

/// The same after parameters were found, which are written by then.
#[cfg(unix)]
#[test]
fn an_interruption_ends_the_result_of_a_tuning_at_once() {
    let folder = Folder::new("long-tuning");
    let (recording, out) = (folder.file("w.jsonl", TWO_TRACES), folder.join("found.toml"));
    // JSON lists each start.
    let many =
        ["--size-max", "100%", "--iterations", "4", "--starts", "1000", "--one-key", "--per-key", "never"];
    ended_while_printing("-TERM", &[&["tune", &recording, "--json", "--out", &out], &many[..]].concat());
    assert_eq!(folder.names(), ["found.toml", "w.jsonl"]);
}

/// Ends a command with one signal while it prints more than the buffer of a pipe.
#[cfg(unix)]
fn ended_while_printing(signal: &str, args: &[&str]) {
    use std::io::Read as _;
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    let mut child = Command::new(env!("CARGO_BIN_EXE_astracer"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let mut reader = child.stdout.take().expect("piped");
    reader.read_exact(&mut [0]).expect("it begins to print");
    let killed = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(killed.expect("kill is there").success());
    let began = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "still printing: {args:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().expect("a child").code(), Some(130));
}
