//! OTLP export requests as protobuf: a single bare request, or requests that are each preceded by
//! their length.
//!
//! A bare request fills its file; protobuf defines consecutive bare requests as one. Otherwise each
//! request is preceded by its length, as a varint or, as the Collector's file exporter writes it,
//! as four bytes in big-endian order. The framing is determined from the first bytes of a file.
//!
//! Tempo's answer to a query for a trace, which holds a request in its first field, is read too.
//!
//! The reader proceeds by the spans of one resource, so memory is bounded by the largest of these.
//! Every message has a known length, so a broken one can be skipped, whether it is a span, the
//! spans of a scope, or those of a resource. Only if a bare request has broken fields of its own is
//! there no position to continue from.
//!
//! The writer precedes each request with its length as a varint.
//!
//! Places have no line. A span's further parents are links with the attribute `astracer.parent` =
//! true. The server's half of an id that client and server share has the attribute
//! `astracer.shared` = true.

use std::cell::Cell;
use std::io::{self, BufRead};
use std::sync::Arc;

use super::reuse::Reuse;
use super::window::Window;
use crate::{Limits, varint};
use astracer_model::problem::{Limit, Place, Problem, ProblemKind};
use astracer_model::sink::{Record, Sink};
use astracer_model::span::{Resource, Scope};

mod check;
mod message;
mod metrics;
mod request;
#[cfg(test)]
mod tests;
mod wire;
mod write;

pub use check::{count_logs, count_spans};
use message::Head;
pub use metrics::{HistogramPoint, Metric, MetricData, MetricExemplar, SumPoint, write_metrics_request};
pub use request::Request;
use wire::{Bytes, Fault, Fields, LEN, Why};
pub(super) use write::Writer;
pub use write::write_request;

/// Read size.
const STEP_BYTES: usize = 128 << 10;

/// Reads one file of this format to its end.
pub fn read(input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    read_signal(Signal::Spans, input, file, limits, sink);
}

/// Reads one file of requests of logs to its end. They differ from requests of spans only in the
/// records.
pub fn read_logs(input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    read_signal(Signal::Logs, input, file, limits, sink);
}

/// The kind of records that requests hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    Spans,
    Logs,
}

fn read_signal(
    signal: Signal,
    input: &mut dyn BufRead,
    file: &Arc<str>,
    limits: &Limits,
    sink: &mut dyn Sink,
) {
    let place = Place { line: 0, ..Place::start_of(file) };
    let mut reader = Reader {
        window: Window::new(input, STEP_BYTES),
        limits,
        units: Units {
            signal,
            sink,
            place,
            limits,
            unit_byte: 0,
            resources: Reuse::default(),
            scopes: Reuse::default(),
        },
    };
    // An early end was already reported by the reader.
    let _ = reader.run();
    if let Some(error) = reader.window.take_error() {
        let kind = match error.kind() {
            io::ErrorKind::UnexpectedEof => ProblemKind::Truncated,
            _ => ProblemKind::Unreadable,
        };
        reader.problem(kind, &error.to_string());
    }
}

/// The framing of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Bare,
    Varint,
    Word,
}

impl Framing {
    /// Picks the framing under which the longest prefix of these bytes is valid.
    fn of(prefix: &[u8]) -> Self {
        let mut best = Self::Bare;
        for other in [Self::Varint, Self::Word] {
            if other.explains(prefix) > best.explains(prefix) {
                best = other;
            }
        }
        best
    }

    /// The length of the prefix that parses as requests with spans under this framing.
    fn explains(self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let (len, used) = match self {
                Self::Bare => (u64::MAX, 0),
                Self::Varint => match varint::read(&bytes[at..]) {
                    Some(len) => len,
                    None => return at,
                },
                Self::Word => match bytes[at..].first_chunk() {
                    Some(word) => (u64::from(u32::from_be_bytes(*word)), 4),
                    None => return at,
                },
            };
            at += used;
            let end = at.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
            while at < end.min(bytes.len()) {
                let Some((len, used)) = varint::read(&bytes[at + 1..]) else { return at };
                let start = at + 1 + used;
                let unit_end = start.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
                let starts_well = len == 0 || bytes.get(start).is_none_or(|tag| UNIT_TAGS.contains(tag));
                if bytes[at] != REQUEST_TAG || unit_end > end || !starts_well {
                    return at;
                }
                at = unit_end;
            }
        }
        bytes.len()
    }
}

