//! The kinds of loss, and a set of them for one span.

use astracer_model::span::{Link, Span};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

macro_rules! losses {
    ($($(#[$doc:meta])* $name:ident $slug:literal $text:literal,)*) => {
        /// The kinds of loss.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Loss {
            $($(#[$doc])* $name,)*
        }

        impl Loss {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// A stable, machine-readable name.
            pub fn slug(self) -> &'static str {
                match self { $(Self::$name => $slug,)* }
            }

            /// A short description for people.
            pub fn describe(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

losses! {
    /// The upper half of a trace id.
    TraceId "trace_id" "trace id truncated to its low 64 bits",
    /// A time was truncated to the format's unit.
    TimePrecision "time_precision" "time truncated to the format's unit (milliseconds or microseconds)",
    /// A start time that the format cannot represent.
    Start "start" "start omitted: the format cannot represent it",
    /// An end without a start, before the start, or too close after it.
    End "end" "end omitted or moved: the format cannot represent the duration",
    /// The duration of a span without a start.
    Duration "duration" "duration omitted: the format has none without a start",
    /// The type of an attribute: number, Boolean, list, map or bytes.
    AttributeType "attribute_type" "attribute converted to text: the format lacks its type",
    /// Repeated attributes after the first with the same name.
    AttributeRepeated "attribute_repeated" "attribute omitted: another one has the same name",
    /// An attribute that the format would misread.
    AttributeLeftOut "attribute_left_out" "attribute omitted: the format would misread it",
    /// An attribute moved between span, scope and resource.
    AttributeMoved "attribute_moved" "attribute moved between span, scope and resource",
    /// An attribute whose name the format uses for a field.
    ReservedName "reserved_name" "attribute with a name that the format reserves",
    /// Parts of an event other than its name and time.
    EventDetails "event_details" "attributes of an event, or the count of dropped ones",
    /// A link.
    Link "link" "link omitted",
    /// A link into the span's own trace, which the format reads as a parent.
    LinkAsParent "link_as_parent" "link converted to a parent",
    /// Parts of a link other than the ids of the other span.
    LinkDetails "link_details" "attributes, tracestate or flags of a link, or the high half of its trace id",
    /// Trace flags.
    Flags "flags" "trace flags",
    /// The mark of the server's half of an id that client and server share.
    Shared "shared" "mark of a span id shared by client and server",
    /// The mark of a span whose parent did not wait for it (OpenTracing's FOLLOWS_FROM).
    Follows "follows" "mark of a span whose parent did not wait for it (FOLLOWS_FROM)",
    /// The number of attributes that the SDK discarded from a resource or scope.
    DroppedCounts "dropped_counts" "count of dropped attributes of a resource or scope",
    /// The schema of a resource or scope.
    SchemaUrl "schema_url" "schema URL",
    /// A resource without a service name.
    ServiceName "service_name" "resource without a service name: a default was written",
}

/// The losses of one span, as a bit set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found(u32);

impl Found {
    pub(super) fn add_if(&mut self, loss: Loss, lost: bool) {
        self.0 |= u32::from(lost) << loss as u32;
    }

    pub(super) fn add(&mut self, loss: Loss) {
        self.add_if(loss, true);
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Loss> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let loss = Loss::ALL.get(rest.trailing_zeros() as usize).copied();
            rest &= rest.wrapping_sub(1);
            loss
        })
    }

    /// Records times of the span and its events that are not a multiple of the format's unit.
    pub(super) fn precision(&mut self, span: &Span<'_>, unit_ns: u64) {
        let cut = |time: UnixNanos| !time.0.is_multiple_of(unit_ns);
        let lone = span.lone_duration.map(UnixNanos);
        let own = span.start.into_iter().chain(span.end).chain(lone).any(cut);
        self.add_if(Loss::TimePrecision, own || span.events.iter().any(|event| cut(event.time)));
    }

    /// Records losses common to Jaeger, Zipkin and HTrace.
    pub(super) fn outside_of_otlp(&mut self, span: &Span<'_>) {
        let (resource, scope) = (&span.resource, &span.scope);
        self.add_if(Loss::SchemaUrl, !resource.schema_url.is_empty() || !scope.schema_url.is_empty());
        self.add_if(Loss::DroppedCounts, resource.dropped_attributes != 0 || scope.dropped_attributes != 0);
    }

    /// Returns true if a resource attribute is the service's name. For formats that have one
    /// textual name. `named` is true if an earlier attribute was the name.
    pub(super) fn service_name(&mut self, attribute: &Attribute<'_>, named: &mut bool) -> bool {
        let is_name = attribute.key == "service.name";
        if is_name {
            self.add_if(Loss::AttributeRepeated, *named);
            self.add_if(Loss::AttributeType, attribute.value.as_str().is_none());
            *named = true;
        }
        is_name
    }

    /// Records attributes that are not text, for a format that has only text.
    pub(super) fn as_text(&mut self, attributes: &[Attribute<'_>]) {
        let typed = attributes.iter().any(|attribute| attribute.value.as_str().is_none());
        self.add_if(Loss::AttributeType, typed);
    }
}

/// Returns true if a value differs after a round trip through JSON: bytes, and numbers that JSON
/// cannot write.
pub(super) fn changes_in_json(value: &Value<'_>) -> bool {
    match value {
        Value::Bytes(_) => true,
        Value::Double(number) => !number.is_finite(),
        Value::Array(items) => items.iter().any(changes_in_json),
        Value::Map(members) => any_changes_in_json(members),
        _ => false,
    }
}

/// Returns true if any member of an object differs after a round trip through JSON.
pub(super) fn any_changes_in_json(members: &[Attribute<'_>]) -> bool {
    members.iter().any(|member| changes_in_json(&member.value))
}

/// Returns true if a link contains more than the ids of the other span.
pub(super) fn has_details(link: &Link<'_>) -> bool {
    !link.attributes.is_empty()
        || !link.trace_state.is_empty()
        || link.flags != 0
        || link.dropped_attributes != 0
}
