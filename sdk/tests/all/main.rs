//! The integration tests of astracer-sdk.

mod api;
mod configuration;
mod decisions;
mod spans;
mod support;
