//! Groups spans or log records incrementally: each is written at once into the text or bytes of its
//! resource and scope.

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::fast::RandomState;

use astracer_model::span::{Resource, Scope};

/// An export request in progress; JSON and protobuf share this part.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    resources: Vec<OfResource>,
    /// The index of each resource, and of each scope in it, by address. The `Arc`s in `resources`
    /// keep these addresses from being reused.
    by_resource: HashMap<usize, usize, RandomState>,
    by_scope: HashMap<(usize, usize), usize, RandomState>,
    /// The resource and scope of the last record.
    last: (usize, usize),
    records: usize,
    bytes: usize,
    /// Emptied buffers, kept for their capacity.
    spare: Vec<Vec<u8>>,
}

/// The records of one resource.
#[derive(Debug)]
pub(crate) struct OfResource {
    pub(crate) resource: Arc<Resource>,
    pub(crate) scopes: Vec<OfScope>,
}

/// The records of one scope.
#[derive(Debug)]
pub(crate) struct OfScope {
    pub(crate) scope: Arc<Scope>,
    /// The encoded records.
    pub(crate) records: Vec<u8>,
}

/// The number of emptied buffers that are kept.
const SPARE_MAX: usize = 64;

impl Gathered {
    /// Writes a record after the others of its resource and scope.
    ///
    /// Two resources (or scopes) count as the same if they have the same address, or if they are
    /// equal and belong to consecutive records. Otherwise they are not compared.
    #[inline]
    pub(crate) fn add(
        &mut self,
        resource: &Arc<Resource>,
        scope: &Arc<Scope>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.last = self.place(resource, scope);
        let records = &mut self.resources[self.last.0].scopes[self.last.1].records;
        let before = records.len();
        write(records);
        self.bytes += records.len() - before;
        self.records += 1;
    }

    /// The number of records added since the last [`clear`](Self::clear).
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// The number of bytes that these records take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The groups, in order of first occurrence.
    pub(crate) fn resources(&self) -> &[OfResource] {
        &self.resources
    }

    /// Removes all records.
    pub(crate) fn clear(&mut self) {
        for scope in self.resources.drain(..).flat_map(|resource| resource.scopes) {
            if self.spare.len() < SPARE_MAX {
                self.spare.push(scope.records);
            }
        }
        self.by_resource.clear();
        self.by_scope.clear();
        (self.last, self.records, self.bytes) = ((0, 0), 0, 0);
    }

    /// The indices of this resource and scope.
    fn place(&mut self, of: &Arc<Resource>, scope: &Arc<Scope>) -> (usize, usize) {
        let resource = match self.resources.get(self.last.0) {
            Some(last) if Arc::ptr_eq(&last.resource, of) => self.last.0,
            last => match self.by_resource.get(&address(of)) {
                Some(&known) => known,
                None if last.is_some_and(|last| last.resource == *of) => self.last.0,
                None => self.new_resource(of),
            },
        };
        let scopes = &self.resources[resource].scopes;
        let last = if resource == self.last.0 { scopes.get(self.last.1) } else { None };
        let scope = match last {
            Some(last) if Arc::ptr_eq(&last.scope, scope) => self.last.1,
            last => match self.by_scope.get(&(resource, address(scope))) {
                Some(&known) => known,
                None if last.is_some_and(|last| last.scope == *scope) => self.last.1,
                None => self.new_scope(resource, scope),
            },
        };
        (resource, scope)
    }

    fn new_resource(&mut self, resource: &Arc<Resource>) -> usize {
        self.by_resource.insert(address(resource), self.resources.len());
        self.resources.push(OfResource { resource: Arc::clone(resource), scopes: Vec::new() });
        self.resources.len() - 1
    }

    fn new_scope(&mut self, resource: usize, scope: &Arc<Scope>) -> usize {
        let scopes = &mut self.resources[resource].scopes;
        self.by_scope.insert((resource, address(scope)), scopes.len());
        let mut records = self.spare.pop().unwrap_or_default();
        records.clear();
        scopes.push(OfScope { scope: Arc::clone(scope), records });
        scopes.len() - 1
    }
}

fn address<T>(shared: &Arc<T>) -> usize {
    Arc::as_ptr(shared) as usize
}
