//! The grammar of expressions.

use std::ops::Range;

use super::Parser;
use crate::aggregate::{FUNCTIONS, Function, OTHER_FUNCTIONS};
use crate::expression::{Binary, STEPS, Unary};
use crate::fault::{cut, nearest};
use crate::syntax::{Expr, ExprKind};
use crate::token::Kind;
use crate::value::{Arithmetic, Number, Value};

/// The nesting of an expression.
const DEPTH: usize = 64;

/// Units of durations, in nanoseconds.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

impl Parser<'_, '_> {
    /// Whether a word is the unit of a duration.
    pub(super) fn is_unit(&self, word: &str) -> bool {
        UNITS.iter().any(|(unit, _)| *unit == word)
    }

    /// A whole expression.
    pub(super) fn expression(&mut self) -> Option<Expr> {
        self.nodes = 0;
        self.depth = 0;
        self.or()
    }

    /// Builds a node, unless the expression is too long for its advice.
    fn node(&mut self, span: Range<usize>, kind: ExprKind) -> Option<Expr> {
        self.nodes += 1;
        if self.nodes > STEPS {
            let message = format!("the expression has more than {STEPS} operands and operators");
            self.source.fault(span, message, Some("write a list of values as x In (1, 2, 3)".to_owned()));
            return None;
        }
        Some(Expr { kind, span })
    }

    fn binary(&mut self, binary: Binary, left: Expr, right: Expr) -> Option<Expr> {
        let span = left.span.start..right.span.end;
        self.node(span, ExprKind::Binary(binary, Box::new(left), Box::new(right)))
    }

    fn unary(&mut self, unary: Unary, start: usize, of: Expr) -> Option<Expr> {
        let end = self.tokens[self.at - 1].span.end;
        self.node(start.min(of.span.start)..end, ExprKind::Unary(unary, Box::new(of)))
    }

    fn nested(&mut self, inner: impl FnOnce(&mut Self) -> Option<Expr>) -> Option<Expr> {
        self.depth += 1;
        if self.depth > DEPTH {
            let span = self.token().span.clone();
            let message = format!("the expression is nested more than {DEPTH} deep");
            self.source.fault(span, message, Some("remove parentheses that group nothing".to_owned()));
            // The rest of the text is more of the same.
            self.source.aborted = true;
            return None;
        }
        let expr = inner(self);
        self.depth -= 1;
        expr
    }

    fn or(&mut self) -> Option<Expr> {
        let mut left = self.and()?;
        while self.take_word("or") {
            let right = self.and()?;
            left = self.binary(Binary::Or, left, right)?;
        }
        Some(left)
    }

    fn and(&mut self) -> Option<Expr> {
        let mut left = self.not()?;
        while self.take_word("and") {
            let right = self.not()?;
            left = self.binary(Binary::And, left, right)?;
        }
        Some(left)
    }

