//! Replays recorded workloads through samplers and scores the traces they keep.
//!
//! ```text
//! Recording -> Workload -> replay(sampler, seed) -> kept traces -> Score
//!     |                                                              |
//!     +-> Inspection                          Evaluation <- rows ----+
//! ```
//!
//! `docs/metrics.md` defines every number and works one example by hand. This crate reads no files
//! and prints nothing. Replays run in recorded time, not on a clock.

mod anneal;
mod blocks;
mod bootstrap;
mod buckets;
pub mod candidate;
mod chunks;
mod counts;
pub mod curves;
pub mod draw;
pub mod equal_size;
pub mod evaluate;
pub mod expect;
mod family;
pub mod fit;
pub mod growth;
mod half_life;
pub mod held_out;
pub mod inspect;
pub mod key;
pub mod key_choice;
pub mod known;
pub mod late;
pub mod latency;
pub mod limits;
mod lone;
pub mod names;
pub mod objective;
pub mod paths;
mod per_key;
mod problem;
mod random;
pub mod records;
pub mod replay;
pub mod report;
pub mod score;
pub mod scoreboard;
mod space;
pub mod statistics;
pub mod stop;
mod sweep;
pub mod tail;
#[cfg(test)]
mod testing;
pub mod traffic;
pub mod tune;
pub mod workload;

pub use candidate::Candidate;
pub use draw::Draw;
pub use evaluate::{Evaluation, Evaluator};
pub use half_life::{Clock, HalfLife};
pub use inspect::Inspection;
pub use key::Grouping;
pub use limits::Limits;
pub use objective::Objective;
pub use problem::FrontPoint;
pub use score::Score;
pub use space::{Parameters, Tunable};
pub use stop::Stop;
pub use tune::{Tuning, tune};
pub use workload::Workload;
