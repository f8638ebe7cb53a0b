//! Fuzzing as an ordinary test: runs a target on seeds, their prefixes and mutations of them.
//!
//! proptest generates the mutations from a fixed seed and shrinks the first failing list of them. A
//! target that hangs, overflows the stack or exhausts memory cannot be caught. Its input is then in
//! the file `fuzz-NAME-running` in the scratch folder.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::Duration;

use astracer_testing::{number, size};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use crate::mutation::{Mutation, any_mutation};

/// Inputs are truncated to this length.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// The processor time that one input may take: a hundred times what the slowest takes, and less
/// than a quadratic algorithm takes for 64 KiB. Processor time is unaffected by other processes.
/// Instructions are not counted here because not every machine can (`cargo xtask fuzz-work` limits
/// those).
const WORK_MAX: Duration = Duration::from_secs(4);

/// The settings of a replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of the random choice of mutations.
    pub seed: u64,
    /// The number of mutated inputs.
    pub rounds: u32,
    /// The folder for the file of a failing input.
    pub scratch: PathBuf,
    /// The processor time that one input may take.
    pub work_max: Duration,
}

impl Options {
    /// The settings of a quick run, or of a full one if `ASTRACER_FULL` is set. The values of
    /// `ASTRACER_FUZZ_ROUNDS` and `ASTRACER_FUZZ_SEED` take precedence.
    pub fn from_env(scratch: &Path) -> Self {
        Self {
            seed: number("ASTRACER_FUZZ_SEED").unwrap_or(1),
            rounds: number("ASTRACER_FUZZ_ROUNDS").unwrap_or_else(|| size(400, 1500)) as u32,
            scratch: scratch.to_owned(),
            work_max: WORK_MAX,
        }
    }
}

/// An input that makes a target panic.
#[derive(Debug)]
pub struct Failure {
    /// The panic's message.
    pub message: String,
    /// The seed, and the mutations applied to it.
    pub origin: String,
    /// The file that contains the input.
    pub file: PathBuf,
}

/// Runs `target` on the files of the folder `seeds`, on their prefixes and on mutations of them.
/// Returns the number of inputs.
///
/// # Errors
///
/// The first input that makes the target panic.
///
/// # Panics
///
/// If there are no seeds, or files cannot be read or written.
pub fn replay(name: &str, target: fn(&[u8]), seeds: &Path, options: &Options) -> Result<usize, Failure> {
    let seeds = load(seeds);
    let running = options.scratch.join(format!("fuzz-{name}-running"));
    let running = RefCell::new(File::create(running).expect("a scratch folder"));
    let run = |input: &[u8]| {
        note(&mut running.borrow_mut(), input).expect("space in the scratch folder");
        let before = worked();
        target(input);
        let work = worked().saturating_sub(before);
        assert!(work <= options.work_max, "{} bytes took {work:?} of processor time", input.len());
    };
    let failure = |message: String, origin: String, input: &[u8]| {
        let file = options.scratch.join(format!("fuzz-{name}-failed"));
        fs::write(&file, input).expect("space in the scratch folder");
        Failure { message, origin, file }
    };

    let mut runs = 0;
    for (name, input) in prefixes(&seeds) {
        runs += 1;
        panic::catch_unwind(AssertUnwindSafe(|| run(input))).map_err(|panic| {
            let message = panic.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            failure(message.to_owned(), format!("the first {} bytes of {name}", input.len()), input)
        })?;
    }

    let (names, seeds): (Vec<String>, Vec<Vec<u8>>) = seeds.into_iter().unzip();
    let result = runner(options).run(&cases(), |case| {
        run(&mutated(&case, &seeds));
        Ok(())
    });
    match result {
        Ok(()) => Ok(runs + options.rounds as usize),
        Err(TestError::Fail(reason, case)) => {
            let origin = format!("{} after {:?}, seed {}", case.0.get(&names), case.1, options.seed);
            Err(failure(reason.to_string(), origin, &mutated(&case, &seeds)))
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns the inputs of a replay, in its order.
///
/// # Panics
///
/// If there are no seeds, like [`replay`].
pub fn inputs(seeds: &Path, options: &Options) -> Vec<Vec<u8>> {
    let seeds = load(seeds);
    let inputs = RefCell::new(prefixes(&seeds).map(|(_, input)| input.to_vec()).collect::<Vec<_>>());
    let seeds: Vec<Vec<u8>> = seeds.into_iter().map(|(_, seed)| seed).collect();
    let result = runner(options).run(&cases(), |case| {
        inputs.borrow_mut().push(mutated(&case, &seeds));
        Ok(())
    });
    result.expect("nothing was run that can fail");
    inputs.into_inner()
}

/// Each seed, complete and as prefixes: all prefixes of a short seed, about 100 of a long one. Each
/// with the seed's name.
fn prefixes(seeds: &[(String, Vec<u8>)]) -> impl Iterator<Item = (&str, &[u8])> {
    seeds.iter().flat_map(|(name, seed)| {
        let lengths = (0..seed.len()).step_by(1 + seed.len() / 100);
        std::iter::once(seed.len()).chain(lengths).map(move |length| (name.as_str(), &seed[..length]))
    })
}

/// A seed, and mutations of it.
type Case = (Index, Vec<Mutation>);

fn cases() -> impl Strategy<Value = Case> {
    (any::<Index>(), vec(any_mutation(), 1..=3))
}

fn mutated((seed, mutations): &Case, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut input = seed.get(seeds).clone();
    mutations.iter().for_each(|mutation| mutation.apply(&mut input, seeds));
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn runner(options: &Options) -> TestRunner {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&options.seed.to_le_bytes());
    let config = Config {
        cases: options.rounds,
        // A failing input becomes a file in the seeds, not a line in proptest's regression file.
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

/// Names and contents, sorted by name, because the order of a folder differs between machines.
fn load(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut seeds: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let path = entry.expect("a folder that can be listed").path();
            let name = path.file_name().expect("a file's name").to_string_lossy().into_owned();
            (name, fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        })
        .collect();
    assert!(!seeds.is_empty(), "{} contains no seeds", folder.display());
    seeds.sort();
    seeds
}

/// The processor time of this thread; always 0 if the kernel does not report it.
fn worked() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

/// Writes the next input to the file before the target gets it. The file stays open, because
/// creating it for each input takes longer than most targets.
fn note(file: &mut File, input: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(input)?;
    file.set_len(input.len() as u64)
}
