//! Tests that need the whole crate.

mod agree;
#[allow(clippy::print_stdout, reason = "a test shows how far estimates are off")]
mod estimates;
