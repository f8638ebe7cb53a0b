//! Shared parts of OTLP's two encodings. The readers restore a span's further parents and its
//! shared id from the marks that the writers set: see [`astracer_model::otlp`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::loss::{Found, Loss};
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::{LogRecord, Severity};
use astracer_model::otlp::{PARENT_KEY, SHARED_KEY};
use astracer_model::span::{Link, Span, SpanKind, Status};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

pub(super) mod gathered;
#[cfg(test)]
pub(super) mod testing;

/// Records the losses of OTLP: the first instant of 1970, which means "unset" there, a duration
/// without a start, and the FOLLOWS_FROM mark.
pub(super) fn losses(span: &Span<'_>, found: &mut Found) {
    found.add_if(Loss::Start, span.start == Some(UnixNanos(0)));
    found.add_if(Loss::End, span.end == Some(UnixNanos(0)));
    found.add_if(Loss::Duration, span.lone_duration.is_some());
    found.add_if(Loss::Follows, span.follows);
}

/// The kind for OTLP's number; `None` if the number is not defined.
pub(super) fn known_kind(number: i64) -> Option<SpanKind> {
    Some(SpanKind::from_otlp(number)).filter(|&kind| kind != SpanKind::Unspecified || number == 0)
}

/// The status for OTLP's number; `None` if the number is not defined.
pub(super) fn known_status(number: i64) -> Option<Status> {
    Some(Status::from_otlp(number)).filter(|&status| status != Status::Unset || number == 0)
}

/// The severity for OTLP's number; `None` if the number is not defined.
pub(super) fn known_severity(number: i64) -> Option<Severity> {
    Some(Severity::from_otlp(number)).filter(|&severity| severity != Severity::UNSPECIFIED || number == 0)
}

/// Restores the fields of a span as read: marked links become parents, and the attribute becomes
/// the `shared` field.
pub(super) fn unmark(span: &mut Span<'_>) {
    if !span.links.is_empty() {
        let (trace_id, parents) = (span.trace_id, &mut span.parents);
        span.links.retain(|link| {
            let marked = is_parent(link, trace_id);
            if marked {
                parents.push(link.span_id);
            }
            !marked
        });
    }
    if span.attributes.last().is_some_and(|last| is_mark(last, SHARED_KEY)) {
        span.attributes.pop();
        span.shared = true;
    }
}

/// Groups spans by a shared resource or scope, in order of first occurrence. Equal values in
/// different allocations form one group only if they are adjacent, because others are not compared.
pub(super) fn groups<'s, 'a: 's, T: PartialEq + 's>(
    spans: impl Iterator<Item = &'s Span<'a>>,
    shared: impl Fn(&'s Span<'a>) -> &'s Arc<T>,
) -> Vec<(&'s T, Vec<&'s Span<'a>>)> {
    let mut groups: Vec<(&T, Vec<_>)> = Vec::new();
    let mut by_address = HashMap::new();
    let mut last = 0;
    for span in spans {
        let shared: &T = shared(span);
        // Most spans share theirs with the previous span.
        if !groups.get(last).is_some_and(|(group, _)| std::ptr::eq(*group, shared)) {
            last = *by_address.entry(std::ptr::from_ref(shared)).or_insert_with(|| {
                if groups.get(last).is_some_and(|(group, _)| *group == shared) {
                    return last;
                }
                groups.push((shared, Vec::new()));
                groups.len() - 1
            });
        }
        groups[last].1.push(span);
    }
    groups
}

fn is_parent(link: &Link<'_>, trace_id: TraceId) -> bool {
    link.trace_id == trace_id
        && link.span_id != SpanId::ZERO
        && matches!(&link.attributes[..], [only] if is_mark(only, PARENT_KEY))
}

fn is_mark(attribute: &Attribute<'_>, key: &str) -> bool {
    attribute.key == key && attribute.value == Value::Bool(true)
}

/// Fills in the parts of a log record that OpenTelemetry's conventions put into attributes: the
/// place in the code, the thread, and a logger of its own.
pub(super) fn describe(log: &mut LogRecord<'_>) {
    let text = |log: &LogRecord<'_>, keys: [&str; 2]| {
        let value = keys.into_iter().find_map(|key| log.attribute(key)?.as_str().map(str::to_owned));
        value.map_or(Cow::Borrowed(""), Cow::Owned)
    };
    log.code.file = text(log, ["code.file.path", "code.filepath"]);
    log.code.function = text(log, ["code.function.name", "code.function"]);
    let line = ["code.line.number", "code.lineno"].into_iter().find_map(|key| log.attribute(key));
    if let Some(Value::Int(line)) = line {
        log.code.line = u32::try_from(*line).unwrap_or(0);
    }
    log.thread = text(log, ["thread.name", "log.thread"]);
    if log.thread.is_empty()
        && let Some(Value::Int(id)) = log.attribute("thread.id")
    {
        log.thread = Cow::Owned(id.to_string());
    }
    if log.logger.is_empty() {
        log.logger = text(log, ["logger.name", "log.logger"]);
    }
}
