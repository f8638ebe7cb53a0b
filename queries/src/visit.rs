//! A visit of a point: its advice runs on the request's bag.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::advice::{Advice, Fold, Input, Keep, Operation, Relation, Shape};
use crate::aggregate::{Given, State};
use crate::bag::Bag;
use crate::entry::{Content, Packed};
use crate::group::{Group, Key};
use crate::output::Output;
use crate::plan::{Lists, Plan};
use crate::point::Point;
use crate::value::Value;

/// A row on its way through a list.
#[derive(Clone)]
struct Row {
    values: Vec<Value>,
    /// Aggregates that grouped packs began: the group, and the aggregate's place in it.
    partials: Vec<Option<(Arc<Group>, usize)>>,
    /// The equal rows that it stands for.
    count: i128,
    weight: f64,
}

impl Row {
    /// An input of an aggregate. A begun one counts once for each combination of the other rows.
    fn given(&self, input: Input) -> Given<'_> {
        match input {
            Input::Rows => Given::Row,
            Input::Slot(slot) => Given::Value(self.values.get(usize::from(slot)).unwrap_or(&Value::Null)),
            Input::Partial(partial) => match self.partials.get(usize::from(partial)) {
                Some(Some((group, index))) => match group.states.get(*index) {
                    Some(state) => Given::Partial(state, self.count / group.count.max(1)),
                    None => Given::Value(&Value::Null),
                },
                _ => Given::Value(&Value::Null),
            },
        }
    }

    fn columns(&self, slots: &[u8]) -> impl Iterator<Item = &Value> {
        slots.iter().map(|&slot| self.values.get(usize::from(slot)).unwrap_or(&Value::Null))
    }
}

/// Rows that a list packs, once all lists of the point have unpacked.
struct Packing<'p> {
    bag: u8,
    keep: Keep,
    relation: Relation,
    slots: &'p [u8],
    folds: &'p [Fold],
    rows: Vec<Row>,
}

impl Plan {
    /// Runs the advice of a point on the bag of its request, in the stage that the output is in.
    /// `lists` is the result of [`Plan::select`] for the point's name.
    pub fn visit<P: Point + ?Sized>(&self, bag: &mut Bag, lists: Lists, point: &P, output: &mut Output) {
        let mut mask = lists.at(point.edge()) & self.stages.get(output.stage).copied().unwrap_or(0);
        let mut packings = Vec::new();
        let weight = if mask != 0 && output.weighs() { output.weigh(point) } else { 1.0 };
        while mask != 0 {
            let index = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            let Some(advice) = self.advice.get(index) else { break };
            packings.extend(self.run(advice, bag, point, weight, output));
        }
        let is_before = |packing: &Packing<'_>| packing.relation == Relation::Before;
        let (packings, below): (Vec<_>, Vec<_>) = packings.into_iter().partition(is_before);
        below.iter().for_each(|packing| nest(packing, point, output));
        // UNPACK comes before PACK in all lists, so a join of a tracepoint with itself is strict.
        if packings.iter().any(|packing| !packing.rows.is_empty() || chooses(packing.keep)) {
            let dot = bag.dot(|| output.branch());
            for packing in packings {
                if packing.keep.is_grouped() {
                    let rows = fold(&packing, output);
                    bag.pack_groups(packing.bag, packing.keep, dot, rows);
                } else {
                    bag.pack(packing.bag, packing.keep, dot, packed(&packing));
                }
            }
        }
    }

