//! The grammar of programs. A fault skips to the next clause, so that independent faults are all
//! found at once.

mod expressions;

use std::ops::Range;

use crate::advice::Relation;
use crate::fault::{Source, cut, nearest};
use crate::names::{Moment, Tracepoint};
use crate::syntax::{Choice, Item, Join, Name, Query, Written};
use crate::token::{Kind, Token, tokens};

/// The bytes of a program. Questions that people write are shorter by far.
const TEXT: usize = 256 * 1024;
/// The most events that FirstN and MostRecentN may ask for: as many as a bag may hold.
const CHOSEN: u8 = 64;

const CLAUSES: [&str; 5] = ["From", "Join", "Where", "GroupBy", "Select"];
const CHOICES: [&str; 4] = ["First", "FirstN", "MostRecent", "MostRecentN"];

/// Parses a program. What could not be read is missing from the result and is a fault.
pub(crate) fn parse(source: &mut Source<'_>) -> Vec<Query> {
    let length = source.text.len();
    if length > TEXT {
        let message = format!("the program has {length} bytes; the limit is {TEXT}");
        source.fault(0..0, message, Some("split it into several programs".to_owned()));
        return Vec::new();
    }
    let tokens = tokens(source);
    Parser { source, tokens, at: 0, depth: 0, nodes: 0 }.program()
}

struct Parser<'p, 't> {
    source: &'p mut Source<'t>,
    tokens: Vec<Token>,
    at: usize,
    /// The open parentheses and operators around the current place in an expression.
    depth: usize,
    /// The operands and operators of the current expression.
    nodes: usize,
}

impl Parser<'_, '_> {
    fn token(&self) -> &Token {
        // The last token is the end, which is never consumed.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn ahead(&self, by: usize) -> &Token {
        &self.tokens[(self.at + by).min(self.tokens.len() - 1)]
    }

    fn advance(&mut self) -> Token {
        let token = self.token().clone();
        if token.kind != Kind::End {
            self.at += 1;
        }
        token
    }

    fn slice(&self, span: &Range<usize>) -> &str {
        self.source.text.get(span.clone()).unwrap_or_default()
    }

    fn is_word(&self, by: usize, word: &str) -> bool {
        let token = self.ahead(by);
        token.kind == Kind::Word && self.slice(&token.span).eq_ignore_ascii_case(word)
    }

    fn is_mark(&self, by: usize, mark: &str) -> bool {
        matches!(self.ahead(by).kind, Kind::Mark(known) if known == mark)
    }

    fn take_word(&mut self, word: &str) -> bool {
        let taken = self.is_word(0, word);
        self.at += usize::from(taken);
        taken
    }

    fn take_mark(&mut self, mark: &str) -> bool {
        let taken = self.is_mark(0, mark);
        self.at += usize::from(taken);
        taken
    }

    /// The current token for a message.
    fn found(&self) -> String {
        match &self.token().kind {
            Kind::End => "the end".to_owned(),
            _ => format!("`{}`", cut(self.slice(&self.token().span))),
        }
    }

    fn expected<T>(&mut self, wanted: &str, help: Option<String>) -> Option<T> {
        let message = format!("expected {wanted}, found {}", self.found());
        let span = self.token().span.clone();
        self.source.fault(span, message, help);
        None
    }

    fn expect_mark(&mut self, mark: &str, help: &str) -> Option<()> {
        if self.take_mark(mark) {
            return Some(());
        }
        self.expected(&format!("`{mark}`"), Some(help.to_owned()))
    }

    fn expect_word(&mut self, word: &str, help: &str) -> Option<()> {
        if self.take_word(word) {
            return Some(());
        }
        self.expected(&format!("`{word}`"), Some(help.to_owned()))
    }

