//! Expressions: trees over columns while a query is compiled, steps over slots in advice.

use std::cmp::Ordering;
use std::fmt;

use crate::value::{Arithmetic, Value};

/// The steps of one expression, and so the depth of its stack.
pub(crate) const STEPS: usize = 256;

/// Operators before or behind one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Not,
    Negate,
    IsNull,
    IsNotNull,
}

/// Operators between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Contains,
    StartsWith,
    Arithmetic(Arithmetic),
}

/// The unary operators by their number in advice.
pub(crate) const UNARIES: [Unary; 4] = [Unary::Not, Unary::Negate, Unary::IsNull, Unary::IsNotNull];
/// The binary operators by their number in advice.
pub(crate) const BINARIES: [Binary; 15] = [
    Binary::Or,
    Binary::And,
    Binary::Equal,
    Binary::NotEqual,
    Binary::Less,
    Binary::AtMost,
    Binary::Greater,
    Binary::AtLeast,
    Binary::Contains,
    Binary::StartsWith,
    Binary::Arithmetic(Arithmetic::Add),
    Binary::Arithmetic(Arithmetic::Subtract),
    Binary::Arithmetic(Arithmetic::Multiply),
    Binary::Arithmetic(Arithmetic::Divide),
    Binary::Arithmetic(Arithmetic::Floor),
];

impl Unary {
    /// The result; `None` if the operation is impossible.
    fn apply(self, value: Value) -> Option<Value> {
        Some(match (self, value) {
            (Unary::IsNull, value) => Value::Bool(value.is_null()),
            (Unary::IsNotNull, value) => Value::Bool(!value.is_null()),
            (_, Value::Null) => Value::Null,
            (Unary::Not, value) => Value::Bool(!truth(&value)??),
            (Unary::Negate, value) => Arithmetic::Subtract.apply(&Value::Int(0), &value)?,
        })
    }

    pub(crate) fn write(self, f: &mut fmt::Formatter<'_>, of: &str) -> fmt::Result {
        match self {
            Unary::Not => write!(f, "Not {of}"),
            Unary::Negate => write!(f, "-{of}"),
            Unary::IsNull => write!(f, "{of} Is Null"),
            Unary::IsNotNull => write!(f, "{of} Is Not Null"),
        }
    }
}

/// The truth of a value: `Some(None)` for null, `None` if it is neither true nor false.
fn truth(value: &Value) -> Option<Option<bool>> {
    match value {
        Value::Null => Some(None),
        Value::Bool(value) => Some(Some(*value)),
        Value::Text(text) if **text == *"true" => Some(Some(true)),
        Value::Text(text) if **text == *"false" => Some(Some(false)),
        _ => None,
    }
}

impl Binary {
    /// The result, with SQL's logic of null; `None` if the operation is impossible.
    fn apply(self, left: &Value, right: &Value) -> Option<Value> {
        let by_order = |holds: fn(Ordering) -> bool| {
            if left.is_null() || right.is_null() {
                return Some(Value::Null);
            }
            left.compare(right).map(|order| Value::Bool(holds(order)))
        };
        match self {
            Binary::And | Binary::Or => {
                let decisive = self == Binary::Or;
                let (left, right) = (truth(left), truth(right));
                // One side decides even if the other is unknown or impossible.
                if left == Some(Some(decisive)) || right == Some(Some(decisive)) {
                    return Some(Value::Bool(decisive));
                }
                Some(match (left?, right?) {
                    (Some(_), Some(_)) => Value::Bool(!decisive),
                    _ => Value::Null,
                })
            }
            Binary::Equal => Some(left.equals(right).into()),
            Binary::NotEqual => Some(left.equals(right).map(|equal| !equal).into()),
            Binary::Less => by_order(Ordering::is_lt),
            Binary::AtMost => by_order(Ordering::is_le),
            Binary::Greater => by_order(Ordering::is_gt),
            Binary::AtLeast => by_order(Ordering::is_ge),
            Binary::Contains => in_text(left, right, |text, part| text.contains(part)),
            Binary::StartsWith => in_text(left, right, |text, part| text.starts_with(part)),
            Binary::Arithmetic(_) if left.is_null() || right.is_null() => Some(Value::Null),
            Binary::Arithmetic(arithmetic) => arithmetic.apply(left, right),
        }
    }

    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Binary::Or => "Or",
            Binary::And => "And",
            Binary::Equal => "=",
            Binary::NotEqual => "!=",
            Binary::Less => "<",
            Binary::AtMost => "<=",
            Binary::Greater => ">",
            Binary::AtLeast => ">=",
            Binary::Contains => "Contains",
            Binary::StartsWith => "StartsWith",
            Binary::Arithmetic(Arithmetic::Add) => "+",
            Binary::Arithmetic(Arithmetic::Subtract) => "-",
            Binary::Arithmetic(Arithmetic::Multiply) => "*",
            Binary::Arithmetic(Arithmetic::Divide) => "/",
            Binary::Arithmetic(Arithmetic::Floor) => "FLOOR",
        }
    }
}

