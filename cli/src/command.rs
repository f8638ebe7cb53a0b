//! The command line: one file for each subcommand, with its arguments.

use astracer_tuner::Stop;
use clap::{Parser, Subcommand};

use crate::failure::Failure;

mod compare;
mod convert;
mod critical_path;
mod drill;
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
    /// Send through a bad server, and count what becomes of each span.
    Drill(drill::Drill),
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
            Command::Drill(args) => drill::run(args, stop),
            Command::Spool(args) => spool::run(args, stop),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use clap::{Arg, Command, CommandFactory};

    use super::Args;

    /// All commands that run, each with its words and its arguments.
    fn commands() -> Vec<(Vec<String>, Vec<Arg>)> {
        fn below(command: &Command, words: &[String], all: &mut Vec<(Vec<String>, Vec<Arg>)>) {
            let words = [words, &[command.get_name().to_owned()]].concat();
            if command.has_subcommands() {
                command.get_subcommands().for_each(|command| below(command, &words, all));
            } else {
                all.push((words, command.get_arguments().cloned().collect()));
            }
        }
        let mut all = Vec::new();
        below(&Args::command(), &[], &mut all);
        all
    }

    fn value_names(arg: &Arg) -> Vec<String> {
        arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    /// An option has one meaning in all commands, so its values have one name. The exceptions are
    /// ordinary words whose meaning follows from the command.
    #[test]
    fn an_option_has_one_meaning() {
        let mut names: BTreeMap<String, BTreeSet<Vec<String>>> = BTreeMap::new();
        for (_, args) in commands() {
            for arg in args.iter().filter(|arg| !["explain", "out", "to"].contains(&arg.get_id().as_str())) {
                if let Some(long) = arg.get_long() {
                    names.entry(long.to_owned()).or_default().insert(value_names(arg));
                }
            }
        }
        names.retain(|_, names| names.len() > 1);
        assert!(names.is_empty(), "{names:?}");
    }

    #[test]
    fn every_recording_is_called_so() {
        let mut positional = BTreeSet::new();
        for (_, args) in commands() {
            positional.extend(args.iter().filter(|arg| arg.is_positional()).flat_map(value_names));
        }
        // OUT is the file that `convert` writes, DIR the folder of a spool.
        assert_eq!(positional.into_iter().collect::<Vec<_>>(), ["DIR", "OUT", "RECORDING"]);
    }

    #[test]
    fn every_duration_takes_a_unit_and_says_so() {
        let (mut checked, mut unnamed) = (0, Vec::new());
        for (words, args) in commands() {
            for arg in args.iter().filter(|arg| value_names(arg).concat().contains("SECONDS")) {
                unnamed.push(arg.to_string());
            }
            for arg in args.iter().filter(|arg| value_names(arg) == ["DURATION"]) {
                let option = format!("--{}", arg.get_long().unwrap());
                let parse = |value| {
                    let line = words.iter().map(String::as_str).chain([option.as_str(), value]);
                    Args::command().try_get_matches_from(line).unwrap_err().to_string()
                };
                let error = parse("x");
                let says = "invalid duration 'x': use a number with a unit, such as 250ms, 5s or 2h";
                assert!(error.contains(says), "{option}: {error}");
                // A valid duration reaches the next check, which misses other arguments.
                for value in ["250ms", "5s", "2h"] {
                    assert!(!parse(value).contains("invalid"), "{option} {value}");
                }
                checked += 1;
            }
        }
        assert!(checked >= 13 && unnamed.is_empty(), "{checked} {unnamed:?}");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
