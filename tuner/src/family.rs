//! Samplers with parameters to search for; each has its own implementation of [`Family`].

mod bucket;
mod bump;

pub(crate) use bucket::BucketFamily;
pub(crate) use bump::{BumpFamily, Settings};

use crate::expect::Expected;
use crate::space::{Parameters, Point};
use crate::stop::Stop;
use crate::workload::Workload;

/// A sampler's parameters, within bounds derived from a workload, and what it keeps with them.
pub(crate) trait Family: Sync {
    /// Working memory of one thread.
    type Scratch: Default;

    /// The number of parameters.
    fn dimensions(&self) -> usize;

    /// The parameters at a point of the search space.
    fn parameters(&self, point: &Point) -> Parameters;

    /// The kept shares of the bytes and of the traces, as means over the draws. Cheaper than a
    /// score. `None` if asked to stop.
    fn kept(&self, point: &Point, stop: Stop<'_>) -> Option<(f64, f64)>;

    /// The score on each draw. `None` if asked to stop.
    fn expected(&self, point: &Point, scratch: &mut Self::Scratch, stop: Stop<'_>) -> Option<Vec<Expected>>;

    /// The points that keep the least and the most among those with the same window as `like` (or
    /// whatever else cannot be interpolated).
    fn extremes(&self, like: &Point) -> (Point, Point);

    /// Points that include the one that keeps the least and the one that keeps the most.
    fn corners(&self) -> Vec<Point>;

    /// Two texts for people: what the sampler keeps whatever its parameters, and what to do about
    /// it.
    fn least(&self) -> (&'static str, &'static str);

    /// The cost of a score, in units of a few ns.
    fn cost(&self) -> u64;
}

/// The number of traces of the most frequent key.
fn most_calls(workload: &Workload) -> f64 {
    f64::from(workload.traces_by_key().into_iter().max().unwrap_or(0))
}
