//! Layouts of log4j and logback: the patterns by which a logger writes a record's parts.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::LazyLock;

use super::civil;
use super::known::KNOWN;
use super::levels;
use super::stamp::Stamp;
use super::writer::Writer;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::LogRecord;
use astracer_model::value::{Attribute, Value};

/// A layout such as `%d [%t] %p %c: %m`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    parts: Vec<Part>,
    /// The time in letters of strftime, if the pattern states it so.
    civil: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Text between the fields. Blanks stand for any number of blanks.
    Literal(String),
    Field(Field),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Time,
    Severity,
    /// The first letter of a severity.
    Letter,
    Logger,
    Thread,
    File,
    Function,
    Line,
    Message,
    Host,
    Service,
    Process,
    /// The number of a thread.
    ThreadNumber,
    /// A value of the diagnostic context, under its key.
    Context(String),
    /// A part that is not kept.
    Other,
}

/// The known layouts with their names. Parsing them takes longer than reading a short file.
static PARSED: LazyLock<Vec<(&'static str, Layout)>> = LazyLock::new(|| {
    KNOWN.iter().filter_map(|&(name, pattern)| Some((name, pattern.parse().ok()?))).collect()
});

/// Ends of threads' names that are tried in one line.
const TRIES_MAX: u32 = 16;

impl FromStr for Layout {
    type Err = String;

    fn from_str(pattern: &str) -> Result<Self, String> {
        let mut parts: Vec<Part> = Vec::new();
        let (mut literal, mut time) = (String::new(), None);
        let mut rest = pattern;
        while let Some(next) = rest.chars().next() {
            rest = &rest[next.len_utf8()..];
            if next != '%' {
                literal.push(next);
                continue;
            }
            if let Some(behind) = rest.strip_prefix('%') {
                literal.push('%');
                rest = behind;
                continue;
            }
            let civil = civil_time(rest);
            time = time.or_else(|| civil.map(|len| format!("%{}", &rest[..len])));
            let conversion = match civil {
                Some(len) => Some((Some(Field::Time), "", &rest[len..])),
                None => conversion(rest),
            };
            let (field, option, behind) = conversion.ok_or_else(|| {
                let shown: String = rest.chars().take(12).collect();
                format!(
                    "unknown conversion '%{shown}' in the layout: use %d or letters of strftime for the \
                     time, %p, %c, %t, %F, %M, %L, %m, %h, %pid, %service, %X{{key}} or %n"
                )
            })?;
            rest = behind;
            let Some(field) = field else { continue };
            if field == Field::Time {
                time = time.or_else(|| civil::letters(option));
            }
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            } else if let (Some(Part::Field(before)), false) = (parts.last(), field == Field::Message)
                && *before != Field::Letter
            {
                return Err(format!("two fields of the layout '{pattern}' touch; put a text between them"));
            }
            parts.push(Part::Field(field));
        }
        if !literal.trim().is_empty() {
            parts.push(Part::Literal(literal));
        }
        for (field, name) in [(Field::Time, "%d"), (Field::Message, "%m")] {
            if !parts.contains(&Part::Field(field)) {
                return Err(format!("the layout '{pattern}' has no {name}; add it"));
            }
        }
        Ok(Self { parts, civil: time })
    }
}

