//! Layouts of log4j and logback: the patterns by which a logger writes a record's parts.

use std::borrow::Cow;
use std::str::FromStr;

use super::time::{self, Zone};
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::{LogRecord, Severity};
use astracer_model::value::{Attribute, Value};

/// A layout such as `%d [%t] %p %c: %m`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    parts: Vec<Part>,
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
    Logger,
    Thread,
    File,
    Function,
    Line,
    Message,
    /// A value of the diagnostic context, under its key.
    Context(String),
    /// A part that is not kept.
    Other,
}

/// Layouts that are recognised without being named, the more specific first. Each has a severity.
const KNOWN: &[&str] = &[
    "%d %p %c#%L TraceID: %X{trace_id} SpanID: %X{span_id} %m",
    "%d [myid:%X{myid}] - %p [%t:%c@%L] - %m",
    "%d %p [%X{app},%X{trace_id},%X{span_id}] %pid --- [%t] %c : %m",
    "%d %p %pid --- [%t] %c : %m",
    "%d %p [%t] %c:%L - %m",
    "%d [%t] %p %c:%L - %m",
    "%d %p %c:%L - %m",
    "%d %p [%t] %c - %m",
    "%d [%t] %p %c - %m",
    "%d - %c - %p - %m",
    "%d %p %c - %m",
    "%d %p [%t] %c: %m",
    "%d [%t] %p %c: %m",
    "%d %p %c: %m",
    "[%d] %p %m (%c)",
    "%d [%t] %p %m",
    "%d [%p] %m",
    "%d %p %m",
];

/// Ends of threads' names that are tried in one line.
const TRIES_MAX: u32 = 16;

/// Lines that are looked at to recognise a layout.
const LINES_LOOKED_AT: usize = 200;

impl FromStr for Layout {
    type Err = String;

    fn from_str(pattern: &str) -> Result<Self, String> {
        let mut parts: Vec<Part> = Vec::new();
        let mut literal = String::new();
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
            let (field, behind) = conversion(rest).ok_or_else(|| {
                let shown: String = rest.chars().take(12).collect();
                format!("unknown conversion '%{shown}' in the layout: use %d, %p, %c, %t, %F, %M, %L, %m, %X{{key}} or %n")
            })?;
            rest = behind;
            let Some(field) = field else { continue };
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            } else if let (Some(Part::Field(_)), false) = (parts.last(), field == Field::Message) {
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
        Ok(Self { parts })
    }
}

/// The field of a conversion such as `-5.30logger{36}`, and the text behind it. The field is `None`
/// for a line end.
fn conversion(text: &str) -> Option<(Option<Field>, &str)> {
    let text = text.trim_start_matches(|next: char| next.is_ascii_digit() || matches!(next, '-' | '.'));
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
        ("pid", Field::Other),
        ("processId", Field::Other),
        ("tid", Field::Thread),
        ("threadId", Field::Thread),
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
        field => field,
    };
    Some((field, rest))
}

impl Layout {
    /// The known layout that most of the first lines have; `None` if too few lines have one.
    pub(super) fn recognise(text: &str, zone: Zone) -> Option<Self> {
        let lines: Vec<&str> = text.lines().take(LINES_LOOKED_AT).collect();
        let known = || KNOWN.iter().filter_map(|pattern| pattern.parse::<Self>().ok());
        let count = |layout: &Self| lines.iter().filter(|line| layout.read(line, zone).is_some()).count();
        let most = known().map(|layout| count(&layout)).max().unwrap_or(0);
        // A few lines of other loggers don't matter.
        known().find(|layout| most > 0 && count(layout) * 5 >= most * 4)
    }

    /// True if a line begins a record.
    pub(super) fn is_head(&self, line: &str, zone: Zone) -> bool {
        self.read(line, zone).is_some()
    }

