//! The instructions step. On a shared machine, times say more about the machine than about the
//! code. So callgrind counts the instructions of `sdk/benches/instructions.rs`, of
//! `baggage/benches/instructions.rs` and of requests in `examples/src/bin/et.rs`, case by case, and
//! the step compares them with the counts under version control. It needs valgrind.
//!
//! Counts depend on the compiler, so they are compared only for the compiler that they were
//! recorded with. `ASTRACER_RECORD=1 cargo xtask instructions` records them again, and lists the
//! lines of documents that may quote a former count.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::built::Built;
use crate::metadata::Package;
use crate::program;
use crate::repo::Repo;
use crate::step_result::{Options, StepResult};

pub(crate) const FILE: &str = "benches/results/instructions.txt";
const SPANS: &str = "bench -p astracer-sdk --bench instructions --no-run --locked";
const FLOWS: &str = "bench -p astracer-baggage --bench instructions --no-run --locked";
const REQUESTS: &str = "build --release -p astracer-examples --bin et --locked";

/// The largest accepted difference of a count, in percent: enough for another version of the C
/// library's allocator, and less than one more lock or allocation.
const TOLERANCE: f64 = 3.0;
/// For a whole process: its threads wait for each other a different number of times in each run,
/// and its clock is calibrated again. Runs of one build differed by 5 %.
const PROCESS_TOLERANCE: f64 = 20.0;

fn tolerance(name: &str) -> f64 {
    if name.starts_with(PROCESS) { PROCESS_TOLERANCE } else { TOLERANCE }
}

const ROUNDS: u64 = 200;

/// The cases of each program, each with the number of spans, decisions or requests per round.
const CASES: [(&str, &[(&str, u64)]); 3] = [
    (
        SPANS,
        &[
            ("idle layer", 10),
            ("dropped, exclusive", 10),
            ("dropped, exclusive, no context", 10),
            ("dropped, shared", 10),
            ("kept", 10),
            ("kept, ids", 10),
            ("kept, no context", 10),
            ("kept, attributes, no context", 10),
            ("kept, weighed", 10),
            ("kept, weighed, no context", 10),
            ("kept, own trait's call", 10),
            ("kept, stock trait's call", 10),
            ("late: counted, exclusive, no context", 10),
            ("late: armed, exclusive, no context", 10),
            ("late: all, no context", 10),
            ("late: strata, no context", 10),
            ("process: kept, no context", 10),
            ("process: kept, other exporter, no context", 10),
            ("process: late: all, no context", 10),
            ("process: late: strata, no context", 10),
            ("subscriber, dropped", 10),
            ("subscriber, dropped, no context", 10),
            ("subscriber, dropped, of 100", 100),
            ("subscriber, kept", 10),
            ("subscriber, kept, ids", 10),
            ("subscriber, kept, no context", 10),
            ("subscriber, kept, attributes, no context", 10),
            ("decision", 1),
            ("decision, capped", 1),
            ("decision, kept", 1),
            ("decision, kept, one allowance", 1),
            ("decision, kept, capped", 1),
            ("decision, stratum", 1),
        ],
    ),
    (
        FLOWS,
        &[
            ("flows, dropped, exclusive", 10),
            ("flows, dropped, exclusive, no context", 10),
            ("flows, kept, no context", 10),
            ("flows, subscriber, dropped, no context", 10),
            ("flows, subscriber, kept", 10),
            ("flows, subscriber, kept, no context", 10),
            ("flows, subscriber, dropped, ten branches", 10),
            ("critical path, dropped, exclusive", 10),
            ("critical path, subscriber, dropped, no context", 10),
            ("critical path, subscriber, kept", 10),
            ("critical path, subscriber, kept, branch", 10),
            ("all applications, dropped, exclusive", 10),
            ("all applications, subscriber, dropped, no context", 10),
            ("all applications, subscriber, kept", 10),
            ("stock layer, dropped", 10),
        ],
    ),
    (
        REQUESTS,
        &[
            ("axum, no tracing", 1),
            ("axum, subscriber, dropped", 1),
            ("axum, subscriber, kept", 1),
            ("axum, layer, dropped", 1),
            ("axum, stock, kept", 1),
            ("tonic, no tracing", 1),
            ("tonic, subscriber, dropped", 1),
            ("tonic, subscriber, kept", 1),
            ("tonic, stock, kept", 1),
        ],
    ),
];

