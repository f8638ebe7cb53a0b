//! Reading real and hostile files through the public interface.

use std::path::PathBuf;

// The tests of the formats crate use all of it.
#[expect(dead_code)]
#[path = "../../../formats/tests/it/collected.rs"]
mod collected;
mod convert;
mod foreign;
mod logs;
mod points;
mod source;
mod x_trace;

/// A file of the formats crate's `tests/data`.
pub(crate) fn sample(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "formats", "tests", "data", name].iter().collect()
}
