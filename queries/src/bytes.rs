//! Advice as bytes, which are validated where they arrive.

use std::fmt;

use crate::advice::{Advice, Fold, Input, Keep, LISTS, OPERATIONS, Operation, Relation, SLOTS};
use crate::aggregate::Function;
use crate::expression::{BINARIES, Expression, STEPS, Step, UNARIES};
use crate::names::{Moment, Tracepoint};
use crate::plan::Plan;
use crate::point::Variable;
use crate::wire::{Reader, Writer};

/// The version of advice's bytes.
const VERSION: u8 = 2;
/// The relations by their bytes.
const RELATIONS: [Relation; 3] = [Relation::Before, Relation::Below, Relation::Child];
/// The bytes of a plan.
const BYTES: usize = 64 * 1024;
/// The most events that FIRST and RECENT keep.
const CHOSEN: u8 = 64;

impl Plan {
    /// The plan as bytes, for another process.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.byte(VERSION);
        out.byte(u8::from(self.listing));
        out.number(self.variables.len() as u64);
        self.variables.iter().for_each(|variable| out.text(variable.name()));
        out.number(self.columns.len() as u64);
        for (name, &position) in self.columns.iter().zip(&self.positions) {
            out.text(name);
            out.number(position as u64);
        }
        out.number(self.advice.len() as u64);
        self.advice.iter().for_each(|advice| encode_advice(advice, &mut out));
        out.into_bytes()
    }

    /// Reads the bytes of [`Plan::encode`]. A plan that breaks a rule is refused as a whole.
    pub fn decode(bytes: &[u8]) -> Result<Plan, AdviceError> {
        if bytes.len() > BYTES {
            return Err(AdviceError(Reason::Broken("advice has up to 64 KiB")));
        }
        match bytes.first() {
            Some(&VERSION) => {}
            Some(&version) => return Err(AdviceError(Reason::Version(version))),
            None => return Err(AdviceError(Reason::Malformed)),
        }
        let mut from = Reader::new(&bytes[1..]);
        let parts = read(&mut from).filter(|_| from.is_empty()).ok_or(AdviceError(Reason::Malformed))?;
        Plan::new(parts.advice, parts.variables, parts.columns, parts.listing)
            .map_err(|rule| AdviceError(Reason::Broken(rule)))
    }
}

fn encode_advice(advice: &Advice, out: &mut Writer) {
    out.text(&advice.label);
    out.number(advice.tracepoints.len() as u64);
    for tracepoint in &advice.tracepoints {
        out.text(&tracepoint.pattern);
        out.byte(match tracepoint.moment {
            Moment::Default => 0,
            Moment::Start => 1,
            Moment::End => 2,
        });
    }
    out.number(advice.slots.len() as u64);
    advice.slots.iter().for_each(|name| out.text(name));
    out.number(advice.partials as u64);
    out.number(advice.operations.len() as u64);
    for operation in &advice.operations {
        match operation {
            Operation::Observe { slot, variable } => {
                out.byte(0);
                out.byte(*slot);
                out.number((*variable).into());
            }
            Operation::Unpack { bag, slots, partial } => {
                out.byte(1);
                out.byte(*bag);
                encode_slots(slots, out);
                out.byte(*partial);
            }
            Operation::Without { bag, slots, condition } => {
                out.byte(6);
                out.byte(*bag);
                encode_slots(slots, out);
                encode_expression(condition, out);
            }
            Operation::Let { slot, expression } => {
                out.byte(2);
                out.byte(*slot);
                encode_expression(expression, out);
            }
            Operation::Filter { expression } => {
                out.byte(3);
                encode_expression(expression, out);
            }
            Operation::Pack { bag, keep, relation, slots, folds } => {
                out.byte(4);
                out.byte(*bag);
                let (kind, n) = match keep {
                    Keep::All => (0, 0),
                    Keep::First(n) => (1, *n),
                    Keep::Recent(n) => (2, *n),
                    Keep::Groups => (3, 0),
                    Keep::Answer => (4, 0),
                };
                out.byte(kind);
                out.byte(n);
                out.byte(place(&RELATIONS, relation));
                encode_slots(slots, out);
                encode_folds(folds, out);
            }
            Operation::Emit { slots, folds } => {
                out.byte(5);
                encode_slots(slots, out);
                encode_folds(folds, out);
            }
        }
    }
}

fn encode_slots(slots: &[u8], out: &mut Writer) {
    out.number(slots.len() as u64);
    slots.iter().for_each(|&slot| out.byte(slot));
}

fn encode_folds(folds: &[Fold], out: &mut Writer) {
    out.number(folds.len() as u64);
    for fold in folds {
        fold.function.encode(out);
        let (kind, index) = match fold.input {
            Input::Rows => (0, 0),
            Input::Slot(slot) => (1, slot),
            Input::Partial(partial) => (2, partial),
        };
        out.byte(kind);
        out.byte(index);
    }
}

fn encode_expression(expression: &Expression, out: &mut Writer) {
    out.number(expression.steps().len() as u64);
    for step in expression.steps() {
        match step {
            Step::Slot(slot) => {
                out.byte(0);
                out.byte(*slot);
            }
            Step::Literal(value) => {
                out.byte(1);
                out.value(value);
            }
            Step::In(values) => {
                out.byte(2);
                out.number(values.len() as u64);
                values.iter().for_each(|value| out.value(value));
            }
            Step::Unary(unary) => {
                out.byte(3);
                out.byte(place(&UNARIES, unary));
            }
            Step::Binary(binary) => {
                out.byte(4);
                out.byte(place(&BINARIES, binary));
            }
        }
    }
}

