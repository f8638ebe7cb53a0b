//! Builds a program for a measurement, and counts its instructions with valgrind.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::{cargo, tool};

/// Checks that valgrind is installed. With `install`, as root on Debian, installs it if it is
/// missing.
///
/// # Errors
///
/// A sentence that names valgrind, if it is missing.
pub(crate) fn valgrind(install: bool) -> Result<(), String> {
    tool::require("valgrind", "valgrind", install)
}

#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
}

/// Runs `cargo LINE` with `--message-format json`, and returns the last program that it built.
///
/// # Errors
///
/// If nothing was built.
pub(crate) fn build(root: &Path, line: &str) -> Result<PathBuf, String> {
    println!("$ cargo {line}");
    let output = cargo::command(root, line)
        .args(["--message-format", "json"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = |line: &str| serde_json::from_str::<Message>(line).ok()?.executable;
    let built = messages.lines().rev().find_map(executable);
    built.filter(|_| output.status.success()).ok_or_else(|| "cargo built no program".to_owned())
}

/// The instructions of one run on one thread, by cachegrind. The program's output is discarded.
///
/// # Errors
///
/// If valgrind cannot be started, or the program fails.
pub(crate) fn instructions(program: &Path, args: &[String]) -> Result<f64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args(args)
        .env("RAYON_NUM_THREADS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let total =
        text.lines().find_map(|line| line.split_once("refs:")?.1.trim().replace(',', "").parse().ok());
    match total {
        Some(total) if output.status.success() => Ok(total),
        _ => Err(format!("{args:?}: cachegrind counted no instructions:\n{text}")),
    }
}
