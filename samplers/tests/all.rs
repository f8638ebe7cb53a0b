//! The crate's integration tests, in one binary.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests start threads")]

mod allocation;
mod boost;
mod bump;
mod cap;
mod changes;
mod common;
mod image;
mod knee;
mod names;
mod pace;
mod record_table;
mod stateless;
mod tail;
mod tail_edges;
mod token_bucket;
