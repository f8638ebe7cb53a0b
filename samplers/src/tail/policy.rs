//! Policies, and the conditions that they consist of.

use std::cmp::Ordering;

use crate::cap::{Allowance, Cap};
use crate::config_error::ConfigError;
use crate::nanos::Nanos;

/// The worst outcome of a trace, as far as its process can see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing went wrong.
    #[default]
    Fine,
    /// An event of level WARN.
    Warning,
    /// An error status, an event of level ERROR, or a panic.
    Error,
}

/// The duration above which a root is slow.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Slow {
    /// Longer than this.
    Than(Nanos),
    /// Longer than this quantile of the key's own roots in the last five to ten minutes. For a key
    /// with too few calls in ten minutes, in as many of the last hours as it takes, at most three.
    Quantile(Quantile),
}

/// A quantile from 0.5 to 0.9999.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile(f64);

impl Quantile {
    /// From 0.5 to 0.9999: higher quantiles would need more calls than a key usually has.
    pub(super) fn new(quantile: f64) -> Result<Self, ConfigError> {
        if (0.5..=0.9999).contains(&quantile) {
            return Ok(Quantile(quantile));
        }
        Err(ConfigError::out_of_range(
            format!("p{}", percent(quantile)),
            "a quantile must be from p50 to p99.99, such as slow:p99",
        ))
    }

    /// The number, such as 0.99.
    pub fn get(self) -> f64 {
        self.0
    }

    /// The number of calls a key needs before it has this quantile: at least a hundred, and enough
    /// for one to lie above it.
    pub fn calls_min(self) -> u64 {
        // The quantile is at most 0.9999, so the result is at most 10,000.
        ((1.0 / (1.0 - self.0)).round() as u64).max(100)
    }
}

/// The quantile in percent, rounded to the digits that parsing keeps: 0.14 * 100 is not exactly 14.
pub(super) fn percent(quantile: f64) -> f64 {
    (quantile * 1e8).round() / 1e6
}

/// A comparison of an attribute's value with a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

impl Comparison {
    /// Longer signs first, so that `<=` is not read as `<`.
    pub(super) const SIGNS: [(&'static str, Comparison); 6] = [
        ("!=", Comparison::Unequal),
        ("<=", Comparison::AtMost),
        (">=", Comparison::AtLeast),
        ("=", Comparison::Equal),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];

    /// The sign in a policy's text.
    pub fn sign(self) -> &'static str {
        Self::SIGNS.iter().find(|(_, known)| *known == self).map_or("=", |(sign, _)| sign)
    }

    fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Comparison::Equal => order == Some(Ordering::Equal),
            Comparison::Unequal => order != Some(Ordering::Equal),
            Comparison::Less => order == Some(Ordering::Less),
            Comparison::AtMost => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Comparison::Greater => order == Some(Ordering::Greater),
            Comparison::AtLeast => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

/// A value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A text.
    Text(&'a str),
}

/// A condition on an attribute: a trace fulfils it if any of its spans does.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    name: String,
    comparison: Comparison,
    value: String,
    /// The value as a number, if it is one.
    number: Option<Number>,
}

/// A number. Integers are kept apart, because large ids lose digits as `f64`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Whole(i128),
    Real(f64),
}

impl Number {
    fn parse(text: &str) -> Option<Self> {
        let whole = text.parse().ok().map(Number::Whole);
        whole.or_else(|| text.parse().ok().map(Number::Real))
    }

    fn is_finite(&self) -> bool {
        !matches!(self, Number::Real(real) if !real.is_finite())
    }

    /// `None` if one of them is NaN.
    fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Number::Whole(a), Number::Whole(b)) => Some(a.cmp(&b)),
            (Number::Real(a), Number::Real(b)) => a.partial_cmp(&b),
            (Number::Whole(a), Number::Real(b)) => compare_whole(a, b),
            (Number::Real(a), Number::Whole(b)) => compare_whole(b, a).map(Ordering::reverse),
        }
    }
}

/// Exact even where a double cannot hold the integer.
fn compare_whole(whole: i128, real: f64) -> Option<Ordering> {
    // Integral doubles below 2^127 convert exactly. Others have so few digits that rounding the
    // integer does not change the order.
    if real.fract() == 0.0 && real.abs() < i128::MAX as f64 {
        return Some(whole.cmp(&(real as i128)));
    }
    (whole as f64).partial_cmp(&real)
}

