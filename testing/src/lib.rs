//! Pieces that the tests and benchmarks of several crates share: seeded random numbers, the sizes
//! of long tests, files of expected results, a span exporter that collects, little servers, good
//! and bad, with certificates of their own, and a wait for other threads. Not published.

mod bad_server;
#[cfg(feature = "goldens")]
mod goldens;
#[cfg(feature = "world")]
mod hooks;
#[cfg(feature = "world")]
mod late;
mod listening;
mod random;
mod server;
mod size;
#[cfg(feature = "spans")]
mod spans;
#[cfg(feature = "tls")]
mod tls;
mod wait;
#[cfg(feature = "world")]
mod world;

pub use bad_server::{BadServer, Behaviour, Reply};
#[cfg(feature = "goldens")]
pub use goldens::{all_agree, golden, golden_folder, lines_agree, near};
#[cfg(feature = "world")]
pub use hooks::{Call, Calls, Delivering, Ids, OnEvent};
#[cfg(feature = "world")]
pub use late::{
    all_leave, all_leave_but, cut_by, fails, names, part_of, request, requests, steps, tail, wait_with_work,
};
pub use listening::{Listening, listen};
pub use random::{SplitMix, mix};
pub use server::{Answer, Request, Server, Stream};
pub use size::{number, size};
#[cfg(feature = "spans")]
pub use spans::{Collector, Exporting};
#[cfg(feature = "tls")]
pub use tls::{Authority, Identity, https};
pub use wait::wait_until;
#[cfg(feature = "world")]
pub use world::{TIMEOUT, World, attribute, named, one, reason, remote_parent, sampling, start, sums, world};
