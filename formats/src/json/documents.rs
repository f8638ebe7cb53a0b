//! Iterates over the documents of a file and their units.
//!
//! Most files have one document per line. The sequence of `}`, a line end and `{` cannot occur
//! inside a JSON value, so such a line is complete and is parsed in one pass. Everything else
//! (pretty-printed documents, a file without line breaks, consecutive documents) is processed as a
//! stream: the end of each unit is found first, then the unit is parsed. If a unit is a single
//! record and lists have one unit per line, it is parsed at once, and its end is searched for only
//! if that fails.

use std::io::{self, BufRead};
use std::sync::Arc;

use super::NESTING_HARD_MAX;
use super::cursor::{Cursor, Fault, SUBSTITUTE, Why};
use super::layout::{Counts, Layout, Members, Role};
use super::out::{INSIDE_A_VALUE, Out, TOO_DEEP};
use super::scan::{Scan, Scanner};
use super::window::Window;
use crate::Limits;
use astracer_model::problem::{Limit, ProblemKind};
use astracer_model::sink::Sink;

mod line;

use line::Line;

/// The sizes of the pieces in which a file is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    /// Read size.
    pub(super) step_bytes: usize,
    /// The longest line that is parsed as a whole.
    pub(super) line_bytes_max: usize,
}

impl Default for Pieces {
    fn default() -> Self {
        Self { step_bytes: 128 << 10, line_bytes_max: 1 << 20 }
    }
}

const NO_DOCUMENT: &str = "expected an object or a list";

/// The prefix of an object that is searched for a member that determines its role.
const LOOK_BYTES_MAX: usize = 64 << 20;

/// The beginning of a document behind a logger's text.
const BEHIND_TEXT: &[u8] = b"{\"resource";

/// Longer keys match no known member.
const KEY_BYTES_MAX: usize = 1 << 10;

/// Finds the units of a file and calls `read_unit` with a cursor at the start of each. `read_unit`
/// must read exactly that value; a failure is reported, and the next unit follows.
pub(crate) fn read_units(
    input: &mut dyn BufRead,
    file: &Arc<str>,
    limits: &Limits,
    sink: &mut dyn Sink,
    layout: Layout,
    read_unit: &mut ReadUnit<'_>,
) -> Counts {
    read_pieces(input, file, limits, sink, layout, read_unit, Pieces::default())
}

/// [`read_units`] for formats whose units are spans: in lists, in lists of lists, or on their own.
pub(crate) fn read_spans(
    input: &mut dyn BufRead,
    file: &Arc<str>,
    limits: &Limits,
    sink: &mut dyn Sink,
    read_span: &mut ReadUnit<'_>,
) {
    read_units(input, file, limits, sink, Layout::RECORDS, read_span);
}

/// [`read_units`] with configurable sizes.
pub(super) fn read_pieces(
    input: &mut dyn BufRead,
    file: &Arc<str>,
    limits: &Limits,
    sink: &mut dyn Sink,
    layout: Layout,
    read_unit: &mut ReadUnit<'_>,
    pieces: Pieces,
) -> Counts {
    let mut reader = Documents {
        window: Window::new(input, pieces.step_bytes),
        // A line that is parsed as a whole must not contain a longer unit.
        line_bytes_max: pieces.line_bytes_max.min(limits.record_bytes_max),
        out: Out::new(file, sink),
        layout,
        limits,
        counts: Counts::default(),
        read_unit,
        one_a_line: false,
        unit_a_line: true,
        no_newline_before: 0,
    };
    reader.run();
    reader.counts
}

type ReadUnit<'u> = dyn FnMut(&mut Cursor<'_>, &mut Out<'_>) -> Result<(), Fault> + 'u;

struct Documents<'r, 'u> {
    window: Window<'r>,
    line_bytes_max: usize,
    out: Out<'r>,
    layout: Layout,
    limits: &'r Limits,
    counts: Counts,
    read_unit: &'r mut ReadUnit<'u>,
    /// True if the last document filled one line.
    one_a_line: bool,
    /// True if the last unit of a list ended its line.
    unit_a_line: bool,
    /// The bytes from the window's start to this position of the file contain no newline.
    no_newline_before: u64,
}

/// The document ended early: its problem was reported, or the sink asked to stop. The window starts
/// at the position of the problem.
struct Broken;

