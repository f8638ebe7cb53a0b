//! The tree of a query: one node for each tracepoint, below the node that it happens before.
//!
//! A query that another one joins becomes a part of that one's tree, so that a plan has no calls.

use std::str::FromStr;

use crate::advice::{Keep, LISTS, Relation, SLOTS};
use crate::aggregate::Function;
use crate::check::{Column, From, ItemKind, Part, Query};
use crate::expression::Term;
use crate::names::Tracepoint;
use crate::syntax::Choice;

/// The rules by which a query is rewritten before it is compiled. They change the work, never the
/// answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Observe and pack only what is used further on.
    pub(crate) columns: bool,
    /// Test a condition at the first tracepoint that knows its variables.
    pub(crate) filters: bool,
    /// Begin aggregates where rows are packed.
    pub(crate) groups: bool,
}

impl Rewrite {
    /// Every rule.
    pub const ALL: Rewrite = Rewrite { columns: true, filters: true, groups: true };
    /// No rule.
    pub const NONE: Rewrite = Rewrite { columns: false, filters: false, groups: false };
}

impl FromStr for Rewrite {
    type Err = String;

    /// Reads `all`, `none`, or names of rules with commas between them.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut rewrite = Rewrite::NONE;
        for rule in text.split(',') {
            match rule.trim() {
                "all" => rewrite = Rewrite::ALL,
                "none" => {}
                "columns" => rewrite.columns = true,
                "filters" => rewrite.filters = true,
                "groups" => rewrite.groups = true,
                other => {
                    return Err(format!(
                        "no rule of rewriting has the name '{other}': use all, none, or some of \
                         columns,filters,groups"
                    ));
                }
            }
        }
        Ok(rewrite)
    }
}

/// A tracepoint of a query.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) label: String,
    pub(crate) tracepoints: Vec<Tracepoint>,
    pub(crate) keep: Keep,
    /// The relation to the parent.
    pub(crate) relation: Relation,
    pub(crate) parent: Option<usize>,
    pub(crate) children: Vec<usize>,
    pub(crate) filters: Vec<Term<Atom>>,
    /// `Some` if rows must not be there, with the conditions that involve others, too. One row for
    /// which all hold drops the parent's row.
    pub(crate) absent: Option<Vec<Term<Atom>>>,
    /// The groups and aggregates of a node whose rows are an aggregated query's answer.
    pub(crate) answer: Option<Groups>,
}

/// A column in the tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Atom {
    pub(crate) node: usize,
    pub(crate) of: Of,
}

/// The kinds of columns of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Of {
    Field(String),
    /// A group or an aggregate of an answer, by its position.
    Answer(usize),
}

/// Aggregates of terms; COUNT needs none.
pub(crate) type Folds = Vec<(Function, Option<Term<Atom>>)>;

/// Groups and their aggregates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    pub(crate) keys: Vec<Term<Atom>>,
    pub(crate) folds: Folds,
}

/// The tree of a program's last query.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
    pub(crate) groups: Groups,
    /// The names of the answer's columns, with their positions among keys and folds.
    pub(crate) columns: Vec<(String, usize)>,
    pub(crate) listing: bool,
}

/// The meaning of a variable in the tree.
enum Binding {
    Node(usize),
    /// The answer of an aggregated query: the position of each item.
    Answer(usize, Vec<usize>),
    /// Another query: its variables and, if it selects, its items.
    Query(Vec<Binding>, Option<Vec<Term<Atom>>>),
}

/// The tree of the last query, or a sentence about the limit that it exceeds.
pub(crate) fn tree(queries: &[Query], rewrite: Rewrite) -> Result<Tree, &'static str> {
    let mut grow = Grow { queries, rewrite, tree: Tree::default() };
    let last = queries.last().ok_or("a program has a query")?;
    let bindings = grow.query(last, "", Keep::All, None)?;
    let (groups, columns) = grow.groups(last, &bindings)?;
    grow.tree.groups = groups;
    let items = last.items.iter().flatten();
    grow.tree.columns = items.map(|item| item.name.clone()).zip(columns).collect();
    grow.tree.listing = !last.aggregated;
    Ok(grow.tree)
}

impl Tree {
    /// Whether a node is another one or below it.
    pub(crate) fn is_within(&self, node: usize, top: usize) -> bool {
        std::iter::successors(Some(node), |&node| self.nodes.get(node)?.parent).any(|node| node == top)
    }

