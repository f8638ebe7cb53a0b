//! Head sampling: decide, when a trace begins, whether to keep it and with what weight.
//!
//! A head sampler sees only a trace's first span in this process, the *local root*, and answers
//! keep or drop before anything is recorded. A [`Sampler`] counts calls by *key*, by default the
//! root's name with its ids folded, and samples each key on its own: an endpoint with a thousand
//! calls a second cannot crowd out one with a call a minute.
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
//! The crate has no clock, no thread, no I/O and no source of randomness: `now` and the trace's
//! randomness are arguments. A decision returns no `Result` and does not panic, because invalid
//! parameters are refused when a [`Config`] is built.
//!
//! # The samplers
//!
//! Bump and token bucket are the two adaptive samplers of ASTracer (Song et al., "ASTracer: An
//! Efficient Tracing Tool for HDFS with Adaptive Sampling", NPC 2019,
//! <https://doi.org/10.1007/978-3-030-30709-7_9>).
//!
//! **Bump** ([`Bump`]) keeps a call with a probability that falls with the number x of the key's
//! earlier calls in the current window:
//!
//! ```text
//! p(x) = max(f(x), minimum)    f(x) = 1 - exp(-(lambda / x)^exponent)    f(0) = 1
//! ```
//!
//! With the default exponent of 2, a window keeps about lambda * sqrt(pi) calls of each key, and
//! the share `minimum` of all further ones. Two things go beyond the paper: the exponent can be
//! set, and x may decay instead of starting over with each window ([`Count::Decaying`]).
//!
//! **Token bucket** ([`TokenBucket`]) keeps a call while the key's bucket holds a token, and takes
//! that token. With b tokens left at the last call, t seconds ago, the bucket now holds
//!
//! ```text
//! min(capacity, b + rate * t)
//! ```
//!
//! so any W seconds keep at most capacity + rate * W calls of a key. The state is a single time, as
//! in the generic cell rate algorithm (ITU-T I.371).
//!
//! [`Ratio`] keeps a fixed share of all traces; [`Config`] lists the others.
//!
//! # Weights
//!
//! Bump and ratio decide by chance, as OpenTelemetry's probability sampling specifies: a trace is
//! kept if its 56 bits of [`Randomness`] reach a [`Threshold`] T, so with probability 1 - T / 2^56.
//! A kept trace then stands for [`Threshold::adjusted_count`] calls, and the sum of these weights
//! is an unbiased estimate of the number of calls. A token bucket does not decide by chance; its
//! traces have no weight ([`Decision::threshold`] is `None`).
//!
//! # Concurrency
//!
//! Any number of threads may call [`Sampler::decide`] at once.
//!
//! - A call of a known key takes no lock and allocates nothing. It looks the key up, updates the
//!   key's 64-bit word by compare-exchange (if there is anything to write), and adds one to its
//!   thread's tally. A key's first call takes a lock, once.
//! - Overlapping calls of one key have an order. No two take the same token or see the same exact
//!   count.
//! - Memory is bounded by [`Limits`]. Keys without a record of their own share one, so a flood of
//!   unique names is sampled like a single key.
//!
//! [`Sampler`] states these guarantees in full; loom models check them over thread interleavings.
//!
//! # More
//!
//! - [`KeyRule`] makes keys from names and attributes; [`Template`] folds the ids in them, so that
//!   keys stay few.
//! - [`Cap`] bounds kept traces and exported bytes, whatever the sampler decides.
//! - [`Budget`] scales all probabilities by one factor, toward a target in bytes per second.
//! - [`Stratified`] spreads the randomness of a key's traces evenly, which makes counts by weight
//!   more exact.
//! - [`strata`] samples by outcome once a trace's root has ended, with true weights.
//! - [`tail`] keeps errors, slow requests and odd call trees that the head sampler dropped, once
//!   their root has ended.
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
mod mix;
mod nanos;
mod net;
mod pace;
#[cfg(feature = "parameters")]
pub mod parameters;
mod per_key;
mod policy;
mod probability;
mod randomness;
mod ratio;
mod request;
mod sampler;
pub mod strata;
mod stratified;
mod sync;
mod table;
pub mod tail;
mod template;
mod thread;
mod threshold;
mod token_bucket;
pub mod tracestate;

pub use budget::{Budget, Controller};
pub use bump::{Bump, Count, knee_factor, knee_factor_of};
pub use cap::{Allowance, Cap, Meter};
pub use config::Config;
pub use config_error::ConfigError;
pub use decision::{Decision, Reason};
pub use key::{Attributes, KeyRule, KeyRuleError};
pub use nanos::Nanos;
pub use net::net;
pub use pace::paced;
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
