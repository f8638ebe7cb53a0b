//! Tests that need the whole crate.

mod answers;
mod causes;
mod clocks;
mod programs;
mod recording;
mod relation;
mod texts;
mod translated;
