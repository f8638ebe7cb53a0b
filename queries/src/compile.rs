//! From a query's tree to its advice.

use std::collections::{BTreeMap, BTreeSet};

use crate::advice::{Advice, Fold, Input, Keep, Operation, SLOTS};
use crate::expression::{Binary, STEPS, Term};
use crate::fault::{Fault, Source};
use crate::plan::Plan;
use crate::point::Variable;
use crate::program::Program;
use crate::tree::{Atom, Folds, Groups, Of, Rewrite, Tree, tree};
use crate::value::Value;

impl Program {
    /// Compiles the program's last query, with those that it joins.
    pub fn plan(&self, rewrite: Rewrite) -> Result<Plan, Vec<Fault>> {
        self.compile(rewrite).map_err(|message| {
            let mut source = Source::new("");
            source.fault(0..0, message, Some("split the question into smaller ones".to_owned()));
            source.into_faults()
        })
    }

    fn compile(&self, rewrite: Rewrite) -> Result<Plan, &'static str> {
        let tree = tree(&self.queries, rewrite)?;
        let mut compiler = Compiler { tree: &tree, rewrite, advice: Vec::new(), variables: Vec::new() };
        let task = Task {
            keep: None,
            groups: tree.groups.clone(),
            begin: rewrite.groups && !tree.listing && may_begin(&tree.groups),
        };
        compiler.node(0, task, &tree.mentioned(0, &tree.groups))?;
        let variables = compiler.variables.iter().enumerate();
        let variables = variables.map(|(index, name)| Variable::new(index, name)).collect();
        Plan::new(compiler.advice, variables, tree.columns.clone(), tree.listing)
    }
}

/// Whether the aggregates of a query may begin in grouped packs.
fn may_begin(groups: &Groups) -> bool {
    groups.folds.iter().all(|(function, _)| function.groups())
}

impl Tree {
    /// The columns that a query names anywhere, down to the answers that it joins.
    fn mentioned(&self, top: usize, groups: &Groups) -> BTreeSet<Atom> {
        let mut atoms = BTreeSet::new();
        let mut add = |term: &Term<Atom>| {
            term.columns(&mut |atom| {
                atoms.insert(atom.clone());
            });
        };
        groups.keys.iter().for_each(&mut add);
        groups.folds.iter().filter_map(|(_, of)| of.as_ref()).for_each(&mut add);
        let mut nodes = vec![top];
        while let Some(node) = nodes.pop() {
            let node = &self.nodes[node];
            node.filters.iter().for_each(&mut add);
            node.absent.iter().flatten().for_each(&mut add);
            let inner = |child: &&usize| self.nodes[**child].answer.is_none();
            nodes.extend(node.children.iter().filter(inner));
        }
        atoms
    }
}

/// The end of a node's advice.
struct Task {
    /// The rows that PACK keeps, or EMIT.
    keep: Option<Keep>,
    groups: Groups,
    /// Whether grouped packs further down may begin the aggregates.
    begin: bool,
}

struct Compiler<'t> {
    tree: &'t Tree,
    rewrite: Rewrite,
    advice: Vec<Advice>,
    variables: Vec<String>,
}

/// The columns of a row in one list.
#[derive(Default)]
struct Slots {
    by_atom: BTreeMap<Atom, u8>,
    names: Vec<String>,
}

impl Slots {
    fn add(&mut self, name: String) -> Result<u8, &'static str> {
        if self.names.len() == SLOTS {
            return Err("the query has more than 250 columns at a tracepoint");
        }
        self.names.push(name);
        Ok((self.names.len() - 1) as u8)
    }
}

