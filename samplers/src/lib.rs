//! Decide for each trace, when it begins, whether it is kept: and with what weight.
//!
//! There is no clock here, no thread, no I/O, no source of randomness and no OpenTelemetry type:
//! `now` and the trace's randomness come in with each request. A decision returns no `Result` and
//! does not panic: what can be wrong is refused when a [`Config`] is made. On the path of a known
//! key nothing is allocated and no lock is taken.
//!
//! ```text
//! text or values -> Config -> Sampler -> decide(key, randomness, now) -> keep or drop, threshold, reason
//!                                           |
//!                                           +-- record table: one word per key, bounded; snapshot()
//! ```
//!
//! ```
//! use astracer_samplers::{Config, Nanos, Randomness, Request, Sampler};
//!
//! let config: Config = "bump:lambda=10,min=0.01,window=1s".parse()?;
//! let sampler = Sampler::new(&config);
//! let trace_id = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128;
//! let request = Request::new("GET /orders/{id}", Randomness::from_trace_id(trace_id), Nanos::from_millis(5));
//! let decision = sampler.decide(&request);
//! assert!(decision.keep, "the first call of a window is always kept");
//! # Ok::<(), astracer_samplers::ConfigError>(())
//! ```
//!
//! - [`Bump`] keeps a key's call with probability max(1 - exp(-(lambda / x)^exponent), minimum),
//!   for x calls of the key before it, in the window or with a weight that decays; [`TokenBucket`]
//!   keeps it while the key's bucket holds a token; [`Ratio`] keeps a fixed share.
//! - [`Budget`] scales the probabilities of all keys toward a number of bytes per second.
//! - [`KeyRule`] makes keys from names and attributes; [`Template`] folds the ids in them, so that
//!   keys are few.
//! - [`Stratified`] spreads the randomness of a key's traces evenly, which makes counts by weight
//!   more exact.
//! - [`tail`] keeps what went wrong, when a trace's root has ended.
//! - [`tracestate`] carries threshold and randomness from process to process.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests start threads")
)]

mod budget;
mod bump;
mod cap;
mod config;
mod config_error;
mod decision;
mod division;
mod every_nth;
mod fixed;
mod key;
mod nanos;
#[cfg(feature = "parameters")]
pub mod parameters;
mod per_key;
mod policy;
mod probability;
mod randomness;
mod ratio;
mod request;
mod sampler;
mod stratified;
mod sync;
mod table;
pub mod tail;
mod template;
mod threshold;
mod token_bucket;
pub mod tracestate;

pub use budget::{Budget, Controller};
pub use bump::{Bump, Count};
pub use cap::{Allowance, Cap, Meter};
pub use config::Config;
pub use config_error::ConfigError;
pub use decision::{Decision, Reason};
pub use key::{Attributes, KeyRule, KeyRuleError};
pub use nanos::Nanos;
pub use per_key::PerKey;
pub use probability::Probability;
pub use randomness::Randomness;
pub use ratio::Ratio;
pub use request::Request;
pub use sampler::{Override, Sampler};
pub use stratified::{RandomSource, Stratified};
pub use table::{Counts, ImageError, KeyCounts, KeyState, Limits, Restored, Snapshot, shown_key};
pub use template::{Template, TemplateError};
pub use threshold::Threshold;
pub use token_bucket::TokenBucket;
