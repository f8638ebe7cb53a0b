//! What the examples share: how a service sets tracing up, and a load that is worth sampling.

#![allow(clippy::print_stdout, reason = "examples show what they do")]

pub mod load;
pub mod shop;
pub mod telemetry;
