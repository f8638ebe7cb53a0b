//! The forms of logs that a file's content does not state.

use super::layout::Layout;
use super::time::Zone;
use crate::moments::clock_pattern::ClockPattern;

/// The forms that a file's content does not state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The layout of lines of text; if `None`, the usual layouts are recognised. Files of other
    /// formats are read all the same.
    pub layout: Option<Layout>,
    /// The zone of times that state none.
    pub zone: Zone,
    /// The expression of logs with vector clocks that state none in their first line.
    pub clock_pattern: Option<ClockPattern>,
}
