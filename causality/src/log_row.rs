//! Log records and writes to files, before they are points.

use astracer_model::ids::TraceId;
use astracer_recording::intern::Symbol;

use crate::points::Points;

/// One log record.
#[derive(Clone, Debug)]
pub(crate) struct LogRow {
    pub(crate) file: u32,
    pub(crate) line: u64,
    pub(crate) time: u64,
    /// The whole record in the texts of all events.
    pub(crate) text: (u64, u32),
    /// Its writer, in the list of all.
    pub(crate) writer: u32,
    /// The unit of the time's last digit.
    pub(crate) resolution: u64,
    /// True if the lines of its log are in no order.
    pub(crate) is_loose: bool,
    /// Its number among the recording's log records.
    pub(crate) log: u32,
    /// The trace that it states or mentions; zero for none.
    pub(crate) trace: TraceId,
    /// The ids of its span: the first, and their number.
    pub(crate) ids: (u32, u16),
}

/// A write to a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) path: Symbol,
    pub(crate) row: u32,
}

impl LogRow {
    /// The whole record.
    pub(crate) fn bytes<'e>(&self, events: &'e Points) -> &'e [u8] {
        let (start, len) = (self.text.0 as usize, self.text.1 as usize);
        events.texts.get(start..start.saturating_add(len)).unwrap_or_default()
    }
}
