//! Shared parts of the JSON readers. They find the records of a file without holding the file in
//! memory, and parse them.
//!
//! ```text
//! BufRead -> Window (unread bytes) -> documents (lists of units) -> Cursor over one unit -> the format's reader
//! ```
//!
//! A *document* is one top-level value of a file. Documents may be separated by newlines, blanks or
//! nothing. A *unit* is the piece that a format's reader receives: an element of a document's list
//! (one `resourceSpans` entry), an element of a list that is itself a document, or a whole object.
//! Memory is bounded by the largest unit.
//!
//! The [`Cursor`] parses a unit front to back without building a tree and borrows text from it. It
//! tolerates the irregularities that recorders produce: `null` for an absent value, numbers in
//! strings, names for enum values.
//!
//! # Broken input
//!
//! If the brackets of a unit match but its content cannot be read, the unit is skipped. The same
//! applies to a record inside it ([`Out::records`]). If brackets do not match, everything valid
//! before that point still counts, and reading resumes where a document can begin: at the next line
//! in a file with one document per line, else at a line that starts with an opening bracket, or
//! between `}` and `{`. Each of these is one problem with its line, byte and reason.
//!
//! Skipped values are checked only for matching brackets and terminated strings: members that no
//! reader knows are not checked for invalid escapes or invalid UTF-8. A span's record contains
//! their bytes unchanged.
//!
//! Text that is not Unicode, and words or counts without meaning, cost nothing but themselves: the
//! span stays, and each such span is one problem ([`Notes`]).

use super::window;

mod cursor;
mod documents;
mod layout;
mod out;
mod scan;
#[cfg(test)]
mod tests;
pub(crate) mod write;

pub(crate) use cursor::{Cursor, Fault, Notes, Scalar, Why, decode_base64};
pub(crate) use documents::{read_spans, read_units};
#[cfg(test)]
use layout::Counts;
pub(crate) use layout::Layout;
pub(crate) use out::Out;

/// Values nested deeper than this are rejected whatever the configured limit, because the readers
/// recurse.
const NESTING_HARD_MAX: usize = 256;