pub(crate) fn run(root: &Path, options: Options) -> StepResult {
    if let Err(missing) = program::valgrind(options.install) {
        return StepResult::Skipped(missing);
    }
    StepResult::of(compiler().and_then(|compiler| compare(root, &compiler)))
}

/// The packages of [`CASES`].
pub(crate) fn builds(package: &Package) -> Built {
    match package.name.as_str() {
        "astracer-sdk" | "astracer-baggage" => Built::Benches,
        "astracer-examples" => Built::Program,
        _ => Built::Nothing,
    }
}

fn compare(root: &Path, compiler: &str) -> Result<StepResult, String> {
    let file = root.join(FILE);
    let recording = std::env::var_os("ASTRACER_RECORD").is_some();
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{FILE}: {error}"))?;
    let recorded = Recorded::parse(&text)?;
    if !recording && recorded.compiler != compiler {
        let reason = format!("the counts were recorded with {}, but this is {compiler}", recorded.compiler);
        return Ok(StepResult::Skipped(reason));
    }
    let mut counts = Vec::new();
    for (build, cases) in CASES {
        let program = program::build(root, build)?;
        for &(name, each) in cases {
            counts.push((name, count(&program, name, each)?));
        }
    }
    if recording {
        std::fs::write(&file, write(compiler, &counts)).map_err(|error| format!("{FILE}: {error}"))?;
        println!("{}", write(compiler, &counts));
        for document in Repo::load(root)?.files().filter(|file| file.path.ends_with(".md")) {
            let text = String::from_utf8_lossy(&document.bytes);
            for (line, old, name) in recorded.quotes(&text, &counts) {
                println!("{}:{line}: {old} may be the former count of \"{name}\"", document.path);
            }
        }
        return Ok(StepResult::Passed);
    }
    let (text, passed) = recorded.compare(&counts);
    print!("{text}");
    Ok(passed.into())
}

/// The recorded counts, under version control.
#[derive(Debug, PartialEq)]
struct Recorded {
    compiler: String,
    counts: Vec<(String, u64)>,
}

const COMPILER: &str = "# compiler: ";

fn write(compiler: &str, counts: &[(&str, u64)]) -> String {
    let mut text = format!(
        "# Instructions of a span in a trace of ten, of a decision, and of a request, counted by callgrind.\n\
         # Recorded by: ASTRACER_RECORD=1 cargo xtask instructions\n{COMPILER}{compiler}\n"
    );
    for (name, count) in counts {
        text.push_str(&format!("{name:<42} {count:>6}\n"));
    }
    text
}

impl Recorded {
    fn parse(text: &str) -> Result<Self, String> {
        let compiler = text.lines().find_map(|line| line.strip_prefix(COMPILER));
        let compiler = compiler
            .ok_or_else(|| format!("{FILE}: no line names the compiler (`# compiler: ...`)"))?
            .to_owned();
        let counts = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let wrong = || format!("{FILE}: expected a name and a count, found: {line}");
            let (name, count) = line.trim_end().rsplit_once(' ').ok_or_else(wrong)?;
            Ok((name.trim_end().to_owned(), count.parse().map_err(|_| wrong())?))
        });
        Ok(Recorded { compiler, counts: counts.collect::<Result<_, String>>()? })
    }

    /// The lines of a document, from 1, with a number that is a recorded count and no longer one of
    /// `counts`; with the number and the count's name.
    fn quotes<'a>(&'a self, document: &str, counts: &[(&str, u64)]) -> Vec<(usize, String, &'a str)> {
        let changed = self.counts.iter().filter(|(_, old)| counts.iter().all(|(_, new)| new != old));
        let changed = changed.map(|(name, old)| (thousands(*old), name.as_str()));
        let changed: Vec<(String, &str)> = changed.collect();
        let numbers = |line: &str| {
            let parts = line.split(|c: char| !c.is_ascii_digit() && c != ',');
            parts.map(|part| part.trim_matches(',').to_owned()).collect::<Vec<_>>()
        };
        let lines = document.lines().enumerate();
        lines
            .flat_map(|(index, line)| {
                let numbers = numbers(line);
                let found = changed.iter().filter(move |(old, _)| numbers.contains(old));
                found.map(move |(old, name)| (index + 1, old.clone(), *name))
            })
            .collect()
    }

    /// One line per case, and whether all are within the tolerance. Lower counts fail too: they
    /// must be recorded, so that the next increase is noticed.
    fn compare(&self, counts: &[(&str, u64)]) -> (String, bool) {
        let mut text = format!("{:<42} {:>8} {:>8}\n", "instructions", "recorded", "counted");
        let mut passed = counts.len() == self.counts.len();
        for (name, counted) in counts {
            let recorded = self.counts.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count);
            let change = (*counted as f64 / recorded.max(1) as f64 - 1.0) * 100.0;
            let within = change.abs() <= tolerance(name);
            passed &= within;
            let verdict = if within { "" } else { "  beyond the tolerance" };
            text.push_str(&format!("{name:<42} {recorded:>8} {counted:>8} {change:>+6.1} %{verdict}\n"));
        }
        if !passed {
            text.push_str(&format!(
                "\nA count changed by more than {TOLERANCE} % ({PROCESS_TOLERANCE} % for a process). If that is intended, record it: ASTRACER_RECORD=1 cargo xtask instructions\n"
            ));
        }
        (text, passed)
    }
}

