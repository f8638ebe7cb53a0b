//! The crate's integration tests, one binary.

mod allocation;
mod bump;
mod common;
mod names;
mod record_table;
mod stateless;
mod token_bucket;
