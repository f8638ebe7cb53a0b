//! Fuzz targets, for libFuzzer and for ordinary tests.
//!
//! A target is a plain function that takes any bytes and panics if the code under test breaks a promise. It is run in
//! three ways:
//!
//! - `cargo test -p astracer-fuzz` replays the seeds, their prefixes and a fixed number of mutations ([`replay`]), on
//!   stable and in seconds. `ASTRACER_FUZZ_ROUNDS` and `ASTRACER_FUZZ_SEED` make it longer, and different;
//! - `cargo xtask fuzz` runs libFuzzer, which is guided by coverage;
//! - `cargo run -p astracer-fuzz --bin TARGET -- FILE...` runs a target on given files, to look at one finding.
//!
//! Seeds lie in `seeds/TARGET/`. An input that was found to break something is added there, so that it stays found.

pub mod mutate;
pub mod program;
pub mod replay;
pub mod target;
