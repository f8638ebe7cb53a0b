//! An export request under way: spans are written as they come, each into the text of its resource and scope.

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::fast::RandomState;

use super::text;
use crate::span::{Resource, Scope, Span};

/// Gathers spans of any traces for one request, which becomes one line.
///
/// Nothing is kept of a span but its text, so spans that borrow from a reader's buffer need not be copied first. Memory
/// is what the line will take; the caller bounds it by [`bytes`](Self::bytes) or [`spans`](Self::spans).
#[derive(Debug, Default)]
pub struct Request {
    resources: Vec<OfResource>,
    /// Where the spans of a resource stand, and of a scope in it, by the addresses of what they share. The `Arc`s in
    /// `resources` keep an address from being given to something else.
    by_resource: HashMap<usize, usize, RandomState>,
    by_scope: HashMap<(usize, usize), usize, RandomState>,
    /// Where the last span went: in which resource, in which scope of it.
    last: (usize, usize),
    spans: usize,
    bytes: usize,
    /// Emptied texts, for their memory.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct OfResource {
    resource: Arc<Resource>,
    scopes: Vec<OfScope>,
}

#[derive(Debug)]
struct OfScope {
    scope: Arc<Scope>,
    /// Spans with commas between.
    text: Vec<u8>,
}

/// This many texts are kept for their memory.
const SPARE_MAX: usize = 64;

impl Request {
    /// Adds a span. Spans of one resource and scope stand together, in the order of their coming.
    ///
    /// Resources, and scopes, are the same if they are one in memory or equal to those of the span before; beyond that
    /// they are not compared.
    pub fn add(&mut self, span: &Span<'_>) {
        self.last = self.place(span);
        let text = &mut self.resources[self.last.0].scopes[self.last.1].text;
        let before = text.len();
        if before > 0 {
            text.push(b',');
        }
        text::span(text, span);
        self.bytes += text.len() - before;
        self.spans += 1;
    }

    /// How many spans were added since the last line.
    pub fn spans(&self) -> usize {
        self.spans
    }

    /// How long the line is by now, resources and scopes aside.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends the request as a line with its end to `out`, and starts a new one. Without spans nothing is appended.
    pub fn take_line(&mut self, out: &mut Vec<u8>) {
        if self.spans == 0 {
            return;
        }
        out.reserve(self.bytes);
        for (index, OfResource { resource, scopes }) in self.resources.iter_mut().enumerate() {
            out.extend_from_slice(if index == 0 {
                b"{\"resourceSpans\":[{\"resource\":"
            } else {
                b",{\"resource\":"
            });
            text::resource(out, resource);
            out.extend_from_slice(b",\"scopeSpans\":[");
            for (index, OfScope { scope, text }) in scopes.drain(..).enumerate() {
                out.extend_from_slice(if index == 0 { b"{\"scope\":" } else { b",{\"scope\":" });
                text::scope(out, &scope);
                out.extend_from_slice(b",\"spans\":[");
                out.extend_from_slice(&text);
                out.push(b']');
                text::text_member(out, "schemaUrl", &scope.schema_url);
                out.push(b'}');
                if self.spare.len() < SPARE_MAX {
                    self.spare.push(text);
                }
            }
            out.push(b']');
            text::text_member(out, "schemaUrl", &resource.schema_url);
            out.push(b'}');
        }
        out.extend_from_slice(b"]}\n");
        self.resources.clear();
        self.by_resource.clear();
        self.by_scope.clear();
        (self.last, self.spans, self.bytes) = ((0, 0), 0, 0);
    }

    /// In which resource and in which scope of it a span belongs.
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
        let mut text = self.spare.pop().unwrap_or_default();
        text.clear();
        scopes.push(OfScope { scope: Arc::clone(scope), text });
        scopes.len() - 1
    }
}

fn address<T>(shared: &Arc<T>) -> usize {
    Arc::as_ptr(shared) as usize
}
