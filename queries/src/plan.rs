//! Plans: the advice of a query, and the needs of its tracepoints.

use std::collections::BTreeMap;

use crate::advice::{Advice, Fold, Input, LISTS, OPERATIONS, Operation, Relation, SLOTS, Shape};
use crate::aggregate::Function;
use crate::expression::{Expression, Step};
use crate::fault::nearest;
use crate::names::Tracepoint;
use crate::point::{Edge, Variable};

/// The compiled form of a program, which all threads may share.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) advice: Vec<Advice>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) columns: Vec<String>,
    /// For each column its position among the emitted slots, then among the aggregates.
    pub(crate) positions: Vec<usize>,
    /// Whether each emitted row is a row of the table; otherwise rows are grouped.
    pub(crate) listing: bool,
    /// By bag.
    pub(crate) shapes: BTreeMap<u8, Shape>,
    pub(crate) keys: usize,
    pub(crate) functions: Vec<Function>,
    /// The lists of each stage.
    pub(crate) stages: Vec<u16>,
}

/// The advice lists that a tracepoint's name matches. To look a name up costs more than to keep
/// the result for the next point of the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    start: u16,
    end: u16,
    event: u16,
}

impl Lists {
    /// Whether no list matches.
    pub fn is_empty(self) -> bool {
        self.start | self.end | self.event == 0
    }

    /// Whether a list matches points of this edge.
    pub fn wants(self, edge: Edge) -> bool {
        self.at(edge) != 0
    }

    pub(crate) fn at(self, edge: Edge) -> u16 {
        match edge {
            Edge::Start => self.start,
            Edge::End => self.end,
            Edge::Event => self.event,
        }
    }
}

