//! Values of variables: null logic, comparison, arithmetic, and text that is a number.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use astracer_model::value::Value as Recorded;

/// A value of a variable or a column.
///
/// The order is that of groups in a table: null, booleans, numbers, text. `==` is identity, by
/// which rows are grouped; a query's `=` also finds the text `42` equal to the number.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// Another number; never NaN, which becomes [`Value::Null`].
    Float(f64),
    /// Text.
    Text(Arc<str>),
}

impl Value {
    /// Whether this is null.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// A number, or null if it is NaN.
    pub(crate) fn float(number: f64) -> Value {
        if number.is_nan() { Value::Null } else { Value::Float(number) }
    }

    /// The value as a number: itself, or the number that its text states.
    pub(crate) fn number(&self) -> Option<Number> {
        match self {
            Value::Int(number) => Some(Number::Int(*number)),
            Value::Float(number) => Some(Number::Float(*number)),
            Value::Text(text) => Number::parse(text),
            Value::Null | Value::Bool(_) => None,
        }
    }

    /// The value with which a group is found: a float without a fraction is the whole number.
    pub(crate) fn into_key(self) -> Value {
        match self {
            Value::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                Value::Int(number as i128)
            }
            other => other,
        }
    }

    /// The bytes of memory or of a message that the value takes, about.
    pub(crate) fn size(&self) -> usize {
        match self {
            Value::Null | Value::Bool(_) => 1,
            Value::Int(number) => 2 + (128 - number.unsigned_abs().leading_zeros() as usize) / 7,
            Value::Float(_) => 9,
            Value::Text(text) => text.len() + 3,
        }
    }

    /// Appends the value as JSON. Infinite numbers, which JSON lacks, become text.
    pub fn write_json(&self, out: &mut String) {
        match self {
            Value::Null => out.push_str("null"),
            Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Value::Int(number) => drop(write!(out, "{number}")),
            Value::Float(number) if number.is_finite() => drop(write!(out, "{number:?}")),
            Value::Float(number) => drop(write!(out, "\"{number}\"")),
            Value::Text(text) => write_json_text(text, out),
        }
    }

    /// `=` of the language: `None` if either side is null.
    pub(crate) fn equals(&self, other: &Value) -> Option<bool> {
        match (self, other) {
            (Value::Null, _) | (_, Value::Null) => None,
            (Value::Text(one), Value::Text(two)) => Some(one == two),
            (Value::Bool(one), Value::Bool(two)) => Some(one == two),
            (Value::Bool(flag), Value::Text(text)) | (Value::Text(text), Value::Bool(flag)) => {
                Some(**text == *flag.to_string())
            }
            _ => match (self.number(), other.number()) {
                (Some(one), Some(two)) => Some(one.compare(two) == Ordering::Equal),
                _ => Some(false),
            },
        }
    }

    /// The order for `<` and its like, and for MIN and MAX: `None` if the values have none.
    pub(crate) fn compare(&self, other: &Value) -> Option<Ordering> {
        if let (Some(one), Some(two)) = (self.number(), other.number()) {
            return Some(one.compare(two));
        }
        match (self, other) {
            (Value::Text(one), Value::Text(two)) => Some(one.cmp(two)),
            (Value::Bool(one), Value::Bool(two)) => Some(one.cmp(two)),
            _ => None,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Value::Null => 0,
            Value::Bool(_) => 1,
            Value::Int(_) | Value::Float(_) => 2,
            Value::Text(_) => 3,
        }
    }
}

fn write_json_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control < ' ' => drop(write!(out, "\\u{:04x}", control as u32)),
            other => out.push(other),
        }
    }
    out.push('"');
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Value::Bool(one), Value::Bool(two)) => one.cmp(two),
            (Value::Int(one), Value::Int(two)) => one.cmp(two),
            (Value::Text(one), Value::Text(two)) => one.cmp(two),
            (Value::Float(one), Value::Float(two)) => one.total_cmp(two),
            // Equal numbers of two kinds are two values, or groups would depend on their order.
            (Value::Int(one), Value::Float(two)) => {
                Number::Int(*one).compare(Number::Float(*two)).then(Ordering::Less)
            }
            (Value::Float(_), Value::Int(_)) => other.cmp(self).reverse(),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Value::Null => state.write_u8(0),
            Value::Bool(value) => state.write_u8(1 + u8::from(*value)),
            Value::Int(number) => number.hash(state),
            Value::Float(number) => number.to_bits().hash(state),
            Value::Text(text) => text.hash(state),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Int(number) => write!(f, "{number}"),
            Value::Float(number) => write!(f, "{number}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(Arc::from(text))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int(number.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Int(number.into())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::float(number)
    }
}