impl Documents<'_, '_> {
    fn run(&mut self) {
        self.window.skip_byte_order_mark();
        while let Some(first) = self.token() {
            if self.out.stopped() {
                return;
            }
            let start = self.window.place();
            if first == b'{'
                && let Some((end, last)) = self.whole_line()
            {
                let used = self.line(end, last);
                self.window.advance(used);
            } else if !matches!(first, b'{' | b'[') || first == b'[' && self.is_logged() {
                self.text_line();
            } else if self.document(0).is_ok() {
                self.one_a_line = self.window.place().1 == start.1;
            } else if !self.out.stopped() {
                self.resume(start.0);
            }
        }
        if let Some(error) = self.window.take_error() {
            let kind = match error.kind() {
                io::ErrorKind::UnexpectedEof => ProblemKind::Truncated,
                _ => ProblemKind::Unreadable,
            };
            self.out.problem(kind, self.window.place(), &error.to_string());
        }
    }

    /// Returns true if the bracket here begins a logger's prefix, such as `[main]`.
    fn is_logged(&mut self) -> bool {
        if !self.layout.behind_text {
            return false;
        }
        let mut at = 1;
        while matches!(self.window.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            at += 1;
        }
        !matches!(self.window.get(at), None | Some(b'{' | b'[' | b']'))
    }

    /// Handles a line that begins with text: moves to a document behind it, or skips the line.
    fn text_line(&mut self) {
        if self.layout.behind_text {
            let end = self.line_end(0);
            if let Some(at) = memchr::memmem::find(&self.window.bytes()[..end], BEHIND_TEXT) {
                return self.window.advance(at);
            }
            // Java's logger writes a line with the time before the line with the document.
            let next = self.line_end(end + 1);
            let is_heading = self.window.bytes().get(end + 1..next).is_some_and(|line| {
                !line.starts_with(b"{") && memchr::memmem::find(line, BEHIND_TEXT).is_some()
            });
            if is_heading {
                return self.window.advance(end + 1);
            }
        }
        self.bad(NO_DOCUMENT);
        self.skip_line();
    }

    /// The end of the line that is at this index of the window, or of the part of it that is
    /// searched.
    fn line_end(&mut self, start: usize) -> usize {
        let mut from = start;
        loop {
            let bytes = self.window.bytes();
            if let Some(found) = bytes.get(from..).and_then(|rest| memchr::memchr(b'\n', rest)) {
                return from + found;
            }
            from = from.max(bytes.len());
            if from - start.min(from) >= self.line_bytes_max || !self.window.more() {
                return from.min(self.window.bytes().len());
            }
        }
    }

    /// The end of the line that starts here, if it certainly consists of whole documents, and
    /// whether it is the last line.
    fn whole_line(&mut self) -> Option<(usize, bool)> {
        let (byte, _) = self.window.place();
        let mut from = usize::try_from(self.no_newline_before.saturating_sub(byte)).unwrap_or(usize::MAX);
        let newline = loop {
            let bytes = self.window.bytes();
            if let Some(found) = memchr::memchr(b'\n', bytes.get(from..).unwrap_or_default()) {
                break from + found;
            }
            from = from.max(bytes.len());
            self.no_newline_before = byte + from as u64;
            if from >= self.line_bytes_max {
                return None;
            }
            if !self.window.more() {
                break from;
            }
        };
        if newline > self.line_bytes_max {
            return None;
        }
        if !self.window.bytes()[..newline].trim_ascii_end().ends_with(b"}") {
            // A truncated line between complete ones: its rest must not be taken from the next
            // line.
            let cut = self.one_a_line && self.window.get(newline + 1) == Some(b'{');
            return cut.then_some((newline, false));
        }
        for at in newline..newline + self.line_bytes_max {
            match self.window.get(at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => {}
                Some(b'{') => return Some((newline, false)),
                None => return Some((newline, true)),
                Some(_) => break,
            }
        }
        None
    }