impl Plan {
    /// A plan of these parts, or a sentence about the rule that they break. Every plan passes
    /// through here, whether it was compiled or received.
    pub(crate) fn new(
        advice: Vec<Advice>,
        variables: Vec<Variable>,
        columns: Vec<(String, usize)>,
        listing: bool,
    ) -> Result<Plan, &'static str> {
        let (columns, positions) = columns.into_iter().unzip();
        let mut plan = Plan {
            advice,
            variables,
            columns,
            positions,
            listing,
            shapes: BTreeMap::new(),
            keys: 0,
            functions: Vec::new(),
            stages: Vec::new(),
        };
        plan.validate()?;
        plan.find_stages()?;
        Ok(plan)
    }

    fn validate(&mut self) -> Result<(), &'static str> {
        if self.advice.is_empty() || self.advice.len() > LISTS {
            return Err("a plan has 1 to 16 lists");
        }
        let mut emits = 0;
        for advice in &self.advice {
            match advice.operations.last() {
                Some(Operation::Emit { slots, folds }) => {
                    emits += 1;
                    self.keys = slots.len();
                    self.functions = folds.iter().map(|fold| fold.function).collect();
                }
                Some(Operation::Pack { bag, keep, relation, slots, folds }) => {
                    let functions = folds.iter().map(|fold| fold.function).collect();
                    let shape = Shape { keep: *keep, relation: *relation, columns: slots.len(), functions };
                    if usize::from(*bag) >= LISTS || self.shapes.insert(*bag, shape).is_some() {
                        return Err("each bag has a number below 16 and one PACK");
                    }
                    if !keep.is_grouped() && !folds.is_empty() {
                        return Err("only a grouped PACK has aggregates");
                    }
                }
                _ => return Err("a list ends with PACK or EMIT"),
            }
        }
        if emits != 1 {
            return Err("a plan has one EMIT");
        }
        if self.listing && !self.functions.is_empty() {
            return Err("rows that are listed have no aggregates");
        }
        let width = self.keys + self.functions.len();
        if self.columns.is_empty() || self.positions.iter().any(|&position| position >= width) {
            return Err("a column is not emitted");
        }
        self.advice.iter().try_for_each(|advice| self.validate_list(advice))
    }

    fn validate_list(&self, advice: &Advice) -> Result<(), &'static str> {
        if advice.operations.len() > OPERATIONS {
            return Err("a list has up to 64 operations");
        }
        if advice.tracepoints.is_empty() {
            return Err("a list has a tracepoint");
        }
        if advice.slots.len() > SLOTS || advice.partials > SLOTS {
            return Err("a row has up to 250 slots");
        }
        let mut known =
            Known { slots: vec![false; advice.slots.len()], partials: vec![false; advice.partials] };
        for (index, operation) in advice.operations.iter().enumerate() {
            let last = index + 1 == advice.operations.len();
            match operation {
                Operation::Observe { slot, variable } => {
                    if usize::from(*variable) >= self.variables.len() {
                        return Err("OBSERVE names no variable");
                    }
                    known.set(*slot)?;
                }
                Operation::Unpack { bag, slots, partial } => {
                    let shape = self.shapes.get(bag).ok_or("UNPACK names a bag without a PACK")?;
                    if shape.unpacked() != slots.len() {
                        return Err("UNPACK and PACK differ in their columns");
                    }
                    slots.iter().try_for_each(|&slot| known.set(slot))?;
                    for index in 0..shape.partials() {
                        let partial = known.partials.get_mut(usize::from(*partial) + index);
                        *partial.ok_or("UNPACK has no slot for an aggregate")? = true;
                    }
                }
                Operation::Without { bag, slots, condition } => {
                    let shape = self.shapes.get(bag).ok_or("WITHOUT names a bag without a PACK")?;
                    if shape.unpacked() != slots.len() || shape.partials() > 0 {
                        return Err("WITHOUT and PACK differ in their columns");
                    }
                    slots.iter().try_for_each(|&slot| known.set(slot))?;
                    known.reads(condition)?;
                }
                Operation::Let { slot, expression } => {
                    known.reads(expression)?;
                    known.set(*slot)?;
                }
                Operation::Filter { expression } => known.reads(expression)?,
                Operation::Pack { slots, folds, .. } | Operation::Emit { slots, folds } => {
                    if !last {
                        return Err("a list ends with its only PACK or EMIT");
                    }
                    slots.iter().try_for_each(|&slot| known.get(slot))?;
                    folds.iter().try_for_each(|fold| known.folds(fold))?;
                }
            }
        }
        Ok(())
    }

    /// The names of the answer's columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Every variable that some advice observes.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// Finds the stage of each list: rows below a span are complete before what unpacks them runs.
    fn find_stages(&mut self) -> Result<(), &'static str> {
        let relation = |bag: &u8| self.shapes.get(bag).map(|shape| shape.relation);
        let of = |advice: &Advice| match advice.operations.last() {
            Some(Operation::Pack { bag, .. }) => Some(*bag),
            _ => None,
        };
        let unpacks = |advice: &Advice, bag: u8| {
            advice.operations.iter().any(|operation| match operation {
                Operation::Unpack { bag: known, .. } | Operation::Without { bag: known, .. } => *known == bag,
                _ => false,
            })
        };
        let is_nested = |bag: &u8| relation(bag).is_some_and(|relation| relation != Relation::Before);
        if !self.shapes.keys().any(is_nested) {
            self.stages = vec![u16::MAX];
            return Ok(());
        }
        // The number of joins below spans on the way to EMIT.
        let mut depths = Vec::new();
        for advice in &self.advice {
            let (mut advice, mut depth) = (advice, 0);
            for steps in 0.. {
                let Some(bag) = of(advice) else { break };
                let mut users = self.advice.iter().filter(|other| unpacks(other, bag));
                let (Some(user), None, true) = (users.next(), users.next(), steps < LISTS) else {
                    return Err("beside joins below spans, each bag is unpacked in one list");
                };
                depth += usize::from(is_nested(&bag));
                advice = user;
            }
            depths.push(depth);
        }
        let last = depths.iter().copied().max().unwrap_or(0);
        self.stages = vec![0; last + 1];
        for (list, depth) in depths.into_iter().enumerate() {
            self.stages[last - depth] |= 1 << list;
        }
        Ok(())
    }

    /// Whether the query joins points in the order of cause. If not, points may come in any order,
    /// and need no bag of their own.
    pub fn joins(&self) -> bool {
        self.shapes.values().any(|shape| shape.relation == Relation::Before)
    }

    /// The number of times that the points of each trace are visited: once more for each join below
    /// a span that another one is part of.
    pub fn stages(&self) -> usize {
        self.stages.len()
    }

    /// The lists that a tracepoint of this name and source line matches.
    pub fn select(&self, name: &str, line: Option<(&str, u32)>) -> Lists {
        let mut lists = Lists::default();
        for (index, advice) in self.advice.iter().enumerate() {
            for tracepoint in &advice.tracepoints {
                if tracepoint.names(name, line) {
                    lists.start |= u16::from(tracepoint.moment.matches(Edge::Start)) << index;
                    lists.end |= u16::from(tracepoint.moment.matches(Edge::End)) << index;
                    lists.event |= u16::from(tracepoint.moment.matches(Edge::Event)) << index;
                }
            }
        }
        lists
    }

    /// Whether a tracepoint may be a line of source code.
    pub fn names_lines(&self) -> bool {
        self.tracepoints().any(Tracepoint::may_be_line)
    }

    /// The tracepoints as the query writes them, except for lines of source code, that match none
    /// of these names; each with a name that was perhaps meant.
    pub fn unmatched<'n>(&self, names: &[&'n str]) -> Vec<(String, Option<&'n str>)> {
        let unmatched = self.tracepoints().filter(|tracepoint| {
            !tracepoint.may_be_line() && !names.iter().any(|name| tracepoint.names(name, None))
        });
        let mut found: Vec<_> = unmatched
            .map(|tracepoint| {
                let core = tracepoint.pattern.trim_matches('*').to_lowercase();
                let part = names.iter().copied().filter(|name| name.to_lowercase().contains(&core)).min();
                (tracepoint.to_string(), part.or_else(|| nearest(&core, names.iter().copied())))
            })
            .collect();
        found.sort();
        found.dedup();
        found
    }

    fn tracepoints(&self) -> impl Iterator<Item = &Tracepoint> {
        self.advice.iter().flat_map(|advice| &advice.tracepoints)
    }

    /// Whether each column is an aggregate.
    pub fn aggregates(&self) -> impl Iterator<Item = bool> {
        self.positions.iter().map(|&position| position >= self.keys)
    }

    /// Whether one of these lists observes a variable, by its index.
    pub fn needs(&self, lists: Lists, variable: usize) -> bool {
        let any = lists.start | lists.end | lists.event;
        self.advice.iter().enumerate().any(|(index, advice)| {
            any & (1 << index) != 0
                && advice.operations.iter().any(|operation| {
                    matches!(operation, Operation::Observe { variable: seen, .. } if usize::from(*seen) == variable)
                })
        })
    }
}