    /// The record of a text: its first line follows the layout, and further lines belong to the
    /// message. `None` if the first line does not follow the layout.
    pub(super) fn read<'t>(&self, text: &'t str, zone: Zone) -> Option<LogRecord<'t>> {
        let first_end = text.find('\n').unwrap_or(text.len());
        let mut log = LogRecord::default();
        let mut tries = TRIES_MAX;
        self.parts_from(0, text, first_end, 0, zone, &mut log, &mut tries).then_some(log)
    }

    /// Reads the parts from this one on. A thread's name may contain the text that ends it
    /// (`[DataNode: [[DISK] /data]] heartbeating]`), so later ends are tried too.
    #[expect(clippy::too_many_arguments, reason = "the state of one reading, passed down by itself")]
    fn parts_from<'t>(
        &self,
        first: usize,
        text: &'t str,
        first_end: usize,
        mut at: usize,
        zone: Zone,
        log: &mut LogRecord<'t>,
        tries: &mut u32,
    ) -> bool {
        for (index, part) in self.parts.iter().enumerate().skip(first) {
            let line = text[at..first_end].trim_end_matches('\r');
            let field = match part {
                Part::Literal(literal) => {
                    let Some(len) = literal_len(line, literal) else { return false };
                    at += len;
                    continue;
                }
                Part::Field(Field::Time) => {
                    let Some((time, len)) = time::leading(line, zone) else { return false };
                    log.time = Some(time);
                    at += len;
                    continue;
                }
                Part::Field(field) => field,
            };
            let behind = match self.parts.get(index + 1) {
                Some(Part::Literal(literal)) => Some(&**literal),
                _ => None,
            };
            if let (Field::Thread, Some(literal)) = (field, behind) {
                let attributes = log.attributes.len();
                let mut ends = field_ends(line, literal);
                return ends.any(|len| {
                    log.thread = Cow::Borrowed(text[at..at + len].trim());
                    log.attributes.truncate(attributes);
                    let had = *tries > 0;
                    *tries = tries.saturating_sub(1);
                    had && self.parts_from(index + 1, text, first_end, at + len, zone, log, tries)
                });
            }
            let len = match (field, behind) {
                (Field::Message, None) => Some(text.len() - at),
                (_, None) => Some(line.len()),
                (Field::Message, Some(literal)) => line.rfind(literal),
                (_, Some(literal)) => field_ends(line, literal).next(),
            };
            let Some(len) = len else { return false };
            if fill(log, field, text[at..at + len].trim()).is_none() {
                return false;
            }
            at += len;
        }
        true
    }
}

/// The length of a literal at the start of a line; its blanks stand for any number of blanks.
fn literal_len(line: &str, literal: &str) -> Option<usize> {
    let mut rest = line;
    let mut words = literal.split(' ').peekable();
    while let Some(word) = words.next() {
        rest = rest.strip_prefix(word)?;
        if words.peek().is_some() {
            rest = rest.trim_start_matches(' ');
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
                return Some(before.trim_end_matches(' ').len().max(padding));
            }
        }
    })
}

/// Sets a part of the record; `None` if the text can't be that part.
fn fill<'t>(log: &mut LogRecord<'t>, field: &Field, text: &'t str) -> Option<()> {
    let is_word = !text.is_empty() && !text.contains(char::is_whitespace);
    let text = Cow::Borrowed(text);
    match field {
        Field::Severity => {
            log.severity = Severity::from_word(&text)?;
            log.severity_text = text;
        }
        Field::Logger if is_word => log.logger = text,
        Field::File if is_word => log.code.file = text,
        Field::Function if is_word => log.code.function = text,
        Field::Logger | Field::File | Field::Function => return None,
        Field::Line => log.code.line = text.parse().ok()?,
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

    fn read<'t>(pattern: &str, text: &'t str) -> Option<LogRecord<'t>> {
        pattern.parse::<Layout>().expect("a layout").read(text, Zone::default())
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
        assert_eq!(log.time.map(|time| time.0), Some(1_795_222_619_259_000_000));

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
    fn layouts_are_recognised_by_their_first_lines() {
        let layout = |text: &str| Layout::recognise(text, Zone::default());
        for (text, pattern) in [
            (
                "2026-11-21 00:56:59,259 INFO  [main] n.NameNode: STARTUP_MSG: \n/****\n STARTUP\n",
                "%d %p [%t] %c: %m",
            ),
            ("2018-05-09 16:43:48 INFO  QuorumPeerConfig:109 - Reading from: /x\n", "%d %p %c:%L - %m"),
            (
                "2026-11-21 00:56:59,259 INFO org.a.B: x\n2026-11-21 00:56:59,259 INFO org.a.B: y\n",
                "%d %p %c: %m",
            ),
            ("2026-11-21 00:56:59,259 - root - WARNING - careful\n", "%d - %c - %p - %m"),
        ] {
            assert_eq!(layout(text), Some(pattern.parse().unwrap()), "{text}");
        }
        assert_eq!(layout("MIT License\n\nCopyright 2023\n"), None);
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
