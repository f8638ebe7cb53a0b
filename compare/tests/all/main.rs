//! Tests that need the whole crate.

mod distalyzer;
mod hostile_instances;
mod sampled;
