//! `cargo xtask`: the one entry to every check.
//!
//! What CI runs is `cargo xtask ci`, so whoever has a clone and a stable toolchain can run the same. A check is a
//! [`step::Step`]; the steps that are more than one cargo command have a module of their own.

// A tool for the terminal: printing is its output.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod cargo;
mod e2e;
mod features;
mod fuzz;
mod instructions;
mod licences;
mod loom;
mod metadata;
mod repo;
mod run;
mod servers;
mod step;
mod tidy;

use std::process::ExitCode;

use args::Command;

fn main() -> ExitCode {
    let root = repo::root();
    match args::parse(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            print!("{}", args::help());
            ExitCode::SUCCESS
        }
        Ok(Command::Steps(steps)) => run::run(&root, &steps),
        Ok(Command::Servers(options)) => servers::run(&root, &options),
        Ok(Command::Fuzz(options)) => fuzz::run(&root, &options),
        Err(message) => {
            eprintln!("error: {message}\n\nTry `cargo xtask --help`.");
            ExitCode::from(2)
        }
    }
}
