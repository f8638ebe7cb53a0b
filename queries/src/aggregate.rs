//! The aggregates: COUNT, SUM, MIN, MAX, AVERAGE and QUANTILE.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;

use crate::sketch::Sketch;
use crate::spread::{Estimate, Spread};
use crate::sum::Sum;
use crate::value::{Number, Value};
use crate::wire::{Reader, Writer};

/// An aggregate function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Function {
    Count,
    Sum,
    Min,
    Max,
    Average,
    /// A quantile between 0 and 1.
    Quantile(f64),
    /// The number of different values.
    Distinct,
    /// One of the values, as it is written.
    Example,
}

/// Different values that an aggregate counts; further ones are not told apart.
pub(crate) const DISTINCT: usize = 10_000;

/// The names that a program may write.
pub(crate) const FUNCTIONS: [&str; 6] = ["COUNT", "SUM", "MIN", "MAX", "AVERAGE", "QUANTILE"];
/// Functions of expressions.
pub(crate) const OTHER_FUNCTIONS: [&str; 3] = ["EXAMPLE", "FLOOR", "BIN"];

impl Function {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Function::Count => "COUNT",
            Function::Sum => "SUM",
            Function::Min => "MIN",
            Function::Max => "MAX",
            Function::Average => "AVERAGE",
            Function::Quantile(_) => "QUANTILE",
            Function::Distinct => "COUNT DISTINCT",
            Function::Example => "EXAMPLE",
        }
    }

    pub(crate) fn write(self, f: &mut fmt::Formatter<'_>, of: &str) -> fmt::Result {
        match self {
            Function::Quantile(share) => write!(f, "QUANTILE({of}, {share})"),
            _ => write!(f, "{}({of})", self.name()),
        }
    }

    /// Whether packs may be grouped for it: a sketch would take more room than its rows.
    pub(crate) fn groups(self) -> bool {
        !matches!(self, Function::Quantile(_) | Function::Distinct)
    }

    /// Whether the result depends on the weights of its rows.
    pub(crate) fn is_weighted(self) -> bool {
        !matches!(self, Function::Min | Function::Max | Function::Distinct | Function::Example)
    }

    pub(crate) fn start(self) -> State {
        match self {
            Function::Count => State::Count(Sum::default()),
            Function::Sum => State::Sum(Sum::default(), false),
            Function::Min => State::Least(Value::Null, Ordering::Less),
            Function::Max => State::Least(Value::Null, Ordering::Greater),
            Function::Average => State::Average(Sum::default(), Sum::default()),
            Function::Quantile(_) => State::Quantile(Box::default()),
            Function::Distinct => State::Distinct(BTreeSet::new()),
            Function::Example => State::Example(Value::Null),
        }
    }

    pub(crate) fn encode(self, out: &mut Writer) {
        match self {
            Function::Count => out.byte(0),
            Function::Sum => out.byte(1),
            Function::Min => out.byte(2),
            Function::Max => out.byte(3),
            Function::Average => out.byte(4),
            Function::Quantile(share) => {
                out.byte(5);
                out.float(share);
            }
            Function::Distinct => out.byte(6),
            Function::Example => out.byte(7),
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Option<Function> {
        Some(match from.byte()? {
            0 => Function::Count,
            1 => Function::Sum,
            2 => Function::Min,
            3 => Function::Max,
            4 => Function::Average,
            6 => Function::Distinct,
            7 => Function::Example,
            5 => Function::Quantile(from.float().filter(|share| (0.0..=1.0).contains(share))?),
            _ => return None,
        })
    }
}

/// An aggregate over the values so far. Its result does not depend on their order.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Count(Sum),
    /// The sum, and whether there was a value.
    Sum(Sum, bool),
    /// The value that is least, or greatest, by this order.
    Least(Value, Ordering),
    /// The sum and the number of values.
    Average(Sum, Sum),
    Quantile(Box<Sketch>),
    /// The least of the different values, and one more than are counted at most.
    Distinct(BTreeSet<Value>),
    /// The least value by its own order.
    Example(Value),
}

