//! Values of options: stretches of time, and attributes.

use std::time::UNIX_EPOCH;

use crate::output::escaped;
use crate::values;

/// A stretch of time, nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: u64,
    /// Exclusive.
    pub(super) to: u64,
}

impl Window {
    pub(super) fn contains(self, time: u64) -> bool {
        (self.from..self.to).contains(&time)
    }

    /// The distance of a time from this stretch; 0 inside.
    pub(super) fn distance(self, time: u64) -> u64 {
        self.from.saturating_sub(time).max(time.saturating_sub(self.to))
    }
}

/// Parses "2026-11-27T10:05:00Z+180s".
pub(super) fn window(text: &str) -> Result<Window, String> {
    let wrong = || {
        format!(
            "invalid interval '{}': use a start in UTC and a duration, as in 2026-11-27T10:05:00Z+180s",
            escaped(text)
        )
    };
    let (start, length) = text.rsplit_once('+').ok_or_else(wrong)?;
    let from = unix_ns(start.trim()).ok_or_else(wrong)?;
    let length = self::length(length)?;
    Ok(Window { from, to: from.saturating_add(length) })
}

/// The nanoseconds since the epoch of a time as RFC 3339 has it.
pub(super) fn unix_ns(text: &str) -> Option<u64> {
    let since = humantime::parse_rfc3339_weak(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// Parses a length of time such as "150ms", in nanoseconds.
pub(super) fn length(text: &str) -> Result<u64, String> {
    // The longest is a year, which fits.
    values::length(text.trim()).map(|length| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
}

/// Parses "KEY=VALUE"; the value may contain "=".
pub(super) fn attribute(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) =
        parts.ok_or_else(|| format!("invalid attribute '{}': use KEY=VALUE", escaped(text)))?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_of_time_has_a_start_and_a_length() {
        let want = Window { from: 1_661_142_423_000_000_000, to: 1_661_142_603_000_000_000 };
        assert_eq!(window("2022-08-22T04:27:03Z+180s"), Ok(want));
        assert_eq!(window("2022-08-22 04:27:03+3min"), Ok(want));
        assert_eq!(
            (want.distance(want.from - 5), want.distance(want.from), want.distance(want.to + 7)),
            (5, 0, 7)
        );
        for wrong in ["", "2022-08-22T04:27:03Z", "180s", "2022-08-22T04:27:03Z+", "1960-01-01T00:00:00Z+1s"]
        {
            assert!(window(wrong).is_err(), "{wrong}");
        }
    }
}
