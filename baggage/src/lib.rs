#![doc = include_str!("../README.md")]
//!
//! # Contents of this crate
//!
//! ```text
//! Registry --register--> Namespace (a token)
//!    |                       |
//!    | bounds, counts        | get, add, remove, ...
//!    v                       v
//! Applications --split, merge, serialize, deserialize--> Baggage <--> bytes
//!    |
//!    +--> Application: pre_split, post_merge, begin, ... with a View of its namespaces
//! ```
//!
//! A [`Baggage`] may be used alone, with a [`Registry`]. [`Applications`] does the same and calls
//! the handlers of each [`Application`].
//!
//! # Flows
//!
//! With the feature `flows`, `Flows` carries baggage along each request through this process. Give
//! it to `Builder::with_observer` of `astracer-sdk`. The module `flow` works on the current one.
//! `BranchExt`, `branch_fn`, `Fork` and `Packed` mark where a request forks.
//!
//! # Bounds
//!
//! A [`Registry`] has [`Limits`] on the bytes of a flow, a request and a response. Beyond them
//! whole values are removed: by the priority of their namespace, then in byte order, the last ones
//! first. The namespace `astracer.trimmed` then travels along and names the namespaces that lost
//! something ([`Baggage::is_complete`], [`Baggage::trimmed`]), and [`Registry::losses`] counts.
//! Bytes are those of the message; in memory a value takes up to 20 times as many, if it is short.

mod application;
mod baggage;
mod contents;
#[cfg(feature = "critical_path")]
pub mod critical_path;
#[cfg(feature = "flows")]
pub mod flow;
#[cfg(feature = "flows")]
mod flows;
#[cfg(feature = "flows")]
mod header;
#[cfg(feature = "critical_path")]
mod paths;
mod registry;
#[cfg(feature = "flows")]
mod tenants;
mod trim;
mod typed;
mod wire;
#[cfg(feature = "flows")]
mod x_trace;

pub use application::{Application, Applications, Place, View};
pub use baggage::Baggage;
#[cfg(feature = "flows")]
pub use flows::{
    Adopted, BranchExt, Branched, Calling, Done, Flow, FlowStats, Flows, Fork, Join, JoinStreamExt, Joined,
    JoinedStream, MessageStats, Packed, UnmarkedFork, branch_fn,
};
#[cfg(feature = "flows")]
pub use header::{ANSWER_HEADER, BAGGAGE_HEADER, RETURN_HEADER};
pub use registry::{Limits, Losses, Namespace, NamespaceTaken, Registry};
#[cfg(feature = "flows")]
pub use tenants::{MixedTenants, TenantRow, TenantSums};
pub use typed::Typed;
pub use wire::WireError;
#[cfg(feature = "flows")]
pub use x_trace::XTraceStats;
