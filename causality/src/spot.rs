//! Names of the points of a trace.

/// The kind of a point, and the number of an event among its span's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spot {
    /// A span's start.
    Start,
    /// A span's end.
    End,
    /// An event, by its number among its span's
    /// [events](astracer_recording::recording::SpanView::events).
    Event(u32),
    /// An X-Trace report.
    Report,
}

/// A point of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// The span's place in [`TraceGraph::spans`](crate::rules::TraceGraph::spans).
    pub span: u32,
    /// Which of its points.
    pub spot: Spot,
}
