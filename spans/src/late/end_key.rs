//! The key of a trace when its root has ended, by which strata tell traces apart.

use std::borrow::Cow;
use std::sync::Arc;

use astracer_samplers::{Attributes, KeyRule};
use opentelemetry::SpanId;

use super::view::TailSpan;
use crate::clock::Clock;
use crate::record::TraceView;

/// Appends the attributes at the end to the key at the start.
#[derive(Clone, Debug, Default)]
pub struct EndKey {
    rule: KeyRule,
    of_resource: Arc<[(String, String)]>,
}

impl EndKey {
    /// `of_resource` has the attributes that a root may lack.
    pub fn new(rule: KeyRule, of_resource: Arc<[(String, String)]>) -> Self {
        EndKey { rule, of_resource }
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
        if self.rule.attributes_at_end().len() == 0 {
            return key;
        }
        let root = trace.spans().find(|span| Some(span.record.span_id) == root);
        let root = root.map(|span| TailSpan { span, memory: trace.memory, clock });
        root.map_or(key, |root| self.rule.key_at_end(key, &(&root, &*self.of_resource), memory))
    }
}

impl Attributes for TailSpan<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.attribute(name)
    }
}
