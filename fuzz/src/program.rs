//! The program of a target: libFuzzer's under `cfg(fuzzing)`, otherwise one that runs given files.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use crate::replay::{Options, inputs};
use crate::target::Target;

#[cfg(fuzzing)]
pub use libfuzzer_sys;

/// Defines a target's program.
#[macro_export]
macro_rules! program {
    ($name:literal) => {
        #[cfg(fuzzing)]
        use $crate::program::libfuzzer_sys;
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|data: &[u8]| ($crate::target::named($name).run)(data));

        #[cfg(not(fuzzing))]
        fn main() -> std::process::ExitCode {
            $crate::program::run_files($crate::target::named($name))
        }
    };
}

/// Runs a target on each file named on the command line. With `--write FOLDER` it instead writes
/// the inputs of an ordinary test run into that folder, for `cargo xtask fuzz-work`.
#[allow(clippy::print_stderr, reason = "a tool for the terminal")]
pub fn run_files(target: Target) -> ExitCode {
    let mut files = std::env::args_os().skip(1).peekable();
    if files.next_if(|first| first == "--write").is_some() {
        return match files.next().map(|folder| write_inputs(target.name, Path::new(&folder))) {
            Some(Ok(())) => ExitCode::SUCCESS,
            Some(Err(error)) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
            None => ExitCode::from(2),
        };
    }
    if files.peek().is_none() {
        eprintln!("usage: {} FILE...", target.name);
        return ExitCode::from(2);
    }
    for file in files {
        let name = file.display();
        match std::fs::read(&file) {
            Ok(data) => {
                eprintln!("{name}: {} bytes", data.len());
                (target.run)(&data);
            }
            Err(error) => {
                eprintln!("{name}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn write_inputs(target: &str, folder: &Path) -> io::Result<()> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    fs::create_dir_all(folder)?;
    for (number, input) in inputs(&seeds, &Options::from_env(folder)).iter().enumerate() {
        fs::write(folder.join(format!("{number:06}")), input)?;
    }
    Ok(())
}
