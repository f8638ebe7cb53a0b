//! Analysis of recorded traces. Nothing here reads files or prints.
//!
//! - [`compare`]: what differs between good and bad traces.
//! - [`critical_path`]: which spans determine the latency of a request.
//! - [`order`]: one causal order of the events of several processes.
//! - [`points`]: the points of a trace in happened-before order.
//! - [`root_attributes`]: the attributes that keys are made of.
//! - [`weight`]: how many traces a sampled one stands for.

pub mod compare;
pub mod critical_path;
pub mod order;
pub mod points;
pub mod root_attributes;
pub mod weight;
