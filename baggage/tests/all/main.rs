//! Tests of the crate as its callers see it.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "only the library is free of files and clocks"
)]

mod applications;
mod bounds;
mod container;
mod goldens;
mod model;
mod typed;
mod wire;
