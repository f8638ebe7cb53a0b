//! Features: the few numbers that summarise a variable in one instance.
//!
//! The definitions are those of DISTALYZER: three times and a count of an event; of a state its
//! smallest, mean, largest and last value, and the values it had a quarter, half and three quarters
//! into the run. Times are absolute (ms) or relative to the length of the run. To these comes
//! whether the event happened at all, which the paper does not test.

use std::fmt;

use serde::{Serialize, Serializer};

/// The kind of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Something that happens at certain times.
    Event,
    /// Something that has values at certain times.
    State,
}

impl Kind {
    /// The letter of the kind in tables and JSON: E or S.
    pub fn letter(self) -> &'static str {
        match self {
            Self::Event => "E",
            Self::State => "S",
        }
    }

    /// The features of variables of this kind, in the order of [`Values`].
    pub fn features(self) -> &'static [Feature] {
        match self {
            Self::Event => &EVENT,
            Self::State => &STATE,
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.letter())
    }
}

/// A feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Feature {
    FirstAbsolute,
    MedianAbsolute,
    LastAbsolute,
    FirstRelative,
    MedianRelative,
    LastRelative,
    Count,
    Present,
    Min,
    Mean,
    Max,
    Final,
    QuarterRelative,
    HalfRelative,
    ThreeQuarterRelative,
    QuarterAbsolute,
    HalfAbsolute,
    ThreeQuarterAbsolute,
}

const EVENT: [Feature; 8] = [
    Feature::FirstAbsolute,
    Feature::MedianAbsolute,
    Feature::LastAbsolute,
    Feature::FirstRelative,
    Feature::MedianRelative,
    Feature::LastRelative,
    Feature::Count,
    Feature::Present,
];

const STATE: [Feature; 10] = [
    Feature::Min,
    Feature::Mean,
    Feature::Max,
    Feature::Final,
    Feature::QuarterRelative,
    Feature::HalfRelative,
    Feature::ThreeQuarterRelative,
    Feature::QuarterAbsolute,
    Feature::HalfAbsolute,
    Feature::ThreeQuarterAbsolute,
];

/// The most features that a variable has.
pub const FEATURES_MAX: usize = STATE.len();

/// A variable's features in one instance, in the order of [`Kind::features`]. NaN is a missing
/// value.
pub type Values = [f64; FEATURES_MAX];

impl Feature {
    /// The feature's name: "First.Absolute".
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstAbsolute => "First.Absolute",
            Self::MedianAbsolute => "Median.Absolute",
            Self::LastAbsolute => "Last.Absolute",
            Self::FirstRelative => "First.Relative",
            Self::MedianRelative => "Median.Relative",
            Self::LastRelative => "Last.Relative",
            Self::Count => "Count",
            Self::Present => "Present",
            Self::Min => "Min",
            Self::Mean => "Mean",
            Self::Max => "Max",
            Self::Final => "Final",
            Self::QuarterRelative => "Quarter.Relative",
            Self::HalfRelative => "Half.Relative",
            Self::ThreeQuarterRelative => "ThreeQuarter.Relative",
            Self::QuarterAbsolute => "Quarter.Absolute",
            Self::HalfAbsolute => "Half.Absolute",
            Self::ThreeQuarterAbsolute => "ThreeQuarter.Absolute",
        }
    }

    /// True for times and values at a share of the run's length: they also differ when that does.
    pub fn is_relative(self) -> bool {
        matches!(
            self,
            Self::FirstRelative
                | Self::MedianRelative
                | Self::LastRelative
                | Self::QuarterRelative
                | Self::HalfRelative
                | Self::ThreeQuarterRelative
        )
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Feature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The features of an event at these times (ms since the start of the run), in a run of this length
/// (ms). Sorts the times. Without times, only the count and the presence are there: 0.
pub fn event(times: &mut [f64], length: f64) -> Values {
    let mut values = [f64::NAN; FEATURES_MAX];
    times.sort_unstable_by(f64::total_cmp);
    if let (Some(&first), Some(&last)) = (times.first(), times.last()) {
        let upper = times[times.len() / 2];
        let median = if times.len() % 2 == 1 { upper } else { (times[times.len() / 2 - 1] + upper) / 2.0 };
        values[..3].copy_from_slice(&[first, median, last]);
        values[3..6].copy_from_slice(&[first, median, last].map(|time| relative(time, length)));
    }
    values[6] = times.len() as f64;
    values[7] = if times.is_empty() { 0.0 } else { 1.0 };
    values
}

/// The features of an event that happened once.
pub(super) fn single_event(time: f64, length: f64) -> Values {
    let share = relative(time, length);
    [time, time, time, share, share, share, 1.0, 1.0, f64::NAN, f64::NAN]
}

/// The features of a state with one value.
pub(super) fn single_state(time: f64, value: f64, length: f64, median_length: f64) -> Values {
    let at = |then: f64| if time <= then { value } else { f64::NAN };
    let [a, b, c] = [length / 4.0, length / 2.0, length * 0.75].map(at);
    let [d, e, f] = [median_length / 4.0, median_length / 2.0, median_length * 0.75].map(at);
    [value, value, value, value, a, b, c, d, e, f]
}

/// A run of length 0 has no relative times.
fn relative(time: f64, length: f64) -> f64 {
    if length > 0.0 { time / length } else { f64::NAN }
}

/// The features of a state with these (time, value) pairs, in a run of length `length`, where
/// `median_length` is the median over all instances; all in ms. Sorts the pairs by time, and pairs
/// of equal times keep their order.
pub fn state(points: &mut [(f64, f64)], length: f64, median_length: f64) -> Values {
    points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let Some(&(_, last)) = points.last() else { return [f64::NAN; FEATURES_MAX] };
    let values = || points.iter().map(|&(_, value)| value);
    let at = |time: f64| {
        let known = points.partition_point(|&(logged, _)| logged <= time);
        known.checked_sub(1).map_or(f64::NAN, |index| points[index].1)
    };
    [
        values().fold(f64::INFINITY, f64::min),
        values().sum::<f64>() / points.len() as f64,
        values().fold(f64::NEG_INFINITY, f64::max),
        last,
        at(length / 4.0),
        at(length / 2.0),
        at(length * 0.75),
        at(median_length / 4.0),
        at(median_length / 2.0),
        at(median_length * 0.75),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits are compared, since NaN is a missing value.
    #[test]
    fn one_observation_has_the_features_of_a_list_of_one() {
        let bits = |values: Values| values.map(f64::to_bits);
        for (time, length, median) in [(3.0, 10.0, 8.0), (0.0, 0.0, 4.0), (-1.0, 4.0, 0.0), (9.0, 12.0, 30.0)]
        {
            assert_eq!(bits(single_event(time, length)), bits(event(&mut [time], length)));
            let many = state(&mut [(time, 7.5)], length, median);
            assert_eq!(bits(single_state(time, 7.5, length, median)), bits(many));
        }
    }
}
