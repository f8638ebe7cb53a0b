//! The points of recorded traces in happened-before order, and queries over them.
//!
//! Points are the starts and ends of spans, their events, and X-Trace's reports. [`order::Order`]
//! brings the points of a trace in an order that respects causality, as operations on bags: split,
//! merge and visit. [`ask`] runs a query's advice at each point.

mod graph;
mod kept;
pub mod order;
mod point;
mod query;
mod spot;
mod timeline;

pub use graph::Flow;
pub use kept::keep;
pub use order::{Asked, Options, Order};
pub use query::{Answer, Question, ask};
pub use spot::{At, Spot};
