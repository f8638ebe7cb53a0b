//! Counts of flows, and the callsites of unmarked forks.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::Metadata;
use tracing::callsite::Identifier;

use super::message_stats::MessageStats;
use super::slots::lock;
use crate::registry::Losses;
use crate::x_trace::XTraceStats;

/// Counts of [`Flows`](super::Flows) since the beginning.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FlowStats {
    /// Flows that exist now.
    pub open: u64,
    /// Flows that began at a local root.
    pub requests: u64,
    /// Flows that were split off.
    pub branches: u64,
    /// Branches that were merged.
    pub joined: u64,
    /// Branches that ended on purpose without being merged: [`Done::detach`](super::Done::detach).
    pub detached: u64,
    /// Messages whose flow a worker has adopted.
    pub adopted: u64,
    /// Branches that were dropped: aborted, panicked, timed out, or never joined.
    pub dropped: u64,
    /// Joins where the thread was in no flow. Nothing was merged.
    pub joins_outside: u64,
    /// Flows that did not fit within the bound on flows, or on those nested on one thread.
    pub refused: u64,
    /// Spans that were entered where their flow was not current, by callsite: a `.branch()` is
    /// missing there. The most frequent come first.
    pub unmarked: Vec<UnmarkedFork>,
    /// Losses of the flows' baggage.
    pub losses: Losses,
    /// Messages between processes.
    pub messages: MessageStats,
    /// Events of X-Trace.
    pub x_trace: XTraceStats,
}

/// A callsite whose spans continue a flow that is not current.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnmarkedFork {
    /// The span's name.
    pub name: &'static str,
    /// The span's target.
    pub target: &'static str,
    /// The file, if the callsite has one.
    pub file: Option<&'static str>,
    /// The line, if the callsite has one.
    pub line: Option<u32>,
    /// The forks.
    pub count: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(super) requests: AtomicU64,
    pub(super) branches: AtomicU64,
    pub(super) joined: AtomicU64,
    pub(super) detached: AtomicU64,
    pub(super) adopted: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) joins_outside: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Callsites are static, so there are not more of them than in the program.
    unmarked: Mutex<HashMap<Identifier, UnmarkedFork>>,
}

impl Counts {
    pub(super) fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_unmarked(&self, metadata: &'static Metadata<'static>) {
        let mut unmarked = lock(&self.unmarked);
        let fork = unmarked.entry(metadata.callsite()).or_insert_with(|| UnmarkedFork {
            name: metadata.name(),
            target: metadata.target(),
            file: metadata.file(),
            line: metadata.line(),
            count: 0,
        });
        fork.count += 1;
    }

    pub(super) fn stats(&self, open: u64, losses: Losses) -> FlowStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut unmarked: Vec<UnmarkedFork> = lock(&self.unmarked).values().cloned().collect();
        unmarked.sort_by(|a, b| {
            let place = |fork: &UnmarkedFork| (fork.file, fork.line, fork.name);
            b.count.cmp(&a.count).then_with(|| place(a).cmp(&place(b)))
        });
        FlowStats {
            open,
            requests: load(&self.requests),
            branches: load(&self.branches),
            joined: load(&self.joined),
            detached: load(&self.detached),
            adopted: load(&self.adopted),
            dropped: load(&self.dropped),
            joins_outside: load(&self.joins_outside),
            refused: load(&self.refused),
            unmarked,
            losses,
            ..FlowStats::default()
        }
    }
}