    /// Reads the documents of a line that ends at `end` and returns the end of the consumed part.
    /// After a broken document, that is the position where another one seems to begin.
    fn line(&mut self, end: usize, last: bool) -> usize {
        let Self { window, out, layout, limits, counts, read_unit, one_a_line, .. } = self;
        out.enter(window.place());
        let bytes = &window.bytes()[..end];
        with_text(bytes, |text| {
            let mut cursor = Cursor::new(text, 0, limits.nesting_max).made_of(bytes);
            let mut line = Line { out, layout, counts, read_unit };
            while cursor.peek().is_some() && !line.out.stopped() {
                let start = cursor.at();
                // Single records, one after the other, are one list.
                if !line.layout.unit_is_record || cursor.peek() == Some(b'[') {
                    line.out.document();
                }
                let Err(fault) = line.document(&mut cursor) else { continue };
                if let Fault { why: Why::End, at } = fault
                    && last
                {
                    line.out.problem_at(ProblemKind::Truncated, text, at, INSIDE_A_VALUE);
                } else {
                    line.out.fault(&cursor, fault);
                }
                // The fault may be the first byte of the document that follows the broken one.
                let from = fault.at.saturating_sub(1).max(start).min(end);
                let next = memchr::memmem::find(&bytes[from..], b"}{");
                return next.map_or(end, |found| from + found + 1);
            }
            *one_a_line = true;
            end
        })
    }

    /// Reads one document as a stream.
    fn document(&mut self, depth: usize) -> Result<(), Broken> {
        if depth == 0 && (!self.layout.unit_is_record || self.token() == Some(b'[')) {
            self.out.document();
        }
        if depth >= self.limits.nesting_max.min(NESTING_HARD_MAX) {
            self.out.limit(Limit::Nesting, self.window.place(), TOO_DEEP);
            return Err(Broken);
        }
        match self.token() {
            Some(b'[') => self.list(depth, |this, depth| match this.token() {
                Some(b'{') if this.layout.bare_list => {
                    this.counts.documents += 1;
                    this.unit(depth)
                }
                None | Some(b'{' | b'[') => this.document(depth),
                Some(_) => {
                    let place = this.window.place();
                    this.skip(Scanner::new(), 0)?;
                    this.out.problem(ProblemKind::BadRecord, place, NO_DOCUMENT);
                    Ok(())
                }
            }),
            Some(b'{') if self.is_unit() => {
                self.counts.documents += 1;
                self.unit(depth)
            }
            Some(b'{') => self.object(depth),
            _ => self.broken(NO_DOCUMENT),
        }
    }

    fn list(
        &mut self,
        depth: usize,
        mut element: impl FnMut(&mut Self, usize) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        self.window.advance(1);
        if self.token() == Some(b']') {
            self.window.advance(1);
            return Ok(());
        }
        loop {
            if self.out.stopped() {
                return Err(Broken);
            }
            element(self, depth + 1)?;
            match self.token() {
                Some(b',') => self.window.advance(1),
                Some(b']') => {
                    self.window.advance(1);
                    return Ok(());
                }
                _ => return self.broken("expected ',' or ']'"),
            }
        }
    }

