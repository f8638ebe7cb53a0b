//! The `astracer` command line tool: parses arguments, calls a crate, prints.
//!
//! Results go to standard output, everything else (progress, notes, errors) to standard error.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the crate that prints")]

use std::process::ExitCode;

use clap::Parser;

mod command;
mod failure;
mod interrupt;
mod load;
mod output;
mod source;
mod target;
mod values;

fn main() -> ExitCode {
    let args = command::Args::parse();
    let stop = interrupt::stop_flag();
    match args.run(&stop) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.text() {
                eprintln!("astracer: {text}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}
