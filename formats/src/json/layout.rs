//! The location of a format's units in its documents, and the role of each document member.

use super::cursor::{Cursor, Fault, Why};

/// The location of a format's units in its documents.
///
/// A document that is a list contains documents or, if those have no `lists`, units. An object is
/// itself a unit if `lists` is empty, or if a member of `unit_keys` precedes every other member
/// named here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Members of a document whose elements are units.
    pub(crate) lists: &'static [&'static str],
    /// Members of a document that are themselves documents.
    pub(crate) wrappers: &'static [&'static str],
    /// Members that distinguish a unit from a document.
    pub(crate) unit_keys: &'static [&'static str],
    /// True if objects in a bare list are units; false if they are documents.
    pub(crate) bare_list: bool,
    /// True if a unit is one record, so that nothing is delivered before the unit has been read
    /// completely.
    pub(crate) unit_is_record: bool,
    /// True if a logger may have written text before a document on its line.
    pub(crate) behind_text: bool,
    /// Members of documents of another kind, which are skipped without a problem.
    pub(crate) others: &'static [&'static str],
}

/// The contents of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Documents with a list of units, even an empty one, and objects that are units.
    pub(crate) documents: u64,
    /// Documents of another known kind.
    pub(crate) others: u64,
}

/// The role of a document member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    List,
    Wrapper,
    Unit,
    OtherKind,
    Unknown,
}

impl Layout {
    /// Each object is a unit, on its own or in a list.
    pub(crate) const RECORDS: Self = Self {
        lists: &[],
        wrappers: &[],
        unit_keys: &[],
        bare_list: true,
        unit_is_record: true,
        behind_text: false,
        others: &[],
    };

    /// The role of the member with this name.
    pub(super) fn role(&self, key: &str) -> Role {
        let roles = [
            (self.lists, Role::List),
            (self.wrappers, Role::Wrapper),
            (self.unit_keys, Role::Unit),
            (self.others, Role::OtherKind),
        ];
        roles.into_iter().find(|(keys, _)| keys.contains(&key)).map_or(Role::Unknown, |(_, role)| role)
    }

    /// The role of the first member of an object that has a role; unknown if the text ends before
    /// it.
    pub(super) fn first_role(&self, mut cursor: Cursor<'_>) -> Role {
        let mut first = Role::Unknown;
        // A fault here is found again, and reported, when the object is read.
        let _ = cursor.object(|cursor, key| {
            first = self.role(&key);
            if first == Role::Unknown {
                cursor.skip().map(drop)
            } else {
                Err(Fault { at: 0, why: Why::Stopped })
            }
        });
        first
    }

    /// The problem of a document that has none of the lists.
    pub(super) fn missing(&self) -> String {
        format!("expected a member '{}'", self.lists.first().unwrap_or(&""))
    }
}

/// The members of a document.
#[derive(Default)]
pub(super) struct Members {
    list: bool,
    wrapper: bool,
    other_kind: bool,
    any: bool,
}

impl Members {
    /// Records a member of this role.
    pub(super) fn saw(&mut self, role: Role) {
        self.any = true;
        match role {
            Role::List => self.list = true,
            Role::Wrapper => self.wrapper = true,
            Role::OtherKind => self.other_kind = true,
            Role::Unit | Role::Unknown => {}
        }
    }

    /// Counts the document; returns false if its kind is unknown. An empty object is an empty
    /// document.
    pub(super) fn count(&self, counts: &mut Counts) -> bool {
        if self.list {
            counts.documents += 1;
        } else if self.other_kind {
            counts.others += 1;
        }
        self.list || self.other_kind || self.wrapper || !self.any
    }
}
