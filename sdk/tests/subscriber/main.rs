//! The tests of the layer with our subscriber as the base, and tests of the subscriber alone.

// The rows of the document's tables are used only in the other binary.
#![allow(dead_code)]

pub(crate) const BASE: support::Base = support::Base::Subscriber;

#[path = "../all/accounting.rs"]
mod accounting;
#[path = "../all/allocations.rs"]
mod allocations;
mod at_once;
#[path = "../all/bounds.rs"]
mod bounds;
#[path = "../all/bridge.rs"]
mod bridge;
mod bridges;
#[path = "../all/closing_itself.rs"]
mod closing_itself;
#[path = "../all/contexts.rs"]
mod contexts;
#[path = "../all/decisions.rs"]
mod decisions;
#[path = "../all/delivery.rs"]
mod delivery;
#[path = "../all/differences.rs"]
mod differences;
mod ending_threads;
#[path = "../all/flushing.rs"]
mod flushing;
#[path = "../all/handed_over.rs"]
mod handed_over;
mod handles;
#[path = "../all/late.rs"]
mod late;
#[path = "../all/late_requests.rs"]
mod late_requests;
#[path = "../all/late_ring.rs"]
mod late_ring;
#[path = "../all/late_roots.rs"]
mod late_roots;
#[path = "../all/late_spans.rs"]
mod late_spans;
mod layers;
#[path = "../all/logs.rs"]
mod logs;
#[path = "../all/losses.rs"]
mod losses;
#[path = "../all/nesting.rs"]
mod nesting;
#[path = "../all/parity.rs"]
mod parity;
#[path = "../all/queue.rs"]
mod queue;
#[path = "../all/span_ext.rs"]
mod span_ext;
#[path = "../all/spans.rs"]
mod spans;
mod stacks;
#[path = "../all/support.rs"]
mod support;
#[path = "../all/threads.rs"]
mod threads;
#[path = "../all/transport.rs"]
mod transport;
#[path = "../all/unwritten.rs"]
mod unwritten;
#[path = "../all/user_code.rs"]
mod user_code;