impl Condition {
    /// A condition that compares the attribute `name` with `value`. If `value` is a number, it is
    /// compared with numbers and with texts that are numbers. Other values can only be compared for
    /// equality.
    ///
    /// # Errors
    ///
    /// If the name is empty or contains a sign, a quote, a comma, a parenthesis or white space, or
    /// if an ordering comparison has a value that is not a number.
    pub fn new(name: &str, comparison: Comparison, value: &str) -> Result<Self, ConfigError> {
        let is_sign =
            |c: char| matches!(c, '=' | '<' | '>' | '!' | '"' | ',' | '(' | ')') || c.is_whitespace();
        if name.is_empty() || name.contains(is_sign) {
            return Err(ConfigError::syntax(
                name,
                "an attribute's name must be a word such as http.response.status_code",
            ));
        }
        let number = Number::parse(value).filter(Number::is_finite);
        if number.is_none() && !matches!(comparison, Comparison::Equal | Comparison::Unequal) {
            return Err(ConfigError::syntax(
                value,
                format!("`{}` needs a number on its right", comparison.sign()),
            ));
        }
        Ok(Condition { name: name.to_owned(), comparison, value: value.to_owned(), number })
    }

    /// The attribute's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The comparison.
    pub fn comparison(&self) -> Comparison {
        self.comparison
    }

    /// The constant that values are compared with.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Whether a value fulfils the condition.
    pub fn holds(&self, value: Value<'_>) -> bool {
        let text_order = |text: &str| (text == self.value).then_some(Ordering::Equal);
        let order = match (value, self.number) {
            (Value::Int(value), Some(number)) => Number::Whole(value.into()).compare(number),
            (Value::Float(value), Some(number)) => Number::Real(value).compare(number),
            (Value::Text(text), Some(number)) => {
                Number::parse(text.trim()).and_then(|value| value.compare(number))
            }
            (Value::Text(text), None) => text_order(text),
            (Value::Bool(value), None) => text_order(if value { "true" } else { "false" }),
            (Value::Bool(_), Some(_)) | (Value::Int(_) | Value::Float(_), None) => None,
        };
        self.comparison.holds(order)
    }
}

/// A reason to keep a trace that the sampler dropped.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Policy {
    /// Something at least this bad happened.
    Error(Severity),
    /// The root took long.
    Slow(Slow),
    /// The call tree has a shape that its key has not had for an hour.
    Odd,
    /// A span has an attribute that fulfils the condition.
    Attribute(Condition),
    /// The caller's own function with this name wants the trace.
    Own(String),
}

impl Policy {
    /// Whether the policy depends only on the trace's own outcome and on earlier traces. The others
    /// see what no head sampler's trace shows them: [`Policy::Odd`] notes shapes of recorded traces
    /// alone, and a function of the caller's may do anything.
    pub(super) fn is_by_outcome(&self) -> bool {
        matches!(self, Policy::Error(_) | Policy::Slow(_) | Policy::Attribute(_))
    }

    /// The reason for keeping a trace, without details: `error`, `slow`, `odd`, `attribute`, or the
    /// name of the caller's own function.
    pub fn reason(&self) -> &str {
        match self {
            Policy::Error(_) => "error",
            Policy::Slow(_) => "slow",
            Policy::Odd => "odd",
            Policy::Attribute(_) => "attribute",
            Policy::Own(name) => name,
        }
    }
}

/// A policy with its budget.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rule {
    /// The reason to keep a trace.
    pub policy: Policy,
    /// The greatest number of traces and bytes that this policy keeps, of all keys and of each.
    pub budget: Cap,
}

impl From<Policy> for Rule {
    fn from(policy: Policy) -> Self {
        Rule { policy, budget: Self::default_budget() }
    }
}

impl Rule {
    /// The budget of a policy without one, as text.
    pub const BUDGET_DEFAULT: &'static str =
        "traces=100,burst=100,key_traces=10,key_burst=10,bytes=1000000,bytes_burst=8000000";

    /// A policy with the default budget.
    pub fn new(policy: Policy) -> Self {
        Self::from(policy)
    }

    /// The same policy with another budget. Allowances that the budget does not set are unbounded.
    #[must_use]
    pub fn with_budget(self, budget: Cap) -> Self {
        Rule { budget, ..self }
    }

    fn default_budget() -> Cap {
        // The same numbers as in the constant; a test compares them.
        let allowance = |rate, burst| Allowance::new(rate, burst).ok();
        Cap {
            traces: allowance(100.0, 100.0),
            key_traces: allowance(10.0, 10.0),
            bytes: allowance(1e6, 8e6),
            ..Cap::none()
        }
    }
}