fn place<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|known| known == one).unwrap_or_default() as u8
}

/// The parts of a plan that are not yet known to fit together.
struct Parts {
    advice: Vec<Advice>,
    variables: Vec<Variable>,
    columns: Vec<(String, usize)>,
    listing: bool,
}

fn read(from: &mut Reader<'_>) -> Option<Parts> {
    let listing = from.flag()?;
    let variables = (0..from.count(u16::MAX.into())?)
        .map(|index| from.text().map(|name| Variable::new(index, name)))
        .collect::<Option<Vec<_>>>()?;
    let mut columns = Vec::new();
    for _ in 0..from.count(u64::MAX)? {
        columns.push((from.text()?.to_owned(), usize::try_from(from.number()?).ok()?));
    }
    let mut advice = Vec::new();
    for _ in 0..from.count(LISTS as u64)? {
        advice.push(read_advice(from)?);
    }
    Some(Parts { advice, variables, columns, listing })
}

fn read_advice(from: &mut Reader<'_>) -> Option<Advice> {
    let label = from.text()?.to_owned();
    let mut tracepoints = Vec::new();
    for _ in 0..from.count(u64::MAX)? {
        let pattern = from.text()?.into();
        let moment = *[Moment::Default, Moment::Start, Moment::End].get(usize::from(from.byte()?))?;
        tracepoints.push(Tracepoint { pattern, moment });
    }
    let mut slots = Vec::new();
    for _ in 0..from.count(SLOTS as u64)? {
        slots.push(from.text()?.to_owned());
    }
    let partials = usize::try_from(from.number()?).ok()?;
    let mut operations = Vec::new();
    for _ in 0..from.count(OPERATIONS as u64)? {
        operations.push(match from.byte()? {
            0 => Operation::Observe { slot: from.byte()?, variable: from.number()?.try_into().ok()? },
            1 => Operation::Unpack { bag: from.byte()?, slots: read_slots(from)?, partial: from.byte()? },
            2 => Operation::Let { slot: from.byte()?, expression: read_expression(from)? },
            3 => Operation::Filter { expression: read_expression(from)? },
            4 => Operation::Pack {
                bag: from.byte()?,
                keep: read_keep(from)?,
                relation: *RELATIONS.get(usize::from(from.byte()?))?,
                slots: read_slots(from)?,
                folds: read_folds(from)?,
            },
            6 => Operation::Without {
                bag: from.byte()?,
                slots: read_slots(from)?,
                condition: read_expression(from)?,
            },
            5 => Operation::Emit { slots: read_slots(from)?, folds: read_folds(from)? },
            _ => return None,
        });
    }
    Some(Advice { label, tracepoints, operations, slots, partials })
}

fn read_keep(from: &mut Reader<'_>) -> Option<Keep> {
    Some(match (from.byte()?, from.byte()?) {
        (0, 0) => Keep::All,
        (1, n @ 1..=CHOSEN) => Keep::First(n),
        (2, n @ 1..=CHOSEN) => Keep::Recent(n),
        (3, 0) => Keep::Groups,
        (4, 0) => Keep::Answer,
        _ => return None,
    })
}

fn read_slots(from: &mut Reader<'_>) -> Option<Vec<u8>> {
    (0..from.count(2 * SLOTS as u64)?).map(|_| from.byte()).collect()
}

fn read_folds(from: &mut Reader<'_>) -> Option<Vec<Fold>> {
    let fold = |from: &mut Reader<'_>| {
        let function = Function::decode(from)?;
        let input = match (from.byte()?, from.byte()?) {
            (0, 0) => Input::Rows,
            (1, slot) => Input::Slot(slot),
            (2, partial) => Input::Partial(partial),
            _ => return None,
        };
        Some(Fold { function, input })
    };
    (0..from.count(SLOTS as u64)?).map(|_| fold(from)).collect()
}

fn read_expression(from: &mut Reader<'_>) -> Option<Expression> {
    let mut steps = Vec::new();
    for _ in 0..from.count(STEPS as u64)? {
        steps.push(match from.byte()? {
            0 => Step::Slot(from.byte()?),
            1 => Step::Literal(from.value()?),
            2 => Step::In((0..from.count(u64::MAX)?).map(|_| from.value()).collect::<Option<_>>()?),
            3 => Step::Unary(*UNARIES.get(usize::from(from.byte()?))?),
            4 => Step::Binary(*BINARIES.get(usize::from(from.byte()?))?),
            _ => return None,
        });
    }
    Expression::new(steps)
}

/// Bytes that are not a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdviceError(Reason);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Version(u8),
    Malformed,
    Broken(&'static str),
}

impl fmt::Display for AdviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Reason::Version(version) => {
                write!(f, "the advice has version {version}; this process reads version {VERSION}")
            }
            Reason::Malformed => f.write_str("the bytes are not advice"),
            Reason::Broken(rule) => write!(f, "the advice breaks a rule: {rule}"),
        }
    }
}

impl std::error::Error for AdviceError {}
