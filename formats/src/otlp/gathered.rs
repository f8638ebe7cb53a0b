//! Groups spans incrementally: each span is written at once into the text or bytes of its resource
//! and scope.

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::fast::RandomState;

use astracer_model::span::{Resource, Scope, Span};

/// An export request in progress; JSON and protobuf share this part.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    resources: Vec<OfResource>,
    /// The index of each resource, and of each scope in it, by address. The `Arc`s in `resources`
    /// keep these addresses from being reused.
    by_resource: HashMap<usize, usize, RandomState>,
    by_scope: HashMap<(usize, usize), usize, RandomState>,
    /// The resource and scope of the last span.
    last: (usize, usize),
    spans: usize,
    bytes: usize,
    /// Emptied buffers, kept for their capacity.
    spare: Vec<Vec<u8>>,
}

/// The spans of one resource.
#[derive(Debug)]
pub(crate) struct OfResource {
    pub(crate) resource: Arc<Resource>,
    pub(crate) scopes: Vec<OfScope>,
}

/// The spans of one scope.
#[derive(Debug)]
pub(crate) struct OfScope {
    pub(crate) scope: Arc<Scope>,
    /// The encoded spans.
    pub(crate) spans: Vec<u8>,
}

/// The number of emptied buffers that are kept.
const SPARE_MAX: usize = 64;

impl Gathered {
    /// Writes a span after the others of its resource and scope.
    ///
    /// Two resources (or scopes) count as the same if they have the same address, or if they are
    /// equal and belong to consecutive spans. Otherwise they are not compared.
    #[inline]
    pub(crate) fn add(&mut self, span: &Span<'_>, write: impl FnOnce(&mut Vec<u8>, &Span<'_>)) {
        self.last = self.place(span);
        let spans = &mut self.resources[self.last.0].scopes[self.last.1].spans;
        let before = spans.len();
        write(spans, span);
        self.bytes += spans.len() - before;
        self.spans += 1;
    }

    /// The number of spans added since the last [`clear`](Self::clear).
    pub(crate) fn spans(&self) -> usize {
        self.spans
    }

    /// The number of bytes that these spans take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The groups, in order of first occurrence.
    pub(crate) fn resources(&self) -> &[OfResource] {
        &self.resources
    }

    /// Removes all spans.
    pub(crate) fn clear(&mut self) {
        for scope in self.resources.drain(..).flat_map(|resource| resource.scopes) {
            if self.spare.len() < SPARE_MAX {
                self.spare.push(scope.spans);
            }
        }
        self.by_resource.clear();
        self.by_scope.clear();
        (self.last, self.spans, self.bytes) = ((0, 0), 0, 0);
    }

    /// The indices of the resource and scope to which a span belongs.
    fn place(&mut self, span: &Span<'_>) -> (usize, usize) {
        let resource = match self.resources.get(self.last.0) {
            Some(last) if Arc::ptr_eq(&last.resource, &span.resource) => self.last.0,
            last => match self.by_resource.get(&address(&span.resource)) {
                Some(&known) => known,
                None if last.is_some_and(|last| last.resource == span.resource) => self.last.0,
                None => self.new_resource(&span.resource),
            },
        };
        let scopes = &self.resources[resource].scopes;
        let last = if resource == self.last.0 { scopes.get(self.last.1) } else { None };
        let scope = match last {
            Some(last) if Arc::ptr_eq(&last.scope, &span.scope) => self.last.1,
            last => match self.by_scope.get(&(resource, address(&span.scope))) {
                Some(&known) => known,
                None if last.is_some_and(|last| last.scope == span.scope) => self.last.1,
                None => self.new_scope(resource, &span.scope),
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
        let mut spans = self.spare.pop().unwrap_or_default();
        spans.clear();
        scopes.push(OfScope { scope: Arc::clone(scope), spans });
        scopes.len() - 1
    }
}

fn address<T>(shared: &Arc<T>) -> usize {
    Arc::as_ptr(shared) as usize
}
