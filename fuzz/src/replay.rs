//! Fuzzing as an ordinary test: a target over seeds, their prefixes and mutations of them.
//!
//! A panic is caught, its input made smaller, written to a file and reported with the seed that leads to it. A target
//! that hangs, overflows the stack or eats all memory cannot be caught: its input is then the file
//! `fuzz-NAME-running` in the scratch folder.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Once;

use crate::mutate::{Mutation, Random};

/// How to replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the mutations start from.
    pub seed: u64,
    /// How many mutated inputs to run.
    pub rounds: usize,
    /// Inputs are cut to this length.
    pub bytes_max: usize,
    /// A folder for files that report a failure.
    pub scratch: PathBuf,
}

impl Options {
    /// A quick run, or what `ASTRACER_FUZZ_ROUNDS` and `ASTRACER_FUZZ_SEED` say.
    pub fn from_env(scratch: &Path) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        Self {
            seed: number("ASTRACER_FUZZ_SEED").unwrap_or(1),
            rounds: number("ASTRACER_FUZZ_ROUNDS").map_or(1500, |rounds| rounds as usize),
            bytes_max: 64 << 10,
            scratch: scratch.to_owned(),
        }
    }
}

/// An input that made a target panic.
#[derive(Debug)]
pub struct Failure {
    /// The panic's message.
    pub message: String,
    /// How the input was made.
    pub origin: String,
    /// The input, made smaller as far as the same panic stays.
    pub input: Vec<u8>,
    /// The file that holds it.
    pub file: PathBuf,
}

/// Runs `target` over the files of `seeds`, prefixes of them, and mutations.
///
/// # Errors
///
/// The first input that makes the target panic.
///
/// # Panics
///
/// If there are no seeds, or files cannot be read or written: that is the test's own failure.
pub fn replay(name: &str, target: fn(&[u8]), seeds: &Path, options: &Options) -> Result<usize, Box<Failure>> {
    let seeds = load(seeds);
    let running =
        File::create(options.scratch.join(format!("fuzz-{name}-running"))).expect("a scratch folder");
    let mut runner = Runner { name, target, options, running, runs: 0 };
    for (file, seed) in &seeds {
        runner.run(seed, || file.clone())?;
    }
    for (file, seed) in &seeds {
        // All prefixes of a short seed, about 100 of a long one.
        for length in (0..seed.len()).step_by(1 + seed.len() / 100) {
            runner.run(&seed[..length], || format!("the first {length} bytes of {file}"))?;
        }
    }
    let all: Vec<Vec<u8>> = seeds.iter().map(|(_, seed)| seed.clone()).collect();
    for round in 0..options.rounds {
        // Each round has a generator of its own, so that one round can be run again alone.
        let mut random =
            Random::new(options.seed.wrapping_add(round as u64).wrapping_mul(0x2545_f491_4f6c_dd1d));
        let (file, seed) = random.pick(&seeds);
        let mut input = seed.clone();
        let mut made = Vec::new();
        for _ in 0..1 + random.below(3) {
            let mutation = *random.pick(Mutation::ALL);
            mutation.apply(&mut random, &mut input, &all);
            made.push(mutation);
        }
        input.truncate(options.bytes_max);
        runner.run(&input, || format!("{file} after {made:?} (seed {}, round {round})", options.seed))?;
    }
    Ok(runner.runs)
}

fn load(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut seeds: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let path = entry.expect("a folder that can be listed").path();
            let name = path.file_name().expect("a file's name").to_string_lossy().into_owned();
            (name, fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        })
        .collect();
    assert!(!seeds.is_empty(), "{} holds no seeds", folder.display());
    // In the order of their names: a folder's own order is another one on each machine.
    seeds.sort();
    seeds
}

struct Runner<'a> {
    name: &'a str,
    target: fn(&[u8]),
    options: &'a Options,
    /// Holds the input that the target has now. Kept open: creating it anew for each input is what takes time.
    running: File,
    runs: usize,
}

impl Runner<'_> {
    fn run(&mut self, input: &[u8], origin: impl FnOnce() -> String) -> Result<(), Box<Failure>> {
        self.runs += 1;
        self.note(input).expect("room in the scratch folder");
        let Some(message) = caught(self.target, input) else { return Ok(()) };
        let input = smaller(self.target, input, &message);
        let file = self.options.scratch.join(format!("fuzz-{}-failed", self.name));
        fs::write(&file, &input).expect("room in the scratch folder");
        Err(Box::new(Failure { message, origin: origin(), input, file }))
    }

    fn note(&mut self, input: &[u8]) -> io::Result<()> {
        self.running.seek(SeekFrom::Start(0))?;
        self.running.write_all(input)?;
        self.running.set_len(input.len() as u64)
    }
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The message of the panic, if the target panics. Nothing is printed: making an input smaller takes many panics.
fn caught(target: fn(&[u8]), input: &[u8]) -> Option<String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                default(info);
            }
        }));
    });
    QUIET.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(|| target(input)));
    QUIET.set(false);
    let payload = result.err()?;
    let text = payload.downcast_ref::<String>().map(String::as_str);
    Some(
        text.or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a text")
            .to_owned(),
    )
}

/// Leaves parts out, large ones first, as long as the target still panics in the same way.
fn smaller(target: fn(&[u8]), input: &[u8], message: &str) -> Vec<u8> {
    /// Of a message, what does not change with the input's offsets.
    fn kind(message: &str) -> String {
        message.lines().next().unwrap_or_default().chars().filter(|c| !c.is_ascii_digit()).collect()
    }
    let mut input = input.to_vec();
    let mut attempts = 2000;
    let mut length = input.len() / 2;
    while length > 0 {
        let mut at = 0;
        while at < input.len() && attempts > 0 {
            attempts -= 1;
            let mut without = input.clone();
            without.drain(at..(at + length).min(input.len()));
            if caught(target, &without).is_some_and(|other| kind(&other) == kind(message)) {
                input = without;
            } else {
                at += length;
            }
        }
        length /= 2;
    }
    input
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 2000;
        writeln!(f, "{}", self.message)?;
        writeln!(f, "input: {}, made smaller to {} bytes", self.origin, self.input.len())?;
        writeln!(f, "in file: {}", self.file.display())?;
        let shown = &self.input[..self.input.len().min(SHOWN)];
        writeln!(f, "as text: {}", shown.escape_ascii())?;
        write!(f, "in hex: ")?;
        for byte in shown {
            write!(f, "{byte:02x}")?;
        }
        if self.input.len() > SHOWN {
            write!(f, " (the first {SHOWN} bytes)")?;
        }
        writeln!(f)
    }
}