/// A count with a comma before its last three digits, as documents write it; it is below a million.
fn thousands(count: u64) -> String {
    if count < 1_000 { count.to_string() } else { format!("{},{:03}", count / 1_000, count % 1_000) }
}

/// The compiler's version and host target.
fn compiler() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output =
        Command::new(rustc).arg("-vV").output().map_err(|error| format!("cannot start rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim();
    Ok(format!("rustc {} {}", value("release:"), value("host:")))
}

/// The instructions per span, decision or request: on the calling thread, or of the whole process
/// with its exporter if the name begins with [`PROCESS`].
fn count(program: &Path, name: &str, each: u64) -> Result<u64, String> {
    if !name.starts_with(PROCESS) {
        return Ok(total(program, name, ROUNDS, &["--toggle-collect=*measured*"])? / (ROUNDS * each));
    }
    // The difference of a long and a short run removes most of the start, which varies because the
    // clock is calibrated until it is accurate enough.
    let more = 40 * ROUNDS;
    let (few, many) = (total(program, name, ROUNDS, &[])?, total(program, name, more, &[])?);
    Ok(many.saturating_sub(few) / ((more - ROUNDS) * each))
}

/// Names of cases that count all threads begin with this.
const PROCESS: &str = "process: ";

fn total(program: &Path, name: &str, rounds: u64, options: &[&str]) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(options)
        .arg(program)
        .args([name, &rounds.to_string()])
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let total = text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<u64>().ok());
    match total {
        Some(total) if total > 0 && output.status.success() => Ok(total),
        _ => Err(format!("{name}: callgrind counted no instructions:\n{text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = write("rustc 1.95.0 x", &[("kept, ids", 1234), ("decision", 56)]);
        let counts = vec![("kept, ids".to_owned(), 1234), ("decision".to_owned(), 56)];
        assert_eq!(Recorded::parse(&text), Ok(Recorded { compiler: "rustc 1.95.0 x".to_owned(), counts }));
        assert!(Recorded::parse("kept 12\n").unwrap_err().contains("compiler"));
        assert!(Recorded::parse("# compiler: x\nkept many\n").unwrap_err().contains("kept many"));
    }

    #[test]
    fn a_change_in_either_direction_is_reported() {
        let recorded = Recorded::parse("# compiler: x\nkept 1000\ndropped 100\n").unwrap();
        let passes = |kept, dropped| recorded.compare(&[("kept", kept), ("dropped", dropped)]).1;
        assert!(passes(1000, 100) && passes(1029, 98));
        assert!(!passes(1031, 100) && !passes(969, 100) && !passes(1000, 104));
        // A case that was not recorded, and one that no longer exists.
        assert!(!recorded.compare(&[("kept", 1000), ("new", 100)]).1);
        assert!(!recorded.compare(&[("kept", 1000)]).1);
    }

    #[test]
    fn documents_with_former_counts_are_found() {
        let recorded = Recorded::parse("# compiler: x\nkept 1227\ndropped 100\n").unwrap();
        let document = "kept\n| 1,227 / 100 |\n11,227 and 1227\n";
        let quotes = recorded.quotes(document, &[("kept", 1230), ("dropped", 100)]);
        assert_eq!(quotes, [(2, "1,227".to_owned(), "kept")]);
    }

    #[test]
    fn every_case_is_recorded() {
        let text = std::fs::read_to_string(crate::repo::root().join(FILE)).unwrap();
        let recorded = Recorded::parse(&text).unwrap();
        let names: Vec<&str> = recorded.counts.iter().map(|(name, _)| name.as_str()).collect();
        let cases = CASES.iter().flat_map(|(_, cases)| cases.iter().map(|(name, _)| *name));
        assert_eq!(names, cases.collect::<Vec<_>>());
    }
}
