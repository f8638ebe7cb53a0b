//! The command line of `cargo xtask`.

use crate::fuzz;
use crate::servers::{self, Action, Kind};
use crate::soak;
use crate::step::Step;
use crate::step_result::Options;

/// A parsed command line.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Help,
    Steps(Steps),
    Fuzz(fuzz::Options),
    Soak(soak::Options),
    Servers(servers::Options),
    /// Lists figures that are older than what they measure.
    Figures,
}

/// Steps to run, one after the other.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Steps {
    pub(crate) steps: Vec<Step>,
    /// Afterwards the slow steps whose inputs have changed.
    pub(crate) affected: bool,
    pub(crate) options: Options,
}

/// Reads the words after `cargo xtask`.
///
/// # Errors
///
/// A sentence for the user, if a word is unknown or a value is missing.
pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Command, String> {
    let words: Vec<String> = words.into_iter().collect();
    if words.is_empty() || words.iter().any(|word| matches!(word.as_str(), "help" | "--help" | "-h")) {
        return Ok(Command::Help);
    }
    if words == ["figures"] {
        return Ok(Command::Figures);
    }
    if words[0] == "fuzz" {
        return parse_fuzz(&words[1..]).map(Command::Fuzz);
    }
    if words[0] == "soak" {
        return parse_soak(&words[1..]).map(Command::Soak);
    }
    if words[0] == "servers" {
        return parse_servers(&words[1..]).map(Command::Servers);
    }
    let mut run = Steps::default();
    for word in &words {
        match word.as_str() {
            "test" => run.steps.extend(Step::quick()),
            "affected" => run.affected = true,
            "release" => {
                run.steps.extend(Step::ALL);
                run.options.full = true;
            }
            "--install" => run.options.install = true,
            name => run.steps.push(Step::named(name).ok_or_else(|| format!("no such command: {name}"))?),
        }
    }
    if run.steps.is_empty() && !run.affected {
        return Err("--install needs a command, such as test".to_owned());
    }
    Ok(Command::Steps(run))
}

fn parse_fuzz(words: &[String]) -> Result<fuzz::Options, String> {
    let mut options = fuzz::Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seconds" => {
                let value = words.next().ok_or("--seconds needs a number")?;
                options.seconds = value.parse().map_err(|_| format!("--seconds: not a number: {value}"))?;
            }
            flag if flag.starts_with('-') => return Err(format!("no such option of fuzz: {flag}")),
            target => options.targets.push(target.to_owned()),
        }
    }
    Ok(options)
}

fn parse_soak(words: &[String]) -> Result<soak::Options, String> {
    let mut options = soak::Options { minutes: 30, mode: None, with_sanitizer: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--minutes" => {
                let value = words.next().ok_or("--minutes needs a number")?;
                options.minutes = value.parse().map_err(|_| format!("--minutes: not a number: {value}"))?;
            }
            "--mode" => {
                let name = words.next().ok_or("--mode needs a name, such as visible or late")?;
                let mode = soak::mode(name).ok_or_else(|| format!("--mode: no such mode: {name}"))?;
                options.mode = Some(mode);
            }
            "--sanitizer" => options.with_sanitizer = true,
            other => return Err(format!("no such option of soak: {other}")),
        }
    }
    Ok(options)
}

fn parse_servers(words: &[String]) -> Result<servers::Options, String> {
    let mut options = servers::Options { kinds: Vec::new(), action: Action::Start, install: false };
    for word in words {
        match word.as_str() {
            "--stop" => options.action = Action::Stop,
            "--fetch" => options.action = Action::Fetch,
            "--install" => options.install = true,
            flag if flag.starts_with('-') => return Err(format!("no such option of servers: {flag}")),
            name => options.kinds.push(Kind::named(name).ok_or_else(|| format!("no such server: {name}"))?),
        }
    }
    if options.kinds.is_empty() {
        options.kinds = Kind::ALL.to_vec();
    }
    Ok(options)
}

