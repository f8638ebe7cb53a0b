//! Nezha's span CSV, one span per line.
//!
//! The columns are `TraceID`, `SpanID`, `ParentID`, `PodName`, `OperationName`,
//! `StartTimeUnixNano`, `EndTimeUnixNano` and `Duration` (in microseconds), in the order given by
//! the header. A root has the word `root` as its parent. The service of a pod is the pod's name
//! without its last two parts: `ts-order-service-6f6cfc45b-h5m2n` belongs to `ts-order-service`.
//!
//! A row is one line. Cells may be quoted but contain no line break, so a stray quote spoils only
//! one row.

use std::borrow::Cow;
use std::io::BufRead;
use std::sync::Arc;

use super::cells::Cells;
use super::lines::{each_row, without_end};
use super::reuse::Reuse;
use crate::Limits;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::sink::Sink;
use astracer_model::span::{Parents, Resource, Scope, Span};
use astracer_model::time::UnixNanos;
use astracer_model::value::Attribute;

/// Reads one file of this format to its end.
pub fn read(input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    let mut rows = Rows::default();
    each_row(input, file, limits, sink, |record, sink| {
        if let Some(span) = rows.read(record.bytes)? {
            sink.span(span, record);
        }
        Ok(())
    });
}

/// Returns true if a line names the columns that every span needs.
pub(super) fn is_header(line: &[u8]) -> bool {
    // Counting the commas first is cheaper: setting up the parser's tables would dominate the
    // detection of small files in other formats.
    let has_columns = memchr::memchr_iter(b',', line).nth(Columns::NEEDED - 2).is_some();
    has_columns && Columns::of_header(without_end(line), &mut Cells::default()).is_some()
}

#[derive(Default)]
struct Rows {
    columns: Option<Columns>,
    cells: Cells,
    resources: Reuse<Resource>,
    scope: Arc<Scope>,
}

impl Rows {
    /// The span of a row; `None` for a blank line or a header (concatenated files have several).
    fn read(&mut self, line: &[u8]) -> Result<Option<Span<'_>>, String> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let may_be_header = self.columns.is_none() || line.starts_with(self.first_column());
        if may_be_header && let Some(columns) = Columns::of_header(line, &mut self.cells) {
            self.columns = Some(columns);
            return Ok(None);
        }
        let Some(columns) = &self.columns else {
            return Err("row before any header with TraceID, SpanID and StartTimeUnixNano".to_owned());
        };
        self.cells.split(line)?;
        let cells = &self.cells;
        let cell = |column: Column| cells.get(columns.index_of[column as usize]);
        let span_id = SpanId::from_hex(cell(Column::SpanId)).filter(|&id| id != SpanId::ZERO);
        let parent = match cell(Column::ParentId) {
            "" | "root" => None,
            text => Some(SpanId::from_hex(text).ok_or_else(|| bad("ParentID", text))?),
        };
        let parent = parent.filter(|&id| id != SpanId::ZERO);
        let start = time(cell(Column::Start)).ok_or_else(|| bad("StartTimeUnixNano", cell(Column::Start)))?;
        let end = match (cell(Column::End), cell(Column::Duration)) {
            ("", "") => None,
            ("", text) => Some(end(start, text).ok_or_else(|| bad("Duration", text))?),
            (text, _) => Some(time(text).ok_or_else(|| bad("EndTimeUnixNano", text))?),
        };
        let pod = cell(Column::Pod);
        Ok(Some(Span {
            trace_id: TraceId::from_hex(cell(Column::TraceId))
                .ok_or_else(|| bad("TraceID", cell(Column::TraceId)))?,
            span_id: span_id.ok_or_else(|| bad("SpanID", cell(Column::SpanId)))?,
            parents: parent.into_iter().collect::<Parents>(),
            name: Cow::Borrowed(cell(Column::Operation)),
            start: Some(start),
            end,
            ..Span::of(self.resources.get_or_make(&[pod], || resource_of_pod(pod)), Arc::clone(&self.scope))
        }))
    }

    /// The first column of the header, by which a repeated header is recognised.
    fn first_column(&self) -> &[u8] {
        self.columns.as_ref().map_or(b"", |columns| &columns.first)
    }
}

pub(super) fn bad(column: &str, text: &str) -> String {
    let shown: String = text.chars().take(40).collect();
    format!("invalid {column} '{shown}'")
}

pub(super) fn time(text: &str) -> Option<UnixNanos> {
    text.trim().parse().ok().map(UnixNanos)
}

fn end(start: UnixNanos, duration_us: &str) -> Option<UnixNanos> {
    let duration = UnixNanos::from_micros(duration_us.trim().parse().ok()?)?;
    start.0.checked_add(duration.0).map(UnixNanos)
}

pub(super) fn resource_of_pod(pod: &str) -> Resource {
    if pod.is_empty() {
        return Resource::default();
    }
    // A pod's name is the deployment's name, followed by a part for the replica set and one for the
    // pod.
    let service = pod.rsplitn(3, '-').nth(2).unwrap_or(pod);
    let mut resource = Resource::service(service);
    resource.attributes.push(Attribute::new("k8s.pod.name", pod).into_owned());
    resource
}

#[derive(Clone, Copy)]
enum Column {
    TraceId,
    SpanId,
    Start,
    ParentId,
    Pod,
    Operation,
    End,
    Duration,
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
    const NAMES: [&'static str; 8] = [
        "TraceID",
        "SpanID",
        "StartTimeUnixNano",
        "ParentID",
        "PodName",
        "OperationName",
        "EndTimeUnixNano",
        "Duration",
    ];
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
