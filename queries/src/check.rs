//! Checks of a program as it is written: every name means something, and every clause fits.

use std::collections::HashMap;
use std::ops::Range;

use crate::advice::Relation;
use crate::aggregate::Function;
use crate::expression::{Binary, Term, Unary};
use crate::fault::{Source, cut, list, nearest};
use crate::names::{Definitions, Moment, Tracepoint};
use crate::syntax::{self, Choice, Expr, ExprKind, Name, Written};
use crate::value::Value;

/// A checked query.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    label: Option<String>,
    /// The variables, that of `From` first; each joins to an earlier one.
    pub(crate) variables: Vec<Variable>,
    /// The conditions that all have to hold.
    pub(crate) filters: Vec<Term<Column>>,
    pub(crate) keys: Vec<Term<Column>>,
    /// `None`: every variable is a column.
    pub(crate) items: Option<Vec<Item>>,
    pub(crate) aggregated: bool,
}

/// A variable of a query.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) source: From,
    pub(crate) choice: Choice,
    /// Whether rows are kept only if there is none, or it joins to such a variable.
    pub(crate) absent: bool,
    pub(crate) relation: Relation,
    /// The variable that it is before or below; 0 for that of `From`.
    pub(crate) later: usize,
}

/// The source of a variable.
#[derive(Clone, Debug)]
pub(crate) enum From {
    Tracepoints(Vec<Tracepoint>),
    /// An earlier query of the program.
    Query(usize),
}

/// A column: a variable of the query and a part of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) variable: usize,
    pub(crate) part: Part,
}

/// The part of a variable that a column is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Field(String),
    /// An item of the query that the variable stands for.
    Item(usize),
    /// A column inside of the query that the variable stands for.
    Inner(Box<Column>),
}

/// A column of a query's answer.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// The name that `As` gives, or the expression.
    pub(crate) name: String,
    written: String,
    pub(crate) kind: ItemKind,
}

/// The kinds of columns of an answer.
#[derive(Clone, Debug)]
pub(crate) enum ItemKind {
    Plain(Term<Column>),
    Fold(Function, Option<Term<Column>>),
}

/// Checks the queries, and records faults at their places.
pub(crate) fn check(
    written: &[syntax::Query],
    definitions: &Definitions,
    source: &mut Source<'_>,
) -> Vec<Query> {
    let mut labels = HashMap::new();
    let mut queries = Vec::new();
    for (index, query) in written.iter().enumerate() {
        let last = index + 1 == written.len();
        let mut check = Check {
            labels: &labels,
            later: &written[index + 1..],
            queries: &queries,
            definitions,
            clause: "",
            source,
        };
        let query_checked = check.query(query, last);
        queries.push(query_checked);
        if let Some(label) = &query.label
            && labels.insert(label.text.clone(), index).is_some()
        {
            let message = format!("two queries have the label `{}`", cut(&label.text));
            source.fault(label.span.clone(), message, Some("give this one another label".to_owned()));
        }
    }
    queries
}

struct Check<'c, 't> {
    labels: &'c HashMap<String, usize>,
    later: &'c [syntax::Query],
    queries: &'c [Query],
    definitions: &'c Definitions,
    /// The clause that is being checked.
    clause: &'static str,
    source: &'c mut Source<'t>,
}

impl Check<'_, '_> {
    fn query(&mut self, written: &syntax::Query, last: bool) -> Query {
        let mut query = Query {
            label: written.label.as_ref().map(|label| label.text.clone()),
            variables: Vec::new(),
            filters: Vec::new(),
            keys: Vec::new(),
            items: None,
            aggregated: false,
        };
        if written.from.source.is_empty() {
            // `From` was faulty, so every column would be a fault of its own.
            return query;
        }
        for join in std::iter::once(&written.from).chain(&written.joins) {
            self.variable(join, &mut query.variables);
        }
        for filter in &written.filters {
            self.is_condition(filter);
            if let Some(term) = self.plain(filter, &query, "Where") {
                conjuncts(term, &mut query.filters);
            }
        }
        for group in written.groups.iter().flatten() {
            if let Some(term) = self.plain(group, &query, "GroupBy") {
                query.keys.push(term);
            }
        }
        let selected = written.select.as_deref().unwrap_or_default();
        query.aggregated = written.groups.is_some() || selected.iter().any(|item| item.expr.has_fold());
        if written.select.is_some() {
            let mut items = Vec::new();
            for item in selected {
                items.extend(self.item(item, &query));
            }
            query.items = Some(items);
        } else if last || query.aggregated {
            query.aggregated = true;
            query.items = Some(self.counted(written, &query));
        }
        query
    }

