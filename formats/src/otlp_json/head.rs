//! The part of a resource or scope that must be known before its spans are read.

use std::borrow::Cow;
use std::sync::Arc;

use memchr::memmem::Finder;

use crate::json::{Cursor, Fault, Out, Why};
use crate::reuse::Reuse;

/// The members of a group of spans other than the spans.
pub(super) struct Head<'a> {
    /// The start and the text of the resource or scope.
    subject: Option<(Cursor<'a>, &'a str)>,
    schema_url: Cow<'a, str>,
}

impl<'a> Head<'a> {
    /// Reads ahead of a cursor, which does not move, as far as needed: past the `groups` of spans
    /// only if the `subject` follows them, or if a schema URL may follow.
    pub(super) fn ahead(cursor: &Cursor<'a>, subject: &[&str], groups: &[&str], schema_ahead: bool) -> Self {
        let mut head = Self { subject: None, schema_url: Cow::Borrowed("") };
        // A fault is found again, and reported, when the spans are read. The spans before it are
        // still delivered, without a subject if it would have come after the fault.
        let mut ahead = cursor.clone();
        let _ = ahead.object(|cursor, key| {
            if subject.contains(&&*key) {
                cursor.peek();
                let start = cursor.clone();
                head.subject = Some((start, cursor.skip()?));
            } else if matches!(&*key, "schemaUrl" | "schema_url") {
                head.schema_url = cursor.text_or_null()?;
            } else if groups.contains(&&*key) && head.subject.is_some() && !schema_ahead {
                return Err(Fault { at: cursor.at(), why: Why::Stopped });
            } else {
                cursor.skip()?;
            }
            Ok(())
        });
        cursor.note(ahead.take_notes());
        head
    }

    /// Skips a member other than the spans. The end of the subject is already known.
    pub(super) fn step_over(&self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        cursor.peek();
        match &self.subject {
            Some((start, text)) if start.at() == cursor.at() => cursor.step(text.len()),
            _ => drop(cursor.skip()?),
        }
        Ok(())
    }

    /// The resource or scope. If it cannot be read, this is reported, and the spans get an empty
    /// one.
    pub(super) fn subject<T: Default>(
        &self,
        reuse: &mut Reuse<T>,
        out: &mut Out<'_>,
        make: impl FnOnce(&mut Cursor<'_>, &str) -> Result<T, Fault>,
    ) -> Arc<T> {
        let (start, text) = match &self.subject {
            Some((start, text)) => (start.clone(), *text),
            None => (Cursor::new("null", 0, 0), "null"),
        };
        let mut cursor = start.clone();
        let made = reuse.try_get_or_make(&[&*self.schema_url, text], || make(&mut cursor, &self.schema_url));
        out.notes(&cursor, "a resource or scope");
        made.unwrap_or_else(|fault| {
            out.fault(&start, fault);
            Arc::default()
        })
    }
}

/// Determines whether a schema URL may follow in a text. Each byte is searched once.
pub(super) struct SchemaAhead {
    finder: Finder<'static>,
    /// A range of the file without a schema URL.
    without: (u64, u64),
    /// True if a schema URL is at the end of that range.
    found: bool,
}

impl Default for SchemaAhead {
    fn default() -> Self {
        Self { finder: Finder::new("\"schema"), without: (0, 0), found: false }
    }
}

impl SchemaAhead {
    pub(super) fn is_ahead(&mut self, cursor: &Cursor<'_>, out: &Out<'_>) -> bool {
        let (at, end) = (out.byte(cursor.at()), out.byte(cursor.text().len()));
        let (from, to) = self.without;
        let searched = from <= at && at <= to && (self.found || end <= to);
        if !searched {
            let found = self.finder.find(&cursor.text().as_bytes()[cursor.at()..]);
            self.without = (at, found.map_or(end, |found| at + found as u64));
            self.found = found.is_some();
        }
        self.found && self.without.1 < end
    }
}
