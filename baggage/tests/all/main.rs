//! Tests of the crate as its callers see it.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "only the library is free of files and clocks"
)]

mod applications;
mod attributes;
mod beside;
mod bounds;
mod constructs;
mod container;
mod cpath;
mod critical_paths;
mod flows;
mod goldens;
mod handlers;
mod hostile;
mod messages;
mod model;
mod path_bounds;
mod path_calls;
mod path_programs;
mod programs;
mod service;
mod typed;
mod usage;
mod wire;
