//! Events in the text of annotations.

use std::borrow::Cow;

use super::super::json::Cursor;
use super::super::otel_tags::{self, DROPPED_ATTRIBUTES};
use super::super::plain_json::{self, read_members, write_members, write_string};
use astracer_model::span::Event;
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

/// The maximum nesting of lists and objects in an event's attributes.
const NESTING_MAX: usize = 64;

/// The event that an annotation describes.
pub(super) fn read(time: UnixNanos, text: Cow<'_, str>) -> Event<'_> {
    match parse(&text) {
        Some((name, attributes, dropped_attributes)) => {
            Event { time, name: name.into(), attributes, dropped_attributes }
        }
        None => Event { time, name: text, ..Event::default() },
    }
}

/// Name, attributes, and the number of discarded attributes.
type Parsed = (String, Vec<Attribute<'static>>, u32);

fn parse(text: &str) -> Option<Parsed> {
    match text.as_bytes() {
        [b'"', .., b'}'] => parse_specified(text),
        [.., b'0'..=b'9'] => parse_collector(text),
        _ => None,
    }
}

/// `"name": {attributes}`
fn parse_specified(text: &str) -> Option<Parsed> {
    let mut cursor = Cursor::new(text, 0, 0);
    let name = cursor.string().ok()?;
    let object = text[cursor.at()..].trim_ascii_start().strip_prefix(':')?;
    let mut attributes = parse_object(object)?;
    let dropped = otel_tags::lift_dropped(&mut attributes);
    Some((name.into_owned(), attributes, dropped))
}

/// `name|{attributes}|dropped`
fn parse_collector(text: &str) -> Option<Parsed> {
    let (rest, dropped) = text.rsplit_once('|')?;
    let (name, object) = rest.split_once("|{").map(|(name, _)| (name, &rest[name.len() + 1..]))?;
    Some((name.to_owned(), parse_object(object)?, dropped.parse().ok()?))
}

/// The attributes in the text of a JSON object.
pub(super) fn parse_object(text: &str) -> Option<Vec<Attribute<'static>>> {
    let mut cursor = Cursor::new(text, 0, NESTING_MAX);
    if cursor.peek() != Some(b'{') {
        return None;
    }
    let members = read_members(&mut cursor).ok()?;
    cursor.peek().is_none().then(|| members.into_iter().map(Attribute::into_owned).collect())
}

/// The text of an event: only its name if it has nothing else, otherwise the specification's form.
pub(super) fn write<'e>(event: &'e Event<'_>) -> Cow<'e, str> {
    if event.attributes.is_empty() && event.dropped_attributes == 0 && parse(&event.name).is_none() {
        return Cow::Borrowed(&event.name);
    }
    let mut text = Vec::new();
    write_string(&mut text, &event.name);
    text.extend_from_slice(b": {");
    write_members(&mut text, &event.attributes);
    if event.dropped_attributes > 0 {
        if !event.attributes.is_empty() {
            text.push(b',');
        }
        write_members(&mut text, &[dropped(event.dropped_attributes)]);
    }
    text.push(b'}');
    plain_json::into_text(text).into()
}

fn dropped(count: u32) -> Attribute<'static> {
    Attribute { key: DROPPED_ATTRIBUTES.into(), value: Value::Int(i64::from(count)) }
}
