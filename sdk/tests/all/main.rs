//! The integration tests of astracer-sdk.

/// The other integration binary has another base: see `tests/subscriber/main.rs`.
#[cfg(feature = "enabled")]
pub(crate) const BASE: support::Base = support::Base::Registry;

#[cfg(feature = "enabled")]
mod accounting;
#[cfg(feature = "enabled")]
mod allocations;
#[cfg(feature = "enabled")]
mod api;
#[cfg(feature = "enabled")]
mod bounds;
#[cfg(feature = "enabled")]
mod bridge;
#[cfg(feature = "enabled")]
mod byte_cap;
#[cfg(feature = "enabled")]
mod closing_itself;
#[cfg(feature = "enabled")]
mod configuration;
#[cfg(feature = "enabled")]
mod contexts;
#[cfg(feature = "enabled")]
mod decisions;
#[cfg(feature = "enabled")]
mod delivery;
#[cfg(feature = "enabled")]
mod differences;
#[cfg(feature = "enabled")]
mod document;
#[cfg(feature = "enabled")]
mod flushing;
#[cfg(feature = "enabled")]
mod handed_over;
mod hostile;
#[cfg(feature = "enabled")]
mod housekeeping;
#[cfg(feature = "enabled")]
mod late;
#[cfg(feature = "enabled")]
mod late_bounds;
#[cfg(feature = "enabled")]
mod late_hostile;
#[cfg(feature = "enabled")]
mod late_lingering_roots;
#[cfg(feature = "enabled")]
mod late_requests;
#[cfg(feature = "enabled")]
mod late_ring;
#[cfg(feature = "enabled")]
mod late_roots;
#[cfg(feature = "enabled")]
mod late_spans;
#[cfg(feature = "enabled")]
mod late_warnings;
#[cfg(feature = "enabled")]
mod late_weights;
#[cfg(feature = "enabled")]
mod log_layer;
#[cfg(feature = "enabled")]
mod logs;
#[cfg(feature = "enabled")]
mod losses;
#[cfg(feature = "enabled")]
mod nesting;
mod off;
#[cfg(feature = "enabled")]
mod parity;
#[cfg(feature = "enabled")]
mod proof;
#[cfg(feature = "enabled")]
mod queue;
#[cfg(feature = "enabled")]
mod side_by_side;
#[cfg(feature = "enabled")]
mod span_ext;
#[cfg(feature = "enabled")]
mod spans;
#[cfg(feature = "enabled")]
mod steering;
#[cfg(feature = "enabled")]
mod support;
#[cfg(feature = "enabled")]
mod threads;
#[cfg(feature = "enabled")]
mod totals;
#[cfg(feature = "enabled")]
mod transport;
#[cfg(feature = "enabled")]
mod unwritten;
#[cfg(feature = "enabled")]
mod user_code;
#[cfg(feature = "enabled")]
mod visibility;
#[cfg(feature = "enabled")]
mod weight_table;
#[cfg(feature = "enabled")]
mod weights;
