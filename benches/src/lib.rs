//! Benchmarks.

pub mod http;
