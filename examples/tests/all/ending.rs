//! Examples end well: SIGTERM ends each as Ctrl-C does, with the last spans exported, the summary
//! printed and the exit code 0, and a closed pipe is not an error.

#![cfg(target_os = "linux")]

use std::process::{Child, Command, Stdio};

use astracer_testing::wait_until;

/// Waits until the process catches SIGTERM.
fn is_ready(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    // SIGTERM is 15.
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & (1 << 14) != 0)
}

#[test]
fn each_example_ends_well_on_sigterm() {
    let endless = "1000000000";
    for (example, options) in [
        (env!("CARGO_BIN_EXE_axum"), &["--listen", "127.0.0.1:0"][..]),
        (env!("CARGO_BIN_EXE_axum"), &["--requests", endless]),
        (env!("CARGO_BIN_EXE_batch"), &["--records", endless]),
        (env!("CARGO_BIN_EXE_tonic"), &["--calls", endless]),
        (env!("CARGO_BIN_EXE_chain"), &["--orders", endless]),
    ] {
        let mut command = Command::new(example);
        command.args(options).args(["--export", "none"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().expect("the example starts");
        wait_until("the example catches SIGTERM", || is_ready(&child));
        let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{example}: {:?} {text}", output.status);
        assert!(text.contains("roots"), "{example}: {text}");
    }
}

/// As in `axum | head -1`. The pipe is closed before the example starts, so that each write fails.
/// The console's spans, which go there too, do not count as lost.
#[test]
fn each_example_ends_well_when_its_output_is_closed() {
    for (example, options) in [
        (env!("CARGO_BIN_EXE_axum"), &["--requests", "200", "--tenants", "2", "--applications", "all"][..]),
        (env!("CARGO_BIN_EXE_axum"), &["--requests", "200", "--export", "none"]),
        (env!("CARGO_BIN_EXE_batch"), &["--records", "400"]),
        (env!("CARGO_BIN_EXE_tonic"), &["--calls", "20"]),
        (env!("CARGO_BIN_EXE_chain"), &["--orders", "2"]),
        (env!("CARGO_BIN_EXE_et"), &["--serve", "axum, subscriber, kept"]),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(example);
        let output = command.args(options).stdin(Stdio::null()).stdout(writer).output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.is_empty(), "{example}: {:?} {text}", output.status);
    }
}
