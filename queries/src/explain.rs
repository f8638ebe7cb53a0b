//! Advice as people read it: `--explain`.

use std::fmt;

use crate::advice::{Advice, Fold, Input, Keep, Operation, Relation};
use crate::expression::{Expression, Step};
use crate::plan::Plan;
use crate::syntax::{Literal, write_in};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, advice) in self.advice.iter().enumerate() {
            let points: Vec<String> = advice.tracepoints.iter().map(ToString::to_string).collect();
            writeln!(f, "{}. {} at {}", index + 1, advice.label, points.join(", "))?;
            for operation in &advice.operations {
                writeln!(f, "   {}", Line(self, advice, operation))?;
            }
        }
        Ok(())
    }
}

struct Line<'p>(&'p Plan, &'p Advice, &'p Operation);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line(plan, advice, operation) = self;
        let names =
            |slots: &[u8]| slots.iter().map(|&slot| name(advice, slot)).collect::<Vec<_>>().join(", ");
        match operation {
            Operation::Observe { slot, .. } => write!(f, "OBSERVE {}", name(advice, *slot)),
            Operation::Unpack { bag, slots, partial } => {
                write!(f, "UNPACK  bag {bag}: {}", names(slots))?;
                let partials = plan.shapes.get(bag).map_or(0, |shape| shape.partials());
                for index in 0..partials {
                    write!(
                        f,
                        "{}part{}",
                        if slots.is_empty() && index == 0 { "" } else { ", " },
                        usize::from(*partial) + index
                    )?;
                }
                Ok(())
            }
            Operation::Without { bag, slots, condition } => {
                let slots: Vec<String> = slots.iter().map(|&slot| name(advice, slot)).collect();
                write!(f, "WITHOUT bag {bag}: {}", slots.join(", "))?;
                write!(f, " where {}", Infix(advice, condition))
            }
            Operation::Let { slot, expression } => {
                write!(f, "LET     {} = {}", name(advice, *slot), Infix(advice, expression))
            }
            Operation::Filter { expression } => write!(f, "FILTER  {}", Infix(advice, expression)),
            Operation::Pack { bag, keep, relation, slots, folds } => {
                let keep = match keep {
                    Keep::All => "all".to_owned(),
                    Keep::First(n) => format!("first {n}"),
                    Keep::Recent(n) => format!("recent {n}"),
                    Keep::Groups => "groups".to_owned(),
                    Keep::Answer => "answer".to_owned(),
                };
                let way = match relation {
                    Relation::Before => "",
                    Relation::Below => ", below",
                    Relation::Child => ", child",
                };
                write!(f, "PACK    bag {bag}, {keep}{way}: {}", names(slots))?;
                write_folds(f, advice, folds, slots.is_empty())
            }
            Operation::Emit { slots, folds } => {
                write!(f, "EMIT    {}", names(slots))?;
                write_folds(f, advice, folds, slots.is_empty())
            }
        }
    }
}

fn write_folds(f: &mut fmt::Formatter<'_>, advice: &Advice, folds: &[Fold], first: bool) -> fmt::Result {
    for (index, fold) in folds.iter().enumerate() {
        if index > 0 || !first {
            f.write_str(", ")?;
        }
        match fold.input {
            Input::Rows => f.write_str(fold.function.name())?,
            Input::Slot(slot) => fold.function.write(f, &name(advice, slot))?,
            Input::Partial(partial) => fold.function.write(f, &format!("part{partial}"))?,
        }
    }
    Ok(())
}

fn name(advice: &Advice, slot: u8) -> String {
    advice.slots.get(usize::from(slot)).cloned().unwrap_or_default()
}

/// An expression's steps with operators between their operands.
struct Infix<'a>(&'a Advice, &'a Expression);

impl fmt::Display for Infix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct With<W>(W);
        impl<W: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for With<W> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (self.0)(f)
            }
        }
        // Each entry is a text, and whether it needs parentheses as an operand.
        let mut stack: Vec<(String, bool)> = Vec::new();
        for step in self.1.steps() {
            let mut operand = || {
                let (text, compound) = stack.pop().unwrap_or_default();
                if compound { format!("({text})") } else { text }
            };
            let entry = match step {
                Step::Slot(slot) => (name(self.0, *slot), false),
                Step::Literal(value) => (Literal(value).to_string(), false),
                Step::Unary(unary) => {
                    let of = operand();
                    (With(|f: &mut fmt::Formatter<'_>| unary.write(f, &of)).to_string(), true)
                }
                Step::In(values) => {
                    let of = operand();
                    (With(|f: &mut fmt::Formatter<'_>| write_in(f, &of, values)).to_string(), true)
                }
                Step::Binary(binary) => {
                    let right = operand();
                    (format!("{} {} {right}", operand(), binary.symbol()), true)
                }
            };
            stack.push(entry);
        }
        f.write_str(&stack.pop().unwrap_or_default().0)
    }
}
