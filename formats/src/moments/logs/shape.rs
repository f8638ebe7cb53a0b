//! The shape of one file's lines: what prefix they have, where their time stands and in which form,
//! and what follows. It is found by a majority of the file's first lines.

use std::borrow::Cow;

use super::given::Given;
use super::journal;
use super::json_lines::{self, Shared};
use super::known::TIME_TEXT;
use super::layout::Layout;
use super::prefix::{KINDS, Kind, Prefix};
use super::stamp::{self, Day, Form, Stamp};
use super::tracing;
use astracer_model::log::LogFormat;
use astracer_model::text::lossy;

/// Lines that are looked at.
pub(super) const LINES_LOOKED_AT: usize = 200;

/// The names of times in JSON that a file may use.
const TIME_KEYS_MAX: usize = 8;

/// The form of the content of lines.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    /// JSON objects, with the names of their times in quotes.
    Json(Vec<String>),
    /// `key=value` pairs.
    Pairs,
    /// The text of `tracing_subscriber`.
    Tracing,
    /// Blocks of journald's export, with the key that begins each.
    JournalExport(Vec<u8>),
    /// Layouts, of which the first that fits a record counts.
    Layout(Vec<Layout>),
    /// A time and text.
    TimeText,
}

/// The shape of one file's lines.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) content: Content,
    /// The name of the layout for reports.
    pub(super) name: Cow<'static, str>,
    pub(super) prefix: Option<Kind>,
    /// The form of the times.
    form: Option<Form>,
    /// Words that stand before a time, at most.
    words_max: usize,
    /// True if heads of records begin with blanks.
    is_indented: bool,
    /// True if the user stated the layout.
    is_given: bool,
    /// True if the user stated a layout that no line follows.
    pub(super) is_unfit: bool,
    /// True if the first number of `05/06/2026` is the month.
    pub(super) month_first: bool,
}

/// The line that begins a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Head {
    /// The start of the time, or of the object, behind the prefix.
    pub(super) start: usize,
    pub(super) stamp: Option<Stamp>,
    /// True if the stamp is in the prefix, and not at `start`.
    pub(super) is_outer: bool,
}

/// A line as it is looked at: Unicode without colours and without the NULs that a truncated file
/// may begin with.
pub(super) fn plain(bytes: &[u8]) -> Cow<'_, str> {
    let padding = bytes.iter().take_while(|&&byte| byte == 0).count();
    match lossy(&bytes[padding..]) {
        Cow::Borrowed(text) => tracing::without_colours(text),
        Cow::Owned(text) => Cow::Owned(tracing::without_colours(&text).into_owned()),
    }
}

