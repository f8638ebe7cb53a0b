//! Tests against what other tools and oracles computed.

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
