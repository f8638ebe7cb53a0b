//! The platforms step: a service's dependencies compile for other systems and for 32-bit words, and
//! the SDK's unit tests pass with 32-bit words. Span entries follow the layout of a registry's ids,
//! which depends on the word size.
//!
//! Features that compile C code are left out, since they need a C compiler for each target.

use std::path::Path;
use std::process::Command;

use crate::built::Built;
use crate::metadata::{Metadata, Package};
use crate::step_result::{Options, StepResult};
use crate::{cargo, tool};

const NARROW: &str = "i686-unknown-linux-gnu";
const TARGETS: [&str; 3] = [NARROW, "x86_64-pc-windows-gnu", "aarch64-apple-darwin"];
/// Debian's package for linking 32-bit programs.
const LINKER: &str = "gcc-multilib";
const FEATURES: &str =
    "bridge,console,endpoint,file,gzip,http,metrics,otlp-grpc,otlp-http,polling,spool,zipkin";

pub(crate) fn run(root: &Path, options: Options) -> StepResult {
    StepResult::of(check(root, options))
}

/// The facade with all that it re-exports, and the SDK's unit tests.
pub(crate) fn builds(package: &Package) -> Built {
    match package.name.as_str() {
        "astracer" => Built::Program,
        "astracer-sdk" => Built::UnitTests,
        _ => Built::Nothing,
    }
}

fn check(root: &Path, options: Options) -> Result<StepResult, String> {
    let mut missing = Vec::new();
    for target in TARGETS {
        if options.install && !has_library(root, target) {
            tool::try_install(Command::new("rustup").current_dir(root).args(["target", "add", target]));
        }
        if !has_library(root, target) {
            missing.push(format!("Rust's library for {target} (rustup target add {target})"));
        } else if !cargo::run(
            root,
            &format!("check -p astracer --locked --target {target} --features {FEATURES}"),
        ) {
            return Ok(StepResult::Failed);
        }
    }
    if has_library(root, NARROW) {
        if options.install && !runs(root)? && tool::can_install_packages() {
            tool::install_package(LINKER).unwrap_or_else(|error| println!("{error}"));
        }
        if !runs(root)? {
            missing.push(format!("a linker for 32-bit programs (Debian: {LINKER})"));
        } else if !cargo::run(root, &format!("test -p astracer-sdk --locked --lib --target {NARROW}")) {
            return Ok(StepResult::Failed);
        }
    }
    if missing.is_empty() {
        return Ok(StepResult::Passed);
    }
    Ok(StepResult::Skipped(format!("missing: {}", missing.join(", "))))
}

/// Whether the standard library for `target` is installed for the current compiler.
fn has_library(root: &Path, target: &str) -> bool {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(root).args(["--print", "target-libdir", "--target", target]);
    let folder = rustc.output().ok().and_then(|output| String::from_utf8(output.stdout).ok());
    folder.is_some_and(|folder| !folder.trim().is_empty() && Path::new(folder.trim()).is_dir())
}

/// Whether a 32-bit program can be linked and run here.
fn runs(root: &Path) -> Result<bool, String> {
    let folder = Path::new(&Metadata::load(root)?.target_directory).join("platforms");
    let (source, program) = (folder.join("main.rs"), folder.join("program"));
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&source, "fn main() {}"))
        .map_err(|error| format!("{}: {error}", source.display()))?;
    let mut rustc = Command::new("rustc");
    rustc.current_dir(root).args(["--target", NARROW, "-o"]).arg(&program).arg(&source);
    Ok(tool::is_silent_success(&mut rustc) && tool::is_silent_success(&mut Command::new(&program)))
}
