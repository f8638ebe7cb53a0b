//! Analysis of recorded traces. Nothing here reads files or prints.
//!
//! - [`critical_path`]: which spans determine the latency of a request.
//! - [`weight`]: how many traces a sampled one stands for.

pub mod critical_path;
pub mod weight;
