//! Tests that need the whole crate.

mod answers;
mod causes;
mod recording;
mod relation;
mod texts;
