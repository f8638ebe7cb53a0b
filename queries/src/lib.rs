//! Queries over tracepoints, joined by happened-before, after "Pivot Tracing: Dynamic Causal
//! Monitoring for Distributed Systems" (Mace, Roelke, Fonseca; SOSP 2015).
//!
//! A *tracepoint* is a named point: a span's start or end, or an event. *Advice* is the work of a
//! query at one. A *bag* holds a query's tuples and travels with a request.
//!
//! ```text
//! text --Program::parse--> Program --plan--> Plan --visit(bag, point)--> Output --finish--> Table
//! ```
//!
//! The crate has no clock, no thread and no I/O. Its caller brings the points in an order that
//! respects causality, splits a bag where the request's flow forks, and merges bags where it joins.
//!
//! ```
//! use astracer_queries::{Edge, Output, OutputOptions, Point, Program, Rewrite, Value, Variable};
//!
//! struct Read(i64);
//!
//! impl Point for Read {
//!     fn tracepoint(&self) -> &str {
//!         "disk.read"
//!     }
//!     fn edge(&self) -> Edge {
//!         Edge::Event
//!     }
//!     fn variable(&self, variable: &Variable) -> Value {
//!         if variable.name() == "bytes" { self.0.into() } else { Value::Null }
//!     }
//! }
//!
//! let program = Program::parse("From r In disk.* Select COUNT, SUM(r.bytes)").unwrap();
//! let plan = program.plan(Rewrite::ALL).unwrap();
//! let mut output = Output::new(&plan, OutputOptions::default());
//! let mut bag = output.begin();
//! for bytes in [10, 32] {
//!     plan.visit(&mut bag, plan.select("disk.read", None), &Read(bytes), &mut output);
//! }
//! output.end_trace();
//! assert_eq!(output.finish().rows, [[Value::Int(2), Value::Int(42)]]);
//! ```

mod advice;
mod aggregate;
mod bag;
mod bounded;
mod bytes;
mod check;
mod compile;
mod entry;
mod explain;
mod expression;
mod fault;
mod group;
mod names;
mod nest;
mod output;
mod parser;
mod pieces;
mod plan;
mod point;
mod program;
mod request;
mod sketch;
mod spread;
mod sum;
mod syntax;
mod token;
mod tree;
mod value;
mod visit;
mod why;
mod wire;

pub use bag::{Bag, BagError};
pub use bytes::AdviceError;
pub use entry::Limits;
pub use fault::Fault;
pub use names::{Definitions, glob};
pub use output::{Output, OutputLimits, OutputOptions, Table};
pub use plan::{Lists, Plan};
pub use point::{Builtin, Edge, Nest, Point, Variable};
pub use program::Program;
pub use request::{REQUEST_BYTES, Request};
pub use spread::Estimate;
pub use tree::Rewrite;
pub use value::Value;
pub use why::Why;
