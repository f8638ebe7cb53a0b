//! The key of a trace when its root has ended, by which strata tell traces apart.

use std::borrow::Cow;

use astracer_samplers::{Attributes, KeyRule};
use opentelemetry::SpanId;

use super::view::TailSpan;
use crate::clock::Clock;
use crate::record::TraceView;

/// Appends the attributes at the end to the key at the start.
#[derive(Clone, Debug, Default)]
pub struct EndKey {
    rule: KeyRule,
    /// The resource's value for each of the rule's attributes at the end.
    of_resource: Box<[Option<String>]>,
}

impl EndKey {
    /// `of_resource` finds the values of attributes that a root lacks.
    pub fn new(rule: KeyRule, of_resource: impl Fn(&str) -> Option<String>) -> Self {
        EndKey { of_resource: rule.attributes_at_end().map(of_resource).collect(), rule }
    }

    /// The key of a trace that had `key` at its start. It is `key` itself if the root has none of
    /// the attributes, or has not ended.
    pub(super) fn of<'a>(
        &self,
        key: &'a str,
        (trace, root): (TraceView<'_>, Option<SpanId>),
        clock: &Clock,
        memory: &'a mut String,
    ) -> &'a str {
        if self.of_resource.is_empty() {
            return key;
        }
        let root = trace.spans().find(|span| Some(span.record.span_id) == root);
        let root = root.map(|span| TailSpan { span, memory: trace.memory, clock });
        root.map_or(key, |root| self.rule.key_at_end(key, &Rooted { key: self, root }, memory))
    }
}

/// A root's attributes, and after them those of the resource.
struct Rooted<'a> {
    key: &'a EndKey,
    root: TailSpan<'a>,
}

impl Attributes for Rooted<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let of_resource = || {
            let at = self.key.rule.attributes_at_end().position(|known| known == name)?;
            self.key.of_resource.get(at)?.as_deref().map(Cow::Borrowed)
        };
        self.root.attribute(name).or_else(of_resource)
    }
}
