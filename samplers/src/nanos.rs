//! Monotonic time, as a number that the caller passes in.

use std::fmt;

const UNITS: [(u64, &str); 6] = [
    (3_600_000_000_000, "h"),
    (60_000_000_000, "m"),
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "us"),
    (1, "ns"),
];

/// Nanoseconds: a point on the caller's monotonic clock, or a duration.
///
/// The caller chooses the zero point, such as the start of the process or the first arrival of a
/// recording. Arithmetic saturates; 2^64 ns are 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(u64);

impl Nanos {
    /// A duration of zero, or the clock's zero point.
    pub const ZERO: Nanos = Nanos(0);

    /// A number of nanoseconds.
    pub const fn new(nanos: u64) -> Self {
        Nanos(nanos)
    }

    /// A number of milliseconds; saturates.
    pub const fn from_millis(millis: u64) -> Self {
        Nanos(millis.saturating_mul(1_000_000))
    }

    /// A number of seconds; saturates.
    pub const fn from_secs(secs: u64) -> Self {
        Nanos(secs.saturating_mul(1_000_000_000))
    }

    /// The number of nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of seconds, rounded to a double.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The sum; saturates.
    pub const fn saturating_add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }

    /// The difference; zero if `other` is the larger.
    pub const fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }

    /// Parses `1s`, `500ms`, `0.5s`, `2m`, `1h`, `100us`, `7ns`. `None` for other forms, negative
    /// numbers, more than 64 bits, or fractions of a nanosecond. Exact: no floating point is
    /// involved.
    pub(crate) fn parse(text: &str) -> Option<Nanos> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = text.split_at(digits);
        let nanos = UNITS.iter().find(|(_, name)| *name == unit)?.0;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || number.ends_with('.') || fraction.len() > 18 || fraction.contains('.') {
            return None;
        }
        let mut total = whole.parse::<u64>().ok()?.checked_mul(nanos)?;
        if !fraction.is_empty() {
            let scale = 10u128.pow(fraction.len() as u32);
            let scaled = fraction.parse::<u128>().ok()? * u128::from(nanos);
            if scaled % scale != 0 {
                return None;
            }
            total = total.checked_add((scaled / scale) as u64)?;
        }
        Some(Nanos(total))
    }
}

/// Exact, in the largest unit that divides the number: `1s`, `1500ms`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        // The last unit is 1 ns, which divides everything.
        match UNITS.iter().find(|(nanos, _)| self.0.is_multiple_of(*nanos)) {
            Some((nanos, unit)) => write!(f, "{}{unit}", self.0 / nanos),
            None => write!(f, "{}ns", self.0),
        }
    }
}

/// A caller whose `now` lies behind the latest one by at most this much is taken for a thread that
/// read its clock and was then suspended. Further back, the clock itself was set back, and records
/// begin anew; otherwise a clock that once jumped ahead would hold them in the future until it got
/// there again.
pub(crate) const LATE_MAX: Nanos = Nanos::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, nanos: Option<u64>) {
        assert_eq!(Nanos::parse(text), nanos.map(Nanos), "{text}");
    }

    #[test]
    fn reads_each_unit_and_fractions_exactly() {
        check("1s", Some(1_000_000_000));
        check("0.5s", Some(500_000_000));
        check("0.1s", Some(100_000_000));
        check("1.5ms", Some(1_500_000));
        check("7ns", Some(7));
        check("100us", Some(100_000));
        check("2m", Some(120_000_000_000));
        check("1h", Some(3_600_000_000_000));
        check("0s", Some(0));
        check("0.000000001s", Some(1));
    }

    #[test]
    fn refuses_what_is_no_length_of_time() {
        for text in [
            "",
            "s",
            "1",
            "1.s",
            ".5s",
            "-1s",
            "1 s",
            "1sec",
            "0.5ns",
            "1.2.3s",
            "99999999999h",
            "1e3s",
            "0.0000000001s",
            "0.0000000000000000001s",
            "١s",
        ] {
            check(text, None);
        }
        // 2^64 ns, one more than fits, although the whole and the fraction each fit alone.
        check("18446744073.709551615s", Some(u64::MAX));
        check("18446744073.709551616s", None);
    }

    #[test]
    fn prints_the_largest_exact_unit() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500_000_000, "1500ms"),
            (7_200_000_000_000, "2h"),
            (60_000_000_000, "1m"),
        ] {
            assert_eq!(Nanos(nanos).to_string(), text);
            assert_eq!(Nanos::parse(text), Some(Nanos(nanos)));
        }
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Nanos::from_secs(2), Nanos::from_millis(2_000));
        assert_eq!(Nanos::from_secs(u64::MAX), Nanos::new(u64::MAX));
        assert_eq!(Nanos::from_millis(u64::MAX), Nanos::new(u64::MAX));
        assert_eq!(Nanos::new(1).saturating_sub(Nanos::new(2)), Nanos::ZERO);
        assert_eq!(Nanos::new(5).saturating_sub(Nanos::new(2)), Nanos::new(3));
        assert_eq!(Nanos::new(u64::MAX).saturating_add(Nanos::new(1)), Nanos::new(u64::MAX));
        assert_eq!(Nanos::new(1_500_000_000).as_secs_f64(), 1.5);
    }
}