/// The length of a time in letters of strftime at the start of a pattern behind its first `%`, such
/// as `%Y-%m-%d %H:%M:%S.%f`. The scanner of times knows the form by itself.
///
/// log4j has some of the letters, too. They belong to the time where they touch another part of it.
fn civil_time(pattern: &str) -> Option<usize> {
    let bytes = pattern.as_bytes();
    let (mut at, mut end) = (0, None);
    let (mut before, mut separator, mut has_clock, mut has_half) = (0, 0, false, false);
    loop {
        let modifiers = bytes[at..].iter().take_while(|&&byte| b".:-0123456789".contains(&byte)).count();
        let letter = *bytes.get(at + modifiers)?;
        let behind = &pattern[at + modifiers + 1..];
        let touches = before != 0 && !matches!(separator, 0 | b' ');
        let is_time = match letter {
            b'Y' | b'y' | b'G' | b'b' | b'B' | b'a' | b'A' | b'H' | b'I' | b'k' | b'j' | b'S' | b'f'
            | b'N' | b'T' | b'D' | b'R' | b'V' | b'u' | b'z' | b'Z' | b's' => {
                // `%service` and the like are words.
                !behind.starts_with(|next: char| next.is_ascii_lowercase())
            }
            b'F' => [" %T", " %H", "T%H", "T%T"].iter().any(|start| behind.starts_with(start)),
            b'd' | b'm' | b'e' if modifiers <= 1 => {
                let is_next = |starts: &[&str]| starts.iter().any(|start| behind.starts_with(start));
                let begins = is_next(&["/%", "-%", ".%"])
                    && behind[2..].starts_with(|next: char| "bBmdeyY".contains(next));
                let runs_on = separator == 0 && (before == b'Y' && is_next(&["%d"]) || before == b'm');
                touches
                    || runs_on
                    || matches!(before, b'b' | b'B' | b'a' | b'A')
                    || begins
                    || is_next(&[" %b", " %B"])
            }
            b'M' => touches && matches!(before, b'H' | b'I' | b'k') || before == b'H' && separator == 0,
            b'p' => has_half,
            _ => false,
        };
        if !is_time {
            break;
        }
        has_clock |= matches!(letter, b'H' | b'I' | b'k' | b'T' | b'R' | b's');
        has_half |= letter == b'I';
        before = letter;
        at += modifiers + 1;
        end = Some(at);
        let signs = bytes[at..].iter().take(2).take_while(|&&byte| b"-/.:, T_W".contains(&byte)).count();
        separator = bytes[at..at + signs].last().copied().unwrap_or(0);
        // Behind a bar, which also parts fields, only an hour belongs to the time.
        let has_bar =
            signs == 0 && ["|%H", "|%I", "|%k", "|%T"].iter().any(|bar| pattern[at..].starts_with(bar));
        let signs = signs + usize::from(has_bar);
        if bytes.get(at + signs) != Some(&b'%') {
            break;
        }
        at += signs + 1;
    }
    let end = end.filter(|_| has_clock)?;
    let is_utc = bytes.get(end) == Some(&b'Z') && !bytes.get(end + 1).is_some_and(u8::is_ascii_alphanumeric);
    Some(end + usize::from(is_utc))
}

/// The field of a conversion such as `-5.30logger{36}`, its first option, and the text behind it.
/// The field is `None` for a line end.
fn conversion(text: &str) -> Option<(Option<Field>, &str, &str)> {
    let format_len = text.len()
        - text.trim_start_matches(|next: char| next.is_ascii_digit() || matches!(next, '-' | '.')).len();
    let (format, text) = text.split_at(format_len);
    let name_len = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    const NAMES: &[(&str, Field)] = &[
        ("date", Field::Time),
        ("level", Field::Severity),
        ("logger", Field::Logger),
        ("thread", Field::Thread),
        ("file", Field::File),
        ("class", Field::Logger),
        ("method", Field::Function),
        ("line", Field::Line),
        ("message", Field::Message),
        ("msg", Field::Message),
        ("pid", Field::Process),
        ("processId", Field::Process),
        ("tid", Field::ThreadNumber),
        ("threadId", Field::ThreadNumber),
        ("host", Field::Host),
        ("h", Field::Host),
        ("service", Field::Service),
        ("tn", Field::Thread),
        ("le", Field::Severity),
        ("lo", Field::Logger),
        ("d", Field::Time),
        ("p", Field::Severity),
        ("c", Field::Logger),
        ("C", Field::Logger),
        ("t", Field::Thread),
        ("F", Field::File),
        ("M", Field::Function),
        ("L", Field::Line),
        ("m", Field::Message),
        ("r", Field::Other),
        ("x", Field::Other),
    ];
    let word = &text[..name_len];
    let (field, len) = match word {
        "n" => (None, 1),
        "X" | "mdc" | "MDC" => (Some(Field::Context(String::new())), word.len()),
        // A word may run into the text behind it (`%mms`), so the longest known start counts.
        _ => {
            let (name, field) = NAMES.iter().find(|(name, _)| word.starts_with(name))?;
            (Some(field.clone()), name.len())
        }
    };
    let mut rest = &text[len..];
    let mut option = "";
    while let Some(inside) = rest.strip_prefix('{') {
        let end = inside.find('}')?;
        if option.is_empty() {
            option = &inside[..end];
        }
        rest = &inside[end + 1..];
    }
    let field = match field {
        Some(Field::Context(_)) => Some(Field::Context(option.split(':').next().unwrap_or("").to_owned())),
        Some(Field::Severity) if format.ends_with(".1") => Some(Field::Letter),
        field => field,
    };
    Some((field, option, rest))
}