    /// The node at which a column is known: an answer only where it is unpacked.
    fn home(&self, atom: &Atom) -> usize {
        match atom.of {
            Of::Field(_) => atom.node,
            Of::Answer(_) => self.nodes[atom.node].parent.unwrap_or(atom.node),
        }
    }

    /// Whether a term's columns all come from a node or from below it, and there are any.
    pub(crate) fn is_from(&self, term: &Term<Atom>, node: usize) -> bool {
        let (mut any, mut all) = (false, true);
        term.columns(&mut |atom| {
            any = true;
            all &= self.is_within(self.home(atom), node);
        });
        any && all
    }

    /// The node of `Without` that a condition involves, if any; an error if it involves two.
    fn absent_in(&self, term: &Term<Atom>) -> Option<Result<usize, &'static str>> {
        let mut found: Vec<usize> = Vec::new();
        term.columns(&mut |atom| {
            let mut above = std::iter::successors(Some(atom.node), |&node| self.nodes[node].parent);
            found.extend(above.find(|&node| self.nodes[node].absent.is_some()));
        });
        found.dedup();
        match *found {
            [] => None,
            [one] => Some(Ok(one)),
            _ => Some(Err("a condition involves two variables of `Without`; write one condition for each")),
        }
    }

    /// The child through whose rows a condition or an aggregate may move: one that neither chooses
    /// events, which happens before conditions, nor is an answer.
    pub(crate) fn transparent(&self, node: usize, term: &Term<Atom>) -> Option<usize> {
        self.nodes[node].children.iter().copied().find(|&child| {
            let below = &self.nodes[child];
            let is_plain = below.keep == Keep::All && below.answer.is_none() && below.absent.is_none();
            is_plain && self.is_from(term, child)
        })
    }
}

struct Grow<'q> {
    queries: &'q [Query],
    rewrite: Rewrite,
    tree: Tree,
}

const TOO_MANY: &str = "a query has up to 250 columns";
const TOO_LONG: &str = "a column of a joined query becomes too long an expression here";

