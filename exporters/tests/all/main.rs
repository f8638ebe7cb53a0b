//! The exporters from outside.

mod files;
mod sample;
