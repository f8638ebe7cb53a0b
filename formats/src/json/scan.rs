//! Finds the end of a JSON value incrementally.
//!
//! The scanner checks the structure that determines where values end: brackets match, commas and
//! colons are in place, and no string contains a line end. It therefore stops at the byte where a
//! truncated or mangled record breaks instead of consuming its neighbours. It does not check
//! escapes, UTF-8 or the form of numbers, and it accepts that a value is missing: such a record is
//! bad, but the next one begins where it seems to.

/// The result of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// The value ends before this index.
    Done(usize),
    /// The bytes end inside the value; continue from this index when there are more.
    More(usize),
    /// The byte at this index is invalid.
    Bad(usize, &'static str),
}

/// The longest accepted number.
const NUMBER_BYTES_MAX: usize = 1 << 12;

/// Deeper brackets are counted without distinguishing lists from objects.
const TYPED_DEPTH: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
    InKey,
    InString,
}

/// The scan's state between two pieces of one value.
#[derive(Debug)]
pub(super) struct Scanner {
    expect: Expect,
    depth: usize,
    /// One bit per level: set for a list.
    lists: [u64; TYPED_DEPTH / 64],
}

impl Scanner {
    pub(super) fn new() -> Self {
        Self { expect: Expect::Value, depth: 0, lists: [0; TYPED_DEPTH / 64] }
    }

    /// Continues the scan at `at`.
    pub(super) fn feed(&mut self, bytes: &[u8], mut at: usize) -> Scan {
        loop {
            if matches!(self.expect, Expect::InKey | Expect::InString) {
                match string_end(bytes, at) {
                    Scan::Done(end) => at = end,
                    other => return other,
                }
                if self.expect == Expect::InKey {
                    self.expect = Expect::Colon;
                } else if self.value_ended() {
                    return Scan::Done(at);
                }
            }
            let Some(&byte) = bytes.get(at) else { return Scan::More(at) };
            if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                at += 1;
                continue;
            }
            if self.depth > TYPED_DEPTH {
                match byte {
                    b'"' => self.expect = Expect::InString,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => {
                        self.depth -= 1;
                        self.expect = Expect::CommaOrEnd;
                    }
                    _ => {}
                }
                at += 1;
                continue;
            }
            match (self.expect, byte) {
                (Expect::Value | Expect::ValueOrEnd, b'"') => {
                    self.expect = Expect::InString;
                    at += 1;
                }
                (Expect::Value | Expect::ValueOrEnd, b'{') => {
                    self.open(false);
                    at += 1;
                }
                (Expect::Value | Expect::ValueOrEnd, b'[') => {
                    self.open(true);
                    at += 1;
                }
                (Expect::ValueOrEnd | Expect::CommaOrEnd, b']') if self.in_list() => {
                    at += 1;
                    if self.close() {
                        return Scan::Done(at);
                    }
                }
                (Expect::KeyOrEnd | Expect::CommaOrEnd, b'}') if !self.in_list() => {
                    at += 1;
                    if self.close() {
                        return Scan::Done(at);
                    }
                }
                // A value or a key is missing. The record is bad, but its end is certain.
                (Expect::Value, b']') | (Expect::Value | Expect::Key, b'}')
                    if self.depth > 0 && self.in_list() == (byte == b']') =>
                {
                    at += 1;
                    if self.close() {
                        return Scan::Done(at);
                    }
                }
                (Expect::Value, b',') if self.depth > 0 => {
                    self.expect = if self.in_list() { Expect::Value } else { Expect::Key };
                    at += 1;
                }
                (Expect::Value | Expect::ValueOrEnd, _) if is_scalar(byte) => {
                    match scalar_end(bytes, at) {
                        Scan::Done(end) => at = end,
                        // At the top level, the end of the input may end the number; the caller
                        // decides.
                        other => return other,
                    }
                    if self.value_ended() {
                        return Scan::Done(at);
                    }
                }
                (Expect::Key | Expect::KeyOrEnd, b'"') => (at, self.expect) = members(bytes, at),
                (Expect::Colon, b':') => {
                    self.expect = Expect::Value;
                    at += 1;
                }
                (Expect::CommaOrEnd, b',') => {
                    self.expect = if self.in_list() { Expect::Value } else { Expect::Key };
                    at += 1;
                }
                _ => return Scan::Bad(at, self.expected()),
            }
        }
    }

    fn open(&mut self, list: bool) {
        if self.depth < TYPED_DEPTH {
            let (word, bit) = (self.depth / 64, 1 << (self.depth % 64));
            if list {
                self.lists[word] |= bit;
            } else {
                self.lists[word] &= !bit;
            }
        }
        self.depth += 1;
        self.expect = if list { Expect::ValueOrEnd } else { Expect::KeyOrEnd };
    }

    /// Closes a bracket; returns true at the end of the whole value.
    fn close(&mut self) -> bool {
        self.depth -= 1;
        self.value_ended()
    }

    fn value_ended(&mut self) -> bool {
        self.expect = Expect::CommaOrEnd;
        self.depth == 0
    }

    fn in_list(&self) -> bool {
        let level = self.depth.wrapping_sub(1);
        self.lists.get(level / 64).is_some_and(|word| word >> (level % 64) & 1 == 1)
    }

    fn expected(&self) -> &'static str {
        match self.expect {
            Expect::Value => "expected a value",
            Expect::ValueOrEnd => "expected a value or ']'",
            Expect::Key => "expected a key",
            Expect::KeyOrEnd => "expected a key or '}'",
            Expect::Colon => "expected ':'",
            Expect::CommaOrEnd if self.in_list() => "expected ',' or ']'",
            _ => "expected ',' or '}'",
        }
    }
}

