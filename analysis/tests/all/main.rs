//! Tests against the results of other tools and of oracles.

mod compare;
mod cpath;
mod crisp;
mod distalyzer;
#[allow(clippy::print_stdout, reason = "a test shows how far estimates are off")]
mod estimates;
#[allow(clippy::print_stdout, reason = "a test says how many cases agreed")]
mod goldens;
mod graphs;
mod hostile;
mod hostile_instances;
mod jaeger;
mod order_answers;
mod order_causes;
mod order_recording;
mod points;
mod recordings;
mod sampled;
mod trees;
mod xtrace;
