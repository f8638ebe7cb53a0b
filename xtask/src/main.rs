//! `cargo xtask`: the entry point to every check.
//!
//! `cargo xtask test` needs a clone and a stable toolchain; CI adds `affected`. A check is a
//! [`step::Step`]; a step of more than one cargo command has a module of its own.

// Printing is the output of a tool for the terminal.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod affected;
mod args;
mod bounds;
mod built;
mod cargo;
mod doc;
mod e2e;
mod features;
mod figures;
mod fuzz;
mod inputs;
mod instructions;
mod licences;
mod loom;
mod metadata;
mod minimal;
mod package;
mod pages;
mod passed;
mod platforms;
mod program;
mod ran;
mod repo;
mod run;
mod semver;
mod servers;
mod soak;
mod step;
mod step_result;
mod tidy;
mod tool;

use std::process::ExitCode;

use args::Command;

fn main() -> ExitCode {
    let root = repo::root();
    match args::parse(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            print!("{}", args::help());
            ExitCode::SUCCESS
        }
        Ok(Command::Steps(run)) => run::run(&root, &run.steps, run.affected, run.options),
        Ok(Command::Figures) => figures::run(&root),
        Ok(Command::Servers(options)) => servers::run(&root, &options),
        Ok(Command::Fuzz(options)) => fuzz::run(&root, &options),
        Ok(Command::Soak(options)) => soak::run(&root, &options),
        Err(message) => {
            eprintln!("error: {message}\n\nTry `cargo xtask --help`.");
            ExitCode::from(2)
        }
    }
}