/// A fast path over members with string values, the most frequent kind, starting at the key at
/// `at`. At the first escape or blank it returns the position and state from which the caller
/// continues.
#[inline]
fn members(bytes: &[u8], mut at: usize) -> (usize, Expect) {
    let is = |at: usize, byte: u8| bytes.get(at) == Some(&byte);
    loop {
        let key_end = string_stop(bytes, at + 1);
        if !is(key_end, b'"') {
            return (at + 1, Expect::InKey);
        }
        if !is(key_end + 1, b':') {
            return (key_end + 1, Expect::Colon);
        }
        let value = key_end + 2;
        if !is(value, b'"') {
            return (value, Expect::Value);
        }
        let end = string_stop(bytes, value + 1);
        if !is(end, b'"') {
            return (value + 1, Expect::InString);
        }
        if !(is(end + 1, b',') && is(end + 2, b'"')) {
            return (end + 1, Expect::CommaOrEnd);
        }
        at = end + 2;
    }
}

/// Finds the end of a string from a position inside it.
fn string_end(bytes: &[u8], mut at: usize) -> Scan {
    loop {
        at = string_stop(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return Scan::Done(at + 1),
            Some(b'\\') if at + 1 < bytes.len() && bytes[at + 1] != b'\n' => at += 2,
            Some(b'\\') if at + 1 < bytes.len() => at += 1,
            Some(b'\n') => return Scan::Bad(at, "the line ends inside a string"),
            Some(b'\\') | None => return Scan::More(at),
            Some(_) => at += 1,
        }
    }
}

/// True for the bytes of a number or a word: all that do not separate values.
fn is_scalar(byte: u8) -> bool {
    !matches!(byte, 0..=b' ' | b',' | b':' | b'"' | b'{' | b'}' | b'[' | b']')
}

/// Finds the end of a number or word, such as `NaN` or `undefined`.
fn scalar_end(bytes: &[u8], at: usize) -> Scan {
    match bytes[at..].iter().position(|&byte| !is_scalar(byte)) {
        Some(len) if len <= NUMBER_BYTES_MAX => Scan::Done(at + len),
        None if bytes.len() - at <= NUMBER_BYTES_MAX => Scan::More(at),
        _ => Scan::Bad(at, "a number longer than 4096 bytes"),
    }
}

/// The index of the first quote, backslash or control character at or after `at`, or the length.
#[inline]
pub(super) fn string_stop(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    while let Some(chunk) = bytes.get(at..at + 8) {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        let word = u64::from_le_bytes(word);
        // The lowest set bit of each word marks the first match. Higher bits may be wrong because
        // of a borrow.
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let quote = word ^ (ONES * b'"' as u64);
        let quote = quote.wrapping_sub(ONES) & !quote;
        let backslash = word ^ (ONES * b'\\' as u64);
        let backslash = backslash.wrapping_sub(ONES) & !backslash;
        let found = (control | quote | backslash) & HIGHS;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while at < bytes.len() && !matches!(bytes[at], b'"' | b'\\' | 0..0x20) {
        at += 1;
    }
    at
}
