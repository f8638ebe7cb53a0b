//! What the examples share: how a service sets tracing up, a load that is worth sampling, and messages of gRPC.

#![allow(clippy::print_stdout, reason = "examples show what they do")]

pub mod load;
pub mod shop;
pub mod telemetry;
pub mod texts;
