//! Code shared by the benchmarks.

pub mod http;
