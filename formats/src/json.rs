//! What the JSON readers share: finding the records of a file without holding the file, and taking them apart.
//!
//! ```text
//! BufRead -> Window (bytes not yet read) -> documents (lists of units) -> Cursor over one unit -> the format's reader
//! ```
//!
//! A *document* is one value at the top of a file. Documents follow each other with newlines, blanks or nothing in
//! between. A *unit* is what a format's reader is handed: an element of a document's list (one `resourceSpans` entry),
//! an element of a list that is itself a document, or a whole object. Memory is bounded by the largest unit.
//!
//! The [`Cursor`] parses a unit front to back without building a tree, borrows text from it, and is as lenient as
//! recorders are careless: `null` for nothing, numbers in strings, names for enum values.
//!
//! # Broken input
//!
//! A unit whose brackets match is stepped over when its content can't be read, and so is a record inside of it
//! ([`Out::records`]). When brackets don't match, what is good before that point still counts, and reading resumes
//! where a document can begin: at the next line in a file of one document a line, else at a line that starts with an
//! opening bracket, or between `}` and `{`. Each of these is one problem with its line, byte and reason.
//!
//! What is stepped over is looked at only as far as brackets and strings go: members that no reader knows are not
//! checked for bad escapes or bad UTF-8. The record that a span is handed over with has their bytes as they are.

use super::window;

mod cursor;
mod documents;
mod layout;
mod out;
mod scan;
#[cfg(test)]
mod tests;
pub(crate) mod write;

pub(crate) use cursor::{Cursor, Fault, Scalar, Why, decode_base64};
pub(crate) use documents::read_units;
#[cfg(test)]
use layout::Counts;
pub(crate) use layout::Layout;
pub(crate) use out::Out;

/// Values nested deeper than this are refused whatever the limit says: readers recurse.
const NESTING_HARD_MAX: usize = 256;
