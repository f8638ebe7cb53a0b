//! The receiver from outside.

mod receive;
mod sample;
