//! A recorded trace as the policies of the samplers crate see it.

use astracer_model::Value;
use astracer_samplers::Nanos;
use astracer_samplers::tail::{KeyNumber, Trace, Value as TailValue, View};

use super::own_policy::OwnPolicy;
use super::view::TailTrace;
use crate::record::TraceView;

/// A trace, with the user's functions that may want to keep it.
pub(super) struct PolicyView<'a> {
    pub(super) trace: TailTrace<'a>,
    pub(super) own: &'a [OwnPolicy],
}

impl PolicyView<'_> {
    /// The trace, to be submitted to the policies with this key.
    pub(super) fn submitted(&self, key: KeyNumber, now: Nanos, (shape, bytes): (u64, usize)) -> Trace<'_> {
        Trace {
            key,
            now,
            duration: Nanos::new(self.trace.nanos),
            severity: self.trace.severity,
            shape,
            bytes: bytes as u64,
            view: self,
        }
    }
}

impl View for PolicyView<'_> {
    fn any_attribute(&self, name: &str, test: &mut dyn FnMut(TailValue<'_>) -> bool) -> bool {
        let TraceView { attributes, memory, .. } = self.trace.spans;
        attributes.iter().filter(|attribute| attribute.is_named(name, memory)).any(
            |attribute| match attribute.model_value(memory) {
                Value::Bool(value) => test(TailValue::Bool(value)),
                Value::Int(value) => test(TailValue::Int(value)),
                Value::Double(value) => test(TailValue::Float(value)),
                Value::String(text) => test(TailValue::Text(&text)),
                _ => false,
            },
        )
    }

    fn own(&self, name: &str) -> bool {
        let own = self.own.iter().find(|own| own.name == name);
        own.is_some_and(|own| own.wants(&self.trace, self.trace.clock))
    }
}
