//! The `astracer` command line tool: parses arguments, calls a crate, prints.
//!
//! Results go to standard output, everything else (progress, notes, errors) to standard error.

use std::process::ExitCode;

use astracer_tuner::Stop;
use clap::Parser;
use clap::error::ErrorKind;

mod command;
mod failure;
mod interrupt;
mod load;
mod losses;
mod output;
mod outputs;
mod packed;
mod partial;
mod source;
#[cfg(test)]
mod stopping;
mod tail;
mod target;
mod values;

fn main() -> ExitCode {
    let args = match command::Args::try_parse() {
        Ok(args) => args,
        Err(error) => return refused(&error),
    };
    let stop = interrupt::stop_flag();
    match args.run(Stop::when_set(&stop)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.text() {
                output::note(&format!("astracer: {text}"));
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Prints clap's message: help to standard output, errors to standard error. An error quotes its arguments, which may be
/// names of files that others gave; if they could act on a terminal, the message has no colours and they are escaped.
fn refused(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if is_help || output::is_safe(&text) {
        // A closed pipe is no reason for another message.
        let _ = error.print();
    } else {
        output::note(&text);
    }
    ExitCode::from(if is_help { 0 } else { 2 })
}
