//! Prefixes that collectors and viewers put before each line of a log: syslog's priority, the
//! service of compose, the pod of kubectl and stern, and the time and stream of CRI.

use std::borrow::Cow;

use super::levels;
use super::stamp::{self, Stamp};
use super::writer::Writer;
use astracer_model::log::Severity;

/// A kind of prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `<34>`
    Priority,
    /// `web-1  | `
    Pipe,
    /// `[pod/web-abc/app] `
    Bracket,
    /// `web-7f9c5 app `, also behind a namespace
    Stern,
    /// `2026-05-14T11:00:00.123456789+02:00 stdout F `
    Cri,
}

/// Every kind.
pub(super) const KINDS: [Kind; 5] = [Kind::Cri, Kind::Pipe, Kind::Bracket, Kind::Stern, Kind::Priority];

/// The prefix of one line.
#[derive(Debug)]
pub(super) struct Prefix<'t> {
    pub(super) len: usize,
    pub(super) writer: Writer<'t>,
    pub(super) severity: Severity,
    pub(super) stamp: Option<Stamp>,
    /// True if the next line of the stream goes on with this one.
    pub(super) is_partial: bool,
}

impl Kind {
    /// The prefix at the start of a line.
    pub(super) fn of(self, line: &str) -> Option<Prefix<'_>> {
        let mut prefix = Prefix {
            len: 0,
            writer: Writer::default(),
            severity: Severity::UNSPECIFIED,
            stamp: None,
            is_partial: false,
        };
        match self {
            Self::Priority => {
                let (number, _) = line.strip_prefix('<')?.split_once('>')?;
                let is_number =
                    (1..=3).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
                let priority: u16 = number.parse().ok().filter(|priority| is_number && *priority < 192)?;
                prefix.severity = levels::of_syslog((priority & 7) as u8);
                prefix.len = number.len() + 2;
            }
            Self::Pipe => {
                let at = line.bytes().take(80).position(|byte| byte == b'|')?;
                let name = line[..at].trim_end();
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
                let has_letter = name.bytes().any(|byte| byte.is_ascii_alphabetic());
                // Compose pads names with blanks; `a|b` is a layout of fields.
                if !has_letter || !name.bytes().all(is_name) || name.len() == at {
                    return None;
                }
                prefix.writer.container = Cow::Borrowed(name);
                prefix.len = at + 1 + usize::from(line[at + 1..].starts_with(' '));
            }
            Self::Bracket => {
                let (inside, behind) = line.strip_prefix("[pod/")?.split_once(']')?;
                let (pod, container) = inside.split_once('/')?;
                prefix.writer.pod = Cow::Borrowed(pod);
                prefix.writer.container = Cow::Borrowed(container);
                prefix.len = line.len() - behind.strip_prefix(' ').unwrap_or(behind).len();
            }
            Self::Stern => {
                let (first, rest) = line.split_once(' ').filter(|(first, _)| is_label(first))?;
                let (pod, rest) = match is_pod(first) {
                    true => (first, rest),
                    false => rest.split_once(' ').filter(|(pod, _)| is_label(pod) && is_pod(pod))?,
                };
                let (container, message) = rest.split_once(' ').unwrap_or((rest, ""));
                if !is_label(container) {
                    return None;
                }
                prefix.writer.pod = Cow::Borrowed(pod);
                prefix.writer.container = Cow::Borrowed(container);
                prefix.len = line.len() - message.len();
            }
            Self::Cri => {
                let stamp =
                    stamp::at(line.as_bytes()).filter(|stamp| stamp.form == stamp::Form::YearFirst)?;
                let rest = &line[stamp.len..];
                let rest = rest.strip_prefix(" stdout ").or_else(|| rest.strip_prefix(" stderr "))?;
                prefix.is_partial = rest.starts_with('P');
                let behind = rest.strip_prefix(['P', 'F'])?;
                prefix.len = line.len() - behind.strip_prefix(' ').unwrap_or(behind).len();
                prefix.stamp = Some(stamp);
            }
        }
        Some(prefix)
    }
}

/// True for a name of Kubernetes: lower case, digits and dashes.
fn is_label(word: &str) -> bool {
    let is_part =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    word.bytes().all(is_part) && word.starts_with(|first: char| first.is_ascii_lowercase())
}

/// True for the name of a pod that a controller made: it ends in five characters of which none is a
/// vowel or a digit that looks like one, or in the number of a stateful set.
fn is_pod(word: &str) -> bool {
    word.rsplit_once('-').is_some_and(|(name, end)| {
        let is_random = |byte: u8| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte);
        let is_number = end.len() <= 4 && end.bytes().all(|byte| byte.is_ascii_digit());
        !name.is_empty() && (end.len() == 5 && end.bytes().all(is_random) || is_number && !end.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as stern 1.30 writes them by default and with `--all-namespaces`.
    #[test]
    fn pods_and_containers_of_stern_are_known() {
        for (line, expected) in [
            ("web-7f9c5d4b6-x2x4q app 10:00 up", Some(("web-7f9c5d4b6-x2x4q", "app", 24))),
            ("shop web-7f9c5d4b6-x2x4q app     at Foo.bar", Some(("web-7f9c5d4b6-x2x4q", "app", 29))),
            ("db-0 postgres ", Some(("db-0", "postgres", 14))),
            ("db-0 postgres", Some(("db-0", "postgres", 13))),
            ("web-7f9c5d4b6-x2x4q", None),
            // Hosts and programs of syslog, and sentences.
            ("thor systemd started", None),
            ("re-read the file", None),
            ("May 14 09:00:00 web-0 app", None),
        ] {
            let found = Kind::Stern.of(line);
            let found = found.as_ref().map(|own| (&*own.writer.pod, &*own.writer.container, own.len));
            assert_eq!(found, expected, "{line}");
        }
    }
}
