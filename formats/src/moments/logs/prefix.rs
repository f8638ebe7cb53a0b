//! Prefixes that collectors and viewers put before each line of a log: syslog's priority, the
//! service of compose, the pod of kubectl, and the time and stream of CRI.

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
    /// `2026-05-14T11:00:00.123456789+02:00 stdout F `
    Cri,
}

/// Every kind.
pub(super) const KINDS: [Kind; 4] = [Kind::Cri, Kind::Pipe, Kind::Bracket, Kind::Priority];

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