impl Shape {
    /// The shape of the first lines; `None` if they have no times.
    pub(super) fn of(prefix: &[u8], is_whole: bool, given: &[Given], file: Option<&str>) -> Option<Self> {
        let mut lines: Vec<&[u8]> = prefix
            .split(|&byte| byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .filter(|line| !line.trim_ascii().is_empty())
            .take(LINES_LOOKED_AT)
            .collect();
        // The last line may be cut.
        if !is_whole && lines.len() > 1 && lines.len() < LINES_LOOKED_AT {
            lines.pop();
        }
        if let Some(first) = journal::first_key(&lines) {
            return Some(Self::plain(Content::JournalExport(first.to_vec()), "journal-export", None));
        }
        let plain: Vec<Cow<'_, str>> = lines.iter().map(|line| plain(line)).collect();
        let texts: Vec<&str> = plain.iter().map(|line| &**line).collect();
        let given = given.iter().filter(|given| given.is_for(file)).map(|given| {
            let mut shape = Self::plain(Content::Layout(vec![given.layout.clone()]), "", None);
            (shape.name, shape.is_given) = (Cow::Owned(given.name().to_string()), true);
            (texts.iter().filter(|line| shape.head(line).is_some()).count(), shape)
        });
        // The first of several that fit equally well.
        let best = given.reduce(|best, next| if next.0 > best.0 { next } else { best });
        let is_unfit = best.is_some();
        if let Some((1.., shape)) = best {
            return Some(shape);
        }
        let kind = KINDS.into_iter().find(|kind| {
            let has = texts.iter().filter(|line| kind.of(line).is_some()).count();
            has * 2 > texts.len()
        });
        let bodies: Vec<&str> = texts
            .iter()
            .map(|line| kind.and_then(|kind| kind.of(line)).map_or(*line, |prefix| &line[prefix.len..]))
            .collect();
        let shape = Self::of_json(&bodies, kind).or_else(|| Self::of_text(&texts, &bodies, kind));
        shape.map(|shape| Self { is_unfit, ..shape })
    }

    fn plain(content: Content, name: &'static str, prefix: Option<Kind>) -> Self {
        Self {
            content,
            name: Cow::Borrowed(name),
            prefix,
            form: None,
            words_max: 0,
            is_indented: false,
            is_given: false,
            is_unfit: false,
            month_first: true,
        }
    }

    /// JSON, if a tenth of the lines are objects with times: a panic may take more lines than the
    /// records before it.
    fn of_json(bodies: &[&str], prefix: Option<Kind>) -> Option<Self> {
        let shared = Shared::default();
        let mut keys: Vec<String> = Vec::new();
        let mut count = 0;
        for line in bodies {
            let Some(start) = brace(line) else { continue };
            let Ok(found) = json_lines::read(&line[start..], 100, &shared) else { continue };
            let has_time = prefix == Some(Kind::Cri) || found.stamp().is_some();
            if !has_time || !found.is_told() {
                continue;
            }
            count += 1;
            if let Some(key) = found.time_key().map(|key| format!("\"{key}\""))
                && keys.len() < TIME_KEYS_MAX
                && !keys.contains(&key)
            {
                keys.push(key);
            }
        }
        (count > 0 && count * 10 >= bodies.len()).then(|| Self::plain(Content::Json(keys), "json", prefix))
    }

    fn of_text(lines: &[&str], bodies: &[&str], prefix: Option<Kind>) -> Option<Self> {
        if is_table(lines) {
            return None;
        }
        let mut votes: Vec<(Form, usize, usize)> = Vec::new();
        let mut places: Vec<Vec<(usize, usize, Stamp)>> = Vec::new();
        for line in bodies {
            let found = stamps(line.as_bytes());
            for (index, &(_, words, stamp)) in found.iter().enumerate() {
                // A message may mention several times.
                if found[..index].iter().any(|(.., earlier)| earlier.form == stamp.form) {
                    continue;
                }
                match votes.iter_mut().find(|(form, ..)| *form == stamp.form) {
                    Some((_, count, sum)) => (*count, *sum) = (*count + 1, *sum + words),
                    None => votes.push((stamp.form, 1, words)),
                }
            }
            places.push(found);
        }
        let most = votes.iter().map(|&(_, count, _)| count).max().unwrap_or(0);
        // Forms that nearly every record has come first, in the order of their places in the lines;
        // then the others by number.
        votes.sort_by_key(|&(form, count, sum)| {
            let is_usual = count * 5 >= most * 4;
            (!is_usual, if is_usual { sum * 100 / count } else { usize::MAX - count }, form)
        });
        let heads = votes.iter().find_map(|&(form, ..)| Heads::of(form, bodies, &places));
        let Some(Heads { form, lines: heads, words_max, is_indented }) = heads else {
            // CRI states the time of each line.
            return (prefix == Some(Kind::Cri)).then(|| Self::plain(Content::TimeText, "cri", prefix));
        };
        let mut shape = Self::plain(Content::TimeText, TIME_TEXT, prefix);
        (shape.form, shape.words_max, shape.is_indented) = (Some(form), words_max, is_indented);
        shape.month_first = month_first(&heads);
        let half = |is: &dyn Fn(&(&str, usize, Stamp)) -> bool| {
            heads.iter().filter(|head| is(head)).count() * 2 >= heads.len()
        };
        if half(&|(line, start, _)| is_pairs(line, *start)) {
            (shape.content, shape.name) = (Content::Pairs, "key-value".into());
        } else if prefix.is_none() && half(&|(line, ..)| tracing::is_head(line)) {
            (shape.content, shape.name) = (Content::Tracing, "tracing".into());
        } else if let Some((name, layouts)) = Layout::recognise(&heads) {
            (shape.content, shape.name) = (Content::Layout(layouts), name.into());
        }
        Some(shape)
    }

    /// True if times lack their year, their date or their start.
    pub(super) fn lacks_dates(&self) -> bool {
        let is_partial = |form| {
            matches!(
                form,
                Form::TimeOnly
                    | Form::MonthDay
                    | Form::MonthFirst
                    | Form::Klog
                    | Form::Uptime
                    | Form::NamedMonth
            )
        };
        self.is_given || self.form.is_some_and(is_partial)
    }

    /// The format for reports.
    pub(super) fn format(&self) -> LogFormat {
        match self.content {
            Content::Json(_) => LogFormat::JsonLines,
            Content::Tracing => LogFormat::TracingText,
            Content::Pairs => LogFormat::Pairs,
            Content::JournalExport(_) => LogFormat::JournalExport,
            Content::Layout(_) | Content::TimeText => LogFormat::Layout,
        }
    }

    /// The prefix of a plain line, if the file's lines have one.
    pub(super) fn prefix<'t>(&self, line: &'t str) -> Option<Prefix<'t>> {
        self.prefix.and_then(|kind| kind.of(line))
    }

    /// True if the line after this plain one goes on with it, whatever it looks like.
    pub(super) fn goes_on(&self, line: &str) -> bool {
        self.prefix == Some(Kind::Cri) && self.prefix(line).is_some_and(|prefix| prefix.is_partial)
    }

    /// The head of a record, if this plain line is one.
    pub(super) fn head(&self, line: &str) -> Option<Head> {
        let prefix = self.prefix(line);
        let body = &line[prefix.as_ref().map_or(0, |prefix| prefix.len)..];
        let outer = prefix.as_ref().and_then(|prefix| prefix.stamp);
        match &self.content {
            Content::JournalExport(first) => {
                let behind = line.as_bytes().strip_prefix(first.as_slice());
                let is_head = behind.is_some_and(|behind| behind.starts_with(b"="));
                is_head.then_some(Head { start: 0, stamp: None, is_outer: false })
            }
            Content::Json(keys) => {
                let start = brace(body);
                if outer.is_some() {
                    return Some(Head { start: start.unwrap_or(body.len()), stamp: outer, is_outer: true });
                }
                let object = &body.as_bytes()[start?..];
                let has_time = keys.iter().any(|key| memchr::memmem::find(object, key.as_bytes()).is_some());
                has_time.then_some(Head { start: start?, stamp: None, is_outer: false })
            }
            Content::Layout(layouts) if self.is_given => {
                let layout = layouts.first()?;
                let mut head = None;
                stamp::each_place(body.as_bytes(), |start, _| {
                    // The user knows whether 05/06 is in May.
                    head = given_head(layout, body, start, layout.stamp(&body[start..]))
                        .or_else(|| given_head(layout, body, start, stamp::at(&body.as_bytes()[start..])));
                    head.is_some()
                });
                // A form of time that only the pattern knows may begin with any character.
                let places = body.char_indices().map(|(start, _)| start);
                head.or_else(|| {
                    let mut places = places.take_while(|&start| start < stamp::REACH_BYTES);
                    places.find_map(|start| given_head(layout, body, start, layout.stamp(&body[start..])))
                })
            }
            _ if self.form.is_none() => {
                outer.map(|stamp| Head { start: 0, stamp: Some(stamp), is_outer: true })
            }
            _ => self.timed(body),
        }
    }

    /// The time of a line, if it is in the form and at a place of this file's times.
    fn timed(&self, line: &str) -> Option<Head> {
        let bytes = line.as_bytes();
        if !self.is_indented && matches!(bytes.first(), None | Some(b' ' | b'\t')) {
            return None;
        }
        let mut head = None;
        stamp::each_place(bytes, |start, words| {
            if words > self.words_max {
                return true;
            }
            let found = stamp::at(&bytes[start..]).filter(|stamp| Some(stamp.form) == self.form);
            head = found.map(|stamp| Head { start, stamp: Some(stamp), is_outer: false });
            head.is_some()
        });
        head.filter(|head| !is_quoted(bytes, head.start))
    }
}