fn in_text(text: &Value, part: &Value, holds: fn(&str, &str) -> bool) -> Option<Value> {
    match (text, part) {
        (Value::Null, _) | (_, Value::Null) => Some(Value::Null),
        (Value::Text(text), Value::Text(part)) => Some(Value::Bool(holds(text, part))),
        // A number has the text of its digits.
        (text, part) => Some(Value::Bool(holds(&text.to_string(), &part.to_string()))),
    }
}

fn is_in(value: &Value, values: &[Value]) -> Value {
    let mut unknown = value.is_null();
    for one in values {
        match value.equals(one) {
            Some(true) => return Value::Bool(true),
            Some(false) => {}
            None => unknown = true,
        }
    }
    if unknown { Value::Null } else { Value::Bool(false) }
}

/// An expression as a tree over columns of any kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Term<C> {
    Column(C),
    Literal(Value),
    Unary(Unary, Box<Term<C>>),
    Binary(Binary, Box<Term<C>>, Box<Term<C>>),
    In(Box<Term<C>>, Vec<Value>),
}

impl<C> Term<C> {
    /// Calls `visit` with each column.
    pub(crate) fn columns<'t>(&'t self, visit: &mut impl FnMut(&'t C)) {
        match self {
            Term::Column(column) => visit(column),
            Term::Literal(_) => {}
            Term::Unary(_, inner) | Term::In(inner, _) => inner.columns(visit),
            Term::Binary(_, left, right) => {
                left.columns(visit);
                right.columns(visit);
            }
        }
    }

    /// The expression with a term in place of each column; `None` if it needs more than
    /// [`STEPS`] steps.
    pub(crate) fn replace<D: Clone>(&self, with: &mut impl FnMut(&C) -> Option<Term<D>>) -> Option<Term<D>> {
        self.replace_within(with, &mut STEPS.clone())
    }

    fn replace_within<D: Clone>(
        &self,
        with: &mut impl FnMut(&C) -> Option<Term<D>>,
        steps: &mut usize,
    ) -> Option<Term<D>> {
        *steps = steps.checked_sub(1)?;
        Some(match self {
            Term::Column(column) => {
                let term = with(column)?;
                *steps = steps.checked_sub(term.steps() - 1)?;
                term
            }
            Term::Literal(value) => Term::Literal(value.clone()),
            Term::Unary(unary, inner) => Term::Unary(*unary, Box::new(inner.replace_within(with, steps)?)),
            Term::Binary(binary, left, right) => {
                let left = left.replace_within(with, steps)?;
                Term::Binary(*binary, Box::new(left), Box::new(right.replace_within(with, steps)?))
            }
            Term::In(inner, values) => Term::In(Box::new(inner.replace_within(with, steps)?), values.clone()),
        })
    }

    fn steps(&self) -> usize {
        match self {
            Term::Column(_) | Term::Literal(_) => 1,
            Term::Unary(_, inner) | Term::In(inner, _) => 1 + inner.steps(),
            Term::Binary(_, left, right) => 1 + left.steps() + right.steps(),
        }
    }

    /// The steps that compute the expression from a row's slots.
    pub(crate) fn compile(&self, slot: &impl Fn(&C) -> u8) -> Expression {
        let mut steps = Vec::new();
        self.compile_into(slot, &mut steps);
        Expression { steps }
    }

    fn compile_into(&self, slot: &impl Fn(&C) -> u8, steps: &mut Vec<Step>) {
        match self {
            Term::Column(column) => steps.push(Step::Slot(slot(column))),
            Term::Literal(value) => steps.push(Step::Literal(value.clone())),
            Term::Unary(unary, inner) => {
                inner.compile_into(slot, steps);
                steps.push(Step::Unary(*unary));
            }
            Term::Binary(binary, left, right) => {
                left.compile_into(slot, steps);
                right.compile_into(slot, steps);
                steps.push(Step::Binary(*binary));
            }
            Term::In(inner, values) => {
                inner.compile_into(slot, steps);
                steps.push(Step::In(values.clone()));
            }
        }
    }
}

