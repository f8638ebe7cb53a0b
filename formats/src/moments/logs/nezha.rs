//! Nezha's log CSV, one record per line.
//!
//! The columns are `Timestamp`, `TimeUnixNano`, `Node`, `PodName`, `Container`, `TraceID`, `SpanID`
//! and `Log`, in the order given by the header. `Log` is the JSON object of a container's log; its
//! member `log` is the line that the service wrote, which states level, class and line number. The
//! service follows from the pod's name, as in Nezha's span CSV.

use std::borrow::Cow;
use std::io::BufRead;
use std::sync::Arc;

use super::statement;
use crate::Limits;
use crate::cells::Cells;
use crate::json::Cursor;
use crate::lines::{each_row, without_end};
use crate::nezha_csv::{bad, resource_of_pod, time};
use crate::reuse::Reuse;
use crate::rfc3339;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::{Code, LogRecord};
use astracer_model::sink::Sink;
use astracer_model::span::{Resource, Scope};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

/// Reads one file of this format to its end.
pub(super) fn read(input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    let mut rows = Rows::default();
    each_row(input, file, limits, sink, |record, sink| {
        if let Some(log) = rows.read(record.bytes, limits.nesting_max)? {
            sink.log(log, record);
        }
        Ok(())
    });
}

/// Returns true if a line names the columns that every record needs.
pub(super) fn is_header(line: &[u8]) -> bool {
    memchr::memchr(b',', line).is_some()
        && Columns::of_header(without_end(line), &mut Cells::default()).is_some()
}

#[derive(Default)]
struct Rows {
    columns: Option<Columns>,
    cells: Cells,
    resources: Reuse<Resource>,
    scope: Arc<Scope>,
}

impl Rows {
    /// The record of a row; `None` for a blank line or a header (concatenated files have several).
    fn read(&mut self, line: &[u8], nesting_max: usize) -> Result<Option<LogRecord<'_>>, String> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let first = self.columns.as_ref().map_or(&b""[..], |columns| &columns.first);
        if (self.columns.is_none() || line.starts_with(first))
            && let Some(columns) = Columns::of_header(line, &mut self.cells)
        {
            self.columns = Some(columns);
            return Ok(None);
        }
        let Some(columns) = &self.columns else {
            return Err("row before any header with TimeUnixNano, PodName and Log".to_owned());
        };
        self.cells.split(line)?;
        let cells = &self.cells;
        let cell = |column: Column| cells.get(columns.index_of[column as usize]);
        let written = Written::of(cell(Column::Log), nesting_max);
        // Rows whose time Nezha's own tool could not read have the year 1754 there.
        let when = time(cell(Column::Time))
            .or(written.time)
            .or_else(|| rfc3339::instant(cell(Column::Timestamp)))
            .ok_or_else(|| bad("TimeUnixNano", cell(Column::Time)))?;
        let places = [cell(Column::Pod), cell(Column::Node), cell(Column::Container)];
        let resource = self.resources.get_or_make(&places, || resource_of(places));
        let mut log = LogRecord { time: Some(when), ..LogRecord::of(resource, Arc::clone(&self.scope)) };
        let told = |log: &mut LogRecord<'_>| {
            log.trace_id = id("TraceID", cell(Column::TraceId), TraceId::from_hex)?.unwrap_or_default();
            log.span_id = id("SpanID", cell(Column::SpanId), SpanId::from_hex)?.unwrap_or_default();
            Ok::<_, String>(())
        };
        told(&mut log)?;
        match written.text {
            Cow::Borrowed(text) => fill(&mut log, text),
            // The text has escapes, so the record's parts can't borrow from it.
            Cow::Owned(text) => {
                let mut filled = LogRecord::of(Arc::clone(&log.resource), Arc::clone(&log.scope));
                (filled.time, filled.trace_id, filled.span_id) = (log.time, log.trace_id, log.span_id);
                fill(&mut filled, &text);
                log = filled.into_owned();
            }
        }
        Ok(Some(log))
    }
}

/// Fills in the parts that the written line states.
fn fill<'t>(log: &mut LogRecord<'t>, text: &'t str) {
    let parts = statement::split(text);
    log.severity = parts.severity;
    log.severity_text = Cow::Borrowed(parts.word);
    log.logger = Cow::Borrowed(parts.logger);
    log.code = Code { line: parts.line, ..Code::default() };
    log.body = Value::String(Cow::Borrowed(parts.message));
    if log.trace_id == TraceId::ZERO {
        log.trace_id = parts.trace_id.unwrap_or_default();
    }
    if log.span_id == SpanId::ZERO {
        log.span_id = parts.span_id.unwrap_or_default();
    }
}

/// The line that a service wrote, and when its container got it.
struct Written<'c> {
    text: Cow<'c, str>,
    time: Option<UnixNanos>,
}

impl<'c> Written<'c> {
    /// The members of the cell's object, or the cell itself. Text behind the object, which a torn
    /// row has, is ignored.
    fn of(cell: &'c str, nesting_max: usize) -> Self {
        let (mut text, mut time) = (None, None);
        let read = Cursor::new(cell, 0, nesting_max).object(|cursor, key| {
            match &*key {
                "log" => text = Some(cursor.text_or_null()?),
                "time" => time = rfc3339::instant(&cursor.text_or_null()?),
                _ => drop(cursor.skip()?),
            }
            Ok(())
        });
        match (read, text) {
            (Ok(()), Some(text)) => Self { text, time },
            _ => Self { text: Cow::Borrowed(cell), time: None },
        }
    }
}

fn id<I>(column: &str, text: &str, parse: impl Fn(&str) -> Option<I>) -> Result<Option<I>, String> {
    if text.is_empty() { Ok(None) } else { parse(text).map(Some).ok_or_else(|| bad(column, text)) }
}

fn resource_of([pod, node, container]: [&str; 3]) -> Resource {
    let mut resource = resource_of_pod(pod);
    for (key, value) in [("k8s.node.name", node), ("k8s.container.name", container)] {
        if !value.is_empty() {
            resource.attributes.push(Attribute::new(key, value).into_owned());
        }
    }
    resource
}

#[derive(Clone, Copy)]
enum Column {
    Time,
    Pod,
    Log,
    Timestamp,
    TraceId,
    SpanId,
    Node,
    Container,
}

/// The positions of the columns.
struct Columns {
    /// The index of each [`Column`]; a missing column has an index after the last.
    index_of: [usize; Self::NAMES.len()],
    /// The name of the first column, as written.
    first: Box<[u8]>,
}

impl Columns {
    /// In the order of [`Column`]'s variants.
    const NAMES: [&'static str; 8] =
        ["TimeUnixNano", "PodName", "Log", "Timestamp", "TraceID", "SpanID", "Node", "Container"];
    /// The number of leading columns that must be present.
    const NEEDED: usize = 3;

    fn of_header(line: &[u8], cells: &mut Cells) -> Option<Self> {
        cells.split(line).ok()?;
        let index_of = Self::NAMES.map(|name| {
            let mut names = (0..cells.len()).map(|index| cells.get(index).trim());
            names.position(|cell| cell.eq_ignore_ascii_case(name)).unwrap_or(usize::MAX)
        });
        let first = line.split(|&byte| byte == b',').next().unwrap_or(line).into();
        index_of[..Self::NEEDED].iter().all(|&index| index < usize::MAX).then_some(Self { index_of, first })
    }
}
