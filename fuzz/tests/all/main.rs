//! Runs every target on its seeds and on mutations of them, and checks that the replay finds
//! planted defects.

// Prints seeds and counts.
#![allow(clippy::print_stdout)]

mod harness;
mod seeds;
mod targets;
