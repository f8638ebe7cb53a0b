//! The forms of logs that a file's content does not state.

use super::given::Given;
use super::zone::Zone;
use crate::moments::clock_pattern::ClockPattern;
use astracer_model::time::UnixNanos;

/// The forms that a file's content does not state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Layouts of lines of text. Files that follow none of them are read by the usual layouts, and
    /// files of other formats are read all the same.
    pub layouts: Vec<Given>,
    /// The zone of times that state none.
    pub zone: Zone,
    /// The time at which the file was changed last: it gives times the year or the date that they
    /// lack. A date in the file's name counts more. Without either, such times are unknown.
    pub changed: Option<UnixNanos>,
    /// The expression of logs with vector clocks that state none in their first line.
    pub clock_pattern: Option<ClockPattern>,
}
