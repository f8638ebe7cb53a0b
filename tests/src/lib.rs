//! Tests across crates.

/// The README's code, so that it stays true. Here, since it needs the SDK and the exporters.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
