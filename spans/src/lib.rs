//! Recorded spans, on their way from a service's threads to a destination.
//!
//! `astracer-sdk` decides and observes; this crate stores, counts and sends. It implements no layer
//! or subscriber, and does not depend on OpenTelemetry's SDK.
//!
//! ```text
//! an open span:    Body (record)      its fields and events, in memory that is reused
//! an ended span:   Record (record)    one cache line, appended to the Buffer of its trace (traces)
//! a trace:         Batch (record)     in the queue, with others (export::Queue)
//! a batch's spans: model::Span        borrowed from the batch (export::Converter), for a Destination
//! ```
//!
//! A trace that the head sampler dropped may wait in [`late`] until policies have seen its outcome;
//! its log events wait in [`held_logs`].
//! Everything is bounded ([`bounds`], [`memory_budget`]), and each loss is counted by its reason
//! ([`stats`]).
//!
//! The public types are those that `astracer-sdk` needs. It re-exports the ones that users see.

#![allow(missing_docs, reason = "for astracer-sdk alone, which documents the types that users see")]
#![allow(clippy::vec_box, reason = "what moves between lists and threads does so by its address")]

pub mod bounds;
pub mod clock;
pub mod export;
pub mod held_logs;
pub mod late;
pub mod memory_budget;
pub mod panics;
pub mod record;
pub mod reentry;
pub mod stats;
pub mod sync;
#[cfg(test)]
mod test_callsite;
pub mod thread;
pub mod trace_state;
pub mod traces;
pub mod weight;