impl Layout {
    /// The known layout that most of these lines follow and then the others of its name, which a
    /// logger may mix; `None` if fewer than half of the lines follow one. Each line comes with its
    /// time and the place of its time.
    pub(super) fn recognise(lines: &[(&str, usize, Stamp)]) -> Option<(&'static str, Vec<Self>)> {
        let count = |layout: &Self| {
            let follows =
                |(line, start, stamp): &&(&str, usize, Stamp)| layout.read(line, *start, stamp).is_some();
            lines.iter().filter(follows).count()
        };
        let counts: Vec<usize> = PARSED.iter().map(|(_, layout)| count(layout)).collect();
        let most = counts.iter().copied().max().unwrap_or(0);
        // A few lines of other loggers don't matter.
        let is_usual = |count: usize| count * 5 >= most * 4 && count * 2 >= lines.len() && count > 0;
        let found = counts.iter().position(|&count| is_usual(count))?;
        let (name, layout) = &PARSED[found];
        let is_other = |&(index, (own, _)): &(usize, &(&str, Self))| index != found && own == name;
        let others = PARSED.iter().enumerate().filter(is_other).map(|(_, (_, other))| other.clone());
        Some((*name, std::iter::once(layout.clone()).chain(others).collect()))
    }

    /// The time at the start of a text in the pattern's letters of strftime, for forms that the
    /// scanner of times does not know.
    pub(super) fn stamp(&self, text: &str) -> Option<Stamp> {
        civil::stamp(self.civil.as_ref()?, text)
    }

    /// The record of a text: its first line follows the layout, and further lines belong to the
    /// message. `None` if the first line does not follow the layout. The stamp is the time that
    /// begins at `start`; the record's time is not set.
    pub(super) fn read<'t>(&self, text: &'t str, start: usize, stamp: &Stamp) -> Option<Parts<'t>> {
        let first_end = text.find('\n').unwrap_or(text.len());
        let mut found = Parts::default();
        let mut line = Line { text, first_end, start, stamp_len: stamp.len, tries: TRIES_MAX };
        if !self.parts_from(0, &mut line, 0, &mut found) {
            return None;
        }
        // Where the message is not the last part, further lines are behind another part.
        let further = text[first_end..].trim_end();
        if self.parts.last() != Some(&Part::Field(Field::Message))
            && !further.is_empty()
            && let Value::String(message) = &found.log.body
        {
            found.log.body = Value::String(Cow::Owned(format!("{message}{further}")));
        }
        Some(found)
    }

    /// Reads the parts from this one on. A thread's name may contain the text that ends it
    /// (`[DataNode: [[DISK] /data]] heartbeating]`), so later ends are tried too.
    fn parts_from<'t>(&self, first: usize, of: &mut Line<'t>, mut at: usize, found: &mut Parts<'t>) -> bool {
        for (index, part) in self.parts.iter().enumerate().skip(first) {
            let line = of.text[at..of.first_end].trim_end_matches('\r');
            let field = match part {
                Part::Literal(literal) => {
                    let Some(len) = literal_len(line, literal) else { return false };
                    at += len;
                    continue;
                }
                Part::Field(Field::Time) => {
                    if at != of.start {
                        return false;
                    }
                    at += of.stamp_len;
                    continue;
                }
                Part::Field(field) => field,
            };
            if *field == Field::Letter {
                let Some(letter) = line.get(..1) else { return false };
                if fill(found, field, letter).is_none() {
                    return false;
                }
                at += 1;
                continue;
            }
            let behind = match self.parts.get(index + 1) {
                Some(Part::Literal(literal)) => Some(&**literal),
                _ => None,
            };
            if let (Field::Thread, Some(literal)) = (field, behind) {
                let attributes = found.log.attributes.len();
                let mut ends = field_ends(line, literal);
                return ends.any(|len| {
                    found.log.thread = Cow::Borrowed(of.text[at..at + len].trim());
                    found.log.attributes.truncate(attributes);
                    let had = of.tries > 0;
                    of.tries = of.tries.saturating_sub(1);
                    had && self.parts_from(index + 1, of, at + len, found)
                });
            }
            let len = match (field, behind) {
                (Field::Message, None) => Some(of.text.len() - at),
                (_, None) => Some(line.len()),
                (Field::Message, Some(literal)) => line.rfind(literal),
                (_, Some(literal)) => field_ends(line, literal).next(),
            };
            let Some(len) = len else { return false };
            if fill(found, field, of.text[at..at + len].trim()).is_none() {
                return false;
            }
            at += len;
        }
        at >= of.first_end || of.text[at..of.first_end].trim().is_empty()
    }
}