    /// The columns of a query without `Select`: its groups and their counts.
    fn counted(&self, written: &syntax::Query, query: &Query) -> Vec<Item> {
        let names = written.groups.iter().flatten().map(Expr::to_string);
        let keys = names.zip(&query.keys).map(|(name, key)| Item {
            written: name.clone(),
            name,
            kind: ItemKind::Plain(key.clone()),
        });
        let count = Item {
            name: "COUNT".to_owned(),
            written: "COUNT".to_owned(),
            kind: ItemKind::Fold(Function::Count, None),
        };
        keys.chain([count]).collect()
    }

    fn variable(&mut self, join: &syntax::Join, variables: &mut Vec<Variable>) {
        let name = &join.variable;
        let taken = variables.iter().any(|known| known.name == name.text);
        if taken {
            let help = "give this join a name of its own".to_owned();
            self.source.fault(
                name.span.clone(),
                format!("the variable `{}` is used twice", cut(&name.text)),
                Some(help),
            );
        }
        let later = match &join.order {
            Some(order) if !taken => self.order(name, order, variables).unwrap_or(0),
            _ => 0,
        };
        let source = self.from(join, join.order.is_some());
        if let (true, From::Query(_)) = (join.absent, &source) {
            let help = "name a tracepoint: Join Without x In t On x -> r".to_owned();
            let message = format!("`{}` is a query's answer, and `Without` needs events", cut(&name.text));
            self.source.fault(name.span.clone(), message, Some(help));
        }
        let absent = join.absent || join.order.is_some() && variables.get(later).is_some_and(|of| of.absent);
        let (choice, relation) = (join.choice, join.relation);
        variables.push(Variable { name: name.text.clone(), source, choice, absent, relation, later });
    }

    /// The variable that a join's variable happens before.
    fn order(&mut self, name: &Name, order: &(Name, Name), variables: &[Variable]) -> Option<usize> {
        let (earlier, later) = order;
        let find = |text: &str| variables.iter().position(|known| known.name == text);
        let known = || variables.iter().map(|known| &*known.name);
        if earlier.text != name.text {
            let span = earlier.span.start..later.span.end;
            if later.text == name.text && find(&earlier.text).is_some() {
                let message =
                    format!("`On` names the earlier variable first, and `{}` joins", cut(&name.text));
                let (own, of) = (cut(&name.text), cut(&earlier.text));
                let help = format!(
                    "write On {own} -> {of} for what happened before {of}, Below {of} for what is below it"
                );
                self.source.fault(span, message, Some(help));
            } else {
                let message = format!("the left side of this `On` has to be `{}`", cut(&name.text));
                let to = find(&later.text)
                    .map_or(variables.first().map_or("a", |from| &from.name), |_| &later.text);
                let help = format!("write On {} -> {}", cut(&name.text), cut(to));
                self.source.fault(earlier.span.clone(), message, Some(help));
            }
            return None;
        }
        if later.text == name.text {
            let help = format!("name another variable: {}", list(known()));
            let message = format!("`{}` joins itself", cut(&name.text));
            self.source.fault(later.span.clone(), message, Some(help));
            return None;
        }
        let Some(index) = find(&later.text) else {
            let near = nearest(&later.text, known()).map(|near| format!("did you mean `{near}`? "));
            let help =
                format!("{}the query has {} before this join", near.unwrap_or_default(), list(known()));
            let message = format!("no variable `{}` is known here", cut(&later.text));
            self.source.fault(later.span.clone(), message, Some(help));
            return None;
        };
        if matches!(variables[index].source, From::Query(_)) {
            let help = "join to a tracepoint's variable, or write this join in that query".to_owned();
            let message =
                format!("`{}` is a query's answer, so nothing is before or below it", cut(&later.text));
            self.source.fault(later.span.clone(), message, Some(help));
        }
        Some(index)
    }

