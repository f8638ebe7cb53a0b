//! Code that the examples share: tracing set-up in `telemetry`, the end by a signal in `ending`,
//! the traced services, and a load generator.

#![allow(clippy::disallowed_methods, reason = "examples print")]

pub mod chain;
pub mod ending;
pub mod json_log;
pub mod load;
pub mod output;
pub mod quotes;
pub mod shop;
pub mod telemetry;
pub mod texts;

/// Compiles the code blocks of the guide to baggage, so that they stay correct.
#[cfg(doctest)]
#[doc = include_str!("../../docs/baggage.md")]
struct Baggage;

/// The same for the guide to HTTP.
#[cfg(doctest)]
#[doc = include_str!("../../docs/http.md")]
struct Http;

#[cfg(doctest)]
#[doc = include_str!("../../docs/parameters.md")]
struct Parameters;
