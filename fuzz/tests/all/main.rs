//! Replays every target over its seeds; and checks that the replay finds what is there to be found.

// Seeds and counts are for whoever reads the output.
#![allow(clippy::print_stdout)]

mod harness;
mod seeds;
mod targets;
