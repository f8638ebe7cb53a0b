//! Every command ends soon after it is asked to stop, in any phase, and leaves nothing half done.
//!
//! The stop request is a function that counts how often each thread checks it, and how much the
//! thread worked since its last check. Work is measured in processor time, so that other processes
//! do not matter.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use astracer_samplers::parameters::Parameters;
use astracer_testing::size;
use astracer_tuner::Stop;
use clap::Parser as _;

use crate::command::Args;
use crate::failure::Failure;

/// The longest work between two checks. Tests are not optimised; a release does several times more
/// in this time.
const BETWEEN_MAX: Duration = Duration::from_millis(50);
/// The number of checks at which each command is stopped, spread evenly.
fn stops() -> u64 {
    size(3, 6)
}

/// A recording, and a folder for outputs.
struct Folder(tempfile::TempDir);

impl Folder {
    /// Traces of four spans with up to `roots` different root names.
    fn new(traces: u64, roots: u64) -> Self {
        let folder = Self(tempfile::tempdir().expect("a temporary folder"));
        for (name, offset) in [("w.jsonl", 0), ("other.jsonl", 3)] {
            let mut text = String::new();
            for trace in 1..=traces {
                // A few roots are frequent and most are rare: the root's number is the cube of a
                // share.
                let share = (trace * 7919 % traces) as f64 / traces as f64;
                let (root, at) = ((share.powi(3) * roots as f64) as u64, 1_000 + 3 * trace + offset);
                let id = |span: u64| format!("{trace:016x}{:016x}", 4 * trace + span);
                for span in 0..4 {
                    let end = at + 2 + (trace * 31 + span * 17) % 200;
                    let parents = if span == 0 { String::new() } else { format!("\"{}\"", id(span / 3)) };
                    // Names of letters, because digits would be folded.
                    let name: String = match span {
                        0 => format!("GET /{}", letters(root)),
                        _ => format!("call {}", letters((root + span) % 9)),
                    };
                    let _ = writeln!(
                        text,
                        r#"{{"a":"{}","b":{at},"e":{end},"d":"{name}","r":"s","p":[{parents}]}}"#,
                        id(span)
                    );
                }
            }
            fs::write(folder.join(name), text).expect("a writable folder");
        }
        folder
    }

    /// Two recordings of one trace each with this many spans, which has one very deep branch and
    /// one very wide family.
    fn huge(spans: u64) -> Self {
        let folder = Self(tempfile::tempdir().expect("a temporary folder"));
        for (name, offset) in [("w.jsonl", 0), ("other.jsonl", 3)] {
            let mut text = String::new();
            for span in 1..=spans {
                let parent = match span % 3 {
                    _ if span == 1 => 0,
                    0 if span > 3 => span - 3,
                    1 => 1,
                    _ => span * 7919 % (span - 1) + 1,
                };
                let parents = if span == 1 { String::new() } else { format!("\"{:016x}{parent:016x}\"", 2) };
                let start = 1_000 + offset + span * 31 % 1_000;
                let end = if span == 1 { start + 10_000 } else { start + span * 17 % 5_000 };
                let name = letters(span % 100);
                let _ = writeln!(
                    text,
                    r#"{{"a":"{:016x}{span:016x}","b":{start},"e":{end},"d":"{name}","r":"s","p":[{parents}]}}"#,
                    2
                );
            }
            fs::write(folder.join(name), text).expect("a writable folder");
        }
        folder
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command line in which `@name` means a file in this folder.
    fn run(&self, line: &str, stop: Stop<'_>) -> Result<(), Failure> {
        let place = |arg: &str| match arg.strip_prefix('@') {
            Some(name) => self.join(name).to_str().expect("UTF-8").to_owned(),
            None => arg.to_owned(),
        };
        let args = std::iter::once("astracer".to_owned()).chain(line.split_whitespace().map(place));
        Args::try_parse_from(args).unwrap_or_else(|error| panic!("{error}")).run(stop)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("a folder").flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }
}

fn letters(mut number: u64) -> String {
    let mut text = String::new();
    loop {
        text.push(char::from(b'g' + (number % 20) as u8));
        number /= 20;
        if number == 0 {
            return text;
        }
    }
}

/// Command lines without quoting, and the files that they write.
type Commands = &'static [(&'static str, &'static [&'static str])];

/// Commands whose work is measured, on a recording with many names.
const MEASURED: Commands = &[
    ("inspect @w.jsonl --top 3", &[]),
    ("evaluate @w.jsonl --sampler bump:lambda=3,min=0.01 --seeds 1 --kept @ids", &["ids"]),
    (
        "tune @w.jsonl --size-max 60% --starts 1 --iterations 4 --per-key never --one-key --split 60% --out @out.toml",
        &["out.toml"],
    ),
    (
        "tune @w.jsonl --sampler bucket --size-max 60% --starts 1 --iterations 4 --one-key --out @out.toml",
        &["out.toml"],
    ),
    (
        "tune @w.jsonl --size-max 60% --starts 1 --iterations 4 --per-key never --one-key --tail slow:p99 --out @out.toml",
        &["out.toml"],
    ),
    (
        "critical-path @w.jsonl --top 3 --compare @other.jsonl --segments @segments --folded @folded --html @page.html",
        &["segments", "folded", "page.html"],
    ),
    ("events @w.jsonl --trace 2 --html @page.html", &["page.html"]),
    ("convert @w.jsonl @out.jsonl", &["out.jsonl"]),
    ("convert @w.jsonl @out.json --to jaeger-json", &["out.json"]),
    ("send @w.jsonl --to otlp://127.0.0.1:1 --shift-to-now --resume @note", &[]),
];

