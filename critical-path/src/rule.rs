//! The rules for finding a critical path, and the entry point for trees of spans.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use astracer_recording::stop::Pulse;

use crate::crisp::Crisp;
use crate::path::CriticalPath;
use crate::place::{Interval, Placed, Skew};
use crate::tree::Tree;
use crate::walk::{Order, Walk};

/// The rule that decides which activity a span was waiting for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// The child that finished last; a child that ends when another begins counts as earlier. In
    /// event graphs the edges state what waited for what, and the path is the longest one.
    #[default]
    Last,
    /// As in Jaeger's user interface.
    Jaeger,
    /// As in CRISP.
    Crisp,
    /// The parent with the latest time, as in X-Trace's own tool. Spans count as events at their
    /// starts.
    Events,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 4] = [Self::Last, Self::Jaeger, Self::Crisp, Self::Events];

    /// The name used on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Jaeger => "jaeger",
            Self::Crisp => "crisp",
            Self::Events => "events",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Rule {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        let found = Self::ALL.into_iter().find(|rule| rule.name() == text);
        found.ok_or_else(|| UnknownRule(text.to_owned()))
    }
}

/// The text is not the name of a [`Rule`].
#[derive(Clone, Debug)]
pub struct UnknownRule(String);

impl fmt::Display for UnknownRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown rule '{}': use last, jaeger, crisp or events", self.0.escape_debug())
    }
}

impl Error for UnknownRule {}

/// Finds the paths of trees, one tree after another.
#[derive(Clone, Debug, Default)]
pub struct SpanPaths {
    placed: Placed,
    walk: Walk,
    crisp: Crisp,
}

impl SpanPaths {
    /// Writes the path of a tree to `path`, replacing its content. For [`Rule::Events`], which is
    /// for event graphs, this uses [`Rule::Last`]. Only the latter shifts skewed spans. Returns
    /// false if the pulse stopped the work; the path is incomplete then.
    pub fn find(
        &mut self,
        tree: &Tree,
        rule: Rule,
        skew: Skew,
        path: &mut CriticalPath,
        pulse: &mut Pulse<'_>,
    ) -> bool {
        path.clear();
        match rule {
            Rule::Last | Rule::Events => self.last(tree, skew, path, pulse),
            Rule::Jaeger => self.jaeger(tree, path, pulse),
            Rule::Crisp => self.crisp.run(tree, path, pulse),
        }
    }

    /// The intervals that the rule `last` found for the latest tree.
    pub fn placed(&self) -> &Placed {
        &self.placed
    }

    /// Fits the spans of a tree into their parents as the rule `last` does, without finding a path.
    pub(crate) fn place(&mut self, tree: &Tree, skew: Skew, pulse: &mut Pulse<'_>) -> bool {
        self.placed.place(tree, skew, pulse)
    }

    fn last(&mut self, tree: &Tree, skew: Skew, path: &mut CriticalPath, pulse: &mut Pulse<'_>) -> bool {
        if !self.placed.place(tree, skew, pulse) {
            return false;
        }
        let placed = &self.placed;
        let order = Order {
            key: &|child| placed.interval(tree, child).map_or((0, 0), |own| (own.end, own.start)),
            before: |child, instant, _| child.end <= instant,
            counts: |child| child.length() > 0,
        };
        if !self.walk.run(tree, placed, &order, path, pulse) {
            return false;
        }
        path.adjusted = placed.adjusted();
        let shifted = path.segments.iter().filter(|segment| placed.was_moved(segment.node));
        path.shifted_ns = shifted.map(|segment| u128::from(segment.length())).sum();
        true
    }

    fn jaeger(&mut self, tree: &Tree, path: &mut CriticalPath, pulse: &mut Pulse<'_>) -> bool {
        self.placed.place_as_jaeger(tree);
        let nodes = tree.nodes();
        // Jaeger sorts by the recorded ends, before clipping; equal ends stay in the order of their
        // starts.
        let order = Order {
            key: &|child| (nodes[child as usize].end, 0),
            before: |child: Interval, instant, returning| !returning || child.end < instant,
            counts: |_| true,
        };
        path.adjusted = self.placed.adjusted();
        self.walk.run(tree, &self.placed, &order, path, pulse)
    }
}