/// A record and the process that wrote it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Parts<'t> {
    pub(super) log: LogRecord<'t>,
    pub(super) writer: Writer<'t>,
}

/// One reading of a text by a layout.
struct Line<'t> {
    text: &'t str,
    first_end: usize,
    start: usize,
    stamp_len: usize,
    tries: u32,
}

/// The length of a literal at the start of a line; its blanks stand for any number of blanks.
fn literal_len(line: &str, literal: &str) -> Option<usize> {
    let mut rest = line;
    let mut words = literal.split(' ').peekable();
    while let Some(word) = words.next() {
        rest = rest.strip_prefix(word)?;
        if words.peek().is_some() {
            rest = rest.trim_start_matches([' ', '\t']);
        }
    }
    Some(line.len() - rest.len())
}

/// The lengths that a field may have: it ends where the literal begins.
fn field_ends<'l>(line: &'l str, literal: &'l str) -> impl Iterator<Item = usize> + 'l {
    let padding = line.len() - line.trim_start_matches(' ').len();
    let sign = literal.trim_start_matches(' ');
    let mut from = padding;
    std::iter::from_fn(move || {
        loop {
            let rest = line.get(from..)?;
            let found = match sign {
                "" => rest.find(' ').unwrap_or(rest.len()),
                sign => rest.find(sign)?,
            };
            let end = from + found;
            let before = &line[..end];
            from = end + sign.len().max(1);
            if sign.len() == literal.len() || sign.is_empty() || before.ends_with(' ') {
                // Blanks before a sign that begins with none belong to the field: `[INFO ][`.
                let is_padded = sign.len() != literal.len() || sign.is_empty();
                let text = if is_padded { before.trim_end_matches(' ') } else { before };
                return Some(text.len().max(padding));
            }
        }
    })
}

