//! The `astracer` command line tool: parses arguments, calls the other crates, and prints.
//!
//! Results go to standard output; progress, notes and errors go to standard error.

use std::process::ExitCode;

use astracer_tuner::Stop;
use clap::Parser;
use clap::error::ErrorKind;

mod bounded;
mod command;
mod failure;
mod handles;
mod identity;
mod interrupt;
mod json_text;
mod layout;
mod load;
mod losses;
mod output;
mod outputs;
mod packed;
mod parameters_file;
mod partial;
mod probe;
mod progress;
mod root_attributes;
mod shell;
mod source;
mod stdout;
#[cfg(test)]
mod stopping_tests;
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
        Err(failure) => ended(&failure),
    }
}

/// Prints clap's message: help to standard output, errors to standard error.
///
/// An error quotes its arguments, which may be file names that somebody else chose. If they could
/// control the terminal or fake a line, they are escaped and the message has no colours.
fn refused(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let printed = stdout::open().and_then(|_| error.print());
        return match printed.map_err(|error| failure::Failure::output(&error)) {
            Err(failure) => ended(&failure),
            Ok(()) => ExitCode::SUCCESS,
        };
    }
    let args: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let is_plain = |text: &String| output::is_safe(text) && !text.contains('\n');
    if args.iter().all(is_plain) {
        // A closed pipe needs no second message.
        let _ = error.print();
    } else {
        // Parsing the escaped arguments gives the same error, with each argument on one line.
        let again = command::Args::try_parse_from(args.iter().map(|arg| output::escaped(arg).into_owned()));
        output::note(&again.err().as_ref().unwrap_or(error).render().to_string());
    }
    ExitCode::from(2)
}

/// Prints why a command failed.
fn ended(failure: &failure::Failure) -> ExitCode {
    if matches!(failure, failure::Failure::Interrupted) {
        interrupt::report();
    } else if let Some(text) = failure.text() {
        output::note(&format!("astracer: {text}"));
    }
    ExitCode::from(failure.exit_code())
}
