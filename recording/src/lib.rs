//! Reads recordings (files, folders, archives) into memory, and converts them between formats.
//!
//! ```text
//! files -> source (folders, tar, gz, xz, zst) -> astracer_formats (one reader each) -> Sink
//!                                                                                       |
//!                                    traces and problems <- join <- Recording's intake -+- or Converter -> file
//! ```
//!
//! This crate computes no scores, does no networking, reads no clock and prints nothing.

pub mod convert;
pub mod intern;
pub mod log_event;
pub mod merging;
pub mod origin;
pub mod recording;
pub mod root_attributes;
pub mod sets;
pub mod shape;
pub mod source;
pub mod stem;
pub mod stop;
pub mod trend;
pub mod weight;

pub use recording::Recording;
