//! Samplers whose parameters are searched: one implementation of [`Family`] each.

mod bucket;
mod bump;

pub(crate) use bucket::BucketFamily;
pub(crate) use bump::{BumpFamily, Settings};

use crate::expect::Expected;
use crate::space::{Parameters, Point};
use crate::stop::Stop;
use crate::workload::Workload;

/// A sampler's parameters within bounds that a workload gives, and what they keep.
pub(crate) trait Family: Sync {
    /// Working memory of one thread.
    type Scratch: Default;

    /// The number of parameters.
    fn dimensions(&self) -> usize;

    /// The parameters of a point.
    fn parameters(&self, point: &Point) -> Parameters;

    /// The shares of the bytes and of the traces that are kept, mean over the draws: cheaper than a
    /// score. `None` if asked to stop.
    fn kept(&self, point: &Point, stop: Stop<'_>) -> Option<(f64, f64)>;

    /// The score on each draw. `None` if asked to stop.
    fn expected(&self, point: &Point, scratch: &mut Self::Scratch, stop: Stop<'_>) -> Option<Vec<Expected>>;

    /// The points that keep the least and the most of all with this window (or whatever else can't
    /// be mixed).
    fn extremes(&self, like: &Point) -> (Point, Point);

    /// Some points that between them keep the least and the most.
    fn corners(&self) -> Vec<Point>;

    /// The part that is kept whatever the parameters, and what to do about it.
    fn least(&self) -> (&'static str, &'static str);

    /// The cost of a score, in units of some ns.
    fn cost(&self) -> u64;
}

/// Traces of the key that has most.
fn most_calls(workload: &Workload) -> f64 {
    f64::from(workload.traces_by_key().into_iter().max().unwrap_or(0))
}
