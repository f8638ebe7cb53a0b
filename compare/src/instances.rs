//! Instances: the runs that are compared, each with its events and states.

use std::collections::HashMap;

use rapidhash::fast::RandomState;

use super::features::Kind;

/// The class of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A run as it should be.
    Good,
    /// A run to be explained.
    Bad,
}

impl Class {
    /// 0 for good and 1 for bad.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// An instance without its variables.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The instance's id: a trace id, or as written in a file of instances.
    pub id: String,
    /// Its class.
    pub class: Class,
    /// The number of its run, of those that are compared.
    pub run: u32,
    /// The number of its type, in [`Source::types`].
    pub stratum: u32,
    /// The number of instances that it stands for; `None` if that is unknown.
    pub weight: Option<f64>,
    /// The length of the run, ms.
    pub length_ms: f64,
    /// The metric that is to be explained, P.
    pub metric: f64,
    /// The start, nanoseconds since the epoch; 0 if unknown.
    pub start_ns: u64,
}

/// The number of a variable in [`Variables`].
pub type VariableId = u32;

/// The events and states of one instance. Times are ms since its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// (variable, time).
    pub events: Vec<(VariableId, f64)>,
    /// (variable, time, value).
    pub states: Vec<(VariableId, f64, f64)>,
}

impl Observed {
    /// Removes everything.
    pub fn clear(&mut self) {
        self.events.clear();
        self.states.clear();
    }
}

/// The kind of thing that a variable is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An operation, an event, a log record or a number.
    Other,
    /// One value of an attribute.
    Attribute,
    /// One value of a resource's attribute, such as a version.
    Resource,
}

/// The names of variables, numbered in the order in which they were first seen.
#[derive(Clone, Debug)]
pub struct Variables {
    names: Vec<(Kind, String)>,
    /// The role of each variable.
    roles: Vec<Role>,
    /// The numbers of events and of states.
    numbers: [HashMap<String, VariableId, RandomState>; 2],
    /// The numbers of variables whose names have a key; `None` if they are to be ignored.
    keys: HashMap<u128, Option<VariableId>, RandomState>,
    most: usize,
    /// The number of observations of variables beyond `most`.
    left_out: u64,
}

impl Variables {
    /// An empty table for at most this many variables.
    pub fn new(most: usize) -> Self {
        Variables {
            names: Vec::new(),
            roles: Vec::new(),
            numbers: Default::default(),
            keys: HashMap::default(),
            most,
            left_out: 0,
        }
    }

    /// The number of a variable; `None` if the table is full. That is counted.
    pub fn number(&mut self, kind: Kind, name: &str) -> Option<VariableId> {
        let numbers = &mut self.numbers[kind as usize];
        if let Some(&number) = numbers.get(name) {
            return Some(number);
        }
        if self.names.len() >= self.most {
            self.left_out += 1;
            return None;
        }
        let number = self.names.len() as VariableId;
        self.names.push((kind, name.to_owned()));
        self.roles.push(Role::Other);
        numbers.insert(name.to_owned(), number);
        Some(number)
    }

    /// As [`Self::number`], but calls `name` only once for each key. If it returns `None`, every
    /// later call with the key does.
    pub fn number_of(
        &mut self,
        key: u128,
        kind: Kind,
        name: impl FnOnce() -> Option<String>,
    ) -> Option<VariableId> {
        if let Some(&known) = self.keys.get(&key) {
            return known;
        }
        let Some(name) = name() else {
            self.keys.insert(key, None);
            return None;
        };
        let number = self.number(kind, &name);
        if number.is_some() {
            self.keys.insert(key, number);
        }
        number
    }

    /// The kind and name of a variable.
    ///
    /// # Panics
    ///
    /// If the table has no variable with this number.
    pub fn get(&self, number: VariableId) -> (Kind, &str) {
        let (kind, name) = &self.names[number as usize];
        (*kind, name)
    }

    /// Sets the role of a variable.
    pub fn set_role(&mut self, number: VariableId, role: Role) {
        self.roles[number as usize] = role;
    }

    /// The role of a variable.
    pub fn role(&self, number: VariableId) -> Role {
        self.roles[number as usize]
    }

    /// The number of variables.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True without variables.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The number of observations that were left out because the table was full.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// All variables in the order of their kind and name, which does not depend on the order in
    /// which they were seen.
    pub fn sorted(&self) -> Vec<VariableId> {
        let mut order: Vec<VariableId> = (0..self.names.len() as VariableId).collect();
        order.sort_unstable_by(|&a, &b| self.names[a as usize].cmp(&self.names[b as usize]));
        order
    }
}

/// The instances of a comparison, which can be read several times.
pub trait Source {
    /// All instances, in an order that does not depend on the order of files.
    fn heads(&self) -> &[Head];

    /// The names of the types of instances, for [`Head::stratum`].
    fn types(&self) -> &[String];

    /// Adds the events and states of the instance at this place of [`Self::heads`] to `observed`.
    fn observe(&self, at: usize, variables: &mut Variables, observed: &mut Observed);
}
