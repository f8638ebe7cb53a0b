//! One span as HTrace writes it.
//!
//! HTrace 4 writes `{"a":id,"b":begin,"e":end,"d":description,"r":tracer,"p":[parents],"n":{notes},"t":[timeline]}` and
//! leaves out what is zero or empty. HTrace 3 has a trace id `i` and a span id `s` in place of `a`. HTrace 3.0 and
//! HTrace 2 spell the names out, write ids as signed numbers, and give a root the parent [`OLD_ROOT_PARENT`].

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use smallvec::SmallVec;

use crate::time::UnixNanos;
use crate::value::{Attribute, Value};

/// The parent of spans without a parent, up to HTrace 3.1.
pub(super) const OLD_ROOT_PARENT: u64 = 0x74ace;

/// The fields of a span. Those that are `null` count as left out.
#[derive(Debug, Deserialize)]
#[serde(expecting = "a span object")]
pub(super) struct SpanRecord<'a> {
    #[serde(default)]
    pub(super) a: Option<Id>,
    #[serde(default, alias = "TraceID")]
    pub(super) i: Option<Id>,
    #[serde(default, alias = "SpanID")]
    pub(super) s: Option<Id>,
    #[serde(default, alias = "Start")]
    pub(super) b: Millis,
    #[serde(default, alias = "Stop")]
    pub(super) e: Millis,
    #[serde(default, borrow, alias = "Description")]
    pub(super) d: Text<'a>,
    #[serde(default, borrow)]
    pub(super) r: Text<'a>,
    #[serde(default)]
    pub(super) p: Ids,
    #[serde(default, rename = "ParentID")]
    pub(super) parent: Option<Id>,
    #[serde(default, borrow, alias = "Annotations")]
    pub(super) n: Notes<'a>,
    #[serde(default, borrow)]
    pub(super) t: Timeline<'a>,
}

/// An id of 64 bits, or HTrace 4's of 128.
#[derive(Clone, Copy, Debug)]
pub(super) enum Id {
    /// HTrace 3.
    Narrow(u64),
    /// HTrace 4: the high half is the trace's.
    Wide { high: u64, low: u64 },
}

impl Id {
    fn from_hex(text: &str) -> Option<Self> {
        if text.len() == 32 {
            let id =
                u128::from(hex(&text.as_bytes()[..16])?) << 64 | u128::from(hex(&text.as_bytes()[16..])?);
            return Some(Self::Wide { high: (id >> 64) as u64, low: id as u64 });
        }
        hex(text.as_bytes()).map(Self::Narrow)
    }
}

/// 1 to 16 hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |value, &byte| {
        let digit = char::from(byte).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

struct IdVisitor;

impl Visitor<'_> for IdVisitor {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id of 1 to 16, or 32, hexadecimal digits")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Id, E> {
        Id::from_hex(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Id, E> {
        Ok(Id::Narrow(number))
    }

    // Java's long has a sign; the bits are meant.
    fn visit_i64<E: Error>(self, number: i64) -> Result<Id, E> {
        Ok(Id::Narrow(number as u64))
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdVisitor)
    }
}

/// A list of ids.
#[derive(Debug, Default)]
pub(super) struct Ids(pub(super) SmallVec<[Id; 2]>);

/// A time in milliseconds since 1970; zero stands for none, as for HTrace itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Millis(pub(super) Option<UnixNanos>);

/// Text, borrowed unless it has escapes.
#[derive(Debug, Default)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

/// Keys with values, in the order written.
#[derive(Debug, Default)]
pub(super) struct Notes<'a>(pub(super) Vec<Attribute<'a>>);

/// Messages with their times.
#[derive(Debug, Default)]
pub(super) struct Timeline<'a>(pub(super) Vec<Moment<'a>>);

/// One message of a timeline.
#[derive(Debug, Deserialize)]
#[serde(expecting = "a time with a message")]
pub(super) struct Moment<'a> {
    #[serde(default)]
    pub(super) t: Millis,
    #[serde(default, borrow)]
    pub(super) m: Text<'a>,
}

/// Implements [`Deserialize`] for a type by a visitor's methods. `null` gives the default.
macro_rules! visited {
    ($type:ident $([$life:lifetime])?, $expecting:literal, { $($methods:tt)* }) => {
        const _: () = {
            struct V;

            impl<'de> Visitor<'de> for V {
                type Value = $type $(<$life>)?;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str($expecting)
                }

                fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                    Ok(Self::Value::default())
                }

                $($methods)*
            }

            visited!(@deserialize $type $($life)?);
        };
    };
    (@deserialize $type:ident) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(V)
            }
        }
    };
    (@deserialize $type:ident $life:lifetime) => {
        impl<'de: 'a, 'a> Deserialize<'de> for $type<'a> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(V)
            }
        }
    };
}

visited!(Ids, "a list of ids", {
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Ids, A::Error> {
        let mut ids = SmallVec::new();
        while let Some(id) = list.next_element()? {
            ids.push(id);
        }
        Ok(Ids(ids))
    }
});

visited!(Millis, "whole milliseconds between 1970 and 2554", {
    fn visit_u64<E: Error>(self, millis: u64) -> Result<Millis, E> {
        if millis == 0 {
            return Ok(Millis(None));
        }
        let time = UnixNanos::from_millis(millis);
        let unexpected = Unexpected::Unsigned(millis);
        time.map(|time| Millis(Some(time))).ok_or_else(|| E::invalid_value(unexpected, &self))
    }
});

visited!(Text['de], "text", {
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
});

visited!(Notes['de], "an object of notes", {
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Notes<'de>, A::Error> {
        let mut notes = Vec::new();
        while let Some((Text(key), Note(value))) = map.next_entry()? {
            notes.push(Attribute { key, value });
        }
        Ok(Notes(notes))
    }
});

visited!(Timeline['de], "a list of times with messages", {
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Timeline<'de>, A::Error> {
        let mut moments = Vec::new();
        while let Some(moment) = list.next_element()? {
            moments.push(moment);
        }
        Ok(Timeline(moments))
    }
});

/// A note's value: text, as HTrace writes it, or what others have put there.
#[derive(Debug, Default)]
struct Note<'a>(Value<'a>);

visited!(Note['de], "a note", {
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Note<'de>, E> {
        Ok(Note(Value::String(Cow::Borrowed(text))))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Note<'de>, E> {
        Ok(Note(Value::String(Cow::Owned(text.to_owned()))))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Note<'de>, E> {
        Ok(Note(Value::Bool(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Note<'de>, E> {
        Ok(Note(Value::Int(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Note<'de>, E> {
        Ok(Note(i64::try_from(value).map_or(Value::Double(value as f64), Value::Int)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Note<'de>, E> {
        Ok(Note(Value::Double(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Note<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(Note(item)) = list.next_element()? {
            items.push(item);
        }
        Ok(Note(Value::Array(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Note<'de>, A::Error> {
        let Notes(notes) = Notes::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Note(Value::Map(notes)))
    }
});
