//! Wall-clock time, as recorders write it.

/// Nanoseconds since the Unix epoch, read from some machine's wall clock. The clocks of two
/// machines disagree, and a wall clock can step back, so subtract two instants only with
/// [`UnixNanos::since`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub u64);

impl UnixNanos {
    /// Converts milliseconds; `None` if the instant is after the year 2554.
    pub fn from_millis(millis: u64) -> Option<Self> {
        millis.checked_mul(1_000_000).map(Self)
    }

    /// Converts microseconds; `None` if the instant is after the year 2554.
    pub fn from_micros(micros: u64) -> Option<Self> {
        micros.checked_mul(1_000).map(Self)
    }

    /// The number of nanoseconds from `earlier` to this instant; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
