//! Tests that need the whole crate.

mod compare;
mod cpath;
mod crisp;
#[allow(clippy::print_stdout, reason = "a test says how many cases agreed")]
mod goldens;
mod graphs;
mod hostile;
mod jaeger;
mod recordings;
mod trees;
mod xtrace;
