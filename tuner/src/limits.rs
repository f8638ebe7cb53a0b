//! Bounds on the kept share.

use serde::Serialize;

/// Limits on what is kept, in expectation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// At least this share of the bytes.
    pub size_min: f64,
    /// At most this share of the bytes.
    pub size_max: f64,
    /// The largest mean number of traces kept per second of the recording.
    pub traces_per_second_max: Option<f64>,
    /// The largest mean number of bytes kept per second of the recording.
    pub bytes_per_second_max: Option<f64>,
}

/// The paper's: between 1 % and 10 % of the bytes.
impl Default for Limits {
    fn default() -> Self {
        Self { size_min: 0.01, size_max: 0.1, traces_per_second_max: None, bytes_per_second_max: None }
    }
}

/// The sizes of the part that a candidate keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Kept {
    /// Share of the bytes, 0 to 1.
    pub size: f64,
    /// Traces a second.
    pub traces_per_second: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
}

impl Limits {
    /// By what factor a candidate keeps too much (logarithm; 0 if it does not). Nothing is within a limit of nothing.
    pub fn excess(&self, kept: &Kept) -> f64 {
        // A quotient below 0 has no logarithm, and would pass for none.
        let ratio = |value: f64, max: f64| if max > 0.0 { value / max } else { f64::INFINITY };
        let over = |value: f64, max: Option<f64>| max.map_or(0.0, |max| ratio(value, max).ln().max(0.0));
        over(kept.size, Some(self.size_max))
            .max(over(kept.traces_per_second, self.traces_per_second_max))
            .max(over(kept.bytes_per_second, self.bytes_per_second_max))
    }

    /// By what factor a candidate keeps too little (logarithm; 0 if it does not).
    pub fn shortfall(&self, kept: &Kept) -> f64 {
        if self.size_min <= 0.0 { 0.0 } else { (self.size_min / kept.size).ln().max(0.0) }
    }

    /// Whether all limits hold.
    pub fn hold(&self, kept: &Kept) -> bool {
        self.excess(kept) == 0.0 && self.shortfall(kept) == 0.0
    }

    /// The limits that are exceeded, for people.
    pub fn exceeded(&self, kept: &Kept) -> String {
        let mut parts = Vec::new();
        if kept.size > self.size_max {
            parts.push(format!("{:.3} % of the bytes (limit {:.3} %)", kept.size * 1e2, self.size_max * 1e2));
        }
        if let Some(max) = self.traces_per_second_max.filter(|&max| kept.traces_per_second > max) {
            parts.push(format!("{:.3} traces a second (limit {max})", kept.traces_per_second));
        }
        if let Some(max) = self.bytes_per_second_max.filter(|&max| kept.bytes_per_second > max) {
            parts.push(format!("{:.0} bytes a second (limit {max})", kept.bytes_per_second));
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_binds() {
        let kept = Kept { size: 0.05, traces_per_second: 10.0, bytes_per_second: 2000.0 };
        assert!(Limits::default().hold(&kept));
        for limits in [
            Limits { size_max: 0.04, ..Limits::default() },
            Limits { size_min: 0.06, ..Limits::default() },
            Limits { traces_per_second_max: Some(9.0), ..Limits::default() },
            Limits { bytes_per_second_max: Some(1999.0), ..Limits::default() },
        ] {
            assert!(!limits.hold(&kept), "{limits:?}");
            assert_eq!(limits.excess(&kept) > 0.0, !limits.exceeded(&kept).is_empty());
        }
        for max in [0.0, -1.0] {
            let none = Limits { traces_per_second_max: Some(max), ..Limits::default() };
            assert!(!none.hold(&kept), "what is left of a limit may be nothing, or less");
        }
        let half = Limits { size_max: 0.025, ..Limits::default() };
        assert!((half.excess(&kept) - 2f64.ln()).abs() < 1e-12);
    }
}
