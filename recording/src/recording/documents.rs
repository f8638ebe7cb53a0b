//! The documents of a recording that mix trace ids of 64 and of 128 bits.

use astracer_model::ids::TraceId;

/// The documents of a recording that have ids of both lengths, as ranges of span indices.
#[derive(Debug, Default)]
pub(super) struct Documents {
    start: u32,
    has_short: bool,
    has_long: bool,
    /// Ranges of span indices.
    pub(super) mixed: Vec<(u32, u32)>,
}

impl Documents {
    /// Adds a span to the current document.
    #[inline]
    pub(super) fn span(&mut self, id: TraceId) {
        let is_long = is_long(id);
        self.has_long |= is_long;
        self.has_short |= !is_long;
    }

    /// Ends the current document at this span index.
    pub(super) fn next(&mut self, end: u32) {
        if self.has_short && self.has_long {
            self.mixed.push((self.start, end));
        }
        (self.start, self.has_short, self.has_long) = (end, false, false);
    }
}

/// Whether the id has more than 64 bits.
pub(super) fn is_long(id: TraceId) -> bool {
    id.0 >> 64 != 0
}
