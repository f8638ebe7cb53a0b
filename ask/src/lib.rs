//! Queries over recordings: a query's advice runs at each point of each trace, with bags that
//! travel along the edges of `astracer-causality`.

mod answer;
mod kept;
mod point;

pub use answer::{Answer, Question, ask};
pub use kept::keep;
