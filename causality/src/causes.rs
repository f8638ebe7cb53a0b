//! All points of a recording with the edges between them, and their times on one clock.

use crate::clocks::{self, HostClock};
use crate::constraints;
use crate::edge::{Edge, Found, Unmatched};
use crate::intake::Collected;
use crate::points::{Events, Row};

/// The treatment of clocks.
#[derive(Clone, Debug, Default)]
pub struct Clocking {
    /// True to take all clocks as right.
    pub raw_times: bool,
    /// By how many nanoseconds the clocks of hosts run ahead, as far as the user states it.
    pub offsets: Vec<(String, i64)>,
}

/// Points, edges and clocks. Nodes up to the number of [`Events::rows`] are these points; the
/// further nodes are junctions.
///
/// A *junction* is a moment of a span without a point of its own: some children have returned, and
/// others begin. Edges lead over it, so that n children before m others take n + m edges instead of
/// n x m. Nobody sees junctions: no list, count, length of a chain or file includes them.
#[derive(Debug)]
#[non_exhaustive]
pub struct Causes {
    /// The events, with their threads, processes, hosts and files.
    pub events: Events,
    /// The constraints: each event `before` happened before `after`, for the reason `kind`. Ordered
    /// by kind, then by the later event.
    pub edges: Vec<Edge>,
    /// Events that lack their counterpart, with the reason.
    pub unmatched: Vec<Unmatched>,
    /// The corrected time of each junction, in nanoseconds since 1970.
    pub junctions: Vec<u64>,
    /// The clock of each host; empty if all clocks are taken as right.
    pub host_clocks: Vec<HostClock>,
    /// The recorded time of each point, less what its host's clock runs ahead.
    pub aligned_times: Vec<u64>,
}

impl Causes {
    /// Finds the edges between collected events, and estimates clocks from them.
    pub fn find(collected: Collected, clocking: &Clocking) -> Self {
        let Collected { events, ties, .. } = collected;
        let Found { edges, unmatched } = constraints::find(&events, &ties.edges);
        let host_clocks = if clocking.raw_times {
            Vec::new()
        } else {
            let given =
                |host: &String| clocking.offsets.iter().find(|(name, _)| name == host).map(|own| own.1);
            let given: Vec<_> = events.hosts().iter().map(given).collect();
            clocks::estimate(&events, &edges, &ties.pairs, &given)
        };
        let ahead =
            |row: &Row| host_clocks.get(events.process(row).host as usize).map_or(0, |clock| clock.ahead);
        let aligned = |row: &Row| row.time.saturating_add_signed(ahead(row).saturating_neg());
        let aligned_times = events.rows().iter().map(aligned).collect();
        Self { events, edges, unmatched, junctions: Vec::new(), host_clocks, aligned_times }
    }
}
