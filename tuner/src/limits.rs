//! Limits on the kept share.

use serde::Serialize;

use crate::workload::Workload;

/// Limits on the expected size of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// The smallest share of the bytes, 0 to 1.
    pub size_min: f64,
    /// The largest share of the bytes, 0 to 1.
    pub size_max: f64,
    /// The largest mean number of traces kept per second of the recording.
    pub traces_per_second_max: Option<f64>,
    /// The largest mean number of bytes kept per second of the recording.
    pub bytes_per_second_max: Option<f64>,
}

/// The paper's limits: between 1 % and 10 % of the bytes.
impl Default for Limits {
    fn default() -> Self {
        Self { size_min: 0.01, size_max: 0.1, traces_per_second_max: None, bytes_per_second_max: None }
    }
}

/// The size of what a candidate keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KeptSizes {
    /// Share of the bytes, 0 to 1.
    pub size: f64,
    /// Traces per second.
    pub traces_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
}

/// A workload's size, which converts shares to rates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    traces: f64,
    bytes: f64,
    seconds: f64,
}

impl Scale {
    /// Workloads shorter than a second count as one second long.
    pub(crate) fn new(workload: &Workload) -> Self {
        Self {
            traces: workload.arrivals().len() as f64,
            bytes: workload.arrivals().iter().map(|arrival| arrival.bytes as f64).sum(),
            seconds: workload.rate_seconds(),
        }
    }

    /// The largest shares of the bytes and of the traces that the limits allow. The share of the
    /// traces is infinite if they are not limited.
    pub(crate) fn largest(&self, limits: &Limits) -> (f64, f64) {
        let whole = self.kept((1.0, 1.0));
        let share = |max: Option<f64>, all: f64| match max {
            Some(max) if all > 0.0 => max / all,
            _ => f64::INFINITY,
        };
        let bytes = share(limits.bytes_per_second_max, whole.bytes_per_second).min(limits.size_max);
        (bytes, share(limits.traces_per_second_max, whole.traces_per_second))
    }

    /// Converts shares of bytes and traces to rates.
    pub(crate) fn kept(&self, (bytes, traces): (f64, f64)) -> KeptSizes {
        KeptSizes {
            size: bytes,
            traces_per_second: traces * self.traces / self.seconds,
            bytes_per_second: bytes * self.bytes / self.seconds,
        }
    }
}

impl Limits {
    /// The logarithm of the factor by which a candidate keeps too much; 0 if it is within the
    /// limits. A limit of 0 or below is exceeded by everything.
    pub fn excess(&self, kept: &KeptSizes) -> f64 {
        // The logarithm of a negative quotient is NaN, which `max` would turn into 0: no excess.
        let ratio = |value: f64, max: f64| if max > 0.0 { value / max } else { f64::INFINITY };
        let over = |value: f64, max: Option<f64>| max.map_or(0.0, |max| ratio(value, max).ln().max(0.0));
        over(kept.size, Some(self.size_max))
            .max(over(kept.traces_per_second, self.traces_per_second_max))
            .max(over(kept.bytes_per_second, self.bytes_per_second_max))
    }

    /// The logarithm of the factor by which a candidate keeps too little; 0 if it keeps enough.
    pub fn shortfall(&self, kept: &KeptSizes) -> f64 {
        if self.size_min <= 0.0 { 0.0 } else { (self.size_min / kept.size).ln().max(0.0) }
    }

    /// Whether all limits hold.
    pub fn hold(&self, kept: &KeptSizes) -> bool {
        self.excess(kept) == 0.0 && self.shortfall(kept) == 0.0
    }

    /// The largest share of all traces whose expected size is within the limits, if each trace is
    /// kept with the same probability.
    pub fn largest_share(&self, workload: &Workload) -> f64 {
        let (bytes, traces) = Scale::new(workload).largest(self);
        bytes.min(traces)
    }

    /// The exceeded limits, as text for people.
    pub fn exceeded(&self, kept: &KeptSizes) -> String {
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
    use crate::testing::{many_names, synthetic};

    #[test]
    fn each_limit_binds() {
        let kept = KeptSizes { size: 0.05, traces_per_second: 10.0, bytes_per_second: 2000.0 };
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
            assert!(!none.hold(&kept), "a limit reduced to 0 or below allows nothing");
        }
        let half = Limits { size_max: 0.025, ..Limits::default() };
        assert!((half.excess(&kept) - 2f64.ln()).abs() < 1e-12);
    }

    /// By hand: 4,001 traces, one per millisecond, take 4 s. 50 traces take a twentieth of a
    /// second, which counts as one.
    #[test]
    fn each_limit_leaves_its_share() {
        let long = many_names(1, 4001, 1);
        let bytes: u64 = long.arrivals().iter().map(|arrival| arrival.bytes).sum();
        let per_byte = 4.0 / bytes as f64;
        let (none, short) = (Limits::default(), many_names(1, 50, 1));
        for (workload, limits, share) in [
            (&long, none, 0.1),
            (&long, Limits { traces_per_second_max: Some(20.0), ..none }, 80.0 / 4001.0),
            (&long, Limits { traces_per_second_max: Some(2000.0), ..none }, 0.1),
            (&long, Limits { bytes_per_second_max: Some(0.03 / per_byte), ..none }, 0.03),
            (&short, Limits { traces_per_second_max: Some(2.0), ..none }, 0.04),
            (&synthetic(0, 1), Limits { traces_per_second_max: Some(2.0), ..none }, 0.1),
        ] {
            let found = limits.largest_share(workload);
            assert!((found - share).abs() < 1e-12, "{limits:?}: {found}, by hand {share}");
        }
    }
}
