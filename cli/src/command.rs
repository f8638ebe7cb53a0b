//! The command line: one file for each subcommand, with its arguments.

use astracer_tuner::Stop;
use clap::{Parser, Subcommand};

use crate::failure::Failure;

mod compare;
mod convert;
mod critical_path;
mod evaluate;
mod events;
mod inspect;
mod order;
mod query;
mod receive;
mod send;
mod spool;
mod tune;

const AFTER_HELP: &str = "\
Examples:
  astracer receive --out traces/      record what services send
  astracer inspect traces/            look at the recording
  astracer tune traces/               write astracer.toml for the services

Exit codes:
  0    done
  1    the command failed; the message says why and what to do
  2    wrong usage
  130  interrupted by Ctrl-C, SIGTERM or SIGHUP; 143 after a second SIGTERM";

/// Adaptive trace sampling: record traces, find out what they contain, and tune a sampler on them.
#[derive(Debug, Parser)]
#[command(name = "astracer", version, after_help = AFTER_HELP, max_term_width = 80)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what a recording holds: roots, functions and their durations.
    Inspect(inspect::Inspect),
    /// Replay samplers over a recording and score what they keep.
    Evaluate(evaluate::Evaluate),
    /// Find sampling parameters for a recording, and write the file that services load.
    Tune(tune::Tune),
    /// Show which functions make up the latency of requests.
    CriticalPath(critical_path::CriticalPath),
    /// Show what differs between good and bad traces.
    Compare(compare::Compare),
    /// Draw the event graph of one trace, with its critical path.
    Events(events::Events),
    /// Put the events of several processes into one order of cause and effect.
    Order(order::Order),
    /// Answer a question about a recording, joined by cause: a query over tracepoints.
    Query(query::Query),
    /// Write a recording in another format.
    Convert(convert::Convert),
    /// Record traces: accept OTLP from any service and write it to files.
    Receive(receive::Receive),
    /// Send recordings to a server.
    Send(send::Send),
    /// Inspect, verify or drain a spool that no process is using.
    Spool(spool::Spool),
}

impl Args {
    /// Runs the subcommand until it is done, fails, or is asked to stop.
    pub(crate) fn run(&self, stop: Stop<'_>) -> Result<(), Failure> {
        match &self.command {
            Command::Inspect(args) => inspect::run(args, stop),
            Command::Evaluate(args) => evaluate::run(args, stop),
            Command::Tune(args) => tune::run(args, stop),
            Command::CriticalPath(args) => critical_path::run(args, stop),
            Command::Compare(args) => compare::run(args, stop),
            Command::Events(args) => events::run(args, stop),
            Command::Order(args) => order::run(args, stop),
            Command::Query(args) => query::run(args, stop),
            Command::Convert(args) => convert::run(args, stop),
            Command::Receive(args) => receive::run(args, stop),
            Command::Send(args) => send::run(args, stop),
            Command::Spool(args) => spool::run(args, stop),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
