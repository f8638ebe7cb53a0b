//! A recorded trace as the policies of the samplers crate see it.

use astracer_samplers::Nanos;
use astracer_samplers::tail::{KeyNumber, Trace, Value as TailValue, View};
use opentelemetry::Value as OtelValue;

use super::own_policy::OwnPolicy;
use super::view::TailTrace;
use crate::record::{Buffer, Value};

/// A trace, with the user's functions that may want to keep it.
pub(super) struct PolicyView<'a> {
    pub(super) trace: TailTrace<'a>,
    pub(super) own: &'a [OwnPolicy],
}

impl PolicyView<'_> {
    /// The trace, to be submitted to the policies with this key and shape.
    pub(super) fn submitted(&self, key: KeyNumber, now: Nanos, shape: u64) -> Trace<'_> {
        Trace {
            key,
            now,
            duration: Nanos::new(self.trace.nanos),
            severity: self.trace.severity,
            shape,
            bytes: self.trace.buffer.bytes_used() as u64,
            view: self,
        }
    }
}

impl View for PolicyView<'_> {
    fn any_attribute(&self, name: &str, test: &mut dyn FnMut(TailValue<'_>) -> bool) -> bool {
        let Buffer { attributes, memory, .. } = self.trace.buffer;
        attributes.iter().filter(|attribute| attribute.is_named(name, memory)).any(
            |attribute| match attribute.value() {
                Value::Bool(value) => test(TailValue::Bool(value)),
                Value::I64(value) => test(TailValue::Int(value)),
                Value::F64(value) => test(TailValue::Float(value)),
                Value::Text(text) => test(TailValue::Text(memory.text(text))),
                Value::Texts(_) => false,
                Value::Other(place) => match memory.others.get(place as usize).map(|other| &other.value) {
                    Some(OtelValue::Bool(value)) => test(TailValue::Bool(*value)),
                    Some(OtelValue::I64(value)) => test(TailValue::Int(*value)),
                    Some(OtelValue::F64(value)) => test(TailValue::Float(*value)),
                    Some(OtelValue::String(text)) => test(TailValue::Text(text.as_str())),
                    _ => false,
                },
            },
        )
    }

    fn own(&self, name: &str) -> bool {
        let own = self.own.iter().find(|own| own.name == name);
        own.is_some_and(|own| own.wants_at_end(&self.trace, self.trace.clock))
    }
}
