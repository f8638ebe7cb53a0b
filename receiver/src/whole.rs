//! Checks that a body is whole, and counts its spans or log records.
//!
//! The readers of recordings get everything they can out of a broken file. A sender needs the
//! opposite: it discards what was acknowledged, so a body that is broken anywhere is refused, and
//! the number of records that it announces bounds what may be acknowledged.

use std::fmt;

use astracer_formats::otlp_proto;
use astracer_model::Format;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::signal::Signal;

/// The number of records of a signal in a body, readable or not. The error says why the body is not
/// whole.
pub(crate) fn records(signal: Signal, bytes: &[u8], format: Format) -> Result<u64, String> {
    if format == Format::OtlpProto {
        let count = match signal {
            Signal::Traces => otlp_proto::count_spans,
            Signal::Logs => otlp_proto::count_logs,
        };
        return count(bytes).map_err(str::to_owned);
    }
    let mut records = 0;
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let walk = Walk { signal, level: Level::Request, records: &mut records };
    let read = walk.deserialize(&mut json).and_then(|()| json.end());
    read.map(|()| records).map_err(|error| format!("the body is not JSON: {error}"))
}

/// The levels of objects above a record.
#[derive(Clone, Copy)]
enum Level {
    Request,
    Resource,
    Scope,
    Record,
}

impl Level {
    /// The level of the objects that a member of this level's objects holds.
    fn below(self, signal: Signal, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Request, "result" | "trace") => return Some(Self::Request),
            (Self::Scope, "spans") if signal == Signal::Traces => return Some(Self::Record),
            (Self::Scope, "logRecords" | "log_records") if signal == Signal::Logs => {
                return Some(Self::Record);
            }
            _ => {}
        }
        let (resources, scopes): (&[&str], &[&str]) = match signal {
            Signal::Traces => (
                &["resourceSpans", "resource_spans", "batches"],
                &[
                    "scopeSpans",
                    "scope_spans",
                    "instrumentationLibrarySpans",
                    "instrumentation_library_spans",
                ],
            ),
            Signal::Logs => (&["resourceLogs", "resource_logs"], &["scopeLogs", "scope_logs"]),
        };
        match self {
            Self::Request if resources.contains(&key) => Some(Self::Resource),
            Self::Request | Self::Resource if scopes.contains(&key) => Some(Self::Scope),
            _ => None,
        }
    }
}

/// Walks through the objects of one level, in a list or alone.
struct Walk<'w> {
    signal: Signal,
    level: Level,
    records: &'w mut u64,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Walk { signal, level, records } = self;
        if let Level::Record = level {
            *records += 1;
        }
        while let Some(Key(below)) = map.next_key_seed(KeyOf(signal, level))? {
            match below {
                Some(level) => map.next_value_seed(Walk { signal, level, records: &mut *records })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Walk { signal, level, records } = self;
        while items.next_element_seed(Walk { signal, level, records: &mut *records })?.is_some() {}
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

struct KeyOf(Signal, Level);

struct Key(Option<Level>);

impl<'de> DeserializeSeed<'de> for KeyOf {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Key, D::Error> {
        // As bytes, because keys need not be Unicode.
        json.deserialize_bytes(self)
    }
}

impl Visitor<'_> for KeyOf {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Key, E> {
        Ok(Key(self.1.below(self.0, key)))
    }

    fn visit_bytes<E: Error>(self, key: &[u8]) -> Result<Key, E> {
        Ok(Key(std::str::from_utf8(key).ok().and_then(|key| self.1.below(self.0, key))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_counted_and_broken_bodies_refused() {
        let spans = |bytes: &[u8]| records(Signal::Traces, bytes, Format::OtlpJson);
        let json = |text: &str| spans(text.as_bytes());
        let span = r#"{"name":"a","attributes":[{"key":"spans","value":{"stringValue":"\ud83d"}}]}"#;
        let body = |spans: &str| {
            format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"scope":{{}},"spans":{spans}}}]}}]}}"#)
        };
        assert_eq!(json("{}"), Ok(0));
        assert_eq!(json(&body(&format!("[{span},{{}},{{\"spans\":[{{}}]}}]"))), Ok(3));
        assert_eq!(json(&body("{}")), Ok(1));
        assert_eq!(json(&body("7")), Ok(0));
        assert!(json(&body("[{\"a\":NaN}]")).is_err());
        assert!(json(&format!("{}x", body("[]"))).is_err());
        let whole = body(&format!("[{span}]"));
        for len in 0..whole.len() {
            assert!(json(&whole[..len]).is_err(), "{len}");
        }
        let not_unicode = body("[{}]").replacen("scope\"", "sc?pe\"", 1).into_bytes();
        let not_unicode: Vec<_> =
            not_unicode.into_iter().map(|byte| if byte == b'?' { 0xff } else { byte }).collect();
        assert_eq!(spans(&not_unicode), Ok(1));
    }

    #[test]
    fn each_signal_counts_its_own_records() {
        let body = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{},{"body":{"logRecords":[{}]}}]}]}],
            "resourceSpans":{"scopeSpans":{"spans":{}}},"scope_logs":[{"log_records":[{}],"spans":[{}]}]}"#;
        let count = |signal| records(signal, body.as_bytes(), Format::OtlpJson);
        assert_eq!((count(Signal::Logs), count(Signal::Traces)), (Ok(3), Ok(1)));
        // A request with a resource's scope's record, whose field 1 is a time: a log record.
        let request = [0x0a, 13, 0x12, 11, 0x12, 9, 0x09, 1, 2, 3, 4, 5, 6, 7, 8];
        for signal in [Signal::Logs, Signal::Traces] {
            assert_eq!(records(signal, &request, Format::OtlpProto), Ok(1));
            assert!(records(signal, &request[..14], Format::OtlpProto).is_err());
        }
        // A body that is cut off inside a log record, where a span has a number.
        let body = [0x0a, 6, 0x12, 4, 0x12, 2, 0x2a, 7];
        assert!(records(Signal::Logs, &body, Format::OtlpProto).is_err());
    }
}
