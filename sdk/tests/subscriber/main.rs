//! The tests of the layer with our subscriber as the base, and tests of the subscriber alone.

// The rows of the document's tables are used only in the other binary.
#![allow(dead_code)]

pub(crate) const BASE: support::Base = support::Base::Subscriber;

mod at_once;
mod bridges;
mod ending_threads;
mod handles;
mod layers;
mod stacks;

#[path = "../all"]
mod shared {
    pub(crate) mod accounting;
    pub(crate) mod allocations;
    pub(crate) mod baggage_attributes;
    pub(crate) mod bounds;
    pub(crate) mod bridge;
    pub(crate) mod closing_itself;
    pub(crate) mod contexts;
    pub(crate) mod decisions;
    pub(crate) mod delivery;
    pub(crate) mod differences;
    pub(crate) mod flushing;
    pub(crate) mod handed_over;
    pub(crate) mod late;
    pub(crate) mod late_requests;
    pub(crate) mod late_roots;
    pub(crate) mod late_spans;
    pub(crate) mod logs;
    pub(crate) mod losses;
    pub(crate) mod nesting;
    pub(crate) mod observer;
    pub(crate) mod parity;
    pub(crate) mod span_ext;
    pub(crate) mod spans;
    pub(crate) mod support;
    pub(crate) mod threads;
    pub(crate) mod transport;
    pub(crate) mod unwritten;
    pub(crate) mod user_code;
}
pub(crate) use shared::*;
