//! Contradictions, and the constraints that were left out because of them, as sentences.

use std::fmt::Write as _;

use astracer_causality::edge::{Edge, EdgeKind};
use astracer_order::Order;
use astracer_order::reason::{edges_of, reason};

use crate::failure::Failure;
use crate::output::{escaped, plural};

/// Cycles and constraints that are shown.
const SHOWN: usize = 3;
/// Steps of one cycle that are shown.
const STEPS_SHOWN: usize = 12;

/// Fails if no order exists: names the first contradictions.
pub(super) fn failure(order: &Order) -> Result<(), Failure> {
    if order.exists() {
        return Ok(());
    }
    let mut text = format!("no order exists: {}", plural(order.cycles.len() as u64, "contradiction"));
    for cycle in order.cycles.iter().take(SHOWN) {
        text.push('\n');
        text.push_str(&sentences(order, cycle));
    }
    text.push_str("\n--drop-cycles leaves out the least certain constraints and lists them");
    Err(Failure::Job(text))
}

/// One cycle, a line for each step, with its likely reason.
pub(super) fn sentences(order: &Order, cycle: &[u32]) -> String {
    let mut text = String::new();
    let edges = edges_of(order, cycle);
    for edge in edges.iter().take(STEPS_SHOWN).flatten() {
        let _ = writeln!(text, "  {}", sentence(order, edge));
    }
    if let Some(more) = cycle.len().checked_sub(STEPS_SHOWN).filter(|&more| more > 0) {
        let _ = writeln!(text, "  ... and {}", plural(more as u64, "step"));
    }
    let _ = write!(text, "  likely: {}", reason(order, cycle, &edges).describe());
    text
}

/// One constraint.
pub(super) fn sentence(order: &Order, edge: &Edge) -> String {
    let events = &order.events;
    let show = |event: u32| {
        let row = &events.rows()[order.shown(event) as usize];
        let thread = escaped(&events.thread(row).name).into_owned();
        format!("{} of {thread} ({})", row.kind, escaped(&events.place(row)))
    };
    let why = match edge.kind {
        EdgeKind::ProgramOrder => "next in the same thread",
        EdgeKind::ForkStart => "it made the thread",
        EdgeKind::EndJoin => "the thread was waited for",
        EdgeKind::ConnectAccept => "it opened the connection",
        EdgeKind::SendReceive => "its bytes were received",
        EdgeKind::VectorClock => "the vector clock knows it",
        EdgeKind::Line => "next in the same log",
        EdgeKind::Report => "the report names it as its cause",
        EdgeKind::Span => "both are of one span",
        EdgeKind::Call => "it is the parent of the span",
        EdgeKind::Id => "the id of its span is there",
        EdgeKind::BeforeCall => "the parent did it before the call",
        EdgeKind::Return => "the parent waited for it",
        EdgeKind::Began => "the parent waited for the call that it began",
    };
    format!("{} precedes {}: {why} ({})", show(edge.before), show(edge.after), edge.kind.name())
}

/// The constraints that were left out, for the screen.
pub(super) fn dropped(order: &Order) -> String {
    let mut text = String::new();
    if order.dropped.is_empty() {
        return text;
    }
    let _ = writeln!(
        text,
        "left out because of {}: {}",
        plural(order.cycles.len() as u64, "contradiction"),
        plural(order.dropped.len() as u64, "constraint")
    );
    for edge in order.dropped.iter().take(SHOWN) {
        let _ = writeln!(text, "  {}", sentence(order, edge));
    }
    if let Some(more) = order.dropped.len().checked_sub(SHOWN).filter(|&more| more > 0) {
        let _ = writeln!(text, "  ... and {more} more (--json lists all)");
    }
    for cycle in order.cycles.iter().take(SHOWN) {
        let _ = writeln!(text, "contradiction:\n{}", sentences(order, cycle));
    }
    text
}