    fn run<'p, P: Point + ?Sized>(
        &'p self,
        advice: &'p Advice,
        bag: &mut Bag,
        point: &P,
        weight: f64,
        output: &mut Output,
    ) -> Option<Packing<'p>> {
        let mut joined_so_far = Joined::default();
        let mut rows = vec![Row {
            values: vec![Value::Null; advice.slots.len()],
            partials: vec![None; advice.partials],
            count: 1,
            weight,
        }];
        for operation in &advice.operations {
            match operation {
                Operation::Observe { slot, variable } => {
                    let variable = self.variables.get(usize::from(*variable))?;
                    for row in &mut rows {
                        set(&mut row.values, *slot, point.variable(variable));
                    }
                }
                Operation::Unpack { bag: number, slots, partial } => {
                    let shape = self.shapes.get(number)?;
                    let unpacked = unpacked(bag, *number, shape, point, &mut joined_so_far, output);
                    let joined = join(&rows, &unpacked, slots, *partial, bag.limits().rows);
                    joined_so_far.is_incomplete |= joined.len() < rows.len().saturating_mul(unpacked.len());
                    rows = joined;
                }
                Operation::Without { bag: number, slots, condition } => {
                    let shape = self.shapes.get(number)?;
                    let mut stack = std::mem::take(&mut output.stack);
                    let mut is_there = |row: &mut Row, values: &[Value], impossible: &mut u64| {
                        for (&slot, value) in slots.iter().zip(values) {
                            set(&mut row.values, slot, value.clone());
                        }
                        condition.holds(&row.values, &mut stack, impossible)
                    };
                    match (shape.relation, point.nest().spans) {
                        // Whatever is below a span may be much, and one row suffices.
                        (Relation::Below | Relation::Child, Some(spans)) if !shape.keep.is_grouped() => {
                            let mut nests = std::mem::take(&mut output.nests);
                            let (packed, _, missing) = nests.unpack(*number, shape.relation, spans);
                            joined_so_far.is_incomplete |= missing;
                            rows.retain_mut(|row| {
                                !packed
                                    .iter()
                                    .any(|(_, packed)| is_there(row, &packed.values, output.impossible()))
                            });
                            output.nests = nests;
                        }
                        _ => {
                            let unpacked = unpacked(bag, *number, shape, point, &mut joined_so_far, output);
                            rows.retain_mut(|row| {
                                !unpacked
                                    .iter()
                                    .any(|packed| is_there(row, &packed.values, output.impossible()))
                            });
                        }
                    }
                    output.stack = stack;
                }
                Operation::Let { slot, expression } => {
                    for row in &mut rows {
                        let mut stack = std::mem::take(&mut output.stack);
                        let value = expression.evaluate(&row.values, &mut stack, output.impossible());
                        output.stack = stack;
                        set(&mut row.values, *slot, value);
                    }
                }
                Operation::Filter { expression } => {
                    let mut stack = std::mem::take(&mut output.stack);
                    rows.retain(|row| expression.holds(&row.values, &mut stack, output.impossible()));
                    output.stack = stack;
                }
                Operation::Pack { bag, keep, relation, slots, folds } => {
                    return Some(Packing { bag: *bag, keep: *keep, relation: *relation, slots, folds, rows });
                }
                Operation::Emit { slots, folds } => {
                    let incomplete = joined_so_far.is_incomplete;
                    let trace = (output.names_traces() && !rows.is_empty()).then(|| point.trace());
                    for row in &rows {
                        let given = folds.iter().map(|fold| row.given(fold.input));
                        let (count, weight) = (row.count, row.weight);
                        output.emit(row.columns(slots), given, count, weight, incomplete, trace.as_ref());
                    }
                }
            }
        }
        None
    }
}

/// Whether an event packs even if it has no rows.
fn chooses(keep: Keep) -> bool {
    matches!(keep, Keep::First(_) | Keep::Recent(_))
}

fn set(values: &mut [Value], slot: u8, value: Value) {
    if let Some(place) = values.get_mut(usize::from(slot)) {
        *place = value;
    }
}

/// A row of a bag.
struct Unpacked {
    values: Vec<Value>,
    group: Option<Arc<Group>>,
    count: i128,
    weight: f64,
}

/// The state of a list's joins.
#[derive(Default)]
struct Joined {
    /// Whether one was by cause.
    by_cause: bool,
    is_incomplete: bool,
}

/// The rows that a point joins.
fn unpacked<P: Point + ?Sized>(
    bag: &Bag,
    number: u8,
    shape: &Shape,
    point: &P,
    joined: &mut Joined,
    output: &mut Output,
) -> Vec<Unpacked> {
    if shape.relation == Relation::Before {
        if !std::mem::replace(&mut joined.by_cause, true) && !bag.is_marked() {
            output.lose(point.tracepoint());
        }
        joined.is_incomplete |= bag.is_incomplete();
        return unpack(bag, number, shape);
    }
    let Some(spans) = point.nest().spans else {
        output.note_flat();
        return Vec::new();
    };
    let (rows, groups, is_incomplete) = output.nests.unpack(number, shape.relation, spans);
    joined.is_incomplete |= is_incomplete;
    let mut all: Vec<Unpacked> = rows.iter().map(|(_, row)| of_row(row)).collect();
    all.extend(groups.iter().map(|(key, group)| of_group(key, group, shape)));
    all
}

