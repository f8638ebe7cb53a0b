//! The longest way through each request, known while it runs: CPath of Brown, "A General Baggage
//! Model for End-to-End Tracing and Its Application on Critical Path Analysis" (2016).
//!
//! At each point of a request, the length of the longest way there is the largest one of the
//! points directly before it plus the time since: `d_u = max(d_v + l)`. A flow carries its
//! longest ways in a [`Note`]. A fork copies it, a join takes the longer ways of both.

mod experiments;
mod messages;
mod names;
mod note;
mod path;
mod pieces;
mod report;
mod totals;
mod way;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::experiments::{EXPERIMENTS_MAX, ExperimentError, Zone, zone};
pub use self::note::Note;
pub(crate) use self::note::{Begun, Key, ZONE};
pub use self::report::{ExperimentLength, FunctionTime, Here, Segment, Slack, WayTimes};
pub use self::totals::{CriticalPathRow, ExperimentResult};
pub use self::way::TimeKind;

use self::experiments::Running;
use self::names::Names;
use self::totals::Totals;

/// The times that make up the length of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Measure {
    /// All time: work, waits other than joins, and what lies between flows. The length of the
    /// longest way is the time since the local root began, to the nanosecond.
    #[default]
    Wall,
    /// Only the time in which a thread worked, as in the paper, and that of opaque calls.
    Productive,
}

impl Measure {
    #[inline]
    fn counts(self, kind: TimeKind) -> bool {
        self == Measure::Wall || matches!(kind, TimeKind::Work | TimeKind::Opaque)
    }
}

/// Critical paths of a process's requests, with the experiments on them. Clones are the same.
#[derive(Clone)]
pub struct CriticalPath(Arc<Shared>);

struct Shared {
    is_measured: bool,
    /// Spans below dropped roots do not exist.
    has_no_dropped_spans: bool,
    measure: Measure,
    top: usize,
    names: Names,
    running: Running,
    /// The next number of a local root's ways; 0 is that of other processes.
    frames: AtomicU64,
    counts: Counts,
    totals: Totals,
}

#[derive(Debug, Default)]
struct Counts {
    clock_back: AtomicU64,
    foreign: AtomicU64,
    too_deep: AtomicU64,
    refused: AtomicU64,
    too_long: AtomicU64,
}

/// Counts of what the measure could not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CriticalPathStats {
    /// Readings of the clock before the one that a flow had read last. They count as no time.
    pub clock_back: u64,
    /// Joins of flows of another request. The waiting flow's own way goes on.
    pub foreign: u64,
    /// Spans that were open in a flow beyond 64 others. Their time is that of the span around.
    pub too_deep: u64,
    /// Notes of other processes that were not read: broken, of another version, or of another
    /// measure.
    pub refused: u64,
    /// Callees that claimed more time than the call took. Their times were cut in proportion.
    pub too_long: u64,
}

/// Ways of a request that are kept, by default.
const TOP: usize = 8;
/// More ways take time at each join.
const TOP_MAX: usize = 64;

impl Default for CriticalPath {
    fn default() -> Self {
        CriticalPath::new(Measure::default())
    }
}

impl CriticalPath {
    /// Critical paths by this measure.
    pub fn new(measure: Measure) -> Self {
        CriticalPath::with(measure, TOP, true, false)
    }

    /// The same, with this number of longest ways instead of 8; from 1 to 64.
    #[must_use]
    pub fn with_top(self, ways: usize) -> Self {
        CriticalPath::with(self.0.measure, ways.clamp(1, TOP_MAX), true, self.0.has_no_dropped_spans)
    }

    /// The same, for a service whose dropped requests have no spans below their local roots
    /// (`DroppedSpans::Disabled` of the SDK): in the rows, the time of such a root that is in no
    /// zone is `(not recorded)`, and not the root's.
    #[must_use]
    pub fn without_dropped_spans(self) -> Self {
        let Shared { measure, top, .. } = *self.0;
        CriticalPath::with(measure, top, true, true)
    }

    /// Critical paths of a service that measures none: no rows, and no experiments.
    pub fn not_measured() -> Self {
        CriticalPath::with(Measure::Wall, TOP, false, false)
    }

    fn with(measure: Measure, top: usize, is_measured: bool, has_no_dropped_spans: bool) -> Self {
        CriticalPath(Arc::new(Shared {
            is_measured,
            has_no_dropped_spans,
            measure,
            top,
            names: Names::default(),
            running: Running::default(),
            frames: AtomicU64::new(1),
            counts: Counts::default(),
            totals: Totals::default(),
        }))
    }

    /// The measure.
    pub fn measure(&self) -> Measure {
        self.0.measure
    }

    /// Computes from the next request on how long requests would take if the time in a zone were
    /// multiplied by a factor. An experiment of the same name is replaced.
    ///
    /// # Errors
    ///
    /// If 8 others run, the factor is not between 0 and 1,000, or the service does not measure
    /// critical paths.
    pub fn experiment(&self, name: &str, zone: Zone, factor: f64) -> Result<(), ExperimentError> {
        match self.0.is_measured {
            true => self.0.running.add(name.into(), zone, factor),
            false => Err(ExperimentError::NotMeasured),
        }
    }

    /// Ends an experiment. Requests that have begun complete it. Returns whether there was one of
    /// this name.
    pub fn end_experiment(&self, name: &str) -> bool {
        self.0.running.remove(name)
    }

    /// Totals of all requests, kept or dropped, by the key of their local roots; those with the
    /// most time come first.
    pub fn rows(&self) -> Vec<CriticalPathRow> {
        self.0.totals.read(&self.0.names)
    }

    /// Counts since the beginning.
    pub fn stats(&self) -> CriticalPathStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.0.counts;
        CriticalPathStats {
            clock_back: load(&counts.clock_back),
            foreign: load(&counts.foreign),
            too_deep: load(&counts.too_deep),
            refused: load(&counts.refused),
            too_long: load(&counts.too_long),
        }
    }
}

impl fmt::Debug for CriticalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CriticalPath")
            .field("measure", &self.0.measure)
            .field("top", &self.0.top)
            .finish_non_exhaustive()
    }
}