    /// Returns true if the object that begins here is a unit.
    fn is_unit(&mut self) -> bool {
        if self.layout.lists.is_empty() || self.layout.unit_keys.is_empty() {
            return self.layout.lists.is_empty();
        }
        loop {
            let bytes = self.window.bytes();
            let (seen, look) = (bytes.len(), bytes.len().min(LOOK_BYTES_MAX));
            let role = with_text(&bytes[..look], |text| {
                self.layout.first_role(Cursor::new(text, 0, 1).made_of(&bytes[..look]))
            });
            if role != Role::Unknown || look < seen {
                return role == Role::Unit;
            }
            // The searched prefix doubles each time, so all searches together cost about as much as
            // the last one.
            while self.window.bytes().len() < 2 * seen && self.window.more() {}
            if self.window.bytes().len() == seen {
                return false;
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), Broken> {
        let start = self.window.place();
        let mut members = Members::default();
        self.window.advance(1);
        if self.token() == Some(b'}') {
            self.window.advance(1);
            return Ok(());
        }
        loop {
            let role = self.key()?;
            members.saw(role);
            match (role, self.token()) {
                (Role::List, Some(b'[')) => self.list(depth + 1, Self::unit)?,
                (Role::Wrapper, Some(b'{')) => self.document(depth + 1)?,
                (Role::List, Some(first)) if first != b'n' => {
                    self.bad("expected a list");
                    self.skip(Scanner::new(), 0)?;
                }
                _ => self.skip(Scanner::new(), 0)?,
            }
            match self.token() {
                Some(b',') => self.window.advance(1),
                Some(b'}') => {
                    self.window.advance(1);
                    break;
                }
                _ => return self.broken("expected ',' or '}'"),
            }
        }
        if !members.count(&mut self.counts) {
            self.out.problem(ProblemKind::BadRecord, start, &self.layout.missing());
        }
        Ok(())
    }

    /// Reads a key and its colon.
    fn key(&mut self) -> Result<Role, Broken> {
        if self.token() != Some(b'"') {
            return self.broken("expected a key");
        }
        let mut role = Role::Unknown;
        match self.extent(KEY_BYTES_MAX) {
            Extent::Whole(end) => {
                role = with_text(&self.window.bytes()[..end], |text| {
                    let key = Cursor::new(text, 0, 0).string();
                    key.map_or(Role::Unknown, |key| self.layout.role(&key))
                });
                self.window.advance(end);
            }
            Extent::TooLong(scanner, at) => self.skip(scanner, at)?,
            Extent::Cut(at, reason) => return self.cut(at, reason),
        }
        if self.token() != Some(b':') {
            return self.broken("expected ':'");
        }
        self.window.advance(1);
        Ok(role)
    }

    /// Reads one unit that is nested `depth` levels deep.
    fn unit(&mut self, depth: usize) -> Result<(), Broken> {
        self.token();
        if self.layout.unit_is_record && self.unit_a_line && self.record(depth) {
            return Ok(());
        }
        match self.extent(self.limits.record_bytes_max) {
            Extent::Whole(end) => {
                self.read(end, depth, true);
                self.window.advance(end);
                self.unit_a_line = ends_line(self.window.bytes());
                Ok(())
            }
            Extent::TooLong(scanner, at) => {
                let detail = format!("record longer than {} bytes", self.limits.record_bytes_max);
                let place = self.window.place();
                // A resource may exceed the limit although its spans do not: the spans before the
                // limit are used.
                self.read(self.limits.record_bytes_max, depth, false);
                self.out.limit(Limit::RecordBytes, place, &detail);
                self.skip(scanner, at)
            }
            Extent::Cut(at, reason) => {
                self.read(at, depth, false);
                self.cut(at, reason)
            }
        }
    }

    /// Reads a unit that is one record without finding its end first, if the unit is on this line
    /// and valid. Returns false if nothing was read. Only the first unit of a line is tried, so no
    /// line is searched twice.
    fn record(&mut self, depth: usize) -> bool {
        let Self { window, out, limits, read_unit, .. } = self;
        let bytes = window.bytes();
        let Some(end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(self.line_bytes_max)]) else {
            return false;
        };
        out.enter(window.place());
        let line = &bytes[..end];
        let read = with_text(line, |text| {
            let mut cursor = Cursor::new(text, depth, limits.nesting_max).made_of(line);
            // A fault is found again, and reported, after the unit's end has been found.
            read_unit(&mut cursor, out).is_ok().then(|| cursor.at())
        });
        let Some(used) = read else { return false };
        window.advance(used);
        self.unit_a_line = ends_line(self.window.bytes());
        true
    }

    /// Passes the unit before `end` to the format's reader. If the unit is truncated, the part
    /// before the cut is used.
    fn read(&mut self, end: usize, depth: usize, whole: bool) {
        let Self { window, out, limits, read_unit, .. } = self;
        out.enter(window.place());
        let unit = &window.bytes()[..end];
        with_text(unit, |text| {
            let mut cursor = Cursor::new(text, depth, limits.nesting_max).made_of(unit);
            if let Err(fault) = read_unit(&mut cursor, out)
                && whole
            {
                out.fault(&cursor, fault);
            }
        });
    }

    /// The extent of the value at the window's start. The window keeps the value unless it is
    /// longer than `bytes_max`.
    fn extent(&mut self, bytes_max: usize) -> Extent {
        let mut scanner = Scanner::new();
        let mut at = 0;
        loop {
            match scanner.feed(self.window.bytes(), at) {
                Scan::Done(end) if end <= bytes_max => return Extent::Whole(end),
                // The end was found, but the value exceeds the limit.
                Scan::Done(_) => return Extent::TooLong(Scanner::new(), 0),
                Scan::Bad(at, reason) => return Extent::Cut(at, Some(reason)),
                Scan::More(from) => at = from,
            }
            if at > bytes_max {
                return Extent::TooLong(scanner, at);
            }
            if !self.window.more() {
                return Extent::Cut(self.window.bytes().len(), None);
            }
        }
    }

    /// Skips a value of any size.
    fn skip(&mut self, mut scanner: Scanner, mut at: usize) -> Result<(), Broken> {
        loop {
            match scanner.feed(self.window.bytes(), at) {
                Scan::Done(end) => {
                    self.window.advance(end);
                    return Ok(());
                }
                Scan::Bad(at, reason) => return self.cut(at, Some(reason)),
                Scan::More(from) => at = from,
            }
            self.window.advance(at);
            at = 0;
            if !self.window.more() {
                return self.cut(self.window.bytes().len(), None);
            }
        }
    }

    /// Moves the window to the next token and returns its first byte.
    fn token(&mut self) -> Option<u8> {
        loop {
            let blank = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
            let bytes = self.window.bytes();
            let blanks = bytes.iter().position(|byte| !blank(byte)).unwrap_or(bytes.len());
            self.window.advance(blanks);
            if let Some(&first) = self.window.bytes().first() {
                return Some(first);
            }
            if !self.window.more() {
                return None;
            }
        }
    }

    fn bad(&mut self, reason: &str) {
        self.out.problem(ProblemKind::BadRecord, self.window.place(), reason);
    }

    /// Reports that the document is broken at the window's start.
    fn broken<T>(&mut self, reason: &'static str) -> Result<T, Broken> {
        let reason = if self.window.bytes().is_empty() { None } else { Some(reason) };
        self.cut(0, reason)
    }

    /// Reports that the document is broken at a byte of the window. A missing reason means that the
    /// input ends there.
    fn cut<T>(&mut self, at: usize, reason: Option<&'static str>) -> Result<T, Broken> {
        self.window.advance(at);
        match reason {
            Some(reason) => self.bad(reason),
            None if self.window.is_cut_by_error() => {}
            None => self.out.problem(ProblemKind::Truncated, self.window.place(), INSIDE_A_VALUE),
        }
        Err(Broken)
    }

    fn skip_line(&mut self) {
        loop {
            let bytes = self.window.bytes();
            if let Some(newline) = memchr::memchr(b'\n', bytes) {
                return self.window.advance(newline + 1);
            }
            self.window.advance(bytes.len());
            if !self.window.more() {
                return;
            }
        }
    }

    /// Recovers from a document that began at byte `start` and broke here: moves to the position
    /// where the next document may begin.
    fn resume(&mut self, start: u64) {
        let follows = |before: Option<u8>, first: u8| match before {
            Some(b'\n') => matches!(first, b'{' | b'['),
            Some(b'}') => first == b'{',
            _ => false,
        };
        while let Some(first) = self.window.get(0) {
            let before = self.window.before();
            let begins = follows(before, first) || self.one_a_line && before == Some(b'\n');
            if begins && self.window.place().0 > start {
                return;
            }
            let bytes = self.window.bytes();
            let next = memchr::memchr2(b'\n', b'}', bytes).map_or(bytes.len(), |found| found + 1);
            self.window.advance(next);
        }
    }
}

/// Returns true if a line ends here, ignoring a comma.
fn ends_line(bytes: &[u8]) -> bool {
    let rest = bytes.strip_prefix(b",").unwrap_or(bytes);
    rest.strip_prefix(b"\r").unwrap_or(rest).starts_with(b"\n")
}

/// The extent of a value.
enum Extent {
    /// The value ends before this index.
    Whole(usize),
    /// The value exceeds the limit; the scan can continue from this index.
    TooLong(Scanner, usize),
    /// The value breaks at this index. A missing reason means that the input ends there.
    Cut(usize, Option<&'static str>),
}

/// Calls `read` with the bytes as text; each byte of invalid UTF-8 is substituted.
fn with_text<T>(bytes: &[u8], read: impl FnOnce(&str) -> T) -> T {
    if let Ok(text) = str::from_utf8(bytes) {
        return read(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| SUBSTITUTE));
    }
    read(&text)
}