/// The text of `--help`.
pub(crate) fn help() -> String {
    let quick: Vec<&str> = Step::quick().map(Step::name).collect();
    let mut text = format!(
        "cargo xtask: runs every check of this repository\n\n\
         Usage: cargo xtask COMMAND... [--install]\n\n\
         Commands:\n  \
         test         {}\n  \
         affected     the other steps whose inputs changed since they last passed, within\n               \
         15 minutes; xtask/passed.txt has the commits\n  \
         release      every step at full size\n\n\
         Steps:\n",
        quick.join(", ")
    );
    for step in Step::ALL {
        text.push_str(&format!("  {:<12} {}\n", step.name(), step.purpose()));
    }
    text.push_str(
        "\n  figures      list documented figures that are older than what they measure\n  \
         fuzz [TARGET...] [--seconds N]\n               \
         run libFuzzer on each target (all by default) for N seconds (60)\n  \
         soak [--minutes N] [--mode NAME] [--sanitizer]\n               \
         run random programs and stress tests on the SDK for N minutes (30) in each mode;\n               \
         with ThreadSanitizer, for which nightly needs the component rust-src\n  \
         servers [zipkin|jaeger|collector]... [--stop|--fetch] [--install]\n               \
         start real servers on free ports (all by default), stop them, or only fetch or build them\n\n\
         Options:\n  \
         --install    install what is missing: system packages (as root on Debian), Rust's toolchains and\n               \
         libraries, cargo-fuzz; without it, missing ones are only listed\n\n\
         Examples:\n  \
         cargo xtask test                         before a commit\n  \
         cargo xtask test affected --install      as CI does\n  \
         cargo xtask fmt clippy                   just these two\n  \
         cargo xtask tidy                         one second, no build\n  \
         cargo xtask fuzz htrace --seconds 600    ten minutes on one reader\n\n\
         Exit codes: 0 all passed, 1 a check failed, 2 the command line is wrong.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn steps(steps: Vec<Step>, affected: bool, options: Options) -> Result<Command, String> {
        Ok(Command::Steps(Steps { steps, affected, options }))
    }

    #[test]
    fn a_release_is_every_step_at_full_size() {
        let options = Options { full: true, ..Options::default() };
        assert_eq!(parse(words("release")), steps(Step::ALL.to_vec(), false, options));
    }

    #[test]
    fn test_is_the_quick_steps() {
        let quick = vec![Step::Fmt, Step::Tidy, Step::Licences, Step::Clippy, Step::Test];
        assert_eq!(parse(words("test")), steps(quick.clone(), false, Options::default()));
        let options = Options { install: true, ..Options::default() };
        assert_eq!(parse(words("test affected --install")), steps(quick, true, options));
    }

    #[test]
    fn packages_are_installed_only_on_request() {
        let options = Options { install: true, ..Options::default() };
        assert_eq!(parse(words("loom --install")), steps(vec![Step::Loom], false, options));
        assert_eq!(parse(words("--install")), Err("--install needs a command, such as test".to_owned()));
    }

    #[test]
    fn steps_can_be_picked() {
        assert_eq!(parse(words("tidy fmt")), steps(vec![Step::Tidy, Step::Fmt], false, Options::default()));
    }

    #[test]
    fn fuzz_takes_targets_and_seconds() {
        let expected = fuzz::Options { targets: words("htrace zipkin_json"), seconds: 5 };
        assert_eq!(parse(words("fuzz htrace --seconds 5 zipkin_json")), Ok(Command::Fuzz(expected)));
    }

    #[test]
    fn soak_takes_minutes_and_a_mode() {
        let expected = soak::Options { minutes: 5, mode: Some("late"), with_sanitizer: false };
        assert_eq!(parse(words("soak --mode late --minutes 5")), Ok(Command::Soak(expected)));
        let expected = soak::Options { minutes: 30, mode: None, with_sanitizer: true };
        assert_eq!(parse(words("soak --sanitizer")), Ok(Command::Soak(expected)));
        assert_eq!(parse(words("soak --mode x")), Err("--mode: no such mode: x".to_owned()));
        assert_eq!(parse(words("soak 5")), Err("no such option of soak: 5".to_owned()));
    }

    #[test]
    fn servers_take_names_and_one_action() {
        let all = servers::Options { kinds: Kind::ALL.to_vec(), action: Action::Start, install: false };
        assert_eq!(parse(words("servers")), Ok(Command::Servers(all)));
        let one = servers::Options { kinds: vec![Kind::Jaeger], action: Action::Stop, install: false };
        assert_eq!(parse(words("servers --stop jaeger")), Ok(Command::Servers(one)));
        let fetch = servers::Options { kinds: vec![Kind::Zipkin], action: Action::Fetch, install: true };
        assert_eq!(parse(words("servers zipkin --fetch --install")), Ok(Command::Servers(fetch)));
        assert_eq!(parse(words("servers kafka")), Err("no such server: kafka".to_owned()));
        assert_eq!(parse(words("servers --start")), Err("no such option of servers: --start".to_owned()));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse(words("fnt")), Err("no such command: fnt".to_owned()));
        assert_eq!(parse(words("fuzz --seconds")), Err("--seconds needs a number".to_owned()));
        assert_eq!(parse(words("fuzz --seconds x")), Err("--seconds: not a number: x".to_owned()));
        assert_eq!(parse(words("fuzz --second 3")), Err("no such option of fuzz: --second".to_owned()));
    }

    #[test]
    fn help_names_every_step() {
        assert_eq!(parse(words("")), Ok(Command::Help));
        assert_eq!(parse(words("test --help")), Ok(Command::Help));
        for step in Step::ALL {
            assert!(help().contains(step.name()), "{} is missing", step.name());
        }
    }
}
