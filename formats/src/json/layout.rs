//! Where a format's units lie in its documents, and what a document's members tell about it.

use super::cursor::{Cursor, Fault, Why};

/// Where a format's units lie in its documents.
///
/// A document that is a list holds documents or, if those have no `lists`, units. An object is a unit itself if
/// `lists` is empty, or if a member of `unit_keys` comes before any other that is named here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Members of a document whose elements are units.
    pub(crate) lists: &'static [&'static str],
    /// Members of a document that are documents in turn.
    pub(crate) wrappers: &'static [&'static str],
    /// Members of a unit, by which it is told from a document.
    pub(crate) unit_keys: &'static [&'static str],
    /// True if objects in a bare list are units; false if they are documents.
    pub(crate) bare_list: bool,
    /// True if a unit is one record, so that nothing of it is handed over before its end is reached.
    pub(crate) unit_is_record: bool,
    /// Members that tell a document of another kind, which is passed over in silence.
    pub(crate) others: &'static [&'static str],
}

/// What a file held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Documents with a list of units (be it empty), and objects that are units themselves.
    pub(crate) documents: u64,
    /// Documents that are known to be of another kind.
    pub(crate) others: u64,
}

/// What a member of a document is to a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    List,
    Wrapper,
    Unit,
    OtherKind,
    Unknown,
}

impl Layout {
    /// What the member of this name is.
    pub(super) fn role(&self, key: &str) -> Role {
        let roles = [
            (self.lists, Role::List),
            (self.wrappers, Role::Wrapper),
            (self.unit_keys, Role::Unit),
            (self.others, Role::OtherKind),
        ];
        roles.into_iter().find(|(keys, _)| keys.contains(&key)).map_or(Role::Unknown, |(_, role)| role)
    }

    /// The role of the first member of an object that has one; unknown if the text ends before.
    pub(super) fn first_role(&self, mut cursor: Cursor<'_>) -> Role {
        let mut first = Role::Unknown;
        // What is broken here is found again, and reported, when it is read.
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

    /// What is wrong with a document without any of the lists.
    pub(super) fn missing(&self) -> String {
        format!("expected a member '{}'", self.lists.first().unwrap_or(&""))
    }
}

/// Which members a document has.
#[derive(Default)]
pub(super) struct Members {
    list: bool,
    wrapper: bool,
    other_kind: bool,
    any: bool,
}

impl Members {
    /// Notes a member of this role.
    pub(super) fn saw(&mut self, role: Role) {
        self.any = true;
        match role {
            Role::List => self.list = true,
            Role::Wrapper => self.wrapper = true,
            Role::OtherKind => self.other_kind = true,
            Role::Unit | Role::Unknown => {}
        }
    }

    /// Counts the document; false if it is of no known kind. An empty object is an empty document.
    pub(super) fn count(&self, counts: &mut Counts) -> bool {
        if self.list {
            counts.documents += 1;
        } else if self.other_kind {
            counts.others += 1;
        }
        self.list || self.other_kind || self.wrapper || !self.any
    }
}