impl Compiler<'_> {
    /// Compiles the lists of a node and of those below it, which come first.
    fn node(&mut self, index: usize, task: Task, mentioned: &BTreeSet<Atom>) -> Result<(), &'static str> {
        let tree = self.tree;
        let node = &tree.nodes[index];
        // Aggregates whose values all come from one child begin in its packs.
        let mut begun: BTreeMap<usize, Folds> = BTreeMap::new();
        let begins = task.groups.folds.iter().map(|(function, of)| {
            let child = tree.transparent(index, of.as_ref().filter(|_| task.begin)?)?;
            let folds = begun.entry(child).or_default();
            let fold = (*function, of.clone());
            let known = folds.iter().position(|begun| *begun == fold);
            let position = known.unwrap_or_else(|| {
                folds.push(fold);
                folds.len() - 1
            });
            Some((child, position))
        });
        let begins: Vec<Option<(usize, usize)>> = begins.collect();

        let mut needed = BTreeSet::new();
        let mut need = |term: &Term<Atom>| {
            term.columns(&mut |atom| {
                needed.insert(atom.clone());
            });
        };
        node.filters.iter().for_each(&mut need);
        node.children.iter().flat_map(|&child| &tree.nodes[child].absent).flatten().for_each(&mut need);
        task.groups.keys.iter().for_each(&mut need);
        for ((_, of), begun) in task.groups.folds.iter().zip(&begins) {
            if begun.is_none() {
                of.iter().for_each(&mut need);
            }
        }
        if !self.rewrite.columns {
            needed.extend(mentioned.iter().filter(|atom| tree.is_within(atom.node, index)).cloned());
        }

        let mut slots = Slots::default();
        let mut operations = Vec::new();
        for atom in needed.iter().filter(|atom| atom.node == index) {
            if let Of::Field(name) = &atom.of {
                let slot = slots.add(format!("{}.{name}", node.label))?;
                slots.by_atom.insert(atom.clone(), slot);
                operations.push(Operation::Observe { slot, variable: self.variable(name)? });
            }
        }
        let is_own = |filter: &&Term<Atom>| {
            let mut own = self.rewrite.filters;
            filter.columns(&mut |atom| own &= atom.node == index && matches!(atom.of, Of::Field(_)));
            own
        };
        let (own, joined): (Vec<_>, Vec<_>) = node.filters.iter().partition(is_own);
        operations.extend(own.into_iter().map(|filter| slots.filter(filter)));

        let mut partials = 0;
        let mut firsts = BTreeMap::new();
        // Absences are tested on rows that have all that is there.
        let is_there = |&child: &usize| tree.nodes[child].absent.is_none();
        let (there, absent): (Vec<_>, Vec<_>) = node.children.iter().copied().partition(is_there);
        for child in there {
            let folds = begun.remove(&child).unwrap_or_default();
            firsts.insert(child, partials);
            let partial = u8::try_from(partials).map_err(|_| "the query has too many aggregates")?;
            let unpacked = self.child(child, &needed, folds, &task, &mut slots, mentioned)?;
            partials += unpacked.1;
            operations.push(Operation::Unpack { bag: bag(child), slots: unpacked.0, partial });
        }
        for child in absent {
            let (unpacked, _) = self.child(child, &needed, Vec::new(), &task, &mut slots, mentioned)?;
            let all = Term::Literal(Value::Bool(true));
            let conditions = tree.nodes[child].absent.iter().flatten().cloned();
            let both = |one, other| Term::Binary(Binary::And, Box::new(one), Box::new(other));
            let condition = conditions.reduce(both).unwrap_or(all).compile(&|atom| slots.slot(atom));
            if condition.steps().len() > STEPS {
                return Err("the conditions of a `Without` have too many operands and operators");
            }
            operations.push(Operation::Without { bag: bag(child), slots: unpacked, condition });
        }
        operations.extend(joined.into_iter().map(|filter| slots.filter(filter)));

        let mut columns = Vec::new();
        for key in &task.groups.keys {
            columns.push(slots.value(key, &mut operations)?);
        }
        let mut folds = Vec::new();
        for ((function, of), begun) in task.groups.folds.iter().zip(&begins) {
            let input = match (of, begun) {
                (_, Some((child, position))) => Input::Partial((firsts[child] + position) as u8),
                (Some(of), None) => Input::Slot(slots.value(of, &mut operations)?),
                (None, None) => Input::Rows,
            };
            folds.push(Fold { function: *function, input });
        }
        operations.push(match task.keep {
            Some(keep) => {
                Operation::Pack { bag: bag(index), keep, relation: node.relation, slots: columns, folds }
            }
            None => Operation::Emit { slots: columns, folds },
        });
        self.advice.push(Advice {
            label: node.label.clone(),
            tracepoints: node.tracepoints.clone(),
            operations,
            slots: slots.names,
            partials,
        });
        Ok(())
    }

    /// Compiles a child, and gives the slots and the number of partial aggregates that its rows
    /// fill in the node above.
    fn child(
        &mut self,
        child: usize,
        needed: &BTreeSet<Atom>,
        folds: Folds,
        above: &Task,
        slots: &mut Slots,
        mentioned: &BTreeSet<Atom>,
    ) -> Result<(Vec<u8>, usize), &'static str> {
        let tree = self.tree;
        let node = &tree.nodes[child];
        let mut unpacked = Vec::new();
        if let Some(answer) = &node.answer {
            let width = answer.keys.len() + answer.folds.len();
            let used = |position: usize| {
                let atom = Atom { node: child, of: Of::Answer(position) };
                position < answer.keys.len() || !self.rewrite.columns || needed.contains(&atom)
            };
            let kept: Vec<usize> = (0..width).filter(|&position| used(position)).collect();
            for &position in &kept {
                let slot = slots.add(name_of(answer, &node.label, position))?;
                slots.by_atom.insert(Atom { node: child, of: Of::Answer(position) }, slot);
                unpacked.push(slot);
            }
            let mut groups = Groups { keys: answer.keys.clone(), folds: Vec::new() };
            let folds = kept.iter().filter_map(|position| position.checked_sub(answer.keys.len()));
            groups.folds = folds.map(|fold| answer.folds[fold].clone()).collect();
            let begin = self.rewrite.groups && may_begin(&groups);
            let inner = tree.mentioned(child, &groups);
            self.node(child, Task { keep: Some(Keep::Answer), groups, begin }, &inner)?;
            return Ok((unpacked, 0));
        }
        let mut groups = Groups { keys: Vec::new(), folds };
        for atom in needed.iter().filter(|atom| tree.is_within(atom.node, child)) {
            let slot = slots.add(atom_name(tree, atom))?;
            slots.by_atom.insert(atom.clone(), slot);
            unpacked.push(slot);
            groups.keys.push(Term::Column(atom.clone()));
        }
        let begin = above.begin && node.keep == Keep::All;
        let partials = groups.folds.len();
        let keep = if begin { Keep::Groups } else { node.keep };
        self.node(child, Task { keep: Some(keep), groups, begin }, mentioned)?;
        Ok((unpacked, partials))
    }

    fn variable(&mut self, name: &str) -> Result<u16, &'static str> {
        let known = self.variables.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.variables.push(name.to_owned());
            self.variables.len() - 1
        });
        u16::try_from(index).map_err(|_| "the query has too many variables")
    }
}

