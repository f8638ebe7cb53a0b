//! Logs of JSON documents: records in a list, or one after the other over several lines, as the
//! clients of cloud services, `journalctl -o json-pretty` and `jq` write them; and the streams of
//! Loki.

use std::io::BufRead;
use std::sync::Arc;

use super::clock::{self, Clock};
use super::json_lines::{Found, Shared};
use super::options::Options;
use super::text::Reading;
use super::time;
use super::writer::Writer;
use crate::Limits;
use crate::json::{Cursor, Fault, Layout, Out, read_units};
use crate::plain_json::{read_members, read_value, text_of};
use astracer_model::sink::Sink;
use astracer_model::value::{Attribute, Value};

/// The name of the layout for reports.
const NAME: &str = "json-documents";

/// Members whose elements are records: of CloudWatch (`aws logs` and its subscriptions) and Azure.
const LISTS: &[&str] = &["events", "logEvents", "records"];
/// Members whose elements are streams: of Loki's pushes, and of its answers.
const STREAMS: &[&str] = &["streams", "result"];

/// The content of a file's documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Records, on their own or in a list without a name.
    Records,
    /// Records in a list with a name.
    Lists,
    /// Streams of Loki.
    Streams,
}

impl Kind {
    fn layout(self) -> Layout {
        let named = Layout { unit_is_record: false, bare_list: false, ..Layout::RECORDS };
        match self {
            Self::Records => Layout::RECORDS,
            Self::Lists => Layout { lists: LISTS, ..named },
            Self::Streams => Layout { lists: STREAMS, wrappers: &["data"], ..named },
        }
    }
}

/// True if the first bytes of a file are those of documents with log records.
pub(super) fn detect(text: &[u8]) -> bool {
    kind(valid(text)).is_some()
}

/// The text at the start of a file's first bytes, which may end inside a character.
fn valid(bytes: &[u8]) -> &str {
    let end = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    std::str::from_utf8(&bytes[..end]).unwrap_or("")
}

/// The content of the documents, if the first record of the text is a log's.
fn kind(text: &str) -> Option<Kind> {
    match text.bytes().next()? {
        b'[' => {
            let record = text[1..].trim_ascii_start();
            record_len(record).map(|_| Kind::Records)
        }
        b'{' => {
            let mut cursor = Cursor::new(text, 0, NESTING_MAX);
            let mut found = None;
            // The text may be cut behind the first record.
            let _ = cursor.object(|cursor, key| {
                let is_list = cursor.peek() == Some(b'[');
                let list = cursor.text().get(cursor.at() + 1..).unwrap_or("").trim_ascii_start();
                if is_list && LISTS.contains(&&*key) && record_len(list).is_some() {
                    found = Some(Kind::Lists);
                } else if is_list && STREAMS.contains(&&*key) && is_stream(list) {
                    found = Some(Kind::Streams);
                } else if key == "data" && cursor.peek() == Some(b'{') && found.is_none() {
                    found = kind(&cursor.text()[cursor.at()..]).filter(|kind| *kind == Kind::Streams);
                }
                cursor.skip().map(drop)
            });
            match record_len(text) {
                // One record on each line is the format of lines.
                Some(len) => text[..len].contains('\n').then_some(Kind::Records),
                None => found,
            }
        }
        _ => None,
    }
}

const NESTING_MAX: usize = 100;

/// The length of the log record at the start of a text; `None` if there is none.
fn record_len(text: &str) -> Option<usize> {
    if !text.starts_with('{') {
        return None;
    }
    let shared = Shared::default();
    let (mut found, mut cursor) = (Found::new(&shared), Cursor::new(text, 0, NESTING_MAX));
    found.members(&mut cursor, true).ok()?;
    (found.stamp().is_some() && found.is_told()).then(|| cursor.at())
}

/// True if a stream with a value, or the start of one, is at the start of a text.
fn is_stream(text: &str) -> bool {
    let (mut has_labels, mut has_values) = (false, false);
    let _ = Cursor::new(text, 0, NESTING_MAX).object(|cursor, key| {
        has_labels |= key == "stream" && cursor.peek() == Some(b'{');
        has_values |= key == "values" && cursor.peek() == Some(b'[');
        cursor.skip().map(drop)
    });
    has_labels && has_values
}

/// Reads one file to its end.
pub(super) fn read(
    input: &mut dyn BufRead,
    file: &Arc<str>,
    limits: &Limits,
    options: &Options,
    sink: &mut dyn Sink,
) -> Reading {
    let text = valid(input.fill_buf().unwrap_or_default());
    // The first buffer may be too short for a record.
    let kind = kind(text.trim_start_matches('\u{feff}').trim_ascii_start()).unwrap_or(Kind::Records);
    let mut units = Units {
        shared: Shared::default(),
        clock: Clock::new(&options.zone, clock::of_name(file).or(options.changed)),
    };
    read_units(input, file, limits, sink, kind.layout(), &mut |cursor, out| match kind {
        Kind::Records | Kind::Lists => units.record(cursor, out),
        Kind::Streams => units.stream(cursor, out),
    });
    Reading { layout: NAME.into(), assumed: units.clock.assumed, ..Reading::default() }
}

struct Units {
    shared: Shared,
    clock: Clock,
}

impl Units {
    fn record(&mut self, cursor: &mut Cursor<'_>, out: &mut Out<'_>) -> Result<(), Fault> {
        cursor.peek();
        let start = cursor.at();
        let mut found = Found::new(&self.shared);
        found.members(cursor, true)?;
        let log = found.finish(Writer::default(), None, &mut self.clock, &mut self.shared);
        out.log(cursor, start, log);
        Ok(())
    }

    /// Reads `{"stream": {LABEL: VALUE}, "values": [[NANOSECONDS, LINE, METADATA]]}`.
    fn stream(&mut self, cursor: &mut Cursor<'_>, out: &mut Out<'_>) -> Result<(), Fault> {
        let mut labels = Vec::new();
        // The labels may follow the values.
        cursor.clone().object(|cursor, key| match &*key {
            "stream" if cursor.peek() == Some(b'{') => {
                labels = read_members(cursor)?;
                Ok(())
            }
            _ => cursor.skip().map(drop),
        })?;
        cursor.object(|cursor, key| match &*key {
            "values" => out.records(cursor, |cursor, out| self.value(&labels, cursor, out)),
            _ => cursor.skip().map(drop),
        })
    }

    fn value(
        &mut self,
        labels: &[Attribute<'_>],
        cursor: &mut Cursor<'_>,
        out: &mut Out<'_>,
    ) -> Result<(), Fault> {
        cursor.peek();
        let start = cursor.at();
        let mut parts = Vec::new();
        cursor.list(|cursor| {
            parts.push(read_value(cursor)?);
            Ok(())
        })?;
        let mut parts = parts.into_iter();
        let stamp = parts.next().and_then(|time| time::whole(&text_of(&time)));
        let mut found = Found::new(&self.shared);
        found.log.body = parts.next().unwrap_or_default();
        let metadata = match parts.next() {
            Some(Value::Map(members)) => members,
            _ => Vec::new(),
        };
        for Attribute { key, value } in labels.iter().cloned().chain(metadata) {
            found.label(key, value);
        }
        let log = found.finish(Writer::default(), stamp.as_ref(), &mut self.clock, &mut self.shared);
        out.log(cursor, start, log);
        Ok(())
    }
}