    fn from(&mut self, join: &syntax::Join, joins: bool) -> From {
        if let [only] = &*join.source
            && only.bare
            && let Some(&index) = self.labels.get(&*only.tracepoint.pattern)
        {
            let label = cut(&only.tracepoint.pattern);
            if !joins {
                let help = format!("join it: From e In ... Join q In {label} On q -> e");
                self.source.fault(only.span.clone(), format!("`{label}` is a query"), Some(help));
            } else if join.choice != Choice::All {
                let message = format!("`{label}` is a query, and First and MostRecent choose events");
                let help = "name a tracepoint, or choose in a Join of that query".to_owned();
                self.source.fault(only.span.clone(), message, Some(help));
            }
            return From::Query(index);
        }
        let mut tracepoints = Vec::new();
        for written in &join.source {
            self.tracepoint(written, &mut tracepoints);
        }
        From::Tracepoints(tracepoints)
    }

    fn tracepoint(&mut self, written: &Written, tracepoints: &mut Vec<Tracepoint>) {
        let pattern = &*written.tracepoint.pattern;
        if written.bare {
            if let Some(defined) = self.definitions.get(pattern) {
                tracepoints.extend_from_slice(defined);
                return;
            }
            let labels =
                |query: &syntax::Query| query.label.as_ref().is_some_and(|label| label.text == pattern);
            if self.labels.contains_key(pattern) {
                let help = "join each query by a Join of its own".to_owned();
                let message = format!("the query `{}` is listed among tracepoints", cut(pattern));
                self.source.fault(written.span.clone(), message, Some(help));
            } else if self.later.iter().take(100).any(labels) {
                let help = "write that query above this one".to_owned();
                let message = format!("the query `{}` is defined further down", cut(pattern));
                self.source.fault(written.span.clone(), message, Some(help));
            }
        }
        tracepoints.push(written.tracepoint.clone());
    }

    /// An expression without aggregates.
    fn plain(&mut self, expr: &Expr, query: &Query, clause: &'static str) -> Option<Term<Column>> {
        self.clause = clause;
        if expr.has_fold() {
            let help = match clause {
                "Where" => "name the query, join it in another one, and filter there",
                _ => "write the aggregate in Select by itself, and its parts in further columns",
            };
            let message = match clause {
                "Select" => "an aggregate is part of an expression".to_owned(),
                _ => format!("`{clause}` is evaluated before rows are aggregated"),
            };
            self.source.fault(expr.span.clone(), message, Some(help.to_owned()));
            return None;
        }
        self.term(expr, query)
    }

    fn item(&mut self, item: &syntax::Item, query: &Query) -> Option<Item> {
        let written = item.expr.to_string();
        let name = match &item.alias {
            Some(alias) => alias.text.clone(),
            None => self.source.written(&item.expr.span),
        };
        let kind = match &item.expr.kind {
            ExprKind::Fold(function, None) => ItemKind::Fold(*function, None),
            ExprKind::Fold(function, Some(of)) => {
                let term = self.plain(of, query, "Select")?;
                // The rows for which a condition holds: false is no value.
                let counts = *function == Function::Count && of.is_condition();
                ItemKind::Fold(*function, Some(if counts { or_null(term) } else { term }))
            }
            _ => {
                let term = self.plain(&item.expr, query, "Select")?;
                let constant = matches!(term, Term::Literal(_));
                if query.aggregated && !constant && !query.keys.contains(&term) {
                    let message = format!(
                        "`{}` is not in GroupBy, so a group may have several values of it",
                        cut(&written)
                    );
                    let add = if query.keys.is_empty() { "add GroupBy" } else { "add to GroupBy" };
                    let help = format!("{add} {0}, or aggregate it: EXAMPLE({0})", cut(&written));
                    self.source.fault(item.expr.span.clone(), message, Some(help));
                }
                ItemKind::Plain(term)
            }
        };
        Some(Item { name, written, kind })
    }

    fn term(&mut self, expr: &Expr, query: &Query) -> Option<Term<Column>> {
        Some(match &expr.kind {
            ExprKind::Column(parts) => Term::Column(self.column(parts, &expr.span, query)?),
            ExprKind::Literal(value) => Term::Literal(value.clone()),
            ExprKind::Unary(unary, of) => Term::Unary(*unary, Box::new(self.term(of, query)?)),
            ExprKind::Binary(binary, left, right) => {
                self.compared(*binary, left, right, query);
                // Both sides are looked up even if the first one is faulty.
                let (left, right) = (self.term(left, query), self.term(right, query));
                Term::Binary(*binary, Box::new(left?), Box::new(right?))
            }
            ExprKind::In(of, values) => Term::In(Box::new(self.term(of, query)?), values.clone()),
            // `plain` has refused it.
            ExprKind::Fold(..) => return None,
        })
    }

