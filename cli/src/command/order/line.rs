//! One event in one line.

use std::borrow::Cow;

use astracer_order::Order;
use astracer_order::text::{Stamps, describe, place, time, untimed};

use crate::output::escaped;

/// The least space for the text of an event.
const TEXT_LEAST: usize = 24;

/// One event in one line: id, time of day, text and place.
pub(super) fn line(order: &Order, stamps: Stamps, event: u32, between: &str, width: usize) -> String {
    let row = &order.events.rows()[event as usize];
    let time = stamps.clock(time(order, event));
    let place = place(order, row);
    let place = escaped(place.rsplit('/').next().unwrap_or(&place)).into_owned();
    let begin = format!("{:>5} {time} {between}", row.id);
    let left = width.saturating_sub(begin.chars().count() + place.chars().count() + 3).max(TEXT_LEAST);
    let text = describe(order, row);
    format!("{begin}{} ({place})", cut(untimed(row.kind, &text), left))
}

/// The beginning of a text.
fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if text.chars().nth(columns).is_none() {
        return text.into();
    }
    format!("{}...", text.chars().take(columns.saturating_sub(3)).collect::<String>()).into()
}