/// Sets a part of the record; `None` if the text can't be that part.
fn fill<'t>(found: &mut Parts<'t>, field: &Field, part: &'t str) -> Option<()> {
    let log = &mut found.log;
    let is_word = !part.is_empty() && !part.contains(char::is_whitespace);
    let is_number = is_word && part.len() <= 20 && part.bytes().all(|byte| byte.is_ascii_digit());
    let text = Cow::Borrowed(part);
    match field {
        Field::Severity => {
            log.severity = levels::of_word(part)?;
            log.severity_text = text;
        }
        Field::Letter => {
            log.severity = levels::of_letter(part)?;
            log.severity_text = text;
        }
        // A colon in a name is doubled, as in Rust's and C++'s paths.
        Field::Logger if is_word && !part.replace("::", "").contains(':') => log.logger = text,
        Field::File if is_word => log.code.file = text,
        Field::Function if is_word => log.code.function = text,
        Field::Host
            if is_word && part.as_bytes()[0].is_ascii_alphanumeric() && levels::of_word(part).is_none() =>
        {
            found.writer.host = text;
        }
        // Syslog's tag may end with the process: `sshd[12]`.
        Field::Service if is_word => match part.strip_suffix(']').and_then(|tag| tag.rsplit_once('[')) {
            Some((name, process)) if process.bytes().all(|byte| byte.is_ascii_digit()) => {
                (found.writer.service, found.writer.process) = (Cow::Borrowed(name), Cow::Borrowed(process));
            }
            _ => found.writer.service = text,
        },
        Field::Process if is_number => found.writer.process = text,
        // Syslog's sign for a missing value.
        Field::Process if part == "-" => {}
        Field::ThreadNumber if is_number => log.thread = text,
        Field::Logger | Field::File | Field::Function => return None,
        Field::Host | Field::Service | Field::Process | Field::ThreadNumber => return None,
        Field::Line => log.code.line = part.parse().ok()?,
        Field::Thread => log.thread = text,
        Field::Message => log.body = Value::String(text),
        Field::Context(key) => context(log, key, text),
        Field::Time | Field::Other => {}
    }
    Some(())
}

