//! The receiver from outside.

mod receive;
mod refused_early;
mod sample;
