//! Checks that a body is whole, and counts its spans.
//!
//! The readers of recordings get everything they can out of a broken file. A sender needs the
//! opposite: it discards what was acknowledged, so a body that is broken anywhere is refused, and
//! the number of spans that it announces bounds what may be acknowledged.

use std::fmt;

use astracer_formats::otlp_proto;
use astracer_model::Format;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The number of spans in a body, readable or not. The error says why the body is not whole.
pub(crate) fn spans(bytes: &[u8], format: Format) -> Result<u64, String> {
    if format == Format::OtlpProto {
        return otlp_proto::count_spans(bytes).map_err(str::to_owned);
    }
    let mut spans = 0;
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let walk = Walk { level: Level::Request, spans: &mut spans };
    let read = walk.deserialize(&mut json).and_then(|()| json.end());
    read.map(|()| spans).map_err(|error| format!("the body is not JSON: {error}"))
}

/// The levels of objects above a span.
#[derive(Clone, Copy)]
enum Level {
    Request,
    Resource,
    Scope,
    Span,
}

impl Level {
    /// The level of the objects that a member of this level's objects holds.
    fn below(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Request, "resourceSpans" | "resource_spans" | "batches") => Some(Self::Resource),
            (Self::Request, "result" | "trace") => Some(Self::Request),
            (
                Self::Request | Self::Resource,
                "scopeSpans"
                | "scope_spans"
                | "instrumentationLibrarySpans"
                | "instrumentation_library_spans",
            ) => Some(Self::Scope),
            (Self::Scope, "spans") => Some(Self::Span),
            _ => None,
        }
    }
}

/// Walks through the objects of one level, in a list or alone.
struct Walk<'w> {
    level: Level,
    spans: &'w mut u64,
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
        if let Level::Span = self.level {
            *self.spans += 1;
        }
        while let Some(Key(below)) = map.next_key_seed(KeyOf(self.level))? {
            match below {
                Some(level) => map.next_value_seed(Walk { level, spans: self.spans })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Walk { level, spans } = self;
        while items.next_element_seed(Walk { level, spans: &mut *spans })?.is_some() {}
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

struct KeyOf(Level);

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
        Ok(Key(self.0.below(key)))
    }

    fn visit_bytes<E: Error>(self, key: &[u8]) -> Result<Key, E> {
        Ok(Key(std::str::from_utf8(key).ok().and_then(|key| self.0.below(key))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_counted_and_broken_bodies_refused() {
        let json = |text: &str| spans(text.as_bytes(), Format::OtlpJson);
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
        assert_eq!(spans(&not_unicode, Format::OtlpJson), Ok(1));
    }
}