    /// Whether a clause begins here: `Group By` in two words is one too.
    fn clause(&self) -> Option<&'static str> {
        if self.is_word(0, "group") && self.is_word(1, "by") {
            return Some("GroupBy");
        }
        // A variable may have a clause's name: `select.host`.
        if self.is_mark(1, ".") {
            return None;
        }
        CLAUSES.into_iter().find(|clause| self.is_word(0, clause))
    }

    fn take_clause(&mut self, clause: &str) -> bool {
        if self.clause() != Some(clause) {
            return false;
        }
        self.at += if self.is_word(0, "group") { 2 } else { 1 };
        true
    }

    fn is_label(&self) -> bool {
        self.token().kind == Kind::Word
            && self.is_mark(1, ":")
            && !self.is_mark(2, ":")
            && (self.is_word(2, "from") || self.clause().is_none())
    }

    fn is_end(&self) -> bool {
        self.token().kind == Kind::End || self.source.is_full()
    }

    /// Goes to the next clause or label, after a fault.
    fn skip(&mut self) {
        while !self.is_end() && self.clause().is_none() && !(self.is_label() && self.is_word(2, "from")) {
            self.at += 1;
        }
    }

    fn name(&mut self, wanted: &str) -> Option<Name> {
        self.name_or(wanted, None)
    }

    fn name_or(&mut self, wanted: &str, help: Option<&str>) -> Option<Name> {
        let is_clause = self.clause().is_some() && wanted != "a label" && !self.is_word(1, "in");
        if self.token().kind != Kind::Word || is_clause {
            return self.expected(wanted, help.map(str::to_owned));
        }
        let token = self.advance();
        Some(Name { text: self.slice(&token.span).to_owned(), span: token.span })
    }

    fn program(mut self) -> Vec<Query> {
        let mut queries = Vec::new();
        if self.is_end() {
            self.expected::<()>("`From`", Some("a query begins with From e In disk.read".to_owned()));
        }
        while !self.is_end() {
            let before = self.at;
            if let Some(query) = self.query() {
                if query.label.is_none() && !self.is_end() {
                    let help =
                        "only the last query may lack a label: write Q1: From ... to join it later as Q1";
                    let span = query.from.variable.span.clone();
                    self.source.fault(span, "this query has no label", Some(help.to_owned()));
                }
                queries.push(query);
            }
            if self.at == before {
                // Not reached: every query consumes a token or records a fault and skips.
                self.at += 1;
            }
        }
        if let Some(last) = queries.last()
            && let Some(label) = &last.label
            && !self.source.has_faults()
        {
            let help =
                format!("remove `{0}:`, or join it: From e In ... Join q In {0} On q -> e", label.text);
            let span = label.span.clone();
            self.source.fault(span, "the last query has a label, so no query uses it", Some(help));
        }
        queries
    }

    fn query(&mut self) -> Option<Query> {
        let label = if self.is_label() {
            let label = self.name("a label");
            self.at += 1;
            label
        } else {
            None
        };
        if !self.take_clause("From") {
            let found = self.slice(&self.token().span).to_owned();
            let near = nearest(&found, CLAUSES).filter(|_| self.clause().is_none());
            let near = near.map(|clause| format!("did you mean `{clause}`?"));
            let help = near.unwrap_or_else(|| {
                "a query begins with From, and Select comes last: From e In disk.read Select e.host"
                    .to_owned()
            });
            self.expected::<()>("`From`", Some(help));
            self.at += 1;
            self.skip();
            // Other clauses belong to the query that has no `From`.
            while !self.is_end() && self.clause() != Some("From") && !self.is_label() {
                self.at += 1;
            }
            return None;
        }
        let from = self.from();
        if from.is_none() {
            self.skip();
        }
        let mut query = Query {
            label,
            from: from.unwrap_or_else(|| Join {
                variable: Name { text: String::new(), span: 0..0 },
                source: Vec::new(),
                choice: Choice::All,
                absent: false,
                relation: Relation::Before,
                order: None,
            }),
            joins: Vec::new(),
            filters: Vec::new(),
            groups: None,
            select: None,
        };
        while !self.is_end() && !self.is_label() && self.clause() != Some("From") {
            if self.clause_of(&mut query).is_none() {
                self.skip();
            }
        }
        Some(query)
    }

    fn clause_of(&mut self, query: &mut Query) -> Option<()> {
        let span = self.token().span.clone();
        let order = match self.clause() {
            Some("Join" | "Where") if query.groups.is_some() => Some("GroupBy"),
            Some("Join" | "Where" | "GroupBy") if query.select.is_some() => Some("Select"),
            Some("GroupBy") if query.groups.is_some() => Some("another GroupBy"),
            Some("Select") if query.select.is_some() => Some("another Select"),
            _ => None,
        };
        if let Some(after) = order {
            let clause = self.clause().unwrap_or_default();
            let help = "write From, Join, Where, GroupBy, Select in this order, the last two once";
            self.source.fault(span, format!("`{clause}` after {after}"), Some(help.to_owned()));
        }
        if self.take_clause("Join") {
            query.joins.push(self.join()?);
        } else if self.take_clause("Where") {
            query.filters.push(self.expression()?);
        } else if self.take_clause("GroupBy") {
            let groups = self.list(|parser| parser.expression());
            query.groups.get_or_insert_default().extend(groups?);
        } else if self.take_clause("Select") {
            let items = self.list(Self::item);
            query.select.get_or_insert_default().extend(items?);
        } else {
            let help = self.instead();
            return self.expected("`Join`, `Where`, `GroupBy`, `Select` or the end", help);
        }
        Some(())
    }

    /// The remedy for a word that begins no clause.
    fn instead(&self) -> Option<String> {
        let found = self.slice(&self.token().span);
        let before = &self.tokens[self.at.saturating_sub(1)];
        Some(match &*found.to_ascii_lowercase() {
            "having" => {
                "name the query and filter in another one: ... Join q In Q On q -> e Where q.COUNT > 5"
                    .to_owned()
            }
            "order" | "sort" => {
                "the answer is sorted where it is shown: astracer query --sort COLUMN".to_owned()
            }
            "limit" | "top" => "rows are cut where they are shown: astracer query --top 10".to_owned(),
            "like" | "matches" | "regexp" | "rlike" => {
                "write Contains \"text\" or StartsWith \"text\"".to_owned()
            }
            "between" => "write e.x >= 1 And e.x <= 5".to_owned(),
            "below" | "child" | "on" => "a join has one of On b -> a, Below a, and Child Of a".to_owned(),
            "without" => "write Join Without x In disk.open On x -> a".to_owned(),
            _ if before.kind == Kind::Number && self.is_unit(found) => {
                format!("write the unit without a space: {}{found}", self.slice(&before.span))
            }
            _ if self.token().kind == Kind::Word && (self.is_mark(1, ".") || self.is_mark(1, "(")) => {
                "put a comma between two columns".to_owned()
            }
            _ => return nearest(found, CLAUSES).map(|clause| format!("did you mean `{clause}`?")),
        })
    }

    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut all = vec![one(self)?];
        while self.take_mark(",") {
            all.push(one(self)?);
        }
        Some(all)
    }

    fn item(&mut self) -> Option<Item> {
        let expr = self.expression()?;
        let alias = if self.take_word("as") { Some(self.name("a name for the column")?) } else { None };
        Some(Item { expr, alias })
    }

    fn from(&mut self) -> Option<Join> {
        let variable = self.name("a variable")?;
        self.expect_word("In", "write a variable and its tracepoint: From e In disk.read")?;
        if self.is_choice() {
            let span = self.token().span.clone();
            let help = "choose among the events before e in a Join: From e In a Join f In First(b) On f -> e";
            self.source.fault(span, "`From` takes every event", Some(help.to_owned()));
            return None;
        }
        let (choice, relation) = (Choice::All, Relation::Before);
        Some(Join { variable, source: self.tracepoints()?, choice, absent: false, relation, order: None })
    }

    fn is_choice(&self) -> bool {
        self.token().kind == Kind::Word && self.is_mark(1, "(")
    }

    fn join(&mut self) -> Option<Join> {
        // A variable may have the name, too.
        let absent = !self.is_word(1, "in") && self.take_word("without");
        let variable = self.name("a variable")?;
        let example = "Join b In disk.open On b -> a";
        self.expect_word("In", &format!("write a variable and its tracepoint: {example}"))?;
        let (choice, source) =
            if self.is_choice() { self.choice()? } else { (Choice::All, self.tracepoints()?) };
        if choice != Choice::All && (self.is_word(0, "below") || self.is_word(0, "child")) {
            let help = "name the tracepoint alone, or choose what happened before with On".to_owned();
            let message =
                "First and MostRecent choose among what happened before, so they do not go with Below";
            let span = self.token().span.clone();
            self.source.fault(span, message.to_owned(), Some(help));
            return None;
        }
        let is_child = self.take_word("child");
        let (relation, earlier) = if is_child || self.take_word("below") {
            if is_child {
                self.expect_word("Of", "name the parent: Join b In disk.open Child Of a")?;
            }
            (if is_child { Relation::Child } else { Relation::Below }, variable.clone())
        } else {
            let found = self.slice(&self.token().span).to_owned();
            let near = nearest(&found, ["On", "Below", "Child", "ChildOf"]);
            let near = near.map(|near| format!("did you mean `{}`? ", near.replace("ChildOf", "Child Of")));
            let help = format!(
                "{}a join says what it joins: {example} (before), Below a, or Child Of a",
                near.unwrap_or_default()
            );
            self.expect_word("On", &help)?;
            let earlier = self.name("the variable of this join")?;
            self.expect_mark("->", &format!("write the earlier variable first: {example}"))?;
            (Relation::Before, earlier)
        };
        let help = match relation {
            Relation::Before => "name a variable of this query behind ->: On b -> a",
            Relation::Below => "name a variable of this query: Join b In disk.open Below a",
            Relation::Child => "name a variable of this query: Join b In disk.open Child Of a",
        };
        let later = self.name_or("a variable that the query already has", Some(help))?;
        if absent && choice != Choice::All {
            let help = "name the tracepoint alone: Join Without x In t On x -> r".to_owned();
            let message = format!("`{}` has no event, so there is none to choose", cut(&variable.text));
            self.source.fault(variable.span.clone(), message, Some(help));
        }
        Some(Join { variable, source, choice, absent, relation, order: Some((earlier, later)) })
    }

    fn choice(&mut self) -> Option<(Choice, Vec<Written>)> {
        let token = self.advance();
        let word = self.slice(&token.span).to_owned();
        let Some(known) = CHOICES.into_iter().find(|known| known.eq_ignore_ascii_case(&word)) else {
            let near = nearest(&word, CHOICES).map(|near| format!("did you mean `{near}`? "));
            let help = format!(
                "{}First, FirstN, MostRecent and MostRecentN choose events",
                near.unwrap_or_default()
            );
            let message = format!("`{}` is not a known way to choose events", cut(&word));
            self.source.fault(token.span, message, Some(help));
            return None;
        };
        self.at += 1;
        let mut n = 1;
        if known.ends_with('N') {
            let span = self.token().span.clone();
            let digits = self.slice(&span).to_owned();
            match digits.parse().ok().filter(|n| (1..=CHOSEN).contains(n)) {
                Some(number) if self.token().kind == Kind::Number => n = number,
                _ => {
                    let help = format!("write {known}(2, disk.open)");
                    return self.expected(&format!("a number from 1 to {CHOSEN}"), Some(help));
                }
            }
            self.at += 1;
            self.expect_mark(",", &format!("write {known}({n}, disk.open)"))?;
        }
        let source = self.tracepoints()?;
        self.expect_mark(")", "close the parenthesis after the tracepoint")?;
        Some((if known.starts_with('F') { Choice::First(n) } else { Choice::Recent(n) }, source))
    }

    fn tracepoints(&mut self) -> Option<Vec<Written>> {
        self.list(Self::tracepoint)
    }

    fn tracepoint(&mut self) -> Option<Written> {
        let first = self.token().clone();
        let (pattern, quoted) = match &first.kind {
            Kind::Text(text) => {
                self.at += 1;
                (text.clone(), true)
            }
            _ => (self.bare(), false),
        };
        if pattern.is_empty() {
            let help = "write a name such as disk.read, disk.* or \"GET /cart\"".to_owned();
            return self.expected("a tracepoint", Some(help));
        }
        let mut span = first.span.start..self.tokens[self.at - 1].span.end;
        let mut moment = Moment::Default;
        let mut bare = !quoted;
        if self.is_mark(0, "@") && self.token().span.start == span.end {
            self.at += 1;
            moment = match () {
                () if self.take_word("start") => Moment::Start,
                () if self.take_word("end") => Moment::End,
                () => {
                    let help = format!("write {0}@start or {0}@end", cut(&pattern));
                    return self.expected("`start` or `end`", Some(help));
                }
            };
            bare = false;
            span.end = self.tokens[self.at - 1].span.end;
        }
        Some(Written { tracepoint: Tracepoint { pattern: pattern.into(), moment }, bare, span })
    }

    /// A name without quotes: words and signs without spaces between them.
    fn bare(&mut self) -> String {
        let start = self.token().span.start;
        let mut end = start;
        if self.clause().is_some() && !self.is_mark(1, ":") {
            return String::new();
        }
        loop {
            let token = self.token();
            let fits = match token.kind {
                Kind::Word | Kind::Number => true,
                Kind::Mark(mark) => [".", ":", "*", "$", "-", "/"].contains(&mark),
                Kind::Text(_) | Kind::End => false,
            };
            if !fits || token.span.start != end {
                return self.slice(&(start..end)).to_owned();
            }
            end = token.span.end;
            self.at += 1;
        }
    }
}