/// The slots and partial aggregates that the operations so far have filled.
struct Known {
    slots: Vec<bool>,
    partials: Vec<bool>,
}

impl Known {
    fn set(&mut self, slot: u8) -> Result<(), &'static str> {
        *self.slots.get_mut(usize::from(slot)).ok_or("a slot is beyond the row")? = true;
        Ok(())
    }

    fn get(&self, slot: u8) -> Result<(), &'static str> {
        if self.slots.get(usize::from(slot)) == Some(&true) {
            return Ok(());
        }
        Err("a slot is read before it is filled")
    }

    fn reads(&self, expression: &Expression) -> Result<(), &'static str> {
        expression.steps().iter().try_for_each(|step| match step {
            Step::Slot(slot) => self.get(*slot),
            _ => Ok(()),
        })
    }

    fn folds(&self, fold: &Fold) -> Result<(), &'static str> {
        match fold.input {
            Input::Rows if fold.function == Function::Count => Ok(()),
            Input::Rows => Err("only COUNT needs no value"),
            Input::Slot(slot) => self.get(slot),
            Input::Partial(partial) if self.partials.get(usize::from(partial)) == Some(&true) => Ok(()),
            Input::Partial(_) => Err("an aggregate is read before it is unpacked"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Program, Rewrite};

    fn plan(text: &str) -> Plan {
        Program::parse(text).unwrap().plan(Rewrite::ALL).unwrap()
    }

    /// The message for a plan after one change of its lists.
    fn refused(change: impl FnOnce(&mut Vec<Advice>)) -> Option<&'static str> {
        let mut plan = plan("From a In a Join b In b On b -> a Select a.x, b.v");
        change(&mut plan.advice);
        let columns = plan.columns.into_iter().zip(plan.positions).collect();
        Plan::new(plan.advice, plan.variables, columns, plan.listing).err()
    }

    #[test]
    fn lists_that_break_a_rule_are_refused() {
        let list = |lists: &[Advice], emits: bool| {
            let is = |advice: &Advice| matches!(advice.operations.last(), Some(Operation::Emit { .. }));
            lists.iter().position(|advice| is(advice) == emits).expect("a list of each kind")
        };
        assert_eq!(refused(|_| {}), None);
        assert_eq!(
            refused(|lists| {
                let at = list(lists, true);
                lists.remove(at);
            }),
            Some("a plan has one EMIT")
        );
        assert_eq!(
            refused(|lists| {
                let at = list(lists, false);
                lists.remove(at);
            }),
            Some("UNPACK names a bag without a PACK")
        );
        assert_eq!(
            refused(|lists| {
                let at = list(lists, false);
                let pack = lists[at].operations.last().cloned();
                lists[at].operations.extend(pack);
            }),
            Some("a list ends with its only PACK or EMIT")
        );
        assert_eq!(
            refused(|lists| {
                let at = list(lists, true);
                for operation in &mut lists[at].operations {
                    if let Operation::Unpack { slots, .. } = operation {
                        slots.pop();
                    }
                }
            }),
            Some("UNPACK and PACK differ in their columns")
        );
    }

    /// A name may match several lists, of which each edge has its own.
    #[test]
    fn a_name_selects_every_list_that_it_matches() {
        let plan = plan("From a In \"x*\"@end Join b In x@end On b -> a Select b.v");
        let lists = plan.select("x", None);
        assert_eq!((lists.start, lists.end.count_ones()), (0, 2));
        assert_eq!(plan.select("xy", None).end.count_ones(), 1);
        assert!(plan.select("y", None).is_empty());
    }
}
