//! Calls to cargo.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Runs `cargo LINE` at the root and shows its output. Returns false if it fails or cannot be
/// started.
pub(crate) fn run(root: &Path, line: &str) -> bool {
    run_with(root, line, [])
}

/// As [`run`], with environment variables set for this call.
pub(crate) fn run_with<const N: usize>(root: &Path, line: &str, env: [(&str, String); N]) -> bool {
    run_with_all(root, line, env.map(|(name, value)| (name.to_owned(), value)).into())
}

/// As [`run_with`], for variables that are only known at run time.
pub(crate) fn run_with_all(root: &Path, line: &str, env: Vec<(String, String)>) -> bool {
    let shown: String = env.iter().map(|(name, value)| format!("{name}='{value}' ")).collect();
    println!("$ {shown}cargo {line}");
    match command(root, line).envs(env).status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("cannot start cargo: {error}");
            false
        }
    }
}

/// The cargo that runs this program, with the words of `line` as arguments.
pub(crate) fn command(root: &Path, line: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(line.split_whitespace()).current_dir(root);
    command
}
