//! Tests of the spool through its public interface.

// A test prints its seed.
#![allow(clippy::print_stdout)]

mod audit;
mod damage;
mod fuzz;
mod limits;
mod order;
mod processes;
mod simulation;
mod support;