impl Slots {
    fn slot(&self, atom: &Atom) -> u8 {
        // Every column of a node's terms was needed, so it has a slot.
        self.by_atom.get(atom).copied().unwrap_or(u8::MAX)
    }

    fn filter(&self, filter: &Term<Atom>) -> Operation {
        Operation::Filter { expression: filter.compile(&|atom| self.slot(atom)) }
    }

    /// The slot of a term's value, which a LET fills unless it is a column.
    fn value(&mut self, term: &Term<Atom>, operations: &mut Vec<Operation>) -> Result<u8, &'static str> {
        if let Term::Column(atom) = term {
            return Ok(self.slot(atom));
        }
        let expression = term.compile(&|atom| self.slot(atom));
        let known = operations.iter().find_map(|operation| match operation {
            Operation::Let { slot, expression: known } if *known == expression => Some(*slot),
            _ => None,
        });
        if let Some(slot) = known {
            return Ok(slot);
        }
        let slot = self.add(format!("let{}", self.names.len()))?;
        operations.push(Operation::Let { slot, expression });
        Ok(slot)
    }
}

/// The number of the bag between a node and its parent. The root has none.
fn bag(node: usize) -> u8 {
    node.saturating_sub(1) as u8
}

fn atom_name(tree: &Tree, atom: &Atom) -> String {
    let node = &tree.nodes[atom.node];
    match (&atom.of, &node.answer) {
        (Of::Field(name), _) => format!("{}.{name}", node.label),
        (Of::Answer(position), Some(answer)) => name_of(answer, &node.label, *position),
        (Of::Answer(position), None) => format!("{}.{position}", node.label),
    }
}

/// The name of a column of an answer: a group's number, or its aggregate.
fn name_of(answer: &Groups, label: &str, position: usize) -> String {
    match position.checked_sub(answer.keys.len()).and_then(|fold| answer.folds.get(fold)) {
        Some((function, _)) => format!("{label}.{}{position}", function.name().to_lowercase()),
        None => format!("{label}.key{position}"),
    }
}
