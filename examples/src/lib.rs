//! Shared parts of the examples: tracing set-up, a load worth sampling, and gRPC messages.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "examples print")]

pub mod chain;
pub mod load;
pub mod quotes;
pub mod shop;
pub mod telemetry;
pub mod texts;