fn context<'t>(log: &mut LogRecord<'t>, key: &str, text: Cow<'t, str>) {
    if super::ids::is_trace_id(key) {
        log.trace_id = TraceId::from_hex(&text).unwrap_or_default();
    } else if super::ids::is_span_id(key) {
        log.span_id = SpanId::from_hex(&text).unwrap_or_default();
    } else if !text.is_empty() && !key.is_empty() {
        log.attributes.push(Attribute { key: Cow::Owned(key.to_owned()), value: Value::String(text) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments::logs::stamp;
    use astracer_model::log::Severity;

    /// The record of a text by the first of its times that fits the pattern.
    fn read<'t>(pattern: &str, text: &'t str) -> Option<LogRecord<'t>> {
        let layout: Layout = pattern.parse().expect("a layout");
        let mut log = None;
        stamp::each_place(text.as_bytes(), |start, _| {
            let stamp = stamp::at(&text.as_bytes()[start..]);
            log = stamp.and_then(|stamp| layout.read(text, start, &stamp)).map(|found| found.log);
            log.is_some()
        });
        log
    }

    #[test]
    fn a_line_is_read_by_its_layout() {
        let line = "2026-11-21 00:56:59,259 WARN  [main] util.NativeCodeLoader: Unable to load: x\n\tat y";
        let log = read("%d{ISO8601} %-5p [%t] %c{2}: %m%n", line).expect("a record");
        assert_eq!(
            (&*log.logger, &*log.thread, log.severity),
            ("util.NativeCodeLoader", "main", Severity::WARN)
        );
        assert_eq!(log.text(), "Unable to load: x\n\tat y");

        let kafka =
            read("[%d] %p %m (%c)%n", "[2026-11-21 00:56:59,259] INFO a (b) c (kafka.Server)").unwrap();
        assert_eq!((kafka.text(), &*kafka.logger), ("a (b) c", "kafka.Server"));
        let zookeeper = "2018-05-09 16:43:48,118 [myid:1] - INFO  [main:QuorumPeerConfig@109] - Reading";
        let zookeeper = read("%d{ISO8601} [myid:%X{myid}] - %-5p [%t:%C{1}@%L] - %m%n", zookeeper).unwrap();
        assert_eq!(
            (&*zookeeper.logger, zookeeper.code.line, zookeeper.text()),
            ("QuorumPeerConfig", 109, "Reading")
        );
        let boot =
            "2026-11-21 00:56:59.259  INFO [shop,0af7,00b7] 71 --- [  nio-8080-1] c.e.Shop       : sold 3";
        let boot =
            read("%d %5p [%X{app},%X{traceId},%X{spanId}] %pid --- [%15.15t] %-40.40logger{39} : %m%n", boot);
        let boot = boot.expect("a record");
        assert_eq!(
            (boot.trace_id, boot.span_id, &*boot.thread),
            (TraceId(0x0af7), SpanId(0xb7), "nio-8080-1")
        );
        assert_eq!((&*boot.logger, boot.text()), ("c.e.Shop", "sold 3"));
        // A thread of Hadoop's DataNode.
        let nested = "2026-11-21 00:56:40,276 INFO  [DataNode: [[[DISK]file:/d1/]]  heartbeating to /h:19000] datanode.DataNode: Block [x] y: z";
        let nested = read("%d %p [%t] %c: %m", nested).expect("a record");
        assert_eq!(
            (&*nested.thread, &*nested.logger, nested.text()),
            (
                "DataNode: [[[DISK]file:/d1/]]  heartbeating to /h:19000",
                "datanode.DataNode",
                "Block [x] y: z"
            )
        );
        for other in
            ["", "\tat x", "2026-11-21 00:56:59,259 LOUD [main] a: b", "2026-11-21 00:56:59,259 WARN [main"]
        {
            assert_eq!(read("%d %p [%t] %c: %m", other), None, "{other}");
        }
    }

    #[test]
    fn the_known_layouts_are_patterns() {
        for (name, pattern) in KNOWN {
            pattern.parse::<Layout>().unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn layouts_are_recognised_by_most_of_their_lines() {
        for (text, pattern) in [
            ("2026-11-21 00:56:59,259 INFO  [main] n.NameNode: STARTUP_MSG: ", "%d %p [%t] %c: %m"),
            ("2018-05-09 16:43:48 INFO  QuorumPeerConfig:109 - Reading from: /x", "%d %p %c:%L - %m"),
            ("2026-11-21 00:56:59,259 INFO org.a.B: x", "%d %p %c: %m"),
            ("2026-11-21 00:56:59,259 - root - WARNING - careful", "%d - %c - %p - %m"),
        ] {
            let stamp = stamp::at(text.as_bytes()).expect("a stamp");
            let found = Layout::recognise(&[(text, 0, stamp)]).map(|(_, layouts)| layouts);
            let found = found.as_deref().and_then(|layouts| layouts.first());
            assert_eq!(found, Some(&pattern.parse().unwrap()), "{text}");
        }
        let stamp = stamp::at(b"2026-11-21 00:56:59,259").expect("a stamp");
        assert_eq!(Layout::recognise(&[("2026-11-21 00:56:59,259 hello", 0, stamp)]), None);
    }

    #[test]
    fn times_may_be_in_letters_of_strftime() {
        for (pattern, expected) in [
            ("%Y-%m-%d %H:%M:%S,%f %p [%t] %c: %m", "%d %p [%t] %c: %m"),
            ("%Y-%m-%dT%H:%M:%S.%3fZ %m", "%d %m"),
            ("%d/%b/%Y:%H:%M:%S %z %p %m", "%d %p %m"),
            ("%b %e %H:%M:%S %h %service[%pid]: %m", "%d %h %service[%pid]: %m"),
            ("%F %T|%F:%L|%m", "%d|%F:%L|%m"),
            ("%m/%d/%Y %I:%M:%S %p %m", "%d %m"),
            ("%a %b %d %H:%M:%S %Y %m", "%d %m"),
            ("%s %m", "%d %m"),
            ("%Y%m%d%H%M%S %m", "%d %m"),
            ("%s.%f %M %m", "%d %M %m"),
            ("%p %H:%M:%S.%f - %m", "%p %d - %m"),
            ("%Y-%m-%d|%H:%M:%S|%m", "%d|%m"),
            ("%d{yyyy-MM-dd|HH:mm:ss}|%m", "%d|%m"),
        ] {
            let parts = |pattern: &str| pattern.parse().map(|layout: Layout| layout.parts);
            assert_eq!(parts(pattern), parts(expected), "{pattern}");
        }
        assert!("%Y %m".parse::<Layout>().is_err());
    }

    #[test]
    fn wrong_layouts_are_refused() {
        for (pattern, reason) in [("%d %m %q", "%q"), ("%p %m", "%d"), ("%d %p", "%m"), ("%d%p %m", "touch")]
        {
            let error = pattern.parse::<Layout>().unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