impl Grow<'_> {
    fn node(
        &mut self,
        label: String,
        tracepoints: &[Tracepoint],
        keep: Keep,
        parent: Option<usize>,
    ) -> Result<usize, &'static str> {
        let index = self.tree.nodes.len();
        if index == LISTS {
            return Err("the query and those that it joins have more than 16 tracepoints");
        }
        self.tree.nodes.push(Node {
            label,
            tracepoints: tracepoints.to_vec(),
            keep,
            relation: Relation::Before,
            parent,
            children: Vec::new(),
            filters: Vec::new(),
            absent: None,
            answer: None,
        });
        if let Some(parent) = parent {
            self.tree.nodes[parent].children.push(index);
        }
        Ok(index)
    }

    /// Adds the nodes of a query.
    fn query(
        &mut self,
        query: &Query,
        prefix: &str,
        keep: Keep,
        parent: Option<usize>,
    ) -> Result<Vec<Binding>, &'static str> {
        let mut bindings: Vec<Binding> = Vec::new();
        for (index, variable) in query.variables.iter().enumerate() {
            let parent = match bindings.get(variable.later) {
                Some(Binding::Node(node)) if index > 0 => Some(*node),
                _ => parent,
            };
            let label = format!("{prefix}{}", variable.name);
            let keep = match variable.choice {
                Choice::All if index == 0 => keep,
                Choice::All => Keep::All,
                Choice::First(n) => Keep::First(n),
                Choice::Recent(n) => Keep::Recent(n),
            };
            let top = self.tree.nodes.len();
            bindings.push(match &variable.source {
                From::Tracepoints(tracepoints) => {
                    let node = self.node(label, tracepoints, keep, parent)?;
                    let is_below = query.variables.get(variable.later).is_some_and(|later| later.absent);
                    if variable.absent && !(index > 0 && is_below) {
                        self.tree.nodes[node].absent = Some(Vec::new());
                    }
                    Binding::Node(node)
                }
                From::Query(inner) => {
                    let query = self.queries.get(*inner).ok_or("a query is missing")?;
                    self.joined(query, &format!("{label}."), parent)?
                }
            });
            if index > 0 {
                self.tree.nodes[top].relation = variable.relation;
            }
        }
        let Some(Binding::Node(top)) = bindings.first() else {
            return Err("a query begins with a tracepoint");
        };
        let top = *top;
        for filter in &query.filters {
            let filter = resolve(filter, &bindings).ok_or(TOO_LONG)?;
            let mut node = top;
            if let Some(absent) = self.tree.absent_in(&filter) {
                let absent = absent?;
                let parent = self.tree.nodes[absent].parent.unwrap_or(top);
                if self.tree.is_from(&filter, absent) {
                    node = absent;
                } else if self.tree.is_from(&filter, parent) {
                    self.tree.nodes[absent].absent.get_or_insert_default().push(filter);
                    continue;
                } else {
                    return Err(
                        "a condition on what `Without` joins names a variable that is known later only",
                    );
                }
            }
            if self.rewrite.filters {
                while let Some(child) = self.tree.transparent(node, &filter) {
                    node = child;
                }
            }
            self.tree.nodes[node].filters.push(filter);
        }
        Ok(bindings)
    }

    /// Adds the nodes of a query that another one joins.
    fn joined(
        &mut self,
        query: &Query,
        prefix: &str,
        parent: Option<usize>,
    ) -> Result<Binding, &'static str> {
        let top = self.tree.nodes.len();
        let bindings = self.query(query, prefix, Keep::All, parent)?;
        if query.aggregated {
            let (groups, positions) = self.groups(query, &bindings)?;
            self.tree.nodes[top].answer = Some(groups);
            self.tree.nodes[top].keep = Keep::Answer;
            return Ok(Binding::Answer(top, positions));
        }
        let items = query.items.as_ref().map(|items| {
            let terms = items.iter().map(|item| match &item.kind {
                ItemKind::Plain(term) => resolve(term, &bindings),
                ItemKind::Fold(..) => None,
            });
            terms.collect::<Option<Vec<_>>>()
        });
        match items {
            Some(items) => Ok(Binding::Query(bindings, Some(items.ok_or(TOO_LONG)?))),
            None => Ok(Binding::Query(bindings, None)),
        }
    }

    /// The groups and aggregates of a query, and the position of each item among them.
    fn groups(&self, query: &Query, bindings: &[Binding]) -> Result<(Groups, Vec<usize>), &'static str> {
        let mut groups = Groups::default();
        let items = query.items.as_deref().unwrap_or_default();
        // The plan would be refused for it, after work by the square.
        if query.keys.len().max(items.len()) > SLOTS {
            return Err(TOO_MANY);
        }
        for key in &query.keys {
            groups.keys.push(resolve(key, bindings).ok_or(TOO_LONG)?);
        }
        // Keys come before folds, so all keys have to be known before a fold has a position.
        for item in items {
            if let ItemKind::Plain(term) = &item.kind {
                let term = resolve(term, bindings).ok_or(TOO_LONG)?;
                if !groups.keys.contains(&term) {
                    groups.keys.push(term);
                }
            }
        }
        let mut positions = Vec::new();
        for item in items {
            positions.push(match &item.kind {
                ItemKind::Plain(term) => {
                    let term = resolve(term, bindings).ok_or(TOO_LONG)?;
                    groups.keys.iter().position(|key| *key == term).ok_or("a column is missing")?
                }
                ItemKind::Fold(function, of) => {
                    let of = of.as_ref().map(|of| resolve(of, bindings).ok_or(TOO_LONG)).transpose()?;
                    groups.folds.push((*function, of));
                    groups.keys.len() + groups.folds.len() - 1
                }
            });
        }
        Ok((groups, positions))
    }
}

/// An expression over a query's variables, as one over the tree's columns.
fn resolve(term: &Term<Column>, bindings: &[Binding]) -> Option<Term<Atom>> {
    term.replace(&mut |column| resolve_column(column, bindings))
}

fn resolve_column(column: &Column, bindings: &[Binding]) -> Option<Term<Atom>> {
    match (bindings.get(column.variable)?, &column.part) {
        (Binding::Node(node), Part::Field(name)) => {
            Some(Term::Column(Atom { node: *node, of: Of::Field(name.clone()) }))
        }
        (Binding::Answer(node, positions), Part::Item(item)) => {
            Some(Term::Column(Atom { node: *node, of: Of::Answer(*positions.get(*item)?) }))
        }
        (Binding::Query(_, Some(items)), Part::Item(item)) => items.get(*item).cloned(),
        (Binding::Query(inner, None), Part::Inner(column)) => resolve_column(column, inner),
        _ => None,
    }
}
