//! Advice: the operations of a query at one tracepoint.

use crate::aggregate::Function;
use crate::expression::Expression;
use crate::names::Tracepoint;

/// The lists of a plan.
pub(crate) const LISTS: usize = 16;
/// The operations of a list.
pub(crate) const OPERATIONS: usize = 64;
/// The slots of a row, and its partial aggregates.
pub(crate) const SLOTS: usize = 250;

/// The operations at one tracepoint, in order. None jumps, loops or calls.
#[derive(Clone, Debug)]
pub(crate) struct Advice {
    /// The variable that the query gives the tracepoint.
    pub(crate) label: String,
    pub(crate) tracepoints: Vec<Tracepoint>,
    pub(crate) operations: Vec<Operation>,
    /// The names of the slots, for people.
    pub(crate) slots: Vec<String>,
    /// The number of partial aggregates of a row.
    pub(crate) partials: usize,
}

/// An operation on the rows of a list, of which there is one at first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operation {
    /// Puts a variable of the point into a slot.
    Observe { slot: u8, variable: u16 },
    /// Joins each row with each row of a bag: its columns go to slots, and the aggregates of a
    /// grouped bag to partials from `partial` on.
    Unpack { bag: u8, slots: Vec<u8>, partial: u8 },
    /// Drops each row for which a row of a bag, put into these slots, fulfils the condition.
    Without { bag: u8, slots: Vec<u8>, condition: Expression },
    /// Puts the value of an expression into a slot.
    Let { slot: u8, expression: Expression },
    /// Keeps the rows for which an expression is true.
    Filter { expression: Expression },
    /// Puts the rows into a bag.
    Pack { bag: u8, keep: Keep, relation: Relation, slots: Vec<u8>, folds: Vec<Fold> },
    /// Puts the rows into the query's table.
    Emit { slots: Vec<u8>, folds: Vec<Fold> },
}

/// The way from the points that pack into a bag to those that unpack it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// A point happened before the other.
    Before,
    /// A point is in a span below the other's, or in that span itself.
    Below,
    /// A point is of a child of the other's span, or an event of that span.
    Child,
}

/// The rows of a bag that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    All,
    /// Events with fewer than n before them.
    First(u8),
    /// Events with fewer than n behind them.
    Recent(u8),
    /// All, with equal ones counted and their aggregates begun.
    Groups,
    /// The answer of an aggregated query, finished where it is unpacked.
    Answer,
}

impl Keep {
    pub(crate) fn is_grouped(self) -> bool {
        matches!(self, Keep::Groups | Keep::Answer)
    }
}

/// An aggregate of a group of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fold {
    pub(crate) function: Function,
    pub(crate) input: Input,
}

/// The input of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The rows themselves, for COUNT.
    Rows,
    /// A slot's value.
    Slot(u8),
    /// An aggregate that a grouped bag began.
    Partial(u8),
}

/// The form of a bag: both its PACK and its UNPACK have it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    pub(crate) keep: Keep,
    pub(crate) relation: Relation,
    pub(crate) columns: usize,
    pub(crate) functions: Vec<Function>,
}

impl Shape {
    /// The slots that an UNPACK fills.
    pub(crate) fn unpacked(&self) -> usize {
        match self.keep {
            Keep::Answer => self.columns + self.functions.len(),
            _ => self.columns,
        }
    }

    /// The partial aggregates that an UNPACK fills.
    pub(crate) fn partials(&self) -> usize {
        if self.keep == Keep::Groups { self.functions.len() } else { 0 }
    }
}
