//! The integration tests of astracer-sdk.

mod api;
mod decisions;
mod spans;
mod support;