/// The head of a record in a layout of the user's, if a time at `start` makes it one.
fn given_head(layout: &Layout, body: &str, start: usize, stamp: Option<Stamp>) -> Option<Head> {
    let stamp = stamp.filter(|stamp| layout.read(body, start, stamp).is_some())?;
    Some(Head { start, stamp: Some(stamp), is_outer: false })
}

/// A time may stand behind this many words more than twice the usual number.
const WORDS_MORE: usize = 4;

/// The lines that begin records, if their times are of one form.
struct Heads<'t> {
    form: Form,
    /// Each line with its time and the place of the time.
    lines: Vec<(&'t str, usize, Stamp)>,
    words_max: usize,
    is_indented: bool,
}

impl<'t> Heads<'t> {
    fn of(form: Form, lines: &[&'t str], places: &[Vec<(usize, usize, Stamp)>]) -> Option<Self> {
        let (mut others, mut found) = (0, Vec::new());
        for (line, stamps) in lines.iter().zip(places) {
            match stamps.iter().find(|(.., stamp)| stamp.form == form) {
                Some(&(start, words, stamp)) => found.push((words, (*line, start, stamp))),
                None => others += usize::from(!is_indented(line)),
            }
        }
        // A text between two records that mentions a date does so further to the right.
        let mut all_words: Vec<usize> = found.iter().map(|&(words, _)| words).collect();
        all_words.sort_unstable();
        let far = all_words.get(all_words.len() / 2).map_or(0, |median| median * 2 + WORDS_MORE);
        let indented = found.iter().filter(|(_, (line, ..))| is_indented(line)).count();
        found.retain(|&(words, _)| words <= far);
        let mut heads = Self {
            form,
            words_max: found.iter().map(|&(words, _)| words).max().unwrap_or(0),
            is_indented: indented * 2 > found.len(),
            lines: found.into_iter().map(|(_, head)| head).collect(),
        };
        if !heads.is_indented {
            heads.lines.retain(|(line, ..)| !is_indented(line));
        }
        // Numbers and times of day occur in any text.
        let count = heads.lines.len();
        let is_sure = form.has_date() || count >= others || count * 5 >= others && heads.words_max == 0;
        (count > 0 && is_sure).then_some(heads)
    }
}

fn is_indented(line: &str) -> bool {
    line.starts_with([' ', '\t'])
}

/// The start of an object in a line, which begins it or stands behind a short prefix.
fn brace(line: &str) -> Option<usize> {
    let bytes = line.as_bytes();
    let start = memchr::memchr(b'{', &bytes[..bytes.len().min(stamp::REACH_BYTES)])?;
    let is_object = bytes[start + 1..].trim_ascii_start().first() == Some(&b'"') && bytes.ends_with(b"}")
        || bytes[start..].trim_ascii_end().ends_with(b"}");
    (is_object && (start == 0 || bytes[start - 1].is_ascii_whitespace())).then_some(start)
}

/// The stamps of a line in their order, with the words before each. A stamp inside another one is
/// left out.
fn stamps(line: &[u8]) -> Vec<(usize, usize, Stamp)> {
    let mut found: Vec<(usize, usize, Stamp)> = Vec::new();
    let mut end = 0;
    stamp::each_place(line, |start, words| {
        if start >= end
            && let Some(stamp) = stamp::at(&line[start..])
            && !is_quoted(line, start)
            && !is_column(line, start, &stamp)
        {
            end = start + stamp.len;
            found.push((start, words, stamp));
        }
        found.len() >= 8
    });
    found
}

/// True if a time stands in a line of JSON that is written over several lines.
fn is_quoted(line: &[u8], start: usize) -> bool {
    let padding = line.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    line.get(padding) == Some(&b'"') && start > padding + 1
}

/// True if a number is a column of a table and not the time of a log: no severity follows the tab.
fn is_column(line: &[u8], start: usize, stamp: &Stamp) -> bool {
    let behind = &line[start + stamp.len..];
    let is_whole = !line[start..start + stamp.len].contains(&b'.');
    if stamp.form != Form::Epoch || !is_whole || behind.first() != Some(&b'\t') {
        return false;
    }
    let word = behind[1..].split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    std::str::from_utf8(word).ok().and_then(super::levels::of_word).is_none()
}

/// True if the first line names the columns of the others.
fn is_table(lines: &[&str]) -> bool {
    let Some((first, rest)) = lines.split_first() else { return false };
    let separator = [',', '\t', ';'].into_iter().max_by_key(|&next| first.matches(next).count());
    let Some(separator) = separator else { return false };
    let columns = first.matches(separator).count();
    let is_header = columns >= 1 && !first.contains(':') && !first.bytes().any(|byte| byte.is_ascii_digit());
    let same = rest.iter().take(20).filter(|line| line.matches(separator).count() == columns).count();
    is_header && !rest.is_empty() && same * 2 > rest.len().min(20)
}

/// True if a line is `key=value` pairs, one of which is the time.
fn is_pairs(line: &str, start: usize) -> bool {
    let before = line[..start].trim_end_matches('"');
    let has_key =
        before.strip_suffix('=').is_some_and(|before| before.ends_with(|last: char| last.is_alphanumeric()));
    has_key && ["level=", "lvl=", "msg=", "message="].iter().any(|key| line.contains(key))
}

/// True unless a date such as `14/05/2026` shows that the day comes first.
fn month_first(heads: &[(&str, usize, Stamp)]) -> bool {
    !heads.iter().any(|(line, start, stamp)| {
        let first = line[*start..].split('/').next().unwrap_or("");
        stamp.form == Form::YearLast
            && matches!(stamp.day, Day::Full(_))
            && first.parse::<u8>().is_ok_and(|first| first > 12)
    })
}
