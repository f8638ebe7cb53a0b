//! Reads parameters files that are given on the command line.

use std::path::Path;

use astracer_samplers::parameters::{self, Parameters};

use crate::bounded::read_input;
use crate::failure::Failure;
use crate::output;

const BYTES_MAX: u64 = parameters::BYTES_MAX as u64;

/// Reads the file of `--parameters`.
pub(crate) fn read(path: &Path) -> Result<Parameters, Failure> {
    // Errors quote names from the file.
    let failure = |error: String| {
        Failure::Job(format!("--parameters {}: {}", output::shown(path), output::escaped(&error)))
    };
    let text = read_input(path, BYTES_MAX);
    let text = text
        .map_err(|error| failure(error.to_string()))?
        .ok_or_else(|| failure(format!("the file is larger than the limit of {BYTES_MAX} bytes")))?;
    let text =
        String::from_utf8(text).map_err(|_| failure("stream did not contain valid UTF-8".to_owned()))?;
    text.parse().map_err(|error: parameters::ParametersError| failure(error.to_string()))
}
