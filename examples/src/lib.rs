//! What the examples share: how a service sets tracing up, a load that is worth sampling, and messages of gRPC.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "examples print")]

pub mod load;
pub mod shop;
pub mod telemetry;
pub mod texts;
