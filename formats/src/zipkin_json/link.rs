//! Links as tags, in the form of OpenTelemetry's Collector. `otlp.link.0` is
//! `trace id|span id|tracestate|{attributes}|attributes dropped`.

use super::super::plain_json::{into_text, write_members};
use super::annotation::parse_object;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::span::{Link, Span};

/// The prefix of the tag's name.
const PREFIX: &str = "otlp.link.";

/// Moves links out of a span's attributes, in the order of their numbers. Other attributes stay.
pub(super) fn lift(span: &mut Span<'_>) {
    let mut links = Vec::new();
    span.attributes.retain(|attribute| {
        let number = attribute.key.strip_prefix(PREFIX).and_then(|number| number.parse::<u32>().ok());
        let link = number.zip(attribute.value.as_str().and_then(parse));
        let is_link = link.is_some();
        links.extend(link);
        !is_link
    });
    links.sort_by_key(|&(number, _)| number);
    span.links = links.into_iter().map(|(_, link)| link).collect();
}

fn parse(text: &str) -> Option<Link<'static>> {
    let (trace_id, rest) = text.split_once('|')?;
    let (span_id, rest) = rest.split_once('|')?;
    let (rest, dropped) = rest.rsplit_once('|')?;
    let (trace_state, _) = rest.split_once("|{")?;
    Some(Link {
        trace_id: TraceId::from_hex(trace_id)?,
        span_id: SpanId::from_hex(span_id)?,
        trace_state: trace_state.to_owned().into(),
        attributes: parse_object(&rest[trace_state.len() + 1..])?,
        dropped_attributes: dropped.parse().ok()?,
        flags: 0,
    })
}

/// Returns true for the name of a tag that may be a link.
pub(super) fn is_key(key: &str) -> bool {
    key.strip_prefix(PREFIX).is_some_and(|number| number.parse::<u32>().is_ok())
}

/// The name and the text of the tag for a link.
pub(super) fn write(index: usize, link: &Link<'_>) -> (String, String) {
    let mut attributes = Vec::new();
    write_members(&mut attributes, &link.attributes);
    let attributes = into_text(attributes);
    let Link { trace_id, span_id, trace_state, dropped_attributes, .. } = link;
    let text = format!("{trace_id}|{span_id}|{trace_state}|{{{attributes}}}|{dropped_attributes}");
    (format!("{PREFIX}{index}"), text)
}
