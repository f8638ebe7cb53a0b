//! The integration tests of astracer-sdk.

#![cfg(feature = "enabled")]

mod allocations;
mod api;
mod configuration;
mod decisions;
mod differences;
mod losses;
mod parity;
mod spans;
mod support;
mod threads;
