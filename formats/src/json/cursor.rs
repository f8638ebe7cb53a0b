//! A front-to-back parser over the text of one unit.

use std::borrow::Cow;
use std::cell::Cell;

use super::NESTING_HARD_MAX;
use super::scan::{Scan, Scanner, string_stop};
use crate::decimal;
use astracer_model::problem::ProblemKind;
use astracer_model::text::lossy;

mod bytes;
mod lenient;

pub(crate) use bytes::decode_base64;

/// A parse error and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The byte offset in the text.
    pub(crate) at: usize,
    pub(crate) why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The text does not follow the format.
    Bad(&'static str),
    /// Lists and objects are nested beyond the limit.
    TooDeep,
    /// The text ends.
    End,
    /// The sink asked to stop; the text is valid so far.
    Stopped,
}

/// A value that is neither a list nor an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    /// The digits as written: a valid JSON number, or `NaN`, `Infinity` or `-Infinity`, which
    /// Python writes.
    Number(&'a str),
    String(Cow<'a, str>),
}

/// Replaces each byte of invalid UTF-8, so that text and file have the same length. A string that
/// contains it gets U+FFFD instead.
pub(super) const SUBSTITUTE: char = '\x1a';

/// Irregularities of a record that was read all the same, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes(u8);

impl Notes {
    /// A text is not Unicode.
    pub(crate) const TEXT: Self = Self(1);
    /// A word or a number has no meaning in its field.
    pub(crate) const WORD: Self = Self(2);

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The kinds of problem, one for each note.
    pub(crate) fn kinds(self) -> impl Iterator<Item = ProblemKind> {
        let kinds = [(Self::TEXT, ProblemKind::BadText), (Self::WORD, ProblemKind::UnknownWord)];
        kinds.into_iter().filter(move |&(note, _)| self.has(note)).map(|(_, kind)| kind)
    }
}

/// A position in a text.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    depth_max: usize,
    /// The bytes of the file, which differ from the text at each [`SUBSTITUTE`].
    raw: &'a [u8],
    /// Notes since the last span. A cell, because text is also read through clones.
    notes: Cell<Notes>,
}

/// A clone looks ahead, or returns to where a record began. It has no notes of its own yet.
impl Clone for Cursor<'_> {
    fn clone(&self) -> Self {
        let Self { text, at, depth, depth_max, raw, .. } = *self;
        Self { text, at, depth, depth_max, raw, notes: Cell::default() }
    }
}

impl<'a> Cursor<'a> {
    /// Makes a cursor at the start of a text that is inside `depth` lists and objects.
    pub(crate) fn new(text: &'a str, depth: usize, nesting_max: usize) -> Self {
        let (raw, notes) = (text.as_bytes(), Cell::default());
        Self { text, at: 0, depth, depth_max: nesting_max.min(NESTING_HARD_MAX), raw, notes }
    }

    /// Attaches the original bytes of a text that contains substitutes. Both have the same length.
    pub(super) fn made_of(self, raw: &'a [u8]) -> Self {
        Self { raw, ..self }
    }