/// The tag of a request's field 1, the spans of a resource.
const REQUEST_TAG: u8 = 1 << 3 | LEN;
/// Tags with which the spans of a resource may start. The last is the first byte of field 1000's
/// tag.
const UNIT_TAGS: [u8; 4] = [1 << 3 | LEN, 2 << 3 | LEN, 3 << 3 | LEN, 0xc2];
/// The prefix from which the framing is determined.
const PREFIX_BYTES: usize = 64 << 10;

struct Reader<'r> {
    window: Window<'r>,
    limits: &'r Limits,
    units: Units<'r>,
}

/// Reading has ended: the input ended, its problem was reported, or the sink stopped.
struct Over;

impl Reader<'_> {
    fn run(&mut self) -> Result<(), Over> {
        self.window.reach(PREFIX_BYTES);
        let mut framing = Framing::of(self.window.bytes());
        #[cfg(feature = "all-formats")]
        if crate::detect::is_answer(self.window.bytes()) {
            self.varint()?;
            let len = self.varint()?;
            self.request(Some(len))?;
            // The fields behind the trace are skipped like unknown ones of a request.
            framing = Framing::Bare;
        }
        while self.window.get(0).is_some() {
            let len = match framing {
                Framing::Bare => None,
                Framing::Varint => Some(self.varint()?),
                Framing::Word => {
                    self.window.reach(4);
                    let Some(word) = self.window.bytes().first_chunk() else { return self.truncated() };
                    let len = u32::from_be_bytes(*word);
                    self.window.advance(4);
                    Some(u64::from(len))
                }
            };
            self.request(len)?;
        }
        Ok(())
    }

    /// Reads a request of a known length, or up to the end of the file.
    fn request(&mut self, len: Option<u64>) -> Result<(), Over> {
        let end = len.map(|len| self.window.place().0.saturating_add(len));
        self.units.sink.document();
        loop {
            if self.units.sink.stopped() {
                return Err(Over);
            }
            let start = self.window.place().0;
            if end.is_some_and(|end| start >= end) {
                return Ok(());
            }
            if end.is_none() && self.window.get(0).is_none() {
                return Ok(());
            }
            let tag = self.varint()?;
            let len = match tag & 7 {
                0 => {
                    self.varint()?;
                    0
                }
                1 => 8,
                2 => self.varint()?,
                5 => 4,
                _ => return self.broken(start, end, "invalid field"),
            };
            if tag >> 3 == 0 {
                return self.broken(start, end, "invalid field");
            }
            let rest = end.map_or(u64::MAX, |end| end.saturating_sub(self.window.place().0));
            if len > rest {
                return self.broken(start, end, "field longer than its message");
            }
            if tag != u64::from(REQUEST_TAG) {
                self.skip(len)?;
            } else if len > self.limits.record_bytes_max as u64 {
                let detail = format!("record longer than {} bytes", self.limits.record_bytes_max);
                let place = Place { byte: self.window.place().0, ..self.units.place.clone() };
                self.units.sink.problem(Problem::over(Limit::RecordBytes, place, detail));
                self.skip(len)?;
            } else {
                self.unit(len as usize)?;
            }
        }
    }

    fn unit(&mut self, len: usize) -> Result<(), Over> {
        self.window.reach(len);
        self.units.unit_byte = self.window.place().0;
        let bytes = self.window.bytes();
        let there = len.min(bytes.len());
        let cut = there < len;
        let notes = Cell::default();
        let unit = Bytes { bytes: &bytes[..there], at: 0, cut, notes: &notes };
        let stopped = self.units.resource_spans(unit);
        self.window.advance(there);
        if cut {
            return self.truncated();
        }
        if stopped { Err(Over) } else { Ok(()) }
    }

    /// Reports broken bytes at `start` and continues after the request, if its end is known.
    fn broken(&mut self, start: u64, end: Option<u64>, reason: &str) -> Result<(), Over> {
        self.problem_at(ProblemKind::BadRecord, start, reason);
        match end {
            Some(end) => self.skip(end.saturating_sub(self.window.place().0)),
            None => Err(Over),
        }
    }

    fn skip(&mut self, mut len: u64) -> Result<(), Over> {
        while len > 0 {
            if self.window.get(0).is_none() {
                return self.truncated();
            }
            let there = self.window.bytes().len();
            let step = usize::try_from(len).map_or(there, |len| len.min(there));
            self.window.advance(step);
            len -= step as u64;
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, Over> {
        self.window.reach(10);
        let bytes = self.window.bytes();
        match varint::read(bytes) {
            Some((value, used)) => {
                self.window.advance(used);
                Ok(value)
            }
            None if bytes.len() < 10 && bytes.iter().all(|byte| byte & 0x80 != 0) => self.truncated(),
            None => {
                self.problem(ProblemKind::BadRecord, "invalid varint");
                Err(Over)
            }
        }
    }

    fn truncated<T>(&mut self) -> Result<T, Over> {
        self.window.advance(self.window.bytes().len());
        if !self.window.is_cut_by_error() {
            self.problem(ProblemKind::Truncated, "incomplete protobuf message");
        }
        Err(Over)
    }

    fn problem(&mut self, kind: ProblemKind, detail: &str) {
        self.problem_at(kind, self.window.place().0, detail);
    }

    fn problem_at(&mut self, kind: ProblemKind, byte: u64, detail: &str) {
        let place = Place { byte, ..self.units.place.clone() };
        self.units.sink.problem(Problem::new(kind, place, detail.to_owned()));
    }
}

/// Reads the spans of one resource after another.
struct Units<'r> {
    signal: Signal,
    sink: &'r mut dyn Sink,
    place: Place,
    limits: &'r Limits,
    /// The position of the current unit in the file.
    unit_byte: u64,
    resources: Reuse<Resource>,
    scopes: Reuse<Scope>,
}

