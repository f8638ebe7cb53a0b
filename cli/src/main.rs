//! The `astracer` command line tool: parses arguments, calls a crate, prints.
//!
//! Results go to standard output, everything else (progress, notes, errors) to standard error.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the crate that prints")]

use std::process::ExitCode;

use clap::Parser;

mod args;
mod command;
mod failure;
mod interrupt;
mod load;
mod output;
mod target;

fn main() -> ExitCode {
    let args = args::Args::parse();
    let stop = interrupt::stop_flag();
    let result = match &args.command {
        args::Command::Inspect(args) => command::inspect::run(args, &stop),
        args::Command::Evaluate(args) => command::evaluate::run(args, &stop),
        args::Command::Tune(args) => command::tune::run(args, &stop),
        args::Command::Receive(args) => command::receive::run(args, &stop),
        args::Command::Send(args) => command::send::run(args, &stop),
        args::Command::Convert(args) => command::convert::run(args, &stop),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.text() {
                eprintln!("astracer: {text}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}