/// Longer commands, which are stopped in each phase on a small recording. The tuner's own tests
/// stop the search over single keys.
const LONG: Commands = &[
    ("evaluate @w.jsonl --sampler ratio:0.1 --seeds 1 --baselines dynsampler-ema xray", &[]),
    ("tune @w.jsonl --size-max 60% --starts 2 --iterations 8 --per-key never --out @out.toml", &["out.toml"]),
    (
        "tune @w.jsonl --size-max 60% --starts 1 --iterations 4 --per-key never --one-key --split 60% \
         --validate @other.jsonl --out @out.toml --report @page.html",
        &["out.toml", "page.html"],
    ),
];

/// The processor time of this thread.
fn worked() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

/// Called when the next signal ends the process, after which no more checks are needed.
pub(crate) fn answers_at_once() {
    AT_ONCE_SINCE.set(Some(worked()));
}

thread_local! {
    static AT_ONCE_SINCE: Cell<Option<Duration>> = const { Cell::new(None) };
    static ASKED_AT: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Counts checks, and the longest work of a thread between two of them.
#[derive(Default)]
struct Questions {
    count: AtomicU64,
    /// The longest work in ns, and the number of the check that followed it.
    longest: Mutex<(u64, u64)>,
    /// The number of the check that stops the command; 0 for never.
    stop_at: u64,
}

impl Questions {
    fn ask(&self) -> bool {
        let now = AT_ONCE_SINCE.get().unwrap_or_else(worked);
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(before) = ASKED_AT.replace(Some(now)) {
            let mut longest = self.longest.lock().expect("nobody panics with it");
            *longest = (*longest).max((now.saturating_sub(before).as_nanos() as u64, count));
        }
        self.stop_at > 0 && count >= self.stop_at
    }

    fn longest(&self) -> (Duration, u64) {
        let (ns, before) = *self.longest.lock().expect("nobody panics with it");
        (Duration::from_nanos(ns), before)
    }
}

/// Runs a command; returns how it ended and its checks. The pool's threads are reset first, so that
/// work of an earlier command does not count.
fn counted(folder: &Folder, line: &str, stop_at: u64) -> (Result<(), Failure>, Questions) {
    let questions = Questions { stop_at, ..Questions::default() };
    rayon::broadcast(|_| ASKED_AT.set(None));
    AT_ONCE_SINCE.set(None);
    ASKED_AT.set(Some(worked()));
    let result = folder.run(line, Stop::when(&|| questions.ask()));
    (result, questions)
}

#[cfg(target_os = "linux")]
#[test]
fn every_command_asks_at_least_every_50_ms_of_work() {
    let folders = [Folder::new(size(2_000, 5_000), size(800, 2_000)), Folder::huge(size(12_000, 40_000))];
    let mut wrong = String::new();
    // One after the other, because the pool's threads are shared.
    for (folder, (line, _)) in
        folders.iter().flat_map(|folder| MEASURED.iter().map(move |command| (folder, command)))
    {
        let (result, questions) = counted(folder, line, 0);
        // Nothing listens where `send` sends, and a recording of one trace has no feasible tuning.
        let may_fail = line.starts_with("send") || line.starts_with("tune");
        assert!(result.is_ok() || may_fail, "{line}: {result:?}");
        let count = questions.count.load(Ordering::Relaxed);
        assert!(count >= 5, "{line} asked {count} times only");
        // Count the work after the last check too: printing and freeing the result.
        questions.ask();
        let (longest, before) = questions.longest();
        if longest > BETWEEN_MAX {
            let _ = writeln!(wrong, "{line}: {longest:?} of work before question {before} of {count}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_command_stops_wherever_it_is_and_leaves_nothing_half_done() {
    let folder = Folder::new(400, 8);
    for (line, files) in MEASURED.iter().chain(LONG) {
        let (_, questions) = counted(&folder, line, 0);
        let count = questions.count.load(Ordering::Relaxed);
        let complete: Vec<Vec<u8>> = files.iter().map(|file| content(&folder.join(file))).collect();
        for number in 1..=stops() {
            files.iter().for_each(|file| fs::remove_file(folder.join(file)).unwrap_or_default());
            let stop_at = (count * number / (stops() + 1)).max(1);
            let (result, questions) = counted(&folder, line, stop_at);
            let place = format!("{line}, stopped at {stop_at} of {count}");
            assert!(matches!(result, Err(Failure::Interrupted)), "{place}: {result:?}");
            // Some parts check once more before they end. Readers check for each span until the end
            // of a unit.
            let asked = questions.count.load(Ordering::Relaxed);
            assert!(asked <= stop_at + 200, "{place}: {asked} questions");
            for (file, complete) in files.iter().zip(&complete) {
                let found = content(&folder.join(file));
                match *file {
                    // The best parameters so far, and a page about them, may be complete.
                    "out.toml" if !found.is_empty() => {
                        let text = String::from_utf8(found).expect("UTF-8");
                        let parameters = text.parse::<Parameters>();
                        let parameters =
                            parameters.unwrap_or_else(|error| panic!("{place}: {error}: {text}"));
                        assert!(!line.contains("--late") || parameters.strata.is_some(), "{place}: {text}");
                    }
                    "page.html" if !found.is_empty() => {
                        assert!(found.ends_with(b"</html>") || found.ends_with(b"</html>\n"), "{place}");
                    }
                    _ => assert!(found.is_empty() || found == *complete, "{place}: half of {file}"),
                }
            }
            let names = folder.names();
            assert!(!names.iter().any(|name| name.contains("partial")), "{place}: {names:?}");
        }
    }
}

/// If joining is stopped, the recording has no traces. That must not be reported as an empty file.
#[test]
fn a_command_that_is_stopped_while_it_joins_is_interrupted() {
    let folder = Folder::new(3_000, 8);
    let line = "events @w.jsonl --trace 2";
    let (result, questions) = counted(&folder, line, 0);
    assert!(result.is_ok(), "{result:?}");
    let count = questions.count.load(Ordering::Relaxed);
    // Joining 12,000 spans asks a few times for each of its steps; a reader asks for each span.
    for stop_at in (count - 15..=count).rev().step_by(size(4, 1) as usize) {
        let (result, _) = counted(&folder, line, stop_at);
        assert!(matches!(result, Err(Failure::Interrupted)), "stopped at {stop_at} of {count}: {result:?}");
    }
}

/// Empty if the file does not exist.
fn content(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_default()
}

/// If `--time` runs out, the search and the checks end in any phase, the result is written, and the
/// exit code is not that of a signal.
#[test]
fn a_time_that_is_up_is_no_interruption() {
    let folder = Folder::new(400, 8);
    let line = "tune @w.jsonl --size-max 60% --per-key never --out @out.toml";
    let result = folder.run(&format!("{line} --time 1ms"), Stop::never());
    let Err(Failure::Job(text)) = result else { panic!("{result:?}") };
    assert!(text.contains("--time ran out"), "{text}");
    assert!(!folder.join("out.toml").exists());
    let result = folder.run(&format!("{line} --starts 4 --iterations 1000000 --time 2s"), Stop::never());
    assert!(result.is_ok(), "{result:?}");
    let text = fs::read_to_string(folder.join("out.toml")).expect("written");
    assert!(text.parse::<Parameters>().is_ok(), "{text}");
}

/// With `--late` and a page, a sampler at the start is found first. It must not stay in the file
/// for which strata were asked.
#[test]
fn strata_that_are_stopped_leave_no_other_parameters() {
    let folder = Folder::new(100, 8);
    let line =
        "tune @w.jsonl --size-max 60% --late --one-key --replays 24 --report @page.html --out @out.toml";
    let (result, questions) = counted(&folder, line, 0);
    assert!(result.is_ok(), "{result:?}");
    let count = questions.count.load(Ordering::Relaxed);
    // Strata are fitted after an eighth of the checks; the comparison with baselines takes most.
    for share in [20, 8, 7, 6, 4] {
        fs::remove_file(folder.join("out.toml")).unwrap_or_default();
        let (result, _) = counted(&folder, line, count / share);
        assert!(matches!(result, Err(Failure::Interrupted)), "{share}: {result:?}");
        let text = fs::read_to_string(folder.join("out.toml")).unwrap_or_default();
        assert!(text.is_empty() || text.contains("[strata]"), "{share}: {text}");
    }
}

/// If there is no time to replay the policies, the parameters that the search found are still
/// written.
#[test]
fn a_search_with_policies_that_is_stopped_leaves_its_parameters() {
    let folder = Folder::new(400, 8);
    let line = "tune @w.jsonl --size-max 60% --starts 1 --iterations 3000 --per-key never --one-key --tail slow:p99 \
                --out @out.toml";
    let (result, questions) = counted(&folder, line, 0);
    assert!(result.is_ok(), "{result:?}");
    fs::remove_file(folder.join("out.toml")).expect("written");
    // The search takes the last fifth of the checks and more.
    let (result, _) = counted(&folder, line, questions.count.load(Ordering::Relaxed) / 5 * 4);
    assert!(matches!(result, Err(Failure::Interrupted)), "{result:?}");
    let text = fs::read_to_string(folder.join("out.toml")).expect("written");
    assert!(text.parse::<Parameters>().is_ok_and(|parameters| !parameters.tail.is_none()), "{text}");
}
