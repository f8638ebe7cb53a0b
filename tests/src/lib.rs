//! Tests that need several crates.

/// Compiles the README's code, which needs the SDK and the exporters.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
