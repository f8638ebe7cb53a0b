//! The integration tests of astracer-sdk.

/// The other integration binary has another base: see `tests/subscriber/main.rs`.
pub(crate) const BASE: support::Base = support::Base::Registry;

mod accounting;
mod allocations;
mod api;
mod bounds;
mod bridge;
mod byte_cap;
mod closing_itself;
mod configuration;
mod contexts;
mod decisions;
mod delivery;
mod differences;
mod document;
mod flushing;
mod handed_over;
mod hostile;
mod housekeeping;
mod late;
mod late_hostile;
mod late_requests;
mod late_roots;
mod late_spans;
mod late_warnings;
mod late_weights;
mod log_layer;
mod logs;
mod losses;
mod nesting;
mod off;
mod parity;
mod proof;
mod side_by_side;
mod span_ext;
mod spans;
mod steering;
mod support;
mod threads;
mod totals;
mod transport;
mod unwritten;
mod user_code;
mod visibility;
mod weight_table;
mod weights;