    /// A condition that keeps or drops every row is a fault or worth a hint.
    fn is_condition(&mut self, filter: &Expr) {
        let text = cut(&self.source.written(&filter.span));
        match &filter.kind {
            ExprKind::Literal(value) if !matches!(value, Value::Bool(_)) => {
                let help = "write a condition such as e.status = \"error\"".to_owned();
                self.source.fault(
                    filter.span.clone(),
                    format!("`{text}` is neither true nor false"),
                    Some(help),
                );
            }
            ExprKind::Binary(Binary::Arithmetic(_), ..) | ExprKind::Unary(Unary::Negate, _) => {
                let help = format!("compare it: {text} > 0");
                self.source.fault(
                    filter.span.clone(),
                    format!("`{text}` is a number, no condition"),
                    Some(help),
                );
            }
            ExprKind::Column(_) => {
                let message = format!("`{text}` keeps the rows in which it is true, and no others");
                let help = format!("write {text} Is Not Null for the rows that have it");
                self.source.hint(filter.span.clone(), message, help);
            }
            _ => {}
        }
    }

    /// Comparisons that hold for no row, or hardly as they are meant.
    fn compared(&mut self, binary: Binary, left: &Expr, right: &Expr, query: &Query) {
        use Binary::{AtLeast, AtMost, Equal, Greater, Less, NotEqual};
        if !matches!(binary, Equal | NotEqual | Less | AtMost | Greater | AtLeast) {
            return;
        }
        for (of, value) in [(left, right), (right, left)] {
            let ExprKind::Literal(literal) = &value.kind else { continue };
            let (text, span) = (
                self.source.written(&of.span),
                of.span.start.min(value.span.start)..of.span.end.max(value.span.end),
            );
            if *literal == Value::Null {
                let unary = if binary == NotEqual { "Is Not Null" } else { "Is Null" };
                let message = "a comparison with null is never true".to_owned();
                self.source.fault(span, message, Some(format!("write {} {unary}", cut(&text))));
                return;
            }
            let ExprKind::Column(parts) = &of.kind else { continue };
            let [variable, field] = &**parts else { continue };
            let is_tracepoint =
                |known: &&Variable| known.name == *variable && matches!(known.source, From::Tracepoints(_));
            if query.variables.iter().find(is_tracepoint).is_none() {
                continue;
            }
            match (&**field, literal) {
                ("status", Value::Text(word)) if !["unset", "ok", "error"].contains(&&**word) => {
                    let lower = word.to_lowercase();
                    let known = ["unset", "ok", "error"].into_iter().find(|known| *known == lower);
                    let message = "the status of a span is \"unset\", \"ok\" or \"error\"".to_owned();
                    let help = format!("write {} = \"{}\"", cut(&text), known.unwrap_or("error"));
                    self.source.hint(span, message, help);
                }
                ("kind", Value::Text(word)) if word.chars().any(char::is_uppercase) => {
                    let message = "the kind of a span is in lower case".to_owned();
                    let help = format!("write {} = \"{}\"", cut(&text), cut(&word.to_lowercase()));
                    self.source.hint(span, message, help);
                }
                ("duration" | "busy", Value::Int(number))
                    if *number != 0 && !self.source.has_unit(&value.span) =>
                {
                    let message = format!("{number} is {number} ns: `{}` counts nanoseconds", cut(&text));
                    self.source.hint(span, message, format!("write a unit, such as {number}ms"));
                }
                _ => {}
            }
        }
    }

    /// `duration`, `busy` and `status` are known at the end of a span.
    fn is_known(&mut self, first: &str, field: &str, span: &Range<usize>, query: &Query) {
        let named = query.variables.iter().find(|known| known.name == first);
        let Some(Variable { source: From::Tracepoints(points), .. }) = named else { return };
        if matches!(field, "duration" | "busy" | "status")
            && !points.iter().any(|point| point.moment == Moment::End)
            && let Some(point) = points.first()
        {
            let message = format!("`{first}` is the start of a span, and its {field} is known at the end");
            let end = Tracepoint { pattern: point.pattern.clone(), moment: Moment::End };
            let help = format!("write {first} In {end}, unless a field has this name");
            self.source.hint(span.clone(), message, help);
        }
    }

