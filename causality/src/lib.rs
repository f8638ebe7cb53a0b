//! The happened-before relation of a recording: hosts, clocks, and one graph of points.
//!
//! A *point* is one moment of a thread of control: the start or end of a span, an event of a span,
//! a log record, a report or a system call. An *edge* states that one point happened before
//! another, with its reason. Nothing here reads files or prints.

pub mod causes;
pub mod clocks;
mod constraints;
pub mod edge;
pub mod flow;
pub mod graph;
pub mod intake;
mod log_row;
mod pieces;
mod pipes;
mod placing;
pub mod points;
pub mod rules;
pub mod shifts;
mod spans;
pub mod spot;
mod streams;
pub mod stretches;
mod threads;
mod timeline;
mod translated;
mod writers;
pub mod written;
