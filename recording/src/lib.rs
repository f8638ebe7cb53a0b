//! Recorded traces in memory, and the files they come from.
//!
//! ```text
//! files -> source (folders, tar, gz, xz, zst) -> astracer_formats (one reader each) -> Sink
//!                                                                                       |
//!                                    traces and problems <- join <- Recording's intake -+- or Converter -> file
//! ```
//!
//! This crate knows nothing about scores or servers, has no clock, and prints nothing.

pub mod convert;
pub mod intern;
pub mod recording;
pub mod shape;
pub mod source;
pub mod stop;

pub use recording::Recording;
