//! Replays recorded workloads through samplers and scores what is kept.
//!
//! ```text
//! Recording -> Workload -> replay(sampler, seed) -> kept traces -> Score
//!     |                                                              |
//!     +-> Inspection                          Evaluation <- rows ----+
//! ```
//!
//! What each number means stands in `docs/metrics.md`, with an example worked by hand. This crate reads no files and
//! prints nothing; a replay runs in recorded time, not on a clock.

pub mod evaluate;
pub mod inspect;
pub mod key;
pub mod names;
pub mod replay;
pub mod rivals;
pub mod score;
pub mod statistics;
pub mod workload;

pub use evaluate::{Evaluation, Evaluator};
pub use inspect::Inspection;
pub use key::KeyRule;
pub use score::Score;
pub use workload::Workload;