impl From<Option<bool>> for Value {
    fn from(value: Option<bool>) -> Self {
        value.map_or(Value::Null, Value::Bool)
    }
}

impl From<&Recorded<'_>> for Value {
    /// Lists and maps become their JSON text, and bytes become hexadecimal digits.
    fn from(value: &Recorded<'_>) -> Self {
        match value {
            Recorded::Empty => Value::Null,
            Recorded::String(text) => Value::from(&**text),
            Recorded::Bool(value) => Value::Bool(*value),
            Recorded::Int(number) => Value::from(*number),
            Recorded::Double(number) => Value::float(*number),
            Recorded::Bytes(_) | Recorded::Array(_) | Recorded::Map(_) => {
                let mut text = String::new();
                write_recorded(value, &mut text);
                match value {
                    Recorded::Bytes(_) => Value::from(text.trim_matches('"')),
                    _ => Value::from(&*text),
                }
            }
        }
    }
}

fn write_recorded(value: &Recorded<'_>, out: &mut String) {
    match value {
        Recorded::Bytes(bytes) => {
            out.push('"');
            for byte in bytes.iter() {
                let _ = write!(out, "{byte:02x}");
            }
            out.push('"');
        }
        Recorded::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_recorded(item, out);
            }
            out.push(']');
        }
        Recorded::Map(items) => {
            out.push('{');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json_text(&item.key, out);
                out.push(':');
                write_recorded(&item.value, out);
            }
            out.push('}');
        }
        scalar => Value::from(scalar).write_json(out),
    }
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    /// The number that a text states: decimal digits with a sign, a fraction or an exponent.
    pub(crate) fn parse(text: &str) -> Option<Number> {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        // Otherwise `inf`, `nan` and every word would reach the slower parser.
        if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') || text.len() > 400 {
            return None;
        }
        if let Ok(number) = text.parse::<i128>() {
            return Some(Number::Int(number));
        }
        text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Number::Float)
    }

    pub(crate) fn to_f64(self) -> f64 {
        match self {
            Number::Int(number) => number as f64,
            Number::Float(number) => number,
        }
    }

    pub(crate) fn compare(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Int(one), Number::Int(two)) => one.cmp(&two),
            (Number::Float(one), Number::Float(two)) => one.partial_cmp(&two).unwrap_or(Ordering::Equal),
            (Number::Int(one), Number::Float(two)) => {
                // As `f64`, 2^53 + 1 would equal 2^53.
                let whole = two.floor();
                if whole >= 1.7e38 {
                    Ordering::Less
                } else if whole <= -1.7e38 {
                    Ordering::Greater
                } else if two > whole {
                    one.cmp(&(whole as i128)).then(Ordering::Less)
                } else {
                    one.cmp(&(whole as i128))
                }
            }
            (Number::Float(_), Number::Int(_)) => other.compare(self).reverse(),
        }
    }

    pub(crate) fn into_value(self) -> Value {
        match self {
            Number::Int(number) => Value::Int(number),
            Number::Float(number) => Value::float(number),
        }
    }
}

/// `+ - * /`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    /// The largest multiple of the right number that is not above the left one.
    Floor,
}

