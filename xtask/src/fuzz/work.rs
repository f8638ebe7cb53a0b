//! The fuzz-work step: no input of the fuzz targets for texts and for joining takes more
//! instructions than its length allows.
//!
//! Tests of the targets limit processor time, which is coarse and differs between machines;
//! instructions do not. Cachegrind counts those of a whole process, and starting one takes longer
//! than most inputs do. So inputs are counted in groups: the sum is an upper bound for each of
//! them. Only if the sum exceeds the limit are the halves counted, down to the one input that
//! exceeds it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program;
use crate::step_result::{Options, StepResult};

/// Targets with their limits: instructions per input, and in addition per byte. At most, 64 KiB of
/// text take 2e8; they would take 4e9 if the work were quadratic. Joining creates 4,500 spans from
/// each input.
const TARGETS: [Target; 7] = [
    Target { name: "parameters", at_all: 1e8, for_byte: 2e3 },
    Target { name: "sampler_config", at_all: 1e8, for_byte: 2e3 },
    Target { name: "baseline", at_all: 1e8, for_byte: 2e3 },
    Target { name: "query_language", at_all: 1e8, for_byte: 2e3 },
    Target { name: "query_advice", at_all: 1e8, for_byte: 2e3 },
    Target { name: "query_bag", at_all: 1e8, for_byte: 2e3 },
    Target { name: "joining", at_all: 1e8, for_byte: 0.0 },
];
/// Mutated inputs of each target, unless `ASTRACER_FUZZ_ROUNDS` is set.
const ROUNDS: &str = "400";
/// Inputs per group at first.
const TOGETHER: usize = 64;

struct Target {
    name: &'static str,
    at_all: f64,
    for_byte: f64,
}

pub(crate) fn run(root: &Path, options: Options) -> StepResult {
    if let Err(missing) = program::valgrind(options.install) {
        return StepResult::Skipped(missing);
    }
    StepResult::of(measure(root))
}

fn measure(root: &Path) -> Result<StepResult, String> {
    let mut passed = true;
    for target in TARGETS {
        let line = format!("build --release -p astracer-fuzz --bin {} --locked", target.name);
        let program = program::build(root, &line)?;
        let files = inputs(&program, &root.join("target/fuzz-work").join(target.name))?;
        let count = |files: &[PathBuf]| {
            let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            program::instructions(&program, &names)
        };
        let mut most = 0.0f64;
        for files in files.chunks(TOGETHER) {
            most = most.max(check(files, &target, &count, &mut passed)?);
        }
        println!("{:<16} {} inputs, at most {most:.2e} instructions each", target.name, files.len());
    }
    Ok(passed.into())
}

/// Writes the inputs of a target into files, and returns their paths.
fn inputs(program: &Path, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    let rounds = std::env::var("ASTRACER_FUZZ_ROUNDS").unwrap_or_else(|_| ROUNDS.to_owned());
    let status = Command::new(program)
        .arg("--write")
        .arg(folder)
        .env("ASTRACER_FUZZ_ROUNDS", rounds)
        .status()
        .map_err(failed)?;
    if !status.success() {
        return Err(format!("{} --write failed", program.display()));
    }
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut files =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    files.sort();
    Ok(files)
}

/// Prints the inputs above their limits. Returns an upper bound on the instructions of any one
/// input.
fn check(
    files: &[PathBuf],
    target: &Target,
    count: &impl Fn(&[PathBuf]) -> Result<f64, String>,
    passed: &mut bool,
) -> Result<f64, String> {
    let found = count(files)?;
    if found <= target.at_all {
        return Ok(found);
    }
    if let [file] = files {
        let bytes = fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?.len();
        if found > target.limit(bytes) {
            *passed = false;
            println!(
                "{}: {} takes {found:.2e} instructions, more than {:.2e}",
                target.name,
                file.display(),
                target.limit(bytes)
            );
        }
        return Ok(found);
    }
    let (one, other) = files.split_at(files.len() / 2);
    Ok(check(one, target, count, passed)?.max(check(other, target, count, passed)?))
}

impl Target {
    fn limit(&self, bytes: u64) -> f64 {
        self.at_all + self.for_byte * bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Each input is named by its number of instructions.
    fn costs(files: &[PathBuf]) -> f64 {
        files.iter().map(|file| file.to_str().expect("UTF-8").parse::<f64>().expect("a number")).sum()
    }

    #[test]
    fn an_input_above_the_limit_is_found_in_few_counts() {
        const TARGET: Target = Target { name: "test", at_all: 1000.0, for_byte: 0.0 };
        let mut files: Vec<PathBuf> = (0..64).map(|number| number.to_string().into()).collect();
        let (counts, mut passed) = (Cell::new(0), true);
        let count = |files: &[PathBuf]| {
            counts.set(counts.get() + 1);
            Ok(costs(files))
        };
        // The sum of 2,016 exceeds the limit of one input, so the halves are counted, and then the
        // quarters of the larger half.
        assert_eq!(check(&files, &TARGET, &count, &mut passed), Ok(888.0));
        assert!(passed && counts.get() == 5, "{}", counts.get());
        files[20] = "/".into();
        let count = |files: &[PathBuf]| {
            let rest: Vec<PathBuf> = files.iter().filter(|file| *file != Path::new("/")).cloned().collect();
            Ok(costs(&rest) + if rest.len() < files.len() { 5000.0 } else { 0.0 })
        };
        assert_eq!(check(&files, &TARGET, &count, &mut passed), Ok(5000.0));
        assert!(!passed);
    }

    #[test]
    fn the_limit_grows_with_the_length() {
        let target = Target { name: "test", at_all: 1000.0, for_byte: 10.0 };
        assert_eq!((target.limit(0), target.limit(50)), (1000.0, 1500.0));
    }
}
