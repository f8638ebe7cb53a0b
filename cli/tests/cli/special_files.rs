//! Files that are named by mistake: pipes, devices, folders, and links to nothing. Each is named in
//! an error, and none makes a command wait.

use std::process::{Command, Output, Stdio};

use crate::outputs::Folder;
use crate::{TWO_TRACES, failure, run};

/// The names of a pipe, a device, a folder and a link to nothing, each with the reason.
fn special(folder: &Folder) -> [(String, &'static str); 4] {
    let (pipe, link, inner) = (folder.join("pipe"), folder.join("link"), folder.join("inner"));
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there").success());
    std::os::unix::fs::symlink("nothing", &link).expect("a link");
    std::fs::create_dir(&inner).expect("a folder");
    [
        (pipe, "but a pipe"),
        ("/dev/zero".to_owned(), "but a device"),
        (inner, "but a folder"),
        (link, "No such file"),
    ]
}

#[test]
fn special_files_are_no_input_of_an_option() {
    let folder = Folder::new("special-inputs");
    let recording = folder.file("w.jsonl", TWO_TRACES);
    // A pipe may be meant here, as in `-f <(...)`.
    for (name, reason) in &special(&folder)[1..] {
        for (args, code) in [
            (&["query", &recording, "-f", name][..], 1),
            (&["inspect", &recording, "--parameters", name], 1),
            (&["evaluate", &recording, "--sampler", "always", "--scoreboard", name], 1),
            (&["compare", &recording, "--bad-errors", "--metrics", name], 1),
            (&["compare", &recording, "--bad-ids", name], 1),
            (&["order", &recording, "--layouts", name], 2),
        ] {
            failure(&run(args), code, &[name, reason]);
        }
    }
}

/// Certificates and the file of `--resume` are read whole before anything else happens.
#[test]
fn special_files_are_no_settings() {
    let folder = Folder::new("special-settings");
    let recording = folder.file("w.jsonl", TWO_TRACES);
    let send = |variable: &str, name: &str| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_astracer"));
        command.args(["send", &recording, "--to", "otlps://127.0.0.1:1"]).env(variable, name);
        command.stdin(Stdio::null()).output().expect("the binary starts")
    };
    let special = special(&folder);
    for (name, reason) in &special {
        for variable in ["OTEL_EXPORTER_OTLP_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_KEY"] {
            failure(&send(variable, name), 1, &[variable, name, reason]);
        }
    }
    let pipe = &special[0].0;
    let args = ["send", &recording, "--to", "otlp://127.0.0.1:1", "--resume", pipe];
    failure(&run(&args), 1, &[pipe, "a device or a pipe"]);
}
