//! A program as it is written, before names are looked up.

use std::fmt;
use std::ops::Range;

use crate::advice::Relation;
use crate::aggregate::Function;
use crate::expression::{Binary, Unary};
use crate::names::Tracepoint;
use crate::value::{Arithmetic, Value};

/// A name and its place.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Range<usize>,
}

/// A query as written.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) label: Option<Name>,
    pub(crate) from: Join,
    pub(crate) joins: Vec<Join>,
    pub(crate) filters: Vec<Expr>,
    pub(crate) groups: Option<Vec<Expr>>,
    pub(crate) select: Option<Vec<Item>>,
}

/// `From a In ...`, `Join b In ... On b -> a` or `Join b In ... Below a`.
#[derive(Debug)]
pub(crate) struct Join {
    pub(crate) variable: Name,
    pub(crate) source: Vec<Written>,
    pub(crate) choice: Choice,
    /// Whether `Without` says that there is none.
    pub(crate) absent: bool,
    pub(crate) relation: Relation,
    /// The join's variable and the one that it is before or below; `From` has none.
    pub(crate) order: Option<(Name, Name)>,
}

/// A tracepoint as written.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) tracepoint: Tracepoint,
    /// Without quotes and `@`, so that it may be a label or a defined name.
    pub(crate) bare: bool,
    pub(crate) span: Range<usize>,
}

/// The tracepoint's events that take part in a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    All,
    First(u8),
    Recent(u8),
}

/// An item of `Select`.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) expr: Expr,
    pub(crate) alias: Option<Name>,
}

/// An expression and its place.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) span: Range<usize>,
}

/// The kinds of expressions.
#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    /// A variable and the parts of the name after it.
    Column(Vec<String>),
    Literal(Value),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    In(Box<Expr>, Vec<Value>),
    Fold(Function, Option<Box<Expr>>),
}

impl Expr {
    pub(crate) fn has_fold(&self) -> bool {
        match &self.kind {
            ExprKind::Column(_) | ExprKind::Literal(_) => false,
            ExprKind::Unary(_, inner) | ExprKind::In(inner, _) => inner.has_fold(),
            ExprKind::Binary(_, left, right) => left.has_fold() || right.has_fold(),
            ExprKind::Fold(..) => true,
        }
    }

    /// Whether the value is true or false, or null.
    pub(crate) fn is_condition(&self) -> bool {
        match &self.kind {
            ExprKind::In(..) | ExprKind::Unary(Unary::Not | Unary::IsNull | Unary::IsNotNull, _) => true,
            ExprKind::Binary(binary, ..) => !matches!(binary, Binary::Arithmetic(_)),
            _ => false,
        }
    }

    fn is_simple(&self) -> bool {
        matches!(self.kind, ExprKind::Column(_) | ExprKind::Literal(_) | ExprKind::Fold(..))
    }
}

/// The one form of an expression, by which a later query may name it as a column.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = |expr: &Expr| if expr.is_simple() { expr.to_string() } else { format!("({expr})") };
        match &self.kind {
            ExprKind::Column(parts) => f.write_str(&parts.join(".")),
            ExprKind::Literal(value) => Literal(value).fmt(f),
            ExprKind::Unary(unary, of) => unary.write(f, &inner(of)),
            ExprKind::Binary(binary @ Binary::Arithmetic(Arithmetic::Floor), left, right) => {
                write!(f, "{}({left}, {right})", binary.symbol())
            }
            ExprKind::Binary(binary, left, right) => {
                write!(f, "{} {} {}", inner(left), binary.symbol(), inner(right))
            }
            ExprKind::In(of, values) => write_in(f, &inner(of), values),
            ExprKind::Fold(function, None) => write!(f, "{}", function.name()),
            ExprKind::Fold(function, Some(of)) => function.write(f, &of.to_string()),
        }
    }
}

/// A value as a program writes it.
pub(crate) struct Literal<'a>(pub(crate) &'a Value);

impl fmt::Display for Literal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Text(text) => {
                let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                write!(f, "\"{escaped}\"")
            }
            Value::Float(number) => write!(f, "{number:?}"),
            other => write!(f, "{other}"),
        }
    }
}

/// Writes `of In (...)`.
pub(crate) fn write_in(f: &mut fmt::Formatter<'_>, of: &str, values: &[Value]) -> fmt::Result {
    let values: Vec<String> = values.iter().map(|value| Literal(value).to_string()).collect();
    write!(f, "{of} In ({})", values.join(", "))
}
