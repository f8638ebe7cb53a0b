//! Tests of the crate as its callers see it.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "only the library is free of files and clocks"
)]

mod golden;
mod hostile;
mod language;
mod model;
mod output;
mod request;
mod run;
