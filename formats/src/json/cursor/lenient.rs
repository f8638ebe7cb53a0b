//! Values as recorders write them although JSON or the format does not allow them.

use std::borrow::Cow;

use super::{Cursor, Fault, Notes};
use crate::decimal::{read_number, scaled};
use astracer_model::time::UnixNanos;
use astracer_model::value::Value;

/// Numbers that JSON cannot write, as Python and JavaScript spell them.
const NOT_FINITE: [(&str, f64); 3] =
    [("NaN", f64::NAN), ("Infinity", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY)];

impl<'a> Cursor<'a> {
    /// Reads a bare `NaN`, `Infinity` or `-Infinity`, if it is next.
    pub(super) fn not_finite(&mut self) -> Option<(&'static str, f64)> {
        let rest = &self.text[self.at..];
        let found = NOT_FINITE.into_iter().find(|(word, _)| rest.starts_with(word))?;
        self.at += found.0.len();
        Some(found)
    }

    /// The bytes of invalid UTF-8 at the cursor, as U+FFFD.
    pub(super) fn replaced(&mut self) -> Cow<'a, str> {
        let start = self.at;
        while self.at < self.text.len() && self.is_substitute(self.at) {
            self.at += 1;
        }
        self.note(Notes::TEXT);
        String::from_utf8_lossy(&self.raw[start..self.at])
    }

    /// Reads an integer as a value. A number with a fraction, or with more than 64 bits, is a
    /// double, or else keeps its digits as text.
    pub(crate) fn int_value(&mut self) -> Result<Value<'a>, Fault> {
        self.peek();
        let before = self.at;
        match self.i64() {
            Ok(value) => Ok(Value::Int(value)),
            Err(fault) => {
                self.at = before;
                match self.scalar()? {
                    super::Scalar::Number(digits) => Ok(read_number(digits)),
                    super::Scalar::String(Cow::Borrowed(digits)) => Ok(read_number(digits)),
                    _ => Err(fault),
                }
            }
        }
    }

    /// Reads an instant in nanoseconds, exact to the nanosecond even with an exponent. `null` and
    /// 0 mean no instant.
    #[inline]
    pub(crate) fn nanos(&mut self) -> Result<Option<UnixNanos>, Fault> {
        self.peek();
        let before = self.at;
        let nanos = match self.u64() {
            Ok(nanos) => nanos,
            Err(fault) => {
                self.at = before;
                let number = self.scalar()?;
                let scaled = match &number {
                    super::Scalar::Number(digits) => scaled(digits, 0),
                    super::Scalar::String(digits) => scaled(digits, 0),
                    _ => None,
                };
                scaled.filter(|scaled| !scaled.negative).ok_or(fault)?.magnitude
            }
        };
        Ok(Some(UnixNanos(nanos)).filter(|time| time.0 != 0))
    }

    /// Reads a value that `read` understands. Any other value is skipped and noted, and its field
    /// stays unset.
    pub(crate) fn or_unset<T: Default>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.peek();
        let (at, depth) = (self.at, self.depth);
        match read(self) {
            Ok(value) => Ok(value),
            Err(fault) => {
                (self.at, self.depth) = (at, depth);
                // If it cannot be skipped either, it is not a JSON value.
                self.skip().map_err(|_| fault)?;
                self.note(Notes::WORD);
                Ok(T::default())
            }
        }
    }

    /// Reads a count; `null` is 0.
    #[inline]
    pub(crate) fn count(&mut self) -> Result<u32, Fault> {
        self.or_unset(Self::u32)
    }

    /// Reads an enum value, written as its number or its name. `null` is the default.
    pub(crate) fn number_or_name<T: Default>(
        &mut self,
        number: impl Fn(i64) -> Option<T>,
        name: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Fault> {
        self.or_unset(|cursor| {
            let start = cursor.at;
            let found = if cursor.peek() == Some(b'"') {
                let word = cursor.string()?;
                word.parse().map_or_else(|_| name(&word), &number)
            } else {
                number(cursor.i64()?)
            };
            found.map_or_else(|| cursor.fault_at(start, "unknown enum value"), Ok)
        })
    }
}