impl Arithmetic {
    /// The result, or `None` if there is none: text that is not a number, a division by zero, or
    /// an overflow.
    pub(crate) fn apply(self, left: &Value, right: &Value) -> Option<Value> {
        let (left, right) = (left.number()?, right.number()?);
        if let (Number::Int(left), Number::Int(right)) = (left, right) {
            let whole = match self {
                Arithmetic::Add => left.checked_add(right)?,
                Arithmetic::Subtract => left.checked_sub(right)?,
                Arithmetic::Multiply => left.checked_mul(right)?,
                Arithmetic::Divide if right == 0 => return None,
                Arithmetic::Divide if left.checked_rem(right)? != 0 => {
                    return Some(Value::float(left as f64 / right as f64));
                }
                Arithmetic::Divide => left.checked_div(right)?,
                Arithmetic::Floor if right <= 0 => return None,
                Arithmetic::Floor => left.checked_sub(left.rem_euclid(right))?,
            };
            return Some(Value::Int(whole));
        }
        let (left, right) = (left.to_f64(), right.to_f64());
        let number = match self {
            Arithmetic::Add => left + right,
            Arithmetic::Subtract => left - right,
            Arithmetic::Multiply => left * right,
            Arithmetic::Divide if right == 0.0 => return None,
            Arithmetic::Divide => left / right,
            Arithmetic::Floor if right <= 0.0 => return None,
            Arithmetic::Floor => (left / right).floor() * right,
        };
        (!number.is_nan()).then_some(Value::Float(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::from(text)
    }

    #[test]
    fn text_that_is_a_number_counts_as_one() {
        assert_eq!(text("42").equals(&Value::Int(42)), Some(true));
        assert_eq!(text("4e1").compare(&Value::Int(41)), Some(Ordering::Less));
        // As text, "9" follows "10".
        assert_eq!(text("9").compare(&text("10")), Some(Ordering::Less));
        assert_eq!(text("9a").compare(&text("10a")), Some(Ordering::Greater));
        for word in ["inf", "NaN", "-infinity", "", "-", "0x10", "1_000", " 1"] {
            assert_eq!(Number::parse(word), None, "{word}");
        }
        assert_eq!(Arithmetic::Add.apply(&text("1"), &Value::Float(0.5)), Some(Value::Float(1.5)));
        assert_eq!(Arithmetic::Add.apply(&text("x"), &Value::Int(1)), None);
    }

    #[test]
    fn whole_numbers_never_wrap_or_lose_digits() {
        let large = i128::from(i64::MAX);
        assert_eq!(
            Arithmetic::Multiply.apply(&Value::Int(large), &Value::Int(large)),
            Some(Value::Int(large * large))
        );
        assert_eq!(Arithmetic::Multiply.apply(&Value::Int(i128::MAX), &Value::Int(2)), None);
        assert_eq!(Arithmetic::Divide.apply(&Value::Int(7), &Value::Int(2)), Some(Value::Float(3.5)));
        assert_eq!(Arithmetic::Divide.apply(&Value::Int(8), &Value::Int(2)), Some(Value::Int(4)));
        assert_eq!(Arithmetic::Divide.apply(&Value::Int(7), &Value::Int(0)), None);
        assert_eq!(Arithmetic::Divide.apply(&Value::Int(i128::MIN), &Value::Int(-1)), None);
        // 2^53 + 1 is no `f64`.
        let odd = (1_i128 << 53) + 1;
        assert_eq!(Value::Int(odd).equals(&Value::Float((1_u64 << 53) as f64)), Some(false));
        assert_eq!(Number::Int(i128::MAX).compare(Number::Float(f64::INFINITY)), Ordering::Less);
    }

    #[test]
    fn null_is_equal_to_nothing_and_a_group_of_its_own() {
        assert_eq!(Value::Null.equals(&Value::Null), None);
        assert!(Value::Null == Value::Null && Value::Null < Value::Bool(false));
        assert_eq!(Value::float(f64::NAN), Value::Null);
        assert_eq!(Value::Float(-0.0).into_key(), Value::Int(0));
    }

    #[test]
    fn lists_and_bytes_become_text() {
        let list = Recorded::Array(vec![Recorded::Int(1), Recorded::from("a\"b"), Recorded::Empty]);
        assert_eq!(Value::from(&list), text(r#"[1,"a\"b",null]"#));
        assert_eq!(Value::from(&Recorded::Bytes(vec![1, 255].into())), text("01ff"));
    }
}
