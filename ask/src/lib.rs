//! Queries over recordings: a query's advice runs at each point of each trace, with bags that
//! travel along the edges of `astracer-causality`.
//!
//! [`ask`] takes each trace of spans alone; [`ask_all`] takes all points of a recording with log
//! records or system calls, whose edges join traces.

mod answer;
mod kept;
mod nests;
mod point;
mod whole;

pub use answer::{Answer, Question, ask};
pub use kept::keep;
pub use whole::ask_all;
