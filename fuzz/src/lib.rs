//! Fuzz targets, for libFuzzer and for ordinary tests.
//!
//! A target is a plain function that takes any bytes and panics if the code under test breaks a
//! guarantee. It runs in three ways:
//!
//! - `cargo test -p astracer-fuzz` runs it on the seeds, their prefixes and a fixed number of
//!   mutations ([`replay`]), with stable Rust and in seconds. `ASTRACER_FUZZ_ROUNDS` sets the
//!   number of mutations, and `ASTRACER_FUZZ_SEED` the random seed.
//! - `cargo xtask fuzz` runs libFuzzer, which is guided by coverage.
//! - `cargo run -p astracer-fuzz --bin TARGET -- FILE...` runs it on given files, to examine one
//!   finding.
//!
//! Seeds are in `seeds/TARGET/`. An input that broke something is added there, so that every test
//! run tries it again.

mod mutation;
pub mod program;
pub mod replay;
pub mod target;