    /// The file's bytes from `start` to the cursor.
    pub(super) fn raw_from(&self, start: usize) -> &'a [u8] {
        &self.raw[start..self.at]
    }

    pub(super) fn is_substitute(&self, at: usize) -> bool {
        self.text.as_bytes().get(at) != self.raw.get(at)
    }

    /// Adds notes to those of the record.
    pub(crate) fn note(&self, notes: Notes) {
        self.notes.set(self.notes.get().with(notes));
    }

    /// Takes the notes since the last call.
    #[inline]
    pub(crate) fn take_notes(&self) -> Notes {
        self.notes.take()
    }

    /// The whole text.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// The offset of the next byte.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Skips a value of known length.
    pub(crate) fn step(&mut self, len: usize) {
        self.at += len;
    }

    /// A fault at an offset of the text.
    pub(crate) fn fault_at<T>(&self, at: usize, reason: &'static str) -> Result<T, Fault> {
        Err(Fault { at, why: Why::Bad(reason) })
    }

    fn fault<T>(&self, reason: &'static str) -> Result<T, Fault> {
        let why = if self.at < self.text.len() { Why::Bad(reason) } else { Why::End };
        Err(Fault { at: self.at, why })
    }

    /// The first byte of the next token; `None` at the end.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    #[inline]
    pub(super) fn expect(&mut self, byte: u8, reason: &'static str) -> Result<(), Fault> {
        if self.peek() != Some(byte) {
            return self.fault(reason);
        }
        self.at += 1;
        Ok(())
    }

    /// Reads an object: calls `member` with each key, and `member` reads or skips the value. `null`
    /// has no members.
    #[inline]
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if self.null()? {
            return Ok(());
        }
        self.open(b'{', "expected an object")?;
        if self.peek() != Some(b'}') {
            loop {
                if self.peek() != Some(b'"') {
                    return self.fault("expected a key");
                }
                let key = self.string()?;
                self.expect(b':', "expected ':'")?;
                member(self, key)?;
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b'}') => break,
                    _ => return self.fault("expected ',' or '}'"),
                }
            }
        }
        self.close();
        Ok(())
    }

    /// Reads a list: calls `element` at each element, and `element` reads or skips it. `null` is an
    /// empty list.
    #[inline]
    pub(crate) fn list(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if self.null()? {
            return Ok(());
        }
        self.open(b'[', "expected a list")?;
        if self.peek() != Some(b']') {
            loop {
                self.peek();
                element(self)?;
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b']') => break,
                    _ => return self.fault("expected ',' or ']'"),
                }
            }
        }
        self.close();
        Ok(())
    }

    #[inline]
    pub(super) fn open(&mut self, bracket: u8, reason: &'static str) -> Result<(), Fault> {
        let depth = self.depth + 1;
        if self.peek() != Some(bracket) {
            return self.fault(reason);
        }
        if depth > self.depth_max {
            return Err(Fault { at: self.at, why: Why::TooDeep });
        }
        self.depth = depth;
        self.at += 1;
        Ok(())
    }

    #[inline]
    pub(super) fn close(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    /// Reads `null` if it is next.
    #[inline]
    pub(crate) fn null(&mut self) -> Result<bool, Fault> {
        if self.peek() != Some(b'n') {
            return Ok(false);
        }
        self.word("null").map(|()| true)
    }

    fn word(&mut self, word: &'static str) -> Result<(), Fault> {
        let rest = &self.text.as_bytes()[self.at..];
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(());
        }
        if word.as_bytes().starts_with(rest) {
            self.at = self.text.len();
        }
        self.fault("expected a value")
    }

    /// Skips a value of any kind and returns its text. Only brackets and strings are checked.
    pub(crate) fn skip(&mut self) -> Result<&'a str, Fault> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'{' | b'[' | b'"') => match Scanner::new().feed(self.text.as_bytes(), self.at) {
                Scan::Done(end) => self.at = end,
                Scan::More(_) => return Err(Fault { at: self.text.len(), why: Why::End }),
                Scan::Bad(at, reason) => return self.fault_at(at, reason),
            },
            _ => drop(self.scalar()?),
        }
        Ok(&self.text[start..self.at])
    }

    /// Skips a value of any kind and returns its text. U+FFFD replaces invalid UTF-8.
    pub(crate) fn skip_clean(&mut self) -> Result<Cow<'a, str>, Fault> {
        let text = self.skip()?;
        if !text.bytes().any(|byte| byte == SUBSTITUTE as u8) {
            return Ok(Cow::Borrowed(text));
        }
        self.note(Notes::TEXT);
        Ok(lossy(&self.raw[self.at - text.len()..self.at]))
    }

    /// Reads a value that is neither a list nor an object.
    pub(crate) fn scalar(&mut self) -> Result<Scalar<'a>, Fault> {
        match self.peek() {
            Some(b'"') => self.string().map(Scalar::String),
            Some(b'n') => self.word("null").map(|()| Scalar::Null),
            Some(b't') => self.word("true").map(|()| Scalar::Bool(true)),
            Some(b'f') => self.word("false").map(|()| Scalar::Bool(false)),
            Some(b'-' | b'0'..=b'9' | b'N' | b'I') => match self.not_finite() {
                Some((word, _)) => Ok(Scalar::Number(word)),
                None => self.number().map(Scalar::Number),
            },
            Some(b'{' | b'[') => self.fault("expected a simple value"),
            _ => self.fault("expected a value"),
        }
    }

    /// The next number as written.
    fn number(&mut self) -> Result<&'a str, Fault> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut at = start + usize::from(bytes.get(start) == Some(&b'-'));
        let digits = |at: &mut usize| {
            let from = *at;
            while bytes.get(*at).is_some_and(u8::is_ascii_digit) {
                *at += 1;
            }
            *at > from
        };
        let leading_zero = bytes.get(at) == Some(&b'0');
        let whole = at;
        let mut good = digits(&mut at);
        if leading_zero && at > whole + 1 {
            return self.fault("invalid number");
        }
        if good && bytes.get(at) == Some(&b'.') {
            at += 1;
            good = digits(&mut at);
        }
        if good && matches!(bytes.get(at), Some(b'e' | b'E')) {
            at += 1;
            at += usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
            good = digits(&mut at);
        }
        if !good {
            self.at = at;
            return self.fault("invalid number");
        }
        self.at = at;
        Ok(&self.text[start..at])
    }

    /// Reads a string, borrowing it if it has no escapes.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<Cow<'a, str>, Fault> {
        self.expect(b'"', "expected a string")?;
        let start = self.at;
        let stop = string_stop(self.text.as_bytes(), start);
        if self.text.as_bytes().get(stop) == Some(&b'"') {
            self.at = stop + 1;
            return Ok(Cow::Borrowed(&self.text[start..stop]));
        }
        self.string_slow(start, stop).map(Cow::Owned)
    }

    #[cold]
    #[inline(never)]
    fn string_slow(&mut self, mut from: usize, mut stop: usize) -> Result<String, Fault> {
        let mut string = String::new();
        loop {
            string.push_str(&self.text[from..stop]);
            self.at = stop;
            match self.text.as_bytes().get(stop) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
                Some(b'\n') => return self.fault("the line ends inside a string"),
                _ if self.is_substitute(stop) => string.push_str(&self.replaced()),
                _ => return self.fault("control character in a string"),
            }
            from = self.at;
            stop = string_stop(self.text.as_bytes(), from);
        }
    }

    /// Reads the escape at the cursor.
    fn escape(&mut self) -> Result<char, Fault> {
        let simple = match self.text.as_bytes().get(self.at + 1) {
            Some(b'u') => {
                let first = self.hex_escape()?;
                let mut code = first;
                if matches!(first, 0xd800..=0xdbff) && self.text.as_bytes()[self.at..].starts_with(b"\\u") {
                    let after_first = self.at;
                    match self.hex_escape()? {
                        second @ 0xdc00..=0xdfff => {
                            code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                        }
                        // The second escape is a character of its own.
                        _ => self.at = after_first,
                    }
                }
                return Ok(char::from_u32(code).unwrap_or_else(|| {
                    // Half of a pair, as text cut by its length has at its end.
                    self.note(Notes::TEXT);
                    char::REPLACEMENT_CHARACTER
                }));
            }
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(_) => return self.fault("unknown escape in a string"),
            None => return Err(Fault { at: self.text.len(), why: Why::End }),
        };
        self.at += 2;
        Ok(simple)
    }

    fn hex_escape(&mut self) -> Result<u32, Fault> {
        let mut code = 0;
        for at in self.at + 2..self.at + 6 {
            match self.text.as_bytes().get(at).and_then(|&byte| char::from(byte).to_digit(16)) {
                Some(digit) => code = code << 4 | digit,
                None if at < self.text.len() => return self.fault_at(at, "expected four hexadecimal digits"),
                None => return Err(Fault { at, why: Why::End }),
            }
        }
        self.at += 6;
        Ok(code)
    }

    /// Reads a string; `null` is an empty string.
    #[inline]
    pub(crate) fn text_or_null(&mut self) -> Result<Cow<'a, str>, Fault> {
        if self.null()? { Ok(Cow::Borrowed("")) } else { self.string() }
    }

    /// Reads an unsigned integer, as a number or in a string; `null` is 0.
    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Fault> {
        let (start, negative, magnitude) = self.integer()?;
        if negative && magnitude != 0 {
            return self.fault_at(start, "expected a non-negative number");
        }
        Ok(magnitude)
    }

    /// Reads an unsigned integer of 32 bits, as a number or in a string; `null` is 0.
    pub(crate) fn u32(&mut self) -> Result<u32, Fault> {
        self.peek();
        let start = self.at;
        u32::try_from(self.u64()?).or_else(|_| self.fault_at(start, "number out of range"))
    }

    /// Reads a signed integer, as a number or in a string; `null` is 0.
    pub(crate) fn i64(&mut self) -> Result<i64, Fault> {
        let (start, negative, magnitude) = self.integer()?;
        let value =
            if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
        value.map_or_else(|| self.fault_at(start, "number out of range"), Ok)
    }

    /// Reads an integer and returns its start, sign and magnitude.
    #[inline]
    fn integer(&mut self) -> Result<(usize, bool, u64), Fault> {
        let bytes = self.text.as_bytes();
        let quoted = match self.peek() {
            Some(b'"') => 1,
            Some(b'-' | b'0'..=b'9') => 0,
            Some(b'n') => return self.word("null").map(|()| (self.at, false, 0)),
            _ => return self.fault("expected a number"),
        };
        let start = self.at;
        let first = start + quoted;
        let negative = bytes.get(first) == Some(&b'-');
        let digits = first + usize::from(negative);
        let mut at = digits;
        let mut magnitude = 0u64;
        while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10)
        {
            // Magnitudes that could overflow take the slow path.
            if at - digits >= 19 {
                break;
            }
            magnitude = magnitude * 10 + u64::from(digit);
            at += 1;
        }
        let plain = at > digits && (bytes[digits] != b'0' || at == digits + 1);
        let ended = match bytes.get(at) {
            Some(b'"') => quoted == 1,
            Some(b'0'..=b'9' | b'.' | b'e' | b'E') | None => false,
            Some(_) => quoted == 0,
        };
        if plain && ended {
            self.at = at + quoted;
            return Ok((start, negative, magnitude));
        }
        let (negative, magnitude) = self.integer_slow()?;
        Ok((start, negative, magnitude))
    }

    /// Reads a short unsigned integer without quotes, which is the most frequent form. For any
    /// other form the cursor does not move.
    #[inline]
    pub(crate) fn plain_number(&mut self) -> Option<u64> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return None;
        }
        let bytes = self.text.as_bytes();
        let (mut at, mut number) = (self.at, 0u64);
        while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10)
        {
            if at - self.at >= 18 {
                return None;
            }
            number = number * 10 + u64::from(digit);
            at += 1;
        }
        let leading_zero = bytes[self.at] == b'0' && at > self.at + 1;
        let ended = matches!(bytes.get(at), Some(b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t'));
        if leading_zero || !ended {
            return None;
        }
        self.at = at;
        Some(number)
    }

    /// Reads integers near the limit of 64 bits, and integers written with a fraction or an
    /// exponent.
    #[cold]
    #[inline(never)]
    fn integer_slow(&mut self) -> Result<(bool, u64), Fault> {
        let start = self.at;
        let (number, end) = self.number_or_quoted()?;
        let unsigned = number.strip_prefix('-').unwrap_or(number);
        let negative = unsigned.len() < number.len();
        match decimal::scaled(unsigned, 0) {
            Some(scaled) if scaled.exact => {
                self.at = end;
                Ok((negative, scaled.magnitude))
            }
            Some(_) => self.fault_at(start, "expected a whole number"),
            None => self.fault_at(start, "number out of range"),
        }
    }

    /// A valid number, bare or quoted, and its end. If the number is invalid, the cursor stays at
    /// the start.
    fn number_or_quoted(&mut self) -> Result<(&'a str, usize), Fault> {
        let start = self.at;
        if self.text.as_bytes().get(start) != Some(&b'"') {
            let number = self.number()?;
            return Ok((number, self.at));
        }
        let Cow::Borrowed(content) = self.string()? else {
            return self.fault_at(start, "expected a number");
        };
        let mut inner = Cursor::new(content, 0, 0);
        match inner.number() {
            Ok(number) if inner.at == content.len() => Ok((number, self.at)),
            _ => self.fault_at(start, "expected a number"),
        }
    }

    /// Reads a floating-point number, bare or in a string, including `"NaN"`, `"Infinity"` and
    /// `"-Infinity"`. `null` is 0.
    pub(crate) fn f64(&mut self) -> Result<f64, Fault> {
        match self.peek() {
            Some(b'-' | b'N' | b'I') => {
                if let Some((_, value)) = self.not_finite() {
                    return Ok(value);
                }
            }
            Some(b'"' | b'0'..=b'9') => {}
            Some(b'n') => return self.word("null").map(|()| 0.0),
            _ => return self.fault("expected a number"),
        }
        let start = self.at;
        let rest = &self.text[start..];
        let special =
            [("\"NaN\"", f64::NAN), ("\"Infinity\"", f64::INFINITY), ("\"-Infinity\"", f64::NEG_INFINITY)];
        if let Some((name, value)) = special.into_iter().find(|(name, _)| rest.starts_with(name)) {
            self.at += name.len();
            return Ok(value);
        }
        let (number, end) = self.number_or_quoted()?;
        self.at = end;
        match number.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(value),
            _ => self.fault_at(start, "number out of range"),
        }
    }

    /// Reads a Boolean, bare or in a string; `null` is false.
    pub(crate) fn bool(&mut self) -> Result<bool, Fault> {
        self.peek();
        let start = self.at;
        match self.scalar()? {
            Scalar::Null => Ok(false),
            Scalar::Bool(value) => Ok(value),
            Scalar::String(word) if word == "true" => Ok(true),
            Scalar::String(word) if word == "false" => Ok(false),
            _ => self.fault_at(start, "expected true or false"),
        }
    }
}
