//! The licences step: cargo-deny checks every package that could be compiled in, for any platform
//! or feature. `deny.toml` has the accepted licences.

use std::path::Path;

use crate::cargo;
use crate::step_result::{Options, StepResult};
use crate::tool;

pub(crate) fn run(root: &Path, options: Options) -> StepResult {
    let is_there = || tool::is_silent_success(&mut cargo::command(root, "deny --version"));
    if options.install && !is_there() {
        tool::try_install(&mut cargo::command(root, "install cargo-deny --locked"));
    }
    if !is_there() {
        return StepResult::Skipped(
            "cargo-deny is not installed: run `cargo install cargo-deny --locked`".to_owned(),
        );
    }
    cargo::run(root, "deny --locked --all-features check licenses sources bans").into()
}
