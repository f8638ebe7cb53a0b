//! Programs: texts whose names and clauses are checked.

use crate::check::{Query, check};
use crate::fault::{Fault, Source};
use crate::names::Definitions;
use crate::parser::parse;

/// A program: one query, or several of which the last may join the others.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) queries: Vec<Query>,
    hints: Vec<Fault>,
}

impl Program {
    /// Parses and checks a program. All faults that do not follow from each other come at once.
    pub fn parse(text: &str) -> Result<Program, Vec<Fault>> {
        Program::parse_with(text, &Definitions::default())
    }

    /// As [`Program::parse`]. A tracepoint without quotes that has a definition stands for its
    /// patterns.
    pub fn parse_with(text: &str, definitions: &Definitions) -> Result<Program, Vec<Fault>> {
        let mut source = Source::new(text);
        let written = parse(&mut source);
        let queries = check(&written, definitions, &mut source);
        let hints = source.take_hints();
        if source.has_faults() { Err(source.into_faults()) } else { Ok(Program { queries, hints }) }
    }

    /// Parts of the text that are valid and hardly mean what was meant, such as a duration without
    /// a unit.
    pub fn hints(&self) -> &[Fault] {
        &self.hints
    }
}
