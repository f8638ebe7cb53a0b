//! The spool from outside.

mod damage;
mod limits;
mod processes;
mod simulation;
mod support;