/// An input of an aggregate, of one row.
pub(crate) enum Given<'a> {
    Row,
    Value(&'a Value),
    /// An aggregate, as often as the number says.
    Partial(&'a State, i128),
}

impl State {
    /// Adds a value as often as `times` says; false if that is impossible. Null is no value.
    pub(crate) fn add(&mut self, value: &Value, times: i128) -> bool {
        if value.is_null() {
            return true;
        }
        match self {
            State::Count(count) => count.add(Number::Int(1), times),
            State::Least(least, order) => {
                // The number itself if it is text: by its text, 9 would follow 10. An id such as
                // 012 or 12e5 stays as it is written.
                let number = value.number().map(Number::into_value);
                let number = number.filter(|number| number.to_string() == value.to_string());
                replace_by(least, number.unwrap_or_else(|| value.clone()), *order);
            }
            State::Distinct(values) => distinguish(values, value.clone().into_key()),
            State::Example(least) => exemplify(least, value),
            State::Sum(..) | State::Average(..) | State::Quantile(_) => {
                let number = match (&self, value) {
                    // The share of rows for which a condition holds.
                    (State::Average(..), Value::Bool(holds)) => Some(Number::Int(i128::from(*holds))),
                    _ => value.number(),
                };
                let Some(number) = number else { return false };
                self.add_number(number, times);
            }
        }
        true
    }

    fn add_number(&mut self, number: Number, times: i128) {
        match self {
            State::Sum(sum, any) => {
                sum.add(number, times);
                *any = true;
            }
            State::Average(sum, count) => {
                sum.add(number, times);
                count.add(Number::Int(1), times);
            }
            State::Quantile(sketch) => sketch.add(number.to_f64(), times as f64),
            State::Count(_) | State::Least(..) | State::Distinct(_) | State::Example(_) => {}
        }
    }

    /// Counts a row without looking at a value.
    pub(crate) fn add_row(&mut self, times: i128) {
        if let State::Count(count) = self {
            count.add(Number::Int(1), times);
        }
    }

    /// Adds another aggregate of the same function as often as `times` says.
    pub(crate) fn merge(&mut self, other: &State, times: i128) {
        match (self, other) {
            (State::Count(count), State::Count(more)) => count.merge(more, times),
            (State::Sum(sum, any), State::Sum(more, some)) => {
                sum.merge(more, times);
                *any |= *some;
            }
            (State::Least(least, order), State::Least(value, _)) => {
                replace_by(least, value.clone(), *order);
            }
            (State::Average(sum, count), State::Average(more, of)) => {
                sum.merge(more, times);
                count.merge(of, times);
            }
            (State::Quantile(sketch), State::Quantile(more)) => {
                sketch.merge(more, times as f64);
            }
            (State::Example(least), State::Example(more)) => exemplify(least, more),
            (State::Distinct(values), State::Distinct(more)) => {
                more.iter().for_each(|value| distinguish(values, value.clone()));
            }
            // Two functions never meet: each list of states is made from one list of functions.
            _ => {}
        }
    }

    /// Adds another aggregate whose rows stand for `weight` rows each.
    pub(crate) fn merge_weighted(&mut self, other: &State, weight: f64) {
        match (self, other) {
            (State::Count(count), State::Count(more)) => count.merge_weighted(more, weight),
            (State::Sum(sum, any), State::Sum(more, some)) => {
                sum.merge_weighted(more, weight);
                *any |= *some;
            }
            (State::Average(sum, count), State::Average(more, of)) => {
                sum.merge_weighted(more, weight);
                count.merge_weighted(of, weight);
            }
            (State::Quantile(sketch), State::Quantile(more)) => sketch.merge(more, weight),
            (least, more) => least.merge(more, 1),
        }
    }

    /// The sum of which an estimate has an error, and the number of values by which it is divided.
    pub(crate) fn parts(&self) -> (f64, f64) {
        match self {
            State::Count(sum) | State::Sum(sum, _) => (sum.to_f64(), 0.0),
            State::Average(sum, count) => (sum.to_f64(), count.to_f64()),
            State::Quantile(sketch) => (0.0, sketch.weight()),
            State::Least(..) | State::Distinct(_) | State::Example(_) => (0.0, 0.0),
        }
    }

    /// The error of an estimate from sampled traces; `None` for what has none.
    pub(crate) fn estimate(&self, function: Function, spread: &Spread) -> Option<Estimate> {
        let (sum, n) = self.parts();
        match (self, function) {
            (State::Count(_), _) => Some(spread.of_count(sum)),
            (State::Sum(_, true), _) => Some(spread.of_sum(sum)),
            (State::Average(..), _) if n > 0.0 => Some(spread.of_ratio(sum / n, n)),
            (State::Quantile(sketch), Function::Quantile(share)) if n > 0.0 => {
                Some(spread.of_quantile(share, n, |share| sketch.quantile(share)))
            }
            _ => None,
        }
    }

    /// The value of the aggregate; null if it had no values.
    pub(crate) fn finish(&self, function: Function) -> Value {
        match self {
            State::Count(count) => count.total(),
            State::Sum(sum, true) => sum.total(),
            State::Sum(_, false) => Value::Null,
            State::Least(value, _) | State::Example(value) => value.clone(),
            State::Average(sum, count) => match count.to_f64() {
                0.0 => Value::Null,
                count => Value::float(sum.to_f64() / count),
            },
            State::Quantile(sketch) => match function {
                Function::Quantile(share) => sketch.quantile(share).into(),
                _ => Value::Null,
            },
            State::Distinct(values) => Value::Int(values.len().min(DISTINCT) as i128),
        }
    }

    /// Whether there were more different values than are counted.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self, State::Distinct(values) if values.len() > DISTINCT)
    }

    /// The bytes it takes in a bag, about.
    pub(crate) fn size(&self) -> usize {
        match self {
            State::Count(_) => 4,
            State::Sum(sum, _) => sum.size(),
            State::Least(value, _) | State::Example(value) => value.size(),
            State::Average(sum, _) => sum.size() + 4,
            State::Quantile(sketch) => sketch.size(),
            State::Distinct(values) => values.iter().map(Value::size).sum::<usize>() + 2,
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        match self {
            State::Count(count) => count.encode(out),
            State::Sum(sum, any) => {
                sum.encode(out);
                out.byte(u8::from(*any));
            }
            State::Least(value, _) | State::Example(value) => out.value(value),
            State::Average(sum, count) => {
                sum.encode(out);
                count.encode(out);
            }
            State::Quantile(sketch) => sketch.encode(out),
            State::Distinct(values) => {
                out.number(values.len() as u64);
                values.iter().for_each(|value| out.value(value));
            }
        }
    }

    pub(crate) fn decode(function: Function, from: &mut Reader<'_>) -> Option<State> {
        let mut state = function.start();
        match &mut state {
            State::Count(count) => *count = Sum::decode(from)?,
            State::Sum(sum, any) => (*sum, *any) = (Sum::decode(from)?, from.flag()?),
            State::Least(value, _) | State::Example(value) => *value = from.value()?,
            State::Average(sum, count) => (*sum, *count) = (Sum::decode(from)?, Sum::decode(from)?),
            State::Quantile(sketch) => **sketch = Sketch::decode(from)?,
            State::Distinct(values) => {
                for _ in 0..from.count(DISTINCT as u64 + 1)? {
                    distinguish(values, from.value()?);
                }
            }
        }
        Some(state)
    }
}

/// Keeps the lesser value.
fn exemplify(least: &mut Value, value: &Value) {
    if !value.is_null() && (least.is_null() || value < least) {
        *least = value.clone();
    }
}

/// Adds a value to the different ones. The least stay, whatever the order.
fn distinguish(values: &mut BTreeSet<Value>, value: Value) {
    values.insert(value);
    if values.len() > DISTINCT + 1 {
        values.pop_last();
    }
}

/// Puts a value in place of another if it is before it by this order. Numbers are before text, and
/// booleans before numbers, for MIN; so values of mixed kinds do not depend on their order.
fn replace_by(least: &mut Value, value: Value, order: Ordering) {
    let better = match (&*least, &value) {
        (_, Value::Null) => false,
        (Value::Null, _) => true,
        (least, value) => {
            let by_size = match (least.number(), value.number()) {
                (Some(one), Some(two)) => two.compare(one),
                _ => Ordering::Equal,
            };
            by_size.then_with(|| value.cmp(least)) == order
        }
    };
    if better {
        *least = value;
    }
}

impl From<Option<f64>> for Value {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Value::Null, Value::float)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(function: Function, values: &[Value]) -> Value {
        let mut state = function.start();
        for value in values {
            state.add(value, 1);
        }
        state.finish(function)
    }

    /// An id may look like a number.
    #[test]
    fn an_example_is_as_it_is_written() {
        for id in ["0000000000000001", "00000000000012e5", "3502094664423571", "x"] {
            assert_eq!(over(Function::Example, &[Value::Null, Value::from(id)]), Value::from(id));
            let number = id == "3502094664423571";
            assert_eq!(over(Function::Max, &[Value::from(id)]) == Value::from(id), !number, "{id}");
        }
    }

    #[test]
    fn nulls_are_no_values_and_mixed_kinds_have_an_order() {
        let values = [Value::Null, Value::from("10"), Value::Int(9), Value::from("x"), Value::Null];
        assert_eq!(over(Function::Min, &values), Value::Int(9));
        assert_eq!(over(Function::Max, &values), Value::from("x"));
        assert_eq!(over(Function::Count, &values), Value::Int(3));
        assert_eq!(over(Function::Max, &values[..3]), Value::Int(10));
        assert_eq!(over(Function::Sum, &values[..3]), Value::Int(19));
        assert_eq!(over(Function::Average, &values[..3]), Value::Float(9.5));
        for function in [Function::Sum, Function::Min, Function::Average, Function::Quantile(0.5)] {
            assert_eq!(over(function, &[Value::Null]), Value::Null, "{function:?}");
        }
        assert!(!Function::Sum.start().add(&Value::from("x"), 1));
    }
}
