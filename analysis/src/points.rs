//! The points of recorded traces in happened-before order.
//!
//! Points are the starts and ends of spans, their events, and X-Trace's reports. [`order::Order`]
//! brings the points of a trace in an order that respects causality, as operations on bags: split,
//! merge and visit.

mod graph;
pub mod order;
mod spot;
mod timeline;

pub use graph::Flow;
pub use order::{Asked, Options, Order};
pub use spot::{At, Spot};
