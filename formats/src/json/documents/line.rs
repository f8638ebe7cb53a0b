//! The documents of one line that contains nothing else.

use super::super::cursor::{Cursor, Fault};
use super::super::layout::{Counts, Layout, Members, Role};
use super::super::out::Out;
use super::{NO_DOCUMENT, ReadUnit};
use astracer_model::problem::ProblemKind;

/// The state needed to read a line, apart from its text.
pub(super) struct Line<'l, 's, 'u> {
    pub(super) out: &'l mut Out<'s>,
    pub(super) layout: &'l Layout,
    pub(super) counts: &'l mut Counts,
    pub(super) read_unit: &'l mut ReadUnit<'u>,
}

impl Line<'_, '_, '_> {
    /// Reads one document of a line.
    pub(super) fn document(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        match cursor.peek() {
            Some(b'[') => cursor.list(|cursor| match cursor.peek() {
                Some(b'{') if self.layout.bare_list => self.unit(cursor),
                Some(b'{' | b'[') => self.document(cursor),
                _ => {
                    let at = cursor.at();
                    cursor.skip()?;
                    self.out.problem_at(ProblemKind::BadRecord, cursor.text(), at, NO_DOCUMENT);
                    Ok(())
                }
            }),
            Some(b'{') if self.is_unit(cursor) => self.unit(cursor),
            Some(b'{') => self.object(cursor),
            _ => cursor.fault_at(cursor.at(), NO_DOCUMENT),
        }
    }

    fn is_unit(&self, cursor: &Cursor<'_>) -> bool {
        let told_by_keys = !self.layout.unit_keys.is_empty();
        self.layout.lists.is_empty() || told_by_keys && self.layout.first_role(cursor.clone()) == Role::Unit
    }

    fn unit(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        self.counts.documents += 1;
        self.out.record(cursor, &mut *self.read_unit)
    }

    fn object(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        let start = cursor.at();
        let mut members = Members::default();
        cursor.object(|cursor, key| {
            let role = self.layout.role(&key);
            members.saw(role);
            match (role, cursor.peek()) {
                (Role::List, Some(b'[')) => self.out.records(cursor, &mut *self.read_unit),
                (Role::Wrapper, Some(b'{')) => self.document(cursor),
                (Role::List, Some(first)) if first != b'n' => {
                    self.out.problem_at(
                        ProblemKind::BadRecord,
                        cursor.text(),
                        cursor.at(),
                        "expected a list",
                    );
                    cursor.skip().map(drop)
                }
                _ => cursor.skip().map(drop),
            }
        })?;
        if !members.count(self.counts) {
            self.out.problem_at(ProblemKind::BadRecord, cursor.text(), start, &self.layout.missing());
        }
        Ok(())
    }
}
