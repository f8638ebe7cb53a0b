//! The text form of policies:
//! `error,slow:p99,slow:500ms,odd,attr:http.response.status_code>=500(traces=5)`.

use std::fmt;
use std::str::FromStr;

use super::Tail;
use super::policy::{Comparison, Condition, Policy, Quantile, Rule, Severity, Slow, percent};
use crate::cap::Cap;
use crate::config_error::ConfigError;
use crate::nanos::Nanos;

const EXAMPLE: &str = "use policies such as error,slow:p99,slow:500ms,odd,attr:http.response.status_code>=500; a budget \
                       may follow in parentheses, as in error(traces=10,key_traces=2,bytes=1e6)";

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Error(Severity::Error) => f.write_str("error"),
            Policy::Error(Severity::Warning) => f.write_str("error:warn"),
            Policy::Error(Severity::Fine) => f.write_str("error:any"),
            Policy::Slow(Slow::Than(duration)) => write!(f, "slow:{duration}"),
            Policy::Slow(Slow::Quantile(quantile)) => write!(f, "slow:{quantile}"),
            Policy::Odd => f.write_str("odd"),
            Policy::Attribute(condition) => {
                write!(f, "attr:{}{}", condition.name(), condition.comparison().sign())?;
                write_value(f, condition.value())
            }
            Policy::Own(name) => write!(f, "own:{name}"),
        }
    }
}

impl fmt::Display for Quantile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", percent(self.get()))
    }
}

impl FromStr for Quantile {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match slow(text, text)? {
            Slow::Quantile(quantile) => Ok(quantile),
            Slow::Than(_) => Err(ConfigError::syntax(text, "write a quantile, as in p99")),
        }
    }
}

/// Whether a value needs no quotes: it contains nothing that could be mistaken for syntax.
fn is_plain(value: &str) -> bool {
    let is_plain =
        |c: char| !matches!(c, ',' | '(' | ')' | '"' | '\\' | '=' | '<' | '>') && !c.is_whitespace();
    !value.is_empty() && value.chars().all(is_plain)
}

fn write_value(f: &mut fmt::Formatter<'_>, value: &str) -> fmt::Result {
    if is_plain(value) {
        return f.write_str(value);
    }
    write!(f, "\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.policy)?;
        if *self == Rule::new(self.policy.clone()) { Ok(()) } else { write!(f, "({})", self.budget) }
    }
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, rule) in self.rules.iter().enumerate() {
            write!(f, "{}{rule}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Policy {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (name, of) = text.split_once(':').unwrap_or((text, ""));
        match (name, of) {
            ("error", "") => Ok(Policy::Error(Severity::Error)),
            ("error", "any") => Ok(Policy::Error(Severity::Fine)),
            ("error", "warn") => Ok(Policy::Error(Severity::Warning)),
            ("error", _) => Err(ConfigError::syntax(text, "write error, or error:warn for warnings too")),
            ("odd", "") => Ok(Policy::Odd),
            ("slow", of) => slow(of, text).map(Policy::Slow),
            ("attr", of) if !of.is_empty() => condition(of).map(Policy::Attribute),
            ("own", name) if is_name(name) => Ok(Policy::Own(name.to_owned())),
            _ => Err(ConfigError::unknown_parameter(text, EXAMPLE)),
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

fn slow(of: &str, text: &str) -> Result<Slow, ConfigError> {
    let advice = "write a quantile, as in slow:p99, or a time, as in slow:500ms";
    if let Some(percent) = of.strip_prefix('p') {
        let percent: f64 = percent.parse().map_err(|_| ConfigError::syntax(text, advice))?;
        // Rounded to six digits after the point.
        let percent = (percent * 1e6).round() / 1e6;
        return Quantile::new(percent / 100.0).map(Slow::Quantile);
    }
    match Nanos::parse(of) {
        Some(duration) => Ok(Slow::Than(duration)),
        None => Err(ConfigError::syntax(text, advice)),
    }
}

fn condition(text: &str) -> Result<Condition, ConfigError> {
    let at = text.find(['=', '!', '<', '>']);
    let found = at.and_then(|at| {
        let (name, rest) = text.split_at(at);
        let (sign, comparison) = Comparison::SIGNS.iter().find(|(sign, _)| rest.starts_with(sign))?;
        Some((name, *comparison, &rest[sign.len()..]))
    });
    let (name, comparison, value) = found.ok_or_else(|| {
        ConfigError::syntax(
            text,
            "write a name, a sign and a value, as in attr:http.response.status_code>=500",
        )
    })?;
    let value = match value.strip_prefix('"') {
        None if is_plain(value) => value.to_owned(),
        None => {
            let advice =
                "write a value that is empty, or contains spaces or signs, in quotes, as in attr:x=\"a, b\"";
            return Err(ConfigError::syntax(text, advice));
        }
        Some(quoted) => unquoted(quoted).ok_or_else(|| {
            ConfigError::syntax(text, "a quoted value ends with a quote, and nothing may follow it")
        })?,
    };
    Condition::new(name, comparison, &value)
}

fn unquoted(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return chars.next().is_none().then_some(out),
            '\\' => out.push(chars.next()?),
            c => out.push(c),
        }
    }
    None
}

impl FromStr for Rule {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let budget = if text.ends_with(')') { open(text) } else { None };
        match budget {
            None => Ok(Rule::new(text.parse()?)),
            Some(at) => {
                let budget: Cap = text[at + 1..text.len() - 1].parse()?;
                if budget.new_traces.is_some() {
                    return Err(ConfigError::unknown_parameter("new_traces", EXAMPLE));
                }
                Ok(Rule::new(text[..at].trim_end().parse()?).with_budget(budget))
            }
        }
    }
}

/// The position of the first parenthesis outside quotes.
fn open(text: &str) -> Option<usize> {
    let mut scan = Scan::default();
    text.char_indices().find(|(_, c)| scan.is_outside(*c) && *c == '(').map(|(at, _)| at)
}

/// Distinguishes text in quotes from the rest.
#[derive(Default)]
struct Scan {
    quoted: bool,
    escaped: bool,
}

impl Scan {
    fn is_outside(&mut self, c: char) -> bool {
        if self.quoted {
            self.quoted = self.escaped || c != '"';
            self.escaped = !self.escaped && c == '\\';
            return false;
        }
        self.quoted = c == '"';
        true
    }
}

impl FromStr for Tail {
    type Err = ConfigError;

    /// Parses policies; all other settings have their defaults.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut rules = Vec::new();
        let (mut start, mut depth, mut scan) = (0, 0_usize, Scan::default());
        let mut add = |part: &str| -> Result<(), ConfigError> {
            let part = part.trim();
            if !part.is_empty() {
                rules.push(part.parse()?);
            }
            Ok(())
        };
        for (at, c) in text.char_indices() {
            if !scan.is_outside(c) {
                continue;
            }
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    add(&text[start..at])?;
                    start = at + 1;
                }
                _ => {}
            }
        }
        add(&text[start..])?;
        if rules.len() > Tail::RULES_MAX {
            let message = format!("at most {} policies are allowed", Tail::RULES_MAX);
            return Err(ConfigError::out_of_range(text, message));
        }
        Ok(Tail::new(rules))
    }
}