impl Units<'_> {
    /// Reads the spans of a resource; returns true if the sink stopped.
    fn resource_spans(&mut self, unit: Bytes<'_>) -> bool {
        let head = Head::of(unit);
        let resource =
            self.resources.try_get_or_make(&[head.schema_url.as_bytes(), head.subject.bytes], || {
                message::resource(&head, self.limits.nesting_max)
            });
        let resource = resource.unwrap_or_else(|fault| {
            self.fault(fault);
            Arc::default()
        });
        let result = self.groups(unit, |this, scope_spans| {
            let head = Head::of(scope_spans);
            let scope =
                this.scopes.try_get_or_make(&[head.schema_url.as_bytes(), head.subject.bytes], || {
                    message::scope(&head, this.limits.nesting_max)
                });
            let scope = scope.unwrap_or_else(|fault| {
                this.fault(fault);
                Arc::default()
            });
            this.groups(scope_spans, |this, record| this.record(record, &resource, &scope))
        });
        let stopped = matches!(result, Err(Fault { why: Why::Stopped, .. }));
        if let Err(fault) = result {
            self.fault(fault);
        }
        stopped
    }

    /// Reads the groups of a resource's spans, or the spans of one group. Broken ones are skipped.
    fn groups<'a>(
        &mut self,
        message: Bytes<'a>,
        mut read: impl FnMut(&mut Self, Bytes<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut fields = Fields::of(message);
        while let Some(field) = fields.next()? {
            match field.number {
                // Field 1000 held the groups when a scope was called an instrumentation library.
                2 | 1000 => match read(self, field.message()?) {
                    Ok(()) => {}
                    Err(fault @ Fault { why: Why::Stopped, .. }) => return Err(fault),
                    Err(fault) => self.fault(fault),
                },
                3 => drop(field.whole()?),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads a span or a log record.
    fn record(
        &mut self,
        message: Bytes<'_>,
        resource: &Arc<Resource>,
        scope: &Arc<Scope>,
    ) -> Result<(), Fault> {
        if self.sink.stopped() {
            return Err(Fault { at: message.at, why: Why::Stopped });
        }
        if message.cut {
            return Err(Fault { at: message.at, why: Why::Cut });
        }
        self.place.byte = self.unit_byte + message.at as u64;
        let record = Record { bytes: message.bytes, place: &self.place };
        if self.signal == Signal::Logs {
            let log = message::log(message, resource, scope, self.limits.nesting_max)?;
            for kind in message.notes.take().kinds() {
                let detail = "a log record".to_owned();
                self.sink.problem(Problem::new(kind, self.place.clone(), detail));
            }
            self.sink.log(log, record);
            return Ok(());
        }
        let span = message::span(message, resource, scope, self.limits.nesting_max)?;
        for kind in message.notes.take().kinds() {
            let detail = format!("span {}", span.span_id);
            self.sink.problem(Problem::new(kind, self.place.clone(), detail));
        }
        self.sink.span(span, record);
        Ok(())
    }

    fn fault(&mut self, fault: Fault) {
        let place = || Place { byte: self.unit_byte + fault.at as u64, ..self.place.clone() };
        let problem = match fault.why {
            Why::Bad(reason) => Problem::new(ProblemKind::BadRecord, place(), reason.to_owned()),
            Why::TooDeep => Problem::over(Limit::Nesting, place(), "nested too deeply".to_owned()),
            Why::Cut | Why::Stopped => return,
        };
        self.sink.problem(problem);
    }
}