fn unpack(bag: &Bag, number: u8, shape: &Shape) -> Vec<Unpacked> {
    let mut rows = Vec::new();
    let Some(part) = bag.part(number) else { return rows };
    if part.entries.len() == 1
        && let Some(Content::Groups(only)) = part.entries.last().map(|entry| &entry.content)
    {
        return only.iter().map(|(key, group)| of_group(key, group, shape)).collect();
    }
    let mut groups: BTreeMap<&Key, Group> = BTreeMap::new();
    for entry in part.entries.iter() {
        match &entry.content {
            Content::Rows(packed) => rows.extend(packed.iter().map(of_row)),
            Content::Groups(branch) => {
                for (key, group) in branch.iter() {
                    groups.entry(key).and_modify(|known| known.merge(group)).or_insert_with(|| group.clone());
                }
            }
        }
    }
    rows.extend(groups.iter().map(|(key, group)| of_group(key, group, shape)));
    rows
}

fn of_row(row: &Packed) -> Unpacked {
    Unpacked { values: row.values.to_vec(), group: None, count: row.count, weight: row.weight }
}

fn of_group(key: &Key, group: &Group, shape: &Shape) -> Unpacked {
    let mut values = key.values.clone();
    let (mut count, weight) = (group.count, group.weight);
    let is_answer = shape.keep == Keep::Answer;
    if is_answer {
        let finished = group.states.iter().zip(&shape.functions);
        values.extend(finished.map(|(state, function)| state.finish(*function)));
        count = 1;
    }
    let begun = !is_answer && !group.states.is_empty();
    Unpacked { values, count, weight, group: begun.then(|| Arc::new(group.clone())) }
}

fn packed(packing: &Packing<'_>) -> Vec<Packed> {
    let rows = packing.rows.iter().map(|row| Packed {
        values: row.columns(packing.slots).cloned().collect(),
        count: row.count,
        weight: row.weight,
    });
    rows.collect()
}

/// Puts rows below the span around a point, if it is in one.
fn nest<P: Point + ?Sized>(packing: &Packing<'_>, point: &P, output: &mut Output) {
    let limits = output.limits();
    let Some(within) = point.nest().within else { return };
    if packing.keep.is_grouped() {
        let rows = fold(packing, output);
        output.nests.pack_groups(packing.bag, within, rows, limits);
    } else {
        output.nests.pack(packing.bag, within, packed(packing), limits);
    }
}

/// Each row with each row of a bag, up to a limit.
fn join(rows: &[Row], unpacked: &[Unpacked], slots: &[u8], partial: u8, limit: usize) -> Vec<Row> {
    let mut joined = Vec::with_capacity(rows.len().saturating_mul(unpacked.len()).min(limit));
    for row in rows {
        for packed in unpacked {
            if joined.len() == limit {
                return joined;
            }
            let mut row = row.clone();
            for (&slot, value) in slots.iter().zip(&packed.values) {
                set(&mut row.values, slot, value.clone());
            }
            if let Some(group) = &packed.group {
                for index in 0..group.states.len() {
                    if let Some(place) = row.partials.get_mut(usize::from(partial) + index) {
                        *place = Some((Arc::clone(group), index));
                    }
                }
            }
            row.count = row.count.saturating_mul(packed.count);
            row.weight = row.weight.max(packed.weight);
            joined.push(row);
        }
    }
    joined
}

/// The rows of a grouped pack, each as a group of its own.
fn fold(packing: &Packing<'_>, output: &mut Output) -> Vec<(Key, Group)> {
    let answer = packing.keep == Keep::Answer;
    let one = |row: &Row| {
        let mut states: Vec<State> = packing.folds.iter().map(|fold| fold.function.start()).collect();
        for (state, fold) in states.iter_mut().zip(packing.folds) {
            match row.given(fold.input) {
                Given::Row => state.add_row(row.count),
                Given::Value(value) => *output.impossible() += u64::from(!state.add(value, row.count)),
                Given::Partial(partial, times) => state.merge(partial, times),
            }
        }
        let values = row.columns(packing.slots).cloned();
        let key = if answer {
            Key { weight: 0, values: values.map(Value::into_key).collect() }
        } else {
            Key { weight: row.weight.to_bits(), values: values.collect() }
        };
        (key, Group { count: row.count, weight: row.weight, states })
    };
    packing.rows.iter().map(one).collect()
}
