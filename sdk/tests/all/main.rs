//! The integration tests of astracer-sdk.

mod decisions;
mod spans;
mod support;
