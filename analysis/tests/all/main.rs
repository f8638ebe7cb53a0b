//! Tests against what other tools and oracles computed.

#[allow(clippy::print_stdout, reason = "a test says how many cases agreed")]
mod compare;
mod cpath;
mod crisp;
mod goldens;
mod graphs;
mod hostile;
mod jaeger;
mod recordings;
mod trees;
mod xtrace;
