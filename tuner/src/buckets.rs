//! Duration buckets: those of OpenTelemetry's exponential histogram of scale 1, two for each
//! doubling. The bucket with OpenTelemetry's index `i` holds durations above 2^(i/2) and up to
//! 2^((i+1)/2) ns; here its number is `i + 2`.

/// The number of buckets. The last one holds [`u64::MAX`].
pub const BUCKETS: usize = 130;

/// A duration's bucket: OpenTelemetry's index plus two, or 0 for a duration of 0, which has no
/// logarithm.
pub fn bucket(duration_ns: u64) -> u8 {
    let Some(doublings) = duration_ns.checked_ilog2() else { return 0 };
    let above = 2 * doublings as u8;
    if duration_ns.is_power_of_two() {
        above + 1
    } else if u128::from(duration_ns).pow(2) <= 1 << (2 * doublings + 1) {
        above + 2
    } else {
        above + 3
    }
}

/// The longest duration that a bucket holds, ms.
pub fn upper_ms(bucket: u8) -> f64 {
    if bucket == 0 { 0.0 } else { ((f64::from(bucket) - 1.0) / 2.0).exp2() / 1e6 }
}

/// One bucket of one function in the full trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatencyCell {
    /// Index into [`Workload::functions`](crate::Workload::functions).
    pub function: u32,
    /// The bucket's number, as [`bucket`] returns it.
    pub bucket: u8,
    /// Calls with a duration in this bucket.
    pub count: u64,
}
