//! Critical paths of recorded traces: which spans determine the latency of a request.
//!
//! The input is a trace, as a tree of spans or a graph of events. The output is a path of segments,
//! each a stretch of time with the span that delayed the request in it. The segments of a trace
//! cover the time from the start of its root to its end without gaps or overlaps, to the
//! nanosecond. Over a recording, the segments add up to a profile.
//!
//! ```text
//! recording -> Analyser -> Tree  -> Placed (clocks, clipping) -> rule -> CriticalPath -> Profiler -> Profile
//!                       \> EventGraph ------------------------> rule --/
//! ```
//!
//! There is no recursion, so a trace may be a million spans deep, and no step is slower than
//! sorting. Nothing here reads files or prints. `docs/critical-path.md` defines the rules.

pub mod compare;
pub mod drawing;
pub mod events;
pub mod folded;
pub mod graph;
pub mod kinds;
pub mod lanes;
pub mod page;
pub mod path;
pub mod place;
pub mod profile;
pub mod retime;
pub mod rule;
pub mod segments;
pub mod speedup;
pub mod traced;
pub mod tree;
pub mod waits;

mod by_root;
mod crisp;
mod statistics;
mod walk;

pub use by_root::ByRoot;
pub use compare::{Comparison, Difference, compare};
pub use folded::folded;
pub use kinds::PathKinds;
pub use lanes::Lanes;
pub use path::{Amount, Amounts, CriticalPath, Segment, Segments};
pub use place::Skew;
pub use profile::{By, Profile, Profiler};
pub use rule::{Rule, SpanPaths, UnknownRule};
pub use speedup::{Retiming, Speedup};
pub use statistics::Summary;
pub use traced::{Analyser, Method, Shape, Traced};
pub use tree::Tree;