    fn not(&mut self) -> Option<Expr> {
        let start = self.token().span.start;
        if self.is_word(0, "not") && !self.is_mark(1, ".") {
            self.at += 1;
            let of = self.nested(Self::not)?;
            return self.unary(Unary::Not, start, of);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Option<Expr> {
        let left = self.sum()?;
        let start = left.span.start;
        if self.is_word(0, "not") && self.is_word(1, "in") {
            self.at += 2;
            let of = self.values(left)?;
            return self.unary(Unary::Not, start, of);
        }
        if self.take_word("in") {
            return self.values(left);
        }
        if self.take_word("is") {
            let unary = if self.take_word("not") { Unary::IsNotNull } else { Unary::IsNull };
            self.expect_word("Null", "write Is Null or Is Not Null")?;
            return self.unary(unary, start, left);
        }
        let binary = match &self.token().kind {
            Kind::Mark("=" | "==") => Binary::Equal,
            Kind::Mark("!=" | "<>") => Binary::NotEqual,
            Kind::Mark("<") => Binary::Less,
            Kind::Mark("<=") => Binary::AtMost,
            Kind::Mark(">") => Binary::Greater,
            Kind::Mark(">=") => Binary::AtLeast,
            _ if self.is_word(0, "contains") => Binary::Contains,
            _ if self.is_word(0, "startswith") => Binary::StartsWith,
            _ => return Some(left),
        };
        self.at += 1;
        let right = self.sum()?;
        self.binary(binary, left, right)
    }

    /// `In (...)` behind its operand.
    fn values(&mut self, of: Expr) -> Option<Expr> {
        let example = "list values in parentheses: e.status In (200, \"ok\")";
        self.expect_mark("(", example)?;
        let values = self.list(|parser| {
            let negative = parser.take_mark("-");
            let token = parser.token().clone();
            let value = match token.kind {
                Kind::Text(text) if !negative => Some(Value::from(&*text)),
                Kind::Number => return parser.number(negative),
                _ if negative => None,
                _ => parser.constant(),
            };
            match value {
                Some(value) => {
                    parser.at += 1;
                    Some(value)
                }
                None => parser.expected("a value", Some(example.to_owned())),
            }
        })?;
        self.expect_mark(")", example)?;
        let span = of.span.start..self.tokens[self.at - 1].span.end;
        // One step holds all values, but each takes room in the advice.
        self.nodes += values.len();
        self.node(span, ExprKind::In(Box::new(of), values))
    }

    fn constant(&self) -> Option<Value> {
        let known = [("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::Null)];
        known.into_iter().find(|(word, _)| self.is_word(0, word)).map(|(_, value)| value)
    }

    fn sum(&mut self) -> Option<Expr> {
        self.operands(Self::product, &[("+", Arithmetic::Add), ("-", Arithmetic::Subtract)])
    }

    fn product(&mut self) -> Option<Expr> {
        self.operands(Self::factor, &[("*", Arithmetic::Multiply), ("/", Arithmetic::Divide)])
    }

    /// Operands between operators of one rank, of which the first binds first.
    fn operands(
        &mut self,
        operand: fn(&mut Self) -> Option<Expr>,
        operators: &[(&str, Arithmetic)],
    ) -> Option<Expr> {
        let mut left = operand(self)?;
        while let Some(&(_, arithmetic)) = operators.iter().find(|(mark, _)| self.take_mark(mark)) {
            let right = operand(self)?;
            left = self.binary(Binary::Arithmetic(arithmetic), left, right)?;
        }
        Some(left)
    }

    fn factor(&mut self) -> Option<Expr> {
        let token = self.token().clone();
        let start = token.span.start;
        if self.take_mark("-") {
            if self.token().kind == Kind::Number {
                let value = self.number(true)?;
                let span = start..self.tokens[self.at - 1].span.end;
                return self.node(span, ExprKind::Literal(value));
            }
            let of = self.nested(Self::factor)?;
            return self.unary(Unary::Negate, start, of);
        }
        if self.take_mark("(") {
            let inner = self.nested(Self::or)?;
            self.expect_mark(")", "close the parenthesis")?;
            return Some(inner);
        }
        match token.kind {
            Kind::Text(text) => {
                self.at += 1;
                self.node(token.span, ExprKind::Literal(Value::from(&*text)))
            }
            Kind::Number => {
                let value = self.number(false)?;
                self.node(token.span, ExprKind::Literal(value))
            }
            Kind::Word if self.clause().is_none() => self.named(),
            _ => self.expected("an expression", Some("write a column such as e.host, or a value".to_owned())),
        }
    }

    /// The number at the current place, with its unit.
    fn number(&mut self, negative: bool) -> Option<Value> {
        let token = self.advance();
        let text = self.slice(&token.span).to_owned();
        let unit = text.find(|letter: char| letter.is_alphabetic()).filter(|_| !is_plain(&text));
        let (digits, unit) = text.split_at(unit.unwrap_or(text.len()));
        let number = Number::parse(digits);
        let scale = if unit.is_empty() {
            Some(1)
        } else {
            UNITS.iter().find(|(name, _)| *name == unit).map(|&(_, scale)| scale)
        };
        let value = number.zip(scale).and_then(|(number, scale)| match number {
            Number::Int(number) => {
                let number = if negative { -number } else { number };
                number.checked_mul(scale.into()).map(Value::Int)
            }
            Number::Float(number) => {
                let number = if negative { -number } else { number } * scale as f64;
                Some(if unit.is_empty() { Value::float(number) } else { Value::Int(number.round() as i128) })
            }
        });
        if value.is_none() {
            let help = "write a number as 42, 1.5 or 2e9, and a duration as 200ms (ns, us, ms, s, m, h, d)";
            let message = format!("`{}` is not a number", cut(&text));
            self.source.fault(token.span, message, Some(help.to_owned()));
        }
        value
    }

    /// A column, a constant or an aggregate.
    fn named(&mut self) -> Option<Expr> {
        let span = self.token().span.clone();
        let word = self.slice(&span).to_owned();
        if self.is_mark(1, "(") {
            return self.fold();
        }
        if self.is_mark(1, ".") {
            return self.column();
        }
        if let Some(value) = self.constant() {
            self.at += 1;
            return self.node(span, ExprKind::Literal(value));
        }
        if word.eq_ignore_ascii_case("count") {
            self.at += 1;
            if self.take_word("distinct") {
                let of = self.nested(Self::factor)?;
                let span = span.start..self.tokens[self.at - 1].span.end;
                return self.node(span, ExprKind::Fold(Function::Distinct, Some(Box::new(of))));
            }
            return self.node(span, ExprKind::Fold(Function::Count, None));
        }
        self.at += 1;
        self.node(span, ExprKind::Column(vec![word]))
    }

    fn column(&mut self) -> Option<Expr> {
        let first = self.advance();
        let mut span = first.span.clone();
        let mut parts = vec![self.slice(&first.span).to_owned()];
        while self.take_mark(".") {
            let token = self.token().clone();
            let part = match token.kind {
                // A column of a query that this one joins: s.SUM(d.bytes).
                Kind::Word if self.is_mark(1, "(") => self.fold()?.to_string(),
                Kind::Word | Kind::Number => {
                    self.at += 1;
                    self.slice(&token.span).to_owned()
                }
                Kind::Text(text) => {
                    self.at += 1;
                    text
                }
                _ => {
                    let help = "write a variable and its field: e.http.route or e.\"odd name\"".to_owned();
                    return self.expected("the name of a field", Some(help));
                }
            };
            span.end = self.tokens[self.at - 1].span.end;
            parts.push(part);
        }
        self.node(span, ExprKind::Column(parts))
    }

    fn fold(&mut self) -> Option<Expr> {
        let token = self.advance();
        let word = self.slice(&token.span).to_owned();
        let upper = word.to_ascii_uppercase();
        let function = match &*upper {
            "FLOOR" | "BIN" => return self.floor(token.span.start, &upper),
            "COUNT" => Function::Count,
            // Any of the values will do, so it is the least.
            "EXAMPLE" => Function::Example,
            "SUM" => Function::Sum,
            "MIN" => Function::Min,
            "MAX" => Function::Max,
            "AVERAGE" | "AVG" => Function::Average,
            "QUANTILE" => Function::Quantile(0.5),
            _ => {
                let known = FUNCTIONS.into_iter().chain(OTHER_FUNCTIONS);
                let is_percentile = upper == "MEDIAN" || upper == "PERCENTILE" || upper.starts_with('P');
                let help = match nearest(&word, known) {
                    Some(near) => format!("did you mean {near}?"),
                    None if is_percentile => "write QUANTILE(e.duration, 0.99)".to_owned(),
                    None => format!("there are {}, COUNT DISTINCT, EXAMPLE and FLOOR", FUNCTIONS.join(", ")),
                };
                let message = format!("no function has the name `{}`", cut(&word));
                self.source.fault(token.span, message, Some(help));
                return None;
            }
        };
        self.at += 1;
        if function == Function::Count {
            let star = self.is_mark(0, "*") && self.is_mark(1, ")");
            self.at += usize::from(star);
            if self.take_mark(")") {
                let span = token.span.start..self.tokens[self.at - 1].span.end;
                return self.node(span, ExprKind::Fold(function, None));
            }
        }
        let function = match function {
            Function::Count if self.take_word("distinct") => Function::Distinct,
            other => other,
        };
        let of = self.nested(Self::or)?;
        let function = match function {
            Function::Quantile(_) => self.share()?,
            other => other,
        };
        self.expect_mark(")", "close the parenthesis of the aggregate")?;
        let span = token.span.start..self.tokens[self.at - 1].span.end;
        self.node(span, ExprKind::Fold(function, Some(Box::new(of))))
    }

    /// `FLOOR(e.time, 10s)`; without a step, to whole numbers.
    fn floor(&mut self, start: usize, name: &str) -> Option<Expr> {
        self.at += 1;
        let of = self.nested(Self::or)?;
        let step = match self.take_mark(",") {
            true => self.nested(Self::or)?,
            false => self.node(of.span.clone(), ExprKind::Literal(Value::Int(1)))?,
        };
        self.expect_mark(")", &format!("write {name}(e.time, 10s)"))?;
        let mut floor = self.binary(Binary::Arithmetic(Arithmetic::Floor), of, step)?;
        floor.span = start..self.tokens[self.at - 1].span.end;
        Some(floor)
    }

    /// `, 0.99` of a quantile.
    fn share(&mut self) -> Option<Function> {
        let help = "write the share of values below it: QUANTILE(e.duration, 0.99)";
        self.expect_mark(",", help)?;
        let share = self.slice(&self.token().span).parse::<f64>().ok();
        match share.filter(|share| (0.0..=1.0).contains(share) && self.token().kind == Kind::Number) {
            Some(share) => {
                self.at += 1;
                Some(Function::Quantile(share))
            }
            None => self.expected("a number from 0 to 1", Some(help.to_owned())),
        }
    }
}

/// Whether the letters of a number are an exponent.
fn is_plain(text: &str) -> bool {
    Number::parse(text).is_some()
}