/// A step of an expression, over a stack.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Slot(u8),
    Literal(Value),
    Unary(Unary),
    Binary(Binary),
    In(Vec<Value>),
}

/// An expression over a row's slots. Its steps leave one value on the stack.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expression {
    steps: Vec<Step>,
}

impl Expression {
    /// The expression of these steps, or `None` if they do not leave exactly one value.
    pub(crate) fn new(steps: Vec<Step>) -> Option<Expression> {
        let mut depth = 0_usize;
        for step in &steps {
            depth = match step {
                Step::Slot(_) | Step::Literal(_) => depth + 1,
                Step::Unary(_) | Step::In(_) => depth.checked_sub(1)? + 1,
                Step::Binary(_) => depth.checked_sub(2)? + 1,
            };
        }
        (depth == 1 && steps.len() <= STEPS).then_some(Expression { steps })
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The value for a row. Operations that are impossible give null and are counted.
    pub(crate) fn evaluate(&self, row: &[Value], stack: &mut Vec<Value>, impossible: &mut u64) -> Value {
        stack.clear();
        for step in &self.steps {
            let result = match step {
                Step::Slot(slot) => Some(row.get(usize::from(*slot)).cloned().unwrap_or_default()),
                Step::Literal(value) => Some(value.clone()),
                Step::Unary(unary) => unary.apply(stack.pop().unwrap_or_default()),
                Step::In(values) => Some(is_in(&stack.pop().unwrap_or_default(), values)),
                Step::Binary(binary) => {
                    let right = stack.pop().unwrap_or_default();
                    binary.apply(&stack.pop().unwrap_or_default(), &right)
                }
            };
            stack.push(result.unwrap_or_else(|| {
                *impossible += 1;
                Value::Null
            }));
        }
        stack.pop().unwrap_or_default()
    }

    /// Whether the expression is true for a row: a filter keeps the row then.
    pub(crate) fn holds(&self, row: &[Value], stack: &mut Vec<Value>, impossible: &mut u64) -> bool {
        truth(&self.evaluate(row, stack, impossible)) == Some(Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SQL's tables of truth.
    #[test]
    fn null_is_neither_true_nor_false() {
        let (yes, no, null) = (Value::Bool(true), Value::Bool(false), Value::Null);
        for (left, right, and, or) in [
            (&yes, &yes, &yes, &yes),
            (&yes, &no, &no, &yes),
            (&yes, &null, &null, &yes),
            (&no, &null, &no, &null),
            (&null, &null, &null, &null),
            (&no, &no, &no, &no),
        ] {
            for (left, right) in [(left, right), (right, left)] {
                assert_eq!(Binary::And.apply(left, right).as_ref(), Some(and));
                assert_eq!(Binary::Or.apply(left, right).as_ref(), Some(or));
            }
        }
        assert_eq!(Unary::Not.apply(null.clone()), Some(Value::Null));
        assert_eq!(Binary::NotEqual.apply(&null, &Value::Int(1)), Some(Value::Null));
        assert_eq!(is_in(&Value::Int(1), &[Value::Int(2), Value::Null]), Value::Null);
        assert_eq!(is_in(&Value::from("2"), &[Value::Int(2), Value::Null]), Value::Bool(true));
        assert_eq!(Unary::IsNull.apply(Value::Null), Some(Value::Bool(true)));
    }

    #[test]
    fn impossible_operations_give_null_and_are_counted() {
        let steps = vec![
            Step::Literal(Value::from("x")),
            Step::Literal(Value::Int(1)),
            Step::Binary(Binary::Less),
            Step::Unary(Unary::IsNull),
        ];
        let mut impossible = 0;
        let expression = Expression::new(steps).unwrap();
        assert!(expression.holds(&[], &mut Vec::new(), &mut impossible));
        assert_eq!(impossible, 1);
        assert_eq!(Expression::new(vec![Step::Unary(Unary::Not)]), None);
        assert_eq!(Expression::new(vec![Step::Slot(0), Step::Slot(1)]), None);
        assert_eq!(Expression::new(Vec::new()), None);
    }
}
