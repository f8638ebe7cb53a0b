//! Tests that need the whole crate.

mod points;
