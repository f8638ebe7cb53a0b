//! Expected results: files beside a crate's tests, or those in a folder of the user's.
//!
//! `ASTRACER_GOLDENS=folder` names that folder. A file in it may be compressed (`.xz`, `.gz`), in a
//! subfolder `oracles`, or without the subfolders of its name.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use liblzma::read::XzDecoder;
use serde_json::Value;

/// The folder of expected results, and whether it is the user's. `manifest` is the crate's
/// `CARGO_MANIFEST_DIR`.
pub fn golden_folder(manifest: &str) -> (PathBuf, bool) {
    match std::env::var_os("ASTRACER_GOLDENS") {
        Some(folder) => (folder.into(), true),
        None => (Path::new(manifest).join("tests/data"), false),
    }
}

/// The text of a file of expected results; `None`, with a note, if the user's folder does not
/// contain it.
///
/// # Panics
///
/// If the crate's own folder does not contain the file, or it cannot be read.
#[allow(clippy::print_stdout, reason = "a test's output")]
pub fn golden(manifest: &str, name: &str) -> Option<String> {
    let (folder, is_users) = golden_folder(manifest);
    let text = find(&folder, name);
    if text.is_none() {
        assert!(is_users, "{name} is not in {}", folder.display());
        println!("{name}: not checked, it is not in {}", folder.display());
    }
    text
}

fn find(folder: &Path, name: &str) -> Option<String> {
    let short = Path::new(name).file_name()?;
    let places = [folder.join(name), folder.join("oracles").join(name), folder.join(short)];
    places.iter().flat_map(|place| ["", ".xz", ".gz"].map(|end| (place, end))).find_map(|(place, end)| {
        let path = PathBuf::from(format!("{}{end}", place.display()));
        let mut file = File::open(&path).ok()?;
        let mut text = String::new();
        let read = match end {
            ".xz" => XzDecoder::new(file).read_to_string(&mut text),
            ".gz" => MultiGzDecoder::new(file).read_to_string(&mut text),
            _ => file.read_to_string(&mut text),
        };
        read.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Some(text)
    })
}

/// Checks each line of a file, which is a case as JSON with a field `case`, and prints how many
/// agree.
///
/// # Panics
///
/// Unless there is at least one case and all agree.
#[track_caller]
pub fn lines_agree(name: &str, text: &str, check: impl Fn(&Value) -> Result<(), String>) {
    let cases = text.lines().map(|line| {
        let case: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error}"));
        (case["case"].as_str().unwrap_or("?").to_owned(), check(&case))
    });
    all_agree(name, &cases.collect::<Vec<_>>());
}

/// Whether a number is the expected one, but for rounding.
///
/// # Errors
///
/// If it is not: both, after `what` was compared.
pub fn near(what: &str, found: f64, expected: f64) -> Result<(), String> {
    if (found - expected).abs() <= 1e-6 * expected.abs().max(1.0) {
        Ok(())
    } else {
        Err(format!("{what}: {found}, expected {expected}"))
    }
}

/// Prints how many cases agree.
///
/// # Panics
///
/// Unless there is at least one case and all agree.
#[track_caller]
#[allow(clippy::print_stdout, reason = "a test's output")]
pub fn all_agree(name: &str, cases: &[(String, Result<(), String>)]) {
    let agreed = cases.iter().filter(|(_, result)| result.is_ok()).count();
    println!("{name}: {agreed} of {} agree", cases.len());
    for (case, result) in cases {
        if let Err(difference) = result {
            println!("  {case}: {difference}");
        }
    }
    assert!(agreed == cases.len() && agreed > 0, "{name}: {agreed} of {} agree", cases.len());
}
