//! Wall time, as recorders write it.

/// Nanoseconds since the Unix epoch, as some machine's wall clock said. Clocks of two machines disagree, and a
/// wall clock can step back: never subtract two of these without [`UnixNanos::since`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub u64);

impl UnixNanos {
    /// From milliseconds; `None` when the instant lies beyond the year 2554.
    pub fn from_millis(millis: u64) -> Option<Self> {
        millis.checked_mul(1_000_000).map(Self)
    }

    /// From microseconds; `None` when the instant lies beyond the year 2554.
    pub fn from_micros(micros: u64) -> Option<Self> {
        micros.checked_mul(1_000).map(Self)
    }

    /// Nanoseconds from `earlier` to this instant, zero if it lies before.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