    fn column(&mut self, parts: &[String], span: &Range<usize>, query: &Query) -> Option<Column> {
        let (first, rest) = parts.split_first()?;
        let known = || query.variables.iter().map(|variable| &*variable.name);
        let Some(index) = query.variables.iter().position(|variable| variable.name == *first) else {
            let message = format!("no variable `{}` is known here", cut(first));
            let near = nearest(first, known()).map(|near| format!("did you mean `{near}`? "));
            let help = match known().next() {
                Some(only) if rest.is_empty() && near.is_none() => {
                    let name = cut(first);
                    format!(
                        "a column names its variable, such as {only}.{name}; text is in quotes: \"{name}\""
                    )
                }
                _ => format!("{}the query has {}", near.unwrap_or_default(), list(known())),
            };
            self.source.fault(span.clone(), message, Some(help));
            return None;
        };
        let variable = &query.variables[index];
        if variable.absent && self.clause != "Where" {
            let message = format!("`{}` is joined by `Without`, so there is none in a row", cut(first));
            let help = "use its columns in Where alone, as conditions of what there is not".to_owned();
            self.source.fault(span.clone(), message, Some(help));
            return None;
        }
        let part = match &variable.source {
            From::Tracepoints(_) => self.field(first, rest, span, query),
            From::Query(inner) => self.exported(first, rest, span, *inner),
        }?;
        Some(Column { variable: index, part })
    }

    fn field(&mut self, first: &str, rest: &[String], span: &Range<usize>, query: &Query) -> Option<Part> {
        if rest.is_empty() {
            let message = format!("`{}` is a tracepoint, not a value", cut(first));
            let help = format!("name one of its variables, such as {}.host", cut(first));
            self.source.fault(span.clone(), message, Some(help));
            return None;
        }
        if rest.len() > 1 && query.variables.iter().any(|variable| variable.name == rest[0]) {
            let message =
                format!("`{}` is a tracepoint and has no columns of `{}`", cut(first), cut(&rest[0]));
            let help = format!(
                "write {}, or put a field of this name in quotes: {}.\"{}\"",
                cut(&rest.join(".")),
                cut(first),
                cut(&rest.join("."))
            );
            self.source.fault(span.clone(), message, Some(help));
            return None;
        }
        if let [field] = rest {
            self.is_known(first, field, span, query);
        }
        Some(Part::Field(rest.join(".")))
    }

    /// A column of the query that a variable stands for.
    fn exported(&mut self, first: &str, rest: &[String], span: &Range<usize>, inner: usize) -> Option<Part> {
        let query = &self.queries[inner];
        let label = query.label.clone().unwrap_or_default();
        let Some(items) = &query.items else {
            let inner =
                rest.first().and_then(|name| query.variables.iter().find(|known| known.name == *name));
            if inner.is_none() || rest.len() < 2 {
                let help = match query.variables.first() {
                    Some(from) => format!("name a variable of it, such as {}.{}.host", cut(first), from.name),
                    None => "correct that query first".to_owned(),
                };
                let message = format!("`{}` is a variable of the query `{}`", cut(first), cut(&label));
                self.source.fault(span.clone(), message, Some(help));
                return None;
            }
            // From outside, a query has only what its rows have.
            let clause = std::mem::replace(&mut self.clause, "Select");
            let column = self.column(rest, span, query);
            self.clause = clause;
            return column.map(|column| Part::Inner(Box::new(column)));
        };
        let name = rest.join(".");
        let found = items.iter().position(|item| item.name == name || item.written == name);
        if found.is_none() {
            let known = || items.iter().map(|item| &*item.name);
            let near = nearest(&name, known()).map(|near| format!("did you mean `{near}`? "));
            let help = format!("{}its columns are {}", near.unwrap_or_default(), list(known()));
            let message = format!("the query `{}` has no column `{}`", cut(&label), cut(&name));
            self.source.fault(span.clone(), message, Some(help));
        }
        found.map(Part::Item)
    }
}

/// Null in place of false.
fn or_null(term: Term<Column>) -> Term<Column> {
    Term::Binary(Binary::Or, Box::new(term), Box::new(Term::Literal(Value::Null)))
}

/// Splits a condition into those that all have to hold.
fn conjuncts(term: Term<Column>, into: &mut Vec<Term<Column>>) {
    match term {
        Term::Binary(Binary::And, left, right) => {
            conjuncts(*left, into);
            conjuncts(*right, into);
        }
        other => into.push(other),
    }
}
